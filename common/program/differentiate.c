/* differentiate - appends the nodes that compute the gradient (reverse mode).
 *
 * The forward nodes are visited in reverse order.  So all users of a node's outputs are visited
 * before the node, and the gradients of its outputs are then complete.  The gradient of a value
 * with several users is the sum of their contributions.
 *
 * Contributions to a parameter go straight to its VALUE_GRAD (op_grad_out): the first node writes
 * it, and every later one adds to it (node.adds).  A contribution that some node had to make
 * elsewhere is copied or added there. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "program/program.h"

struct walk {
    struct graph *g;
    int n_values; /* of the forward part: only these can need a gradient */
    char *needs;  /* [n_values]: 1: the value is a trained parameter or depends on one */
    char *leads;  /* [n_values]: 1: the loss depends on the value */
    int *grad;    /* [n_values]: the value's gradient so far, or NO_VALUE */
    struct err *err;
};

static void find_needs(struct walk *w)
{
    const struct graph *g = w->g;

    for (int v = 0; v < w->n_values; v++)
        w->needs[v] = g->value[v].role == VALUE_PARAM && !g->value[v].info->frozen;
    for (int k = 0; k < g->n_forward; k++) {
        const struct node *n = &g->node[k];
        int any = 0;

        for (int i = 0; i < n->n_in; i++)
            any |= n->in[i] != NO_VALUE && w->needs[n->in[i]];
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i] != NO_VALUE && g->value[n->out[i]].role == VALUE_TEMP &&
                !g->value[n->out[i]].is_detached)
                w->needs[n->out[i]] |= (char)any;
    }
}

/* Find what the loss depends on, and by how many operands it depends on each parameter. */
static void count_uses(struct walk *w)
{
    struct graph *g = w->g;

    for (int k = g->n_forward - 1; k >= 0; k--) {
        const struct node *n = &g->node[k];
        int leads = op_get(n->op)->flags & OP_LOSS;

        for (int i = 0; i < n->n_out; i++)
            leads |= n->out[i] != NO_VALUE && n->out[i] < w->n_values && w->leads[n->out[i]];
        for (int i = 0; leads && i < n->n_in; i++)
            if (n->in[i] != NO_VALUE) {
                w->leads[n->in[i]] = 1;
                g->value[n->in[i]].n_uses++;
                for (int j = 0; j < i; j++)
                    g->value[n->in[i]].read_twice |= n->in[j] == n->in[i];
            }
    }
}

/* Let a node that writes v add to it. */
static void let_add(struct node *n, int v)
{
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] == v)
            n->adds |= 1u << i;
}

/* Add a contribution to the VALUE_GRAD of parameter v, where the contribution may be already. */
static int contribute_to_param(struct walk *w, int v, int contribution)
{
    struct graph *g = w->g;
    const union node_attr attr = {.cast.to = DTYPE_F32};
    const int target = graph_grad_of(g, v);
    int out[NODE_MAX_OUT] = {target}, rc = 0;

    if (contribution != target)
        rc = graph_node(g, OP_cast, &attr, &contribution, 1, out,
                        arena_printf(&g->arena, "%s.grad_copy", g->value[v].name), w->err);
    if (rc == 0 && w->grad[v] == target)
        let_add(&g->node[g->value[target].producer], target);
    w->grad[v] = target;
    return rc;
}

/* Add a contribution to the gradient of v. */
static int differentiate_contribute(struct walk *w, int v, int contribution)
{
    struct graph *g = w->g;
    int in[] = {w->grad[v], contribution}, out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    int rc;

    if (g->value[v].role == VALUE_PARAM)
        return contribute_to_param(w, v, contribution);
    if (w->grad[v] == NO_VALUE) {
        w->grad[v] = contribution;
        return 0;
    }
    rc = graph_node(g, OP_add, NULL, in, 2, out,
                    arena_printf(&g->arena, "%s.grad_sum", g->value[v].name), w->err);
    w->grad[v] = out[0];
    return rc;
}

