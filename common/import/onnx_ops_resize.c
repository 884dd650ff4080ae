/* onnx_ops_resize - ONNX's Resize, and paddings that copy elements.
 *
 * Each dimension is resized by itself: by the elements that a constant list names, or by a product
 * with a constant matrix.  Images whose last two dimensions change as PyTorch's upsample changes
 * them become that operator.  Taps are the elements that one output is made of; the first of a pair
 * is the last element before the place. */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "import/onnx_impl.h"

enum resize_kind { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };

struct resize {
    enum resize_kind kind;
    const char *place, *nearest; /* attributes coordinate_transformation_mode, nearest_mode */
    int antialias, exclude_outside;
    double cubic, outside; /* cubic_coeff_a, extrapolation_value */
    double scale[IMPORT_MAX_DIMS], roi[2][IMPORT_MAX_DIMS];
    int64_t out[IMPORT_MAX_DIMS];
};

/* ---- taps ---- */

/* The place in n elements of output i. */
static double resize_place(const struct resize *r, int d, int64_t i, int64_t n)
{
    const double s = r->scale[d], width = s * (double)n, x = (double)i;
    const double half = (x + 0.5) / s - 0.5, last = (double)(n - 1);
    const double *from = r->roi[0], *to = r->roi[1];

    if (!strcmp(r->place, "align_corners"))
        return width == 1 ? 0 : x * last / (width - 1);
    if (!strcmp(r->place, "asymmetric"))
        return x / s;
    if (!strcmp(r->place, "pytorch_half_pixel"))
        return width == 1 ? -0.5 : half;
    if (!strcmp(r->place, "half_pixel_symmetric"))
        return (double)n / 2 * (1 - (double)r->out[d] / width) + half;
    if (!strcmp(r->place, "tf_crop_and_resize"))
        return from[d] * last + (width == 1 ? (to[d] - from[d]) * last / 2
                                            : x * (to[d] - from[d]) * last / (width - 1));
    return half;
}

