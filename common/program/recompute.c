/* recompute - drops what the forward pass leaves for the backward pass, and computes it again
 * there.
 *
 * The graph says which of two ways is wanted.
 *
 * Blocks: the nodes of a block of layers carry its number (struct node).  A value of a block stays
 * in memory if another block reads it: so the blocks' inputs stay.
 *
 * Selective: a value is dropped if its node takes few operations (OP_CHEAP) and the backward pass
 * has that node's inputs: it reads them for another reason, or they are dropped as well.
 *
 * Every other value that the backward pass reads is made again just before its first use there, by
 * a copy of the node that made it; that node's inputs are made again in the same way.  plan.c then
 * finds that the first ones live only in the forward part.
 *
 * The copies are made after the fusions and have the same settings, so they are the same kernels
 * with the same inputs, and the results have the same bits.  Dropout draws the same numbers again,
 * because they depend on the step, the node's tag and the element alone.  Batch norm writes its
 * states' next values again, which are the same ones.  A value that a collective summed stays, and
 * so does one that is small beside the inputs of its node (statistics).
 *
 * Where parameters are divided among the ranks, small values are computed again, too.  A value may
 * be small with one batch size and not with another.  Ranks have different batch sizes, but all
 * must gather parameters equally often, and they also gather them for the nodes that are repeated.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "program/impl.h"

/* A value so many times smaller than the inputs of its node stays. */
enum { SMALL = 64 };

struct again {
    struct graph *g;
    int n_values; /* before any copy was made */
    int keeps_small;
    int *maker;        /* [n_values]: the node that makes the value, or -1 */
    char *stays;       /* [n_values]: 1: the value is not computed again */
    char *is_read;     /* [n_values]: 1: the backward pass reads it, before any copy was made */
    int *copy;         /* [n_values]: the value that was computed again, or NO_VALUE */
    struct node *node; /* the new nodes */
    int n_nodes, cap_nodes;
};

static int recompute_is_gone(const struct node *n) { return n->op < 0; }

/* 1: a second run of the node would change something, because the node updates an input. */
static int recompute_has_effect(const struct node *n)
{
    int any = 0;

    for (int i = 0; i < n->n_out; i++)
        any |= n->out[i] != NO_VALUE && op_get(n->op)->update[i];
    return any;
}

static int recompute_is_small(const struct graph *g, const struct node *n, int v)
{
    size_t in = 0;

    for (int i = 0; i < n->n_in; i++)
        in += is_temp(g, n->in[i]) ? value_bytes(&g->value[n->in[i]]) : 0;
    return value_bytes(&g->value[v]) * SMALL <= in;
}

/* Mark what the backward pass reads now. */
static void find_reads(struct again *a)
{
    const struct graph *g = a->g;

    for (int k = g->n_forward; k < g->n_nodes; k++) {
        const struct node *n = &g->node[k];

        for (int i = 0; !recompute_is_gone(n) && i < n->n_in; i++)
            if (n->in[i] != NO_VALUE && n->in[i] < a->n_values)
                a->is_read[n->in[i]] = 1;
    }
}

/* 1: the node is cheap, and the backward pass can have its inputs: it reads them for another
 * reason, or they are dropped, too.  Earlier values are decided. */
static int recompute_is_selected(const struct again *a, const struct node *n)
{
    int all = (op_get(n->op)->flags & (OP_CHEAP | OP_ALIAS)) != 0;

    for (int i = 0; i < n->n_in; i++) {
        const int u = n->in[i];

        all = all && (!is_temp(a->g, u) || !a->stays[u] || a->is_read[u]);
    }
    return all;
}

static int recompute_must_stay(const struct again *a, const struct node *n, int v)
{
    if (recompute_has_effect(n) || (a->keeps_small && recompute_is_small(a->g, n, v)))
        return 1;
    return a->g->recompute == GRAPH_RECOMPUTE_BLOCKS ? !n->block : !recompute_is_selected(a, n);
}

