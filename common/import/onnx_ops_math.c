/* onnx_ops_math - ONNX's arithmetic on elements, activations and reductions.
 *
 * Those that PyTorch lacks are written out in its operators.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "import/onnx_impl.h"

/* ---- one operand ---- */

static void math_unary(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);

    onnx_put_value(o, "self", x);
    onnx_out(o, 0, onnx_make_like(o, op->target, x));
}

static int math_clamp(struct onnx *o, int x, double low, double high)
{
    onnx_put_value(o, "self", x);
    onnx_put_real(o, "min", low);
    onnx_put_real(o, "max", high);
    return onnx_make_like(o, "clamp.default", x);
}

static void math_hard_sigmoid(struct onnx *o, const struct onnx_op *op)
{
    const double alpha = onnx_real(o, "alpha", 0.2f), beta = onnx_real(o, "beta", 0.5);
    const int x = onnx_in(o, 0);

    if (fabs(alpha - 1.0 / 6) < 1e-6 && beta == 0.5)
        math_unary(o, op);
    else
        onnx_out(o, 0, math_clamp(o, onnx_affine(o, x, alpha, beta), 0, 1));
}

/* x sigmoid(alpha x). */
static void math_swish(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);
    const double alpha = onnx_real(o, "alpha", 1);
    int gate;

    if (alpha == 1) {
        math_unary(o, op);
        return;
    }
    gate = onnx_affine(o, x, alpha, 0);
    onnx_put_value(o, "self", gate);
    gate = onnx_make_like(o, "sigmoid.default", gate);
    onnx_out(o, 0, onnx_binary(o, "mul.Tensor", x, gate));
}

static void math_leaky_relu(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);

    onnx_put_value(o, "self", x);
    onnx_put_real(o, "negative_slope", onnx_real(o, "alpha", 0.01f));
    onnx_out(o, 0, onnx_make_like(o, op->target, x));
}

static int math_elu_of(struct onnx *o, int x, double alpha, double scale)
{
    onnx_put_value(o, "self", x);
    onnx_put_real(o, "alpha", alpha);
    onnx_put_real(o, "scale", scale);
    return onnx_make_like(o, "elu.default", x);
}

static void math_elu(struct onnx *o, const struct onnx_op *op)
{
    (void)op;
    onnx_out(o, 0, math_elu_of(o, onnx_in(o, 0), onnx_real(o, "alpha", 1), 1));
}

static void math_selu(struct onnx *o, const struct onnx_op *op)
{
    (void)op;
    onnx_out(o, 0,
             math_elu_of(o, onnx_in(o, 0), onnx_real(o, "alpha", 1.67326319217681884765625),
                         onnx_real(o, "gamma", 1.05070102214813232421875)));
}

/* alpha elu(x / alpha). */
static void math_celu(struct onnx *o, const struct onnx_op *op)
{
    const double alpha = onnx_real(o, "alpha", 1);
    const int x = onnx_affine(o, onnx_in(o, 0), 1 / alpha, 0);

    (void)op;
    onnx_out(o, 0, math_elu_of(o, x, 1, alpha));
}

static void math_gelu(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);

    onnx_put_value(o, "self", x);
    onnx_put_text(o, "approximate", onnx_text(o, "approximate", "none"));
    onnx_out(o, 0, onnx_make_like(o, op->target, x));
}

static void math_softplus(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);

    onnx_put_value(o, "self", x);
    onnx_put_real(o, "beta", 1);
    onnx_put_real(o, "threshold", 20); /* beyond it the result is x in float32 */
    onnx_out(o, 0, onnx_make_like(o, op->target, x));
}

/* x / (1 + |x|). */
static void math_softsign(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);

    (void)op;
    onnx_put_value(o, "self", x);
    onnx_out(
        o, 0,
        onnx_binary(o, "div.Tensor", x, onnx_affine(o, onnx_make_like(o, "abs.default", x), 1, 1)));
}

/* relu(x) + slope (x - relu(x)). */
static void math_prelu(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0), slope = onnx_in(o, 1);
    int up;

    (void)op;
    onnx_put_value(o, "self", x);
    up = onnx_make_like(o, "relu.default", x);
    onnx_out(o, 0,
             onnx_binary(o, "add.Tensor", up,
                         onnx_binary(o, "mul.Tensor", onnx_binary(o, "sub.Tensor", x, up), slope)));
}

