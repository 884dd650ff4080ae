/* case_graph - makes a graph of a row of the table of cases, and the content of its values.
 * The content is the same in every run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cases.h"
#include "op/adasum.h"
#include "op/control.h"
#include "op/scaler.h"
#include "op/update.h"
#include "tensor/half.h"
#include "tensor/sample.h"

/* The mask of a relu with these rows and columns, written by a linear node before the case's. */
static int make_mask(struct graph *g, const struct shape *s)
{
    enum { K = 16 }; /* rows are a multiple of 16 bytes in each type, as cuBLASLt's fusions need */
    const union node_attr attr = {.linear.act = ACT_RELU};
    const int in[] = {graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(s->dim[0], K), "before.x"),
                      graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(s->dim[1], K), "before.w")};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NEW_OUT, NODE_NO_OUT};
    struct err err;

    if (graph_node(g, OP_linear, &attr, in, 2, out, "before", &err) < 0)
        abort();
    return out[LINEAR_MASK];
}

/* The value of in[i]: one of the graph's (metrics, scalars, an earlier node's), else a new one. */
static int make_input(const struct op_case *c, struct graph *g, int i, const int *in)
{
    char name[16];
    struct err err;
    int out;

    snprintf(name, sizeof name, "in%d", i);
    switch (c->in[i].fill) {
    case FILL_NONE:
        return NO_VALUE;
    case FILL_METRICS:
        return g->metrics;
    case FILL_SCALARS:
    case FILL_STALE:
    case FILL_FIRST:
        return g->scalars;
    case FILL_SEGMENTS:
    case FILL_DOTS:
    case FILL_CHECKS:
        return graph_value(g, VALUE_INPUT, DTYPE_F64, c->in[i].shape, name);
    case FILL_WAITS:
        return graph_value(g, VALUE_INPUT, DTYPE_I64, SHAPE(2), name);
    case FILL_CHECK:
    case FILL_BAD:
        return graph_value(g, VALUE_INPUT, DTYPE_F64, SHAPE(2), name);
    case FILL_LABELS:
    case FILL_STRAY:
    case FILL_IGNORED:
        return graph_value(g, VALUE_INPUT, DTYPE_I32, SHAPE(c->in[0].shape.dim[0]), name);
    case FILL_BLOCKS:
        return graph_value(g, VALUE_INPUT, DTYPE_I8, c->in[i].shape, name);
    case FILL_CODES:
        return graph_value(g, VALUE_INPUT, DTYPE_U8, c->in[i].shape, name);
    case FILL_TOKENS:
    case FILL_STARTS:
        return graph_value(g, VALUE_INPUT, DTYPE_I32, c->in[i].shape, name);
    case FILL_INDEX:
    case FILL_ENDS:
        return graph_value(g, VALUE_INPUT, DTYPE_I64, c->in[i].shape, name);
    case FILL_SUMS:
        out = NODE_NEW_OUT;
        if (graph_node(g, OP_batch_norm_stats, &c->attr,
                       (int[]){[BATCH_NORM_STATS_X] = in[BATCH_NORM_X],
                               [BATCH_NORM_STATS_RUNNING_MEAN] = in[BATCH_NORM_RUNNING_MEAN]},
                       2, &out, "stats", &err) < 0)
            abort();
        return out;
    case FILL_MASK:
        return make_mask(g, &c->in[i].shape);
    case FILL_BF16:
        return graph_value(g, VALUE_INPUT, DTYPE_BF16, c->in[i].shape, name);
    case FILL_F16:
        return graph_value(g, VALUE_INPUT, DTYPE_F16, c->in[i].shape, name);
    default:
        return graph_value(g, VALUE_INPUT, DTYPE_F32, c->in[i].shape, name);
    }
}

/* Give the operands of a node their types, as program_set_precision does for a whole graph. */
static void set_types(struct graph *g, const struct node *n, struct case_types t)
{
    const struct op_def *def = op_get(n->op);

    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != NO_VALUE && !dtype_is_real(g->value[n->in[i]].dtype))
            continue; /* a view of integers */
        else if (n->in[i] != NO_VALUE && def->typed_in >> i & 1)
            g->value[n->in[i]].dtype = t.type;
        else if (n->in[i] != NO_VALUE && def->wide_in >> i & 1)
            g->value[n->in[i]].dtype = op_type(g, n) == DTYPE_F32 ? DTYPE_F32 : t.grad;
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != NO_VALUE && !dtype_is_real(g->value[n->out[i]].dtype))
            continue;
        else if (n->out[i] != NO_VALUE && def->typed_out >> i & 1)
            g->value[n->out[i]].dtype = t.type;
        else if (n->out[i] != NO_VALUE && def->wide_out >> i & 1)
            g->value[n->out[i]].dtype = t.grad;
}

