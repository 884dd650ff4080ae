/* builders_math - arithmetic on elements, activations, and reductions.  Constants that are read
 * here become values of the graph. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "import/lower_impl.h"

/* ---- activations ---- */

static struct lowered builders_activate(struct lower *l, struct lowered x, enum activation kind)
{
    x = lower_spread(l, x);
    return lower_with(x, compose_activation(&l->c, kind, x.value));
}

static void builders_activation(struct lower *l, int kind)
{
    lower_set(l, 0, builders_activate(l, lower_in(l, "self", 0), (enum activation)kind));
}

static void builders_gelu(struct lower *l, int kind)
{
    const struct import_arg *a = lower_arg(l, "approximate", 1);
    const int is_tanh = a && a->text && a->text[0] == 't';

    (void)kind;
    lower_set(l, 0,
              builders_activate(l, lower_in(l, "self", 0), is_tanh ? ACT_GELU_TANH : ACT_GELU));
}

static struct lowered with_constants(struct lower *l, enum elementwise kind, struct lowered x,
                                     double p, double q)
{
    x = lower_real_value(l, x);
    return lower_failed(l)
               ? x
               : lower_with(x, compose_constants(&l->c, kind, x.value, (float)p, (float)q));
}

/* kind: the limits are the arguments, or 0 and 6. */
enum { CLAMP, CLAMP_MIN, CLAMP_MAX, HARD_TANH, RELU6 };

static void builders_limits(struct lower *l, int kind)
{
    const char *low = kind == HARD_TANH ? "min_val" : "min",
               *high = kind == HARD_TANH ? "max_val" : "max";
    const double def = kind == HARD_TANH ? 1 : (double)FLT_MAX;
    double p = lower_real(l, low, 1, -def), q = lower_real(l, high, kind == CLAMP_MAX ? 1 : 2, def);

    if (kind == RELU6) {
        p = 0;
        q = 6;
    }
    if (lower_clip_integers(l, p, q))
        return;
    if (p > q)
        lower_fail(l, ERR_UNSUPPORTED, "its lower limit %g is above the upper one, %g", p, q);
    lower_set(
        l, 0,
        with_constants(l, EW_CLIP, lower_in(l, "self", 0), fmax(p, -FLT_MAX), fmin(q, FLT_MAX)));
}

static void builders_leaky_relu(struct lower *l, int kind)
{
    const double slope = lower_real(l, "negative_slope", 1, 0.01);

    (void)kind;
    lower_set(l, 0, with_constants(l, EW_LEAKY, lower_in(l, "self", 0), slope, 0));
}

static void builders_elu(struct lower *l, int kind)
{
    (void)kind;
    if (lower_real(l, "input_scale", 3, 1) != 1)
        lower_fail(l, ERR_UNSUPPORTED, "input_scale is %g, want 1",
                   lower_real(l, "input_scale", 3, 1));
    lower_set(l, 0,
              with_constants(l, EW_ELU, lower_in(l, "self", 0), lower_real(l, "alpha", 1, 1),
                             lower_real(l, "scale", 2, 1)));
}

static void builders_softplus(struct lower *l, int kind)
{
    (void)kind;
    lower_set(l, 0,
              with_constants(l, EW_SOFTPLUS, lower_in(l, "self", 0), lower_real(l, "beta", 1, 1),
                             lower_real(l, "threshold", 2, 20)));
}

/* ---- arithmetic ---- */

/* Fails where bits of integers are meant, which graph values do not have. */
static void math_need_flags(struct lower *l)
{
    const enum import_type type = l->net->value[l->node->out[0]].type;

    if (type != IMPORT_BOOL)
        lower_fail(l, ERR_UNSUPPORTED, "it works on the bits of %s, which are no constants here",
                   import_type_name(type));
}

static void builders_unary(struct lower *l, int kind)
{
    if (kind == EW_NOT)
        math_need_flags(l);
    lower_set(l, 0, with_constants(l, (enum elementwise)kind, lower_in(l, "self", 0), 0, 0));
}

