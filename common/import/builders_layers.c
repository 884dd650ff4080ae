/* builders_layers - convolutions, pools and embeddings.
 * Linear layers stand in builders_linear.c, norms in builders_norms.c. */
#include <string.h>

#include "import/lower_impl.h"

/* ---- convolutions and pools ---- */

static void window_of(struct lower *l, int stride_at, int pad_at, struct compose_window *w)
{
    int pad[2];

    lower_pair(l, "stride", stride_at, 1, w->stride);
    lower_pair(l, "padding", pad_at, 0, pad);
    for (int i = 0; i < 2; i++)
        w->pad[i][0] = w->pad[i][1] = pad[i];
}

/* padding "same" or "valid": the odd element of "same" stands behind. */
static void pad_by_name(struct lower *l, const struct shape *w, struct compose_window *win)
{
    const struct import_arg *a = lower_arg(l, "padding", 4);
    const int is_same = a && a->text && !strcmp(a->text, "same");

    if (!is_same && a && a->text && strcmp(a->text, "valid") != 0)
        lower_fail(l, ERR_UNSUPPORTED, "padding is \"%s\", want same or valid", a->text);
    for (int i = 0; i < 2; i++) {
        const int64_t sum = is_same ? win->dilation[i] * (w->dim[2 + i] - 1) : 0;

        win->pad[i][0] = sum / 2;
        win->pad[i][1] = sum - sum / 2;
    }
}

/* 1: x is [N,C,H,W], and samples differ in N alone. */
static int layers_is_image(struct lower *l, const struct lowered *x)
{
    if (x->n != 4)
        lower_fail(l, ERR_UNSUPPORTED, "its input has %d dimensions, want images [N,C,H,W]", x->n);
    lower_refuse_batch(l, x, 0xe, "combines");
    return !lower_failed(l);
}

/* kind 1: padding is a word. */
static void builders_conv2d(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "input", 0), w = lower_in(l, "weight", 1),
                   b = lower_in(l, "bias", 2);
    struct compose_window win = {.groups = (int)lower_int(l, "groups", 6, 1)};
    const struct extent n = x.dim[0];

    if (lower_failed(l))
        return;
    if (!layers_is_image(l, &x))
        return;
    window_of(l, 3, 4, &win);
    lower_pair(l, "dilation", 5, 1, win.dilation);
    lower_refuse_batch(l, &w, ~0u, "has weights with");
    x = lower_channels_last(l, x);
    w = lower_plain(l, w);
    if (kind && !lower_failed(l))
        pad_by_name(l, &l->m->g->value[w.value].shape, &win);
    if (b.kind != LOWERED_NONE)
        b = lower_plain(l, b);
    if (lower_failed(l))
        return;
    lower_set(l, 0,
              lower_image_value(l,
                                compose_conv2d(&l->c, x.value, w.value,
                                               b.kind == LOWERED_NONE ? NO_VALUE : b.value, &win),
                                n));
}

/* Pools take images alone; max_pool2d also has indices, which nobody may read. */
enum { POOL_IS_MAX, POOL_IS_AVG };

static void builders_pool(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0);
    struct compose_window win = {.groups = 1, .dilation = {1, 1}};
    const struct extent n = x.dim[0];
    int pad[2], y;

    if (lower_failed(l))
        return;
    if (!layers_is_image(l, &x))
        return;
    lower_pair(l, "kernel_size", 1, 1, win.kernel);
    memcpy(win.stride, win.kernel, sizeof win.stride);
    if (lower_arg(l, "stride", 2) && lower_arg(l, "stride", 2)->n > 0)
        lower_pair(l, "stride", 2, 1, win.stride);
    lower_pair(l, "padding", 3, 0, pad);
    for (int i = 0; i < 2; i++)
        win.pad[i][0] = win.pad[i][1] = pad[i];
    if (kind == POOL_IS_MAX)
        lower_pair(l, "dilation", 4, 1, win.dilation);
    win.ceil_mode = (int)lower_int(l, "ceil_mode", kind == POOL_IS_MAX ? 5 : 4, 0);
    win.count_pad = (int)lower_int(l, "count_include_pad", 5, 1);
    win.divisor = kind == POOL_IS_AVG ? lower_int(l, "divisor_override", 6, 0) : 0;
    x = lower_channels_last(l, x);
    if (lower_failed(l))
        return;
    y = kind == POOL_IS_MAX ? compose_max_pool(&l->c, x.value, &win)
                            : compose_avg_pool(&l->c, x.value, &win);
    lower_set(l, 0, lower_image_value(l, y, n));
}