static int differentiate_visit(struct walk *w, int k)
{
    const struct node n = w->g->node[k]; /* a copy, because graph_node moves the array */
    const struct op_def *def = op_get(n.op);
    int dout[NODE_MAX_OUT], want[NODE_MAX_IN] = {0}, din[NODE_MAX_IN];
    int has_dout = def->flags & OP_LOSS, wants_any = 0, rc;

    for (int i = 0; i < NODE_MAX_OUT; i++) {
        dout[i] = i < n.n_out && n.out[i] != NO_VALUE && n.out[i] < w->n_values ? w->grad[n.out[i]]
                                                                                : NO_VALUE;
        has_dout |= dout[i] != NO_VALUE;
    }
    for (int i = 0; i < NODE_MAX_IN; i++) {
        din[i] = NO_VALUE;
        want[i] = i < n.n_in && n.in[i] != NO_VALUE && w->needs[n.in[i]];
        wants_any |= want[i];
    }
    if (!has_dout || !wants_any)
        return 0;
    if (!def->grad)
        return err_set(w->err, ERR_UNSUPPORTED, "%s (%s): this operator has no gradient", n.name,
                       def->name);
    rc = def->grad(w->g, &n, dout, want, din, w->err);
    if (rc < 0)
        return rc;
    for (int i = 0; rc == 0 && i < n.n_in; i++)
        if (want[i] && din[i] != NO_VALUE)
            rc = differentiate_contribute(w, n.in[i], din[i]);
    return rc;
}

/* Let all nodes that make parts of parameter v's gradient make them in a temporary, which is copied
 * to the VALUE_GRAD once it is complete. */
static int write_at_once(struct walk *w, int v)
{
    struct graph *g = w->g;
    const int target = graph_grad_of(g, v);
    const union node_attr attr = {.cast.to = g->value[target].dtype};
    const int sum = graph_value(g, VALUE_TEMP, g->value[target].dtype, g->value[target].shape,
                                arena_printf(&g->arena, "%s.grad_sum", g->value[v].name));
    int out[NODE_MAX_OUT] = {target};

    for (int k = g->n_forward; k < g->n_nodes; k++)
        for (int i = 0; i < g->node[k].n_out; i++)
            if (g->node[k].out[i] == target)
                g->node[k].out[i] = sum;
    g->value[sum].producer = g->value[target].producer;
    return graph_node(g, OP_cast, &attr, &sum, 1, out,
                      arena_printf(&g->arena, "%s.grad_copy", g->value[v].name), w->err);
}

/* Check that parameter v has a gradient. */
static int finish_param(struct walk *w, int v)
{
    struct graph *g = w->g;

    if (w->grad[v] == NO_VALUE)
        return err_set(w->err, ERR_CONFIG,
                       "parameter %s has no influence on the loss: freeze it or take it out",
                       g->value[v].name);
    return g->grads_at_once && g->value[v].n_uses > 1 ? write_at_once(w, v) : 0;
}

int program_differentiate(struct graph *g, struct err *err)
{
    struct walk w = {.g = g, .n_values = g->n_values, .err = err};
    int rc = 0;

    ASSERT(g->n_forward == 0 && g->block == 0); /* once; the gradients are of no block */
    g->n_forward = g->n_nodes;
    w.needs = xcalloc((size_t)w.n_values, sizeof *w.needs);
    w.leads = xcalloc((size_t)w.n_values, sizeof *w.leads);
    w.grad = xcalloc((size_t)w.n_values, sizeof *w.grad);
    for (int v = 0; v < w.n_values; v++)
        w.grad[v] = NO_VALUE;
    find_needs(&w);
    count_uses(&w);
    for (int k = g->n_forward - 1; rc == 0 && k >= 0; k--)
        rc = differentiate_visit(&w, k);
    for (int v = 0; rc == 0 && v < w.n_values; v++)
        if (g->value[v].role == VALUE_PARAM && !g->value[v].info->frozen)
            rc = finish_param(&w, v);
    free(w.needs);
    free(w.leads);
    free(w.grad);
    return rc;
}

void program_accumulate(struct graph *g)
{
    for (int k = g->n_forward; k < g->n_nodes; k++)
        for (int i = 0; i < g->node[k].n_out; i++)
            if (g->node[k].out[i] != NO_VALUE && g->value[g->node[k].out[i]].role == VALUE_GRAD)
                g->node[k].adds |= 1u << i;
}
