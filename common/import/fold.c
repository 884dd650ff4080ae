/* fold - one node at a time: its operands are found by name, its function by the table at the end,
 * and its result is compared with the type that the export gave.  Integers are computed as int64,
 * float32 in double and rounded once, which is exact for + - * / and sqrt. */
#include "import/fold.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

struct fold {
    struct arena *a;
    const struct import_network *net;
    const struct import_node *node;
    const struct fold_value *value;
    struct host_tensor out;
    struct err *err;
    int rc, kind;
};

/* An element: `f` for floats, `i` for integers and booleans. */
struct fold_num {
    int64_t i;
    double f;
};

static int fold_is_float(enum import_type t) { return t == IMPORT_F32 || t == IMPORT_F64; }

static int fold_has_type(enum import_type t)
{
    return fold_is_float(t) || t == IMPORT_I64 || t == IMPORT_BOOL;
}

static struct fold_num fold_get(const struct host_tensor *t, int64_t at)
{
    struct fold_num v;

    if (t->type == IMPORT_F32)
        return (struct fold_num){0, ((const float *)t->data)[at]};
    if (t->type == IMPORT_F64)
        return (struct fold_num){0, ((const double *)t->data)[at]};
    v.i = t->type == IMPORT_I64 ? ((const int64_t *)t->data)[at] : ((const uint8_t *)t->data)[at];
    v.f = (double)v.i;
    return v;
}

/* v is a number of type `from`. */
static void fold_put(const struct host_tensor *t, int64_t at, struct fold_num v,
                     enum import_type from)
{
    const int was_float = fold_is_float(from);

    if (t->type == IMPORT_F32)
        ((float *)t->data)[at] = was_float ? (float)v.f : (float)v.i;
    else if (t->type == IMPORT_F64)
        ((double *)t->data)[at] = was_float ? v.f : (double)v.i;
    else if (t->type == IMPORT_BOOL)
        ((uint8_t *)t->data)[at] = was_float ? v.f != 0 : v.i != 0;
    else /* a float beyond int64 has no defined value in PyTorch; here it is the smallest */
        ((int64_t *)t->data)[at] = !was_float                       ? v.i
                                   : v.f >= -0x1p63 && v.f < 0x1p63 ? (int64_t)v.f
                                                                    : INT64_MIN;
}

int64_t host_count(const struct host_tensor *t)
{
    int64_t n = 1;

    for (int d = 0; d < t->n_dims; d++)
        n *= t->dim[d];
    return n;
}

static int64_t fold_place(const struct host_tensor *t, int64_t i)
{
    int64_t at = 0;

    for (int d = t->n_dims - 1; d >= 0; d--) {
        at += i % t->dim[d] * t->stride[d];
        i /= t->dim[d];
    }
    return at;
}

double host_element(const struct host_tensor *t, int64_t i)
{
    const struct fold_num v = fold_get(t, fold_place(t, i));

    return fold_is_float(t->type) ? v.f : (double)v.i;
}

#define fold_fail(f, ...) \
    ((void)((f)->rc < 0 || ((f)->rc = err_set((f)->err, ERR_UNSUPPORTED, __VA_ARGS__))))

/* A new tensor of zeros as the output.  0: it failed. */
static int fold_new(struct fold *f, enum import_type type, int n_dims, const int64_t *dim)
{
    int64_t n = 1;

    if (f->rc < 0)
        return 0;
    if (!fold_has_type(type) || n_dims > IMPORT_MAX_DIMS) {
        fold_fail(f, "a constant of type %s and %d dimensions", import_type_name(type), n_dims);
        return 0;
    }
    f->out = (struct host_tensor){.type = type, .n_dims = n_dims};
    for (int d = n_dims - 1; d >= 0; d--) {
        f->out.dim[d] = dim[d];
        f->out.stride[d] = n;
        if (dim[d] < 0 || (dim[d] > 0 && n > FOLD_MAX_ELEMENTS / dim[d])) {
            fold_fail(f, "a constant of extent %lld and more, want %d elements at most",
                      (long long)dim[d], FOLD_MAX_ELEMENTS);
            return 0;
        }
        n *= dim[d];
    }
    f->out.data = arena_alloc(f->a, (size_t)n * import_type_size(type) + 1);
    return 1;
}

