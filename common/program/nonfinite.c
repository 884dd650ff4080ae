/* nonfinite - finds the operator that made the first number that is not finite.
 *
 * The program runs again, kernel by kernel, without collectives.  Of each node, its inputs that no
 * node made (samples, parameters, states) and its outputs are checked. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "program/impl.h"
#include "tensor/half.h"

/* Host memory for a copy of any one value. */
struct view {
    void *data;
    size_t n_bytes; /* of the largest value */
};

/* The number of the first element that is not finite, with the element in *seen; or -1. */
static int64_t first_bad(const struct value *v, const void *data, double *seen)
{
    const int64_t n = shape_elements(&v->shape);

    for (int64_t i = 0; i < n; i++) {
        *seen =
            v->dtype == DTYPE_F64 ? ((const double *)data)[i] : (double)real_get(data, v->dtype, i);
        if (!isfinite(*seen))
            return i;
    }
    return -1;
}

/* Returns 1 if v holds a number that is not finite, and says in text where; else 0. */
static int nonfinite_look_at(struct program *p, const struct node *n, const char *kind, int v,
                             struct view *view, char *text, size_t cap, struct err *err)
{
    const struct value *value = &p->graph->value[v];
    char shape[SHAPE_TEXT_LEN];
    double seen = 0;
    int64_t at;
    int rc;

    if (!dtype_is_real(value->dtype) && value->dtype != DTYPE_F64)
        return 0;
    rc = backend_copy_out(p->backend, view->data, p->place[v].address, value_bytes(value), err);
    if (rc < 0)
        return rc;
    at = first_bad(value, view->data, &seen);
    if (at < 0)
        return 0;
    snprintf(text, cap, "%s (%s): %s%s%s %s element %lld is %s", n->name, op_get(n->op)->name, kind,
             *kind == 'i' ? " " : "", *kind == 'i' ? value->name : "",
             shape_text(&value->shape, shape), (long long)at,
             isnan(seen) ? "nan"
             : seen > 0  ? "inf"
                         : "-inf");
    return 1;
}

/* A loss node may have no output, so the metrics tell whether a loss is not finite. */
static int look_at_loss(struct program *p, const struct node *n, char *text, size_t cap,
                        struct err *err)
{
    double metrics[METRIC_COUNT];
    int rc = backend_copy_out(p->backend, metrics, p->place[p->graph->metrics].address,
                              sizeof metrics, err);

    if (rc < 0 || !(metrics[METRIC_NONFINITE] > 0))
        return rc;
    snprintf(text, cap, "%s (%s): the loss of %.0f of %lld samples is not finite", n->name,
             op_get(n->op)->name, metrics[METRIC_NONFINITE], (long long)p->graph->batch);
    return 1;
}

static int look_at_inputs(struct program *p, const struct node *n, struct view *view, char *text,
                          size_t cap, struct err *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < n->n_in; i++)
        if (is_given(p->graph, n->in[i]))
            rc = nonfinite_look_at(p, n, "input", n->in[i], view, text, cap, err);
    return rc;
}

static int run_and_look(struct program *p, int s, struct view *view, char *text, size_t cap,
                        struct err *err)
{
    const struct node *n = &p->graph->node[p->step[s].node];
    int rc = look_at_inputs(p, n, view, text, cap, err);

    if (rc == 0 && (rc = program_run_step(p, s, err)) == 0)
        rc = backend_sync(p->backend, err);
    for (int i = 0; rc == 0 && i < n->n_out; i++)
        if (n->out[i] != NO_VALUE)
            rc = nonfinite_look_at(p, n, "output", n->out[i], view, text, cap, err);
    if (rc == 0 && (op_get(n->op)->flags & OP_LOSS))
        rc = look_at_loss(p, n, text, cap, err);
    return rc;
}

static int make_view(const struct program *p, struct view *view, struct err *err)
{
    for (int v = 0; v < p->graph->n_values; v++)
        if (value_bytes(&p->graph->value[v]) > view->n_bytes)
            view->n_bytes = value_bytes(&p->graph->value[v]);
    return try_alloc(&view->data, view->n_bytes, "a copy of one value", err);
}

/* Zero the gradients to which nodes add: they may hold those of another run. */
static int forget_sums(struct program *p, struct err *err)
{
    const struct graph *g = p->graph;
    int rc = 0;

    for (int v = 0; v < g->n_values && rc == 0; v++)
        if (g->value[v].role == VALUE_GRAD && p->place[v].address)
            rc = backend_zero(p->backend, p->place[v].address, value_bytes(&g->value[v]), err);
    return rc;
}

int program_find_nonfinite(struct program *p, char *text, size_t cap, struct err *err)
{
    void *at = p->place[p->graph->metrics].address;
    double metrics[METRIC_COUNT];
    const double zeros[METRIC_COUNT] = {0};
    struct view view = {0};
    struct err second;
    int rc;

    rc = make_view(p, &view, err);
    if (rc < 0)
        return rc;
    rc = backend_copy_out(p->backend, metrics, at, sizeof metrics, err);
    if (rc == 0)
        rc = backend_copy_in(p->backend, at, zeros, sizeof zeros, err);
    if (rc == 0)
        rc = forget_sums(p, err);
    for (int s = 0; rc == 0 && s < p->n_steps; s++)
        rc = run_and_look(p, s, &view, text, cap, err);
    if (rc >= 0 && backend_copy_in(p->backend, at, metrics, sizeof metrics, &second) < 0) {
        *err = second;
        rc = second.code;
    }
    free(view.data);
    return rc;
}
