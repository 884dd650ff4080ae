/* print - the lines of dpdriver --check for an imported network: one for each module, and the
 * totals. */
#include "import/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

/* The value of the node's argument; NULL if it has none. */
static const struct import_value *print_operand(const struct import_network *n,
                                                const struct import_node *k, const char *name,
                                                int place)
{
    const struct import_arg *a = import_arg_find(k, name, place);

    if (!a || a->kind != IMPORT_VALUE || a->n < 1 || a->values[0] == IMPORT_NO_VALUE)
        return NULL;
    return &n->value[a->values[0]];
}

static const struct import_value *print_result(const struct import_network *n,
                                               const struct import_node *k)
{
    const struct import_value *v =
        k->n_out && k->out[0] != IMPORT_NO_VALUE ? &n->value[k->out[0]] : NULL;

    return v && !v->is_int ? v : NULL;
}

static double print_elements(const struct import_value *v)
{
    double n = 1;

    for (int d = 0; d < v->n_dims; d++)
        n *= (double)v->dim[d];
    return n;
}

static double print_extent(const struct import_value *v, int from_end)
{
    return v && v->n_dims >= from_end ? (double)v->dim[v->n_dims - from_end] : 0;
}

/* A product's operations for each element of its output: two for each element of what is summed. */
static double print_depth(const struct import_network *n, const struct import_node *k)
{
    static const struct {
        const char *target, *operand;
        int place, from_end;
    } row[] = {{"linear.default", "input", 0, 1},
               {"matmul.default", "self", 0, 1},
               {"bmm.default", "self", 0, 1},
               {"mm.default", "self", 0, 1},
               {"addmm.default", "mat1", 1, 1}};
    const struct import_value *w;

    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        if (!strcmp(k->target, row[i].target))
            return 2 *
                   print_extent(print_operand(n, k, row[i].operand, row[i].place), row[i].from_end);
    if (strncmp(k->target, "conv", 4) != 0)
        return 1;
    w = print_operand(n, k, "weight", 1);
    return w && w->n_dims > 0 && w->dim[0] > 0 ? 2 * print_elements(w) / (double)w->dim[0] : 1;
}

static double print_operations(const struct import_network *n, const struct import_node *k)
{
    const struct import_value *y = print_result(n, k), *q = print_operand(n, k, "query", 0),
                              *key = print_operand(n, k, "key", 1);

    if (!y)
        return 0;
    if (!strcmp(k->target, "scaled_dot_product_attention.default") && q && key)
        return 2 * print_extent(key, 2) * (print_elements(q) + print_elements(y));
    return print_elements(y) * print_depth(n, k);
}

/* 1: the operator moves or names elements, and computes nothing. */
static int print_is_view(const char *target)
{
    static const char *const views[] = {
        "view.",      "reshape.",    "flatten.",   "unflatten.", "transpose.", "permute.",
        "unsqueeze.", "squeeze.",    "expand",     "slice.",     "select.",    "split",
        "chunk.",     "contiguous.", "alias.",     "clone.",     "detach",     "to.",
        "swapaxes.",  "sym_size.",   "_operator.", "_assert",    "lift_fresh", "type_as.",
        "unbind.",    "t.",          "empty",      "movedim."};

    for (size_t i = 0; i < ARRAY_LEN(views); i++)
        if (!strncmp(target, views[i], strlen(views[i])))
            return 1;
    return 0;
}

/* The elements of the parameters that the node is the first one to read; *seen notes them. */
static int64_t print_parameters(const struct import_network *n, const struct import_node *k,
                                char *seen)
{
    int64_t sum = 0;

    for (int a = 0; a < k->n_args; a++)
        for (int i = 0; i < k->arg[a].n; i++) {
            const int is_value = k->arg[a].kind == IMPORT_VALUE || k->arg[a].kind == IMPORT_VALUES;
            const int value = is_value ? k->arg[a].values[i] : IMPORT_NO_VALUE;
            int t = value == IMPORT_NO_VALUE ? -1 : n->value[value].tensor;

            while (t >= 0 && n->tensor[t].same_as >= 0)
                t = n->tensor[t].same_as;
            if (t < 0 || seen[t] || n->tensor[t].role != IMPORT_PARAMETER)
                continue;
            seen[t] = 1;
            sum += (int64_t)print_elements(&n->value[value]);
        }
    return sum;
}

static void print_shape(const struct import_value *v, char *to, size_t room)
{
    size_t at = (size_t)snprintf(to, room, "[");

    for (int d = 0; d < v->n_dims && at < room; d++)
        at += (size_t)snprintf(to + at, room - at, "%s%lld", d ? "," : "", (long long)v->dim[d]);
    if (at < room)
        snprintf(to + at, room - at, "]");
}

static double print_batch(const struct import_network *n)
{
    const int v = n->n_inputs ? n->input[0].value : IMPORT_NO_VALUE;

    return v != IMPORT_NO_VALUE && n->value[v].n_dims && n->value[v].dim[0] > 0
               ? (double)n->value[v].dim[0]
               : 1;
}

void import_print(const struct import_network *n, struct buf *out)
{
    char *seen = xcalloc((size_t)n->n_tensors + 1, 1);
    double total = 0;
    int64_t parameters = 0;
    int n_shown = 0;

    buf_printf(out, "%-40s %-28s %-20s %12s %14s\n", "layer", "operator", "output", "parameters",
               "operations");
    for (int i = 0; i < n->n_nodes; i++) {
        const struct import_node *k = &n->node[i];
        const struct import_value *y = print_result(n, k);
        const int64_t own = print_parameters(n, k, seen);
        const double ops = print_operations(n, k) / print_batch(n);
        char shape[96];

        parameters += own;
        if (!y || print_is_view(k->target))
            continue;
        print_shape(y, shape, sizeof shape);
        total += ops;
        n_shown++;
        buf_printf(out, "%-40s %-28s %-20s %12lld %14.0f\n", *k->module ? k->module : "-",
                   k->target, shape, (long long)own, ops);
    }
    buf_printf(out,
               "imported           %s by %s: %d nodes (%d compute), %lld parameters in use, %.4g "
               "million operations for a sample\n",
               n->path, *n->writer ? n->writer : "an unnamed writer", n->n_nodes, n_shown,
               (long long)parameters, total / 1e6);
    free(seen);
}
