/* onnx_ops_layers - ONNX's convolutions, pools, products, and dropout.
 *
 * Padding that differs before and behind becomes a pad of its own.
 */
#include <float.h>
#include <string.h>

#include "base/util.h"
#include "import/onnx_impl.h"

enum { ONNX_MAX_WINDOW = 2 };

/* A window over the last n dimensions of x. */
struct onnx_window {
    int n;
    int64_t kernel[ONNX_MAX_WINDOW], stride[ONNX_MAX_WINDOW], dilation[ONNX_MAX_WINDOW],
        pad[2][ONNX_MAX_WINDOW], out[ONNX_MAX_WINDOW]; /* pad: before, behind */
    int ceil_mode;
};

static int64_t window_out(const struct onnx_window *w, int d, int64_t n)
{
    const int64_t whole = n + w->pad[0][d] + w->pad[1][d],
                  over = whole - w->dilation[d] * (w->kernel[d] - 1) - 1, s = w->stride[d];
    int64_t y = (over + (w->ceil_mode ? s - 1 : 0)) / s + 1;

    if (over < 0)
        return 0;
    if (w->ceil_mode && (y - 1) * s >= n + w->pad[0][d])
        y--; /* the last window must begin in the tensor or in the padding before it */
    return y;
}

static void window_pads(struct onnx *o, struct onnx_window *w, const int64_t *extent)
{
    const char *mode = onnx_text(o, "auto_pad", "NOTSET");
    int64_t pads[2 * ONNX_MAX_WINDOW] = {0};
    const int n = onnx_ints(o, "pads", pads, 2 * w->n);

    if (n >= 0 && n != 2 * w->n)
        onnx_fail(o, ERR_CORRUPT, "its pads have %d numbers, want %d", n, 2 * w->n);
    for (int d = 0; d < w->n; d++) {
        const int64_t y = (extent[d] + w->stride[d] - 1) / w->stride[d],
                      reach = w->dilation[d] * (w->kernel[d] - 1) + 1,
                      sum = max_i64(0, (y - 1) * w->stride[d] + reach - extent[d]);

        w->pad[0][d] = !strcmp(mode, "NOTSET") ? pads[d] : 0;
        w->pad[1][d] = !strcmp(mode, "NOTSET") ? pads[w->n + d] : 0;
        if (!strncmp(mode, "SAME_", 5)) {
            w->pad[0][d] = !strcmp(mode, "SAME_LOWER") ? sum - sum / 2 : sum / 2;
            w->pad[1][d] = sum - w->pad[0][d];
        }
        if (w->pad[0][d] < 0 || w->pad[1][d] < 0 || w->pad[0][d] > INT32_MAX ||
            w->pad[1][d] > INT32_MAX)
            onnx_fail(o, ERR_UNSUPPORTED, "it pads by %lld and %lld, want 0 or more",
                      (long long)w->pad[0][d], (long long)w->pad[1][d]);
    }
    if (strcmp(mode, "NOTSET") != 0 && strcmp(mode, "VALID") != 0 && strncmp(mode, "SAME_", 5) != 0)
        onnx_fail(o, ERR_CORRUPT, "its auto_pad is %.40s", mode);
}

/* The window of the node over x [N,C,...]; the kernel's extents if the file leaves them out. */
static struct onnx_window window_of_node(struct onnx *o, int x, const int64_t *kernel)
{
    const struct import_value v = *onnx_value(o, x);
    struct onnx_window w = {.n = v.n_dims - 2, .ceil_mode = onnx_int(o, "ceil_mode", 0) != 0};
    int64_t *const list[] = {w.stride, w.dilation, w.kernel};
    static const char *const name[] = {"strides", "dilations", "kernel_shape"};

