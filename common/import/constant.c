/* constant - tensors of the file that are no parameters, as constants of the graph: of F32 where
 * arithmetic reads them (booleans are 0 and 1), of I32 where they are indices. */
#include <string.h>

#include "base/util.h"
#include "import/lower_impl.h"
#include "tensor/half.h"

static double constant_element(const struct import_tensor *t, int64_t i)
{
    const char *at = t->bytes + (size_t)i * import_type_size(t->type);
    union {
        float f32;
        double f64;
        int64_t i64;
        int32_t i32;
        int16_t i16;
        int8_t i8;
        uint8_t u8;
    } v = {0};

    memcpy(&v, at, import_type_size(t->type));
    switch (t->type) {
    case IMPORT_F32:
        return (double)v.f32;
    case IMPORT_F64:
        return v.f64;
    case IMPORT_I64:
        return (double)v.i64;
    case IMPORT_I32:
        return v.i32;
    case IMPORT_I16:
        return v.i16;
    case IMPORT_I8:
        return v.i8;
    case IMPORT_BOOL:
        return v.u8 != 0;
    default:
        return v.u8;
    }
}

/* The strides of a dense tensor. */
static void constant_dense(struct lower *l, struct lowered *x)
{
    int64_t n = 1;

    for (int d = x->n - 1; d >= 0; d--) {
        x->stride[d] = n;
        n *= extent_size(l, x->dim[d]);
    }
    x->offset = 0;
}

static int64_t constant_count(const struct lower *l, const struct lowered *x)
{
    int64_t n = 1;

    for (int d = 0; d < x->n; d++)
        n *= extent_size(l, x->dim[d]);
    return n;
}

struct lowered lower_host(struct lower *l, struct lowered x)
{
    const struct import_tensor *t;
    int64_t n;

    if (lower_failed(l) || x.host)
        return x;
    t = &l->net->tensor[x.tensor];
    n = constant_count(l, &x);
    if (!t->bytes || t->type == IMPORT_F16 || t->type == IMPORT_BF16) {
        lower_fail(l, ERR_UNSUPPORTED, "it reads %s, a constant of type %s without elements here",
                   t->name, import_type_name(t->type));
        return x;
    }
    x.host = arena_alloc(&l->arena, (size_t)n * sizeof *x.host + 1);
    for (int64_t i = 0; i < n; i++)
        x.host[i] = constant_element(t, i);
    constant_dense(l, &x);
    return x;
}

struct lowered lower_host_new(struct lower *l, const int64_t *dim, int n, double value)
{
    struct lowered x = {.kind = LOWERED_HOST, .n = n, .tensor = -1};
    int64_t count;

    for (int d = 0; d < n; d++) {
        x.dim[d] = extent_of(dim[d]);
        x.at[d] = d;
    }
    count = constant_count(l, &x);
    if (count > 1 << 26) {
        lower_fail(l, ERR_UNSUPPORTED, "a constant of %lld elements, want %d at most",
                   (long long)count, 1 << 26);
        return x;
    }
    x.host = arena_alloc(&l->arena, (size_t)count * sizeof *x.host + 1);
    for (int64_t i = 0; i < count; i++)
        x.host[i] = value;
    constant_dense(l, &x);
    return x;
}

/* The place of element i, counted in the order of x's dimensions. */
static double *constant_place(const struct lower *l, const struct lowered *x, int64_t i)
{
    int64_t at = x->offset;

    for (int d = x->n - 1; d >= 0; d--) {
        const int64_t extent = extent_size(l, x->dim[d]);

        at += i % extent * x->stride[d];
        i /= extent;
    }
    return &x->host[at];
}

void lower_host_fill(struct lower *l, struct lowered x, double value)
{
    const int64_t n = constant_count(l, &x);

    for (int64_t i = 0; i < n; i++)
        *constant_place(l, &x, i) = value;
}

struct lowered lower_host_reshape(struct lower *l, struct lowered x, const int64_t *to, int n)
{
    struct lowered y;
    int64_t count, dense = 1;
    int is_dense = 1;

    x = lower_host(l, x);
    if (lower_failed(l))
        return x;
    for (int d = x.n - 1; d >= 0; d--) {
        is_dense &= x.stride[d] == dense;
        dense *= extent_size(l, x.dim[d]);
    }
    y = x;
    y.n = n;
    for (int d = 0; d < n; d++)
        y.dim[d] = extent_of(to[d]);
    count = constant_count(l, &y);
    if (count != dense) {
        lower_fail(l, ERR_CONFIG, "a constant of %lld elements becomes one of %lld",
                   (long long)dense, (long long)count);
        return x;
    }
    constant_dense(l, &y);
    y.offset = x.offset;
    if (is_dense)
        return y;
    y.offset = 0;
    y.host = arena_alloc(&l->arena, (size_t)count * sizeof *y.host + 1);
    for (int64_t i = 0; i < count; i++)
        y.host[i] = *constant_place(l, &x, i);
    return y;
}

static struct lowered constant_value(struct lower *l, struct lowered x, enum dtype dtype)
{
    struct shape s = {.n = x.n};
    int32_t *to;
    int64_t n;

    x = lower_host(l, x);
    if (lower_failed(l))
        return x;
    for (int d = 0; d < x.n; d++) {
        s.dim[d] = extent_size(l, x.dim[d]);
        x.at[d] = d;
    }
    n = shape_elements(&s);
    to = arena_alloc(&l->arena, (size_t)n * sizeof *to + 1);
    for (int64_t i = 0; i < n; i++) {
        const double v = *constant_place(l, &x, i);

        if (dtype == DTYPE_I32)
            to[i] = (int32_t)v;
        else
            memcpy(&to[i], &(float){(float)v}, sizeof *to);
    }
    return lower_with(x, graph_const(l->m->g, dtype, s, to,
                                     x.tensor >= 0 ? l->net->tensor[x.tensor].name : "constant"));
}

struct lowered lower_real_value(struct lower *l, struct lowered x)
{
    if (lower_failed(l) || x.kind == LOWERED_VALUE)
        return x;
    if (x.kind == LOWERED_HOST)
        return constant_value(l, x, DTYPE_F32);
    lower_fail(l, ERR_UNSUPPORTED, "%s",
               x.kind == LOWERED_DRAW   ? "random numbers are read by an operator other than the "
                                          "product of stochastic depth"
               : x.kind == LOWERED_INT  ? "it reads an integer as a tensor"
               : x.kind == LOWERED_NEXT ? "it reads a running statistic or a counter in the step "
                                          "that updates it"
                                        : "it reads a value that does not exist");
    return x;
}

struct lowered lower_index_value(struct lower *l, struct lowered x)
{
    if (x.kind == LOWERED_HOST)
        return constant_value(l, x, DTYPE_I32);
    x = lower_real_value(l, x);
    if (!lower_failed(l) && l->m->g->value[x.value].dtype != DTYPE_I32)
        lower_fail(l, ERR_UNSUPPORTED, "its indices are %s, want integers",
                   dtype_name(l->m->g->value[x.value].dtype));
    return x;
}
