/* builders_views - operators that compute nothing: other shapes, other orders, parts, and sums of
 * parts.  In the table kind < 0 says that the output does not share its input's memory. */
#include <string.h>

#include "base/util.h"
#include "import/lower_impl.h"

/* The same tensor. */
static void builders_same(struct lower *l, int kind)
{
    const char *name = kind == -2 ? "input" : "self";

    lower_set(l, 0, lower_in(l, name, 0));
}

/* kind 1: detach_, which changes the tensor itself: only of constants. */
static void builders_detach(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "self", 0);

    if (kind && !lower_failed(l) && x.kind != LOWERED_HOST)
        lower_fail(l, ERR_UNSUPPORTED,
                   "it cuts the gradient of a tensor in place; want detach, which makes a new one");
    lower_detach(l);
}

static void builders_nothing(struct lower *l, int kind)
{
    (void)l;
    (void)kind;
}

/* A type for another: real numbers stay what they are, integers are I32 and booleans 0 and 1. */
static void builders_to(struct lower *l, int kind)
{
    const enum import_type to = l->net->value[l->node->out[0]].type;
    struct lowered x = lower_real_value(l, lower_in(l, "self", 0));
    const int v = lower_value_of(l, "self", 0);
    enum import_type from;
    int is_number;

    (void)kind;
    if (lower_failed(l) || v == IMPORT_NO_VALUE)
        return;
    from = l->net->value[v].type;
    is_number = l->m->g->value[x.value].dtype == DTYPE_I32;
    if (from == to || (host_is_real(from) && host_is_real(to))) {
        lower_set(l, 0, x);
    } else if (to == IMPORT_BOOL && is_number) {
        lower_set(l, 0, lower_with(x, compose_compare(&l->c, EW_NE, x.value, 0)));
    } else if (to == IMPORT_BOOL) {
        lower_set(
            l, 0,
            lower_with(x, compose_elementwise(&l->c, EW_NE, x.value, compose_scalar(&l->c, 0))));
    } else if (lower_is_whole(from) && (to == IMPORT_I64 || to == IMPORT_I32) && is_number) {
        lower_set(l, 0, x); /* I32 holds both */
    } else if (from == IMPORT_BOOL && (to == IMPORT_I64 || to == IMPORT_I32)) {
        lower_set(l, 0, lower_whole(l, x, from));
    } else if (host_is_real(to) || to == IMPORT_I64 || to == IMPORT_I32) {
        lower_set(
            l, 0,
            lower_with(x, compose_cast(&l->c, x.value, host_is_real(to) ? DTYPE_F32 : DTYPE_I32)));
    } else {
        lower_fail(l, ERR_UNSUPPORTED, "%s becomes %s", import_type_name(from),
                   import_type_name(to));
    }
}

/* Any reshape: the file says the output's shape at export. */
static void builders_reshape(struct lower *l, int kind)
{
    const struct import_value *to = &l->net->value[l->node->out[0]];
    const struct lowered x = lower_in(l, "self", 0);

    (void)kind;
    if (!lower_failed(l))
        lower_set(l, 0, lower_reshape(l, x, to->dim, to->n_dims));
}

static void builders_permute(struct lower *l, int kind)
{
    const struct lowered x = lower_real_value(l, lower_in(l, "self", 0));
    int64_t dims[SHAPE_MAX_DIMS];
    const int n = lower_ints(l, "dims", 1, dims, SHAPE_MAX_DIMS);
    int order[SHAPE_MAX_DIMS];
    unsigned seen = 0;

    (void)kind;
    for (int d = 0; d < n; d++) {
        order[d] = (int)(dims[d] < 0 ? dims[d] + n : dims[d]);
        if (order[d] < 0 || order[d] >= n || seen >> order[d] & 1)
            lower_fail(l, ERR_CONFIG,
                       "its dims have %lld, want each of %d dimensions once; export it again",
                       (long long)dims[d], n);
        else
            seen |= 1u << order[d];
    }
    if (!lower_failed(l) && n != x.n)
        lower_fail(l, ERR_CONFIG, "%d dims for a tensor of %d", n, x.n);
    if (!lower_failed(l))
        lower_set(l, 0, lower_permute(x, order));
}