    if (w.n < 1 || w.n > ONNX_MAX_WINDOW) {
        onnx_fail(o, ERR_UNSUPPORTED, "its input has %d dimensions, want [N,C,L] or [N,C,H,W]",
                  v.n_dims);
        return (struct onnx_window){0};
    }
    for (int d = 0; d < w.n; d++) {
        w.stride[d] = w.dilation[d] = 1;
        w.kernel[d] = kernel ? kernel[d] : 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const int n = onnx_ints(o, name[i], list[i], w.n);

        if (n >= 0 && n != w.n)
            onnx_fail(o, ERR_CORRUPT, "its %s has %d numbers, want %d", name[i], n, w.n);
        for (int d = 0; d < w.n; d++)
            if (list[i][d] < 1 || list[i][d] > INT32_MAX)
                onnx_fail(o, ERR_CORRUPT, "its %s is %lld, want 1 or more", name[i],
                          (long long)list[i][d]);
    }
    for (int d = 0; d < w.n && kernel; d++)
        if (w.kernel[d] != kernel[d])
            onnx_fail(o, ERR_CORRUPT, "its kernel_shape is %lld where its weight has %lld",
                      (long long)w.kernel[d], (long long)kernel[d]);
    if (!onnx_failed(o))
        window_pads(o, &w, v.dim + 2);
    for (int d = 0; d < w.n && !onnx_failed(o); d++) {
        w.out[d] = window_out(&w, d, v.dim[2 + d]);
        if (w.out[d] < 1)
            onnx_fail(o, ERR_CONFIG, "its window does not fit into extent %lld",
                      (long long)v.dim[2 + d]);
    }
    return w;
}

static int window_is_even(const struct onnx_window *w)
{
    return !memcmp(w->pad[0], w->pad[1], sizeof w->pad[0]);
}

/* x with the window's padding, which the window loses. */
static int window_pad(struct onnx *o, int x, struct onnx_window *w, double value)
{
    struct import_value v = *onnx_value(o, x);
    int64_t pad[2 * ONNX_MAX_WINDOW];

    for (int d = 0; d < w->n; d++) {
        pad[2 * (w->n - 1 - d)] = w->pad[0][d];
        pad[2 * (w->n - 1 - d) + 1] = w->pad[1][d];
        v.dim[2 + d] += w->pad[0][d] + w->pad[1][d];
    }
    memset(w->pad, 0, sizeof w->pad);
    onnx_put_value(o, "self", x);
    onnx_put_ints(o, "pad", pad, 2 * w->n);
    onnx_put_real(o, "value", value);
    return onnx_make(o, "constant_pad_nd.default", v.type, v.n_dims, v.dim);
}

/* A bias that the exporter made of zeros is none. */
static int layers_bias(struct onnx *o, int i)
{
    const int b = onnx_in(o, i);
    const struct host_tensor *h = b == IMPORT_NO_VALUE ? NULL : o->fold.value[b];

    for (int64_t k = 0; h && k < host_count(h); k++)
        if (host_element(h, k) != 0)
            return b;
    return h ? IMPORT_NO_VALUE : b;
}

static void layers_conv(struct onnx *o, const struct onnx_op *op)
{
    int x = onnx_in(o, 0);
    const int w = onnx_in(o, 1), b = layers_bias(o, 2);
    const struct import_value weight = *onnx_value(o, w);
    struct import_value v = *onnx_value(o, x);
    struct onnx_window win = window_of_node(o, x, weight.dim + 2);
    const int64_t groups = onnx_int(o, "group", 1);

    if (onnx_failed(o))
        return;
    if (weight.n_dims != v.n_dims || groups < 1 || v.dim[1] % groups != 0 ||
        v.dim[1] / groups != weight.dim[1] || weight.dim[0] % groups != 0) {
        onnx_fail(o, ERR_CONFIG,
                  "its weight of %d dimensions, for %lld channels and %lld outputs of %lld groups, "
                  "does not fit its input of %d dimensions and %lld channels",
                  weight.n_dims, (long long)weight.dim[1], (long long)weight.dim[0],
                  (long long)groups, v.n_dims, (long long)v.dim[1]);
        return;
    }
    if (!window_is_even(&win))
        x = window_pad(o, x, &win, 0);
    v.dim[1] = weight.dim[0];
    memcpy(v.dim + 2, win.out, sizeof *v.dim * (size_t)win.n);
    onnx_put_value(o, "input", x);
    onnx_put_value(o, "weight", w);
    onnx_put_value(o, "bias", b);
    onnx_put_ints(o, "stride", win.stride, win.n);
    onnx_put_ints(o, "padding", win.pad[0], win.n);
    onnx_put_ints(o, "dilation", win.dilation, win.n);
    onnx_put_flag(o, "transposed", 0);
    onnx_put_ints(o, "output_padding", (int64_t[2]){0, 0}, win.n);
    onnx_put_int(o, "groups", groups);
    onnx_out(o, 0, onnx_make(o, op->target, v.type, v.n_dims, v.dim));
}