static const struct import_arg *fold_arg(const struct fold *f, const char *name, int place)
{
    const struct import_arg *a = import_arg_find(f->node, name, place);

    return a && a->kind != IMPORT_NONE ? a : NULL;
}

static int64_t fold_number(struct fold *f, const struct import_int *i)
{
    if (i->value == IMPORT_NO_VALUE)
        return i->number;
    if (!f->value[i->value].is_int)
        fold_fail(f, "the integer %s is not known", f->net->value[i->value].name);
    return f->value[i->value].number;
}

static int64_t fold_int(struct fold *f, const char *name, int place, int64_t def)
{
    const struct import_arg *a = fold_arg(f, name, place);

    if (!a)
        return def;
    if (a->ints && a->n > 0 && a->kind != IMPORT_VALUE && a->kind != IMPORT_REAL)
        return fold_number(f, &a->ints[0]);
    fold_fail(f, "its %s is no integer", name);
    return def;
}

static int fold_ints(struct fold *f, const char *name, int place, int64_t *to)
{
    const struct import_arg *a = fold_arg(f, name, place);

    if (!a || (a->kind != IMPORT_INTS && a->kind != IMPORT_INT) || a->n > IMPORT_MAX_DIMS) {
        fold_fail(f, "its %s is no list of %d integers at most", name, IMPORT_MAX_DIMS);
        return 0;
    }
    for (int i = 0; i < a->n; i++)
        to[i] = fold_number(f, &a->ints[i]);
    return a->n;
}

/* The argument as a tensor; a number becomes one without dimensions, *is_scalar = 1. */
static struct host_tensor fold_in(struct fold *f, const char *name, int place, int *is_scalar)
{
    const struct import_arg *a = fold_arg(f, name, place);
    struct host_tensor t = {.type = IMPORT_I64}, kept = f->out;
    struct fold_num v = {0};

    *is_scalar = 1;
    if (a && a->kind == IMPORT_VALUE && f->value[a->values[0]].tensor) {
        *is_scalar = 0;
        return *f->value[a->values[0]].tensor;
    }
    if (!a || a->kind == IMPORT_VALUE || (!a->ints && !a->reals)) {
        fold_fail(f, "its %s is no constant", name);
        return t;
    }
    t.type = a->kind == IMPORT_REAL   ? IMPORT_F64
             : a->kind == IMPORT_FLAG ? IMPORT_BOOL
                                      : IMPORT_I64;
    if (a->kind == IMPORT_REAL)
        v.f = a->reals[0];
    else
        v.i = fold_number(f, &a->ints[0]);
    if (fold_new(f, t.type, 0, NULL)) {
        t = f->out;
        fold_put(&t, 0, v, t.type);
    }
    f->out = kept;
    return t;
}

static struct host_tensor fold_tensor(struct fold *f, const char *name, int place)
{
    int is_scalar;
    struct host_tensor t = fold_in(f, name, place, &is_scalar);

    if (is_scalar)
        fold_fail(f, "its %s is no constant tensor", name);
    return t;
}

static int fold_dim(struct fold *f, int64_t dim, int n)
{
    if (dim < 0)
        dim += n;
    if (dim >= 0 && dim < n)
        return (int)dim;
    fold_fail(f, "dimension %lld of %d", (long long)dim, n);
    return 0;
}

static enum import_type fold_dtype(struct fold *f, int place, enum import_type def)
{
    return (enum import_type)fold_int(f, "dtype", place, def);
}

/* PyTorch's promotion: the category decides (bool, integer, float), a tensor with dimensions
 * before one without before a number (c10/core/ScalarType, at::native::result_type). */
static enum import_type fold_promote(const struct host_tensor *x, int x_scalar,
                                     const struct host_tensor *y, int y_scalar)
{
    const int rank_x = x_scalar ? 0 : x->n_dims ? 2 : 1, rank_y = y_scalar ? 0 : y->n_dims ? 2 : 1;
    const int kind_x = fold_is_float(x->type) ? 2 : x->type == IMPORT_I64;
    const int kind_y = fold_is_float(y->type) ? 2 : y->type == IMPORT_I64;

    if (kind_x != kind_y || kind_x < 2) {
        const struct host_tensor *most = kind_x >= kind_y ? x : y;
        const int is_number = most == x ? x_scalar : y_scalar;

        return fold_is_float(most->type) && is_number ? IMPORT_F32 : most->type;
    }
    if (rank_x != rank_y)
        return rank_x > rank_y ? x->type : y->type;
    return x->type == IMPORT_F64 || y->type == IMPORT_F64 ? IMPORT_F64 : IMPORT_F32;
}

