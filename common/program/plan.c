/* plan - gives temporaries their places: two share memory only if they never live at the same time.
 *
 * A block is the memory of one value, or of several values that share it: a reshape's output is its
 * input, and an operator that works in place writes over an input that no later node reads.  A
 * block lives from the node that first writes it to the last node that uses it, both included.
 * Blocks are placed from the largest to the smallest, each in the smallest sufficient gap between
 * the blocks that live at the same time (best fit), or after them.  The graph's outputs live to the
 * end, and in an evaluation graph the logits, too, so that they can be read after a run. */
#include <limits.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "program/impl.h"

struct block {
    int value;       /* the root */
    int first, last; /* nodes; -1: no node uses it */
    size_t n_bytes, offset;
};

/* The value whose memory v shares.  join_in_place joins roots, so the way may have several steps;
 * it becomes one (path halving). */
static int root_of(const struct program *p, int v)
{
    while (p->place[v].root != v) {
        p->place[v].root = p->place[p->place[v].root].root;
        v = p->place[v].root;
    }
    return v;
}

/* Outputs of aliases (reshape) share their input's memory. */
static void join_aliases(struct program *p)
{
    const struct graph *g = p->graph;

    for (int k = 0; k < g->n_nodes; k++)
        if (op_get(g->node[k].op)->flags & OP_ALIAS)
            p->place[g->node[k].out[0]].root = root_of(p, g->node[k].in[0]);
}

static void use_until(struct block *b, int k)
{
    if (b->first < 0)
        b->first = k;
    b->last = k;
}

/* Find the first and last node that uses each block. */
static void find_lives(const struct program *p, struct block *block)
{
    const struct graph *g = p->graph;

    for (int v = 0; v < g->n_values; v++)
        block[v] = (struct block){.value = v, .first = -1, .last = -1};
    for (int k = 0; k < g->n_nodes; k++) {
        const struct node *n = &g->node[k];

        for (int i = 0; i < n->n_in; i++)
            if (n->in[i] != NO_VALUE)
                use_until(&block[root_of(p, n->in[i])], k);
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i] != NO_VALUE)
                use_until(&block[root_of(p, n->out[i])], k);
    }
    if (g->logits != NO_VALUE && g->n_forward == 0)
        block[root_of(p, g->logits)].last = INT_MAX;
    for (int i = 0; i < g->n_outputs; i++)
        block[root_of(p, g->output[i].value)].last = INT_MAX;
}

/* 1: node k, whose operator can work in place, may write out[0] over input `at`. */
static int can_overwrite(const struct program *p, const struct block *block, int k, int at)
{
    const struct graph *g = p->graph;
    const struct node *n = &g->node[k];
    const int in = n->in[at] == NO_VALUE ? NO_VALUE : root_of(p, n->in[at]);

    if (!is_temp(g, in) || !is_temp(g, n->out[0]) || block[in].last != k ||
        value_bytes(&g->value[n->in[at]]) != value_bytes(&g->value[n->out[0]]) ||
        value_bytes(&g->value[in]) != value_bytes(&g->value[n->out[0]]))
        return 0;
    for (int i = 0; i < n->n_in; i++)
        if (i != at && n->in[i] != NO_VALUE && root_of(p, n->in[i]) == in)
            return 0;
    return 1;
}

static void join_in_place(struct program *p, struct block *block)
{
    const struct graph *g = p->graph;

    for (int k = 0; k < g->n_nodes; k++) {
        const struct node *n = &g->node[k];
        const struct op_def *def = op_get(n->op);
        int from, to;

        if (!(def->flags & OP_INPLACE) || !can_overwrite(p, block, k, def->inplace_in))
            continue;
        from = n->out[0];
        to = root_of(p, n->in[def->inplace_in]);
        block[to].last = block[from].last;
        p->place[from].root = to;
    }
    for (int v = 0; v < g->n_values; v++)
        p->place[v].root = root_of(p, v);
}

static int by_size(const void *a, const void *b)
{
    const struct block *x = a, *y = b;

    if (x->n_bytes != y->n_bytes)
        return x->n_bytes > y->n_bytes ? -1 : 1;
    return x->first != y->first ? x->first - y->first : x->value - y->value;
}

/* The offset for b: the smallest sufficient gap between the placed blocks that live at the same
 * time, else the end of the last of them.  placed: n blocks by their offset. */
static size_t best_fit(const struct block *b, const struct block *const *placed, int n)
{
    size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX;

    for (int i = 0; i < n; i++) {
        const struct block *o = placed[i];

        if (o->first > b->last || b->first > o->last)
            continue;
        if (o->offset > end && o->offset - end >= b->n_bytes && o->offset - end < best_gap) {
            best = end;
            best_gap = o->offset - end;
        }
        if (o->offset + o->n_bytes > end)
            end = o->offset + o->n_bytes;
    }
    return best != SIZE_MAX ? best : end;
}

/* Insert b among the n placed blocks, which stand by their offset. */
static void plan_insert(const struct block **placed, int n, const struct block *b)
{
    int at = n;

    for (; at > 0 && placed[at - 1]->offset > b->offset; at--)
        placed[at] = placed[at - 1];
    placed[at] = b;
}

static void place_blocks(struct program *p, struct block *block, int n)
{
    const struct block **placed = xcalloc((size_t)n + 1, sizeof *placed);

    qsort(block, (size_t)n, sizeof *block, by_size);
    for (int i = 0; i < n; i++) {
        block[i].offset = best_fit(&block[i], placed, i);
        plan_insert(placed, i, &block[i]);
        p->place[block[i].value].offset = block[i].offset;
        if (block[i].offset + block[i].n_bytes > p->temp_bytes)
            p->temp_bytes = block[i].offset + block[i].n_bytes;
    }
    free(placed);
}

void program_plan(struct program *p)
{
    const struct graph *g = p->graph;
    struct block *block = xcalloc((size_t)g->n_values, sizeof *block);
    int n = 0;

    for (int v = 0; v < g->n_values; v++) {
        p->place[v].root = v;
        p->place[v].n_bytes = value_bytes(&g->value[v]);
    }
    join_aliases(p);
    find_lives(p, block);
    join_in_place(p, block);
    for (int v = 0; v < g->n_values; v++)
        if (is_temp(g, v) && root_of(p, v) == v && block[v].first >= 0 && p->place[v].n_bytes) {
            block[n] = block[v];
            block[n++].n_bytes = (size_t)round_up_i64((int64_t)p->place[v].n_bytes, PLACE_ALIGN);
        }
    place_blocks(p, block, n);
    free(block);
}
