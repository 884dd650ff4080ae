#include "coll/reduce.h"

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

void coll_reduce(void *dst, const void *a, const void *b, int64_t n, enum dtype dtype,
                 enum coll_red red)
{
    if (dtype == DTYPE_F32)
        (red == COLL_SUM ? sum_float : max_float)(dst, a, b, n);
    else
        (red == COLL_SUM ? sum_double : max_double)(dst, a, b, n);
}