/* t seen with the shape of the output. */
static struct host_tensor fold_expand_to(struct fold *f, struct host_tensor t, int n,
                                         const int64_t *dim)
{
    struct host_tensor y = {.type = t.type, .n_dims = n, .data = t.data};

    if (n < t.n_dims || n > IMPORT_MAX_DIMS) {
        fold_fail(f, "%d dimensions become %d", t.n_dims, n);
        return t;
    }
    for (int d = 0; d < n; d++) {
        const int from = d - (n - t.n_dims);

        y.dim[d] = dim[d] == -1 && from >= 0 ? t.dim[from] : dim[d];
        if (from < 0)
            continue;
        if (t.dim[from] == y.dim[d])
            y.stride[d] = t.stride[from];
        else if (t.dim[from] != 1)
            fold_fail(f, "extent %lld becomes %lld", (long long)t.dim[from], (long long)y.dim[d]);
    }
    return y;
}

static int fold_meet(struct fold *f, const struct host_tensor *x, const struct host_tensor *y,
                     int64_t *dim)
{
    const int n = x->n_dims > y->n_dims ? x->n_dims : y->n_dims;

    for (int d = 0; d < n; d++) {
        const int i = d - (n - x->n_dims), j = d - (n - y->n_dims);
        const int64_t a = i < 0 ? 1 : x->dim[i], b = j < 0 ? 1 : y->dim[j];

        dim[d] = a == 1 ? b : a;
        if (a != 1 && b != 1 && a != b)
            fold_fail(f, "extents %lld and %lld meet", (long long)a, (long long)b);
    }
    return n;
}

enum {
    FOLD_ADD,
    FOLD_SUB,
    FOLD_MUL,
    FOLD_EQ,
    FOLD_NE,
    FOLD_LT,
    FOLD_LE,
    FOLD_GT,
    FOLD_GE,
    FOLD_AND,
    FOLD_OR
};

static int64_t fold_wrap(int kind, int64_t a, int64_t b)
{
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;

    return (int64_t)(kind == FOLD_ADD ? x + y : kind == FOLD_SUB ? x - y : x * y);
}

static struct fold_num fold_apply(struct fold_num a, struct fold_num b, int kind, int is_float)
{
    const int less = is_float ? a.f < b.f : a.i < b.i, more = is_float ? a.f > b.f : a.i > b.i;
    const int same = is_float ? a.f == b.f : a.i == b.i;

    switch (kind) {
    case FOLD_EQ:
        return (struct fold_num){.i = same};
    case FOLD_NE:
        return (struct fold_num){.i = !same};
    case FOLD_LT:
        return (struct fold_num){.i = less};
    case FOLD_LE:
        return (struct fold_num){.i = less || same};
    case FOLD_GT:
        return (struct fold_num){.i = more};
    case FOLD_GE:
        return (struct fold_num){.i = more || same};
    case FOLD_AND:
        return (struct fold_num){.i = a.i & b.i};
    case FOLD_OR:
        return (struct fold_num){.i = a.i | b.i};
    default:
        return (struct fold_num){fold_wrap(kind, a.i, b.i), kind == FOLD_ADD   ? a.f + b.f
                                                            : kind == FOLD_SUB ? a.f - b.f
                                                                               : a.f * b.f};
    }
}