static int math_is_integers(const struct lower *l, const struct lowered *x)
{
    return x->kind == LOWERED_VALUE && l->m->g->value[x->value].dtype == DTYPE_I32;
}

/* Whole numbers stay what they are. */
void lower_round(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "self", 0);

    if (kind == EW_ROUND && lower_int(l, "decimals", 1, 0) != 0)
        lower_fail(l, ERR_UNSUPPORTED, "it rounds to decimals, want whole numbers");
    lower_set(l, 0,
              math_is_integers(l, &x) ? x : with_constants(l, (enum elementwise)kind, x, 0, 0));
}

static int math_is_number(const struct lower *l, const char *name, int place)
{
    const struct import_arg *a = lower_arg(l, name, place);

    return a && (a->kind == IMPORT_REAL || a->kind == IMPORT_INT || a->kind == IMPORT_FLAG);
}

/* x kind number. */
static struct lowered with_number(struct lower *l, enum elementwise kind, struct lowered x,
                                  double number)
{
    struct lowered k = {.kind = LOWERED_VALUE};
    const float v = (float)number;

    switch (kind) {
    case EW_ADD:
        return with_constants(l, EW_AFFINE, x, 1, number);
    case EW_SUB:
        return with_constants(l, EW_AFFINE, x, 1, -number);
    case EW_MUL:
        return with_constants(l, EW_AFFINE, x, number, 0);
    case EW_POW:
        x = lower_real_value(l, x);
        return lower_failed(l) ? x : lower_with(x, compose_power(&l->c, x.value, number));
    default:
        if (kind >= EW_EQ && kind <= EW_GE && math_is_integers(l, &x) && number >= INT32_MIN &&
            number <= INT32_MAX && number == (int32_t)number)
            return lower_with(x, compose_compare(&l->c, kind, x.value, (int32_t)number));
        k.value = graph_const(l->m->g, DTYPE_F32, (struct shape){0}, &v, "number");
        return lower_binary(l, kind, x, k);
    }
}

/* Operands `self` and `other`; alpha times the other for sums. */
static void builders_binary(struct lower *l, int kind)
{
    const int is_flag = l->net->value[l->node->out[0]].type == IMPORT_BOOL;
    struct lowered a = lower_in(l, "self", 0), b, y;
    const double alpha = kind == EW_ADD || kind == EW_SUB ? lower_real(l, "alpha", 2, 1) : 1;
    const char *other = kind == EW_POW ? "exponent" : "other";

    if (lower_integers(l, (enum elementwise)kind) ||
        lower_compare_integers(l, (enum elementwise)kind))
        return;
    if (kind == EW_AND || kind == EW_OR ||
        (kind == EW_XOR && strncmp(l->node->target, "logical", 7)))
        math_need_flags(l);
    if (kind == EW_ADD && is_flag) /* the sum of booleans is one */
        kind = EW_OR;
    if (lower_failed(l))
        return;
    if (math_is_number(l, other, 1)) {
        if (math_is_integers(l, &a) && (kind < EW_EQ || kind > EW_GE))
            a = lower_as_real(l, a);
        if (a.kind == LOWERED_DRAW && kind == EW_ADD)
            lower_set(l, 0, lower_draw_plus(l, a, lower_real(l, other, 1, 0)));
        else
            lower_set(
                l, 0,
                with_number(l, (enum elementwise)kind, a, alpha * lower_real(l, other, 1, 0)));
        return;
    }
    b = lower_in(l, other, 1);
    if (lower_failed(l))
        return;
    if (math_is_integers(l, &a))
        a = lower_as_real(l, a);
    if (math_is_integers(l, &b))
        b = lower_as_real(l, b);
    if (kind == EW_MUL && (a.kind == LOWERED_DRAW || b.kind == LOWERED_DRAW)) {
        lower_set(l, 0,
                  a.kind == LOWERED_DRAW ? lower_draw_times(l, a, b) : lower_draw_times(l, b, a));
        return;
    }
    if (alpha != 1)
        b = with_constants(l, EW_AFFINE, b, alpha, 0);
    if (!lower_failed(l) && ((kind == EW_MUL && lower_recognise(l, &a, &b, &y)) ||
                             (kind == EW_ADD && lower_recognise_sum(l, &a, &b, &y))))
        lower_set(l, 0, y);
    else if (!lower_failed(l))
        lower_set(l, 0, lower_binary(l, (enum elementwise)kind, a, b));
}

