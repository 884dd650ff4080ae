/* fold_elements - the elements of constants as numbers, a run of them at once: the places of a run
 * are counted on from its first element, and its type is asked once. */
#include <string.h>

#include "base/util.h"
#include "import/fold_impl.h"
#include "tensor/half.h"

int host_is_real(enum import_type t)
{
    return t == IMPORT_F32 || t == IMPORT_F64 || t == IMPORT_F16 || t == IMPORT_BF16;
}

int64_t host_count(const struct host_tensor *t)
{
    int64_t n = 1;

    for (int d = 0; d < t->n_dims; d++)
        n *= t->dim[d];
    return n;
}

/* ---- places ---- */

void fold_places(const struct host_tensor *t, int64_t i, int n, int64_t *to)
{
    const int last = t->n_dims - 1;
    int64_t index[IMPORT_MAX_DIMS], at = 0;
    int k = 0;

    for (int d = last; d >= 0 && n > 0; d--) {
        index[d] = i % t->dim[d];
        at += index[d] * t->stride[d];
        i /= t->dim[d];
    }
    while (k < n) {
        const int64_t row = last < 0 ? 1 : t->dim[last] - index[last];
        const int64_t step = last < 0 ? 0 : t->stride[last];
        const int m = (int)min_i64(row, n - k);

        for (int j = 0; j < m; j++)
            to[k + j] = at + j * step;
        k += m;
        at += m * step;
        for (int d = last; d >= 0 && k < n; d--) { /* the next row */
            index[d] += d == last ? m : 1;
            if (d < last)
                at += t->stride[d];
            if (index[d] < t->dim[d])
                break;
            at -= index[d] * t->stride[d];
            index[d] = 0;
        }
    }
}

int64_t fold_place(const struct host_tensor *t, int64_t i)
{
    int64_t at;

    fold_places(t, i, 1, &at);
    return at;
}

/* ---- numbers ---- */

/* Reals and integers of the C type `type`; `number` makes one of the bits v. */
#define LOAD_REALS(type, number)                                \
    for (int k = 0; k < n; k++) {                               \
        type v;                                                 \
                                                                \
        memcpy(&v, from + at[k] * (int64_t)sizeof v, sizeof v); \
        to[k] = (struct fold_num){.f = (double)(number)};       \
    }
#define LOAD_INTEGERS(type, number)                             \
    for (int k = 0; k < n; k++) {                               \
        type v;                                                 \
                                                                \
        memcpy(&v, from + at[k] * (int64_t)sizeof v, sizeof v); \
        to[k].i = (number);                                     \
        to[k].f = (double)to[k].i;                              \
    }

void fold_load(const struct host_tensor *t, const int64_t *at, int n, struct fold_num *to)
{
    const char *from = t->data;

    switch (t->type) {
    case IMPORT_F32:
        LOAD_REALS(float, v)
        break;
    case IMPORT_F64:
        LOAD_REALS(double, v)
        break;
    case IMPORT_F16:
        LOAD_REALS(uint16_t, f16_to_float(v))
        break;
    case IMPORT_BF16:
        LOAD_REALS(uint16_t, bf16_to_float(v))
        break;
    case IMPORT_I64:
        LOAD_INTEGERS(int64_t, v)
        break;
    case IMPORT_I32:
        LOAD_INTEGERS(int32_t, v)
        break;
    case IMPORT_I16:
        LOAD_INTEGERS(int16_t, v)
        break;
    case IMPORT_I8:
        LOAD_INTEGERS(int8_t, v)
        break;
    case IMPORT_BOOL:
        LOAD_INTEGERS(uint8_t, v != 0)
        break;
    default:
        LOAD_INTEGERS(uint8_t, v)
    }
}

/* A float beyond int64 has no defined value in PyTorch; here it is the smallest. */
static int64_t fold_truncate(double v)
{
    return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN;
}

/* The C type `type` of real numbers and of integers. */
#define STORE(type, of_real, of_integer)                      \
    for (int k = 0; k < n; k++) {                             \
        const type v = was_real ? (of_real) : (of_integer);   \
                                                              \
        memcpy(to + at[k] * (int64_t)sizeof v, &v, sizeof v); \
    }