static void fold_binary(struct fold *f)
{
    int x_scalar, y_scalar, n;
    struct host_tensor x = fold_in(f, "self", 0, &x_scalar), y = fold_in(f, "other", 1, &y_scalar);
    const enum import_type type = fold_promote(&x, x_scalar, &y, y_scalar);
    const int compares = f->kind >= FOLD_EQ && f->kind <= FOLD_GE;
    struct host_tensor both = {.type = type, .data = (double[2]){0}};
    int64_t dim[IMPORT_MAX_DIMS];

    if (fold_arg(f, "alpha", 99) || (f->kind >= FOLD_AND && fold_is_float(type)))
        fold_fail(f, "alpha, or bits of a float");
    if (f->rc < 0)
        return;
    n = fold_meet(f, &x, &y, dim);
    if (!fold_new(f, compares ? IMPORT_BOOL : type, n, dim))
        return;
    x = fold_expand_to(f, x, n, dim);
    y = fold_expand_to(f, y, n, dim);
    for (int64_t i = 0; i < host_count(&f->out); i++) {
        fold_put(&both, 0, fold_get(&x, fold_place(&x, i)), x.type); /* in the common type */
        fold_put(&both, 1, fold_get(&y, fold_place(&y, i)), y.type);
        fold_put(&f->out, i,
                 fold_apply(fold_get(&both, 0), fold_get(&both, 1), f->kind, fold_is_float(type)),
                 compares ? IMPORT_BOOL : type);
    }
}

static void fold_arange(struct fold *f)
{
    const int64_t start = f->kind ? fold_int(f, "start", 0, 0) : 0;
    const int64_t end = fold_int(f, "end", f->kind ? 1 : 0, 0);
    const int64_t step = f->kind == 2 ? fold_int(f, "step", 2, 1) : 1;
    int64_t n;

    for (int i = 0; i < f->node->n_args; i++)
        if (f->node->arg[i].kind == IMPORT_REAL)
            fold_fail(f, "a range of numbers that are no integers");
    if (step == 0 || llabs(start) > INT32_MAX || llabs(end) > INT32_MAX || llabs(step) > INT32_MAX)
        fold_fail(f, "a range to %lld by %lld", (long long)end, (long long)step);
    if (f->rc < 0)
        return;
    n = step > 0 ? (end - start + step - 1) / step : (start - end - step - 1) / -step;
    n = max_i64(n, 0);
    if (fold_new(f, fold_dtype(f, 99, IMPORT_I64), 1, &n))
        for (int64_t i = 0; i < n; i++)
            fold_put(&f->out, i, (struct fold_num){.i = start + i * step}, IMPORT_I64);
}

/* kind 0: zeros, 1: ones, of the size and default type; +2: the type of `self`. */
static void fold_filled(struct fold *f)
{
    const int like = f->kind >= 2;
    const enum import_type type = like ? fold_tensor(f, "self", 0).type : IMPORT_F32;
    int64_t dim[IMPORT_MAX_DIMS];
    const int n = fold_ints(f, "size", like, dim);

    if (fold_new(f, fold_dtype(f, 99, type), n, dim))
        for (int64_t i = 0; i < host_count(&f->out); i++)
            fold_put(&f->out, i, (struct fold_num){.i = f->kind & 1}, IMPORT_I64);
}

static void fold_cast(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0);

    if (f->rc == 0 && fold_new(f, fold_dtype(f, 1, x.type), x.n_dims, x.dim))
        for (int64_t i = 0; i < host_count(&x); i++)
            fold_put(&f->out, i, fold_get(&x, fold_place(&x, i)), x.type);
}

static void fold_same(struct fold *f) { f->out = fold_tensor(f, "self", 0); }

static void fold_expand(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0);
    int64_t dim[IMPORT_MAX_DIMS];
    const int n = fold_ints(f, "size", 1, dim);

    if (f->rc == 0)
        f->out = fold_expand_to(f, x, n, dim);
}

static void fold_unsqueeze(struct fold *f)
{
    struct host_tensor x = fold_tensor(f, "self", 0);
    const int at = fold_dim(f, fold_int(f, "dim", 1, 0), x.n_dims + 1);

    if (x.n_dims == IMPORT_MAX_DIMS)
        fold_fail(f, "more than %d dimensions", IMPORT_MAX_DIMS);
    if (f->rc < 0)
        return;
    for (int d = x.n_dims++; d > at; d--) {
        x.dim[d] = x.dim[d - 1];
        x.stride[d] = x.stride[d - 1];
    }
    x.dim[at] = 1;
    x.stride[at] = 0;
    f->out = x;
}