static void math_thresholded(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);
    const struct import_value v = *onnx_value(o, x);
    int above;

    (void)op;
    onnx_put_value(o, "self", x);
    onnx_put_real(o, "other", onnx_real(o, "alpha", 1));
    above = onnx_make(o, "gt.Scalar", IMPORT_BOOL, v.n_dims, v.dim);
    onnx_put_value(o, "condition", above);
    onnx_put_value(o, "self", x);
    onnx_put_real(o, "other", 0);
    onnx_out(o, 0, onnx_make_like(o, "where.ScalarOther", x));
}

/* A number that is a constant input; def if it is left out. */
static double math_number(struct onnx *o, int i, double def)
{
    const int v = onnx_in(o, i);
    const struct host_tensor *h = onnx_host(o, v);

    if (v == IMPORT_NO_VALUE || onnx_failed(o))
        return def;
    if (h && host_count(h) == 1)
        return host_element(h, 0);
    onnx_fail(o, ERR_UNSUPPORTED, "its input %s is no constant number", onnx_value(o, v)->name);
    return def;
}

static void math_clip_integers(struct onnx *o, int x)
{
    static const char *const name[] = {"min", "max"};
    int64_t bound[2] = {INT64_MIN, INT64_MAX};

    for (int i = 0; i < 2; i++) {
        const struct host_tensor *h = onnx_host(o, onnx_in(o, 1 + i));

        (void)math_number(o, 1 + i, 0); /* fails if it is no constant number */
        if (h && !onnx_failed(o))
            bound[i] = host_integer(h, 0);
    }
    if (onnx_in(o, 1) == IMPORT_NO_VALUE && onnx_in(o, 2) == IMPORT_NO_VALUE) {
        onnx_out(o, 0, x);
        return;
    }
    bound[0] = min_i64(bound[0], bound[1]);
    onnx_put_value(o, "self", x);
    for (int i = 0; i < 2; i++)
        if (onnx_in(o, 1 + i) != IMPORT_NO_VALUE)
            onnx_put_int(o, name[i], bound[i]);
    onnx_out(o, 0, onnx_make_like(o, "clamp.default", x));
}

static void math_clip(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);
    const double low = math_number(o, 1, -(double)FLT_MAX),
                 high = math_number(o, 2, (double)FLT_MAX);

    (void)op;
    if (host_is_real(onnx_value(o, x)->type)) {
        onnx_out(o, 0, math_clamp(o, x, fmin(low, high), high));
        return;
    }
    math_clip_integers(o, x);
}

/* ---- two operands and more ---- */

static void math_binary(struct onnx *o, const struct onnx_op *op)
{
    const int a = onnx_in(o, 0), b = onnx_in(o, 1);
    const struct host_tensor *h = onnx_failed(o) ? NULL : o->fold.value[a];
    const int turns = op->target[0] == 'a' || op->target[0] == 'm'; /* add, mul: a b is b a */

    onnx_out(o, 0,
             turns && h ? onnx_binary(o, op->target, b, a) : onnx_binary(o, op->target, a, b));
}

static void math_div(struct onnx *o, const struct onnx_op *op)
{
    const int a = onnx_in(o, 0), b = onnx_in(o, 1);
    int64_t dim[IMPORT_MAX_DIMS];
    const int n = onnx_meet(o, a, b, dim);

    if (host_is_real(onnx_value(o, a)->type)) {
        onnx_out(o, 0, onnx_binary(o, op->target, a, b));
        return;
    }
    onnx_put_value(o, "self", a);
    onnx_put_value(o, "other", b);
    onnx_put_text(o, "rounding_mode", "trunc");
    onnx_out(o, 0, onnx_make(o, "div.Tensor_mode", onnx_value(o, a)->type, n, dim));
}

static void math_pow(struct onnx *o, const struct onnx_op *op)
{
    const int a = onnx_in(o, 0), b = onnx_in(o, 1);
    int64_t dim[IMPORT_MAX_DIMS];
    const int n = onnx_meet(o, a, b, dim);

    (void)op;
    if (!host_is_real(onnx_value(o, a)->type) && host_is_real(onnx_value(o, b)->type)) {
        onnx_fail(o, ERR_UNSUPPORTED, "it has whole numbers to a real power, want real numbers");
        return;
    }
    onnx_put_value(o, "self", a);
    onnx_put_number_or_value(o, "exponent", b, a);
    onnx_out(o, 0,
             onnx_make(o,
                       o->arg[1].kind == IMPORT_VALUE ? "pow.Tensor_Tensor" : "pow.Tensor_Scalar",
                       onnx_value(o, a)->type, n, dim));
}

