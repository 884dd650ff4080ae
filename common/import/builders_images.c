/* builders_images - transposed convolutions, and operators that move elements between the channels
 * and the places of an image.
 *
 * A transposed convolution is one of its input with zeros between the elements, by the weight
 * turned round.  Lines [N,C,L] are images of one row.  Beside them stand operators that turn, flip,
 * repeat or cut tensors of any shape. */
#include "import/lower_impl.h"

/* ---- transposed convolutions ---- */

enum { IMAGES_MAX_STRIDE = 1 << 16 };

/* The arguments of the node, [0] rows, [1] columns; `n` is 1 for lines, which have columns alone.
 */
struct transposed_window {
    int n, groups, stride[2], pad[2], more[2], dilation[2];
    int64_t kernel[2];
};

/* Of a list of n numbers from `least` on; one number counts for all. */
static void transposed_ints(struct lower *l, const char *name, int place, int least, int n,
                            int to[2])
{
    lower_pair(l, name, place, least, to);
    if (n == 1)
        to[1] = to[0];
    for (int i = 2 - n; i < 2; i++)
        if (to[i] < least || to[i] > IMAGES_MAX_STRIDE)
            lower_fail(l, ERR_CONFIG, "%s is %d, want %d to %d", name, to[i], least,
                       IMAGES_MAX_STRIDE);
    if (n == 1)
        to[0] = least;
}

/* The places of the arguments differ between conv_transpose2d and convolution (kind 1). */
static struct transposed_window transposed_read(struct lower *l, int kind, int n)
{
    struct transposed_window w = {.n = n};

    transposed_ints(l, "stride", 3, 1, n, w.stride);
    transposed_ints(l, "padding", 4, 0, n, w.pad);
    transposed_ints(l, "output_padding", kind ? 7 : 5, 0, n, w.more);
    transposed_ints(l, "dilation", kind ? 5 : 7, 1, n, w.dilation);
    w.groups = (int)lower_int(l, "groups", kind ? 8 : 6, 1);
    return w;
}

/* x [N,H,W,C] with stride - 1 zeros behind each element of a row and of a column. */
static int transposed_spread(struct lower *l, int x, const int stride[2])
{
    struct shape s;

    if (lower_failed(l) || (stride[0] == 1 && stride[1] == 1))
        return x;
    s = l->m->g->value[x].shape;
    x = compose_reshape(&l->c, x, SHAPE(s.dim[0], s.dim[1], 1, s.dim[2], 1, s.dim[3]));
    for (int i = 0; i < 2; i++) {
        const int64_t by[2] = {0, stride[i] - 1};

        x = compose_pad(&l->c, x, 2 + 2 * i, by, PAD_CONSTANT, 0);
        s.dim[1 + i] *= stride[i];
    }
    return compose_reshape(&l->c, x, s);
}

/* x padded so that a plain convolution gives the output. */
static int transposed_surround(struct lower *l, int x, const struct transposed_window *w)
{
    for (int i = 0; i < 2 && !lower_failed(l); i++) {
        const int64_t n = l->m->g->value[x].shape.dim[1 + i],
                      reach = w->dilation[i] * (w->kernel[i] - 1),
                      by[2] = {reach - w->pad[i],
                               reach - w->pad[i] + w->more[i] + 1 - w->stride[i]};

        if (n + by[0] + by[1] < reach + 1)
            lower_fail(l, ERR_CONFIG, "it makes no element of %lld", (long long)n);
        x = compose_pad(&l->c, x, 1 + i, by, PAD_CONSTANT, 0);
    }
    return x;
}

/* The weight [C, outputs of a group, rows, columns] as [outputs, inputs of a group, rows, columns],
 * turned round. */
static int transposed_weight(struct lower *l, int w, int groups)
{
    const struct shape s = l->m->g->value[w].shape;
    const int64_t in = s.dim[0] / groups, out = s.dim[1];

    for (int d = 2; d < 4; d++) {
        int64_t *at = arena_alloc(&l->arena, (size_t)s.dim[d] * sizeof *at + 1);

        for (int64_t i = 0; i < s.dim[d]; i++)
            at[i] = s.dim[d] - 1 - i;
        w = s.dim[d] > 1 ? compose_select_many(&l->c, w, d, at, s.dim[d]) : w;
    }
    w = compose_reshape(&l->c, w, SHAPE(groups, in, out, s.dim[2], s.dim[3]));
    w = compose_permute(&l->c, w, (int[]){0, 2, 1, 3, 4});
    return compose_reshape(&l->c, w, SHAPE(groups * out, in, s.dim[2], s.dim[3]));
}