static void set_all_types(const struct op_case *c, struct graph *g, struct case_types t)
{
    struct err err;

    for (int k = 0; k < g->n_nodes; k++)
        set_types(g, &g->node[k], t);
    for (int k = 0; k < g->n_nodes; k++)
        if (graph_check_node(g, &g->node[k], &err) < 0) {
            fprintf(stderr, "%s in %s: %s\n", c->name, dtype_name(t.type), err.msg);
            abort();
        }
}

int case_is_typed(const struct op_case *c)
{
    const struct op_def *def = op_get(c->op);
    int typed =
        def->typed_out != 0 && !(def->typed_out & 1u << UPDATE_NEW_COPY); /* copies may be absent */

    for (int i = 0; i < def->n_in; i++)
        typed |= c->in[i].fill != FILL_NONE && def->typed_in >> i & 1;
    return typed;
}

/* Append the gradient nodes of the case's node, with a dy for each F32 output that can have one. */
static void append_grad(const struct op_case *c, struct graph *g, int din[NODE_MAX_IN])
{
    const struct node n = g->node[g->n_forward - 1];
    const struct op_def *def = op_get(n.op);
    int dout[NODE_MAX_OUT], want[NODE_MAX_IN] = {0};
    struct err err;

    for (int i = 0; i < NODE_MAX_OUT; i++)
        dout[i] = NO_VALUE;
    if (!(def->flags & OP_LOSS))
        dout[0] = graph_value(g, VALUE_INPUT, DTYPE_F32, g->value[n.out[0]].shape, "dy");
    for (int i = 0; i < NODE_MAX_IN; i++) {
        want[i] = i < n.n_in && n.in[i] != NO_VALUE && g->value[n.in[i]].dtype == DTYPE_F32 &&
                  g->value[n.in[i]].role == VALUE_INPUT &&
                  !(n.op == OP_batch_norm && i > BATCH_NORM_BIAS) &&
                  (!c->only_in || c->only_in == i);
    }
    if (def->grad(g, &n, dout, want, din, &err) < 0) {
        fprintf(stderr, "%s: %s\n", c->name, err.msg);
        abort();
    }
    for (int i = 0; i < NODE_MAX_IN; i++)
        din[i] = want[i] && din[i] >= 0 ? din[i] : NO_VALUE;
    if (c->grad_act != ACT_NONE) {
        struct node *last = &g->node[g->n_nodes - 1];

        last->attr.pool.act = c->grad_act;
        last->in[POOL2D_GRAD_Y_ACT] = n.in[POOL2D_X];
        last->n_in = 3;
        if (graph_check_node(g, last, &err) < 0)
            abort();
    }
}

struct graph *case_build(const struct op_case *c, struct case_types t, int din[NODE_MAX_IN])
{
    const struct op_def *def = op_get(c->op);
    struct graph *g = graph_new(c->in[0].shape.dim[0], 1);
    int in[NODE_MAX_IN], out[NODE_MAX_OUT];
    struct err err;

    for (int pass = 0; pass < 2; pass++) /* sums come second, because other inputs go into them */
        for (int i = 0; i < def->n_in; i++)
            if ((c->in[i].fill == FILL_SUMS) == pass)
                in[i] = make_input(c, g, i, in);
    for (int i = 0; i < NODE_MAX_OUT; i++)
        out[i] = c->no_out && def->optional_out & 1u << i ? NODE_NO_OUT : NODE_NEW_OUT;
    if (c->op == OP_commit)
        out[COMMIT_STATE] =
            graph_value(g, VALUE_STATE, DTYPE_F32, c->in[COMMIT_SHADOW].shape, "state");
    if (graph_node(g, c->op, &c->attr, in, def->n_in, out, c->name, &err) < 0) {
        fprintf(stderr, "%s: %s\n", c->name, err.msg);
        abort();
    }
    g->n_forward = g->n_nodes;
    for (int i = 0; i < NODE_MAX_IN; i++)
        din[i] = NO_VALUE;
    if (c->training && def->grad)
        append_grad(c, g, din);
    if (case_is_typed(c))
        set_all_types(c, g, t);
    return g;
}

