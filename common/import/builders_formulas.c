/* builders_formulas - operators that PyTorch has as one, and that are a few of ours: variances,
 * weight norm, activations with parameters, and the largest elements of a dimension. */
#include <float.h>
#include <math.h>

#include "import/lower_impl.h"

/* A number, which broadcasts against everything. */
static struct lowered formulas_number(struct lower *l, double number)
{
    return (struct lowered){.kind = LOWERED_VALUE, .value = compose_scalar(&l->c, number)};
}

static struct lowered formulas_times(struct lower *l, struct lowered x, double by, double plus)
{
    return lower_failed(l) ? x
                           : lower_with(x, compose_constants(&l->c, EW_AFFINE, x.value, (float)by,
                                                             (float)plus));
}

/* ---- variances ---- */

enum { FORMULAS_VAR = 1, FORMULAS_STD, FORMULAS_VAR_MEAN, FORMULAS_STD_MEAN };

/* x reduced to `value`, with extents of 1 at dims, or without these. */
static struct lowered formulas_reduced(struct lower *l, struct lowered x, unsigned dims, int keep,
                                       int value)
{
    for (int d = 0; d < x.n; d++)
        if (dims >> d & 1)
            x.dim[d] = extent_of(1);
    x = lower_with(x, value);
    return keep ? x : lower_squeeze(l, x, dims);
}

/* The number that divides the sum of squares: n - 1, or n - correction. */
static double formulas_divisor(struct lower *l, const struct lowered *x, unsigned dims)
{
    const struct import_arg *unbiased = lower_arg(l, "unbiased", 2);
    const int by_flag = unbiased && unbiased->kind == IMPORT_FLAG;
    const double correction =
        by_flag ? (double)unbiased->ints[0].number : lower_real(l, "correction", 2, 1);
    double n = 1;

    for (int d = 0; d < x->n; d++)
        if (dims >> d & 1)
            n *= (double)extent_exported(l, x->dim[d]);
    if (!(n > correction))
        lower_fail(l, ERR_UNSUPPORTED,
                   "it divides by %g elements less %g, want more elements or unbiased=False", n,
                   correction);
    return n - correction;
}

static void builders_variance(struct lower *l, int kind)
{
    struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    const unsigned dims = lower_dims(l, 1, x.n), axes = lower_axes(&x, dims);
    const int keep = (int)lower_int(l, "keepdim", 3, 0);
    const double divisor = formulas_divisor(l, &x, dims);
    int mean, y;

    lower_refuse_batch(l, &x, dims, "reduces");
    if (lower_failed(l))
        return;
    mean = compose_reduce(&l->c, REDUCE_MEAN, x.value, axes, 1);
    y = compose_elementwise(&l->c, EW_SUB, x.value, mean);
    if (kind == FORMULAS_VAR || kind == FORMULAS_VAR_MEAN) {
        y = compose_elementwise(&l->c, EW_MUL, y, y);
        y = compose_reduce(&l->c, REDUCE_SUM, y, axes, 1);
        y = compose_constants(&l->c, EW_AFFINE, y, (float)(1 / divisor), 0);
    } else { /* without a gradient where it is 0, as PyTorch's */
        y = compose_norm(&l->c, y, 2, axes, 1);
        y = compose_constants(&l->c, EW_AFFINE, y, (float)(1 / sqrt(divisor)), 0);
    }
    if (lower_failed(l))
        return;
    lower_set(l, 0, formulas_reduced(l, x, dims, keep, y));
    if (kind >= FORMULAS_VAR_MEAN)
        lower_set(l, 1, formulas_reduced(l, x, dims, keep, mean));
}

/* ---- the largest elements of a dimension ---- */

/* The graph value x with axis `axis` as the rows of images, which pools take. */
static int formulas_rows(struct lower *l, int x, int axis)
{
    const struct shape s = l->m->g->value[x].shape;
    int64_t before = 1, behind = 1;

    for (int d = 0; d < s.n; d++)
        *(d < axis ? &before : &behind) *= d == axis ? 1 : s.dim[d];
    return compose_reshape(&l->c, x, SHAPE(before, s.dim[axis], 1, behind));
}

/* max.dim, and min.dim (kind 1).  Of equal elements the first one gets the gradient, as in a pool,
 * so it is one.  The places are the second output. */