static double resize_cubic(double a, double x)
{
    x = fabs(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double resize_nearest(const struct resize *r, double ratio)
{
    if (ratio == 1)
        return 1;
    if (!strcmp(r->nearest, "round_prefer_ceil"))
        return ratio >= 0.5;
    if (!strcmp(r->nearest, "floor"))
        return 0;
    return !strcmp(r->nearest, "ceil") ? 1 : ratio > 0.5;
}

/* The weight of the tap k elements behind the first of the pair; `ratio` is the place behind it. */
static double resize_tap(const struct resize *r, double narrow, int64_t k, double ratio)
{
    const double x = ((double)k - ratio) * narrow;

    switch (r->kind) {
    case RESIZE_NEAREST:
        return k == 1 ? resize_nearest(r, ratio) : 1 - resize_nearest(r, ratio);
    case RESIZE_LINEAR:
        return fmax(0, 1 - fabs(x));
    default:
        return resize_cubic(r->cubic, x);
    }
}

/* Column i of the matrix [n,out] that makes output i of n elements: 1, it lies outside. */
static int resize_column(const struct resize *r, int d, int64_t i, int64_t n, float *matrix)
{
    const int64_t reach = r->kind == RESIZE_CUBIC ? 2 : 1, out = r->out[d];
    const double at = resize_place(r, d, i, n), base = ceil(at) - 1,
                 narrow = r->antialias && r->kind != RESIZE_NEAREST ? fmin(r->scale[d], 1) : 1;
    const int64_t first = (int64_t)floor(-(double)reach / narrow) + 1;
    double sum = 0;

    if (!strcmp(r->place, "tf_crop_and_resize") && !(at >= 0 && at <= (double)(n - 1)))
        return 1;
    for (int is_sum = 1; is_sum >= 0; is_sum--)
        for (int64_t k = first; k < 2 - first; k++) {
            const int64_t place = (int64_t)base + k;
            const double w = resize_tap(r, narrow, k, at - base);

            if (r->exclude_outside && (place < 0 || place >= n))
                continue;
            if (is_sum)
                sum += w;
            else
                matrix[max_i64(0, min_i64(place, n - 1)) * out + i] += (float)(w / sum);
        }
    return 0;
}

/* ---- one dimension ---- */

/* x times the matrix along d, plus the numbers of outputs that lie outside. */
static int resize_product(struct onnx *o, int x, int d, int matrix, int outside)
{
    const int n = onnx_value(o, x)->n_dims;
    int64_t order[IMPORT_MAX_DIMS];

    for (int i = 0; i < n; i++)
        order[i] = i;
    order[d] = n - 1;
    order[n - 1] = d;
    x = onnx_matmul(o, onnx_permute(o, x, order), matrix);
    if (outside != IMPORT_NO_VALUE)
        x = onnx_binary(o, "add.Tensor", x, outside);
    return onnx_permute(o, x, order);
}

/* The elements that the matrix takes, if each output is one of them; else NULL. */
static const int64_t *resize_picks(struct onnx *o, const float *matrix, int64_t n, int64_t out)
{
    int64_t *index = arena_alloc(&o->memory, sizeof *index * (size_t)out);

    for (int64_t i = 0; i < out; i++) {
        index[i] = -1;
        for (int64_t k = 0; k < n; k++)
            if (matrix[k * out + i] == 1)
                index[i] = k;
            else if (matrix[k * out + i] != 0)
                return NULL;
        if (index[i] < 0)
            return NULL;
    }
    return index;
}

static int resize_along(struct onnx *o, const struct resize *r, int x, int d)
{
    const int64_t n = onnx_value(o, x)->dim[d], out = r->out[d];
    const int64_t *index;
    float *matrix, *extra;
    int n_outside = 0;

    if (n > FOLD_MAX_ELEMENTS / out) {
        onnx_fail(o, ERR_UNSUPPORTED, "it makes %lld elements of %lld, which is too many",
                  (long long)out, (long long)n);
        return x;
    }
    if (onnx_count(o, n * out, IMPORT_F32) < 0)
        return x;
    matrix = arena_alloc(&o->memory, sizeof *matrix * (size_t)(n * out));
    extra = arena_alloc(&o->memory, sizeof *extra * (size_t)out);
    memset(matrix, 0, sizeof *matrix * (size_t)(n * out));
    for (int64_t i = 0; i < out; i++) {
        const int is_outside = resize_column(r, d, i, n, matrix);

        extra[i] = is_outside ? (float)r->outside : 0;
        n_outside += is_outside;
    }
    index = n_outside ? NULL : resize_picks(o, matrix, n, out);
    if (index)
        return onnx_pick(o, x, d, onnx_constant(o, IMPORT_I64, 1, &out, index));
    return resize_product(o, x, d, onnx_constant(o, IMPORT_F32, 2, (int64_t[]){n, out}, matrix),
                          n_outside ? onnx_constant(o, IMPORT_F32, 1, &out, extra)
                                    : IMPORT_NO_VALUE);
}

/* ---- the node ---- */

/* Numbers of input i, one for each of n axes; 0: it has none. */
static int resize_list(struct onnx *o, int i, int n, const int *axis, double *to)
{
    const int v = onnx_in(o, i);
    const struct host_tensor *h = v == IMPORT_NO_VALUE ? NULL : onnx_host(o, v);

    if (v != IMPORT_NO_VALUE && !h)
        onnx_fail(o, ERR_UNSUPPORTED, "its scales or sizes depend on the data, want constants");
    if (onnx_failed(o) || !h || host_count(h) == 0)
        return 0;
    if (host_count(h) != n) {
        onnx_fail(o, ERR_CONFIG, "it has %lld scales or sizes for %d axes",
                  (long long)host_count(h), n);
        return 0;
    }
    for (int k = 0; k < n; k++) {
        to[axis[k]] = host_element(h, k);
        if (!(to[axis[k]] > 0 && to[axis[k]] <= INT32_MAX))
            onnx_fail(o, ERR_CONFIG, "it has a scale or size of %g, want above 0", to[axis[k]]);
    }
    return !onnx_failed(o);
}

/* Scales of sizes, where the policy may keep the ratio of the axes. */
static void resize_by_sizes(struct onnx *o, struct resize *r, const struct import_value *v, int n,
                            const int *axis, const double *size)
{
    const char *policy = onnx_text(o, "keep_aspect_ratio_policy", "stretch");
    double scale = 0;

    for (int k = 0; k < n; k++) {
        const int d = axis[k];
        const double s = size[d] / (double)v->dim[d];

        r->scale[d] = s;
        scale = k == 0 ? s : !strcmp(policy, "not_larger") ? fmin(scale, s) : fmax(scale, s);
    }
    for (int k = 0; k < n; k++) {
        const int d = axis[k];

        if (strcmp(policy, "stretch") != 0)
            r->scale[d] = scale;
        r->out[d] = strcmp(policy, "stretch") != 0 ? (int64_t)floor(scale * (double)v->dim[d] + 0.5)
                                                   : (int64_t)size[d];
    }
}

/* Sets scale and out of all dimensions of x. */
static void resize_read(struct onnx *o, struct resize *r, const struct import_value *v)
{
    int64_t given[IMPORT_MAX_DIMS];
    int n = onnx_ints(o, "axes", given, IMPORT_MAX_DIMS), axis[IMPORT_MAX_DIMS] = {0};
    double size[IMPORT_MAX_DIMS] = {0};
    const struct host_tensor *roi = onnx_host(o, onnx_in(o, 1));

    for (int d = 0; d < v->n_dims; d++) {
        r->scale[d] = r->roi[1][d] = 1;
        r->out[d] = v->dim[d];
        if (n < 0)
            axis[d] = d;
    }
    for (int k = 0; k < n; k++)
        axis[k] = onnx_axis(o, given[k], v->n_dims);
    n = n < 0 ? v->n_dims : n;
    for (int k = 0; k < n && roi && host_count(roi) == 2 * n; k++) {
        r->roi[0][axis[k]] = host_element(roi, k);
        r->roi[1][axis[k]] = host_element(roi, n + k);
    }
    if (resize_list(o, 3, n, axis, size))
        resize_by_sizes(o, r, v, n, axis, size);
    else if (resize_list(o, 2, n, axis, r->scale))
        for (int k = 0; k < n; k++)
            r->out[axis[k]] =
                (int64_t)fmin(floor((double)v->dim[axis[k]] * r->scale[axis[k]]), 2.0 * INT32_MAX);
    else
        onnx_fail(o, ERR_CONFIG, "it has neither scales nor sizes");
    for (int d = 0; d < v->n_dims; d++)
        if (r->out[d] < 1 || r->out[d] > INT32_MAX)
            onnx_fail(o, ERR_CONFIG, "it makes %lld elements of dimension %d, want 1 or more",
                      (long long)r->out[d], d);
}

/* 1: it is PyTorch's upsample, and y is its result. */
static int resize_as_upsample(struct onnx *o, const struct resize *r, int x, int *y)
{
    const struct import_value v = *onnx_value(o, x);
    const int corners = !strcmp(r->place, "align_corners"),
              half = !strcmp(r->place, "half_pixel") || !strcmp(r->place, "pytorch_half_pixel"),
              nearest = r->kind == RESIZE_NEAREST && !strcmp(r->place, "asymmetric") &&
                        !strcmp(r->nearest, "floor"),
              linear = r->kind == RESIZE_LINEAR && !r->antialias && !r->exclude_outside &&
                       (corners || half);

    if (v.n_dims != 4 || !(nearest || linear) || r->out[0] != v.dim[0] || r->out[1] != v.dim[1])
        return 0;
    for (int d = 2; d < 4; d++)
        if (r->out[d] < 2 || r->scale[d] * (double)v.dim[d] != (double)r->out[d])
            return 0;
    onnx_put_value(o, "input", x);
    onnx_put_ints(o, "output_size", r->out + 2, 2);
    if (linear)
        onnx_put_flag(o, "align_corners", corners);
    *y = onnx_make(o, linear ? "upsample_bilinear2d.vec" : "upsample_nearest2d.vec", v.type, 4,
                   r->out);
    return 1;
}

static void resize_make(struct onnx *o, const struct onnx_op *op)
{
    static const char *const kinds[] = {"nearest", "linear", "cubic"};
    int x = onnx_in(o, 0), y, kind = -1;
    const struct import_value v = *onnx_value(o, x);
    const char *mode = onnx_text(o, "mode", "nearest");
    struct resize r = {
        .place = onnx_text(o, "coordinate_transformation_mode", "half_pixel"),
        .nearest = onnx_text(o, "nearest_mode", "round_prefer_floor"),
        .antialias = onnx_int(o, "antialias", 0) != 0,
        .exclude_outside = onnx_int(o, "exclude_outside", 0) != 0,
        .cubic = onnx_real(o, "cubic_coeff_a", -0.75),
        .outside = onnx_real(o, "extrapolation_value", 0),
    };

    (void)op;
    for (int k = 0; k < 3; k++)
        if (!strcmp(mode, kinds[k]))
            kind = k;
    for (int d = 0; d < v.n_dims; d++)
        if (v.dim[d] < 1)
            onnx_fail(o, ERR_CONFIG, "dimension %d has no elements", d);
    if (kind < 0 || !host_is_real(v.type))
        onnx_fail(o, ERR_UNSUPPORTED,
                  "its mode is %.40s of %s, want nearest, linear or cubic of floats", mode,
                  import_type_name(v.type));
    resize_read(o, &r, &v);
    if (onnx_failed(o))
        return;
    r.kind = (enum resize_kind)kind;
    if (!resize_as_upsample(o, &r, x, &y)) {
        y = x;
        for (int d = 0; d < v.n_dims && !onnx_failed(o); d++)
            if (r.out[d] != v.dim[d] || r.scale[d] != 1 || r.roi[0][d] != 0 || r.roi[1][d] != 1)
                y = resize_along(o, &r, y, d);
    }
    onnx_out(o, 0, y);
}

/* ---- pads ---- */

enum { PAD_MOST = 1 << 20 }; /* extent of a dimension that is padded by copies */

/* The element of n that stands at place i, which may be outside. */
static int64_t resize_mirror(const char *mode, int64_t i, int64_t n)
{
    if (!strcmp(mode, "edge"))
        return max_i64(0, min_i64(i, n - 1));
    if (!strcmp(mode, "wrap"))
        return (i % n + n) % n;
    if (n == 1)
        return 0;
    i = (i % (2 * n - 2) + 2 * n - 2) % (2 * n - 2);
    return i < n ? i : 2 * n - 2 - i;
}

int onnx_pad_by_copies(struct onnx *o, int x, int d, const int64_t pad[2], const char *mode)
{
    const int64_t n = onnx_value(o, x)->dim[d], out = n + pad[0] + pad[1];
    int64_t *index;

    if (onnx_failed(o) || (pad[0] == 0 && pad[1] == 0))
        return x;
    if (n < 1 || out < 1 || out > PAD_MOST) {
        onnx_fail(o, ERR_UNSUPPORTED,
                  "it makes %lld elements of %lld in dimension %d, want at "
                  "most %d",
                  (long long)out, (long long)n, d, PAD_MOST);
        return x;
    }
    index = arena_alloc(&o->memory, sizeof *index * (size_t)out);
    for (int64_t i = 0; i < out; i++)
        index[i] = resize_mirror(mode, i - pad[0], n);
    return onnx_pick(o, x, d, onnx_constant(o, IMPORT_I64, 1, &out, index));
}

const struct onnx_op onnx_resize[] = {
    {"Resize", resize_make, NULL, 1, 0},
    {0},
};