/* kind 1: t(), which turns the last two dimensions; kind 2: swapaxes. */
static void builders_transpose(struct lower *l, int kind)
{
    const struct lowered x = lower_real_value(l, lower_in(l, "self", 0));
    int order[SHAPE_MAX_DIMS], a, b;

    if (lower_failed(l))
        return;
    if (kind == 1 && x.n < 2) {
        lower_set(l, 0, x);
        return;
    }
    a = kind == 1 ? x.n - 2 : lower_dim(l, kind ? "axis0" : "dim0", 1, x.n, 0);
    b = kind == 1 ? x.n - 1 : lower_dim(l, kind ? "axis1" : "dim1", 2, x.n, 1);
    for (int d = 0; d < x.n; d++)
        order[d] = d == a ? b : d == b ? a : d;
    if (!lower_failed(l))
        lower_set(l, 0, lower_permute(x, order));
}

static void builders_unsqueeze(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "self", 0);
    const int dim = lower_dim(l, "dim", 1, x.n + 1, 0);

    (void)kind;
    lower_set(l, 0, lower_unsqueeze(l, x, dim));
}

static void builders_squeeze(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "self", 0);
    int64_t dims[SHAPE_MAX_DIMS];
    const int n = kind ? lower_ints(l, "dim", 1, dims, SHAPE_MAX_DIMS) : 0;
    unsigned bits = kind ? 0 : (1u << x.n) - 1;

    for (int i = 0; i < n; i++) {
        const int64_t d = dims[i] < 0 ? dims[i] + x.n : dims[i];

        if (d < 0 || d >= max_i64(x.n, 1)) /* PyTorch lets a scalar have dimension 0 */
            lower_fail(l, ERR_CONFIG, "dim is %lld of %d", (long long)dims[i], x.n);
        else
            bits |= 1u << d;
    }
    lower_set(l, 0, lower_squeeze(l, x, bits));
}

/* `times` copies in dimension d of the output.  In a first dimension, as many as the batch are the
 * batch. */
static struct extent views_copies(struct lower *l, const struct import_value *to, int d,
                                  int64_t times)
{
    int is_batch = lower_is_batch(l, to, d);

    if (is_batch < 0)
        is_batch = d == 0;
    return is_batch && times == l->batch ? (struct extent){1, 1, 1} : extent_of(times);
}

/* x with the extents of the node's output i. */
static void expand_to(struct lower *l, struct lowered x, int i)
{
    const struct import_value *to = &l->net->value[l->node->out[i]];
    int missing;

    x = lower_real_value(l, x);
    missing = to->n_dims - x.n;
    x = lower_rank(l, x, to->n_dims);
    for (int d = 0; d < to->n_dims && !lower_failed(l); d++) {
        if (!extent_is_one(x.dim[d]) || (to->dim[d] == 1 && d >= missing))
            continue;
        if (to->dim[d] == 1 && !(d == 0 && l->batch == 1))
            continue;
        x.dim[d] = views_copies(l, to, d, to->dim[d]);
        x.repeats |= 1u << d;
    }
    lower_set(l, i, x);
}

static void builders_expand(struct lower *l, int kind)
{
    (void)kind;
    expand_to(l, lower_in(l, "self", 0), 0);
}

/* broadcast_tensors: each of a list. */
static void builders_broadcast(struct lower *l, int kind)
{
    const struct import_arg *a = lower_arg(l, "tensors", 0);

    (void)kind;
    if (!a || a->kind != IMPORT_VALUES || a->n < l->node->n_out)
        lower_fail(l, ERR_CONFIG, "it has %d outputs of %d tensors; export it again",
                   l->node->n_out, a ? a->n : 0);
    for (int i = 0; i < l->node->n_out && !lower_failed(l); i++)
        if (l->node->out[i] != IMPORT_NO_VALUE)
            expand_to(l, lower_at(l, a->values[i]), i);
}