static void builders_largest(struct lower *l, int kind)
{
    struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    const int dim = lower_dim(l, "dim", 1, x.n, 0);
    struct shape s;
    int64_t n;
    int y;

    lower_refuse_batch(l, &x, 1u << dim, "reduces");
    if (lower_failed(l) || x.n == 0) {
        lower_set(l, 0, x);
        return;
    }
    n = extent_exported(l, x.dim[dim]);
    if (n < 1 || n > INT32_MAX) {
        lower_fail(l, ERR_UNSUPPORTED, "dimension %d has %lld elements, want 1 or more", dim,
                   (long long)n);
        return;
    }
    s = l->m->g->value[x.value].shape;
    s.dim[x.at[dim]] = 1;
    y = kind ? compose_elementwise(&l->c, EW_NEG, x.value, NO_VALUE) : x.value;
    y = lower_failed(l) ? NO_VALUE : formulas_rows(l, y, x.at[dim]);
    y = compose_max_pool(
        &l->c, y,
        &(struct compose_window){
            .kernel = {(int)n, 1}, .stride = {(int)n, 1}, .dilation = {1, 1}, .groups = 1});
    y = compose_reshape(&l->c, y, s);
    y = kind ? compose_elementwise(&l->c, EW_NEG, y, NO_VALUE) : y;
    if (!lower_failed(l))
        lower_set(l, 0, formulas_reduced(l, x, 1u << dim, (int)lower_int(l, "keepdim", 2, 0), y));
    if (!lower_failed(l) && l->node->n_out > 1 && lower_is_read(l, l->node->out[1]))
        lower_set_place(l, 1, x, dim, kind);
}

/* ---- parameters in another form ---- */

/* v g / |v|, where |v| is that of all but dimension `dim`, or of all for -1. */
static void builders_weight_norm(struct lower *l, int kind)
{
    struct lowered v = lower_plain(l, lower_in(l, "v", 0)), g = lower_in(l, "g", 1), norm;
    const int64_t dim = lower_int(l, "dim", 2, 0);

    (void)kind;
    if (!lower_failed(l) && (v.n < 1 || dim < -1 || dim >= v.n))
        lower_fail(l, ERR_CONFIG, "dim is %lld of %d", (long long)dim, v.n);
    lower_refuse_batch(l, &v, ~0u, "normalises");
    if (lower_failed(l))
        return;
    norm = v;
    for (int d = 0; d < v.n; d++)
        if (d != dim)
            norm.dim[d] = extent_of(1);
    norm.value = compose_norm(&l->c, v.value, 2, ((1u << v.n) - 1) & ~(dim < 0 ? 0 : 1u << dim), 1);
    if (!lower_failed(l))
        lower_set(l, 0, lower_binary(l, EW_MUL, v, lower_binary(l, EW_DIV, g, norm)));
}

/* x where it is positive, else x times a parameter of one number, or of one for each channel. */
static void builders_prelu(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0), w = lower_in(l, "weight", 1), part, y;

    if (!lower_failed(l) && !kind && w.n == 1) {
        for (int d = 2; d < x.n; d++)
            w = lower_unsqueeze(l, w, w.n);
        if (x.n == 1 && !lower_failed(l) && !extent_is_one(w.dim[0]))
            lower_fail(l, ERR_CONFIG, "its input has 1 dimension and its weight %lld numbers",
                       (long long)extent_exported(l, w.dim[0]));
    }
    if (lower_failed(l))
        return;
    x = lower_spread(l, x);
    part = lower_binary(l, EW_MUL, x, w);
    y = lower_binary(l, EW_GT, x, formulas_number(l, 0));
    if (!lower_failed(l)) {
        struct lowered to = lower_meet(l, (struct lowered *[]){&y, &x, &part}, 3);

        if (!lower_failed(l))
            lower_set(l, 0, lower_with(to, compose_where(&l->c, y.value, x.value, part.value)));
    }
}

/* ---- arithmetic of three ---- */