/* The sign is the divisor's, or with fmod the dividend's. */
static void math_mod(struct onnx *o, const struct onnx_op *op)
{
    const int a = onnx_in(o, 0), b = onnx_in(o, 1);
    int size;

    if (!onnx_int(o, "fmod", 0)) {
        onnx_out(o, 0, onnx_pair(o, op->target, a, b));
        return;
    }
    size = onnx_unary(o, "abs.default", b);
    size = onnx_pair(o, op->target, onnx_unary(o, "abs.default", a), size);
    onnx_out(o, 0, onnx_pair(o, "mul.Tensor", onnx_unary(o, "sign.default", a), size));
}

/* Comparisons: booleans. */
static void math_compare(struct onnx *o, const struct onnx_op *op)
{
    const int a = onnx_in(o, 0), b = onnx_in(o, 1);
    int64_t dim[IMPORT_MAX_DIMS];
    const int n = onnx_meet(o, a, b, dim);

    onnx_put_value(o, "self", a);
    onnx_put_number_or_value(o, "other", b, a);
    onnx_out(o, 0, onnx_make(o, op->target, IMPORT_BOOL, n, dim));
}

/* Max, Min, Sum, Mean of all inputs. */
static void math_variadic(struct onnx *o, const struct onnx_op *op)
{
    const int n = (int)o->node->n_input;
    int y = onnx_in(o, 0);

    for (int i = 1; i < n && !onnx_failed(o); i++)
        if (onnx_in(o, i) == IMPORT_NO_VALUE)
            onnx_fail(o, ERR_CORRUPT,
                      "its input %d has no name; the file is damaged: export it again", i);
        else
            y = onnx_pair(o, op->target, y, onnx_in(o, i));
    if (!strcmp(op->name, "Mean"))
        y = onnx_affine(o, y, 1.0 / n, 0);
    onnx_out(o, 0, y);
}

static void math_logical(struct onnx *o, const struct onnx_op *op)
{
    onnx_out(o, 0, onnx_pair(o, op->target, onnx_in(o, 0), onnx_in(o, 1)));
}

static void math_where(struct onnx *o, const struct onnx_op *op)
{
    const int c = onnx_in(o, 0), a = onnx_in(o, 1), b = onnx_in(o, 2);
    struct import_value all;
    int64_t dim[IMPORT_MAX_DIMS], whole[IMPORT_MAX_DIMS];
    int n = onnx_meet(o, a, b, dim);

    if (onnx_failed(o))
        return;
    all = *onnx_value(o, onnx_value_new(o, "", IMPORT_F32, n, dim));
    n = onnx_meet(o, c, o->net->n_values - 1, whole);
    (void)all;
    onnx_put_value(o, "condition", c);
    onnx_put_value(o, "self", a);
    onnx_put_value(o, "other", b);
    onnx_out(o, 0, onnx_make(o, op->target, onnx_value(o, a)->type, n, whole));
}

static void math_to(struct onnx *o, const struct onnx_op *op)
{
    const int type = op->least == 2 ? (int)onnx_value(o, onnx_in(o, 1))->type
                                    : onnx_type((int32_t)onnx_int(o, "to", 0));

    if (type < 0)
        onnx_fail(o, ERR_UNSUPPORTED, "it casts to type %lld, which is not supported",
                  (long long)onnx_int(o, "to", 0));
    else
        onnx_out(o, 0, onnx_cast(o, onnx_in(o, 0), (enum import_type)type));
}

/* ---- along dimensions ---- */

static void math_softmax(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);

    onnx_put_value(o, "self", x);
    onnx_put_int(o, "dim", onnx_axis(o, onnx_int(o, "axis", -1), onnx_value(o, x)->n_dims));
    onnx_out(o, 0, onnx_make_like(o, op->target, x));
}

/* x behind a 0, without its last element along dim. */
static int math_shifted(struct onnx *o, int x, int dim)
{
    struct import_value v = *onnx_value(o, x);
    const int64_t n = v.dim[dim];
    int64_t pad[2 * IMPORT_MAX_DIMS] = {0};
    int first;

    if (!host_is_real(v.type)) {
        first = onnx_slice(o, x, dim, 0, 1, 1);
        first = onnx_pair(o, "sub.Tensor", first, first);
        return n < 2 ? first
                     : onnx_join(o, dim, (int[]){first, onnx_slice(o, x, dim, 0, n - 1, 1)}, 2);
    }
    pad[2 * (v.n_dims - 1 - dim)] = 1;
    v.dim[dim]++;
    onnx_put_value(o, "self", x);
    onnx_put_ints(o, "pad", pad, 2 * v.n_dims);
    onnx_put_real(o, "value", 0);
    x = onnx_make(o, "constant_pad_nd.default", v.type, v.n_dims, v.dim);
    return onnx_slice(o, x, dim, 0, n, 1);
}

