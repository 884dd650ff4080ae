/* onnx_ops_products - ONNX's ConvTranspose, Einsum and RotaryEmbedding, in operators of PyTorch.
 *
 * A transposed convolution is one of its input with zeros between the elements, by the weight
 * turned round. */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "import/equation.h"
#include "import/onnx_impl.h"

/* ---- transposed convolutions ---- */

enum { PRODUCTS_MAX_WINDOW = 2 };

struct products_window {
    int n;
    int64_t kernel[PRODUCTS_MAX_WINDOW], stride[PRODUCTS_MAX_WINDOW], dilation[PRODUCTS_MAX_WINDOW],
        more[PRODUCTS_MAX_WINDOW], /* output_padding */
        pad[2][PRODUCTS_MAX_WINDOW], out[PRODUCTS_MAX_WINDOW];
};

/* n numbers of the attribute, each from `least` on; `def` where it is left out. */
static void products_ints(struct onnx *o, const char *name, int n, int64_t least, int64_t def,
                          int64_t *to)
{
    int k;

    for (int d = 0; d < n; d++)
        to[d] = def;
    k = onnx_ints(o, name, to, n);
    if (k >= 0 && k != n)
        onnx_fail(o, ERR_CORRUPT, "its %s has %d numbers, want %d", name, k, n);
    for (int d = 0; d < n; d++)
        if (to[d] < least || to[d] > INT32_MAX)
            onnx_fail(o, ERR_CORRUPT, "its %s is %lld, want %lld or more", name, (long long)to[d],
                      (long long)least);
}

/* Where the file has the extents of the output, or pads on the same side, the pads follow. */
static void products_pads(struct onnx *o, struct products_window *w, const int64_t *extent)
{
    const char *mode = onnx_text(o, "auto_pad", "NOTSET");
    const int is_given = onnx_attr(o, "output_shape") != NULL, is_same = !strncmp(mode, "SAME_", 5);
    int64_t pads[2 * PRODUCTS_MAX_WINDOW], shape[PRODUCTS_MAX_WINDOW] = {0};

    products_ints(o, "pads", 2 * w->n, 0, 0, pads);
    if (is_given)
        products_ints(o, "output_shape", w->n, 1, 1, shape);
    for (int d = 0; d < w->n; d++) {
        const int64_t whole = w->stride[d] * (extent[d] - 1) + w->more[d] +
                              (w->kernel[d] - 1) * w->dilation[d] + 1,
                      want = is_given ? shape[d] : extent[d] * w->stride[d], sum = whole - want;

        w->pad[0][d] = !strcmp(mode, "NOTSET") ? pads[d] : 0;
        w->pad[1][d] = !strcmp(mode, "NOTSET") ? pads[w->n + d] : 0;
        if (is_given || is_same) {
            const int64_t half = sum >= 0 ? sum / 2 : -((1 - sum) / 2); /* towards -infinity */

            w->pad[0][d] = !strcmp(mode, "SAME_UPPER") ? half : sum - half;
            w->pad[1][d] = sum - w->pad[0][d];
        }
        w->out[d] = whole - w->pad[0][d] - w->pad[1][d];
        if (w->out[d] < 1 || w->out[d] > INT32_MAX)
            onnx_fail(o, ERR_CONFIG, "it makes %lld elements of %lld", (long long)w->out[d],
                      (long long)extent[d]);
    }
}

