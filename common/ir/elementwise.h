/* elementwise - the table of element-wise arithmetic: for each kind its formula and gradient.
 *
 * A row is X(KIND, "name", operands, y, da, db): y is the result, da and db are the gradients of
 * the operands a and b, as C expressions of floats
 *
 *   a, b, c  the operands; a row with n operands uses the first n
 *   p, q     the node's constants
 *   y, dy    the result and its gradient, in da and db only
 *
 * Every backend compiles these expressions into its kernels, so a new kind is one row here and one
 * row in the tests' reference (tests/op/ref_general.c).  Operand c never has a gradient.
 * Comparisons and logic give 1 or 0 (a number is true if it is not 0); they and the roundings have
 * the gradient 0 (elementwise_is_flat).  Like PyTorch's, max, min and clip keep a NaN, and the
 * operands of max and min share the gradient where they are equal.  Where clip limits, and at its
 * bounds, the gradient is 0 (PyTorch 2.15; older ones pass it on at the bounds).  root is sqrt with
 * the gradient 0 at 0, which norms want.
 *
 * Threads: pure. */
#ifndef IR_ELEMENTWISE_H
#define IR_ELEMENTWISE_H

/* The slope of mish, t = tanh(softplus(a)). */
#define EW_MISH_SLOPE(a, t) ((t) + (a) * (1.0f - (t) * (t)) / (1.0f + expf(-(a))))

/* A backend may have a quicker one: the formulas are expanded where it compiles them. */
#define EW_SIGMOID(a) (1.0f / (1.0f + expf(-(a))))