/* Fails unless x and w are images, or lines, and weights of as many channels. */
static void transposed_check(struct lower *l, const struct lowered *x, const struct lowered *w)
{
    if (!lower_failed(l) && ((x->n != 3 && x->n != 4) || w->n != x->n))
        lower_fail(l, ERR_UNSUPPORTED,
                   "its input has %d dimensions and its weight %d, want lines [N,C,L] or images "
                   "[N,C,H,W]",
                   x->n, w->n);
    if (!lower_failed(l) && extent_exported(l, x->dim[1]) != extent_exported(l, w->dim[0]))
        lower_fail(l, ERR_CONFIG, "its input has %lld channels, and its weight is for %lld",
                   (long long)extent_exported(l, x->dim[1]),
                   (long long)extent_exported(l, w->dim[0]));
    lower_refuse_batch(l, x, ~1u, "combines");
    lower_refuse_batch(l, w, ~0u, "has weights with");
}

static int transposed_convolve(struct lower *l, int x, int w, int b, struct transposed_window *win)
{
    struct shape s = l->m->g->value[w].shape;
    const struct compose_window plain = {
        .stride = {1, 1}, .dilation = {win->dilation[0], win->dilation[1]}, .groups = win->groups};

    if (win->groups < 1 || s.dim[0] % win->groups)
        lower_fail(l, ERR_CONFIG, "it has %d groups of %lld channels", win->groups,
                   (long long)s.dim[0]);
    for (int i = 0; i < 2; i++)
        win->kernel[i] = s.dim[2 + i];
    if (lower_failed(l))
        return NO_VALUE;
    x = transposed_surround(l, transposed_spread(l, x, win->stride), win);
    return lower_failed(l)
               ? NO_VALUE
               : compose_conv2d(&l->c, x, transposed_weight(l, w, win->groups), b, &plain);
}

void lower_conv_transposed(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "input", 0), w = lower_in(l, "weight", 1),
                   b = lower_in(l, "bias", 2);
    const int n = x.n - 2;
    struct transposed_window win;
    struct shape s;
    int y;

    transposed_check(l, &x, &w);
    if (lower_failed(l))
        return;
    win = transposed_read(l, kind, n);
    if (n == 1)
        w = lower_unsqueeze(l, w, 2);
    x = lower_channels_last(l, x);
    w = lower_plain(l, w);
    if (b.kind != LOWERED_NONE)
        b = lower_plain(l, b);
    if (lower_failed(l))
        return;
    s = l->m->g->value[x.value].shape;
    y = n == 1 ? compose_reshape(&l->c, x.value, SHAPE(s.dim[0], 1, s.dim[1], s.dim[2])) : x.value;
    y = transposed_convolve(l, y, w.value, b.kind == LOWERED_NONE ? NO_VALUE : b.value, &win);
    if (lower_failed(l))
        return;
    s = l->m->g->value[y].shape;
    x.dim[1] = extent_of(s.dim[3]);
    x.dim[n + 1] = extent_of(s.dim[2]);
    if (n == 1)
        y = compose_reshape(&l->c, y, SHAPE(s.dim[0], s.dim[2], s.dim[3]));
    else
        x.dim[2] = extent_of(s.dim[1]);
    lower_set(l, 0, lower_with(x, y));
}

/* ---- channels and places ---- */

enum { IMAGES_SHUFFLE, IMAGES_UNSHUFFLE };

/* pixel_shuffle: r x r channels become r rows and r columns; kind UNSHUFFLE: the other way. */
static void builders_pixels(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0);
    const int is_up = kind == IMAGES_SHUFFLE;
    const int64_t r = lower_int(l, is_up ? "upscale_factor" : "downscale_factor", 1, 1);
    struct shape s;
    int y;

    if (!lower_failed(l) && x.n != 4)
        lower_fail(l, ERR_UNSUPPORTED, "its input has %d dimensions, want images [N,C,H,W]", x.n);
    lower_refuse_batch(l, &x, 0xe, "moves elements of");
    x = lower_channels_last(l, x);
    if (lower_failed(l))
        return;
    s = l->m->g->value[x.value].shape;
    if (r < 1 || r > IMAGES_MAX_STRIDE || (is_up && s.dim[3] % (r * r)) ||
        (!is_up && (s.dim[1] % r || s.dim[2] % r))) {
        lower_fail(l, ERR_CONFIG, "its factor is %lld, for %lld channels of %lld x %lld",
                   (long long)r, (long long)s.dim[3], (long long)s.dim[1], (long long)s.dim[2]);
        return;
    }
    y = compose_reshape(&l->c, x.value,
                        is_up ? SHAPE(s.dim[0], s.dim[1], s.dim[2], s.dim[3] / (r * r), r, r)
                              : SHAPE(s.dim[0], s.dim[1] / r, r, s.dim[2] / r, r, s.dim[3]));
    y = compose_permute(&l->c, y, is_up ? (int[]){0, 1, 4, 2, 5, 3} : (int[]){0, 1, 3, 5, 2, 4});
    s = is_up ? SHAPE(s.dim[0], s.dim[1] * r, s.dim[2] * r, s.dim[3] / (r * r))
              : SHAPE(s.dim[0], s.dim[1] / r, s.dim[2] / r, s.dim[3] * r * r);
    if (!lower_failed(l))
        lower_set(l, 0, lower_image_value(l, compose_reshape(&l->c, y, s), x.dim[0]));
}