/* ---- pools ---- */

static int layers_pooled(struct onnx *o, const char *target, int x, struct onnx_window *w)
{
    const int is_max = !strcmp(target, "max_pool2d.default");
    const struct import_value v = *onnx_value(o, x);
    int64_t dim[IMPORT_MAX_DIMS] = {v.dim[0], v.dim[1], w->out[0], w->out[1]};

    onnx_put_value(o, "self", x);
    onnx_put_ints(o, "kernel_size", w->kernel, 2);
    onnx_put_ints(o, "stride", w->stride, 2);
    onnx_put_ints(o, "padding", w->pad[0], 2);
    if (is_max)
        onnx_put_ints(o, "dilation", w->dilation, 2);
    onnx_put_flag(o, "ceil_mode", w->ceil_mode);
    if (!is_max)
        onnx_put_flag(o, "count_include_pad", onnx_int(o, "count_include_pad", 0) != 0);
    return onnx_make(o, target, v.type, 4, dim);
}

/* The window of a line as one of an image of one row. */
static void layers_pool_as_image(struct onnx_window *w)
{
    int64_t *const list[] = {w->kernel, w->stride, w->dilation, w->pad[0], w->pad[1], w->out};
    static const int64_t one[] = {1, 1, 1, 0, 0, 1};

    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        list[i][1] = list[i][0];
        list[i][0] = one[i];
    }
    w->n = 2;
}

/* How many times more places the window has than places of x [..., H, W] that it averages, for each
 * output: [out, out].  The pads are still in w. */
static int layers_shares(struct onnx *o, const struct onnx_window *w, const int64_t *extent)
{
    int64_t n;
    float *to;

    if (w->out[1] > 0 && w->out[0] > FOLD_MAX_ELEMENTS / w->out[1]) {
        onnx_fail(o, ERR_UNSUPPORTED, "its output has %lld rows of %lld places, want %d places",
                  (long long)w->out[0], (long long)w->out[1], FOLD_MAX_ELEMENTS);
        return 0;
    }
    n = w->out[0] * w->out[1];
    to = arena_alloc(&o->memory, sizeof *to * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at[2] = {i / w->out[1], i % w->out[1]};
        int64_t whole = 1, part = 1;

        for (int d = 0; d < 2; d++) {
            const int64_t start = at[d] * w->stride[d] - w->pad[0][d];

            whole *= w->kernel[d];
            part *= min_i64(start + w->kernel[d], extent[d]) - max_i64(start, 0);
        }
        to[i] = part > 0 ? (float)whole / (float)part : 0;
    }
    return onnx_constant(o, IMPORT_F32, 2, w->out, to);
}

