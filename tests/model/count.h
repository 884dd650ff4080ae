/* count - how many nodes of a graph have an operator, for the tests of models. */
#ifndef TESTS_MODEL_COUNT_H
#define TESTS_MODEL_COUNT_H

#include "op/op.h"

static inline int count(const struct graph *g, enum op op)
{
    int n = 0;

    for (int k = 0; k < g->n_nodes; k++)
        n += g->node[k].op == (int)op;
    return n;
}

#endif
