/* count - how many nodes of a graph have an operator, and its values as text, for the tests of
 * models. */
#ifndef TESTS_MODEL_COUNT_H
#define TESTS_MODEL_COUNT_H

#include "base/buf.h"
#include "op/op.h"

static inline int count(const struct graph *g, enum op op)
{
    int n = 0;

    for (int k = 0; k < g->n_nodes; k++)
        n += g->node[k].op == (int)op;
    return n;
}

/* List all values with this role in their order: "conv1.weight[20,1,3,3] conv1.bias[20] ...". */
static inline void list(const struct graph *g, enum value_role role, struct buf *out)
{
    char text[SHAPE_TEXT_LEN];

    buf_clear(out);
    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].role == role)
            buf_printf(out, "%s%s%s", out->len ? " " : "", g->value[v].name,
                       shape_text(&g->value[v].shape, text));
}

#endif