/* The operator of decomposed exports, for any number of dimensions. */
static void builders_convolution(struct lower *l, int kind)
{
    if (lower_int(l, "transposed", 6, 0))
        lower_conv_transposed(l, 1);
    else if (lower_in(l, "input", 0).n == 3)
        lower_conv1d(l, kind);
    else
        builders_conv2d(l, kind);
}

static void builders_adaptive_pool(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0);
    const struct extent n = x.dim[0];
    int size[2], y;

    if (lower_failed(l))
        return;
    if (!layers_is_image(l, &x))
        return;
    lower_pair(l, "output_size", 1, 1, size);
    x = lower_channels_last(l, x);
    if (lower_failed(l))
        return;
    y = kind == POOL_IS_AVG ? compose_adaptive_avg_pool(&l->c, x.value, size[0], size[1])
                            : compose_adaptive_max_pool(&l->c, x.value, size[0], size[1]);
    lower_set(l, 0, lower_image_value(l, y, n));
}

/* ---- embeddings ---- */

static void builders_embedding(struct lower *l, int kind)
{
    struct lowered table = lower_plain(l, lower_in(l, "weight", 0)),
                   index = lower_in(l, "indices", 1);
    static const int plain[SHAPE_MAX_DIMS] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct lowered y;

    (void)kind;
    if (lower_failed(l))
        return;
    lower_check_index(l, &index, extent_exported(l, table.dim[0]));
    index = lower_index_value(l, index);
    index = lower_arrange(l, index, plain); /* where it repeats, the rows do */
    if (lower_failed(l))
        return;
    if (index.n + 1 > SHAPE_MAX_DIMS || table.n != 2)
        lower_fail(l, ERR_UNSUPPORTED, "its table has %d dimensions, want 2", table.n);
    if (lower_int(l, "scale_grad_by_freq", 3, 0))
        lower_fail(l, ERR_UNSUPPORTED,
                   "scale_grad_by_freq divides gradients by the counts in a batch, which a rank "
                   "does not know; want an embedding without it");
    if (lower_int(l, "sparse", 4, 0))
        lower_fail(
            l, ERR_UNSUPPORTED,
            "sparse gradients leave rows that a step does not read as they are, momentum and "
            "all; want an embedding with sparse=False");
    lower_refuse_batch(l, &table, ~0u, "has a table with");
    if (lower_failed(l))
        return;
    y = index;
    y.dim[y.n] = table.dim[1];
    y.at[y.n] = y.n;
    y.n++;
    lower_set(l, 0,
              lower_with(y, compose_lookup(&l->c, table.value, index.value,
                                           lower_int(l, "padding_idx", 2, -1))));
}

const struct import_builder import_layers[] = {
    {"conv2d.default", builders_conv2d, 0},
    {"conv2d.padding", builders_conv2d, 1},
    {"convolution.default", builders_convolution, 0},
    {"max_pool2d_with_indices.default", builders_pool, POOL_IS_MAX},
    {"_adaptive_avg_pool2d.default", builders_adaptive_pool, POOL_IS_AVG},
    {"max_pool2d.default", builders_pool, POOL_IS_MAX},
    {"avg_pool2d.default", builders_pool, POOL_IS_AVG},
    {"adaptive_avg_pool2d.default", builders_adaptive_pool, POOL_IS_AVG},
    {"adaptive_max_pool2d.default", builders_adaptive_pool, POOL_IS_MAX},
    {"embedding.default", builders_embedding, 0},
    {0},
};
