/* half - reads and writes one number of an array of any real type.  Kernels convert whole arrays
 * with the inline functions of half.h instead. */
#include "tensor/half.h"

#include "base/util.h"

float real_get(const void *from, enum dtype t, int64_t i)
{
    ASSERT(dtype_is_real(t));
    return t == DTYPE_F32    ? ((const float *)from)[i]
           : t == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)from)[i])
                             : f16_to_float(((const uint16_t *)from)[i]);
}

void real_put(void *to, enum dtype t, int64_t i, float v)
{
    ASSERT(dtype_is_real(t));
    if (t == DTYPE_F32)
        ((float *)to)[i] = v;
    else
        ((uint16_t *)to)[i] = t == DTYPE_BF16 ? bf16_from_float(v) : f16_from_float(v);
}