/* Find who makes each value, and decide for each whether it stays. */
static void find_makers(struct again *a)
{
    const struct graph *g = a->g;

    for (int k = 0; k < g->n_forward; k++) {
        const struct node *n = &g->node[k];

        for (int i = 0; !recompute_is_gone(n) && i < n->n_out; i++) {
            const int v = n->out[i];

            if (!is_temp(g, v) || op_get(n->op)->update[i])
                continue;
            a->maker[v] = k;
            a->stays[v] = (char)recompute_must_stay(a, n, v);
        }
    }
}

/* Let the values stay that nodes of another block read, and those that are updated in place. */
static void find_shared(struct again *a)
{
    const struct graph *g = a->g;
    const int by_block = g->recompute == GRAPH_RECOMPUTE_BLOCKS;

    for (int k = 0; k < g->n_forward; k++) {
        const struct node *n = &g->node[k];

        for (int i = 0; by_block && !recompute_is_gone(n) && i < n->n_in; i++)
            if (n->in[i] != NO_VALUE && !a->stays[n->in[i]])
                a->stays[n->in[i]] = g->node[a->maker[n->in[i]]].block != n->block;
        for (int i = 0; !recompute_is_gone(n) && i < n->n_out; i++)
            if (n->out[i] != NO_VALUE && op_get(n->op)->update[i])
                a->stays[n->out[i]] = 1;
    }
}

static void recompute_append(struct again *a, const struct node *n)
{
    if (a->n_nodes == a->cap_nodes) {
        a->cap_nodes = 2 * a->cap_nodes + 32;
        a->node = xrealloc(a->node, (size_t)a->cap_nodes * sizeof *a->node);
    }
    a->node[a->n_nodes++] = *n;
}

/* The value to read in the backward pass in place of v: v itself, or its copy, which is made if
 * there is none yet. */
static int recompute_value_of(struct again *a, int v)
{
    struct graph *g = a->g;
    struct node n;

    if (v == NO_VALUE || v >= a->n_values || a->stays[v])
        return v;
    if (a->copy[v] != NO_VALUE)
        return a->copy[v];
    n = g->node[a->maker[v]];
    for (int i = 0; i < n.n_in; i++)
        n.in[i] = recompute_value_of(a, n.in[i]);
    for (int i = 0; i < n.n_out; i++) {
        const int out = n.out[i];

        if (!is_temp(g, out))
            continue;
        n.out[i] = graph_value(g, VALUE_TEMP, g->value[out].dtype, g->value[out].shape,
                               arena_printf(&g->arena, "%s.again", g->value[out].name));
        a->copy[out] = n.out[i];
    }
    n.name = arena_printf(&g->arena, "%s.again", n.name);
    recompute_append(a, &n);
    return a->copy[v];
}

static void recompute_rewrite(struct again *a)
{
    struct graph *g = a->g;

    for (int k = 0; k < g->n_nodes; k++) {
        struct node n = g->node[k];

        for (int i = 0; k >= g->n_forward && !recompute_is_gone(&n) && i < n.n_in; i++)
            n.in[i] = recompute_value_of(a, n.in[i]);
        recompute_append(a, &n);
    }
    free(g->node);
    g->node = a->node;
    g->n_nodes = a->n_nodes;
    g->cap_nodes = a->cap_nodes;
}

void program_recompute(struct graph *g, int keeps_small)
{
    struct again a = {.g = g, .n_values = g->n_values, .keeps_small = keeps_small};

    a.maker = xcalloc((size_t)g->n_values, sizeof *a.maker);
    a.stays = xcalloc((size_t)g->n_values, sizeof *a.stays);
    a.is_read = xcalloc((size_t)g->n_values, sizeof *a.is_read);
    a.copy = xcalloc((size_t)g->n_values, sizeof *a.copy);
    for (int v = 0; v < g->n_values; v++) {
        a.maker[v] = a.copy[v] = NO_VALUE;
        a.stays[v] = 1;
    }
    find_reads(&a);
    find_makers(&a);
    find_shared(&a);
    recompute_rewrite(&a);
    free(a.maker);
    free(a.stays);
    free(a.is_read);
    free(a.copy);
}