size_t case_bytes(const struct graph *g, int value)
{
    return (size_t)shape_elements(&g->value[value].shape) * dtype_size(g->value[value].dtype);
}

static float first_scale(enum fill fill)
{
    return fill == FILL_LOWEST ? 1.0f : fill == FILL_HIGHEST ? SCALER_MAX : 4.0f;
}

static float number(enum fill fill, struct rng_stream *s, int64_t i, int64_t n)
{
    switch (fill) {
    case FILL_SPACED: /* 7919 is a prime and divides no case's size, so that all are distinct */
        return ((float)(i * 7919 % n) - (float)n / 2 + 0.25f) * (n < 400 ? 0.05f : 0.01f);
    case FILL_ZERO:
        return 0.0f;
    case FILL_KINKS:
        return 0.5f * (float)(i % 21) - 3.5f;
    case FILL_KINKS_NEXT:
        return 0.5f * (float)(i % 4 + 1) * (i % 8 < 4 ? 1.0f : -1.0f);
    case FILL_HIDDEN:
        return i / 40 == 1 || i % 40 == 3 ? -(float)INFINITY : (float)rng_next_normal(s);
    case FILL_POSITIVE:
        return (float)(0.1 + 1.9 * rng_next_unit(s));
    case FILL_UNIT:
        return (float)(0.05 + 0.9 * rng_next_unit(s));
    case FILL_FEW:
        return 0.25f * (float)((int)rng_next_below(s, 5) - 2);
    case FILL_CONTROL:
        return i == CONTROL_NONFINITE || i == CONTROL_VOID || i == CONTROL_SPIKE ? 0.0f : 3.0f;
    case FILL_LOST:
        return i == CONTROL_NONFINITE                    ? 1.0f
               : i == CONTROL_VOID || i == CONTROL_SPIKE ? 0.0f
                                                         : 3.0f;
    case FILL_VOID:
        return i == CONTROL_VOID ? 1.0f : i >= CONTROL_NONFINITE ? 0.0f : 3.0f;
    case FILL_QUIET:
        return i >= CONTROL_NONFINITE ? 0.0f : 3.0f;
    case FILL_NAN:
        return i == n / 2 ? (float)NAN : (float)rng_next_normal(s);
    case FILL_INFINITE:
        return i == n / 2 ? (float)INFINITY : (float)rng_next_normal(s);
    case FILL_SCALER:
    case FILL_LOWEST:
    case FILL_HIGHEST:
        return i == SCALER_SCALE        ? first_scale(fill)
               : i == SCALER_GOOD       ? 2.0f
               : i == SCALER_HYSTERESIS ? 1.0f
                                        : 0.0f;
    default:
        return (float)rng_next_normal(s);
    }
}

static int32_t label(enum fill fill, struct rng_stream *s, int64_t i, int64_t n, int64_t n_classes)
{
    if (fill == FILL_STRAY && (i == 0 || i == n - 1))
        return i ? (int32_t)n_classes : -1;
    if (fill == FILL_IGNORED && (i == 0 || i == n - 1))
        return SAMPLE_IGNORED;
    return (int32_t)rng_next_below(s, (uint64_t)n_classes);
}

static void fill_starts(struct rng_stream *s, const struct shape *shape, int32_t *to)
{
    const int64_t length = shape->dim[shape->n - 1];

    for (int64_t i = 0, first = 0, left = 0; i < shape_elements(shape); i++, left--) {
        if (left == 0 || i % length == 0) {
            first = i % length;
            left = 1 + (int64_t)rng_next_below(s, (uint64_t)length / 2);
        }
        to[i] = (int32_t)first;
    }
}

/* The fill of a value: that of the input of the case's node which it is, else FILL_NORMAL. */
static enum fill fill_of(const struct op_case *c, const struct graph *g, int value)
{
    const struct node *n = &g->node[g->n_forward - 1];

    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] == value)
            return c->in[i].fill;
    return FILL_NORMAL;
}

/* Rows of equal length.  The first has the settings of parameters without groups or decay. */
static void fill_segments(int64_t n, int64_t n_rows, double *row)
{
    for (int64_t k = 0; k < n_rows; k++, row += SEGMENT_COLUMNS) {
        row[SEGMENT_END] = (double)(n * (k + 1) / n_rows);
        row[SEGMENT_RATE] = 1 + 0.5 * (double)k;
        row[SEGMENT_DECAY] = (double)(0.01f * (float)k);
        row[SEGMENT_SHIFT] = k == 1 ? -1 : 1000; /* the second one is padding */
    }
}

