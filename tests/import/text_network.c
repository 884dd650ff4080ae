/* text_network - reads lines into the arrays of a network, which grow in its arena by doubling the
 * number of lines: an upper bound of each. */
#include "text_network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import/lower.h"
#include "op/op.h"

struct text {
    struct import_network *n;
    const char *line; /* for messages */
};

static void text_fail(const struct text *t, const char *why)
{
    fprintf(stderr, "%s: %s\n", why, t->line);
    abort();
}

static int text_value(const struct text *t, const char *name)
{
    if (!strcmp(name, "-"))
        return IMPORT_NO_VALUE;
    for (int i = t->n->n_values - 1; i >= 0; i--)
        if (!strcmp(t->n->value[i].name, name))
            return i;
    text_fail(t, name);
    return 0;
}

static int text_tensor(const struct text *t, const char *name)
{
    for (int i = 0; i < t->n->n_tensors; i++)
        if (!strcmp(t->n->tensor[i].name, name))
            return i;
    text_fail(t, name);
    return 0;
}

static enum import_type text_type(const struct text *t, const char *name)
{
    for (int i = 0; i < IMPORT_TYPE_COUNT; i++)
        if (!strcmp(import_type_name((enum import_type)i), name))
            return (enum import_type)i;
    text_fail(t, "no such type");
    return IMPORT_F32;
}

static int text_dims(const char *from, int64_t *dim)
{
    int n = 0;

    for (char *end; *++from && *from != ']'; from = *end == ',' ? end : end - 1)
        dim[n++] = strtoll(from, &end, 10);
    return n;
}

static void text_add_tensor(struct text *t, char **word, int n_words)
{
    struct import_tensor *x = &t->n->tensor[t->n->n_tensors++];
    int64_t *v;

    *x = (struct import_tensor){.name = word[1], .same_as = -1};
    x->role = *word[2] == 'p'   ? IMPORT_PARAMETER
              : *word[2] == 'b' ? IMPORT_BUFFER
                                : IMPORT_CONSTANT;
    x->type = text_type(t, word[3]);
    x->requires_grad = atoi(word[4]);
    x->n_dims = text_dims(word[5], x->dim);
    if (n_words <= 6)
        return;
    if (x->type != IMPORT_I64 && x->type != IMPORT_F32 && x->type != IMPORT_BOOL)
        text_fail(t, "elements of another type than I64, F32 or BOOL");
    v = arena_alloc(&t->n->arena, sizeof *v * (size_t)n_words);
    for (int i = 7; i < n_words; i++) {
        const float f = strtof(word[i], NULL);

        if (x->type == IMPORT_F32)
            memcpy((char *)v + 4 * (i - 7), &f, sizeof f);
        else if (x->type == IMPORT_BOOL)
            ((char *)v)[i - 7] = *word[i] == '1';
        else
            v[i - 7] = strtoll(word[i], NULL, 10);
    }
    x->bytes = (const char *)v;
}

static void text_add_value(struct text *t, char **word, int n_words)
{
    struct import_value *v = &t->n->value[t->n->n_values++];

    *v = (struct import_value){.name = word[1], .tensor = -1};
    for (int d = 0; d < IMPORT_MAX_DIMS; d++)
        v->symbol[d] = -1;
    if (!strcmp(word[2], "int")) {
        v->is_int = 1;
        v->hint = atoll(word[3]);
        return;
    }
    v->type = text_type(t, word[2]);
    v->n_dims = text_dims(word[3], v->dim);
    if (n_words > 5)
        v->tensor = text_tensor(t, word[5]);
}

static void text_arg(struct text *t, char *word, struct import_arg *a)
{
    enum { MOST = 4096 };
    char *content = strchr(word, '=');
    struct import_int *ints = arena_alloc(&t->n->arena, 16);
    double *real = arena_alloc(&t->n->arena, 16);
    int n = 1, *values;
    char kind;

    if (!content)
        text_fail(t, word);
    *content++ = 0;
    kind = *content++;
    for (const char *c = content; *c; c++)
        n += *c == ',';
    if (!*content)
        n = 0;
    *a = (struct import_arg){.name = word, .is_keyword = 1, .n = n};
    ints = arena_alloc(&t->n->arena, sizeof *ints * ((size_t)n + 1));
    values = arena_alloc(&t->n->arena, sizeof *values * ((size_t)n + 1));
    a->text = content;
    a->ints = ints;
    a->reals = real;
    a->values = values;
    *real = strtod(content, NULL);
    a->kind = kind == 'v'   ? IMPORT_VALUE
              : kind == 'V' ? IMPORT_VALUES
              : kind == 'i' ? IMPORT_INT
              : kind == 'I' ? IMPORT_INTS
              : kind == 'r' ? IMPORT_REAL
              : kind == 'f' ? IMPORT_FLAG
              : kind == 't' ? IMPORT_TEXT
              : kind == 'd' ? IMPORT_DTYPE
                            : IMPORT_NONE;
    if (kind == 't' || kind == 'r' || kind == 'n')
        return;
    if (kind == 'd') {
        ints[0] = (struct import_int){text_type(t, content), IMPORT_NO_VALUE};
        return;
    }
    for (int i = 0; i < n; i++) {
        char *end = strchr(content, ',');

        if (end)
            *end = 0;
        if (kind == 'v' || kind == 'V')
            values[i] = text_value(t, content);
        else
            ints[i] = (struct import_int){strtoll(content, NULL, 10), IMPORT_NO_VALUE};
        content = end ? end + 1 : content;
    }
}

