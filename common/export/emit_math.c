/* Arithmetic: element by element with broadcasting, reductions, products.  The formulas are those
 * of ir/elementwise.h and of op/NAME.c, in operators of ONNX. */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "export/emit.h"

/* ---- helpers ---- */

/* x != 0 as BOOL. */
static const char *as_truth(struct emit *e, const char *x) { return emit_cast_to(e, x, ONNX_BOOL); }

/* A BOOL as 0 or 1. */
static const char *zero_or_one(struct emit *e, const char *x)
{
    return emit_cast_to(e, x, ONNX_FLOAT);
}

/* e^x - 1, exact near 0: tanh(x / 2) (e^x + 1). */
static const char *exp_minus_1(struct emit *e, const char *x)
{
    const char *half = emit_1(e, "Tanh", emit_times(e, x, 0.5));

    return emit_2(e, "Mul", half, emit_plus(e, emit_1(e, "Exp", x), 1));
}

/* log(1 + x), exact near 0: with u = 1 + x as rounded, log(u) x / (u - 1), or x where u is 1. */
static const char *log_1_plus(struct emit *e, const char *x)
{
    const char *u = emit_plus(e, x, 1), *off = emit_plus(e, u, -1);
    const char *is_0 = emit_2(e, "Equal", off, emit_number(e, 0));
    const char *is_end = emit_1(e, "IsInf", x);
    const char *safe = emit_3(e, "Where", emit_2(e, "Or", is_0, is_end), emit_number(e, 1), off);
    const char *log = emit_1(e, "Log", u), *y;

    y = emit_2(e, "Mul", log, emit_2(e, "Div", emit_3(e, "Where", is_end, safe, x), safe));
    return emit_3(e, "Where", is_0, x, y);
}

static const char *sigmoid_times(struct emit *e, const char *x, const char *by)
{
    return emit_2(e, "Mul", x, emit_1(e, "Sigmoid", by));
}

/* x/2 (1 + y) */
static const char *half_times_1_plus(struct emit *e, const char *x, const char *y)
{
    return emit_2(e, "Mul", emit_times(e, x, 0.5), emit_plus(e, y, 1));
}

/* ---- activations ---- */

static const char *gelu_exact(struct emit *e, const char *x)
{
    return half_times_1_plus(e, x, emit_1(e, "Erf", emit_times(e, x, M_SQRT1_2)));
}

static const char *gelu_tanh(struct emit *e, const char *x)
{
    const char *cube = emit_2(e, "Mul", emit_2(e, "Mul", x, x), x);
    const char *in = emit_2(e, "Add", x, emit_times(e, cube, 0.044715));

    return half_times_1_plus(e, x, emit_1(e, "Tanh", emit_times(e, in, sqrt(2 / M_PI))));
}

static const char *leaky_relu(struct emit *e, const char *x, double slope)
{
    emit_float(e, "alpha", slope);
    return emit_1(e, "LeakyRelu", x);
}

static const char *activation_as(struct emit *e, enum activation kind, const char *x)
{
    switch (kind) {
    case ACT_RELU:
        return emit_1(e, "Relu", x);
    case ACT_TANH:
        return emit_1(e, "Tanh", x);
    case ACT_SIGMOID:
        return emit_1(e, "Sigmoid", x);
    case ACT_GELU:
        return gelu_exact(e, x);
    case ACT_GELU_TANH:
        return gelu_tanh(e, x);
    case ACT_SILU:
        return sigmoid_times(e, x, x);
    case ACT_LEAKY_RELU:
        return leaky_relu(e, x, 0.01);
    default:
        return x;
    }
}

void emit_activation(struct emit *e, const struct node *n)
{
    const enum form form = emit_made(e, ACTIVATION_X);

    emit_put(e, activation_as(e, n->attr.act.kind, emit_in_form(e, ACTIVATION_X, form)), form);
}

/* ---- element by element ---- */