/* x with stride - 1 zeros behind each element, and padded so that a plain convolution gives out. */
static int products_spread(struct onnx *o, int x, const struct products_window *w)
{
    struct import_value v = *onnx_value(o, x);
    int64_t dim[IMPORT_MAX_DIMS] = {v.dim[0], v.dim[1]}, pad[2 * IMPORT_MAX_DIMS] = {0};

    for (int d = 0; d < w->n; d++) {
        dim[2 + 2 * d] = v.dim[2 + d];
        dim[3 + 2 * d] = 1;
    }
    if (w->stride[0] > 1 || w->stride[w->n - 1] > 1) {
        x = onnx_reshape(o, x, dim, 2 + 2 * w->n);
        for (int d = 0; d < w->n; d++) {
            pad[4 * (w->n - 1 - d) + 1] = w->stride[d] - 1;
            dim[3 + 2 * d] = w->stride[d];
            v.dim[2 + d] *= w->stride[d];
        }
        onnx_put_value(o, "self", x);
        onnx_put_ints(o, "pad", pad, 4 * w->n);
        onnx_put_real(o, "value", 0);
        x = onnx_make(o, "constant_pad_nd.default", v.type, 2 + 2 * w->n, dim);
        x = onnx_reshape(o, x, v.dim, v.n_dims);
    }
    memset(pad, 0, sizeof pad);
    for (int d = 0; d < w->n; d++) {
        const int64_t reach = w->dilation[d] * (w->kernel[d] - 1), front = reach - w->pad[0][d],
                      whole = w->out[d] + reach;

        pad[2 * (w->n - 1 - d)] = front;
        pad[2 * (w->n - 1 - d) + 1] = whole - front - v.dim[2 + d];
        v.dim[2 + d] = whole;
    }
    onnx_put_value(o, "self", x);
    onnx_put_ints(o, "pad", pad, 2 * w->n);
    onnx_put_real(o, "value", 0);
    return onnx_make(o, "constant_pad_nd.default", v.type, v.n_dims, v.dim);
}

/* The weight [C, outputs of a group, ...] as [outputs, inputs of a group, ...], turned round. */
static int products_weight(struct onnx *o, int w, int64_t groups)
{
    struct import_value v = *onnx_value(o, w);
    const int64_t in = v.dim[0] / groups, out = v.dim[1];
    int64_t dim[IMPORT_MAX_DIMS] = {groups, in, out};

    for (int d = 2; d < v.n_dims; d++) {
        w = onnx_flip(o, w, d);
        dim[d + 1] = v.dim[d];
    }
    w = onnx_reshape(o, w, dim, v.n_dims + 1);
    w = onnx_permute(o, w, (int64_t[]){0, 2, 1, 3, 4});
    v.dim[0] = groups * out;
    v.dim[1] = in;
    return onnx_reshape(o, w, v.dim, v.n_dims);
}

static void products_conv_transpose(struct onnx *o, const struct onnx_op *op)
{
    int x = onnx_in(o, 0), w = onnx_in(o, 1);
    const int b = onnx_in(o, 2);
    struct import_value v = *onnx_value(o, x);
    const struct import_value weight = *onnx_value(o, w);
    struct products_window win = {.n = v.n_dims - 2};
    const int64_t groups = onnx_int(o, "group", 1);

    if (win.n < 1 || win.n > PRODUCTS_MAX_WINDOW) {
        onnx_fail(o, ERR_UNSUPPORTED, "its input has %d dimensions, want [N,C,L] or [N,C,H,W]",
                  v.n_dims);
        return;
    }
    if (weight.n_dims != v.n_dims || groups < 1 || v.dim[1] < 1 || weight.dim[0] != v.dim[1] ||
        v.dim[1] % groups != 0) {
        onnx_fail(o, ERR_CONFIG, "its weight does not fit its input of %lld channels",
                  (long long)v.dim[1]);
        return;
    }
    products_ints(o, "strides", win.n, 1, 1, win.stride);
    products_ints(o, "dilations", win.n, 1, 1, win.dilation);
    products_ints(o, "output_padding", win.n, 0, 0, win.more);
    memcpy(win.kernel, weight.dim + 2, sizeof *win.kernel * (size_t)win.n);
    for (int d = 0; d < win.n && !onnx_failed(o); d++)
        if (win.kernel[d] < 1 || win.kernel[d] > INT16_MAX || win.stride[d] > INT16_MAX ||
            win.dilation[d] > INT16_MAX || v.dim[2 + d] < 1 || v.dim[2 + d] > INT16_MAX)
            onnx_fail(o, ERR_UNSUPPORTED, "its window or input has an extent beyond %d", INT16_MAX);
    if (!onnx_failed(o))
        products_pads(o, &win, v.dim + 2);
    if (onnx_failed(o))
        return;
    x = products_spread(o, x, &win);
    w = products_weight(o, w, groups);
    v.dim[1] = weight.dim[1] * groups;
    memcpy(v.dim + 2, win.out, sizeof *v.dim * (size_t)win.n);
    onnx_put_value(o, "input", x);
    onnx_put_value(o, "weight", w);
    onnx_put_value(o, "bias", b);
    onnx_put_ints(o, "stride", (int64_t[]){1, 1}, win.n);
    onnx_put_ints(o, "padding", (int64_t[]){0, 0}, win.n);
    onnx_put_ints(o, "dilation", win.dilation, win.n);
    onnx_put_flag(o, "transposed", 0);
    onnx_put_ints(o, "output_padding", (int64_t[]){0, 0}, win.n);
    onnx_put_int(o, "groups", groups);
    onnx_out(o, 0, onnx_make(o, op->target, v.type, v.n_dims, v.dim));
}

