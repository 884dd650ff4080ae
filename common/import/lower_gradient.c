/* lower_gradient - values through which no gradient goes: those of no_grad blocks, and of detach.
 *
 * A value that a node makes in such a block is marked.  One that it only hands on, a view, becomes
 * a reshape of its own to the same shape, which costs nothing, and that is marked. */
#include <stdlib.h>

#include "base/alloc.h"
#include "import/lower_impl.h"
#include "op/op.h"

static struct lowered gradient_cut(struct lower *l, struct lowered x)
{
    const struct graph *g = l->m->g;
    union node_attr attr = {0};

    if (lower_failed(l) || x.kind != LOWERED_VALUE || g->value[x.value].is_detached ||
        g->value[x.value].role == VALUE_INPUT || g->value[x.value].role == VALUE_CONST)
        return x;
    attr.reshape.shape = g->value[x.value].shape;
    x.value = compose_append(&l->c, OP_reshape, &attr, &x.value, 1);
    if (!lower_failed(l))
        l->m->g->value[x.value].is_detached = 1;
    return x;
}

void lower_detach(struct lower *l) { lower_set(l, 0, gradient_cut(l, lower_in(l, "self", 0))); }

void lower_without_gradient(struct lower *l, int n_before, int is_in_place)
{
    struct graph *g = l->m->g;
    const int changed = lower_value_of(l, "self", 0);

    if (lower_failed(l))
        return;
    if (is_in_place && changed != IMPORT_NO_VALUE && l->value[changed].kind == LOWERED_VALUE) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "it changes a tensor in a no_grad block, whose gradient then is that of the "
                   "tensor before; want an operator that makes a new tensor");
        return;
    }
    for (int v = n_before; v < g->n_values; v++)
        if (g->value[v].role == VALUE_TEMP)
            g->value[v].is_detached = 1;
    for (int i = 0; i < l->node->n_out; i++) {
        const int out = l->node->out[i];

        if (out != IMPORT_NO_VALUE)
            l->value[out] = gradient_cut(l, l->value[out]);
    }
}

/* 1: PyTorch gives the operands of this node no gradient, not even zeros. */
static int gradient_ends(const struct node *n)
{
    const enum elementwise kind = n->attr.elementwise.kind;

    return n->op == OP_elementwise &&
           ((kind >= EW_EQ && kind <= EW_GE) || (kind >= EW_AND && kind <= EW_NOT));
}

void import_freeze_unused(struct graph *g, const int *values, int n)
{
    char *leads = xcalloc((size_t)g->n_values + 1, 1);

    for (int i = 0; i < n; i++)
        if (values[i] != NO_VALUE)
            leads[values[i]] = 1;
    for (int k = g->n_nodes - 1; k >= 0; k--) {
        int wanted = 0;

        for (int i = 0; i < g->node[k].n_out; i++)
            wanted |= g->node[k].out[i] != NO_VALUE && leads[g->node[k].out[i]] &&
                      !g->value[g->node[k].out[i]].is_detached;
        for (int i = 0; wanted && !gradient_ends(&g->node[k]) && i < g->node[k].n_in; i++)
            if (g->node[k].in[i] != NO_VALUE)
                leads[g->node[k].in[i]] = 1;
    }
    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].role == VALUE_PARAM && !leads[v] && !g->value[v].info->frozen) {
            struct param_info info = *g->value[v].info;

            info.frozen = 1;
            g->value[v].info = arena_copy(&g->arena, &info, sizeof info);
        }
    free(leads);
}
