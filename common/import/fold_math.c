/* fold_math - arithmetic on the elements of two constants, and choices between them, with PyTorch's
 * promotion of types.  Elements are computed in the common type of the operands. */
#include <math.h>

#include "base/util.h"
#include "import/fold_impl.h"

/* ---- types ---- */

enum { KIND_BOOL, KIND_INTEGER, KIND_REAL };

static int fold_kind(enum import_type t)
{
    return host_is_real(t) ? KIND_REAL : t == IMPORT_BOOL ? KIND_BOOL : KIND_INTEGER;
}

/* Two types of one kind. */
static enum import_type fold_wider(enum import_type a, enum import_type b)
{
    const size_t size_a = import_type_size(a), size_b = import_type_size(b);

    if (a == b)
        return a;
    if (size_a != size_b)
        return size_a > size_b ? a : b;
    return host_is_real(a) ? IMPORT_F32 : IMPORT_I16; /* F16 and BF16; U8 and I8 */
}

/* PyTorch's type of x and y together; a scalar is a number of the call.  The kind decides (bool,
 * integer, real), then a tensor with dimensions before one without before a
 * number (c10/core/ScalarType, at::native::result_type). */
static enum import_type fold_promote(const struct host_tensor *x, int x_scalar,
                                     const struct host_tensor *y, int y_scalar)
{
    const int rank_x = x_scalar ? 0 : x->n_dims ? 2 : 1, rank_y = y_scalar ? 0 : y->n_dims ? 2 : 1;
    const int kind_x = fold_kind(x->type), kind_y = fold_kind(y->type);

    if (kind_x != kind_y) {
        const struct host_tensor *most = kind_x > kind_y ? x : y;
        const int is_number = most == x ? x_scalar : y_scalar;

        return host_is_real(most->type) && is_number ? IMPORT_F32 : most->type;
    }
    if (rank_x != rank_y)
        return rank_x > rank_y ? x->type : y->type;
    return fold_wider(x->type, y->type);
}

/* ---- two operands ---- */

enum {
    FOLD_ADD,
    FOLD_SUB,
    FOLD_RSUB,
    FOLD_MUL,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_POW,
    FOLD_DIV,
    FOLD_DIV_FLOOR,
    FOLD_DIV_TRUNC,
    FOLD_REMAINDER,
    FOLD_FMOD,
    FOLD_BIT_AND,
    FOLD_BIT_OR,
    FOLD_BIT_XOR,
    FOLD_COMPARES, /* from here on the result is a boolean */
    FOLD_EQ = FOLD_COMPARES,
    FOLD_NE,
    FOLD_LT,
    FOLD_LE,
    FOLD_GT,
    FOLD_GE,
    FOLD_AND,
    FOLD_OR,
    FOLD_XOR,
};

static int64_t fold_int_power(int64_t a, int64_t b)
{
    uint64_t y = 1, x = (uint64_t)a;

    if (b < 0) /* as PyTorch: 0, but for 1 and -1 */
        return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    for (; b > 0; b >>= 1) {
        y *= b & 1 ? x : 1;
        x *= x;
    }
    return (int64_t)y;
}

static int64_t fold_int_divide(struct fold *f, int64_t a, int64_t b, int kind)
{
    int64_t q;

    if (b == 0) {
        fold_fail(f, "an integer divided by 0");
        return 0;
    }
    q = b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
    if (kind == FOLD_DIV_TRUNC)
        return q;
    if (b != -1 && a % b != 0 && (a < 0) != (b < 0))
        q--;
    if (kind == FOLD_FMOD && b != -1)
        return a % b;
    return kind == FOLD_DIV_FLOOR ? q : (int64_t)((uint64_t)a - (uint64_t)q * (uint64_t)b);
}

static int64_t fold_integers(struct fold *f, int64_t a, int64_t b, int kind)
{
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;

    switch (kind) {
    case FOLD_ADD:
        return (int64_t)(x + y);
    case FOLD_SUB:
        return (int64_t)(x - y);
    case FOLD_RSUB:
        return (int64_t)(y - x);
    case FOLD_MUL:
        return (int64_t)(x * y);
    case FOLD_MAX:
        return a > b ? a : b;
    case FOLD_MIN:
        return a < b ? a : b;
    case FOLD_POW:
        return fold_int_power(a, b);
    case FOLD_BIT_AND:
        return a & b;
    case FOLD_BIT_OR:
        return a | b;
    case FOLD_BIT_XOR:
        return a ^ b;
    default:
        return fold_int_divide(f, a, b, kind);
    }
}

