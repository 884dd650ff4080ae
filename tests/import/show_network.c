/* show_network - prints a file of torch.export.save as text, for developers and for tests: a line
 * for each tensor, input, node and output. */
#include <stdio.h>

#include "import/onnx.h"
#include "import/pt2.h"

static void show_shape(const struct import_network *n, const struct import_value *v)
{
    if (v->is_int) {
        printf("int=%lld", (long long)v->hint);
        return;
    }
    printf("%s[", import_type_name(v->type));
    for (int i = 0; i < v->n_dims; i++) {
        printf("%s%lld", i ? "," : "", (long long)v->dim[i]);
        if (v->symbol[i] >= 0)
            printf("=%s", n->symbol[v->symbol[i]].name);
    }
    printf("]");
}

static const char *show_name(const struct import_network *n, int v)
{
    return v == IMPORT_NO_VALUE ? "None" : n->value[v].name;
}

static void show_arg(const struct import_network *n, const struct import_arg *a)
{
    printf("%s%s=", a->is_keyword ? "*" : "", a->name);
    if (a->kind == IMPORT_NONE)
        printf("None");
    if (a->text)
        printf("'%s'", a->text);
    for (int i = 0; i < a->n; i++) {
        printf("%s", i ? "," : "");
        if (a->kind == IMPORT_DTYPE)
            printf("%s", import_type_name((enum import_type)a->ints[i].number));
        else if (a->ints && a->ints[i].value >= 0)
            printf("%s", show_name(n, a->ints[i].value));
        else if (a->ints)
            printf("%lld", (long long)a->ints[i].number);
        else if (a->reals)
            printf("%.9g", a->reals[i]);
        else
            printf("%s", show_name(n, a->values[i]));
    }
    printf(" ");
}

static void show_tensor(const struct import_tensor *t)
{
    static const char *const roles[] = {"parameter", "buffer", "constant"};

    printf("%s %s %s[", roles[t->role], t->name, import_type_name(t->type));
    for (int i = 0; i < t->n_dims; i++)
        printf("%s%lld", i ? "," : "", (long long)t->dim[i]);
    printf("]%s%s", t->requires_grad ? " grad" : "", t->bytes ? " bytes" : "");
    if (t->same_as >= 0)
        printf(" tied=%d", t->same_as);
    printf("\n");
}

static void show_node(const struct import_network *n, const struct import_node *node)
{
    printf("node %s %s(", node->module[0] ? node->module : ".", node->target);
    for (int i = 0; i < node->n_args; i++)
        show_arg(n, &node->arg[i]);
    printf(")%s ->", node->no_gradient ? " no_gradient" : "");
    for (int i = 0; i < node->n_out; i++) {
        printf(" %s ", show_name(n, node->out[i]));
        if (node->out[i] >= 0)
            show_shape(n, &n->value[node->out[i]]);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    struct import_network *n;
    struct err err;

    if (argc != 2) {
        fprintf(stderr, "usage: %s NET.pt2\n", argv[0]);
        return 2;
    }
    if ((onnx_is_name(argv[1]) ? onnx_read(argv[1], &n, &err) : pt2_read(argv[1], &n, &err)) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    printf("network %s: %s, %s: %d nodes, %d values, %d tensors\n", n->path, n->writer,
           n->is_eval ? "evaluation" : "training", n->n_nodes, n->n_values, n->n_tensors);
    for (int i = 0; i < n->n_symbols; i++)
        printf("symbol %s at export %lld\n", n->symbol[i].name, (long long)n->symbol[i].hint);
    for (int i = 0; i < n->n_tensors; i++)
        show_tensor(&n->tensor[i]);
    for (int i = 0; i < n->n_inputs; i++) {
        printf("input %s = %s ", n->input[i].name, show_name(n, n->input[i].value));
        show_shape(n, &n->value[n->input[i].value]);
        printf("\n");
    }
    for (int i = 0; i < n->n_nodes; i++)
        show_node(n, &n->node[i]);
    for (int i = 0; i < n->n_outputs; i++) {
        printf("output %s = %s ", n->output[i].name, show_name(n, n->output[i].value));
        show_shape(n, &n->value[n->output[i].value]);
        printf("\n");
    }
    import_network_free(n);
    return 0;
}
