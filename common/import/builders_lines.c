/* builders_lines - convolutions, pools and other sizes of lines [N,C,L], and sizes of images.
 *
 * A size that the file has is one of elements, never of the batch. */
#include <string.h>

#include "import/lower_impl.h"

/* ---- lines ---- */

/* The padding of conv1d in columns; a word if it is one.  The odd element of "same" stands behind.
 */
static void builders_lines_pad(struct lower *l, int64_t kernel, struct compose_window *win)
{
    const struct import_arg *a = lower_arg(l, "padding", 4);
    int64_t sum;
    int pad[2];

    if (!a || a->kind != IMPORT_TEXT) {
        lower_pair(l, "padding", 4, 0, pad);
        win->pad[1][0] = win->pad[1][1] = pad[0];
        return;
    }
    if (strcmp(a->text, "same") != 0 && strcmp(a->text, "valid") != 0)
        lower_fail(l, ERR_UNSUPPORTED, "padding is \"%s\", want same or valid", a->text);
    sum = !strcmp(a->text, "same") ? win->dilation[1] * (kernel - 1) : 0;
    win->pad[1][0] = sum / 2;
    win->pad[1][1] = sum - sum / 2;
}

void lower_conv1d(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "input", 0), w = lower_in(l, "weight", 1),
                   b = lower_in(l, "bias", 2);
    struct compose_window win = {.groups = (int)lower_int(l, "groups", 6, 1)};
    int y;

    (void)kind;
    if (!lower_failed(l) && (x.n != 3 || w.n != 3))
        lower_fail(l, ERR_UNSUPPORTED, "its input has %d dimensions, want lines [N,C,L]", x.n);
    if (lower_failed(l))
        return;
    lower_refuse_batch(l, &x, 6, "combines");
    lower_refuse_batch(l, &w, ~0u, "has weights with");
    lower_pair(l, "stride", 3, 1, win.stride);
    lower_pair(l, "dilation", 5, 1, win.dilation);
    builders_lines_pad(l, w.dim[2].outer * w.dim[2].inner, &win);
    x = lower_channels_last(l, x);
    w = lower_plain(l, w);
    if (b.kind != LOWERED_NONE)
        b = lower_plain(l, b);
    if (lower_failed(l))
        return;
    y = compose_conv1d(&l->c, x.value, w.value, b.kind == LOWERED_NONE ? NO_VALUE : b.value, &win);
    if (lower_failed(l))
        return;
    x.dim[1] = extent_of(l->m->g->value[y].shape.dim[2]);
    x.dim[2] = extent_of(l->m->g->value[y].shape.dim[1]);
    lower_set(l, 0, lower_with(x, y));
}

static void builders_adaptive_lines(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0);
    int64_t size = 0;
    struct shape s;
    int y;

    (void)kind;
    if (!lower_failed(l) && x.n != 3)
        lower_fail(l, ERR_UNSUPPORTED, "its input has %d dimensions, want lines [N,C,L]", x.n);
    if (lower_ints(l, "output_size", 1, &size, 1) != 1 || size < 1)
        lower_fail(l, ERR_UNSUPPORTED, "output_size is %lld, want 1 or more", (long long)size);
    lower_refuse_batch(l, &x, 4, "averages");
    x = lower_channels_last(l, x);
    if (lower_failed(l))
        return;
    s = l->m->g->value[x.value].shape;
    y = compose_reshape(&l->c, x.value, SHAPE(s.dim[0], 1, s.dim[1], s.dim[2]));
    y = compose_adaptive_avg_pool(&l->c, y, 1, size);
    x.dim[2] = extent_of(size);
    lower_set(l, 0, lower_with(x, compose_reshape(&l->c, y, SHAPE(s.dim[0], size, s.dim[2]))));
}

/* x [N,C,L] as images of one row, [N,1,L,C]; NO_VALUE: it failed. */
static int lines_as_images(struct lower *l, struct lowered *x)
{
    struct shape s;

    if (!lower_failed(l) && x->n != 3)
        lower_fail(l, ERR_UNSUPPORTED, "its input has %d dimensions, want lines [N,C,L]", x->n);
    lower_refuse_batch(l, x, 6, "combines");
    *x = lower_channels_last(l, *x);
    if (lower_failed(l))
        return NO_VALUE;
    s = l->m->g->value[x->value].shape;
    return compose_reshape(&l->c, x->value, SHAPE(s.dim[0], 1, s.dim[1], s.dim[2]));
}