static void builders_div(struct lower *l, int kind)
{
    struct lowered a = lower_in(l, "self", 0);
    const struct import_arg *mode = lower_arg(l, "rounding_mode", 2);

    (void)kind;
    if (lower_failed(l))
        return;
    if (mode && mode->kind == IMPORT_TEXT) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "its rounding_mode is %s, want none: divide, and call %s for the quotient",
                   mode->text, mode->text);
        return;
    }
    if (!math_is_number(l, "other", 1)) {
        builders_binary(l, EW_DIV);
        return;
    }
    if (a.kind == LOWERED_DRAW) {
        lower_set(l, 0, lower_draw_over(l, a, lower_real(l, "other", 1, 1)));
        return;
    }
    lower_set(l, 0, with_constants(l, EW_AFFINE, a, 1 / lower_real(l, "other", 1, 1), 0));
}

/* other - alpha * self. */
static void builders_rsub(struct lower *l, int kind)
{
    const double alpha = lower_real(l, "alpha", 2, 1);
    struct lowered a = lower_in(l, "self", 0);

    (void)kind;
    if (alpha != 1)
        a = with_constants(l, EW_AFFINE, a, alpha, 0);
    if (math_is_number(l, "other", 1))
        lower_set(l, 0, with_constants(l, EW_AFFINE, a, -1, lower_real(l, "other", 1, 0)));
    else
        lower_set(l, 0, lower_binary(l, EW_SUB, lower_in(l, "other", 1), a));
}

static void builders_where(struct lower *l, int kind)
{
    struct lowered c = lower_in(l, "condition", 0), a = {0}, b = {0}, y;

    (void)kind;
    for (int i = 0; i < 2; i++) {
        struct lowered *x = i ? &b : &a;
        const char *name = i ? "other" : "self";

        if (math_is_number(l, name, 1 + i)) {
            const float v = (float)lower_real(l, name, 1 + i, 0);

            *x = (struct lowered){
                .kind = LOWERED_VALUE,
                .value = graph_const(l->m->g, DTYPE_F32, (struct shape){0}, &v, "number")};
        } else {
            *x = lower_in(l, name, 1 + i);
        }
    }
    if (lower_failed(l))
        return;
    y = lower_meet(l, (struct lowered *[]){&c, &a, &b}, 3);
    if (!lower_failed(l))
        lower_set(l, 0, lower_with(y, compose_where(&l->c, c.value, a.value, b.value)));
}

static void builders_masked_fill(struct lower *l, int kind)
{
    const float v = (float)lower_real(l, "value", 2, 0);
    struct lowered x = lower_in(l, "self", 0), mask = lower_in(l, "mask", 1), y;
    struct lowered fill = {.kind = LOWERED_VALUE,
                           .value = graph_const(l->m->g, DTYPE_F32, (struct shape){0}, &v, "fill")};

    (void)kind;
    if (lower_failed(l))
        return;
    y = lower_meet(l, (struct lowered *[]){&x, &mask, &fill}, 3);
    if (!lower_failed(l))
        lower_set(l, 0, lower_with(y, compose_where(&l->c, mask.value, fill.value, x.value)));
}

/* ---- reductions ---- */

static struct lowered builders_reduced(struct lower *l, struct lowered x, unsigned dims, int keep,
                                       int value)
{
    struct lowered y = lower_with(x, value);

    if (!keep)
        return lower_without(x, dims, value);
    for (int d = 0; d < x.n; d++)
        if (dims >> d & 1)
            y.dim[d] = extent_of(1);
    (void)l;
    return y;
}

/* A reduction over everything is a loss that the network computes; others over the batch would mix
 * samples. */