static void layers_pool(struct onnx *o, const struct onnx_op *op)
{
    const int is_max = !strcmp(op->target, "max_pool2d.default");
    int x = onnx_in(o, 0);
    const struct import_value v = *onnx_value(o, x);
    struct onnx_window w = window_of_node(o, x, NULL);
    const int is_line = w.n == 1;
    int shares = IMPORT_NO_VALUE;

    if (!onnx_failed(o) && is_line) {
        layers_pool_as_image(&w);
        x = onnx_reshape(o, x, (int64_t[]){v.dim[0], v.dim[1], 1, v.dim[2]}, 4);
    }
    if (o->node->n_output > 1 && *o->node->output[1])
        onnx_fail(o, ERR_UNSUPPORTED, "its second output, the places, is not supported");
    if (!is_max && (w.dilation[0] != 1 || w.dilation[1] != 1))
        onnx_fail(o, ERR_UNSUPPORTED, "it averages with dilation, which is not supported");
    if (onnx_failed(o))
        return;
    if (!window_is_even(&w)) {
        if (w.ceil_mode) {
            onnx_fail(o, ERR_UNSUPPORTED,
                      "it has ceil_mode and other padding before than at the end");
            return;
        }
        if (!is_max && !onnx_int(o, "count_include_pad", 0))
            shares = layers_shares(o, &w, (int64_t[]){is_line ? 1 : v.dim[2], v.dim[v.n_dims - 1]});
        x = window_pad(o, x, &w, is_max ? -(double)FLT_MAX : 0);
    }
    x = layers_pooled(o, op->target, x, &w);
    if (shares >= 0)
        x = onnx_binary(o, "mul.Tensor", x, shares);
    if (is_line)
        x = onnx_reshape(o, x, (int64_t[]){v.dim[0], v.dim[1], w.out[1]}, 3);
    onnx_out(o, 0, x);
}

static void layers_global(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);
    struct import_value v = *onnx_value(o, x);
    int64_t which[IMPORT_MAX_DIMS];

    if (v.n_dims < 3) {
        onnx_fail(o, ERR_CONFIG, "its input has %d dimensions, want [N,C,...]", v.n_dims);
        return;
    }
    for (int d = 2; d < v.n_dims; d++) {
        which[d - 2] = d;
        v.dim[d] = 1;
    }
    onnx_put_value(o, "self", x);
    onnx_put_ints(o, "dim", which, v.n_dims - 2);
    onnx_put_flag(o, "keepdim", 1);
    onnx_out(o, 0, onnx_make(o, op->target, v.type, v.n_dims, v.dim));
}

/* ---- products ---- */

static int layers_turned(struct onnx *o, int x)
{
    const struct import_value v = *onnx_value(o, x);

    onnx_put_value(o, "self", x);
    onnx_put_int(o, "dim0", 0);
    onnx_put_int(o, "dim1", 1);
    return onnx_make(o, "transpose.int", v.type, 2, (int64_t[]){v.dim[1], v.dim[0]});
}

static int layers_scaled(struct onnx *o, int x, double by)
{
    if (by == 1)
        return x;
    onnx_put_value(o, "self", x);
    onnx_put_real(o, "other", by);
    return onnx_make_like(o, "mul.Tensor", x);
}

static void layers_gemm(struct onnx *o, const struct onnx_op *op)
{
    int a = onnx_in(o, 0), y;
    const int b = onnx_in(o, 1), c = layers_bias(o, 2), turned = onnx_int(o, "transB", 0) != 0;
    const double alpha = onnx_real(o, "alpha", 1), beta = onnx_real(o, "beta", 1);
    const struct import_value w = *onnx_value(o, b);
    int64_t dim[2];
    int is_bias;

    (void)op;
    if (onnx_value(o, a)->n_dims != 2 || w.n_dims != 2) {
        onnx_fail(o, ERR_CONFIG, "its operands have %d and %d dimensions, want 2",
                  onnx_value(o, a)->n_dims, w.n_dims);
        return;
    }
    if (onnx_int(o, "transA", 0))
        a = layers_turned(o, a);
    dim[0] = onnx_value(o, a)->dim[0];
    dim[1] = w.dim[!turned];
    if (onnx_value(o, a)->dim[1] != w.dim[turned])
        onnx_fail(o, ERR_CONFIG, "it multiplies rows of %lld by columns of %lld",
                  (long long)onnx_value(o, a)->dim[1], (long long)w.dim[turned]);
    is_bias = c != IMPORT_NO_VALUE && onnx_value(o, c)->n_dims == 1 &&
              onnx_value(o, c)->dim[0] == dim[1] && alpha == 1 && beta == 1;
    if (turned) {
        onnx_put_value(o, "input", a);
        onnx_put_value(o, "weight", b);
        onnx_put_value(o, "bias", is_bias ? c : IMPORT_NO_VALUE);
        y = onnx_make(o, "linear.default", w.type, 2, dim);
    } else if (is_bias) {
        onnx_put_value(o, "self", c);
        onnx_put_value(o, "mat1", a);
        onnx_put_value(o, "mat2", b);
        y = onnx_make(o, "addmm.default", w.type, 2, dim);
    } else {
        onnx_put_value(o, "self", a);
        onnx_put_value(o, "mat2", b);
        y = onnx_make(o, "mm.default", w.type, 2, dim);
    }
    y = layers_scaled(o, y, alpha);
    if (c != IMPORT_NO_VALUE && !is_bias)
        y = onnx_binary(o, "add.Tensor", y, layers_scaled(o, c, beta));
    onnx_out(o, 0, y);
}

