/* winograd_pairs - the maps on vectors of 16 channels, and the rounding and pairing of points by
 * the processor's own instructions (AVX512-BF16).
 *
 * These instructions take numbers below 2^-126 for 0, as outer_run_pairs does. */
#include "backend/cpu/winograd_pairs.h"

#include "backend/cpu/winograd_maps.h"
#include "base/util.h"

#ifdef __x86_64__

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

enum { PANEL = MOST_PANEL, NARROW = PANEL / 2 /* pairs of a panel's channels */ };

/* to[i] = the pair of low[i] and high[i] */
INLINE void store_pairs(const lanes *low, const lanes *high, float *to)
{
    const __m512i places =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512bh halves = _mm512_cvtne2ps_pbh((__m512)*high, (__m512)*low);

    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(places, (__m512i)halves));
}

/* Neighbours among 16 channels make 8 pairs. */
INLINE void store_channels(const lanes *x, float *to)
{
    _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh((__m512)*x));
}

INLINE void pair_channels(const void *const *pixel, int64_t c, const int is_whole, float *to)
{
    for (int64_t at = 0; at < c; at += LANES) {
        float *point = to + in_panels(at / 2, NARROW);

        UNROLL
        for (int i = 0; i < 4; i++) {
            lanes d[4];

            x_row(pixel, i, at, DTYPE_BF16, is_whole, d);
            for (int j = 0; j < 4; j++, point += tiles_point(c / 2))
                store_channels(&d[j], point);
        }
    }
}

AVX512 void pair_x_channels(const void *const *pixel, int64_t c, float *to)
{
    if (winograd_is_whole(pixel))
        pair_channels(pixel, c, 1, to);
    else
        pair_channels(pixel, c, 0, to);
}

/* Channel `at` of a pair of tiles. */
INLINE float *pair_of_tiles(float *to, int64_t at)
{
    return to + at / PANEL * PANEL * (TILES / 2) + at % PANEL;
}

INLINE void pair_tiles(const void *const *pixel, int64_t c, const int is_whole, float *to)
{
    for (int64_t at = 0; at < c; at += LANES) {
        float *point = pair_of_tiles(to, at);

        UNROLL
        for (int i = 0; i < 4; i++) {
            lanes low[4], high[4];

            x_row(pixel, i, at, DTYPE_BF16, is_whole, low);
            x_row(pixel + POINTS, i, at, DTYPE_BF16, is_whole, high);
            for (int j = 0; j < 4; j++, point += tiles_point(c / 2))
                store_pairs(&low[j], &high[j], point);
        }
    }
}

AVX512 void pair_x_tiles(const void *const *pixel, int64_t c, float *to)
{
    if (winograd_is_whole(pixel) && winograd_is_whole(pixel + POINTS))
        pair_tiles(pixel, c, 1, to);
    else
        pair_tiles(pixel, c, 0, to);
}

AVX512 void pair_dy_tiles(const void *const *pixel, int64_t c, float *to, float *sum)
{
    for (int64_t at = 0; at < c; at += LANES) {
        float *point = pair_of_tiles(to, at);
        lanes low[POINTS], high[POINTS];

        dy_points(pixel, at, DTYPE_BF16, sum, low);
        dy_points(pixel + 4, at, DTYPE_BF16, sum, high);
        UNROLL
        for (int i = 0; i < POINTS; i++)
            store_pairs(&low[i], &high[i], point + i * tiles_point(c / 2));
    }
}

AVX512 void pair_w_rows(const struct filter *f, const void *w, int64_t number, float *to)
{
    const int64_t each = filter_point(f->rows / 2, f->panels * PANEL);
    float tap[2][TAPS][MOST_PANEL];

    for (int i = 0; i < 2; i++)
        read_taps(f, w, DTYPE_BF16, filter_row(f, 2 * number + i), tap[i]);
    for (int64_t at = 0; at < PANEL; at += LANES) {
        lanes low[POINTS], high[POINTS];

        w_points(tap[0], at, low);
        w_points(tap[1], at, high);
        UNROLL
        for (int i = 0; i < POINTS; i++)
            store_pairs(&low[i], &high[i], to + i * each + number * PANEL + at);
    }
}

#else

void pair_x_channels(const void *const *pixel, int64_t c, float *to)
{
    (void)pixel, (void)c, (void)to;
    ASSERT(!"not on this processor");
}

void pair_x_tiles(const void *const *pixel, int64_t c, float *to)
{
    (void)pixel, (void)c, (void)to;
    ASSERT(!"not on this processor");
}

void pair_dy_tiles(const void *const *pixel, int64_t c, float *to, float *sum)
{
    (void)pixel, (void)c, (void)to, (void)sum;
    ASSERT(!"not on this processor");
}

void pair_w_rows(const struct filter *f, const void *w, int64_t number, float *to)
{
    (void)f, (void)w, (void)number, (void)to;
    ASSERT(!"not on this processor");
}

#endif