static double fold_floor_divide(double a, double b)
{
    const double rest = fmod(a, b);
    double q;

    if (b == 0)
        return a / b;
    q = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0))
        q -= 1;
    return q == 0 ? copysign(0, a / b) : floor(q) + (q - floor(q) > 0.5);
}

static double fold_reals(struct fold *f, double a, double b, int kind)
{
    double rest;

    switch (kind) {
    case FOLD_ADD:
        return a + b;
    case FOLD_SUB:
        return a - b;
    case FOLD_RSUB:
        return b - a;
    case FOLD_MUL:
        return a * b;
    case FOLD_MAX:
        return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
    case FOLD_MIN:
        return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
    case FOLD_POW:
        return pow(a, b);
    case FOLD_DIV:
        return a / b;
    case FOLD_DIV_TRUNC:
        return trunc(a / b);
    case FOLD_DIV_FLOOR:
        return fold_floor_divide(a, b);
    case FOLD_FMOD:
        return fmod(a, b);
    case FOLD_REMAINDER:
        rest = fmod(a, b);
        return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
    default:
        fold_fail(f, "bits of a float");
        return 0;
    }
}

static int fold_compares(struct fold_num a, struct fold_num b, int kind, int is_real)
{
    const int less = is_real ? a.f < b.f : a.i < b.i, more = is_real ? a.f > b.f : a.i > b.i;
    const int same = is_real ? a.f == b.f : a.i == b.i;
    const int p = is_real ? a.f != 0 : a.i != 0, q = is_real ? b.f != 0 : b.i != 0;

    switch (kind) {
    case FOLD_EQ:
        return same;
    case FOLD_NE:
        return !same;
    case FOLD_LT:
        return less;
    case FOLD_LE:
        return less || same;
    case FOLD_GT:
        return more;
    case FOLD_GE:
        return more || same;
    case FOLD_AND:
        return p && q;
    case FOLD_OR:
        return p || q;
    default:
        return p != q;
    }
}

/* x and y, in the type `type`, by f->kind; a boolean sum is "or", a product "and". */
static void fold_combine(struct fold *f, struct host_tensor x, struct host_tensor y,
                         enum import_type type)
{
    const int compares = f->kind >= FOLD_COMPARES, is_real = host_is_real(type);
    struct fold_num a[FOLD_RUN], b[FOLD_RUN], r[FOLD_RUN];
    int64_t dim[IMPORT_MAX_DIMS], small[IMPORT_MAX_DIMS], count;
    int n;

    if (f->rc < 0)
        return;
    n = fold_meet(f, &x, &y, dim);
    if (f->rc < 0)
        return;
    x = fold_expand_to(f, x, n, dim);
    y = fold_expand_to(f, y, n, dim);
    fold_narrow((struct host_tensor *[]){&x, &y}, 2, n, dim, small);
    if (!fold_new(f, compares ? IMPORT_BOOL : type, n, small))
        return;
    count = host_count(&f->out);
    for (int64_t i = 0; i < count && f->rc == 0; i += FOLD_RUN) {
        const int m = (int)min_i64(count - i, FOLD_RUN);

        fold_read_as(&x, i, m, type, a);
        fold_read_as(&y, i, m, type, b);
        for (int k = 0; k < m; k++) {
            r[k] = (struct fold_num){0, 0};
            if (compares)
                r[k].i = fold_compares(a[k], b[k], f->kind, is_real);
            else if (is_real)
                r[k].f = fold_reals(f, a[k].f, b[k].f, f->kind);
            else
                r[k].i = fold_integers(f, a[k].i, b[k].i, f->kind);
        }
        fold_write(&f->out, i, m, r, compares ? IMPORT_I64 : type);
    }
    fold_widen(f, dim);
}

/* The other operand times alpha. */
static struct host_tensor fold_times_alpha(struct fold *f, const struct host_tensor *y,
                                           enum import_type type)
{
    struct host_tensor alpha, was = f->out, to;
    const int kind = f->kind;
    int is_scalar;

    if (!fold_arg(f, "alpha", 99))
        return *y;
    alpha = fold_in(f, "alpha", 99, &is_scalar);
    f->kind = FOLD_MUL;
    fold_combine(f, *y, alpha, type);
    f->kind = kind;
    to = f->out;
    f->out = was;
    return to;
}

