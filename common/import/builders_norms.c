/* builders_norms - batch norm, which reads all samples of a step and keeps running statistics, and
 * the norms of single samples. */
#include <float.h>

#include "import/lower_impl.h"

/* The parameter, or a constant of n numbers. */
static int norm_operand(struct lower *l, struct lowered w, int64_t n, float value, const char *name)
{
    float *one;
    int id;

    if (w.kind != LOWERED_NONE) {
        w = lower_plain(l, w);
        if (lower_failed(l))
            return NO_VALUE;
        return l->m->g->value[w.value].shape.n == 1 ? w.value
                                                    : compose_reshape(&l->c, w.value, SHAPE(n));
    }
    if (!compose_has_room(&l->c, n, 1))
        return NO_VALUE;
    one = arena_alloc(&l->arena, (size_t)n * sizeof *one + 1);
    for (int64_t i = 0; i < n; i++)
        one[i] = value;
    id = graph_const(l->m->g, DTYPE_F32, SHAPE(n), one, name);
    return id;
}

/* The buffer of a running statistic, which an earlier use may have updated; or NULL. */
static const struct import_tensor *norm_buffer(const struct lower *l, const char *name, int place)
{
    const int v = lower_value_of(l, name, place);

    if (v != IMPORT_NO_VALUE && l->value[v].kind == LOWERED_NEXT)
        return &l->net->tensor[l->value[v].tensor];
    return lower_tensor(l, name, place);
}

static int running_state(struct lower *l, const char *name, int place, float init)
{
    const struct import_tensor *t = norm_buffer(l, name, place);
    int *state = t ? &l->param[t - l->net->tensor] : NULL;

    if (!t || t->role != IMPORT_BUFFER || t->n_dims != 1) {
        lower_fail(l, ERR_UNSUPPORTED, "its %s is not a buffer of the file", name);
        return NO_VALUE;
    }
    if (*state == NO_VALUE)
        *state = graph_state(l->m->g, SHAPE(t->dim[0]), init, t->name);
    return *state;
}

/* The node that writes the next value of this state; -1: none does yet. */
static int norm_updater(const struct graph *g, int state)
{
    for (int k = g->n_nodes - 1; k >= 0; k--)
        if (g->node[k].op == OP_batch_norm &&
            g->node[k].out[BATCH_NORM_NEXT_MEAN] == g->value[state].shadow)
            return k;
    return -1;
}

/* A batch norm that a step uses again goes on with what its last use left, as PyTorch does: the
 * next values of that use become temporaries, which state[2] then are. */
static void norm_continue(struct lower *l, int state[2])
{
    struct graph *g = l->m->g;
    const int k = norm_updater(g, state[0]);

    for (int i = 0; k >= 0 && i < 2; i++) {
        const int temp = graph_value(g, VALUE_TEMP, DTYPE_F32, g->value[state[i]].shape,
                                     arena_printf(&g->arena, "%s.next", g->value[state[i]].name));

        g->value[temp].producer = k;
        g->value[temp].is_detached = 1;
        g->node[k].out[BATCH_NORM_NEXT_MEAN + i] = temp;
        state[i] = temp;
    }
}

static int builders_batch_norm_train(struct lower *l, int x, const int param[2], const int state[2],
                                     const union node_attr *attr)
{
    struct graph *g = l->m->g;
    int sums[NODE_MAX_OUT] = {NODE_NEW_OUT}, last[2] = {state[0], state[1]};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, graph_shadow_of(g, state[0]),
                             graph_shadow_of(g, state[1])};

    norm_continue(l, last);
    l->c.rc = graph_node(g, OP_batch_norm_stats, attr, (int[]){x, last[0]}, 2, sums,
                         arena_printf(&g->arena, "%s.stats", l->c.name), l->c.err);
    if (l->c.rc == 0 && l->m->sync)
        l->c.rc = graph_node(g, OP_allreduce, NULL, (int[]){sums[0]}, 1, sums,
                             arena_printf(&g->arena, "%s.sync", l->c.name), l->c.err);
    if (l->c.rc == 0)
        l->c.rc = graph_node(g, OP_batch_norm, attr,
                             (int[]){x, sums[0], param[0], param[1], last[0], last[1]}, 6, out,
                             l->c.name, l->c.err);
    return out[0];
}

/* Outputs 3 and 4 of a decomposed export are the next running statistics. */
static void norm_set_next(struct lower *l)
{
    for (int i = 0; i < 2; i++) {
        const struct import_tensor *t = norm_buffer(l, i ? "running_var" : "running_mean", 3 + i);

        if (t)
            lower_set(l, 3 + i,
                      (struct lowered){.kind = LOWERED_NEXT, .tensor = (int)(t - l->net->tensor)});
    }
}

/* x times w plus b, of the extents of x's dimension 1. */
static struct lowered norm_scale(struct lower *l, struct lowered x)
{
    for (int i = 0; i < 2 && !lower_failed(l); i++) {
        struct lowered w = lower_in(l, i ? "bias" : "weight", 1 + i);

        if (w.kind == LOWERED_NONE)
            continue;
        for (int d = 2; d < x.n; d++)
            w = lower_unsqueeze(l, w, w.n);
        x = lower_binary(l, i ? EW_ADD : EW_MUL, x, w);
    }
    return x;
}

