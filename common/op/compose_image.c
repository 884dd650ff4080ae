/* compose_image - convolutions and pools with the arguments that PyTorch and ONNX have, and changes
 * of an image's size.
 *
 * The operators pad alike on both sides, and their windows have neighbouring elements.  Other
 * paddings are elements that are added first, and other windows are laid out side by side. Averages
 * and interpolations that no pool makes are two products with constant matrices: one for the rows
 * and one for the columns. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/compose.h"
#include "op/infer.h"

static const struct shape *image_shape(const struct compose *c, int v)
{
    return &c->g->value[v].shape;
}

static int compose_image_check(struct compose *c, int x, int n_dims)
{
    char text[SHAPE_TEXT_LEN];

    if (c->rc == 0 && image_shape(c, x)->n != n_dims)
        c->rc =
            err_set(c->err, ERR_CONFIG, "%s: x is %s, want %d dimensions, the last for channels",
                    c->name, shape_text(image_shape(c, x), text), n_dims);
    return c->rc == 0;
}

/* ---- convolutions ---- */

int compose_conv2d(struct compose *c, int x, int w, int b, const struct compose_window *win)
{
    union node_attr attr = {.conv.groups = win->groups};

    if (!compose_image_check(c, x, 4))
        return NO_VALUE;
    for (int i = 0; i < 2; i++) {
        const int is_even = win->pad[i][0] == win->pad[i][1];

        attr.conv.stride[i] = win->stride[i];
        attr.conv.dilation[i] = win->dilation[i];
        attr.conv.pad[i] = is_even ? (int)win->pad[i][0] : 0;
        if (!is_even)
            x = compose_pad(c, x, 1 + i, win->pad[i], PAD_CONSTANT, 0);
    }
    return compose_append(c, OP_conv2d, &attr, (int[]){x, w, b}, 3);
}

int compose_conv1d(struct compose *c, int x, int w, int b, const struct compose_window *win)
{
    struct compose_window line = *win;
    struct shape s, f;
    int y;

    if (!compose_image_check(c, x, 3) || !compose_image_check(c, w, 3))
        return NO_VALUE;
    s = *image_shape(c, x);
    f = *image_shape(c, w);
    line.stride[0] = line.dilation[0] = 1;
    line.pad[0][0] = line.pad[0][1] = 0;
    x = compose_reshape(c, x, SHAPE(s.dim[0], 1, s.dim[1], s.dim[2]));
    w = compose_reshape(c, w, SHAPE(f.dim[0], f.dim[1], 1, f.dim[2]));
    y = compose_conv2d(c, x, w, b, &line);
    if (c->rc < 0)
        return NO_VALUE;
    s = *image_shape(c, y);
    return compose_reshape(c, y, SHAPE(s.dim[0], s.dim[2], s.dim[3]));
}

/* ---- pools ---- */

static int64_t image_extent(const struct compose_window *win, int i, int64_t in, int ceil_mode)
{
    const int64_t reach = (int64_t)win->dilation[i] * (win->kernel[i] - 1) + 1;
    const int64_t room = in + win->pad[i][0] + win->pad[i][1] - reach;

    if (ceil_mode)
        return op_window_ceil(in, (int)reach, win->stride[i], win->pad[i][0], win->pad[i][1]);
    return room < 0 ? 0 : room / win->stride[i] + 1;
}

/* The window with what a caller may leave 0: a dilation is 1, a stride is the kernel. */
static struct compose_window image_window(const struct compose_window *win)
{
    struct compose_window w = *win;

    for (int i = 0; i < 2; i++) {
        w.dilation[i] = w.dilation[i] > 1 ? w.dilation[i] : 1;
        w.stride[i] = w.stride[i] ? w.stride[i] : w.kernel[i];
    }
    return w;
}

static int image_check_window(struct compose *c, int x, const struct compose_window *win)
{
    if (!compose_image_check(c, x, 4))
        return 0;
    for (int i = 0; i < 2; i++)
        if (win->kernel[i] < 1 || win->stride[i] < 1 || win->pad[i][0] < 0 || win->pad[i][1] < 0 ||
            image_extent(win, i, image_shape(c, x)->dim[1 + i], win->ceil_mode) < 1)
            c->rc = err_set(c->err, ERR_CONFIG,
                            "%s: a pool of kernel %d, stride %d and padding %lld, %lld over %lld "
                            "elements has no output",
                            c->name, win->kernel[i], win->stride[i], (long long)win->pad[i][0],
                            (long long)win->pad[i][1], (long long)image_shape(c, x)->dim[1 + i]);
    return c->rc == 0;
}