static void fold_store(const struct host_tensor *t, const int64_t *at, int n,
                       const struct fold_num *from, enum import_type type)
{
    const int was_real = host_is_real(type);
    char *to = t->data;

    switch (t->type) {
    case IMPORT_F32:
        STORE(float, (float)from[k].f, (float)from[k].i)
        break;
    case IMPORT_F64:
        STORE(double, from[k].f, (double)from[k].i)
        break;
    case IMPORT_F16:
        STORE(uint16_t, f16_from_float((float)from[k].f), f16_from_float((float)(double)from[k].i))
        break;
    case IMPORT_BF16:
        STORE(uint16_t, bf16_from_float((float)from[k].f),
              bf16_from_float((float)(double)from[k].i))
        break;
    case IMPORT_BOOL:
        STORE(uint8_t, from[k].f != 0, from[k].i != 0)
        break;
    case IMPORT_I64:
        STORE(int64_t, fold_truncate(from[k].f), from[k].i)
        break;
    case IMPORT_I32:
        STORE(int32_t, (int32_t)fold_truncate(from[k].f), (int32_t)from[k].i)
        break;
    case IMPORT_I16:
        STORE(int16_t, (int16_t)fold_truncate(from[k].f), (int16_t)from[k].i)
        break;
    default:
        STORE(uint8_t, (uint8_t)fold_truncate(from[k].f), (uint8_t)from[k].i)
    }
}

struct fold_num fold_get(const struct host_tensor *t, int64_t at)
{
    struct fold_num v;

    fold_load(t, &at, 1, &v);
    return v;
}

void fold_put(const struct host_tensor *t, int64_t at, struct fold_num v, enum import_type from)
{
    fold_store(t, &at, 1, &v, from);
}

int fold_read(const struct host_tensor *t, int64_t i, int64_t n, struct fold_num *to)
{
    const int m = (int)min_i64(n, FOLD_RUN);
    int64_t at[FOLD_RUN];

    fold_places(t, i, m, at);
    fold_load(t, at, m, to);
    return m;
}

void fold_write(const struct host_tensor *t, int64_t i, int n, const struct fold_num *from,
                enum import_type type)
{
    int64_t at[FOLD_RUN];

    fold_places(t, i, n, at);
    fold_store(t, at, n, from, type);
}

void fold_read_as(const struct host_tensor *x, int64_t i, int n, enum import_type type,
                  struct fold_num *to)
{
    int64_t room[FOLD_RUN];
    const struct host_tensor as = {
        .type = type, .n_dims = 1, .dim = {n}, .stride = {1}, .data = room};

    fold_read(x, i, n, to);
    if (x->type == type)
        return;
    fold_write(&as, 0, n, to, x->type);
    fold_read(&as, 0, n, to);
}

void fold_fill(const struct host_tensor *to, const struct host_tensor *from)
{
    struct fold_num v[FOLD_RUN];
    const int64_t n = host_count(to);

    for (int64_t i = 0, m; i < n; i += m) {
        m = fold_read(from, i, n - i, v);
        fold_write(to, i, (int)m, v, from->type);
    }
}

struct fold_num fold_element(const struct host_tensor *t, int64_t i)
{
    return fold_get(t, fold_place(t, i));
}

double host_element(const struct host_tensor *t, int64_t i) { return fold_element(t, i).f; }

int64_t host_integer(const struct host_tensor *t, int64_t i) { return fold_element(t, i).i; }

int host_is_even(const struct host_tensor *t, int d)
{
    const int64_t size = (int64_t)import_type_size(t->type), n = host_count(t);
    const char *data = t->data;
    struct host_tensor first = *t;

    if (n == 0 || t->dim[d] == 1 || t->stride[d] == 0)
        return n > 0;
    first.stride[d] = 0;
    for (int64_t i = 0; i < n; i += FOLD_RUN) {
        const int m = (int)min_i64(n - i, FOLD_RUN);
        int64_t at[FOLD_RUN], of_first[FOLD_RUN];

        fold_places(t, i, m, at);
        fold_places(&first, i, m, of_first);
        for (int k = 0; k < m; k++)
            if (memcmp(data + at[k] * size, data + of_first[k] * size, (size_t)size) != 0)
                return 0;
    }
    return 1;
}