/* The output, of x's channels: images y of one row. */
static void lines_set(struct lower *l, struct lowered x, int y)
{
    struct shape s;

    if (lower_failed(l))
        return;
    s = l->m->g->value[y].shape;
    x.dim[2] = extent_of(s.dim[2]);
    lower_set(l, 0, lower_with(x, compose_reshape(&l->c, y, SHAPE(s.dim[0], s.dim[2], s.dim[3]))));
}

/* kind: the enum pool. */
static void builders_lines_pool(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0);
    struct compose_window win = {.groups = 1, .dilation = {1, 1}};
    const int is_max = kind == POOL_MAX;
    int y = lines_as_images(l, &x), pad[2];

    lower_pair(l, "kernel_size", 1, 1, win.kernel);
    memcpy(win.stride, win.kernel, sizeof win.stride);
    if (lower_arg(l, "stride", 2) && lower_arg(l, "stride", 2)->n > 0)
        lower_pair(l, "stride", 2, 1, win.stride);
    lower_pair(l, "padding", 3, 0, pad);
    if (is_max)
        lower_pair(l, "dilation", 4, 1, win.dilation);
    win.kernel[0] = win.stride[0] = win.dilation[0] = 1;
    win.pad[1][0] = win.pad[1][1] = pad[0];
    win.ceil_mode = (int)lower_int(l, "ceil_mode", is_max ? 5 : 4, 0);
    win.count_pad = (int)lower_int(l, "count_include_pad", 5, 1);
    if (lower_failed(l))
        return;
    y = is_max ? compose_max_pool(&l->c, y, &win) : compose_avg_pool(&l->c, y, &win);
    lines_set(l, x, y);
}

static void builders_lines_max(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0);
    const int y = lines_as_images(l, &x);
    int64_t size = 0;

    (void)kind;
    if (lower_ints(l, "output_size", 1, &size, 1) != 1 || size < 1)
        lower_fail(l, ERR_UNSUPPORTED, "output_size is %lld, want 1 or more", (long long)size);
    if (!lower_failed(l))
        lines_set(l, x, compose_adaptive_max_pool(&l->c, y, 1, size));
}

/* The factor that the caller gave: a list of one, or a number behind the other arguments. */
static double lines_scale(struct lower *l, int at)
{
    const struct import_arg *a = lower_arg(l, "scale_factors", at);

    if (a && a->n == 1 && a->kind == IMPORT_REALS)
        return a->reals[0];
    return a && a->n == 1 && a->kind == IMPORT_INTS ? (double)a->ints[0].number
                                                    : lower_real(l, "scales", at, 0);
}

static void builders_lines_resize(struct lower *l, int kind)
{
    const struct import_value *to = &l->net->value[l->node->out[0]];
    const int is_vec = strstr(l->node->target, ".vec") != NULL;
    struct lowered x = lower_in(l, is_vec ? "input" : "self", 0);
    const int y = lines_as_images(l, &x);
    const double scale[2] = {1, lines_scale(l, kind == RESIZE_BILINEAR ? 3 : 2)};

    if (!lower_failed(l) && to->n_dims != 3)
        lower_fail(l, ERR_CORRUPT, "its output has %d dimensions, want 3", to->n_dims);
    if (kind == RESIZE_BILINEAR && lower_int(l, "align_corners", 2, 0))
        kind = RESIZE_BILINEAR_CORNERS;
    if (!lower_failed(l))
        lines_set(l, x, compose_resize(&l->c, y, 1, to->dim[2], (enum resize)kind, scale));
}

/* ---- sizes of images ---- */