/* Backwards: the sum of the reversed; exclusive: behind a 0, and without the last. */
static void math_cumsum(struct onnx *o, const struct onnx_op *op)
{
    const int is_exclusive = onnx_int(o, "exclusive", 0) != 0,
              is_back = onnx_int(o, "reverse", 0) != 0;
    int x = onnx_in(o, 0), axis;
    int64_t given = 0;

    onnx_host_ints(o, onnx_in(o, 1), "axis", &given, 1);
    axis = onnx_axis(o, given, onnx_value(o, x)->n_dims);
    if (onnx_failed(o))
        return; /* x may have no dimension at all */
    if (is_back)
        x = onnx_flip(o, x, axis);
    onnx_put_value(o, "self", x);
    onnx_put_int(o, "dim", axis);
    x = onnx_make_like(o, op->target, x);
    if (is_exclusive)
        x = math_shifted(o, x, axis);
    onnx_out(o, 0, is_back ? onnx_flip(o, x, axis) : x);
}

/* The reduction of no dimension: each number by itself. */
static int math_reduce_none(struct onnx *o, const char *name, int x)
{
    static const struct {
        const char *name, *target;
    } of[] = {{"ReduceL1", "abs.default"},
              {"ReduceL2", "abs.default"},
              {"ReduceSumSquare", "square.default"},
              {"ReduceLogSum", "log.default"}};

    for (size_t i = 0; i < ARRAY_LEN(of); i++)
        if (!strcmp(name, of[i].name))
            return onnx_unary(o, of[i].target, x);
    return x;
}

static void math_reduce(struct onnx *o, const struct onnx_op *op)
{
    int x = onnx_in(o, 0), is_given;
    const unsigned dims = onnx_axes(o, 1, onnx_value(o, x)->n_dims, &is_given);
    const int keep = onnx_int(o, "keepdims", 1) != 0;

    if (!is_given && onnx_int(o, "noop_with_empty_axes", 0)) {
        onnx_out(o, 0, math_reduce_none(o, op->name, x));
        return;
    }
    for (int d = 0; d < onnx_value(o, x)->n_dims; d++)
        if (op->target && op->target[0] == 'a' && (dims >> d & 1) &&
            onnx_value(o, x)->dim[d] == 0 && !onnx_failed(o))
            onnx_fail(o, ERR_UNSUPPORTED, "it reduces dimension %d, which has no elements", d);
    if (!strcmp(op->name, "ReduceSumSquare"))
        x = onnx_unary(o, "square.default", x);
    x = onnx_reduce(o, op->target, x, dims, keep);
    if (!strcmp(op->name, "ReduceLogSum"))
        x = onnx_unary(o, "log.default", x);
    onnx_out(o, 0, x);
}

/* The product along dim, in halves. */
static int math_product(struct onnx *o, int x, int dim)
{
    int64_t n = onnx_value(o, x)->dim[dim];

    while (n > 1 && !onnx_failed(o)) {
        const int rest = onnx_slice(o, x, dim, n / 2 * 2, n, 1),
                  y = onnx_pair(o, "mul.Tensor", onnx_slice(o, x, dim, 0, n / 2, 1),
                                onnx_slice(o, x, dim, n / 2, n / 2 * 2, 1));

        x = n % 2 ? onnx_join(o, dim, (int[]){y, rest}, 2) : y;
        n = n / 2 + n % 2;
    }
    return x;
}

static void math_prod(struct onnx *o, const struct onnx_op *op)
{
    int is_given, x = onnx_in(o, 0), n = 0;
    const struct import_value v = *onnx_value(o, x);
    const unsigned dims = onnx_axes(o, 1, v.n_dims, &is_given);
    const int keep = onnx_int(o, "keepdims", 1) != 0;
    int64_t dim[IMPORT_MAX_DIMS];

    if (!is_given && onnx_int(o, "noop_with_empty_axes", 0)) {
        onnx_out(o, 0, x);
        return;
    }
    if (dims == (1u << v.n_dims) - 1 && onnx_host(o, x)) {
        int64_t one[IMPORT_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};

        onnx_put_value(o, "self", x);
        x = onnx_make(o, op->target, v.type, 0, NULL);
        onnx_out(o, 0, onnx_reshape(o, x, one, keep ? v.n_dims : 0));
        return;
    }
    for (int d = 0; d < v.n_dims; d++) {
        if ((dims >> d & 1) && v.dim[d] < 1)
            onnx_fail(o, ERR_UNSUPPORTED, "it multiplies no elements of dimension %d", d);
        if (dims >> d & 1)
            x = math_product(o, x, d);
        if (keep || !(dims >> d & 1))
            dim[n++] = dims >> d & 1 ? 1 : v.dim[d];
    }
    onnx_out(o, 0, onnx_reshape(o, x, dim, n));
}

