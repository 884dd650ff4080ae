/* pairs - two rows of BF16 numbers become one of pairs, number by number: what the instructions
 * multiply that add two products at once.  For kernels that define AVX512, the attribute with their
 * instruction set (registers.h).
 *
 * Threads: pure. */
#ifndef BACKEND_CPU_PAIRS_H
#define BACKEND_CPU_PAIRS_H

#include <immintrin.h>
#include <stdint.h>

#include "backend/cpu/registers.h"

enum { PAIRS_OF_VECTOR = 16 };

/* 16 pairs: the number of `low` is the lower half.  NULL stands for zeros. */
INLINE __m512i pairs_of(const uint16_t *low, const uint16_t *high)
{
    const __m256i none = _mm256_setzero_si256();
    const __m256i l = low ? _mm256_loadu_si256((const __m256i *)low) : none;
    const __m256i h = high ? _mm256_loadu_si256((const __m256i *)high) : none;

    return _mm512_or_si512(_mm512_cvtepu16_epi32(l),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* n pairs, a multiple of 16, of four bytes each. */
AVX512 static inline void pairs_zip(const uint16_t *low, const uint16_t *high, int64_t n, void *to)
{
    for (int64_t j = 0; j < n; j += PAIRS_OF_VECTOR)
        _mm512_storeu_si512((int32_t *)to + j,
                            pairs_of(low ? low + j : NULL, high ? high + j : NULL));
}

#endif
