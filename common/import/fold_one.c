/* fold_one - functions of the elements of one constant, with PyTorch's types: those that give real
 * numbers (sin) take integers as float32. */
#include <math.h>

#include "import/fold_impl.h"

enum {
    ONE_NEG,
    ONE_ABS,
    ONE_NOT,
    ONE_BIT_NOT,
    ONE_SIGN,
    ONE_SQUARE,
    ONE_FLOOR,
    ONE_CEIL,
    ONE_ROUND,
    ONE_TRUNC,
    ONE_REALS, /* from here on the result is a real number */
    ONE_SIN = ONE_REALS,
    ONE_COS,
    ONE_TAN,
    ONE_TANH,
    ONE_EXP,
    ONE_EXPM1,
    ONE_LOG,
    ONE_LOG2,
    ONE_LOG1P,
    ONE_SQRT,
    ONE_RSQRT,
    ONE_RECIPROCAL,
    ONE_ERF,
    ONE_SIGMOID,
};

static double fold_one_real(double v, int kind)
{
    switch (kind) {
    case ONE_NEG:
        return -v;
    case ONE_ABS:
        return fabs(v);
    case ONE_SIGN:
        return (v > 0) - (v < 0);
    case ONE_SQUARE:
        return v * v;
    case ONE_FLOOR:
        return floor(v);
    case ONE_CEIL:
        return ceil(v);
    case ONE_ROUND:
        return rint(v);
    case ONE_TRUNC:
        return trunc(v);
    case ONE_SIN:
        return sin(v);
    case ONE_COS:
        return cos(v);
    case ONE_TAN:
        return tan(v);
    case ONE_TANH:
        return tanh(v);
    case ONE_EXP:
        return exp(v);
    case ONE_EXPM1:
        return expm1(v);
    case ONE_LOG:
        return log(v);
    case ONE_LOG2:
        return log2(v);
    case ONE_LOG1P:
        return log1p(v);
    case ONE_SQRT:
        return sqrt(v);
    case ONE_RSQRT:
        return 1 / sqrt(v);
    case ONE_RECIPROCAL:
        return 1 / v;
    case ONE_ERF:
        return erf(v);
    default:
        return 1 / (1 + exp(-v));
    }
}

static int64_t fold_one_integer(int64_t v, int kind)
{
    switch (kind) {
    case ONE_NEG:
        return (int64_t)(0 - (uint64_t)v);
    case ONE_ABS:
        return v < 0 ? (int64_t)(0 - (uint64_t)v) : v;
    case ONE_BIT_NOT:
        return ~v;
    case ONE_SIGN:
        return (v > 0) - (v < 0);
    case ONE_SQUARE:
        return (int64_t)((uint64_t)v * (uint64_t)v);
    default:
        return v;
    }
}

static void fold_unary(struct fold *f)
{
    struct host_tensor x = fold_tensor(f, "self", 0);
    const struct host_tensor whole = x;
    int64_t small[IMPORT_MAX_DIMS], count;
    const int is_real = host_is_real(x.type);
    const enum import_type type = f->kind == ONE_NOT                 ? IMPORT_BOOL
                                  : f->kind >= ONE_REALS && !is_real ? IMPORT_F32
                                                                     : x.type;

    if (f->rc == 0 &&
        ((f->kind == ONE_BIT_NOT && is_real) || (f->kind < ONE_NOT && x.type == IMPORT_BOOL)))
        fold_fail(f, "an operation on %s", import_type_name(x.type));
    if (f->rc < 0)
        return;
    fold_narrow((struct host_tensor *[]){&x}, 1, x.n_dims, whole.dim, small);
    if (!fold_new(f, type, x.n_dims, small))
        return;
    count = host_count(&x);
    for (int64_t i = 0, m; i < count; i += m) {
        struct fold_num v[FOLD_RUN];

        m = fold_read(&x, i, count - i, v);
        for (int k = 0; k < m; k++) {
            if (f->kind == ONE_NOT || (f->kind == ONE_BIT_NOT && x.type == IMPORT_BOOL))
                v[k].i = is_real ? v[k].f == 0 : v[k].i == 0;
            else if (host_is_real(type))
                v[k].f = fold_one_real(v[k].f, f->kind);
            else
                v[k].i = fold_one_integer(v[k].i, f->kind);
        }
        fold_write(&f->out, i, (int)m, v, type == IMPORT_BOOL ? IMPORT_I64 : type);
    }
    fold_widen(f, whole.dim);
}

#define ONE(name, kind)                   \
    {                                     \
        name ".default", fold_unary, kind \
    }

const struct fold_row fold_one[] = {
    ONE("neg", ONE_NEG),
    ONE("abs", ONE_ABS),
    ONE("logical_not", ONE_NOT),
    ONE("bitwise_not", ONE_BIT_NOT),
    ONE("sign", ONE_SIGN),
    ONE("square", ONE_SQUARE),
    ONE("floor", ONE_FLOOR),
    ONE("ceil", ONE_CEIL),
    ONE("round", ONE_ROUND),
    ONE("trunc", ONE_TRUNC),
    ONE("sin", ONE_SIN),
    ONE("cos", ONE_COS),
    ONE("tan", ONE_TAN),
    ONE("tanh", ONE_TANH),
    ONE("exp", ONE_EXP),
    ONE("expm1", ONE_EXPM1),
    ONE("log", ONE_LOG),
    ONE("log2", ONE_LOG2),
    ONE("log1p", ONE_LOG1P),
    ONE("sqrt", ONE_SQRT),
    ONE("rsqrt", ONE_RSQRT),
    ONE("reciprocal", ONE_RECIPROCAL),
    ONE("erf", ONE_ERF),
    ONE("sigmoid", ONE_SIGMOID),
    {0},
};