/* Channel i of group g becomes channel g of group i. */
static void builders_channels(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0);
    const int64_t groups = lower_int(l, "groups", 1, 1);
    struct shape s, apart;
    int order[SHAPE_MAX_DIMS], y;

    (void)kind;
    if (!lower_failed(l) && (x.n < 2 || x.n >= SHAPE_MAX_DIMS))
        lower_fail(l, ERR_UNSUPPORTED, "its input has %d dimensions, want 2 to %d", x.n,
                   SHAPE_MAX_DIMS - 1);
    lower_refuse_batch(l, &x, 2, "moves elements of");
    x = lower_channels_last(l, x);
    if (lower_failed(l))
        return;
    s = apart = l->m->g->value[x.value].shape;
    if (groups < 1 || s.dim[s.n - 1] % groups) {
        lower_fail(l, ERR_CONFIG, "it has %lld groups of %lld channels", (long long)groups,
                   (long long)s.dim[s.n - 1]);
        return;
    }
    apart.n++;
    apart.dim[s.n - 1] = groups;
    apart.dim[s.n] = s.dim[s.n - 1] / groups;
    for (int d = 0; d < apart.n; d++)
        order[d] = d < s.n - 1 ? d : d == s.n - 1 ? s.n : s.n - 1;
    y = compose_permute(&l->c, compose_reshape(&l->c, x.value, apart), order);
    lower_set(l, 0, lower_with(x, compose_reshape(&l->c, y, s)));
}

/* ---- windows ---- */

/* Along the graph's dimension `axis` the elements of each window, one window behind the other.
 * Returns the number of windows; 0: it failed. */
static int64_t windows_along(struct lower *l, int *x, int axis, int64_t size, int64_t step,
                             int64_t gap)
{
    const int64_t extent = lower_failed(l) ? 0 : l->m->g->value[*x].shape.dim[axis],
                  reach = gap * (size - 1) + 1;
    int64_t n, *at;

    if (!lower_failed(l) && (size < 1 || step < 1 || gap < 1 || reach > extent))
        lower_fail(l, ERR_CONFIG,
                   "it has windows of %lld elements, %lld apart, by %lld, of %lld elements",
                   (long long)size, (long long)gap, (long long)step, (long long)extent);
    if (lower_failed(l))
        return 0;
    n = (extent - reach) / step + 1;
    if (!compose_has_room(&l->c, n, size))
        return 0;
    at = arena_alloc(&l->arena, (size_t)(n * size) * sizeof *at + 1);
    for (int64_t i = 0; i < n * size; i++)
        at[i] = i / size * step + i % size * gap;
    *x = compose_select_many(&l->c, *x, axis, at, n * size);
    return lower_failed(l) ? 0 : n;
}

/* im2col, which torch.nn.Unfold is: [N,C,H,W] -> [N,C*KH*KW,windows]. */
static void builders_unfold_images(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0);
    int kernel[2], gap[2], pad[2], step[2], y;
    struct extent dim[3] = {x.dim[0]};
    int64_t n[2] = {0};
    struct shape s;

    (void)kind;
    lower_pair(l, "kernel_size", 1, 1, kernel);
    lower_pair(l, "dilation", 2, 1, gap);
    lower_pair(l, "padding", 3, 0, pad);
    lower_pair(l, "stride", 4, 1, step);
    if (!lower_failed(l) && x.n != 4)
        lower_fail(l, ERR_UNSUPPORTED, "its input has %d dimensions, want images [N,C,H,W]", x.n);
    lower_refuse_batch(l, &x, 0xe, "combines");
    x = lower_channels_last(l, x);
    y = x.value;
    for (int i = 0; i < 2 && !lower_failed(l); i++) {
        y = compose_pad(&l->c, y, 1 + i, (const int64_t[]){pad[i], pad[i]}, PAD_CONSTANT, 0);
        n[i] = windows_along(l, &y, 1 + i, kernel[i], step[i], gap[i]);
    }
    if (lower_failed(l))
        return;
    s = l->m->g->value[y].shape;
    y = compose_reshape(&l->c, y, SHAPE(s.dim[0], n[0], kernel[0], n[1], kernel[1], s.dim[3]));
    y = compose_permute(&l->c, y, (const int[]){0, 5, 2, 4, 1, 3});
    dim[1] = extent_of(s.dim[3] * kernel[0] * kernel[1]);
    dim[2] = extent_of(n[0] * n[1]);
    y = compose_reshape(&l->c, y, SHAPE(s.dim[0], extent_size(l, dim[1]), extent_size(l, dim[2])));
    if (!lower_failed(l))
        lower_set(l, 0, lower_plain_value(l, y, 3, dim));
}