static int image_pool(struct compose *c, int x, enum pooling kind, const struct compose_window *win)
{
    const union node_attr attr = {.pool = {.kind = kind,
                                           .kernel = {win->kernel[0], win->kernel[1]},
                                           .stride = {win->stride[0], win->stride[1]},
                                           .pad = {(int)win->pad[0][0], (int)win->pad[1][0]},
                                           .ceil_mode = win->ceil_mode && kind == POOL_MAX,
                                           .count_pad = win->count_pad}};

    return compose_append(c, OP_pool2d, &attr, &x, 1);
}

/* 1: the operator pads as this window wants it. */
static int image_pads_alike(const struct compose_window *win)
{
    for (int i = 0; i < 2; i++)
        if (win->pad[i][0] != win->pad[i][1] || 2 * win->pad[i][0] > win->kernel[i])
            return 0;
    return 1;
}

/* Windows side by side: along dim, window i has the elements at[i * kernel ..). */
static int image_lay_out(struct compose *c, int x, int dim, const struct compose_window *win)
{
    const int kernel = win->kernel[dim - 1], stride = win->stride[dim - 1];
    const int64_t n = image_extent(win, dim - 1, image_shape(c, x)->dim[dim], 0);
    int64_t *at;

    if (!compose_has_room(c, n, kernel))
        return NO_VALUE;
    at = xmalloc((size_t)(n * kernel) * sizeof *at + 1);
    for (int64_t i = 0; i < n * kernel; i++)
        at[i] = i / kernel * stride + i % kernel * win->dilation[dim - 1];
    x = compose_select_many(c, x, dim, at, n * kernel);
    free(at);
    return x;
}

int compose_max_pool(struct compose *c, int x, const struct compose_window *given)
{
    struct compose_window win = image_window(given);
    const int is_dilated = win.dilation[0] > 1 || win.dilation[1] > 1;

    if (!image_check_window(c, x, &win))
        return NO_VALUE;
    if (!is_dilated && image_pads_alike(&win))
        return image_pool(c, x, POOL_MAX, &win);
    for (int i = 0; i < 2; i++) { /* padding of its own: never the maximum */
        const int64_t in = image_shape(c, x)->dim[1 + i];
        const int64_t n = image_extent(&win, i, in, win.ceil_mode);
        const int64_t reach = (int64_t)win.dilation[i] * (win.kernel[i] - 1) + 1;
        const int64_t end = (n - 1) * win.stride[i] + reach - in - win.pad[i][0];
        const int64_t by[2] = {win.pad[i][0], max_i64(end, win.pad[i][1])};

        x = compose_pad(c, x, 1 + i, by, PAD_CONSTANT, -INFINITY);
        if (c->rc < 0)
            return NO_VALUE;
        win.pad[i][0] = win.pad[i][1] = 0;
    }
    win.ceil_mode = 0;
    for (int i = 0; i < 2 && is_dilated; i++)
        x = c->rc < 0 ? NO_VALUE : image_lay_out(c, x, 1 + i, &win);
    if (is_dilated)
        win = (struct compose_window){.kernel = {win.kernel[0], win.kernel[1]},
                                      .stride = {win.kernel[0], win.kernel[1]}};
    return image_pool(c, x, POOL_MAX, &win);
}

/* rows [R,H] times x, then cols [S,W] times x: x [N,H,W,C] -> [N,R,S,C].  Both are freed. */
static int image_times(struct compose *c, int x, float *rows, int64_t R, float *cols, int64_t S)
{
    const struct shape s = *image_shape(c, x);
    int y = compose_reshape(c, x, SHAPE(s.dim[0], s.dim[1], s.dim[2] * s.dim[3]));

    y = compose_matmul(c, compose_const(c, SHAPE(R, s.dim[1]), rows), y, 0, 0);
    y = compose_reshape(c, y, SHAPE(s.dim[0], R, s.dim[2], s.dim[3]));
    y = compose_matmul(c, compose_const(c, SHAPE(S, s.dim[2]), cols), y, 0, 0);
    free(rows);
    free(cols);
    return y;
}

/* The matrix of an average pool along one axis, of n windows over `in` elements.  PyTorch clips a
 * window that counts its padding at the end of the padding. */
static float *image_averages(const struct compose_window *win, int axis, int64_t n, int64_t in)
{
    float *m = xcalloc((size_t)(n * in) + 1, sizeof *m);

    for (int64_t i = 0; i < n; i++) {
        const int64_t first = i * win->stride[axis] - win->pad[axis][0];
        const int64_t end = min_i64(first + win->kernel[axis], in + win->pad[axis][1]);
        const int64_t from = max_i64(first, 0), to = min_i64(end, in);
        double count = (double)(win->count_pad ? end - first : to - from);

        if (win->divisor)
            count = axis == 0 ? (double)win->divisor : 1;
        for (int64_t k = from; k < to; k++)
            m[i * in + k] = (float)(1 / count);
    }
    return m;
}