/* self + weight (end - self), with a number as the weight. */
static void builders_lerp(struct lower *l, int kind)
{
    const double weight = lower_real(l, "weight", 2, 0);
    const struct lowered x = lower_in(l, "self", 0), end = lower_in(l, "end", 1);
    struct lowered step = lower_failed(l) ? x : lower_binary(l, EW_SUB, end, x);

    if (kind && !lower_failed(l))
        step = lower_binary(l, EW_MUL, step, lower_in(l, "weight", 2));
    else
        step = formulas_times(l, step, weight, 0);
    if (!lower_failed(l))
        lower_set(l, 0, lower_binary(l, EW_ADD, x, step));
}

/* self + value (tensor1 kind tensor2). */
static void builders_add_product(struct lower *l, int kind)
{
    const double value = lower_real(l, "value", 3, 1);
    const struct lowered x = lower_in(l, "self", 0), a = lower_in(l, "tensor1", 1),
                         b = lower_in(l, "tensor2", 2);
    struct lowered y = lower_failed(l) ? x : lower_binary(l, (enum elementwise)kind, a, b);

    if (value != 1)
        y = formulas_times(l, y, value, 0);
    if (!lower_failed(l))
        lower_set(l, 0, lower_binary(l, EW_ADD, x, y));
}

/* Limits that are tensors; kind: the sum of 1 for the lower one and 2 for the upper one. */
static void builders_limit(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0);

    for (int k = 0; k < 2 && !lower_failed(l); k++) {
        const struct lowered by = kind >> k & 1
                                      ? lower_in(l, k ? "max" : "min", k && kind == 3 ? 2 : 1)
                                      : (struct lowered){0};

        if (by.kind != LOWERED_NONE && !lower_failed(l))
            x = lower_binary(l, k ? EW_MIN : EW_MAX, x, by);
    }
    if (!lower_failed(l))
        lower_set(l, 0, x);
}

/* The first half of a dimension times the sigmoid of the second one. */
static void builders_glu(struct lower *l, int kind)
{
    struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    const int dim = lower_dim(l, "dim", 1, x.n, -1);
    const int64_t n = lower_failed(l) || x.n == 0 ? 0 : extent_exported(l, x.dim[dim]);
    int a, b;

    (void)kind;
    lower_refuse_batch(l, &x, 1u << dim, "splits");
    if (!lower_failed(l) && (n < 2 || n % 2))
        lower_fail(l, ERR_CONFIG, "it halves dimension %d of %lld elements", dim, (long long)n);
    if (lower_failed(l))
        return;
    a = compose_slice(&l->c, x.value, x.at[dim], 0, n / 2, 1);
    b = compose_slice(&l->c, x.value, x.at[dim], n / 2, n, 1);
    b = compose_activation(&l->c, ACT_SIGMOID, b);
    x.dim[dim] = extent_of(n / 2);
    lower_set(l, 0, lower_with(x, compose_elementwise(&l->c, EW_MUL, a, b)));
}

/* ---- activations, and functions of one tensor ---- */

enum { FORMULAS_SELU, FORMULAS_CELU, FORMULAS_LOG_SIGMOID, FORMULAS_LOG2, FORMULAS_LOG10 };

static struct lowered formulas_constants(struct lower *l, enum elementwise kind, struct lowered x,
                                         double p, double q)
{
    return lower_failed(l)
               ? x
               : lower_with(x, compose_constants(&l->c, kind, x.value, (float)p, (float)q));
}

static void builders_scaled(struct lower *l, int kind)
{
    const double alpha = lower_real(l, "alpha", 1, 1);
    struct lowered x = lower_spread(l, lower_in(l, "self", 0));

    switch (kind) {
    case FORMULAS_SELU:
        x = formulas_constants(l, EW_ELU, x, 1.6732632423543772, 1.0507009873554805);
        break;
    case FORMULAS_CELU:
        if (!(alpha > 0))
            lower_fail(l, ERR_UNSUPPORTED, "its alpha is %g, want a positive number", alpha);
        x = formulas_constants(l, EW_ELU, formulas_times(l, x, 1 / alpha, 0), 1, alpha);
        break;
    case FORMULAS_LOG_SIGMOID: /* -softplus(-x) */
        x = formulas_constants(l, EW_SOFTPLUS, formulas_times(l, x, -1, 0), 1, 20);
        x = formulas_times(l, x, -1, 0);
        break;
    default:
        x = formulas_constants(l, EW_LOG, x, 0, 0);
        x = formulas_times(l, x, 1 / log(kind == FORMULAS_LOG2 ? 2 : 10), 0);
    }
    if (!lower_failed(l))
        lower_set(l, 0, x);
}

