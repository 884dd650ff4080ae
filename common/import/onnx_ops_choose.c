/* onnx_ops_choose - ONNX's operators that ask which element is the largest, or which kind of number
 * one is, written out in comparisons. */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "import/onnx_impl.h"

static int choose_compare(struct onnx *o, const char *target, int a, int b)
{
    int64_t dim[IMPORT_MAX_DIMS];
    const int n = onnx_meet(o, a, b, dim);

    onnx_put_value(o, "self", a);
    onnx_put_value(o, "other", b);
    return onnx_make(o, target, IMPORT_BOOL, n, dim);
}

static int choose_number(struct onnx *o, double v)
{
    const float number = (float)v;

    return onnx_constant(o, IMPORT_F32, 0, NULL, &number);
}

/* from, from + step, ... for dimension d of n. */
static int choose_count(struct onnx *o, int n, int d, int64_t extent, const int64_t range[2])
{
    int64_t dim[IMPORT_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};

    dim[d] = extent;
    return onnx_reshape(o, onnx_vector(o, extent, range[0], range[1], IMPORT_F32), dim, n);
}

/* The place of the largest element along d, as a real number; of several the first, or the last.
 * It is the extreme of the counts where x is the largest, 0 elsewhere: 1, 2, ... for the last and
 * n, n - 1, ... for the first. */
static int choose_place(struct onnx *o, int x, int d, int is_last)
{
    const struct import_value v = *onnx_value(o, x);
    const int64_t n = v.dim[d];
    int is_top, y;

    if (n < 1 || n > 1 << 24) {
        onnx_fail(o, ERR_UNSUPPORTED, "dimension %d has %lld elements, want 1 to %d", d,
                  (long long)n, 1 << 24);
        return x;
    }
    is_top = onnx_cast(
        o, choose_compare(o, "eq.Tensor", x, onnx_reduce(o, "amax.default", x, 1u << d, 1)),
        IMPORT_F32);
    y = choose_count(o, v.n_dims, d, n, is_last ? (int64_t[]){1, 1} : (int64_t[]){n, -1});
    y = onnx_reduce(o, "amax.default", onnx_pair(o, "mul.Tensor", is_top, y), 1u << d, 1);
    return is_last ? onnx_affine(o, y, 1, -1) : onnx_affine(o, y, -1, (double)n);
}

static int choose_axis(struct onnx *o, int x, int64_t def)
{
    return onnx_axis(o, onnx_int(o, "axis", def), onnx_value(o, x)->n_dims);
}

static void choose_arg(struct onnx *o, const struct onnx_op *op)
{
    int x = onnx_cast(o, onnx_in(o, 0), IMPORT_F32), n = 0;
    const struct import_value v = *onnx_value(o, x);
    const int d = choose_axis(o, x, 0), keep = onnx_int(o, "keepdims", 1) != 0;
    int64_t dim[IMPORT_MAX_DIMS];

    if (onnx_failed(o))
        return;
    if (!strcmp(op->name, "ArgMin"))
        x = onnx_affine(o, x, -1, 0);
    x = onnx_cast(o, choose_place(o, x, d, onnx_int(o, "select_last_index", 0) != 0), IMPORT_I64);
    for (int i = 0; i < v.n_dims; i++)
        if (keep || i != d)
            dim[n++] = i == d ? 1 : v.dim[i];
    onnx_out(o, 0, onnx_reshape(o, x, dim, n));
}

/* 1 for the first of the largest elements, 0 for others. */
static void choose_hardmax(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0), d = choose_axis(o, x, -1);
    const struct import_value v = *onnx_value(o, x);
    int at;

    (void)op;
    if (onnx_failed(o))
        return;
    at = choose_place(o, x, d, 0);
    at = choose_compare(o, "eq.Tensor", at,
                        choose_count(o, v.n_dims, d, v.dim[d], (int64_t[]){0, 1}));
    onnx_out(o, 0, onnx_cast(o, at, v.type));
}