/* clang-format off */
#define ELEMENTWISE_LIST(X)                                                                    \
    X(ADD, "add", 2, a + b, dy, dy)                                                            \
    X(SUB, "sub", 2, a - b, dy, -dy)                                                           \
    X(MUL, "mul", 2, a * b, dy * b, dy * a)                                                    \
    X(DIV, "div", 2, a / b, dy / b, -dy * y / b)                                               \
    X(MAX, "max", 2, a >= b || a != a ? a : b,                                                 \
      a > b ? dy : a < b ? 0.0f : 0.5f * dy, b > a ? dy : b < a ? 0.0f : 0.5f * dy)            \
    X(MIN, "min", 2, a <= b || a != a ? a : b,                                                 \
      a < b ? dy : a > b ? 0.0f : 0.5f * dy, b < a ? dy : b > a ? 0.0f : 0.5f * dy)            \
    X(POW, "pow", 2, powf(a, b), b == 0.0f ? 0.0f : dy * b * powf(a, b - 1.0f),                \
      a == 0.0f && b >= 0.0f ? 0.0f : dy * y * logf(a))                                        \
    X(EQ, "eq", 2, a == b ? 1.0f : 0.0f, 0.0f, 0.0f)                                           \
    X(NE, "ne", 2, a != b ? 1.0f : 0.0f, 0.0f, 0.0f)                                           \
    X(LT, "lt", 2, a < b ? 1.0f : 0.0f, 0.0f, 0.0f)                                            \
    X(LE, "le", 2, a <= b ? 1.0f : 0.0f, 0.0f, 0.0f)                                           \
    X(GT, "gt", 2, a > b ? 1.0f : 0.0f, 0.0f, 0.0f)                                            \
    X(GE, "ge", 2, a >= b ? 1.0f : 0.0f, 0.0f, 0.0f)                                           \
    X(WHERE, "where", 3, c != 0.0f ? a : b, c != 0.0f ? dy : 0.0f, c != 0.0f ? 0.0f : dy)      \
    X(AFFINE, "affine", 1, p * a + q, p * dy, 0.0f)                                            \
    X(NEG, "neg", 1, -a, -dy, 0.0f)                                                            \
    X(ABS, "abs", 1, fabsf(a), a > 0.0f ? dy : a < 0.0f ? -dy : 0.0f, 0.0f)                    \
    X(EXP, "exp", 1, expf(a), dy * y, 0.0f)                                                    \
    X(LOG, "log", 1, logf(a), dy / a, 0.0f)                                                    \
    X(SQRT, "sqrt", 1, sqrtf(a), 0.5f * dy / y, 0.0f)                                          \
    X(RSQRT, "rsqrt", 1, 1.0f / sqrtf(a), -0.5f * dy * y / a, 0.0f)                            \
    X(RECIPROCAL, "reciprocal", 1, 1.0f / a, -dy * y * y, 0.0f)                                \
    X(POWER, "power", 1, powf(a, p), p == 0.0f ? 0.0f : dy * p * powf(a, p - 1.0f), 0.0f)      \
    X(CLIP, "clip", 1, a < p ? p : a > q ? q : a, a > p && a < q ? dy : 0.0f, 0.0f)               \
    X(SIN, "sin", 1, sinf(a), dy * cosf(a), 0.0f)                                              \
    X(COS, "cos", 1, cosf(a), -dy * sinf(a), 0.0f)                                             \
    X(ERF, "erf", 1, erff(a), dy * 1.12837917f * expf(-a * a), 0.0f)                           \
    X(SQUARE, "square", 1, a * a, 2.0f * dy * a, 0.0f)                                         \
    X(ROOT, "root", 1, sqrtf(a), y == 0.0f ? 0.0f : 0.5f * dy / y, 0.0f)                       \
    X(LOG1P, "log1p", 1, log1pf(a), dy / (1.0f + a), 0.0f)                                     \
    X(EXPM1, "expm1", 1, expm1f(a), dy * (y + 1.0f), 0.0f)                                     \
    X(HARDSIGMOID, "hardsigmoid", 1,                                                           \
      a <= -3.0f ? 0.0f : a >= 3.0f ? 1.0f : a / 6.0f + 0.5f,                                  \
      a <= -3.0f || a >= 3.0f ? 0.0f : dy / 6.0f, 0.0f)                                        \
    X(HARDSWISH, "hardswish", 1,                                                               \
      a <= -3.0f ? 0.0f : a >= 3.0f ? a : a * (a + 3.0f) / 6.0f,                               \
      a <= -3.0f ? 0.0f : a >= 3.0f ? dy : dy * (a / 3.0f + 0.5f), 0.0f)                       \
    X(LEAKY, "leaky", 1, a > 0.0f ? a : p * a, a > 0.0f ? dy : p * dy, 0.0f)                   \
    X(ELU, "elu", 1, a > 0.0f ? q * a : q * p * expm1f(a),                                     \
      a > 0.0f ? q * dy : q * p * dy * expf(a), 0.0f)                                          \
    X(SOFTPLUS, "softplus", 1, p * a > q ? a : log1pf(expf(p * a)) / p,                        \
      p * a > q ? dy : dy / (1.0f + expf(-p * a)), 0.0f)                                       \
    X(MISH, "mish", 1, a * tanhf(a > 20.0f ? a : log1pf(expf(a))),                             \
      dy * EW_MISH_SLOPE(a, tanhf(a > 20.0f ? a : log1pf(expf(a)))), 0.0f)                     \
    X(REMAINDER, "remainder", 2,                                                               \
      fmodf(a, b) != 0.0f && (fmodf(a, b) < 0.0f) != (b < 0.0f) ? fmodf(a, b) + b              \
                                                                : fmodf(a, b),                 \
      dy, -dy * floorf(a / b))                                                                 \
    X(SILU_MUL, "silu_mul", 2, a * EW_SIGMOID(a) * b,                                          \
      dy * b * EW_SIGMOID(a) * (1.0f + a * (1.0f - EW_SIGMOID(a))), dy * a * EW_SIGMOID(a))    \
    X(FLOOR, "floor", 1, floorf(a), 0.0f, 0.0f)                                                \
    X(CEIL, "ceil", 1, ceilf(a), 0.0f, 0.0f)                                                   \
    X(ROUND, "round", 1, rintf(a), 0.0f, 0.0f)                                                 \
    X(TRUNC, "trunc", 1, truncf(a), 0.0f, 0.0f)                                                \
    X(SIGN, "sign", 1, a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : 0.0f, 0.0f, 0.0f)                  \
    X(AND, "and", 2, a != 0.0f && b != 0.0f ? 1.0f : 0.0f, 0.0f, 0.0f)                         \
    X(OR, "or", 2, a != 0.0f || b != 0.0f ? 1.0f : 0.0f, 0.0f, 0.0f)                           \
    X(XOR, "xor", 2, (a != 0.0f) != (b != 0.0f) ? 1.0f : 0.0f, 0.0f, 0.0f)                     \
    X(NOT, "not", 1, a == 0.0f ? 1.0f : 0.0f, 0.0f, 0.0f)
/* clang-format on */

/* power is pow with the constant exponent p; affine is p*a + q; clip limits to [p, q]; leaky has
 * the slope p; elu is q * a or q * p * (e^a - 1); softplus has the beta p and the threshold q;
 * silu_mul is the gate of an MLP, silu(a) * b. */
enum elementwise {
#define X(kind, name, n, y, da, db) EW_##kind,
    ELEMENTWISE_LIST(X)
#undef X
        EW_COUNT
};

/* 1: the gradient is 0 everywhere. */
static inline int elementwise_is_flat(enum elementwise kind)
{
    return (kind >= EW_EQ && kind <= EW_GE) || (kind >= EW_FLOOR && kind <= EW_NOT);
}

#endif
