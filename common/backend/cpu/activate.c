/* relu - the loops of relu.h, which the compiler vectorises.
 *
 * Comparisons with NaN are false, so each loop asks for what it makes 0. */
#include "backend/cpu/relu.h"

#include "backend/cpu/plain.h"

CPU_CLONES void relu_f32(const float *x, float *y, int64_t n)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

/* BF16 numbers from 0x8000 (-0) to 0xff80 (-inf) are negative, those above are NaN. */
CPU_CLONES void relu_bf16(const uint16_t *x, uint16_t *y, int64_t n)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] >= 0x8000 && x[i] <= 0xff80 ? 0 : x[i];
}

CPU_CLONES void relu_grad_f32(const float *y, const float *dy, float *dx, int64_t n)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = y[i] <= 0.0f ? 0.0f : dy[i];
}