/* A place from -depth to depth - 1 becomes a new dimension of `depth` values. */
static void choose_one_hot(struct onnx *o, const struct onnx_op *op)
{
    int x = onnx_in(o, 0), y;
    const struct import_value v = *onnx_value(o, x);
    const enum import_type type = onnx_value(o, onnx_in(o, 2))->type;
    const struct host_tensor *depth = onnx_host(o, onnx_in(o, 1)),
                             *values = onnx_host(o, onnx_in(o, 2));
    const int d = onnx_axis(o, onnx_int(o, "axis", -1), v.n_dims + 1);
    int64_t dim[IMPORT_MAX_DIMS + 1], n;

    (void)op;
    if (!depth || host_count(depth) != 1 || !values || host_count(values) != 2 ||
        v.n_dims >= IMPORT_MAX_DIMS || !(host_element(depth, 0) >= 1) ||
        host_element(depth, 0) > 1 << 24) {
        onnx_fail(o, ERR_UNSUPPORTED,
                  "want a constant depth of 1 or more, and two constant values");
        return;
    }
    n = (int64_t)host_element(depth, 0);
    memcpy(dim, v.dim, sizeof *dim * (size_t)d);
    memcpy(dim + d + 1, v.dim + d, sizeof *dim * (size_t)(v.n_dims - d));
    dim[d] = 1;
    x = onnx_reshape(o, onnx_cast(o, x, IMPORT_F32), dim, v.n_dims + 1);
    y = choose_compare(o, "eq.Tensor", x, choose_count(o, v.n_dims + 1, d, n, (int64_t[]){0, 1}));
    x = choose_compare(o, "eq.Tensor", x, choose_count(o, v.n_dims + 1, d, n, (int64_t[]){-n, 1}));
    y = choose_compare(o, "logical_or.default", y, x);
    dim[d] = n;
    onnx_put_value(o, "condition", y);
    onnx_put_value(o, "self", choose_number(o, host_element(values, 1)));
    onnx_put_value(o, "other", choose_number(o, host_element(values, 0)));
    y = onnx_make(o, "where.self", IMPORT_F32, v.n_dims + 1, dim);
    onnx_out(o, 0, onnx_cast(o, y, type));
}

static void choose_is_nan(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);

    (void)op;
    onnx_out(o, 0, choose_compare(o, "ne.Tensor", x, x));
}

static void choose_is_inf(struct onnx *o, const struct onnx_op *op)
{
    const int up = onnx_int(o, "detect_positive", 1) != 0,
              down = onnx_int(o, "detect_negative", 1) != 0;
    int x = onnx_in(o, 0);

    (void)op;
    if (!up && !down) {
        onnx_out(o, 0, choose_compare(o, "lt.Tensor", x, x));
        return;
    }
    if (up && down)
        x = onnx_unary(o, "abs.default", x);
    onnx_out(o, 0, choose_compare(o, "eq.Tensor", x, choose_number(o, up ? INFINITY : -INFINITY)));
}

/* x over its norm along a dimension, 0 where that is 0. */
static void choose_normalized(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0), d = choose_axis(o, x, -1);
    const int64_t p = onnx_int(o, "p", 2);
    int norm;

    (void)op;
    if (p != 1 && p != 2)
        onnx_fail(o, ERR_CONFIG, "its p is %lld, want 1 or 2", (long long)p);
    if (onnx_failed(o))
        return;
    norm = onnx_reduce(o, p == 1 ? "norm1" : "norm2", x, 1u << d, 1);
    norm = onnx_pair(
        o, "add.Tensor", norm,
        onnx_cast(o, choose_compare(o, "eq.Tensor", norm, choose_number(o, 0)), IMPORT_F32));
    onnx_out(o, 0, onnx_pair(o, "div.Tensor", x, norm));
}

const struct onnx_op onnx_choose[] = {
    {"ArgMax", choose_arg, NULL, 1, 0},
    {"ArgMin", choose_arg, NULL, 1, 0},
    {"Hardmax", choose_hardmax, NULL, 1, 0},
    {"OneHot", choose_one_hot, NULL, 3, 0},
    {"IsNaN", choose_is_nan, NULL, 1, 0},
    {"IsInf", choose_is_inf, NULL, 1, 0},
    {"LpNormalization", choose_normalized, NULL, 1, 0},
    {0},
};