int compose_avg_pool(struct compose *c, int x, const struct compose_window *given)
{
    const struct compose_window win = image_window(given);
    int64_t in[2], n[2];
    int is_plain = !win.divisor && image_pads_alike(&win);

    if (!image_check_window(c, x, &win))
        return NO_VALUE;
    for (int i = 0; i < 2; i++) {
        in[i] = image_shape(c, x)->dim[1 + i];
        n[i] = image_extent(&win, i, in[i], win.ceil_mode);
        is_plain &= n[i] == image_extent(&win, i, in[i], 0);
    }
    if (is_plain)
        return image_pool(c, x, POOL_AVG, &win);
    if (!compose_has_room(c, n[0], in[0]) || !compose_has_room(c, n[1], in[1]))
        return NO_VALUE;
    return image_times(c, x, image_averages(&win, 0, n[0], in[0]), n[0],
                       image_averages(&win, 1, n[1], in[1]), n[1]);
}

/* ---- pools to a given size.  Window i of n has the elements [i*in/n, ceil((i+1)*in/n)). ---- */

static int64_t image_first(int64_t i, int64_t in, int64_t n) { return i * in / n; }

static int64_t image_end(int64_t i, int64_t in, int64_t n) { return ((i + 1) * in + n - 1) / n; }

static int image_check_size(struct compose *c, int x, int64_t rows, int64_t cols)
{
    if (compose_image_check(c, x, 4) &&
        (rows < 1 || cols < 1 || image_shape(c, x)->dim[1] < 1 || image_shape(c, x)->dim[2] < 1))
        c->rc = err_set(c->err, ERR_CONFIG, "%s: an image of %lldx%lld from one of %lldx%lld",
                        c->name, (long long)rows, (long long)cols,
                        (long long)image_shape(c, x)->dim[1], (long long)image_shape(c, x)->dim[2]);
    return c->rc == 0;
}

/* 1: there is room for the constants of image_times. */
static int image_has_room(struct compose *c, int x, int64_t rows, int64_t cols)
{
    return compose_has_room(c, rows, image_shape(c, x)->dim[1]) &&
           compose_has_room(c, cols, image_shape(c, x)->dim[2]);
}

/* 1: the windows are all alike: *win. */
static int image_divides(const struct compose *c, int x, int64_t rows, int64_t cols,
                         struct compose_window *win)
{
    const int64_t *in = &image_shape(c, x)->dim[1], n[2] = {rows, cols};

    *win = (struct compose_window){.dilation = {1, 1}};
    for (int i = 0; i < 2; i++)
        win->kernel[i] = win->stride[i] = (int)(in[i] / n[i]);
    return in[0] % rows == 0 && in[1] % cols == 0;
}

static float *image_adaptive(int64_t in, int64_t n)
{
    float *m = xcalloc((size_t)(n * in) + 1, sizeof *m);

    for (int64_t i = 0; i < n; i++)
        for (int64_t k = image_first(i, in, n); k < image_end(i, in, n); k++)
            m[i * in + k] = 1.0f / (float)(image_end(i, in, n) - image_first(i, in, n));
    return m;
}

int compose_adaptive_avg_pool(struct compose *c, int x, int64_t rows, int64_t cols)
{
    struct compose_window win;

    if (!image_check_size(c, x, rows, cols))
        return NO_VALUE;
    if (image_divides(c, x, rows, cols, &win))
        return image_pool(c, x, POOL_AVG, &win);
    if (!image_has_room(c, x, rows, cols))
        return NO_VALUE;
    return image_times(c, x, image_adaptive(image_shape(c, x)->dim[1], rows), rows,
                       image_adaptive(image_shape(c, x)->dim[2], cols), cols);
}

/* Windows of one length side by side: a shorter one has its last element more than once, which
 * changes neither the maximum nor its first place.  Sets that length. */
static int image_even_out(struct compose *c, int x, int dim, int64_t n, int *kernel)
{
    const int64_t in = image_shape(c, x)->dim[dim];
    int64_t most = 0, *at;

    for (int64_t i = 0; i < n; i++)
        most = max_i64(most, image_end(i, in, n) - image_first(i, in, n));
    if (!compose_has_room(c, n, most))
        return NO_VALUE;
    at = xmalloc((size_t)(n * most) * sizeof *at + 1);
    for (int64_t i = 0; i < n * most; i++)
        at[i] = min_i64(image_first(i / most, in, n) + i % most, image_end(i / most, in, n) - 1);
    *kernel = (int)most;
    x = compose_select_many(c, x, dim, at, n * most);
    free(at);
    return x;
}