/* Without running statistics, of what no other sample has a part in: weights that are standardized,
 * or an instance norm with samples and channels as one dimension. */
static void norm_of_itself(struct lower *l, int eps_at)
{
    const double eps = lower_real(l, "eps", eps_at, 1e-5);
    struct lowered x = lower_in(l, "input", 0);
    int mean, var;
    unsigned axes;

    for (int d = 0; d < x.n && !lower_failed(l); d++)
        if (d != 1 && x.dim[d].is_batch)
            lower_fail(l, ERR_UNSUPPORTED,
                       "it is a batch norm without running statistics, which validation needs; "
                       "want track_running_stats=True");
    x = lower_spread(l, x);
    if (lower_failed(l))
        return;
    axes = lower_axes(&x, ((1u << x.n) - 1) & ~2u);
    mean = compose_reduce(&l->c, REDUCE_MEAN, x.value, axes, 1);
    x.value = compose_elementwise(&l->c, EW_SUB, x.value, mean);
    var = compose_elementwise(&l->c, EW_MUL, x.value, x.value);
    var = compose_reduce(&l->c, REDUCE_MEAN, var, axes, 1);
    var = compose_constants(&l->c, EW_AFFINE, var, 1, (float)eps);
    var = compose_elementwise(&l->c, EW_RSQRT, var, NO_VALUE);
    x.value = compose_elementwise(&l->c, EW_MUL, x.value, var);
    x = norm_scale(l, x);
    if (!lower_failed(l))
        lower_set(l, 0, x);
}

static void builders_norm_of_itself(struct lower *l, int kind)
{
    (void)kind;
    if (lower_in(l, "input", 0).n < 2)
        lower_fail(l, ERR_CONFIG, "its input has %d dimensions, want 2 or more",
                   lower_in(l, "input", 0).n);
    norm_of_itself(l, 5);
}

static void builders_batch_norm(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "input", 0);
    const int flag = (int)lower_int(l, "training", 5, 1);
    union node_attr attr = {.norm = {.eps = (float)lower_real(l, "eps", 7, 1e-5),
                                     .momentum = (float)lower_real(l, "momentum", 6, 0.1),
                                     .sync = l->m->sync}};
    int param[2], state[2], out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    int64_t n;

    (void)kind;
    if (lower_failed(l))
        return;
    if (x.n < 2) {
        lower_fail(l, ERR_UNSUPPORTED, "its input has %d dimensions, want 2 or more", x.n);
        return;
    }
    if (lower_value_of(l, "running_mean", 3) == IMPORT_NO_VALUE) {
        norm_of_itself(l, 7);
        return;
    }
    norm_set_next(l);
    lower_refuse_batch(l, &x, 2, "has its channels in");
    x = lower_channels_last(l, x);
    state[0] = running_state(l, "running_mean", 3, 0);
    state[1] = running_state(l, "running_var", 4, 1);
    if (lower_failed(l))
        return;
    n = l->m->g->value[state[0]].shape.dim[0];
    param[0] = norm_operand(l, lower_in(l, "weight", 1), n, 1, "ones");
    param[1] = norm_operand(l, lower_in(l, "bias", 2), n, 0, "zeros");
    if (lower_failed(l))
        return;
    if (l->m->g->training && (flag || l->net->is_eval)) {
        lower_set(l, 0, lower_with(x, builders_batch_norm_train(l, x.value, param, state, &attr)));
        return;
    }
    if (norm_updater(l->m->g, state[0]) >= 0) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "it reads running statistics that another use in the same step has updated");
        return;
    }
    attr.norm.sync = 0;
    l->c.rc = graph_node(l->m->g, OP_batch_norm_infer, &attr,
                         (int[]){x.value, param[0], param[1], state[0], state[1]}, 5, out,
                         l->c.name, l->c.err);
    lower_set(l, 0, lower_with(x, out[0]));
}

/* The last k dimensions of x as one: normalised together. */
static struct lowered fold_last(struct lower *l, struct lowered x, int k)
{
    int64_t to[SHAPE_MAX_DIMS];

    if (k == 1)
        return lower_last(l, x, x.n - 1);
    for (int d = 0; d < x.n; d++)
        to[d] = extent_exported(l, x.dim[d]);
    for (int d = x.n - k + 1; d < x.n; d++)
        to[x.n - k] *= to[d];
    x = lower_plain(l, x);
    return lower_reshape(l, x, to, x.n - k + 1);
}

