/* tile - the AVX2 code of tile.h.  On other processors tile_available() is 0, and the
 * products are not called. */
#include "backend/cpu/tile.h"

#include "backend/cpu/onednn.h"
#include "backend/cpu/registers.h"
#include "base/util.h"

#ifdef __x86_64__

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define LEAF AVX2 __attribute__((always_inline)) static inline

enum { ROWS = TILE_ROWS, EIGHT = 8, COLUMNS = TILE_COLUMNS };

/* One product: its block of rows begins at `a` and `to`. */
struct tile {
    int64_t a_row, a_col, b_row, to_row, k;
    int n_j, adds;
    __m256i left, right; /* masks of the n_j columns */
};

/* With is_whole there are 16 columns, else the masks tell. */
LEAF __m256 tile_load(const float *from, __m256i mask, const int is_whole)
{
    return is_whole ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, mask);
}

LEAF void tile_store(const struct tile *t, __m256 sum, float *to, __m256i mask, const int is_whole)
{
    if (t->adds)
        sum = _mm256_add_ps(sum, tile_load(to, mask, is_whole));
    if (is_whole)
        _mm256_storeu_ps(to, sum);
    else
        _mm256_maskstore_ps(to, mask, sum);
}

/* A block of I rows.  The compiler knows I and is_whole, so acc stays in registers. */
/* clang-format off */
LEAF void tile_block(const struct tile *t, const float *a, const float *b, float *to,
                       const int I, const int is_whole)
{
    __m256 acc[ROWS][2];

    EACH(i, I)
        acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    for (int64_t l = 0; l < t->k; l++, a += t->a_col, b += t->b_row) {
        const __m256 left = tile_load(b, t->left, is_whole);
        const __m256 right = tile_load(b + EIGHT, t->right, is_whole);

        EACH(i, I) {
            const __m256 x = _mm256_broadcast_ss(a + i * t->a_row);

            acc[i][0] = _mm256_fmadd_ps(x, left, acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(x, right, acc[i][1]);
        }
    }
    EACH(i, I) {
        tile_store(t, acc[i][0], to + i * t->to_row, t->left, is_whole);
        tile_store(t, acc[i][1], to + i * t->to_row + EIGHT, t->right, is_whole);
    }
}

#define BLOCK(I)                                   \
    case I:                                        \
        tile_block(t, a, b, to, (I), 1);           \
        return;                                    \
    case (I) + COLUMNS:                            \
        tile_block(t, a, b, to, (I), 0);           \
        return;

AVX2 static void tile_run(const struct tile *t, const float *a, const float *b, float *to,
                          int n_i)
{
    switch (n_i + (t->n_j < COLUMNS ? COLUMNS : 0)) {
        BLOCK(1) BLOCK(2) BLOCK(3) BLOCK(4) BLOCK(5) BLOCK(6)
    default:
        ASSERT(!"no such block");
    }
}
/* clang-format on */

AVX2 void tile_product(struct matrix a, const float *b, int64_t b_row, float *to, int64_t to_row,
                       int64_t m, int64_t n, int64_t k, int adds)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    struct tile t = {
        .a_row = a.row, .a_col = a.col, .b_row = b_row, .to_row = to_row, .k = k, .adds = adds};

    for (int64_t j = 0; j < n; j += COLUMNS) {
        t.n_j = (int)min_i64(COLUMNS, n - j);
        t.left = _mm256_cmpgt_epi32(_mm256_set1_epi32(t.n_j), lane);
        t.right = _mm256_cmpgt_epi32(_mm256_set1_epi32(t.n_j - EIGHT), lane);
        for (int64_t i = 0; i < m; i += ROWS)
            tile_run(&t, a.at + i * a.row, b + j, to + i * to_row + j, (int)min_i64(ROWS, m - i));
    }
}

/* A block of I rows, as tile_block. */
/* clang-format off */
LEAF void tile_outer_block(const struct outer *o, const float *a, const float *b, float *to,
                           const int I)
{
    __m256 acc[ROWS][2];
    int64_t off[ROWS];

    EACH(i, I) {
        acc[i][0] = acc[i][1] = _mm256_setzero_ps();
        off[i] = o->a_off[i];
    }
    for (int64_t t1 = 0; t1 < o->n1; t1++) {
        const float *a_at = a + t1 * o->a1, *b_at = b + t1 * o->b1;

        for (int64_t t2 = 0; t2 < o->n2; t2++, a_at += o->a2, b_at += o->b2) {
            const __m256 left = _mm256_loadu_ps(b_at), right = _mm256_loadu_ps(b_at + EIGHT);

            EACH(i, I) {
                const __m256 x = _mm256_broadcast_ss(a_at + off[i]);

                acc[i][0] = _mm256_fmadd_ps(x, left, acc[i][0]);
                acc[i][1] = _mm256_fmadd_ps(x, right, acc[i][1]);
            }
        }
    }
    EACH(i, I) EACH(v, 2) {
        float *at = to + o->to_off[i] + v * EIGHT;

        if (o->end == OUTER_ADD)
            acc[i][v] = _mm256_add_ps(acc[i][v], _mm256_loadu_ps(at));
        _mm256_storeu_ps(at, acc[i][v]);
    }
}

#define OUTER_BLOCK(I)                         \
    case I:                                    \
        tile_outer_block(o, a, b, to, (I));    \
        return;

AVX2 void tile_outer(const struct outer *o, const float *a, const float *b, float *to)
{
    ASSERT(o->n_j == COLUMNS && o->end != OUTER_RELU && !o->add);
    switch (o->n_i) {
        OUTER_BLOCK(1) OUTER_BLOCK(2) OUTER_BLOCK(3) OUTER_BLOCK(4) OUTER_BLOCK(5) OUTER_BLOCK(6)
    default:
        ASSERT(!"no such block");
    }
}
/* clang-format on */

int tile_available(void) { return dn_has_avx2() && __builtin_cpu_supports("fma"); }

#else

void tile_product(struct matrix a, const float *b, int64_t b_row, float *to, int64_t to_row,
                  int64_t m, int64_t n, int64_t k, int adds)
{
    (void)a, (void)b, (void)b_row, (void)to, (void)to_row, (void)m, (void)n, (void)k, (void)adds;
    ASSERT(!"not on this processor");
}

void tile_outer(const struct outer *o, const float *a, const float *b, float *to)
{
    (void)o, (void)a, (void)b, (void)to;
    ASSERT(!"not on this processor");
}

int tile_available(void) { return 0; }

#endif