/* Copies of x side by side: repeat and tile.  A dimension of extent 1 is expanded; another one is
 * repeated as a whole.  As many copies as the batch are one for each sample. */
static void builders_repeat(struct lower *l, int kind)
{
    const struct import_value *to = &l->net->value[l->node->out[0]];
    struct lowered x = lower_rank(l, lower_real_value(l, lower_in(l, "self", 0)), to->n_dims);
    int at = 0;

    (void)kind;
    for (int d = 0; d < to->n_dims && !lower_failed(l); d++, at++) {
        const int64_t extent = extent_exported(l, x.dim[at]);

        if (extent == to->dim[d])
            continue;
        if (extent < 1 || to->dim[d] % extent) {
            lower_fail(l, ERR_CONFIG, "it repeats %lld elements of dimension %d, and makes %lld",
                       (long long)extent, d, (long long)to->dim[d]);
        } else if (extent_is_one(x.dim[at])) {
            x.dim[at] = views_copies(l, to, d, to->dim[d]);
            x.repeats |= 1u << at;
        } else {
            lower_refuse_batch(l, &x, 1u << at, "repeats");
            x = lower_unsqueeze(l, x, at);
            x.dim[at] = views_copies(l, to, d, to->dim[d] / extent);
            x.repeats |= 1u << at++;
        }
    }
    if (!lower_failed(l))
        lower_set(l, 0, at == to->n_dims ? x : lower_reshape(l, x, to->dim, to->n_dims));
}

/* ---- parts ---- */

static struct lowered part_of(struct lower *l, struct lowered x, int dim, int64_t start,
                              int64_t stop, int64_t step)
{
    const int64_t extent = extent_exported(l, x.dim[dim]);

    import_slice_ends(extent, &start, &stop);
    if (start == 0 && stop == extent && step == 1)
        return x;
    if (x.dim[dim].is_batch) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "it takes the elements %lld to %lld of dimension %d, the batch: the network "
                   "depends on the batch of its export, %lld",
                   (long long)start, (long long)stop, dim, (long long)l->batch);
        return x;
    }
    x = lower_real_value(l, x);
    x.dim[dim] = extent_of((stop - start + step - 1) / step);
    if (x.repeats >> dim & 1) {
        x.repeats &= extent_is_one(x.dim[dim]) ? ~(1u << dim) : ~0u;
        return x;
    }
    x.value = compose_slice(&l->c, x.value, x.at[dim], start, stop, step);
    return x;
}

static void builders_narrow(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "self", 0);
    const int dim = lower_dim(l, "dim", 1, x.n, 0);
    const int64_t start = lower_int(l, "start", 2, 0), n = lower_int(l, "length", 3, 0),
                  first = lower_failed(l) || start >= 0 ? start
                                                        : start + extent_exported(l, x.dim[dim]);

    (void)kind;
    if (!lower_failed(l))
        lower_set(l, 0, part_of(l, x, dim, first, first + n, 1));
}

static void builders_slice(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "self", 0);
    const int dim = lower_dim(l, "dim", 1, x.n, 0);
    const int64_t step = lower_int(l, "step", 4, 1);

    (void)kind;
    if (!lower_failed(l) && step < 1)
        lower_fail(l, ERR_CONFIG, "step is %lld, want 1 or more", (long long)step);
    if (lower_failed(l))
        return;
    lower_set(l, 0,
              part_of(l, x, dim, lower_clamped(l, "start", 2, 0),
                      lower_clamped(l, "end", 3, INT64_MAX), step));
}

/* ---- fills ---- */

/* x of one number, in x's layout. */
static struct lowered fill_whole(struct lower *l, struct lowered x, double value)
{
    const float v = (float)value;
    struct shape s = {.n = x.n};