/* A number to the power of x; kind 1: the number is 2. */
static void builders_power_of(struct lower *l, int kind)
{
    const double base = kind ? 2 : lower_real(l, "self", 0, 1);
    struct lowered x = lower_spread(l, lower_in(l, kind ? "self" : "exponent", !kind));

    if (!(base > 0))
        lower_fail(l, ERR_UNSUPPORTED, "its base is %g, want a positive number", base);
    x = formulas_constants(l, EW_EXP, formulas_times(l, x, log(base), 0), 0, 0);
    if (!lower_failed(l))
        lower_set(l, 0, x);
}

enum { FORMULAS_SOFT, FORMULAS_HARD, FORMULAS_THRESHOLD };

/* Activations that are a number within bounds: softshrink, hardshrink and threshold. */
static void builders_shrink(struct lower *l, int kind)
{
    const int is_threshold = kind == FORMULAS_THRESHOLD;
    const double limit = lower_real(l, is_threshold ? "threshold" : "lambd", 1, 0.5),
                 value = is_threshold ? lower_real(l, "value", 2, 0) : 0;
    struct lowered x = lower_spread(l, lower_in(l, "self", 0)), y;
    int far;

    if (!is_threshold && !(limit >= 0))
        lower_fail(l, ERR_UNSUPPORTED, "its lambd is %g, want 0 or more", limit);
    if (lower_failed(l))
        return;
    if (kind == FORMULAS_SOFT) {
        y = formulas_constants(l, EW_CLIP, x, -limit, limit);
        lower_set(l, 0, lower_with(x, compose_elementwise(&l->c, EW_SUB, x.value, y.value)));
        return;
    }
    far = is_threshold ? x.value : compose_elementwise(&l->c, EW_ABS, x.value, NO_VALUE);
    far = compose_elementwise(&l->c, EW_GT, far, compose_scalar(&l->c, limit));
    lower_set(l, 0,
              lower_with(x, compose_where(&l->c, far, x.value, compose_scalar(&l->c, value))));
}

/* ---- products along a dimension ---- */

/* x over its length along dim, of which the least is eps. */
static struct lowered formulas_normalized(struct lower *l, struct lowered x, int dim, double eps)
{
    struct lowered norm = x = lower_spread(l, x);

    if (lower_failed(l))
        return x;
    norm.dim[dim] = extent_of(1);
    norm.value = compose_norm(&l->c, x.value, 2, lower_axes(&x, 1u << dim), 1);
    norm = formulas_constants(l, EW_CLIP, norm, eps, FLT_MAX);
    return lower_failed(l) ? x : lower_binary(l, EW_DIV, x, norm);
}

static void builders_cosine(struct lower *l, int kind)
{
    struct lowered a = lower_in(l, "x1", 0), b = lower_in(l, "x2", 1);
    const int dim = lower_dim(l, "dim", 2, a.n, 1);
    const double eps = lower_real(l, "eps", 3, 1e-8);

    (void)kind;
    if (!lower_failed(l) && a.n != b.n)
        lower_fail(l, ERR_UNSUPPORTED, "its tensors have %d and %d dimensions, want as many", a.n,
                   b.n);
    lower_refuse_batch(l, &a, 1u << dim, "sums over");
    lower_refuse_batch(l, &b, 1u << dim, "sums over");
    a = formulas_normalized(l, a, dim, eps);
    b = formulas_normalized(l, b, dim, eps);
    if (lower_failed(l))
        return;
    a = lower_spread(l, lower_binary(l, EW_MUL, a, b));
    if (!lower_failed(l))
        lower_set(l, 0,
                  formulas_reduced(
                      l, a, 1u << dim, 0,
                      compose_reduce(&l->c, REDUCE_SUM, a.value, lower_axes(&a, 1u << dim), 1)));
}

