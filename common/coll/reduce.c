#include "coll/reduce.h"

#include "tensor/half.h"

#define REDUCERS(T)                                                                 \
    static void sum_##T(T *dst, const T *a, const T *b, int64_t n)                  \
    {                                                                               \
        for (int64_t i = 0; i < n; i++)                                             \
            dst[i] = a[i] + b[i];                                                   \
    }                                                                               \
    static void max_##T(T *dst, const T *a, const T *b, int64_t n)                  \
    {                                                                               \
        for (int64_t i = 0; i < n; i++)                                             \
            dst[i] = a[i] > b[i] || a[i] != a[i] ? a[i] : b[i]; /* != : a is NaN */ \
    }

REDUCERS(float)
REDUCERS(double)

/* Rounded with each rank that is added, as a ring of GPUs does. */
static void reduce_bf16(uint16_t *dst, const uint16_t *a, const uint16_t *b, int64_t n,
                        enum coll_red red)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = bf16_to_float(a[i]), y = bf16_to_float(b[i]);

        dst[i] = bf16_from_float(red == COLL_SUM ? x + y : x > y || x != x ? x : y);
    }
}

void coll_reduce(void *dst, const void *a, const void *b, int64_t n, enum dtype dtype,
                 enum coll_red red)
{
    if (dtype == DTYPE_F32)
        (red == COLL_SUM ? sum_float : max_float)(dst, a, b, n);
    else if (dtype == DTYPE_BF16)
        reduce_bf16(dst, a, b, n, red);
    else
        (red == COLL_SUM ? sum_double : max_double)(dst, a, b, n);
}
