/* convert - loops over tensor/half.h's functions, which the compiler turns into vector code.  Its
 * code for rounding to BF16 took 1.8 times as long as the vectors of vector.h.  Float16's functions
 * are too long for that: tensor/half_array.h has vector code for them. */
#include "backend/cpu/convert.h"

#include <string.h>

#include "backend/cpu/plain.h"
#include "backend/cpu/vector.h"
#include "tensor/half.h"
#include "tensor/half_array.h"

CPU_CLONES static void cpu_convert_widen(float *restrict to, const uint16_t *restrict from,
                                         int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = bf16_to_float(from[i]);
}

CPU_CLONES static void cpu_convert_narrow(uint16_t *restrict to, const float *restrict from,
                                          int64_t n)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        const lanes v = *(const lanes *)(from + i);

        lanes_to_bf16(to + i, &v);
    }
    for (; i < n; i++)
        to[i] = bf16_from_float(from[i]);
}

void convert_to_f32(float *to, const void *from, enum dtype type, int64_t n)
{
    if (type == DTYPE_F32)
        memcpy(to, from, (size_t)n * sizeof *to);
    else if (type == DTYPE_BF16)
        cpu_convert_widen(to, from, n);
    else
        f16_array_widen(to, from, n);
}

void convert_from_f32(void *to, const float *from, enum dtype type, int64_t n)
{
    if (type == DTYPE_F32)
        memcpy(to, from, (size_t)n * sizeof *from);
    else if (type == DTYPE_BF16)
        cpu_convert_narrow(to, from, n);
    else
        f16_array_round(to, from, n);
}
