/* outer_pairs - outer.h's sums of outer products of pairs of BF16 (AVX512-BF16).  On other
 * processors outer_has_pairs() is 0, and the products are not called. */
#include "backend/cpu/onednn.h"
#include "backend/cpu/outer.h"
#include "backend/cpu/registers.h"
#include "base/util.h"

#ifdef __x86_64__

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bf16")))

enum { LANES = 16, VECTORS = OUTER_PAIRS_J / LANES, MOST_I = 6 };

/* As outer_block; one instruction multiplies a pair by 16 pairs, and adds both products. */
/* clang-format off */
INLINE void outer_pairs_block(const struct outer *o, const float *a, const float *b, float *to,
                              const int I)
{
    __m512 acc[MOST_I][VECTORS];
    __m512i row[VECTORS];
    int64_t off[MOST_I];

    EACH(i, I) {
        EACH(v, VECTORS)
            acc[i][v] = _mm512_setzero_ps();
        off[i] = o->a_off[i];
    }
    for (int64_t t1 = 0; t1 < o->n1; t1++) {
        const float *a_at = a + t1 * o->a1, *b_at = b + t1 * o->b1;

        for (int64_t t2 = 0; t2 < o->n2; t2++, a_at += o->a2, b_at += o->b2) {
            EACH(v, VECTORS)
                row[v] = _mm512_loadu_si512(b_at + v * LANES);
            EACH(v, VECTORS)
                KEEP(row[v]);
            EACH(i, I) {
                const __m512i x = _mm512_castps_si512(_mm512_set1_ps(a_at[off[i]]));

                EACH(v, VECTORS)
                    acc[i][v] = _mm512_dpbf16_ps(acc[i][v], (__m512bh)x, (__m512bh)row[v]);
            }
        }
    }
    EACH(i, I) EACH(v, VECTORS) {
        float *at = to + o->to_off[i] + v * LANES;

        if (o->end == OUTER_ADD)
            acc[i][v] = _mm512_add_ps(acc[i][v], _mm512_loadu_ps(at));
        _mm512_storeu_ps(at, acc[i][v]);
    }
}

#define BLOCK(I)                             \
    case I:                                  \
        outer_pairs_block(o, a, b, to, (I)); \
        return;

AVX512 void outer_run_pairs(const struct outer *o, const float *a, const float *b, float *to)
{
    ASSERT(o->n_j == OUTER_PAIRS_J && o->end != OUTER_RELU && !o->add);
    switch (o->n_i) {
        BLOCK(1) BLOCK(2) BLOCK(3) BLOCK(4) BLOCK(5) BLOCK(6)
    default:
        ASSERT(!"too many accumulators");
    }
}
/* clang-format on */

int outer_has_pairs(void) { return dn_multiplies_bf16() && !dn_has_amx(); }

#else

void outer_run_pairs(const struct outer *o, const float *a, const float *b, float *to)
{
    (void)o, (void)a, (void)b, (void)to;
    ASSERT(!"not on this processor");
}

int outer_has_pairs(void) { return 0; }

#endif