#define UNARY(name, target)                       \
    {                                             \
        name, math_unary, target ".default", 1, 0 \
    }

const struct onnx_op onnx_math[] = {
    UNARY("Relu", "relu"),
    UNARY("Sigmoid", "sigmoid"),
    UNARY("Tanh", "tanh"),
    UNARY("Abs", "abs"),
    UNARY("Neg", "neg"),
    UNARY("Exp", "exp"),
    UNARY("Log", "log"),
    UNARY("Sqrt", "sqrt"),
    UNARY("Reciprocal", "reciprocal"),
    UNARY("Sin", "sin"),
    UNARY("Cos", "cos"),
    UNARY("Erf", "erf"),
    UNARY("Sign", "sign"),
    UNARY("Floor", "floor"),
    UNARY("Ceil", "ceil"),
    UNARY("Round", "round"),
    {"HardSwish", math_unary, "hardswish.default", 1, 14},
    {"Mish", math_unary, "mish.default", 1, 18},
    {"Swish", math_swish, "silu.default", 1, 24},
    UNARY("Not", "logical_not"),
    {"HardSigmoid", math_hard_sigmoid, "hardsigmoid.default", 1, 0},
    {"LeakyRelu", math_leaky_relu, "leaky_relu.default", 1, 0},
    {"Elu", math_elu, NULL, 1, 0},
    {"Selu", math_selu, NULL, 1, 0},
    {"Celu", math_celu, NULL, 1, 0},
    {"Gelu", math_gelu, "gelu.default", 1, 20},
    {"Softplus", math_softplus, "softplus.default", 1, 0},
    {"Softsign", math_softsign, NULL, 1, 0},
    {"PRelu", math_prelu, NULL, 2, 0},
    {"ThresholdedRelu", math_thresholded, NULL, 1, 0},
    {"Clip", math_clip, NULL, 1, 0},
    {"Add", math_binary, "add.Tensor", 2, 0},
    {"Sub", math_binary, "sub.Tensor", 2, 0},
    {"Mul", math_binary, "mul.Tensor", 2, 0},
    {"Div", math_div, "div.Tensor", 2, 0},
    {"Pow", math_pow, NULL, 2, 0},
    {"Mod", math_mod, "remainder.Tensor", 2, 0},
    {"Equal", math_compare, "eq.Tensor", 2, 0},
    {"Less", math_compare, "lt.Tensor", 2, 0},
    {"LessOrEqual", math_compare, "le.Tensor", 2, 0},
    {"Greater", math_compare, "gt.Tensor", 2, 0},
    {"GreaterOrEqual", math_compare, "ge.Tensor", 2, 0},
    {"And", math_logical, "logical_and.default", 2, 0},
    {"Or", math_logical, "logical_or.default", 2, 0},
    {"Xor", math_logical, "logical_xor.default", 2, 0},
    {"Max", math_variadic, "maximum.default", 1, 0},
    {"Min", math_variadic, "minimum.default", 1, 0},
    {"Sum", math_variadic, "add.Tensor", 1, 0},
    {"Mean", math_variadic, "add.Tensor", 1, 0},
    {"Where", math_where, "where.self", 3, 0},
    {"Cast", math_to, NULL, 1, 0},
    {"CastLike", math_to, NULL, 2, 15},
    {"Softmax", math_softmax, "softmax.int", 1, 0},
    {"LogSoftmax", math_softmax, "log_softmax.int", 1, 0},
    {"CumSum", math_cumsum, "cumsum.default", 2, 0},
    {"ReduceMean", math_reduce, "mean.dim", 1, 0},
    {"ReduceSum", math_reduce, "sum.dim_IntList", 1, 0},
    {"ReduceMax", math_reduce, "amax.default", 1, 0},
    {"ReduceMin", math_reduce, "amin.default", 1, 0},
    {"ReduceL1", math_reduce, "norm1", 1, 0},
    {"ReduceL2", math_reduce, "norm2", 1, 0},
    {"ReduceSumSquare", math_reduce, "sum.dim_IntList", 1, 0},
    {"ReduceLogSum", math_reduce, "sum.dim_IntList", 1, 0},
    {"ReduceLogSumExp", math_reduce, "logsumexp.default", 1, 0},
    {"ReduceProd", math_prod, "prod.default", 1, 0},
    {0},
};