static int reduce_is_mixed(struct lower *l, const struct lowered *x, unsigned dims)
{
    int has_batch = 0;

    for (int d = 0; d < x->n; d++)
        has_batch |= x->dim[d].is_batch;
    if (has_batch && dims == (1u << x->n) - 1)
        return 1;
    lower_refuse_batch(l, x, dims, "reduces");
    return 0;
}

struct lowered lower_reduce(struct lower *l, enum reduction kind, struct lowered x, unsigned dims,
                            int keep)
{
    x = lower_spread(l, x);
    x.is_mixed |= reduce_is_mixed(l, &x, dims);
    if (lower_failed(l) || dims == 0)
        return x;
    return builders_reduced(l, x, dims, keep,
                            compose_reduce(&l->c, kind, x.value, lower_axes(&x, dims), keep));
}

static void builders_reduce(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "self", 0);
    const unsigned dims = lower_dims(l, 1, x.n);

    if (lower_failed(l))
        return;
    if (kind == REDUCE_SUM && (dims & (dims - 1)) == 0 && dims &&
        lower_is_whole(l->net->value[l->node->out[0]].type)) {
        lower_refuse_batch(l, &x, dims, "reduces");
        lower_integer_sum(l, __builtin_ctz(dims), 0, (int)lower_int(l, "keepdim", 2, 0));
        return;
    }
    lower_set(l, 0,
              lower_reduce(l, (enum reduction)kind, x, dims, (int)lower_int(l, "keepdim", 2, 0)));
}

static void builders_any(struct lower *l, int kind)
{
    const int self = lower_value_of(l, "self", 0);

    if (self != IMPORT_NO_VALUE && l->net->value[self].type != IMPORT_BOOL)
        lower_fail(l, ERR_UNSUPPORTED, "it asks for any, or all, of %s; compare them with 0 first",
                   import_type_name(l->net->value[self].type));
    builders_reduce(l, kind);
}

static void builders_norm(struct lower *l, int kind)
{
    struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    const double p = lower_real(l, kind ? "p" : "ord", 1, 2);
    const unsigned dims = lower_dims(l, 2, x.n);
    const int keep = (int)lower_int(l, "keepdim", 3, 0);

    x.is_mixed |= reduce_is_mixed(l, &x, dims);
    if (!lower_failed(l))
        lower_set(l, 0,
                  builders_reduced(l, x, dims, keep,
                                   compose_norm(&l->c, x.value, p, lower_axes(&x, dims), keep)));
}

/* The product along the graph's dimension dim, in halves: its gradient is right beside zeros, too.
 */
static int prod_along(struct compose *c, int x, int dim)
{
    while (c->rc == 0 && c->g->value[x].shape.dim[dim] > 1) {
        const int64_t n = c->g->value[x].shape.dim[dim], half = n / 2;
        const int y = compose_elementwise(c, EW_MUL, compose_slice(c, x, dim, 0, half, 1),
                                          compose_slice(c, x, dim, half, 2 * half, 1));

        x = n % 2 ? compose_concat(c, (int[]){y, compose_slice(c, x, dim, n - 1, n, 1)}, 2, dim)
                  : y;
    }
    return x;
}

/* kind: 1: of one dimension, 0: of all */
static void builders_prod(struct lower *l, int kind)
{
    struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    const unsigned dims = kind      ? 1u << lower_dim(l, "dim", 1, x.n, 0)
                          : x.n > 0 ? (1u << x.n) - 1
                                    : 0;
    const int keep = kind ? (int)lower_int(l, "keepdim", 2, 0) : 0;
    int y = x.value;

    lower_refuse_batch(l, &x, dims, "multiplies");
    for (int d = 0; d < x.n && !lower_failed(l); d++) {
        if ((dims >> d & 1) && l->m->g->value[y].shape.dim[x.at[d]] < 1)
            lower_fail(l, ERR_UNSUPPORTED, "it multiplies no elements of dimension %d", d);
        else if (dims >> d & 1)
            y = prod_along(&l->c, y, x.at[d]);
    }
    if (!lower_failed(l))
        lower_set(
            l, 0,
            builders_reduced(l, x, dims, keep,
                             compose_reduce(&l->c, REDUCE_SUM, y, lower_axes(&x, dims), keep)));
}