/* Numbers in place of NaN and of the infinities. */
static void builders_nan_to_num(struct lower *l, int kind)
{
    const double nan = lower_real(l, "nan", 1, 0), most = lower_real(l, "posinf", 2, FLT_MAX),
                 least = lower_real(l, "neginf", 3, -FLT_MAX);
    const struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    struct compose *c = &l->c;
    int y, is_far;

    (void)kind;
    if (lower_failed(l))
        return;
    y = compose_where(c, compose_elementwise(c, EW_EQ, x.value, x.value), x.value,
                      compose_scalar(c, nan));
    is_far = compose_elementwise(c, EW_EQ, x.value, compose_scalar(c, INFINITY));
    y = compose_where(c, is_far, compose_scalar(c, most), y);
    is_far = compose_elementwise(c, EW_EQ, x.value, compose_scalar(c, -INFINITY));
    y = compose_where(c, is_far, compose_scalar(c, least), y);
    if (!lower_failed(l))
        lower_set(l, 0, lower_with(x, y));
}

enum { FORMULAS_IS_NAN, FORMULAS_IS_INF, FORMULAS_IS_FINITE };

static void builders_is_number(struct lower *l, int kind)
{
    const struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    struct compose *c = &l->c;
    int y;

    if (lower_failed(l))
        return;
    if (kind == FORMULAS_IS_NAN) {
        y = compose_elementwise(c, EW_NE, x.value, x.value);
    } else {
        y = compose_constants(c, EW_ABS, x.value, 0, 0);
        y = compose_elementwise(c, kind == FORMULAS_IS_INF ? EW_EQ : EW_LT, y,
                                compose_scalar(c, INFINITY));
    }
    if (!lower_failed(l))
        lower_set(l, 0, lower_with(x, y));
}

#define BOTH(name, build, kind) \
    {name ".default", build, kind}, { name "_.default", build, kind }

const struct import_builder import_formulas[] = {
    {"var.default", builders_variance, FORMULAS_VAR},
    {"var.dim", builders_variance, FORMULAS_VAR},
    {"var.correction", builders_variance, FORMULAS_VAR},
    {"std.default", builders_variance, FORMULAS_STD},
    {"std.dim", builders_variance, FORMULAS_STD},
    {"std.correction", builders_variance, FORMULAS_STD},
    {"var_mean.default", builders_variance, FORMULAS_VAR_MEAN},
    {"var_mean.dim", builders_variance, FORMULAS_VAR_MEAN},
    {"var_mean.correction", builders_variance, FORMULAS_VAR_MEAN},
    {"std_mean.default", builders_variance, FORMULAS_STD_MEAN},
    {"std_mean.dim", builders_variance, FORMULAS_STD_MEAN},
    {"std_mean.correction", builders_variance, FORMULAS_STD_MEAN},
    {"max.dim", builders_largest, 0},
    {"min.dim", builders_largest, 1},
    {"_weight_norm.default", builders_weight_norm, 0},
    {"_weight_norm_interface.default", builders_weight_norm, 0},
    {"prelu.default", builders_prelu, 0},
    {"_prelu_kernel.default", builders_prelu, 1},
    {"lerp.Scalar", builders_lerp, 0},
    {"lerp.Tensor", builders_lerp, 1},
    {"addcmul.default", builders_add_product, EW_MUL},
    {"addcdiv.default", builders_add_product, EW_DIV},
    {"glu.default", builders_glu, 0},
    {"clamp.Tensor", builders_limit, 3},
    {"clamp_min.Tensor", builders_limit, 1},
    {"clamp_max.Tensor", builders_limit, 2},
    BOTH("selu", builders_scaled, FORMULAS_SELU),
    BOTH("celu", builders_scaled, FORMULAS_CELU),
    BOTH("log2", builders_scaled, FORMULAS_LOG2),
    BOTH("log10", builders_scaled, FORMULAS_LOG10),
    BOTH("exp2", builders_power_of, 1),
    BOTH("threshold", builders_shrink, FORMULAS_THRESHOLD),
    {"log_sigmoid.default", builders_scaled, FORMULAS_LOG_SIGMOID},
    {"pow.Scalar", builders_power_of, 0},
    {"softshrink.default", builders_shrink, FORMULAS_SOFT},
    {"hardshrink.default", builders_shrink, FORMULAS_HARD},
    {"cosine_similarity.default", builders_cosine, 0},
    BOTH("nan_to_num", builders_nan_to_num, 0),
    {"isnan.default", builders_is_number, FORMULAS_IS_NAN},
    {"isinf.default", builders_is_number, FORMULAS_IS_INF},
    {"isfinite.default", builders_is_number, FORMULAS_IS_FINITE},
    {0},
};
