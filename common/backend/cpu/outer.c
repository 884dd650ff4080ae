/* outer - the AVX-512 code of outer.h: a block of accumulators stays in registers over the whole
 * sum.  On other processors outer_available() is 0, and the other functions are not called. */
#include "backend/cpu/outer.h"

#include "backend/cpu/onednn.h"
#include "backend/cpu/registers.h"
#include "base/util.h"

#ifdef __x86_64__

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f")))

/* The largest n_i for a number of vectors v: n_i*v accumulators, v vectors of b and one of a must
 * fit into 32 registers. */
static const int max_i[OUTER_MAX_V + 1] = {0, 12, 9, 8, 6, 5, 4, 3, 2};

/* 16 numbers, or those of the mask.  The compiler knows is_whole.  A mask of ones is no substitute:
 * GCC 14 keeps it, and a Zen 5 then takes 1.4 times as long for LeNet's first convolution. */
INLINE __m512 outer_load(const float *from, __mmask16 mask, const int is_whole)
{
    return is_whole ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps(mask, from);
}

/* Write one vector of sums, whose first column is `from`. */
INLINE void outer_store(const struct outer *o, __m512 sum, float *to, int from, __mmask16 mask,
                        const int is_whole)
{
    if (o->end == OUTER_ADD)
        sum = _mm512_add_ps(sum, outer_load(to, mask, is_whole));
    else if (o->add)
        sum = _mm512_add_ps(sum, outer_load(o->add + from, mask, is_whole));
    if (o->end == OUTER_RELU) /* max(0, x) is x if x is NaN */
        sum = _mm512_max_ps(_mm512_setzero_ps(), sum);
    if (is_whole)
        _mm512_storeu_ps(to, sum);
    else
        _mm512_mask_storeu_ps(to, mask, sum);
}

/* A block of I rows by V vectors.  The compiler knows both numbers, so acc stays in registers. */
/* clang-format off */
INLINE void outer_block(const struct outer *o, const float *a, const float *b, float *to,
                        const int V, const int I)
{
    const __mmask16 tail = (__mmask16)(0xffffu >> (16 * V - o->n_j));
    __mmask16 in = tail; /* for the loop alone, or GCC 12 would move it to its register each turn */
    __m512 acc[OUTER_MAX_I][OUTER_MAX_V], row[OUTER_MAX_V];

    EACH(i, I) EACH(v, V)
        acc[i][v] = _mm512_setzero_ps();
    KEEP_MASK(in);
    for (int64_t t1 = 0; t1 < o->n1; t1++) {
        const float *a_at = a + t1 * o->a1, *b_at = b + t1 * o->b1;

        for (int64_t left = o->n2; left > 0; left--, a_at += o->a2, b_at += o->b2) {
            EACH(v, V)
                row[v] = outer_load(b_at + 16 * v, in, v < V - 1);
            EACH(v, V)
                KEEP(row[v]);
            EACH(i, I) {
                const __m512 x = _mm512_set1_ps(a_at[o->a_off[i]]);

                EACH(v, V)
                    acc[i][v] = _mm512_fmadd_ps(x, row[v], acc[i][v]);
            }
        }
    }
    EACH(i, I) EACH(v, V)
        outer_store(o, acc[i][v], to + o->to_off[i] + 16 * v, 16 * v, tail, v < V - 1);
}

#define BLOCK(V, I)                   \
    case (V)*16 + (I):                \
        outer_block(o, a, b, to, (V), (I)); \
        return;
#define UP_TO_2(V) BLOCK(V, 1) BLOCK(V, 2)
#define UP_TO_3(V) UP_TO_2(V) BLOCK(V, 3)
#define UP_TO_4(V) UP_TO_3(V) BLOCK(V, 4)
#define UP_TO_5(V) UP_TO_4(V) BLOCK(V, 5)
#define UP_TO_6(V) UP_TO_5(V) BLOCK(V, 6)
#define UP_TO_8(V) UP_TO_6(V) BLOCK(V, 7) BLOCK(V, 8)
#define UP_TO_9(V) UP_TO_8(V) BLOCK(V, 9)
#define UP_TO_12(V) UP_TO_9(V) BLOCK(V, 10) BLOCK(V, 11) BLOCK(V, 12)

AVX512 void outer_run(const struct outer *o, const float *a, const float *b, float *to)
{
    switch ((o->n_j + 15) / 16 * 16 + o->n_i) { /* one block for each size that max_i allows */
        UP_TO_12(1) UP_TO_9(2) UP_TO_8(3) UP_TO_6(4) UP_TO_5(5) UP_TO_4(6) UP_TO_3(7) UP_TO_2(8)
    default:
        ASSERT(!"too many accumulators");
    }
}