    for (int d = 0; d < x.n; d++) {
        s.dim[x.at[d]] = 1;
        if (!extent_is_one(x.dim[d]))
            x.repeats |= 1u << d;
    }
    return lower_with(x, graph_const(l->m->g, DTYPE_F32, s, &v, "fill"));
}

/* fill_ and zero_ (kind 1) of tensors and of their parts; those of constants are folded. */
static void builders_fill(struct lower *l, int kind)
{
    const double value = kind == 1 ? 0 : lower_real(l, "value", 1, 0);
    const struct lowered x = lower_real_value(l, lower_in(l, "self", 0));

    if (!lower_failed(l))
        lower_set(l, 0, fill_whole(l, x, value));
}

static void builders_select(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0);
    const int dim = lower_dim(l, "dim", 1, x.n, 0);
    int64_t at = lower_int(l, "index", 2, 0);

    (void)kind;
    if (lower_failed(l))
        return;
    at = at < 0 ? at + extent_exported(l, x.dim[dim]) : at;
    if (at < 0 || at >= extent_exported(l, x.dim[dim])) {
        lower_fail(l, ERR_CONFIG, "index is %lld of %lld", (long long)lower_int(l, "index", 2, 0),
                   (long long)extent_exported(l, x.dim[dim]));
        return;
    }
    x = part_of(l, x, dim, at, at + 1, 1);
    x.repeats &= ~(1u << dim);
    lower_set(l, 0, lower_squeeze(l, x, 1u << dim));
}

enum { CAT_PLAIN = -1, CAT_STACK = -2 };

/* chunk, split, split_with_sizes, unbind: each output's extent is in the file. */
enum { PARTS, PARTS_UNBIND };

static void builders_parts(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "self", 0);
    const int dim = lower_dim(l, "dim", kind == PARTS_UNBIND ? 1 : 2, x.n, 0);
    int64_t at = 0;

    for (int i = 0; i < l->node->n_out && !lower_failed(l); i++) {
        const int out = l->node->out[i];
        int64_t n = 1;
        struct lowered y;

        if (kind == PARTS && out != IMPORT_NO_VALUE && l->net->value[out].n_dims == x.n)
            n = l->net->value[out].dim[dim];
        else if (kind == PARTS)
            n = lower_int(l, "split_size", 1, 1);
        y = part_of(l, x, dim, at, at + n, 1);
        if (kind == PARTS_UNBIND)
            y = lower_squeeze(l, y, 1u << dim);
        lower_set(l, i, y);
        at += n;
    }
}

/* The tensors of the list, with one more dimension if it is stacked. */
static struct lowered *cat_inputs(struct lower *l, const struct import_arg *a, int is_stack)
{
    struct lowered *x = arena_alloc(&l->arena, (size_t)a->n * sizeof *x);

    for (int i = 0; i < a->n && !lower_failed(l); i++) {
        x[i] = lower_at(l, a->values[i]);
        if (is_stack && !lower_failed(l))
            x[i] = lower_unsqueeze(l, x[i], lower_dim(l, "dim", 1, x[i].n + 1, 0));
    }
    return x;
}

/* A node joins NODE_MAX_IN values; more are joined in groups. */
static int cat_values(struct lower *l, const struct lowered *x, int n, int axis)
{
    int id[NODE_MAX_IN];
    const int most = n <= NODE_MAX_IN ? 1 : (n + NODE_MAX_IN - 1) / NODE_MAX_IN;
    int k = 0;

    for (int i = 0; i < n; i += most)
        id[k++] = most == 1 ? x[i].value : cat_values(l, x + i, most < n - i ? most : n - i, axis);
    return k == 1 ? id[0] : compose_concat(&l->c, id, k, axis);
}

