/* reduce - sums of the element types that coll/host.h's kinds take: plain loops, which the compiler
 * vectorizes, but for float16 (tensor/half_array.h). */
#include "coll/reduce.h"

#include "base/util.h"
#include "tensor/half.h"
#include "tensor/half_array.h"

static void sum_f32(float *dst, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = a[i] + b[i];
}

static void sum_f64(double *dst, const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = a[i] + b[i];
}

/* Each call rounds, so a sum over ranks is rounded after each rank that is added, as in a ring of
 * GPUs.  Float16 likewise. */
static void sum_bf16(uint16_t *dst, const uint16_t *a, const uint16_t *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = bf16_from_float(bf16_to_float(a[i]) + bf16_to_float(b[i]));
}

void coll_sum(void *dst, const void *a, const void *b, int64_t n, enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        sum_f32(dst, a, b, n);
        return;
    case DTYPE_F64:
        sum_f64(dst, a, b, n);
        return;
    case DTYPE_BF16:
        sum_bf16(dst, a, b, n);
        return;
    case DTYPE_F16:
        f16_array_sum(dst, a, b, n);
        return;
    default:
        ASSERT(!"an element type that coll.c lets through");
    }
}