AVX512 void outer_run_packed(int64_t n, const float *a, const float *b, enum outer_end end,
                             float *to, int64_t to_row)
{
    enum { I = OUTER_PACKED_I, V = OUTER_PACKED_J / 16, AHEAD = 8 * OUTER_PACKED_J };
    __m512 acc[I][V], row[V];

    EACH(i, I) EACH(v, V) {
        acc[i][v] = _mm512_setzero_ps();
        _mm_prefetch((const char *)(to + i * to_row + 16 * v), _MM_HINT_T0);
    }
    for (int64_t t = 0; t < n; t++, a += I, b += OUTER_PACKED_J) {
        EACH(v, V) {
            row[v] = _mm512_loadu_ps(b + 16 * v);
            KEEP(row[v]);
            _mm_prefetch((const char *)(b + AHEAD + 16 * v), _MM_HINT_T0);
        }
        EACH(i, I) {
            const __m512 x = _mm512_set1_ps(a[i]);

            EACH(v, V)
                acc[i][v] = _mm512_fmadd_ps(x, row[v], acc[i][v]);
        }
    }
    EACH(i, I) EACH(v, V) {
        float *at = to + i * to_row + 16 * v;

        if (end == OUTER_ADD)
            acc[i][v] = _mm512_add_ps(acc[i][v], _mm512_loadu_ps(at));
        _mm512_storeu_ps(at, acc[i][v]);
    }
}
/* clang-format on */

/* clang-format off */
INLINE void outer_dots_block(const struct outer *o, const float *a, const float *b, float *to,
                             const int J, const int I)
{
    __m512 acc[OUTER_DOTS_I][OUTER_DOTS_J], row[OUTER_DOTS_J];

    EACH(i, I) EACH(k, J)
        acc[i][k] = _mm512_setzero_ps();
    for (int64_t t1 = 0; t1 < o->n1; t1++)
        for (int64_t t = 0; t < o->n2; t += 16) {
            const int64_t left = o->n2 - t < 16 ? o->n2 - t : 16;
            const __mmask16 in = (__mmask16)(0xffff >> (16 - left));

            EACH(k, J)
                row[k] = _mm512_maskz_loadu_ps(in, b + t1 * o->b1 + k * o->b2 + t);
            EACH(i, I) {
                const __m512 x = _mm512_maskz_loadu_ps(in, a + o->a_off[i] + t1 * o->a1 + t);

                EACH(k, J)
                    acc[i][k] = _mm512_fmadd_ps(x, row[k], acc[i][k]);
            }
        }
    EACH(i, I) EACH(k, J) {
        const float sum = _mm512_reduce_add_ps(acc[i][k]) + (o->add ? o->add[k] : 0.0f);

        to[o->to_off[i] + k] = o->end == OUTER_RELU && sum < 0 ? 0.0f : sum;
    }
}

#define DOTS(I)                                 \
    case 2 * (I):                               \
        outer_dots_block(o, a, b, to, 1, (I));  \
        return;                                 \
    case 2 * (I) + 1:                           \
        outer_dots_block(o, a, b, to, 2, (I));  \
        return;

AVX512 void outer_dots(const struct outer *o, const float *a, const float *b, float *to)
{
    ASSERT(o->end != OUTER_ADD);
    switch (2 * o->n_i + o->n_j - 1) {
        DOTS(1) DOTS(2) DOTS(3) DOTS(4) DOTS(5) DOTS(6) DOTS(7) DOTS(8) DOTS(9)
    default:
        ASSERT(!"too many dot products");
    }
}
/* clang-format on */

int outer_max_i(int n_j)
{
    ASSERT(n_j >= 1 && n_j <= 16 * OUTER_MAX_V);
    return max_i[(n_j + 15) / 16];
}

int outer_available(void) { return dn_has_avx512(); }

#else

int outer_max_i(int n_j)
{
    (void)n_j;
    return 1;
}

void outer_run(const struct outer *o, const float *a, const float *b, float *to)
{
    (void)o, (void)a, (void)b, (void)to;
    ASSERT(!"not on this processor");
}

void outer_dots(const struct outer *o, const float *a, const float *b, float *to)
{
    (void)o, (void)a, (void)b, (void)to;
    ASSERT(!"not on this processor");
}

void outer_run_packed(int64_t n, const float *a, const float *b, enum outer_end end, float *to,
                      int64_t to_row)
{
    (void)n, (void)a, (void)b, (void)end, (void)to, (void)to_row;
    ASSERT(!"not on this processor");
}

int outer_available(void) { return 0; }

#endif