/* ---- sums of products by letters ---- */

/* The extent of each letter in the operands; fails where one has two. */
static void products_letters(struct onnx *o, const char *of, int x, int64_t *extent)
{
    const struct import_value v = *onnx_value(o, x);
    int n = 0;

    for (const char *c = of; *c && *c != ','; c++, n++) {
        if (*c < 'a' || *c > 'z' || n >= v.n_dims) {
            onnx_fail(o, ERR_UNSUPPORTED,
                      "its equation has \"%.40s\", want small letters for %d dimensions", of,
                      v.n_dims);
            return;
        }
        if (extent[*c - 'a'] && extent[*c - 'a'] != v.dim[n])
            onnx_fail(o, ERR_CONFIG, "%c is %lld and %lld", *c, (long long)extent[*c - 'a'],
                      (long long)v.dim[n]);
        extent[*c - 'a'] = v.dim[n];
    }
    if (n != v.n_dims)
        onnx_fail(o, ERR_CONFIG, "its equation has %d letters for %d dimensions", n, v.n_dims);
}

static void products_einsum(struct onnx *o, const struct onnx_op *op)
{
    const char *given = onnx_text(o, "equation", "");
    char text[EQUATION_ROOM], *arrow, *to;
    const int n = (int)o->node->n_input;
    int64_t extent[26] = {0}, dim[IMPORT_MAX_DIMS];
    int ranks[EQUATION_MOST] = {0}, in[EQUATION_MOST], n_in = 0, n_out = 0;

    for (int i = 0; i < n && n <= EQUATION_MOST; i++) {
        if (onnx_in(o, i) == IMPORT_NO_VALUE) {
            onnx_fail(o, ERR_CORRUPT, "its input %d has no name: export the network again", i);
            return;
        }
        in[i] = onnx_in(o, i);
        ranks[i] = onnx_value(o, in[i])->n_dims;
    }
    arrow =
        n > EQUATION_MOST || equation_spell(given, ranks, n, text) < 0 ? NULL : strstr(text, "->");
    if (!arrow) {
        onnx_fail(o, ERR_UNSUPPORTED,
                  "its equation is \"%.60s\", want one to %d operands with as many letters as "
                  "dimensions",
                  given, EQUATION_MOST);
        return;
    }
    *arrow = 0;
    to = arrow + 2;
    for (const char *at = text; n_in < n; at += ranks[n_in++] + 1)
        products_letters(o, at, in[n_in], extent);
    for (const char *c = to; *c && !onnx_failed(o); c++)
        if (*c < 'a' || *c > 'z' || !extent[*c - 'a'] || strchr(c + 1, *c) ||
            n_out >= IMPORT_MAX_DIMS)
            onnx_fail(o, ERR_UNSUPPORTED, "its equation gives \"%.40s\"", to);
        else
            dim[n_out++] = extent[*c - 'a'];
    if (onnx_failed(o))
        return;
    onnx_put_text(o, "equation", arena_printf(&o->memory, "%s->%s", text, to));
    onnx_put_values(o, "tensors", in, n);
    onnx_out(o, 0, onnx_make(o, op->target, onnx_value(o, onnx_in(o, 0))->type, n_out, dim));
}

/* ---- rotary embedding ---- */

/* Cosines or sines, input i, as [N,1,T,half], or with extents of 1. */
static int products_angles(struct onnx *o, int i, int64_t half)
{
    const int ids = onnx_in(o, 3), table = onnx_in(o, i);
    struct import_value v = *onnx_value(o, table);
    int x = table;

    if (v.n_dims < 2 || v.dim[v.n_dims - 1] != half || v.n_dims != (ids >= 0 ? 2 : 3)) {
        onnx_fail(o, ERR_CONFIG, "its input %d has %d dimensions of %lld numbers, want %d of %lld",
                  i, v.n_dims, (long long)(v.n_dims ? v.dim[v.n_dims - 1] : 0), ids >= 0 ? 2 : 3,
                  (long long)half);
        return table;
    }
    if (ids >= 0) {
        const struct import_value at = *onnx_value(o, ids);

        if (at.n_dims != 2) {
            onnx_fail(o, ERR_CONFIG, "its position_ids have %d dimensions, want 2", at.n_dims);
            return table;
        }
        onnx_put_value(o, "weight", table);
        onnx_put_value(o, "indices", ids);
        x = onnx_make(o, "embedding.default", v.type, 3, (int64_t[]){at.dim[0], at.dim[1], half});
    }
    v = *onnx_value(o, x);
    return onnx_reshape(o, x, (int64_t[]){v.dim[0], 1, v.dim[1], half}, 4);
}