/* Tensor.unfold: windows of a dimension, whose elements become the last dimension. */
static void builders_unfold(struct lower *l, int kind)
{
    struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    const int dim = lower_dim(l, "dimension", 1, x.n, 0);
    const int64_t size = lower_int(l, "size", 2, 1), step = lower_int(l, "step", 3, 1);
    int64_t to[SHAPE_MAX_DIMS + 1], n;
    int order[SHAPE_MAX_DIMS];

    (void)kind;
    if (!lower_failed(l) && (x.n < 1 || x.n >= SHAPE_MAX_DIMS))
        lower_fail(l, ERR_UNSUPPORTED, "its input has %d dimensions, want 1 to %d", x.n,
                   SHAPE_MAX_DIMS - 1);
    lower_refuse_batch(l, &x, 1u << dim, "takes windows of");
    n = windows_along(l, &x.value, x.at[dim], size, step, 1);
    if (lower_failed(l))
        return;
    x.dim[dim] = extent_of(n * size);
    for (int d = 0; d <= x.n; d++) {
        to[d] = d == dim ? n : d == dim + 1 ? size : extent_exported(l, x.dim[d < dim ? d : d - 1]);
        order[d] = d <= dim ? d : d < x.n ? d + 1 : dim + 1;
    }
    x = lower_reshape(l, x, to, x.n + 1);
    if (!lower_failed(l))
        lower_set(l, 0, lower_permute(x, order));
}

/* ---- orders of dimensions and of elements ---- */

/* A list of dimensions as those of x, each once; returns their number. */
static int turns_dims(struct lower *l, const char *name, int place, int n, int dim[])
{
    int64_t given[SHAPE_MAX_DIMS];
    const int count = lower_ints(l, name, place, given, SHAPE_MAX_DIMS);
    unsigned seen = 0;

    for (int i = 0; i < count && !lower_failed(l); i++) {
        dim[i] = (int)(given[i] < 0 ? given[i] + n : given[i]);
        if (dim[i] < 0 || dim[i] >= n || seen >> dim[i] & 1)
            lower_fail(l, ERR_CONFIG, "its %s has %lld, want each of %d dimensions at most once",
                       name, (long long)given[i], n);
        else
            seen |= 1u << dim[i];
    }
    return count;
}

/* Dimensions `source` go to the places `destination`, the others stay in their order. */
static void builders_movedim(struct lower *l, int kind)
{
    const struct lowered x = lower_real_value(l, lower_in(l, "self", 0));
    int from[SHAPE_MAX_DIMS], to[SHAPE_MAX_DIMS], order[SHAPE_MAX_DIMS], next = 0;
    const int n = turns_dims(l, "source", 1, x.n, from),
              m = turns_dims(l, "destination", 2, x.n, to);
    unsigned moved = 0;

    (void)kind;
    if (!lower_failed(l) && n != m)
        lower_fail(l, ERR_CONFIG, "it moves %d dimensions to %d places", n, m);
    if (lower_failed(l))
        return;
    for (int d = 0; d < x.n; d++)
        order[d] = -1;
    for (int i = 0; i < n; i++) {
        order[to[i]] = from[i];
        moved |= 1u << from[i];
    }
    for (int d = 0; d < x.n; d++) {
        while (order[d] < 0 && moved >> next & 1)
            next++;
        order[d] = order[d] < 0 ? next++ : order[d];
    }
    lower_set(l, 0, lower_permute(x, order));
}

