/* prune - drops nodes that have no effect and whose outputs no other node needs, and optional
 * outputs that no node reads. */
#include <stdlib.h>

#include "base/alloc.h"
#include "program/impl.h"

static int is_live(const struct graph *g, const struct node *n, const char *needed)
{
    int live;

    if (n->op < 0)
        return 0;
    live = (op_get(n->op)->flags & OP_EFFECT) != 0;
    for (int i = 0; i < n->n_out; i++)
        live |= n->out[i] != NO_VALUE && (!is_temp(g, n->out[i]) || needed[n->out[i]]);
    return live;
}

static void drop_outputs(const struct graph *g, struct node *n, const char *needed)
{
    for (int i = 0; i < n->n_out; i++)
        if (is_temp(g, n->out[i]) && !needed[n->out[i]] && (op_get(n->op)->optional_out & 1u << i))
            n->out[i] = NO_VALUE;
}

/* Move the live nodes together, and set n_forward and all producers accordingly. */
static void prune_compact(struct graph *g, const char *live)
{
    int to = 0, n_forward = 0;

    for (int v = 0; v < g->n_values; v++)
        g->value[v].producer = -1;
    for (int k = 0; k < g->n_nodes; k++) {
        if (!live[k])
            continue;
        g->node[to] = g->node[k];
        n_forward += k < g->n_forward;
        for (int i = 0; i < g->node[to].n_out; i++) {
            int v = g->node[to].out[i];

            if (v != NO_VALUE && !op_get(g->node[to].op)->update[i])
                g->value[v].producer = to;
        }
        to++;
    }
    g->n_nodes = to;
    g->n_forward = n_forward;
}

void program_prune(struct graph *g)
{
    char *needed = xcalloc((size_t)g->n_values, 1), *live = xcalloc((size_t)g->n_nodes + 1, 1);

    if (g->logits != NO_VALUE)
        needed[g->logits] = 1;
    for (int i = 0; i < g->n_outputs; i++)
        needed[g->output[i].value] = 1;
    for (int k = g->n_nodes - 1; k >= 0; k--) {
        struct node *n = &g->node[k];

        live[k] = (char)is_live(g, n, needed);
        if (!live[k])
            continue;
        drop_outputs(g, n, needed);
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i] != NO_VALUE)
                needed[n->in[i]] = 1;
    }
    prune_compact(g, live);
    free(needed);
    free(live);
}