static void builders_log_sum_exp(struct lower *l, int kind)
{
    struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    const unsigned dims = lower_dims(l, 1, x.n);
    const int keep = (int)lower_int(l, "keepdim", 2, 0);

    (void)kind;
    x.is_mixed |= reduce_is_mixed(l, &x, dims);
    if (!lower_failed(l))
        lower_set(l, 0,
                  builders_reduced(l, x, dims, keep,
                                   compose_logsumexp(&l->c, x.value, lower_axes(&x, dims), keep)));
}

static void builders_softmax(struct lower *l, int kind)
{
    struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    const int dim = lower_dim(l, "dim", 1, x.n, -1);

    lower_refuse_batch(l, &x, 1u << dim, "normalises");
    if (!lower_failed(l))
        lower_set(l, 0, lower_with(x, compose_softmax(&l->c, x.value, x.at[dim], kind)));
}

static void builders_cumsum(struct lower *l, int kind)
{
    struct lowered x = lower_spread(l, lower_in(l, "self", 0));
    const int dim = lower_dim(l, "dim", 1, x.n, -1);

    (void)kind;
    lower_refuse_batch(l, &x, 1u << dim, "scans");
    if (!lower_failed(l) && lower_is_whole(l->net->value[l->node->out[0]].type)) {
        lower_integer_sum(l, dim, 1, 1);
        return;
    }
    if (!lower_failed(l))
        lower_set(l, 0, lower_with(x, compose_cumsum(&l->c, x.value, x.at[dim])));
}

#define BOTH(name, overload, build, kind) \
    {name "." overload, build, kind}, { name "_." overload, build, kind }