/* All of the list in one layout, without repeated elements; *y is the result's. */
static void cat_meet(struct lower *l, struct lowered *x, int n, int dim, struct lowered *y)
{
    struct lowered **p = arena_alloc(&l->arena, (size_t)n * sizeof *p);
    struct extent *along = arena_alloc(&l->arena, (size_t)n * sizeof *along);
    int64_t extent = 0;

    for (int i = 0; i < n && !lower_failed(l); i++) { /* they may differ along dim */
        if (x[i].dim[dim].is_batch) {
            lower_fail(l, ERR_UNSUPPORTED, "it joins along dimension %d, the batch", dim);
            return;
        }
        along[i] = x[i].dim[dim];
        extent += extent_size(l, along[i]);
        x[i].dim[dim] = extent_of(1);
        p[i] = &x[i];
    }
    *y = lower_meet(l, p, n);
    for (int i = 0; i < n && !lower_failed(l); i++) {
        for (int d = 0; d < y->n; d++) {
            const int is_thin = (x[i].repeats >> d & 1) || extent_is_one(x[i].dim[d]);

            if (d == dim || !is_thin || extent_is_one(y->dim[d]))
                continue;
            x[i].dim[d] = y->dim[d];
            x[i].repeats |= 1u << d;
        }
        x[i].dim[dim] = along[i];
        x[i] = lower_spread(l, x[i]);
    }
    y->repeats = 0;
    y->dim[dim] = extent_of(extent);
}

static void builders_cat(struct lower *l, int kind)
{
    enum { MOST = 4096 };
    const struct import_arg *a = lower_arg(l, "tensors", 0);
    struct lowered *x, y = {0};
    int dim;

    if (!a || a->kind != IMPORT_VALUES || a->n < 1 || a->n > MOST) {
        lower_fail(l, ERR_UNSUPPORTED, "want 1 to %d tensors", MOST);
        return;
    }
    x = cat_inputs(l, a, kind == CAT_STACK);
    if (lower_failed(l))
        return;
    dim = lower_dim(l, "dim", 1, x[0].n, 0);
    for (int i = 0; i < a->n; i++)
        if (x[i].n != x[0].n)
            lower_fail(l, ERR_UNSUPPORTED, "it joins tensors of %d and %d dimensions", x[0].n,
                       x[i].n);
    if (!lower_failed(l))
        cat_meet(l, x, a->n, dim, &y);
    if (!lower_failed(l))
        lower_set(l, 0, lower_with(y, cat_values(l, x, a->n, y.at[dim])));
}

static void builders_roll(struct lower *l, int kind)
{
    struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    int64_t shift[SHAPE_MAX_DIMS], dims[SHAPE_MAX_DIMS];
    const int n = lower_ints(l, "shifts", 1, shift, SHAPE_MAX_DIMS);

    (void)kind;
    if (lower_ints(l, "dims", 2, dims, SHAPE_MAX_DIMS) != n)
        lower_fail(
            l, ERR_UNSUPPORTED,
            "it has %d shifts without as many dims, want a dim for each: roll(x, shift, dim)", n);
    for (int i = 0; i < n && !lower_failed(l); i++) {
        const int64_t d = dims[i] < 0 ? dims[i] + x.n : dims[i];

        if (d < 0 || d >= x.n)
            lower_fail(l, ERR_UNSUPPORTED, "it rolls dimension %lld of %d", (long long)d, x.n);
        else
            lower_refuse_batch(l, &x, 1u << d, "rolls");
        if (shift[i] != 0 && !lower_failed(l))
            x.value = compose_roll(&l->c, x.value, x.at[d], shift[i]);
    }
    lower_set(l, 0, x);
}

