/* precision - turns a differentiated graph, or one for evaluation, to half precision.
 *
 * Nodes are visited in the order in which they run, and a value gets its type where it is made:
 * - typed outputs (activations and their gradients) get the half type;
 * - a parameter that a node wants in the node's type is replaced by its working copy;
 * - F32 inputs of the graph (images) and constants are cast, once, before the first node;
 * - gradients of parameters get the type that is wanted for them; so do their terms, where a node
 *   could not write them in place, and views of these;
 * - what is computed from a node's F32 result, such as a log-probability, stays F32, and so do the
 *   gradients of it.
 * All other values stay as they are: sums and statistics, prob of the loss, metrics, parameters of
 * norms.  At the end every node is checked against its operator's rules. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "program/program.h"
#include "tensor/half.h"

struct turn {
    struct graph *g;
    struct program_precision p;
    char *is_grad; /* [n_values]: 1: a parameter's gradient, or a term of it */
    struct err *err;
};

/* Move the last node to the front of the graph, into the forward part. */
static void move_to_front(struct graph *g)
{
    const struct node last = g->node[g->n_nodes - 1];

    memmove(&g->node[1], &g->node[0], sizeof *g->node * (size_t)(g->n_nodes - 1));
    g->node[0] = last;
    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].producer >= 0)
            g->value[v].producer = (g->value[v].producer + 1) % g->n_nodes;
    if (g->n_forward)
        g->n_forward++;
}

static int wants_type(const struct node *n, int i)
{
    return n->in[i] != NO_VALUE && op_get(n->op)->typed_in >> i & 1;
}

/* Cast the graph's input or constant v once; every node that wants v in its own type reads the
 * result. */
static int cast_input(struct turn *t, int v)
{
    struct graph *g = t->g;
    const union node_attr attr = {.cast.to = t->p.compute};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT}, n_uses = 0, rc;

    for (int k = 0; k < g->n_nodes; k++)
        for (int i = 0; i < g->node[k].n_in; i++)
            n_uses += wants_type(&g->node[k], i) && g->node[k].in[i] == v;
    if (!n_uses)
        return 0;
    rc = graph_node(g, OP_cast, &attr, &v, 1, out,
                    arena_printf(&g->arena, "%s.cast", g->value[v].name), t->err);
    if (rc < 0)
        return rc;
    move_to_front(g);
    for (int k = 1; k < g->n_nodes; k++)
        for (int i = 0; i < g->node[k].n_in; i++)
            if (wants_type(&g->node[k], i) && g->node[k].in[i] == v)
                g->node[k].in[i] = out[0];
    return 0;
}

static int cast_inputs(struct turn *t)
{
    const int n_values = t->g->n_values;
    int rc = 0;

    for (int v = 0; v < n_values && rc == 0; v++)
        if ((t->g->value[v].role == VALUE_INPUT || t->g->value[v].role == VALUE_CONST) &&
            t->g->value[v].dtype == DTYPE_F32)
            rc = cast_input(t, v);
    return rc;
}

/* Replace weights by their working copies.  These are new values, so this comes before is_grad is
 * allocated. */
static void use_copies(struct turn *t)
{
    struct graph *g = t->g;

    for (int k = 0; k < g->n_nodes; k++)
        for (int i = 0; i < g->node[k].n_in; i++)
            if (wants_type(&g->node[k], i) && g->value[g->node[k].in[i]].role == VALUE_PARAM)
                g->node[k].in[i] = graph_copy_of(g, g->node[k].in[i], t->p.compute);
}

/* 1: the node computes from terms of parameters' gradients: its first typed input is one. */
static int is_of_grads(const struct turn *t, const struct node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (wants_type(n, i))
            return t->is_grad[n->in[i]];
    return 0;
}

/* 1: the node computes from an F32 result: its first typed input is one.  A loss's gradient reads
 * none; its type is the loss's. */
static int precision_is_wide(const struct turn *t, const struct node *n)
{
    const struct value *v = n->n_in > 0 && n->in[0] != NO_VALUE ? &t->g->value[n->in[0]] : NULL;

    for (int i = 0; i < n->n_in; i++)
        if (wants_type(n, i)) {
            v = &t->g->value[n->in[i]];
            return v->role == VALUE_TEMP && v->dtype == DTYPE_F32;
        }
    return v && v->producer >= 0 && op_get(t->g->node[v->producer].op)->flags & OP_LOSS &&
           precision_is_wide(t, &t->g->node[v->producer]);
}

static void set_outputs(struct turn *t, struct node *n)
{
    const struct op_def *def = op_get(n->op);
    const int of_grads = is_of_grads(t, n), wide = precision_is_wide(t, n);

    for (int i = 0; i < n->n_out; i++) {
        struct value *v = n->out[i] == NO_VALUE ? NULL : &t->g->value[n->out[i]];

        if (!v || !dtype_is_real(v->dtype) || def->update[i])
            continue;
        if (n->op == OP_cast && !dtype_is_real(t->g->value[n->in[CAST_X]].dtype))
            v->dtype = n->attr.cast.to = t->p.compute; /* numbers that were integers */
        if (v->role == VALUE_GRAD || def->wide_out >> i & 1) {
            v->dtype = t->p.grad;
            t->is_grad[n->out[i]] = 1;
            if (n->op == OP_cast) /* a copy of a parameter's gradient */
                n->attr.cast.to = t->p.grad;
        } else if (def->typed_out >> i & 1) {
            v->dtype = of_grads ? t->p.grad : wide ? DTYPE_F32 : t->p.compute;
            t->is_grad[n->out[i]] = (char)of_grads;
        }
    }
}

/* Give the graph's scaler to every gradient node with such an operand: the losses' gradients. */
static void scale_loss(struct graph *g)
{
    for (int k = g->n_forward; k < g->n_nodes; k++) {
        const struct op_def *def = op_get(g->node[k].op);

        for (int i = 0; i < def->n_in; i++)
            if (!strcmp(def->in_name[i], "scaler"))
                g->node[k].in[i] = graph_scaler(g);
    }
}

static int precision_check_all(const struct graph *g, struct err *err)
{
    int rc = 0;

    for (int k = 0; k < g->n_nodes && rc == 0; k++)
        rc = graph_check_node(g, &g->node[k], err);
    return rc;
}

int program_set_precision(struct graph *g, struct program_precision p, struct err *err)
{
    struct turn t = {.g = g, .p = p, .err = err};
    int rc;

    ASSERT(p.grad == DTYPE_F32 || p.grad == p.compute);
    if (p.compute == DTYPE_F32)
        return 0;
    g->grad_dtype = p.grad;
    if (p.compute == DTYPE_F16 && g->n_forward)
        scale_loss(g);
    rc = cast_inputs(&t);
    if (rc < 0)
        return rc;
    use_copies(&t);
    t.is_grad = xcalloc((size_t)g->n_values, 1);
    for (int k = 0; k < g->n_nodes; k++)
        set_outputs(&t, &g->node[k]);
    free(t.is_grad);
    return precision_check_all(g, err);
}