static void fold_binary(struct fold *f)
{
    const int is_power = f->kind == FOLD_POW;
    int x_scalar, y_scalar;
    struct host_tensor x = fold_in(f, "self", 0, &x_scalar),
                       y = fold_in(f, is_power ? "exponent" : "other", 1, &y_scalar);
    const enum import_type type = fold_promote(&x, x_scalar, &y, y_scalar);

    if (f->kind == FOLD_RSUB) { /* other - alpha * self */
        x = fold_times_alpha(f, &x, type);
    } else {
        y = fold_times_alpha(f, &y, type);
    }
    fold_combine(f, x, y, type);
}

/* Quotients of integers are reals, unless they are rounded. */
static void fold_divide(struct fold *f)
{
    const struct import_arg *mode = fold_arg(f, "rounding_mode", 2);
    int x_scalar, y_scalar;
    struct host_tensor x = fold_in(f, "self", 0, &x_scalar), y = fold_in(f, "other", 1, &y_scalar);
    enum import_type type = fold_promote(&x, x_scalar, &y, y_scalar);

    f->kind = !mode || mode->kind != IMPORT_TEXT   ? FOLD_DIV
              : mode->text && mode->text[0] == 'f' ? FOLD_DIV_FLOOR
                                                   : FOLD_DIV_TRUNC;
    if (f->kind == FOLD_DIV && !host_is_real(type))
        type = IMPORT_F32;
    fold_combine(f, x, y, type);
}

/* ---- choices ---- */

/* condition ? x : y; the scalars of masked_fill have x's type. */
static void fold_choose(struct fold *f, struct host_tensor c, struct host_tensor x,
                        struct host_tensor y, enum import_type type)
{
    struct host_tensor met = {.n_dims = 0};
    int64_t dim[IMPORT_MAX_DIMS], small[IMPORT_MAX_DIMS], count;
    int n;

    if (f->rc < 0)
        return;
    if (c.type != IMPORT_BOOL && c.type != IMPORT_U8)
        fold_fail(f, "a condition of %s", import_type_name(c.type));
    met.n_dims = fold_meet(f, &x, &y, met.dim);
    n = fold_meet(f, &met, &c, dim);
    if (f->rc < 0)
        return;
    c = fold_expand_to(f, c, n, dim);
    x = fold_expand_to(f, x, n, dim);
    y = fold_expand_to(f, y, n, dim);
    fold_narrow((struct host_tensor *[]){&c, &x, &y}, 3, n, dim, small);
    if (!fold_new(f, type, n, small))
        return;
    count = host_count(&f->out);
    for (int64_t i = 0, m; i < count; i += m) {
        struct fold_num which[FOLD_RUN], a[FOLD_RUN], b[FOLD_RUN];

        m = fold_read(&c, i, count - i, which);
        fold_read_as(&x, i, (int)m, type, a);
        fold_read_as(&y, i, (int)m, type, b);
        for (int k = 0; k < m; k++)
            a[k] = which[k].i ? a[k] : b[k];
        fold_write(&f->out, i, (int)m, a, type);
    }
    fold_widen(f, dim);
}

static void fold_where(struct fold *f)
{
    const struct host_tensor c = fold_tensor(f, "condition", 0);
    int x_scalar, y_scalar;
    const struct host_tensor x = fold_in(f, "self", 1, &x_scalar),
                             y = fold_in(f, "other", 2, &y_scalar);

    enum import_type type = fold_promote(&x, x_scalar, &y, y_scalar);

    if (x_scalar && y_scalar && host_is_real(type)) /* numbers alone have the default type */
        type = IMPORT_F32;
    fold_choose(f, c, x, y, type);
}

static void fold_masked_fill(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0), mask = fold_tensor(f, "mask", 1);
    int is_scalar;
    const struct host_tensor v = fold_in(f, "value", 2, &is_scalar);

    fold_choose(f, mask, v, x, x.type);
}