static void text_add_node(struct text *t, char **word, int n_words)
{
    struct import_node *k = &t->n->node[t->n->n_nodes++];
    struct import_arg *arg = arena_alloc(&t->n->arena, sizeof *arg * (size_t)n_words);
    int *out = arena_alloc(&t->n->arena, sizeof *out * (size_t)n_words), i = 3;

    *k = (struct import_node){.target = word[1], .module = strcmp(word[2], "-") ? word[2] : ""};
    for (; i < n_words && strcmp(word[i], "->") != 0; i++)
        text_arg(t, word[i], &arg[k->n_args++]);
    for (i++; i < n_words; i++)
        out[k->n_out++] = text_value(t, word[i]);
    k->arg = arg;
    k->out = out;
    k->name = k->n_out > 0 && out[0] >= 0 ? t->n->value[out[0]].name : word[1];
}

static void text_line(struct text *t, char *line)
{
    const size_t len = strlen(line);
    char **word = arena_alloc(&t->n->arena, sizeof *word * (len / 2 + 9)), *rest;
    struct import_network *n = t->n;
    int k = 0;

    t->line = arena_strdup(&n->arena, line);
    for (char *w = strtok_r(line, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        word[k++] = w;
    if (k == 0 || *word[0] == '#')
        return;
    if (!strcmp(word[0], "tensor"))
        text_add_tensor(t, word, k);
    else if (!strcmp(word[0], "value"))
        text_add_value(t, word, k);
    else if (!strcmp(word[0], "tied"))
        n->tensor[text_tensor(t, word[1])].same_as = text_tensor(t, word[2]);
    else if (!strcmp(word[0], "input"))
        n->input[n->n_inputs++] = (struct import_port){word[1], text_value(t, word[2])};
    else if (!strcmp(word[0], "output"))
        n->output[n->n_outputs++] = (struct import_port){word[1], text_value(t, word[2])};
    else if (!strcmp(word[0], "node"))
        text_add_node(t, word, k);
    else if (!strcmp(word[0], "eval"))
        n->is_eval = 1;
    else
        text_fail(t, "no such line");
}

struct import_network *text_network(const char *text)
{
    struct import_network *n = import_network_new("text");
    struct text t = {.n = n};
    char *copy = arena_strdup(&n->arena, text), *rest;
    size_t lines = 2;

    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    n->tensor = arena_alloc(&n->arena, lines * sizeof *n->tensor);
    n->value = arena_alloc(&n->arena, lines * sizeof *n->value);
    n->node = arena_alloc(&n->arena, lines * sizeof *n->node);
    n->input = arena_alloc(&n->arena, lines * sizeof *n->input);
    n->output = arena_alloc(&n->arena, lines * sizeof *n->output);
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        text_line(&t, line);
    return n;
}

struct graph *text_lower(const char *text, int64_t batch, int training, int *outputs,
                         struct err *err)
{
    struct import_network *n = text_network(text);
    struct graph *g = graph_new(batch, training);
    struct net m = {.g = g, .h = NO_VALUE, .err = err};
    const struct import_value *v = &n->value[n->input[0].value];
    struct shape s = {.n = v->n_dims};
    int input[1];
    const struct import_choices c = {.input = input, .dropout = -1};

    for (int d = 0; d < v->n_dims; d++)
        s.dim[d] = v->dim[v->n_dims == 4 ? (const int[]){0, 2, 3, 1}[d] : d];
    s.dim[0] = batch;
    input[0] = graph_input(g, v->type == IMPORT_I32 ? DTYPE_I32 : DTYPE_F32, s, "x");
    if (import_lower(&m, n, &c, outputs) < 0) {
        graph_free(g);
        g = NULL;
    }
    import_network_free(n);
    return g;
}
