/* half - bfloat16 and float16 as bits, and elements of any real type as numbers.
 *
 * Numbers are rounded to the nearest, ties to even, as GPUs do.  A number that is too large becomes
 * infinite, a NaN stays a NaN, and float16's subnormal numbers, below 2^-14, are kept.
 * The header is C++, too: tests/cudasim makes its half types with it.
 *
 * Threads: pure. */
#ifndef TENSOR_HALF_H
#define TENSOR_HALF_H

#include <stdint.h>
#include <string.h>

#include "tensor/dtype.h"

static inline uint32_t half_bits(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline float half_of_bits(uint32_t bits)
{
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline float bf16_to_float(uint16_t v) { return half_of_bits((uint32_t)v << 16); }

static inline uint16_t bf16_from_float(float v)
{
    const uint32_t bits = half_bits(v);

    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40); /* a quiet NaN */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float f16_to_float(uint16_t v)
{
    const uint32_t sign = (uint32_t)(v & 0x8000) << 16, exponent = v >> 10 & 31, part = v & 1023;

    if (exponent == 31) /* infinity, or a NaN, which becomes quiet */
        return half_of_bits(sign | 0x7f800000 | (part ? 0x400000 : 0) | part << 13);
    if (exponent == 0) /* subnormal: part * 2^-24 */
        return half_of_bits(sign | half_bits((float)part * 0x1p-24f));
    return half_of_bits(sign | (exponent + 112) << 23 | part << 13);
}

static inline uint16_t f16_from_float(float v)
{
    const uint32_t bits = half_bits(v), size = bits & 0x7fffffff;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);

    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (size >= 0x477ff000) /* 65520, halfway beyond the largest */
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) /* below 2^-14: adding 0.5 rounds to units of 2^-24 */
        return (uint16_t)(sign | (half_bits(half_of_bits(size) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}

/* 1: t is F32, BF16 or F16, the types that layers compute in. */
static inline int dtype_is_real(enum dtype t)
{
    return t == DTYPE_F32 || t == DTYPE_BF16 || t == DTYPE_F16;
}

/* 1: t is one of the two real types of 2 bytes. */
static inline int dtype_is_half(enum dtype t) { return t == DTYPE_BF16 || t == DTYPE_F16; }

/* Read, and write, element i of an array of the real type t. */
float real_get(const void *from, enum dtype t, int64_t i);
void real_put(void *to, enum dtype t, int64_t i, float v);

#endif