/* The kinds that are one operator of ONNX. */
static const struct {
    const char *op;
    int is_bool; /* 1: the result is BOOL */
} elementwise_ops[EW_COUNT] = {
    [EW_ADD] = {"Add", 0},
    [EW_SUB] = {"Sub", 0},
    [EW_MUL] = {"Mul", 0},
    [EW_DIV] = {"Div", 0},
    [EW_MAX] = {"Max", 0},
    [EW_MIN] = {"Min", 0},
    [EW_POW] = {"Pow", 0},
    [EW_EQ] = {"Equal", 1},
    [EW_LT] = {"Less", 1},
    [EW_LE] = {"LessOrEqual", 1},
    [EW_GT] = {"Greater", 1},
    [EW_GE] = {"GreaterOrEqual", 1},
    [EW_NEG] = {"Neg", 0},
    [EW_ABS] = {"Abs", 0},
    [EW_EXP] = {"Exp", 0},
    [EW_LOG] = {"Log", 0},
    [EW_SQRT] = {"Sqrt", 0},
    [EW_ROOT] = {"Sqrt", 0},
    [EW_SIN] = {"Sin", 0},
    [EW_COS] = {"Cos", 0},
    [EW_ERF] = {"Erf", 0},
    [EW_RECIPROCAL] = {"Reciprocal", 0},
    [EW_FLOOR] = {"Floor", 0},
    [EW_CEIL] = {"Ceil", 0},
    [EW_ROUND] = {"Round", 0},
    [EW_SIGN] = {"Sign", 0},
    [EW_HARDSWISH] = {"HardSwish", 0},
};

/* Python's remainder: that of C, whose sign becomes b's. */
static const char *remainder_of(struct emit *e, const char *a, const char *b)
{
    const char *zero = emit_number(e, 0), *rest, *differs;

    emit_int(e, "fmod", 1);
    rest = emit_2(e, "Mod", a, b);
    differs = emit_2(e, "Xor", emit_2(e, "Less", rest, zero), emit_2(e, "Less", b, zero));
    differs = emit_2(e, "And", differs, as_truth(e, rest));
    return emit_3(e, "Where", differs, emit_2(e, "Add", rest, b), rest);
}

static const char *softplus_of(struct emit *e, const char *x, double beta, double threshold)
{
    const char *scaled = emit_times(e, x, beta);
    const char *y = emit_times(e, emit_1(e, "Softplus", scaled), 1 / beta);

    return emit_3(e, "Where", emit_2(e, "Greater", scaled, emit_number(e, threshold)), x, y);
}

/* x > 0 ? q x : q p (e^x - 1) */
static const char *elu_of(struct emit *e, const char *x, double p, double q)
{
    const char *below = emit_2(e, "Min", x, emit_number(e, 0));

    below = emit_times(e, exp_minus_1(e, below), p * q);
    return emit_3(e, "Where", emit_2(e, "Greater", x, emit_number(e, 0)), emit_times(e, x, q),
                  below);
}

static const char *hard_sigmoid(struct emit *e, const char *x)
{
    emit_float(e, "alpha", 1.0 / 6);
    emit_float(e, "beta", 0.5);
    return emit_1(e, "HardSigmoid", x);
}

/* p <= q: x within them; a NaN stays one. */
static const char *clip_to(struct emit *e, const char *x, double p, double q)
{
    return emit_3(e, "Clip", x, emit_number(e, p), emit_number(e, q));
}

static const char *toward_zero(struct emit *e, const char *x)
{
    return emit_2(e, "Mul", emit_1(e, "Sign", x), emit_1(e, "Floor", emit_1(e, "Abs", x)));
}