int compose_adaptive_max_pool(struct compose *c, int x, int64_t rows, int64_t cols)
{
    struct compose_window win;

    if (!image_check_size(c, x, rows, cols))
        return NO_VALUE;
    if (!image_divides(c, x, rows, cols, &win)) {
        x = image_even_out(c, x, 1, rows, &win.kernel[0]);
        if (c->rc == 0)
            x = image_even_out(c, x, 2, cols, &win.kernel[1]);
        win.stride[0] = win.kernel[0];
        win.stride[1] = win.kernel[1];
    }
    return image_pool(c, x, POOL_MAX, &win);
}

/* ---- sizes ---- */

/* A place among `in` elements; a factor near 0 gives places that no integer holds. */
static float image_clamp(float at, int64_t in) { return fminf(fmaxf(at, 0.0f), (float)(in - 1)); }

/* Row i of the matrix along one axis: where y[i] comes from, in F32 as PyTorch computes it.
 * `step` is the distance of neighbouring elements of y in x. */
static void image_source(enum resize kind, int64_t i, int64_t in, float step, float *row)
{
    float at;
    int64_t k;

    if (kind == RESIZE_NEAREST || kind == RESIZE_NEAREST_EXACT) {
        at = kind == RESIZE_NEAREST ? (float)i * step : ((float)i + 0.5f) * step;
        row[min_i64((int64_t)floorf(image_clamp(at, in)), in - 1)] = 1.0f;
        return;
    }
    at = kind == RESIZE_BILINEAR_CORNERS ? (float)i * step : ((float)i + 0.5f) * step - 0.5f;
    at = image_clamp(at, in);
    k = min_i64((int64_t)at, in - 1);
    at -= (float)k;
    row[k] += 1.0f - at;
    row[min_i64(k + 1, in - 1)] += at;
}

/* The weight of an element at this distance; `a` is the slope of cubic ones, PyTorch's. */
static double image_cubic(double x, double a)
{
    x = fabs(x);
    return x <= 1  ? ((a + 2) * x - (a + 3)) * x * x + 1
           : x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
                   : 0;
}

/* Row i of bicubic interpolation: of the four elements around the place, those at an edge again. */
static void image_bicubic(enum resize kind, int64_t i, int64_t in, float step, float *row)
{
    const float at =
        kind == RESIZE_BICUBIC_CORNERS ? (float)i * step : ((float)i + 0.5f) * step - 0.5f;
    const float near = floorf(fminf(fmaxf(at, -2.0f), (float)(in + 1)));

    for (int k = -1; k <= 2; k++) {
        const int64_t from = max_i64(0, min_i64((int64_t)near + k, in - 1));

        row[from] += (float)image_cubic((double)(at - near) - k, -0.75);
    }
}

/* Row i with antialias=True: all elements within reach, which is wider where the image shrinks. */
static void image_smooth(enum resize kind, int64_t i, int64_t in, float step, float *row)
{
    const int is_cubic = kind == RESIZE_BICUBIC_SMOOTH;
    const double wide = step > 1 ? (double)step : 1, reach = (is_cubic ? 2 : 1) * wide,
                 center = (double)step * ((double)i + 0.5);
    const int64_t first = (int64_t)fmin(fmax(center - reach + 0.5, 0), (double)in),
                  end = (int64_t)fmin(center + reach + 0.5, (double)in);
    double sum = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int64_t k = first; k < end; k++) {
            const double x = ((double)k - center + 0.5) / wide,
                         w = is_cubic ? image_cubic(x, -0.5) : fmax(1 - fabs(x), 0);

            if (pass == 0)
                sum += w;
            else
                row[k] = (float)(w / sum);
        }
}

static float *image_sources(enum resize kind, int64_t in, int64_t n, double scale)
{
    float *m = xcalloc((size_t)(n * in) + 1, sizeof *m);
    float step = scale > 0 ? (float)(1.0 / scale) : (float)in / (float)n;

    if (kind == RESIZE_BILINEAR_CORNERS || kind == RESIZE_BICUBIC_CORNERS)
        step = n > 1 ? (float)(in - 1) / (float)(n - 1) : 0.0f;
    for (int64_t i = 0; i < n; i++)
        (kind >= RESIZE_BILINEAR_SMOOTH ? image_smooth
         : kind >= RESIZE_BICUBIC       ? image_bicubic
                                        : image_source)(kind, i, in, step, m + i * in);
    return m;
}

int compose_resize(struct compose *c, int x, int64_t rows, int64_t cols, enum resize kind,
                   const double scale[2])
{
    if (!image_check_size(c, x, rows, cols))
        return NO_VALUE;
    if (!image_has_room(c, x, rows, cols))
        return NO_VALUE;
    return image_times(c, x, image_sources(kind, image_shape(c, x)->dim[1], rows, scale[0]), rows,
                       image_sources(kind, image_shape(c, x)->dim[2], cols, scale[1]), cols);
}