/* Half of the pairs in x [N,H,T,2 half]: the first ones of them (0) or the second (1). */
static int products_half(struct onnx *o, int x, int64_t half, int which, int interleaved)
{
    return interleaved ? onnx_slice(o, x, 3, which, 2 * half, 2)
                       : onnx_slice(o, x, 3, which * half, (which + 1) * half, 1);
}

/* a b + sign c d. */
static int products_turn(struct onnx *o, const int *f, const char *target)
{
    return onnx_pair(o, target, onnx_pair(o, "mul.Tensor", f[0], f[1]),
                     onnx_pair(o, "mul.Tensor", f[2], f[3]));
}

/* The pairs of x [N,H,T,2 half] turned by their angles. */
static int products_rotated(struct onnx *o, int x, int64_t half)
{
    const int interleaved = onnx_int(o, "interleaved", 0) != 0;
    const int cosine = products_angles(o, 1, half), sine = products_angles(o, 2, half);
    const int a = products_half(o, x, half, 0, interleaved),
              b = products_half(o, x, half, 1, interleaved);
    struct import_value v = *onnx_value(o, x);
    int y[2];

    if (onnx_failed(o))
        return x;
    y[0] = products_turn(o, (int[]){a, cosine, b, sine}, "sub.Tensor");
    y[1] = products_turn(o, (int[]){a, sine, b, cosine}, "add.Tensor");
    if (!interleaved)
        return onnx_join(o, 3, y, 2);
    for (int i = 0; i < 2; i++)
        y[i] = onnx_reshape(o, y[i], (int64_t[]){v.dim[0], v.dim[1], v.dim[2], half, 1}, 5);
    return onnx_reshape(o, onnx_join(o, 4, y, 2), v.dim, 4);
}

static void products_rotary(struct onnx *o, const struct onnx_op *op)
{
    int x = onnx_in(o, 0), y;
    const struct import_value whole = *onnx_value(o, x);
    const int64_t heads = onnx_int(o, "num_heads", 0),
                  given = onnx_int(o, "rotary_embedding_dim", 0);
    int64_t width, turned;

    (void)op;
    if (whole.n_dims != 4 && (whole.n_dims != 3 || heads < 1 || whole.dim[2] % heads != 0)) {
        onnx_fail(o, ERR_CONFIG, "it has %lld heads for a tensor of %d dimensions",
                  (long long)heads, whole.n_dims);
        return;
    }
    if (whole.n_dims == 3) {
        x = onnx_reshape(o, x, (int64_t[]){whole.dim[0], whole.dim[1], heads, whole.dim[2] / heads},
                         4);
        x = onnx_permute(o, x, (int64_t[]){0, 2, 1, 3});
    }
    width = onnx_value(o, x)->dim[3];
    turned = given ? given : width;
    if (turned < 2 || turned > width || turned % 2 != 0) {
        onnx_fail(o, ERR_CONFIG, "its rotary_embedding_dim is %lld, want an even number up to %lld",
                  (long long)turned, (long long)width);
        return;
    }
    y = products_rotated(o, onnx_slice(o, x, 3, 0, turned, 1), turned / 2);
    if (turned < width)
        y = onnx_join(o, 3, (int[]){y, onnx_slice(o, x, 3, turned, width, 1)}, 2);
    if (whole.n_dims == 3)
        y = onnx_permute(o, y, (int64_t[]){0, 2, 1, 3});
    onnx_out(o, 0, onnx_reshape(o, y, whole.dim, whole.n_dims));
}

const struct onnx_op onnx_products[] = {
    {"ConvTranspose", products_conv_transpose, "convolution.default", 2, 0},
    {"Einsum", products_einsum, "einsum.default", 1, 0},
    {"RotaryEmbedding", products_rotary, NULL, 3, 23},
    {0},
};