static void layers_matmul(struct onnx *o, const struct onnx_op *op)
{
    const int a = onnx_in(o, 0), b = onnx_in(o, 1);
    const struct import_value x = *onnx_value(o, a), w = *onnx_value(o, b);
    const int n_lead_x = x.n_dims > 2 ? x.n_dims - 2 : 0,
              n_lead_w = w.n_dims > 2 ? w.n_dims - 2 : 0;
    const int lead = n_lead_x > n_lead_w ? n_lead_x : n_lead_w;
    int64_t dim[IMPORT_MAX_DIMS + 2];
    int n = lead;

    if (x.n_dims < 1 || w.n_dims < 1 ||
        x.dim[x.n_dims - 1] != w.dim[w.n_dims > 1 ? w.n_dims - 2 : 0]) {
        onnx_fail(o, ERR_CONFIG, "its operands do not fit each other");
        return;
    }
    for (int d = 0; d < lead; d++) {
        const int i = d - (lead - n_lead_x), k = d - (lead - n_lead_w);
        const int64_t p = i < 0 ? 1 : x.dim[i], q = k < 0 ? 1 : w.dim[k];

        dim[d] = p == 1 ? q : p;
        if (p != q && p != 1 && q != 1)
            onnx_fail(o, ERR_CONFIG, "extents %lld and %lld do not meet", (long long)p,
                      (long long)q);
    }
    if (x.n_dims > 1)
        dim[n++] = x.dim[x.n_dims - 2];
    if (w.n_dims > 1)
        dim[n++] = w.dim[w.n_dims - 1];
    onnx_put_value(o, "self", a);
    onnx_put_value(o, "other", b);
    onnx_out(o, 0, onnx_make(o, op->target, x.type, n, dim));
}

/* ---- dropout ---- */

static void layers_dropout(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0), ratio = onnx_in(o, 1);
    const struct host_tensor *h = onnx_host(o, ratio);

    if (ratio != IMPORT_NO_VALUE && (!h || host_count(h) != 1))
        onnx_fail(o, ERR_UNSUPPORTED, "its ratio is no constant number");
    if (onnx_failed(o))
        return;
    onnx_put_value(o, "input", x);
    onnx_put_real(o, "p", h ? host_element(h, 0) : 0.5);
    onnx_put_flag(o, "train", 1);
    onnx_out(o, 0, onnx_make_like(o, op->target, x));
}

const struct onnx_op onnx_layers[] = {
    {"Conv", layers_conv, "convolution.default", 2, 0},
    {"MaxPool", layers_pool, "max_pool2d.default", 1, 0},
    {"AveragePool", layers_pool, "avg_pool2d.default", 1, 0},
    {"GlobalAveragePool", layers_global, "mean.dim", 1, 0},
    {"GlobalMaxPool", layers_global, "amax.default", 1, 0},
    {"Gemm", layers_gemm, NULL, 2, 0},
    {"MatMul", layers_matmul, "matmul.default", 2, 0},
    {"Dropout", layers_dropout, "dropout.default", 1, 0},
    {0},
};
