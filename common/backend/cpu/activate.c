/* activate - the loops of activate.h, which the compiler vectorises.
 *
 * Comparisons with NaN are false, so each loop asks for what it changes. */
#include "backend/cpu/activate.h"

#include "backend/cpu/plain.h"
#include "backend/cpu/vector.h"
#include "base/util.h"

CPU_CLONES static void activate_relu(const float *x, float *y, int64_t n)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

CPU_CLONES static void activate_leaky_relu(const float *x, float *y, int64_t n)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] < 0.0f ? 0.01f * x[i] : x[i];
}

CPU_CLONES static void activate_sigmoid(const float *x, float *y, int64_t n)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = sigmoid_of(x[i]);
}

void activate_f32(enum activation act, const float *x, float *y, int64_t n)
{
    if (act == ACT_RELU)
        activate_relu(x, y, n);
    else if (act == ACT_LEAKY_RELU)
        activate_leaky_relu(x, y, n);
    else if (act == ACT_SIGMOID)
        activate_sigmoid(x, y, n);
    else
        ASSERT(!"no such activation");
}

/* BF16 numbers from 0x8000 (-0) to 0xff80 (-inf) are negative, those above are NaN. */
CPU_CLONES void activate_relu_bf16(const uint16_t *x, uint16_t *y, int64_t n)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] >= 0x8000 && x[i] <= 0xff80 ? 0 : x[i];
}

CPU_CLONES void activate_relu_grad_f32(const float *y, const float *dy, float *dx, int64_t n)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = y[i] <= 0.0f ? 0.0f : dy[i];
}
