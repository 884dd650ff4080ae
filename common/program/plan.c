/* plan - gives temporaries their places: two share memory only if they never live at the same time.
 *
 * A block is the memory of one value, or of several values that share it: a reshape's output is its
 * input, and an operator that works in place writes over an input that no later node reads.  A
 * block lives from the node that first writes it to the last node that uses it, both included.
 * Blocks are placed from the largest to the smallest, each in the smallest sufficient gap between
 * the blocks that live at the same time (best fit), or after them.  In an evaluation graph the
 * logits live to the end, so that they can be read after a run. */
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

static int root_of(const struct program *p, int v) { return p->place[v].root; }

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
}

/* Whether node k, whose operator can work in place, may write out[0] over input `at`. */
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
        for (int v = 0; v < g->n_values; v++)
            if (root_of(p, v) == from)
                p->place[v].root = to;
    }
}

static int by_size(const void *a, const void *b)
{
    const struct block *x = a, *y = b;

    if (x->n_bytes != y->n_bytes)
        return x->n_bytes > y->n_bytes ? -1 : 1;
    return x->first != y->first ? x->first - y->first : x->value - y->value;
}

static int by_offset(const void *a, const void *b)
{
    const struct block *const *x = a, *const *y = b;

    return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

/* The offset for b: the smallest sufficient gap between the placed blocks that live at the same
 * time, else the end of the last of them.  live: room for n. */
static size_t best_fit(const struct block *b, const struct block *placed, int n,
                       const struct block **live)
{
    size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
    int n_live = 0;

    for (int i = 0; i < n; i++)
        if (placed[i].first <= b->last && b->first <= placed[i].last)
            live[n_live++] = &placed[i];
    qsort(live, (size_t)n_live, sizeof(*live), by_offset);
    for (int i = 0; i < n_live; i++) {
        if (live[i]->offset > end && live[i]->offset - end >= b->n_bytes &&
            live[i]->offset - end < best_gap) {
            best = end;
            best_gap = live[i]->offset - end;
        }
        if (live[i]->offset + live[i]->n_bytes > end)
            end = live[i]->offset + live[i]->n_bytes;
    }
    return best != SIZE_MAX ? best : end;
}

static void place_blocks(struct program *p, struct block *block, int n)
{
    const struct block **live = xcalloc((size_t)n + 1, sizeof(*live));

    qsort(block, (size_t)n, sizeof *block, by_size);
    for (int i = 0; i < n; i++) {
        block[i].offset = best_fit(&block[i], block, i, live);
        p->place[block[i].value].offset = block[i].offset;
        if (block[i].offset + block[i].n_bytes > p->temp_bytes)
            p->temp_bytes = block[i].offset + block[i].n_bytes;
    }
    free(live);
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