/* The factors that the caller gave: one list, or two numbers behind place `at`. */
static void builders_resize_scale(struct lower *l, int at, double scale[2])
{
    const struct import_arg *a = lower_arg(l, "scale_factors", at);

    scale[0] = lower_real(l, "scales_h", at, 0);
    scale[1] = lower_real(l, "scales_w", at + 1, 0);
    if (!a || a->n != 2 || (a->kind != IMPORT_REALS && a->kind != IMPORT_INTS))
        return;
    for (int i = 0; i < 2; i++)
        scale[i] = a->kind == IMPORT_REALS ? a->reals[i] : (double)a->ints[i].number;
}

static void builders_resize(struct lower *l, int kind)
{
    const struct import_value *to = &l->net->value[l->node->out[0]];
    const int is_vec = strstr(l->node->target, ".vec") != NULL;
    struct lowered x = lower_in(l, is_vec ? "input" : "self", 0);
    const struct extent n = x.dim[0];
    double scale[2];

    if (!lower_failed(l) && (x.n != 4 || to->n_dims != 4))
        lower_fail(l, ERR_UNSUPPORTED, "its input has %d dimensions, want images [N,C,H,W]", x.n);
    lower_refuse_batch(l, &x, 0xe, "combines");
    if (lower_failed(l))
        return;
    builders_resize_scale(l, kind >= RESIZE_BILINEAR ? 3 : 2, scale);
    if (kind >= RESIZE_BILINEAR && lower_int(l, "align_corners", 2, 0)) {
        if (kind >= RESIZE_BILINEAR_SMOOTH)
            lower_fail(l, ERR_UNSUPPORTED, "it has antialias with align_corners, want one of them");
        kind++; /* the same with corners */
    }
    x = lower_channels_last(l, x);
    if (!lower_failed(l))
        lower_set(l, 0,
                  lower_image_value(l,
                                    compose_resize(&l->c, x.value, to->dim[2], to->dim[3],
                                                   (enum resize)kind, scale),
                                    n));
}

const struct import_builder import_lines[] = {
    {"conv1d.default", lower_conv1d, 0},
    {"conv1d.padding", lower_conv1d, 0},
    {"adaptive_avg_pool1d.default", builders_adaptive_lines, 0},
    {"avg_pool1d.default", builders_lines_pool, POOL_AVG},
    {"max_pool1d.default", builders_lines_pool, POOL_MAX},
    {"adaptive_max_pool1d.default", builders_lines_max, 0},
    {"upsample_linear1d.vec", builders_lines_resize, RESIZE_BILINEAR},
    {"upsample_linear1d.default", builders_lines_resize, RESIZE_BILINEAR},
    {"upsample_nearest1d.vec", builders_lines_resize, RESIZE_NEAREST},
    {"upsample_nearest1d.default", builders_lines_resize, RESIZE_NEAREST},
    {"_upsample_nearest_exact1d.vec", builders_lines_resize, RESIZE_NEAREST_EXACT},
    {"_upsample_nearest_exact1d.default", builders_lines_resize, RESIZE_NEAREST_EXACT},
    {"upsample_bilinear2d.vec", builders_resize, RESIZE_BILINEAR},
    {"upsample_bilinear2d.default", builders_resize, RESIZE_BILINEAR},
    {"upsample_bicubic2d.vec", builders_resize, RESIZE_BICUBIC},
    {"upsample_bicubic2d.default", builders_resize, RESIZE_BICUBIC},
    {"_upsample_bilinear2d_aa.vec", builders_resize, RESIZE_BILINEAR_SMOOTH},
    {"_upsample_bilinear2d_aa.default", builders_resize, RESIZE_BILINEAR_SMOOTH},
    {"_upsample_bicubic2d_aa.vec", builders_resize, RESIZE_BICUBIC_SMOOTH},
    {"_upsample_bicubic2d_aa.default", builders_resize, RESIZE_BICUBIC_SMOOTH},
    {"upsample_nearest2d.vec", builders_resize, RESIZE_NEAREST},
    {"upsample_nearest2d.default", builders_resize, RESIZE_NEAREST},
    {"_upsample_nearest_exact2d.vec", builders_resize, RESIZE_NEAREST_EXACT},
    {"_upsample_nearest_exact2d.default", builders_resize, RESIZE_NEAREST_EXACT},
    {0},
};
