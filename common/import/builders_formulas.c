/* builders_formulas - operators that PyTorch has as one, and that are a few of ours: variances,
 * weight norm, activations with parameters, and the largest elements of a dimension. */
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
 * so it is one.  The indices are the second output, which has no value here. */
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
    {0},
};