static void fold_slice(struct fold *f)
{
    struct host_tensor x = fold_tensor(f, "self", 0);
    const int d = fold_dim(f, fold_int(f, "dim", 1, 0), x.n_dims);
    int64_t start = fold_int(f, "start", 2, 0), stop = fold_int(f, "end", 3, INT64_MAX);
    const int64_t step = fold_int(f, "step", 4, 1), n = f->rc < 0 ? 0 : x.dim[d];

    if (step < 1)
        fold_fail(f, "a step of %lld", (long long)step);
    if (f->rc < 0)
        return;
    start = max_i64(min_i64(start < 0 ? start + n : start, n), 0);
    stop = max_i64(min_i64(stop < 0 ? stop + n : stop, n), start);
    x.data = (char *)x.data + (size_t)(start * x.stride[d]) * import_type_size(x.type);
    x.dim[d] = (stop - start) / step + ((stop - start) % step != 0);
    x.stride[d] *= step;
    f->out = x;
}

/* kind 0: the running sum along dim; 1: the differences of neighbours. */
static void fold_along(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0);
    const int d = fold_dim(f, fold_int(f, "dim", f->kind ? 2 : 1, -1), x.n_dims);
    struct host_tensor s = x;

    if (fold_arg(f, "prepend", 3) || fold_arg(f, "append", 4) || fold_int(f, "n", 99, 1) != 1 ||
        fold_dtype(f, 99, IMPORT_I64) != IMPORT_I64 || fold_is_float(x.type) ||
        (f->kind && x.type == IMPORT_BOOL))
        fold_fail(f, "other than one sum or difference of integers");
    if (f->rc < 0)
        return;
    s.dim[d] = f->kind ? max_i64(x.dim[d] - 1, 0) : x.dim[d];
    if (!fold_new(f, IMPORT_I64, s.n_dims, s.dim))
        return;
    for (int64_t i = 0; i < host_count(&f->out); i++) {
        const int64_t at = fold_place(&s, i), k = i / f->out.stride[d] % s.dim[d];
        int64_t v = fold_get(&x, at + (f->kind ? x.stride[d] : 0)).i;

        if (f->kind)
            v = fold_wrap(FOLD_SUB, v, fold_get(&x, at).i);
        else if (k)
            v = fold_wrap(FOLD_ADD, v, fold_get(&f->out, i - f->out.stride[d]).i);
        fold_put(&f->out, i, (struct fold_num){.i = v}, IMPORT_I64);
    }
}

/* self[indices]: the tensors of indices meet, and their dimensions stand where the first of them
 * stood; where they are no neighbours PyTorch puts them in front, which is not folded. */
static void fold_index(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0);
    const struct import_arg *a = fold_arg(f, "indices", 1);
    struct host_tensor by[IMPORT_MAX_DIMS], met = {0};
    int64_t dim[IMPORT_MAX_DIMS], k;
    int first = -1, n_by = 0, n;

    if (f->rc == 0 && (!a || a->kind != IMPORT_VALUES || a->n > x.n_dims))
        fold_fail(f, "its indices are no list of %d tensors at most", x.n_dims);
    for (int d = 0; f->rc == 0 && d < a->n; d++) {
        const int v = a->values[d];

        if (v == IMPORT_NO_VALUE)
            continue;
        if (!f->value[v].tensor || f->value[v].tensor->type != IMPORT_I64 ||
            (first >= 0 && d != first + n_by)) {
            fold_fail(f, "index %d is no constant of integers, or no neighbour", d);
            return;
        }
        first = first < 0 ? d : first;
        by[n_by++] = *f->value[v].tensor;
        met.n_dims = fold_meet(f, &met, &by[n_by - 1], dim);
        memcpy(met.dim, dim, (size_t)met.n_dims * sizeof *dim);
    }
    n = met.n_dims + x.n_dims - n_by;
    if (f->rc == 0 && (n_by == 0 || n > IMPORT_MAX_DIMS))
        fold_fail(f, "no index, or more than %d dimensions", IMPORT_MAX_DIMS);
    for (int d = 0; f->rc == 0 && d < n; d++)
        dim[d] = d < first                ? x.dim[d]
                 : d < first + met.n_dims ? met.dim[d - first]
                                          : x.dim[d - met.n_dims + n_by];
    for (int b = 0; f->rc == 0 && b < n_by; b++)
        by[b] = fold_expand_to(f, by[b], met.n_dims, met.dim);
    if (f->rc < 0 || !fold_new(f, x.type, n, dim))
        return;
    for (int64_t i = 0; i < host_count(&f->out); i++) {
        int64_t left = i, from = 0, which = 0, scale = 1;

        for (int d = n - 1; d >= 0; d--) {
            const int64_t j = left % dim[d];

            left /= dim[d];
            if (d >= first && d < first + met.n_dims) {
                which += j * scale;
                scale *= dim[d];
            } else {
                from += j * x.stride[d < first ? d : d - met.n_dims + n_by];
            }
        }
        for (int b = 0; b < n_by; b++) {
            k = fold_get(&by[b], fold_place(&by[b], which)).i;
            k += k < 0 ? x.dim[first + b] : 0;
            if (k < 0 || k >= x.dim[first + b]) {
                fold_fail(f, "index %lld of %lld", (long long)k, (long long)x.dim[first + b]);
                return;
            }
            from += k * x.stride[first + b];
        }
        fold_put(&f->out, i, fold_get(&x, from), x.type);
    }
}