/* The kinds of one operand that are several operators. */
static const char *elementwise_of_1(struct emit *e, enum elementwise kind, const char *a, double p,
                                    double q)
{
    switch (kind) {
    case EW_AFFINE:
        return emit_plus(e, emit_times(e, a, p), q);
    case EW_RSQRT:
        return emit_1(e, "Reciprocal", emit_1(e, "Sqrt", a));
    case EW_POWER:
        return emit_2(e, "Pow", a, emit_number(e, p));
    case EW_CLIP:
        return clip_to(e, a, p, q);
    case EW_SQUARE:
        return emit_2(e, "Mul", a, a);
    case EW_LOG1P:
        return log_1_plus(e, a);
    case EW_EXPM1:
        return exp_minus_1(e, a);
    case EW_HARDSIGMOID:
        return hard_sigmoid(e, a);
    case EW_LEAKY:
        return leaky_relu(e, a, p);
    case EW_ELU:
        return elu_of(e, a, p, q);
    case EW_SOFTPLUS:
        return softplus_of(e, a, p, q);
    case EW_MISH:
        return emit_2(e, "Mul", a, emit_1(e, "Tanh", softplus_of(e, a, 1, 20)));
    case EW_TRUNC:
        return toward_zero(e, a);
    case EW_NOT:
        return zero_or_one(e, emit_1(e, "Not", as_truth(e, a)));
    default:
        return NULL;
    }
}

static const char *elementwise_of_more(struct emit *e, enum elementwise kind, const char *a,
                                       const char *b, const char *c)
{
    switch (kind) {
    case EW_NE:
        return zero_or_one(e, emit_1(e, "Not", emit_2(e, "Equal", a, b)));
    case EW_WHERE:
        return emit_3(e, "Where", as_truth(e, c), a, b);
    case EW_REMAINDER:
        return remainder_of(e, a, b);
    case EW_SILU_MUL:
        return emit_2(e, "Mul", emit_2(e, "Mul", a, emit_1(e, "Sigmoid", a)), b);
    case EW_AND:
        return zero_or_one(e, emit_2(e, "And", as_truth(e, a), as_truth(e, b)));
    case EW_OR:
        return zero_or_one(e, emit_2(e, "Or", as_truth(e, a), as_truth(e, b)));
    case EW_XOR:
        return zero_or_one(e, emit_2(e, "Xor", as_truth(e, a), as_truth(e, b)));
    default:
        emit_fail(e, ERR_UNSUPPORTED, "its arithmetic has no form in ONNX");
        return "";
    }
}

/* Operands with broadcasting: images are taken as they are if one of them is one. */
static enum form elementwise_form(const struct emit *e, const struct node *n, int rank)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != NO_VALUE && emit_shape(e, n->in[i])->n == rank &&
            emit_made(e, i) == FORM_FIRST)
            return FORM_FIRST;
    return FORM_PLAIN;
}

void emit_elementwise(struct emit *e, const struct node *n)
{
    const enum elementwise kind = n->attr.elementwise.kind;
    const int rank = emit_shape(e, n->out[ELEMENTWISE_Y])->n;
    const enum form form = elementwise_form(e, n, rank);
    const char *in[3] = {0}, *op = elementwise_ops[kind].op, *y;
    int n_in = 0;

    while (n_in < n->n_in && n_in < 3 && n->in[n_in] != NO_VALUE) {
        in[n_in] = emit_spread(e, n_in, rank, form);
        n_in++;
    }
    if (op) {
        y = emit_op(e, op, in, n_in);
        if (elementwise_ops[kind].is_bool)
            y = zero_or_one(e, y);
    } else {
        y = elementwise_of_1(e, kind, in[0], (double)n->attr.elementwise.p,
                             (double)n->attr.elementwise.q);
        if (!y)
            y = elementwise_of_more(e, kind, in[0], in[1], in[2]);
    }
    emit_put(e, y, form);
}

/* a + b, whose shapes are equal, or b is a vector along the last dimension. */
static void emit_sum(struct emit *e, const struct node *n)
{
    const int rank = emit_shape(e, n->out[0])->n;
    const enum form form = elementwise_form(e, n, rank);
    const char *a = emit_spread(e, 0, rank, form), *b = emit_spread(e, 1, rank, form);

    emit_put(e, emit_2(e, "Add", a, b), form);
}

void emit_add(struct emit *e, const struct node *n) { emit_sum(e, n); }