/* Limits that are numbers, either of which may be absent. */
static void fold_clamp(struct fold *f)
{
    static const char *const name[2] = {"min", "max"};
    struct host_tensor x = fold_tensor(f, "self", 0);
    enum import_type type = x.type;
    int is_scalar, any = 0;

    for (int i = 0; i < 2 && f->rc == 0; i++) {
        struct host_tensor limit;

        if (!fold_arg(f, name[i], f->kind == 0 ? 1 + i : f->kind == 1 + i ? 1 : 99))
            continue;
        limit = fold_in(f, name[i], f->kind == 0 ? 1 + i : 1, &is_scalar);
        type = fold_promote(&x, 0, &limit, is_scalar);
        f->kind = i ? FOLD_MIN : FOLD_MAX;
        fold_combine(f, x, limit, type);
        f->kind = 0;
        x = f->out;
        any = 1;
    }
    if (!any)
        fold_fail(f, "no limits");
}

/* x [N], y [M] -> [N,M] */
static void fold_outer(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0), y = fold_tensor(f, "vec2", 1);
    const int64_t dim[2] = {x.n_dims ? x.dim[0] : 1, y.n_dims ? y.dim[0] : 1};
    const int is_real = host_is_real(x.type);

    if (f->rc == 0 && (x.n_dims != 1 || y.n_dims != 1 || is_real != host_is_real(y.type)))
        fold_fail(f, "a product of %s and %s of %d and %d dimensions, want two of one",
                  import_type_name(x.type), import_type_name(y.type), x.n_dims, y.n_dims);
    if (f->rc < 0 || !fold_new(f, fold_type(f), 2, dim))
        return;
    for (int64_t i = 0; i < dim[0] * dim[1]; i++) {
        const struct fold_num a = fold_element(&x, i / dim[1]), b = fold_element(&y, i % dim[1]);

        fold_put(&f->out, i,
                 (struct fold_num){.i = (int64_t)((uint64_t)a.i * (uint64_t)b.i), .f = a.f * b.f},
                 is_real ? IMPORT_F64 : IMPORT_I64);
    }
}

#define TWO(name, kind) \
    {name ".Tensor", fold_binary, kind}, { name ".Scalar", fold_binary, kind }

const struct fold_row fold_math[] = {
    TWO("add", FOLD_ADD),
    TWO("sub", FOLD_SUB),
    TWO("rsub", FOLD_RSUB),
    TWO("mul", FOLD_MUL),
    TWO("eq", FOLD_EQ),
    TWO("ne", FOLD_NE),
    TWO("lt", FOLD_LT),
    TWO("le", FOLD_LE),
    TWO("gt", FOLD_GT),
    TWO("ge", FOLD_GE),
    TWO("__and__", FOLD_BIT_AND),
    TWO("__or__", FOLD_BIT_OR),
    TWO("__xor__", FOLD_BIT_XOR),
    TWO("bitwise_and", FOLD_BIT_AND),
    TWO("bitwise_or", FOLD_BIT_OR),
    TWO("bitwise_xor", FOLD_BIT_XOR),
    TWO("remainder", FOLD_REMAINDER),
    TWO("fmod", FOLD_FMOD),
    {"outer.default", fold_outer, 0},
    {"ger.default", fold_outer, 0},
    {"logical_and.default", fold_binary, FOLD_AND},
    {"logical_or.default", fold_binary, FOLD_OR},
    {"logical_xor.default", fold_binary, FOLD_XOR},
    {"maximum.default", fold_binary, FOLD_MAX},
    {"minimum.default", fold_binary, FOLD_MIN},
    {"floor_divide.default", fold_binary, FOLD_DIV_FLOOR},
    {"floor_divide.Scalar", fold_binary, FOLD_DIV_FLOOR},
    {"pow.Tensor_Scalar", fold_binary, FOLD_POW},
    {"pow.Tensor_Tensor", fold_binary, FOLD_POW},
    {"pow.Scalar", fold_binary, FOLD_POW},
    {"div.Tensor", fold_divide, 0},
    {"div.Scalar", fold_divide, 0},
    {"div.Tensor_mode", fold_divide, 0},
    {"div.Scalar_mode", fold_divide, 0},
    {"where.self", fold_where, 0},
    {"where.ScalarSelf", fold_where, 0},
    {"where.ScalarOther", fold_where, 0},
    {"where.Scalar", fold_where, 0},
    {"masked_fill.Scalar", fold_masked_fill, 0},
    {"masked_fill.Tensor", fold_masked_fill, 0},
    {"clamp.default", fold_clamp, 0},
    {"clamp_min.default", fold_clamp, 1},
    {"clamp_max.default", fold_clamp, 2},
    {0},
};