static const struct {
    const char *target;
    void (*fold)(struct fold *f);
    int kind;
} fold_table[] = {
    {"arange.default", fold_arange, 0},      {"arange.start", fold_arange, 1},
    {"arange.start_step", fold_arange, 2},   {"zeros.default", fold_filled, 0},
    {"ones.default", fold_filled, 1},        {"new_zeros.default", fold_filled, 2},
    {"new_ones.default", fold_filled, 3},    {"to.dtype", fold_cast, 0},
    {"alias.default", fold_same, 0},         {"contiguous.default", fold_same, 0},
    {"expand.default", fold_expand, 0},      {"unsqueeze.default", fold_unsqueeze, 0},
    {"index.Tensor", fold_index, 0},         {"slice.Tensor", fold_slice, 0},
    {"cumsum.default", fold_along, 0},       {"diff.default", fold_along, 1},
    {"add.Tensor", fold_binary, FOLD_ADD},   {"sub.Tensor", fold_binary, FOLD_SUB},
    {"mul.Tensor", fold_binary, FOLD_MUL},   {"eq.Tensor", fold_binary, FOLD_EQ},
    {"eq.Scalar", fold_binary, FOLD_EQ},     {"ne.Tensor", fold_binary, FOLD_NE},
    {"ne.Scalar", fold_binary, FOLD_NE},     {"lt.Tensor", fold_binary, FOLD_LT},
    {"lt.Scalar", fold_binary, FOLD_LT},     {"le.Tensor", fold_binary, FOLD_LE},
    {"le.Scalar", fold_binary, FOLD_LE},     {"gt.Tensor", fold_binary, FOLD_GT},
    {"gt.Scalar", fold_binary, FOLD_GT},     {"ge.Tensor", fold_binary, FOLD_GE},
    {"ge.Scalar", fold_binary, FOLD_GE},     {"__and__.Tensor", fold_binary, FOLD_AND},
    {"__or__.Tensor", fold_binary, FOLD_OR},
};

static int fold_find(const char *target)
{
    for (size_t i = 0; i < ARRAY_LEN(fold_table); i++)
        if (!strcmp(fold_table[i].target, target))
            return (int)i;
    return -1;
}

int fold_can(const char *target) { return fold_find(target) >= 0; }

int fold_node(struct arena *a, const struct import_network *n, const struct import_node *node,
              struct fold_value *value, struct err *err)
{
    struct fold f = {.a = a, .net = n, .node = node, .value = value, .err = err};
    const int row = fold_find(node->target);
    const int out = node->n_out == 1 ? node->out[0] : IMPORT_NO_VALUE;
    struct host_tensor *kept;

    if (row < 0 || out == IMPORT_NO_VALUE)
        return err_set(err, ERR_UNSUPPORTED, "%s of %s is not computed before training",
                       node->target, node->name);
    f.kind = fold_table[row].kind;
    fold_table[row].fold(&f);
    if (f.rc == 0 && (n->value[out].type != f.out.type || n->value[out].n_dims != f.out.n_dims))
        fold_fail(&f, "it gives %s and %d dimensions, the export says %s and %d",
                  import_type_name(f.out.type), f.out.n_dims, import_type_name(n->value[out].type),
                  n->value[out].n_dims);
    if (f.rc < 0)
        return err_wrap(err, "%s of %s", node->target, node->name);
    kept = arena_alloc(a, sizeof *kept);
    *kept = f.out;
    value[out] = (struct fold_value){.tensor = kept};
    return 0;
}