void emit_bias(struct emit *e, const struct node *n)
{
    const enum form form = emit_made(e, BIAS_X);

    if (e->value[n->out[BIAS_Y]].has_bias)
        emit_put(e, emit_in_form(e, BIAS_X, form), form);
    else
        emit_sum(e, n);
}

void emit_cast(struct emit *e, const struct node *n)
{
    const enum form form = emit_made(e, CAST_X);
    const struct emitted *x = &e->value[n->in[CAST_X]];
    const char *y = emit_in_form(e, CAST_X, form);
    const int64_t minus = n->attr.cast.minus;

    if (n->attr.cast.to != DTYPE_F32 && n->attr.cast.to != DTYPE_I32) {
        emit_fail(e, ERR_UNSUPPORTED, "numbers of type %s", dtype_name(n->attr.cast.to));
        return;
    }
    if (minus)
        y = x->type == ONNX_INT64 ? emit_2(e, "Sub", y, emit_list(e, &minus, 1))
                                  : emit_plus(e, y, (double)-minus);
    if (n->attr.cast.to == DTYPE_I32)
        e->value[n->out[CAST_Y]].type = ONNX_INT64;
    if (n->attr.cast.to == DTYPE_I32 || x->type == ONNX_INT64)
        y = emit_cast_to(e, y, n->attr.cast.to == DTYPE_I32 ? ONNX_INT64 : ONNX_FLOAT);
    emit_put(e, y, form);
}

/* ---- whole numbers ---- */

/* Results are limited to 31 bits, as ours are. */
static const char *integers_limited(struct emit *e, const char *y)
{
    const int64_t low = INT32_MIN, high = INT32_MAX, scalar[1] = {0};
    const char *limit[2];

    limit[0] = emit_to_shape(e, emit_list(e, &low, 1), scalar, 0);
    limit[1] = emit_to_shape(e, emit_list(e, &high, 1), scalar, 0);
    return emit_3(e, "Clip", y, limit[0], limit[1]);
}

void emit_integers(struct emit *e, const struct node *n)
{
    static const char *const ops[INTEGERS_COUNT] = {
        [INTEGERS_ADD] = "Add",      [INTEGERS_SUB] = "Sub", [INTEGERS_MUL] = "Mul",
        [INTEGERS_MIN] = "Min",      [INTEGERS_MAX] = "Max", [INTEGERS_FROM_END] = "Add",
        [INTEGERS_PREFIX] = "CumSum"};
    const enum integers kind = n->attr.integers.kind;
    const int64_t number = n->attr.integers.number, zero = 0,
                  last = emit_shape(e, n->out[INTEGERS_Y])->n - 1;
    const char *a = emit_in(e, INTEGERS_A), *b = emit_in(e, INTEGERS_B), *y;

    if (kind == INTEGERS_PREFIX)
        b = emit_to_shape(e, emit_list(e, &last, 1), &zero, 0);
    else if (!b)
        b = emit_list(e, &number, 1);
    y = emit_2(e, ops[kind], a, b);
    if (kind == INTEGERS_FROM_END)
        y = emit_3(e, "Where", emit_2(e, "Less", a, emit_list(e, &zero, 1)), y, a);
    else if (kind != INTEGERS_MIN && kind != INTEGERS_MAX)
        y = integers_limited(e, y);
    emit_put(e, y, FORM_PLAIN);
}

/* ---- along dimensions ---- */

/* The form in which x is reduce_along so that the dimensions that are left stand in our order. */
static enum form reduce_form(const struct emit *e, const struct node *n, int rank)
{
    const unsigned axes = n->attr.reduce.axes, last = 1u << (rank - 1);
    const unsigned inner = (last - 1) & ~1u;

    if (rank < 3 || emit_made(e, REDUCE_X) == FORM_PLAIN)
        return FORM_PLAIN;
    return n->attr.reduce.keep || axes & last || (axes & inner) == inner ? FORM_FIRST : FORM_PLAIN;
}