/* The last two dimensions turned; kind 1: all of them. */
static void builders_turned(struct lower *l, int kind)
{
    const struct lowered x = lower_real_value(l, lower_in(l, "self", 0));
    int order[SHAPE_MAX_DIMS];

    if (lower_failed(l))
        return;
    for (int d = 0; d < x.n; d++)
        order[d] = kind ? x.n - 1 - d : x.n >= 2 && d >= x.n - 2 ? 2 * x.n - 3 - d : d;
    lower_set(l, 0, lower_permute(x, order));
}

static void builders_flip(struct lower *l, int kind)
{
    struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    int dim[SHAPE_MAX_DIMS];
    const int n = turns_dims(l, "dims", 1, x.n, dim);

    (void)kind;
    for (int i = 0; i < n && !lower_failed(l); i++) {
        const int64_t extent = extent_exported(l, x.dim[dim[i]]);
        int64_t *at;

        lower_refuse_batch(l, &x, 1u << dim[i], "turns round");
        if (lower_failed(l) || !compose_has_room(&l->c, extent, 1))
            return;
        at = arena_alloc(&l->arena, (size_t)extent * sizeof *at + 1);
        for (int64_t k = 0; k < extent; k++)
            at[k] = extent - 1 - k;
        if (extent > 1)
            x.value = compose_select_many(&l->c, x.value, x.at[dim[i]], at, extent);
    }
    lower_set(l, 0, x);
}

/* Each element of a dimension so many times, one behind the other. */
static void builders_repeat_each(struct lower *l, int kind)
{
    const struct import_value *to = &l->net->value[l->node->out[0]];
    struct lowered x = lower_in(l, "self", 0);
    const int64_t times = lower_int(l, "repeats", 1, 1);
    const int dim = lower_dim(l, "dim", 2, x.n, 0);

    (void)kind;
    if (!lower_arg(l, "dim", 2) || lower_arg(l, "dim", 2)->kind != IMPORT_INT)
        lower_fail(l, ERR_UNSUPPORTED, "it has no dim, and would join all samples; want a dim");
    if (!lower_failed(l) && times < 1)
        lower_fail(l, ERR_CONFIG, "it repeats %lld times, want 1 or more", (long long)times);
    x = lower_unsqueeze(l, x, dim + 1);
    if (lower_failed(l))
        return;
    x.dim[dim + 1] = extent_of(times);
    x.repeats |= times > 1 ? 1u << (dim + 1) : 0;
    lower_set(l, 0, lower_reshape(l, x, to->dim, to->n_dims));
}

/* tril, and triu (kind 1): matrices with zeros above, or below, a diagonal. */
static void builders_triangle(struct lower *l, int kind)
{
    struct lowered x = lower_plain(l, lower_in(l, "self", 0));
    const int64_t diagonal = lower_int(l, "diagonal", 1, 0);
    int64_t rows, cols;
    float *keep;

    if (!lower_failed(l) && x.n < 2)
        lower_fail(l, ERR_CONFIG, "its input has %d dimensions, want matrices", x.n);
    if (lower_failed(l))
        return;
    lower_refuse_batch(l, &x, 3u << (x.n - 2), "cuts");
    rows = extent_exported(l, x.dim[x.n - 2]);
    cols = extent_exported(l, x.dim[x.n - 1]);
    if (lower_failed(l) || !compose_has_room(&l->c, rows, cols))
        return;
    keep = arena_alloc(&l->arena, (size_t)(rows * cols) * sizeof *keep + 1);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++)
            keep[i * cols + k] = kind ? k - i >= diagonal : k - i <= diagonal;
    lower_set(l, 0,
              lower_with(x, compose_where(&l->c, compose_const(&l->c, SHAPE(rows, cols), keep),
                                          x.value, compose_scalar(&l->c, 0))));
}

const struct import_builder import_images[] = {
    {"conv_transpose1d.default", lower_conv_transposed, 0},
    {"conv_transpose2d.input", lower_conv_transposed, 0},
    {"pixel_shuffle.default", builders_pixels, IMAGES_SHUFFLE},
    {"pixel_unshuffle.default", builders_pixels, IMAGES_UNSHUFFLE},
    {"im2col.default", builders_unfold_images, 0},
    {"unfold.default", builders_unfold, 0},
    {"channel_shuffle.default", builders_channels, 0},
    {"movedim.int", builders_movedim, 0},
    {"movedim.intlist", builders_movedim, 0},
    {"mT.default", builders_turned, 0},
    {"numpy_T.default", builders_turned, 1},
    {"flip.default", builders_flip, 0},
    {"repeat_interleave.self_int", builders_repeat_each, 0},
    {"tril.default", builders_triangle, 0},
    {"triu.default", builders_triangle, 1},
    {0},
};