static void builders_layer_norm(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "input", 0);
    const int optional = l->m->g->training ? NODE_NEW_OUT : NODE_NO_OUT;
    const union node_attr attr = {.norm = {.eps = (float)lower_real(l, "eps", 4, 1e-5)}};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, optional, optional}, in[3];
    int64_t to[SHAPE_MAX_DIMS], n = 1;
    const int k = lower_normalized(l, &x, &n);
    struct lowered y;

    (void)kind;
    if (lower_failed(l))
        return;
    lower_refuse_batch(l, &x, ~0u << (x.n - k), "normalises");
    y = fold_last(l, x, k);
    if (lower_failed(l))
        return;
    in[0] = y.value;
    in[1] = norm_operand(l, lower_in(l, "weight", 2), n, 1, "ones");
    in[2] = norm_operand(l, lower_in(l, "bias", 3), n, 0, "zeros");
    if (lower_failed(l))
        return;
    l->c.rc = graph_node(l->m->g, OP_layer_norm, &attr, in, 3, out, l->c.name, l->c.err);
    y = lower_with(y, out[0]);
    for (int d = 0; d < x.n; d++)
        to[d] = extent_exported(l, x.dim[d]);
    lower_set(l, 0, k == 1 || lower_failed(l) ? y : lower_reshape(l, y, to, x.n));
}

/* No eps: the smallest that changes 1. */
static void builders_rms_norm(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "input", 0);
    int64_t n;
    const int k = lower_normalized(l, &x, &n);
    struct lowered y, w = lower_in(l, "weight", 2);

    (void)kind;
    if (!lower_failed(l) && k != 1)
        lower_fail(l, ERR_UNSUPPORTED, "it normalises %d dimensions, want the last one", k);
    if (lower_failed(l))
        return;
    lower_refuse_batch(l, &x, 1u << (x.n - 1), "normalises");
    y = lower_last(l, x, x.n - 1);
    if (w.kind != LOWERED_NONE)
        w = lower_plain(l, w);
    if (!lower_failed(l))
        lower_set(l, 0,
                  lower_with(y, compose_rms_norm(&l->c, y.value,
                                                 w.kind == LOWERED_NONE ? NO_VALUE : w.value,
                                                 lower_real(l, "eps", 3, FLT_EPSILON), 0)));
}

static void builders_group_norm(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "input", 0), w = lower_in(l, "weight", 2),
                   b = lower_in(l, "bias", 3);
    const union node_attr attr = {.group_norm = {.groups = kind ? lower_int(l, "group", 6, 1)
                                                                : lower_int(l, "num_groups", 1, 1),
                                                 .eps = (float)lower_real(l, "eps", 4, 1e-5)}};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NEW_OUT, NODE_NEW_OUT}, in[3];

    if (!lower_failed(l) && x.n < 2)
        lower_fail(l, ERR_CONFIG, "its input has %d dimensions, want 2 or more", x.n);
    if (lower_failed(l))
        return;
    lower_refuse_batch(l, &x, ~1u, "normalises");
    x = lower_channels_last(l, x);
    if (lower_failed(l))
        return;
    in[0] = x.value;
    in[1] = w.kind == LOWERED_NONE ? NO_VALUE : lower_plain(l, w).value;
    in[2] = b.kind == LOWERED_NONE ? NO_VALUE : lower_plain(l, b).value;
    if (!lower_failed(l))
        l->c.rc = graph_node(l->m->g, OP_group_norm, &attr, in, 3, out, l->c.name, l->c.err);
    lower_set(l, 0, lower_with(x, out[0]));
}

/* A group norm in which each channel is a group. */
static void builders_instance_norm(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "input", 0), w = lower_in(l, "weight", 1),
                   b = lower_in(l, "bias", 2);
    union node_attr attr = {.group_norm = {.eps = (float)lower_real(l, "eps", 7, 1e-5)}};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NEW_OUT, NODE_NEW_OUT}, in[3];

    (void)kind;
    if (!lower_failed(l) && x.n < 3)
        lower_fail(l, ERR_CONFIG, "its input has %d dimensions, want 3 or more", x.n);
    if (!lower_failed(l) && lower_value_of(l, "running_mean", 3) != IMPORT_NO_VALUE)
        lower_fail(l, ERR_UNSUPPORTED,
                   "it keeps running statistics of single samples; want track_running_stats=False");
    lower_refuse_batch(l, &x, ~1u, "normalises");
    x = lower_channels_last(l, x);
    if (lower_failed(l))
        return;
    attr.group_norm.groups = extent_exported(l, x.dim[1]);
    in[0] = x.value;
    in[1] = w.kind == LOWERED_NONE ? NO_VALUE : lower_plain(l, w).value;
    in[2] = b.kind == LOWERED_NONE ? NO_VALUE : lower_plain(l, b).value;
    if (!lower_failed(l))
        l->c.rc = graph_node(l->m->g, OP_group_norm, &attr, in, 3, out, l->c.name, l->c.err);
    lower_set(l, 0, lower_with(x, out[0]));
}

const struct import_builder import_norms[] = {
    {"batch_norm.default", builders_batch_norm, 0},
    {"_native_batch_norm_legit_functional.default", builders_batch_norm, 0},
    {"_native_batch_norm_legit.no_stats", builders_norm_of_itself, 0},
    {"native_layer_norm.default", builders_layer_norm, 0},
    {"native_group_norm.default", builders_group_norm, 1},
    {"layer_norm.default", builders_layer_norm, 0},
    {"rms_norm.default", builders_rms_norm, 0},
    {"group_norm.default", builders_group_norm, 0},
    {"instance_norm.default", builders_instance_norm, 0},
    {0},
};