const struct import_builder import_math[] = {
    BOTH("relu", "default", builders_activation, ACT_RELU),
    BOTH("tanh", "default", builders_activation, ACT_TANH),
    BOTH("sigmoid", "default", builders_activation, ACT_SIGMOID),
    BOTH("silu", "default", builders_activation, ACT_SILU),
    BOTH("gelu", "default", builders_gelu, 0),
    BOTH("leaky_relu", "default", builders_leaky_relu, 0),
    BOTH("relu6", "default", builders_limits, RELU6),
    BOTH("hardsigmoid", "default", builders_unary, EW_HARDSIGMOID),
    BOTH("hardswish", "default", builders_unary, EW_HARDSWISH),
    BOTH("hardtanh", "default", builders_limits, HARD_TANH),
    BOTH("clamp", "default", builders_limits, CLAMP),
    BOTH("clamp_min", "default", builders_limits, CLAMP_MIN),
    BOTH("clamp_max", "default", builders_limits, CLAMP_MAX),
    BOTH("neg", "default", builders_unary, EW_NEG),
    BOTH("abs", "default", builders_unary, EW_ABS),
    BOTH("exp", "default", builders_unary, EW_EXP),
    BOTH("log", "default", builders_unary, EW_LOG),
    BOTH("sqrt", "default", builders_unary, EW_SQRT),
    BOTH("rsqrt", "default", builders_unary, EW_RSQRT),
    BOTH("reciprocal", "default", builders_unary, EW_RECIPROCAL),
    BOTH("sin", "default", builders_unary, EW_SIN),
    BOTH("cos", "default", builders_unary, EW_COS),
    BOTH("erf", "default", builders_unary, EW_ERF),
    BOTH("square", "default", builders_unary, EW_SQUARE),
    BOTH("log1p", "default", builders_unary, EW_LOG1P),
    BOTH("expm1", "default", builders_unary, EW_EXPM1),
    BOTH("mish", "default", builders_unary, EW_MISH),
    BOTH("sign", "default", builders_unary, EW_SIGN),
    BOTH("ceil", "default", lower_round, EW_CEIL),
    BOTH("round", "default", lower_round, EW_ROUND),
    BOTH("trunc", "default", lower_round, EW_TRUNC),
    BOTH("remainder", "Tensor", builders_binary, EW_REMAINDER),
    BOTH("remainder", "Scalar", builders_binary, EW_REMAINDER),
    BOTH("elu", "default", builders_elu, 0),
    {"softplus.default", builders_softplus, 0},
    {"logical_not.default", builders_unary, EW_NOT},
    {"bitwise_not.default", builders_unary, EW_NOT},
    BOTH("add", "Tensor", builders_binary, EW_ADD),
    BOTH("sub", "Tensor", builders_binary, EW_SUB),
    BOTH("mul", "Tensor", builders_binary, EW_MUL),
    BOTH("add", "Scalar", builders_binary, EW_ADD),
    BOTH("sub", "Scalar", builders_binary, EW_SUB),
    BOTH("mul", "Scalar", builders_binary, EW_MUL),
    BOTH("div", "Tensor", builders_div, 0),
    BOTH("div", "Scalar", builders_div, 0),
    BOTH("div", "Tensor_mode", builders_div, 0),
    BOTH("pow", "Tensor_Scalar", builders_binary, EW_POW),
    BOTH("pow", "Tensor_Tensor", builders_binary, EW_POW),
    {"rsub.Scalar", builders_rsub, 0},
    {"rsub.Tensor", builders_rsub, 0},
    {"maximum.default", builders_binary, EW_MAX},
    {"minimum.default", builders_binary, EW_MIN},
    {"eq.Scalar", builders_binary, EW_EQ},
    {"eq.Tensor", builders_binary, EW_EQ},
    {"ne.Scalar", builders_binary, EW_NE},
    {"ne.Tensor", builders_binary, EW_NE},
    {"lt.Scalar", builders_binary, EW_LT},
    {"lt.Tensor", builders_binary, EW_LT},
    {"le.Scalar", builders_binary, EW_LE},
    {"le.Tensor", builders_binary, EW_LE},
    {"gt.Scalar", builders_binary, EW_GT},
    {"gt.Tensor", builders_binary, EW_GT},
    {"ge.Scalar", builders_binary, EW_GE},
    {"ge.Tensor", builders_binary, EW_GE},
    {"__and__.Tensor", builders_binary, EW_AND},
    {"__or__.Tensor", builders_binary, EW_OR},
    {"__xor__.Tensor", builders_binary, EW_XOR},
    {"bitwise_and.Tensor", builders_binary, EW_AND},
    {"bitwise_or.Tensor", builders_binary, EW_OR},
    {"bitwise_xor.Tensor", builders_binary, EW_XOR},
    {"logical_and.default", builders_binary, EW_AND},
    {"logical_or.default", builders_binary, EW_OR},
    {"logical_xor.default", builders_binary, EW_XOR},
    {"where.self", builders_where, 0},
    {"where.ScalarSelf", builders_where, 0},
    {"where.ScalarOther", builders_where, 0},
    BOTH("masked_fill", "Scalar", builders_masked_fill, 0),
    {"mean.dim", builders_reduce, REDUCE_MEAN},
    {"mean.default", builders_reduce, REDUCE_MEAN},
    {"any.dim", builders_any, REDUCE_MAX},
    {"any.dims", builders_any, REDUCE_MAX},
    {"all.dim", builders_any, REDUCE_MIN},
    {"all.dims", builders_any, REDUCE_MIN},
    {"sum.dim_IntList", builders_reduce, REDUCE_SUM},
    {"sum.default", builders_reduce, REDUCE_SUM},
    {"amax.default", builders_reduce, REDUCE_MAX},
    {"amin.default", builders_reduce, REDUCE_MIN},
    {"linalg_vector_norm.default", builders_norm, 0},
    {"norm.ScalarOpt_dim", builders_norm, 1},
    {"prod.default", builders_prod, 0},
    {"prod.dim_int", builders_prod, 1},
    {"logsumexp.default", builders_log_sum_exp, 0},
    {"softmax.int", builders_softmax, 0},
    {"_softmax.default", builders_softmax, 0},
    {"log_softmax.int", builders_softmax, 1},
    {"cumsum.default", builders_cumsum, 0},
    {0},
};