static void builders_pad(struct lower *l, int kind)
{
    static const char *const modes[] = {"constant", "reflect", "replicate", "circular"};
    struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    const struct import_arg *mode = lower_arg(l, "mode", 2);
    const double value = lower_real(l, "value", 3, 0);
    int64_t by[2 * SHAPE_MAX_DIMS];
    const int n = lower_ints(l, "pad", 1, by, 2 * SHAPE_MAX_DIMS);
    int how = PAD_CONSTANT;

    (void)kind;
    for (int i = 0; mode && mode->kind == IMPORT_TEXT && i < 4; i++)
        if (!strcmp(modes[i], mode->text))
            how = i;
    if (mode && (mode->kind != IMPORT_TEXT || strcmp(modes[how], mode->text) != 0))
        lower_fail(l, ERR_UNSUPPORTED, "its mode is not constant, reflect, replicate or circular");
    if (n % 2)
        lower_fail(l, ERR_CONFIG, "pad has %d numbers, want pairs", n);
    for (int i = 0; i + 1 < n && !lower_failed(l); i += 2) {
        const int d = x.n - 1 - i / 2;

        if (by[i] == 0 && by[i + 1] == 0)
            continue;
        if (d < 0)
            lower_fail(l, ERR_UNSUPPORTED, "it pads dimension %d of %d", d, x.n);
        else
            lower_refuse_batch(l, &x, 1u << d, "pads");
        if (lower_failed(l))
            return;
        x.value = compose_pad(&l->c, x.value, x.at[d], &by[i], (enum padding)how, value);
        x.dim[d] = extent_of(x.dim[d].outer * x.dim[d].inner + by[i] + by[i + 1]);
    }
    lower_set(l, 0, x);
}

const struct import_builder import_views[] = {
    {"alias.default", builders_same, 0},
    {"detach_.default", builders_detach, 1},
    {"detach.default", builders_detach, 0},
    {"lift_fresh_copy.default", builders_same, 0},
    {"contiguous.default", builders_same, 0},
    {"clone.default", builders_same, -1},
    {"_assert_tensor_metadata.default", builders_nothing, -1},
    {"_assert_async.msg", builders_nothing, -1},
    {"to.dtype", builders_to, 0},
    {"to.dtype_layout", builders_to, 0},
    {"to.device", builders_to, 0},
    {"to.other", builders_to, 0},
    {"_to_copy.default", builders_to, -1},
    {"type_as.default", builders_to, 0},
    {"view.default", builders_reshape, 0},
    {"view_as.default", builders_reshape, 0},
    {"reshape.default", builders_reshape, 0},
    {"reshape_as.default", builders_reshape, 0},
    {"flatten.using_ints", builders_reshape, 0},
    {"unflatten.int", builders_reshape, 0},
    {"permute.default", builders_permute, 0},
    {"transpose.int", builders_transpose, 0},
    {"swapaxes.default", builders_transpose, 2},
    {"t.default", builders_transpose, 1},
    {"unsqueeze.default", builders_unsqueeze, 0},
    {"squeeze.default", builders_squeeze, 0},
    {"squeeze.dim", builders_squeeze, 1},
    {"squeeze.dims", builders_squeeze, 1},
    {"expand.default", builders_expand, 0},
    {"expand_as.default", builders_expand, 0},
    {"broadcast_tensors.default", builders_broadcast, -1},
    {"repeat.default", builders_repeat, -1},
    {"tile.default", builders_repeat, -1},
    {"slice.Tensor", builders_slice, 0},
    {"narrow.default", builders_narrow, 0},
    {"select.int", builders_select, 0},
    {"fill_.Scalar", builders_fill, 0},
    {"zero_.default", builders_fill, 1},
    {"chunk.default", builders_parts, PARTS},
    {"split.Tensor", builders_parts, PARTS},
    {"split_with_sizes.default", builders_parts, PARTS},
    {"unbind.int", builders_parts, PARTS_UNBIND},
    {"cat.default", builders_cat, CAT_PLAIN},
    {"concat.default", builders_cat, CAT_PLAIN},
    {"stack.default", builders_cat, CAT_STACK},
    {"roll.default", builders_roll, -1},
    {"constant_pad_nd.default", builders_pad, -1},
    {"pad.default", builders_pad, -1},
    {0},
};
