/* differentiate - appends the nodes that compute the gradient (reverse mode).
 *
 * The forward nodes are visited in reverse order.  So all users of a node's outputs are visited
 * before the node, and the gradients of its outputs are then complete.  The gradient of a value
 * with several users is the sum of their contributions.  A single contribution to a parameter is
 * written straight to its VALUE_GRAD (op_grad_out).  Of several contributions the last addition
 * writes there.  A gradient that is another value's, too, is copied there. */
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
            if (n->out[i] != NO_VALUE && g->value[n->out[i]].role == VALUE_TEMP)
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
            }
    }
}

/* Add a contribution to the gradient of v. */
static int contribute(struct walk *w, int v, int contribution)
{
    struct graph *g = w->g;
    int in[] = {w->grad[v], contribution}, out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    int rc;

    if (w->grad[v] == NO_VALUE) {
        w->grad[v] = contribution;
        return 0;
    }
    rc = graph_node(g, OP_add, NULL, in, 2, out,
                    arena_printf(&g->arena, "%s.grad_sum", g->value[v].name), w->err);
    w->grad[v] = out[0];
    return rc;
}

static int visit(struct walk *w, int k)
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
    if ((rc = def->grad(w->g, &n, dout, want, din, w->err)) < 0)
        return rc;
    for (int i = 0; rc == 0 && i < n.n_in; i++)
        if (want[i] && din[i] != NO_VALUE)
            rc = contribute(w, n.in[i], din[i]);
    return rc;
}

/* Whether a node of the backward part reads v. */
static int is_read(const struct graph *g, int v)
{
    for (int k = g->n_forward; k < g->n_nodes; k++)
        for (int i = 0; i < g->node[k].n_in; i++)
            if (g->node[k].in[i] == v)
                return 1;
    return 0;
}

/* Make the gradient of parameter v end in its VALUE_GRAD. */
static int finish_param(struct walk *w, int v)
{
    struct graph *g = w->g;
    const union node_attr attr = {.cast.to = DTYPE_F32};
    const int grad = w->grad[v], target = graph_grad_of(g, v);
    int out[NODE_MAX_OUT] = {target}, maker;

    if (grad == target)
        return 0;
    if (grad == NO_VALUE)
        return err_set(w->err, ERR_CONFIG,
                       "parameter %s has no influence on the loss: freeze it or take it out",
                       g->value[v].name);
    maker = g->value[grad].producer;
    if (maker < g->n_forward || g->node[maker].op != OP_add || is_read(g, grad))
        return graph_node(g, OP_cast, &attr, &grad, 1, out,
                          arena_printf(&g->arena, "%s.grad_copy", g->value[v].name), w->err);
    g->node[maker].out[0] = target; /* maker is the last addition */
    g->value[target].producer = maker;
    return 0;
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
        rc = visit(&w, k);
    for (int v = 0; rc == 0 && v < w.n_values; v++)
        if (g->value[v].role == VALUE_PARAM && !g->value[v].info->frozen)
            rc = finish_param(&w, v);
    free(w.needs);
    free(w.leads);
    free(w.grad);
    return rc;
}