/* Attributes or an input: the sum has an input for its axes, the other reductions an attribute. */
static const char *reduce_along(struct emit *e, const char *op, const char *x, const int64_t *axes,
                                int n, int keep)
{
    const int is_sum = !strcmp(op, "ReduceSum");
    const char *list = is_sum ? emit_list(e, axes, n) : NULL;

    emit_int(e, "keepdims", keep);
    if (is_sum)
        return emit_2(e, op, x, list);
    emit_ints(e, "axes", axes, n);
    return emit_1(e, op, x);
}

void emit_reduce(struct emit *e, const struct node *n)
{
    static const char *const ops[] = {[REDUCE_SUM] = "ReduceSum",
                                      [REDUCE_MEAN] = "ReduceMean",
                                      [REDUCE_MAX] = "ReduceMax",
                                      [REDUCE_MIN] = "ReduceMin",
                                      [REDUCE_VAR] = "ReduceMean"};
    const int id = n->in[REDUCE_X], rank = emit_shape(e, id)->n, keep = n->attr.reduce.keep;
    const enum form form = reduce_form(e, n, rank);
    const char *x = emit_in_form(e, REDUCE_X, form), *y;
    double elements = 1, divisor;
    int64_t axes[SHAPE_MAX_DIMS];
    int n_axes = 0;

    for (int d = 0; d < rank; d++)
        if (n->attr.reduce.axes >> d & 1) {
            if (emit_growth(e, id, d))
                emit_fail(e, ERR_UNSUPPORTED, "it reduces dimension %d, which has the batch", d);
            elements *= (double)emit_shape(e, id)->dim[d];
            axes[n_axes++] = emit_at(form, d, rank);
        }
    if (n->attr.reduce.kind == REDUCE_VAR) {
        x = emit_2(e, "Sub", x, reduce_along(e, "ReduceMean", x, axes, n_axes, 1));
        x = emit_2(e, "Mul", x, x);
    }
    /* Without axes ONNX reduces all of them, and we none. */
    y = n_axes ? reduce_along(e, ops[n->attr.reduce.kind], x, axes, n_axes, keep) : x;
    divisor = elements - n->attr.reduce.correction;
    if (n->attr.reduce.kind == REDUCE_VAR)
        y = emit_times(e, y, elements / divisor);
    emit_put(e, y, keep ? form : FORM_PLAIN);
}

static const char *matrix_transposed(struct emit *e, int i)
{
    const int rank = emit_shape(e, e->node->in[i])->n;
    const char *x = emit_in(e, i);
    int64_t order[SHAPE_MAX_DIMS];

    for (int d = 0; d < rank; d++)
        order[d] = d < rank - 2 ? d : 2 * rank - 3 - d;
    return emit_order(e, x, order, rank);
}

void emit_matmul(struct emit *e, const struct node *n)
{
    const char *a =
        n->attr.matmul.transpose_a ? matrix_transposed(e, MATMUL_A) : emit_in(e, MATMUL_A);
    const char *b =
        n->attr.matmul.transpose_b ? matrix_transposed(e, MATMUL_B) : emit_in(e, MATMUL_B);

    emit_put(e, emit_2(e, "MatMul", a, b), FORM_PLAIN);
}

void emit_softmax(struct emit *e, const struct node *n)
{
    const int id = n->in[SOFTMAX_X], rank = emit_shape(e, id)->n;
    const enum form form = emit_made(e, SOFTMAX_X);
    const int64_t axis = emit_at(form, n->attr.softmax.dim, rank);
    const char *x = emit_in_form(e, SOFTMAX_X, form), *y;

    if (emit_growth(e, id, n->attr.softmax.dim))
        emit_fail(e, ERR_UNSUPPORTED, "it goes along the batch");
    emit_int(e, "axis", axis);
    y = emit_1(e, n->attr.softmax.log ? "LogSoftmax" : "Softmax", x);
    if (n->attr.softmax.safe) {
        const char *most = reduce_along(e, "ReduceMax", x, &axis, 1, 1);
        const char *is_none = emit_2(e, "Equal", most, emit_number(e, -INFINITY));

        y = emit_3(e, "Where", is_none, emit_number(e, 0), y);
    }
    emit_put(e, y, form);
}