/* The first of several ranges has no element, and the row's last element belongs to none. */
static void fill_ends(int64_t c, int64_t n, int64_t *end)
{
    for (int64_t k = 0; k < n; k++)
        end[k] = n > 1 ? (c - 1) * k * k / ((n - 1) * (n - 1)) : c;
}

/* Squares that the products never exceed.  Every fifth tensor is 0. */
static void fill_dots(struct rng_stream *s, int64_t n_tensors, double (*dots)[ADASUM_N_DOTS])
{
    for (int64_t i = 0; i < n_tensors; i++) {
        const double a = i % 5 == 4 ? 0 : 1 + fabs((double)rng_next_normal(s));
        const double b = 1 + fabs((double)rng_next_normal(s));

        dots[i][ADASUM_AA] = a * a;
        dots[i][ADASUM_BB] = b * b;
        dots[i][ADASUM_AB] = a * b / (double)(i + 1);
    }
}

static void fill_codes(struct rng_stream *s, const struct shape *shape, uint8_t *to)
{
    for (int64_t i = 0; i < shape_elements(shape); i++)
        to[i] = (uint8_t)rng_next_below(s, 256);
    for (int64_t k = 0; k < shape->dim[0]; k++) {
        const float range[2] = {-1.5f + 0.25f * (float)k, 2.25f + 0.5f * (float)k};

        memcpy(to + k * shape->dim[1], range, sizeof range);
    }
}

void case_fill(const struct op_case *c, const struct graph *g, int value, void *to)
{
    static const int64_t waits[2] = {5, 1234567};
    struct step_scalars scalars = {.seed = 0x1234567890abcdef,
                                   .step = 77,
                                   .n_updates = 5,
                                   .first_position = 5,
                                   .n_targets = 3 * 0x04040404 * (int64_t)3 / 2,
                                   .loss_scale = 0.125f,
                                   .rate = 0.1f,
                                   .clip_norm = 1.5f,
                                   .requests = 15,
                                   .stamp = 78,
                                   .after = 77,
                                   .slot = 1,
                                   .clean = 77};
    const enum fill fill = fill_of(c, g, value);
    const int64_t n = shape_elements(&g->value[value].shape);
    struct rng_stream s;

    rng_stream_init(&s, 42, RNG_TEST, (uint64_t)value);
    if (fill == FILL_STALE)
        scalars.clean = 76;
    if (fill == FILL_FIRST)
        scalars.n_updates = 0;
    if (value == g->scalars)
        memcpy(to, &scalars, sizeof scalars);
    else if (value == g->metrics)
        memcpy(to, (const double[METRIC_COUNT]){1.5, 2, 3, 2.25, 2}, sizeof(double[METRIC_COUNT]));
    else if (fill == FILL_WAITS)
        memcpy(to, waits, sizeof waits);
    else if (fill == FILL_SEGMENTS)
        fill_segments(c->in[0].shape.dim[0], g->value[value].shape.dim[0], to);
    else if (fill == FILL_ENDS)
        fill_ends(c->in[0].shape.dim[1], n, to);
    else if (fill == FILL_DOTS)
        fill_dots(&s, n / ADASUM_N_DOTS, to);
    else if (fill == FILL_CHECKS)
        for (int64_t i = 0; i < n; i++)
            ((double *)to)[i] = i % 2 ? i / 2 % 5 == 4 : 2.0 / (double)(i + 2);
    else if (fill == FILL_BLOCKS)
        for (int64_t i = 0; i < n; i++)
            ((int8_t *)to)[i] = (int8_t)((int)rng_next_below(&s, 255) - 127);
    else if (fill == FILL_CODES)
        fill_codes(&s, &g->value[value].shape, to);
    else if (g->value[value].dtype == DTYPE_F64)
        memcpy(to, (const double[2]){9.0, fill == FILL_BAD}, sizeof(double[2]));
    else if (fill == FILL_STARTS)
        fill_starts(&s, &g->value[value].shape, to);
    else if (g->value[value].dtype == DTYPE_I32)
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)to)[i] = label(fill, &s, i, n, c->in[0].shape.dim[fill != FILL_TOKENS]);
    else if (g->value[value].dtype == DTYPE_I64)
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)to)[i] = (int64_t)rng_next_below(&s, (uint64_t)c->in[0].shape.dim[0]);
    else
        for (int64_t i = 0; i < n; i++)
            real_put(to, g->value[value].dtype, i, number(fill, &s, i, n));
}
