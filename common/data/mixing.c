/* mixing - weighted sums of pixels, plain and by AVX2, whose bytes are equal: all sums are of whole
 * numbers that fit.
 *
 * By AVX2 two neighbours and their weights are multiplied and added in one instruction.  Rows: the
 * bytes of two rows are put side by side.  Columns: a result of two rows at once, one in each half
 * of a register, [r r g g b b . .]; four such results are packed and stored together. */
#include "data/mixing.h"

#include <string.h>

enum { MIXING_C = 3 }; /* bytes of a pixel */

/* ---- plain ---- */

static void mix_rows_plain(const uint8_t *from, int64_t stride, const int16_t *weight,
                           int64_t n_rows, int64_t n, int32_t *restrict sum, uint8_t *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] = MIXING_ONE / 2;
    for (int64_t k = 0; k < n_rows; k++) {
        const uint8_t *row = from + k * stride;
        const int16_t w = weight[k];

        for (int64_t i = 0; i < n; i++)
            sum[i] += (int16_t)row[i] * w;
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = (uint8_t)(sum[i] >> MIXING_SHIFT);
}

static void mix_column(const uint8_t *p, const int16_t *w, int64_t n, uint8_t *to)
{
    int32_t r = MIXING_ONE / 2, g = MIXING_ONE / 2, b = MIXING_ONE / 2;

    for (int64_t k = 0; k < n; k++) {
        r += p[MIXING_C * k] * w[k];
        g += p[MIXING_C * k + 1] * w[k];
        b += p[MIXING_C * k + 2] * w[k];
    }
    to[0] = (uint8_t)(r >> MIXING_SHIFT);
    to[1] = (uint8_t)(g >> MIXING_SHIFT);
    to[2] = (uint8_t)(b >> MIXING_SHIFT);
}

static void mix_columns_plain(const uint8_t *from, int64_t stride, int64_t n_rows,
                              const struct mixing_taps *t, uint8_t *to)
{
    for (int64_t y = 0; y < n_rows; y++, from += stride)
        for (int64_t i = 0; i < t->n_results; i++, to += MIXING_C)
            mix_column(from + t->first[i] * MIXING_C, t->weight + i * t->most, t->n[i], to);
}

/* Pixels [first, n) of the result. */
static void mirror_plain(const uint8_t *from, int64_t n, int64_t first, uint8_t *to)
{
    for (int64_t i = first; i < n; i++)
        memcpy(to + i * MIXING_C, from + (n - 1 - i) * MIXING_C, MIXING_C);
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* ---- AVX2 ---- */

#define AVX2 __attribute__((target("avx2")))

static int has_avx2(void) { return __builtin_cpu_supports("avx2"); }

/* Two weights, side by side, in all lanes. */
AVX2 static inline __m256i mixing_pair(const int16_t *w)
{
    int32_t both;

    memcpy(&both, w, sizeof both);
    return _mm256_set1_epi32(both);
}

/* Four bytes in each half of a register, beside those of another row, are weighted and added. */
AVX2 static inline __m256i mixing_add(__m256i sum, __m256i pairs, __m256i weights)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, weights));
}

/* Eight sums each become words. */
AVX2 static inline __m256i mixing_words(__m256i low, __m256i high)
{
    return _mm256_packs_epi32(_mm256_srai_epi32(low, MIXING_SHIFT),
                              _mm256_srai_epi32(high, MIXING_SHIFT));
}

/* The halves of registers stay apart throughout, so that the bytes come back in their order. */
AVX2 static inline void mix_32(const uint8_t *from, int64_t stride, const int16_t *weight,
                               int64_t n_rows, uint8_t *to)
{
    const __m256i zero = _mm256_setzero_si256(), half = _mm256_set1_epi32(MIXING_ONE / 2);
    __m256i s0 = half, s1 = half, s2 = half, s3 = half;

    for (int64_t k = 0; k < n_rows; k += 2) {
        const int has_two = k + 1 < n_rows;
        const __m256i a = _mm256_loadu_si256((const __m256i *)(from + k * stride)),
                      b = has_two ? _mm256_loadu_si256((const __m256i *)(from + (k + 1) * stride))
                                  : zero;
        const __m256i w =
            has_two ? mixing_pair(weight + k) : _mm256_set1_epi32((uint16_t)weight[k]);
        const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);

        s0 = mixing_add(s0, _mm256_unpacklo_epi8(low, zero), w);
        s1 = mixing_add(s1, _mm256_unpackhi_epi8(low, zero), w);
        s2 = mixing_add(s2, _mm256_unpacklo_epi8(high, zero), w);
        s3 = mixing_add(s3, _mm256_unpackhi_epi8(high, zero), w);
    }
    _mm256_storeu_si256((__m256i *)to,
                        _mm256_packus_epi16(mixing_words(s0, s1), mixing_words(s2, s3)));
}

/* The last 32 bytes may overlap those before.  `n_rows` is a constant where this is expanded for
 * few of them. */
AVX2 __attribute__((always_inline)) static inline void mix_rows_of(const uint8_t *from,
                                                                   int64_t stride,
                                                                   const int16_t *weight,
                                                                   int64_t n_rows, int64_t n,
                                                                   uint8_t *to)
{
    for (int64_t i = 0; i < n; i += 32) {
        const int64_t at = i + 32 <= n ? i : n - 32;

        mix_32(from + at, stride, weight, n_rows, to + at);
    }
}

AVX2 static void mix_rows_avx2(const uint8_t *from, int64_t stride, const int16_t *weight,
                               int64_t n_rows, int64_t n, uint8_t *to)
{
    if (n_rows == 2)
        mix_rows_of(from, stride, weight, 2, n, to);
    else if (n_rows == 3)
        mix_rows_of(from, stride, weight, 3, n, to);
    else
        mix_rows_of(from, stride, weight, n_rows, n, to);
}

/* 16 bytes at each of two places. */
AVX2 static inline __m256i mixing_two(const uint8_t *a, const uint8_t *b)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)),
                                   _mm_loadu_si128((const __m128i *)b), 1);
}

/* The sums of one result of two rows.  A register has four pixels of each row that matter. */
AVX2 static inline __m256i mixing_two_rows(const uint8_t *a, const uint8_t *b, const int16_t *w,
                                           int64_t most)
{
    const __m256i first =
                      _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 0,
                                       -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1),
                  second =
                      _mm256_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1,
                                       6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    __m256i sum = _mm256_set1_epi32(MIXING_ONE / 2);

    for (int64_t k = 0; k < most; k += 4) {
        const __m256i v = mixing_two(a + MIXING_C * k, b + MIXING_C * k);

        sum = _mm256_add_epi32(
            sum, _mm256_madd_epi16(_mm256_shuffle_epi8(v, first), mixing_pair(w + k)));
        if (k + 2 < most)
            sum = _mm256_add_epi32(
                sum, _mm256_madd_epi16(_mm256_shuffle_epi8(v, second), mixing_pair(w + k + 2)));
    }
    return _mm256_srai_epi32(sum, MIXING_SHIFT);
}

/* Store the first 12 bytes: four pixels. */
AVX2 static inline void mixing_store_four(uint8_t *to, __m128i pixels)
{
    const int32_t last = _mm_extract_epi32(pixels, 2);

    _mm_storel_epi64((__m128i *)to, pixels);
    memcpy(to + sizeof(int64_t), &last, sizeof last);
}

/* Four results of each of the rows a and b. */
AVX2 static inline void mix_columns_four(const uint8_t *a, const uint8_t *b, const int64_t *first,
                                         const int16_t *w, int64_t most, uint8_t *to_a,
                                         uint8_t *to_b)
{
    const __m256i order = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
                                           0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    __m256i sum[4], pixels;

    for (int k = 0; k < 4; k++)
        sum[k] =
            mixing_two_rows(a + first[k] * MIXING_C, b + first[k] * MIXING_C, w + k * most, most);
    pixels =
        _mm256_packus_epi16(_mm256_packs_epi32(sum[0], sum[1]), _mm256_packs_epi32(sum[2], sum[3]));
    pixels = _mm256_shuffle_epi8(pixels, order);
    mixing_store_four(to_a, _mm256_castsi256_si128(pixels));
    mixing_store_four(to_b, _mm256_extracti128_si256(pixels, 1));
}

/* The last four results may be among those before.  `most` is a constant where this is expanded. */
AVX2 __attribute__((always_inline)) static inline void mix_columns_two(const uint8_t *a,
                                                                       const uint8_t *b,
                                                                       const struct mixing_taps *t,
                                                                       int64_t most, uint8_t *to_a,
                                                                       uint8_t *to_b)
{
    for (int64_t i = 0; i < t->n_results; i += 4) {
        const int64_t at = i + 4 <= t->n_results ? i : t->n_results - 4;

        mix_columns_four(a, b, t->first + at, t->weight + at * most, most, to_a + at * MIXING_C,
                         to_b + at * MIXING_C);
    }
}

/* The two rows may be one. */
AVX2 static void mix_columns_avx2(const uint8_t *a, const uint8_t *b, const struct mixing_taps *t,
                                  uint8_t *to_a, uint8_t *to_b)
{
    if (t->most == 2)
        mix_columns_two(a, b, t, 2, to_a, to_b);
    else if (t->most == 4)
        mix_columns_two(a, b, t, 4, to_a, to_b);
    else
        mix_columns_two(a, b, t, t->most, to_a, to_b);
}

/* Five pixels at a time: of the 16 bytes that are read the first one is of the pixel before, and of
 * those written the last one is where the next pixel goes.  Returns how many pixels are done. */
AVX2 static int64_t mirror_avx2(const uint8_t *from, int64_t n, uint8_t *to)
{
    const __m128i order = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, -1);
    int64_t i = 0;

    for (; i + 6 <= n; i += 5) {
        const uint8_t *end = from + (n - i) * MIXING_C;
        const __m128i v = _mm_loadu_si128((const __m128i *)(end - sizeof v));

        _mm_storeu_si128((__m128i *)(to + i * MIXING_C), _mm_shuffle_epi8(v, order));
    }
    return i;
}

void mixing_rows(const uint8_t *from, int64_t stride, const int16_t *weight, int64_t n_rows,
                 int64_t n, int32_t *sum, uint8_t *to)
{
    if (n >= 32 && has_avx2())
        mix_rows_avx2(from, stride, weight, n_rows, n, to);
    else
        mix_rows_plain(from, stride, weight, n_rows, n, sum, to);
}

void mixing_columns(const uint8_t *from, int64_t stride, int64_t n_rows,
                    const struct mixing_taps *t, uint8_t *to)
{
    const int64_t row_bytes = t->n_results * MIXING_C;

    if (t->n_results < 4 || !has_avx2()) {
        mix_columns_plain(from, stride, n_rows, t, to);
        return;
    }
    for (int64_t i = 0; i < n_rows; i += 2) {
        const int64_t next = i + 1 < n_rows ? i + 1 : i;

        mix_columns_avx2(from + i * stride, from + next * stride, t, to + i * row_bytes,
                         to + next * row_bytes);
    }
}

void mixing_mirror(const uint8_t *from, int64_t n, uint8_t *to)
{
    mirror_plain(from, n, has_avx2() ? mirror_avx2(from, n, to) : 0, to);
}

#else

void mixing_rows(const uint8_t *from, int64_t stride, const int16_t *weight, int64_t n_rows,
                 int64_t n, int32_t *sum, uint8_t *to)
{
    mix_rows_plain(from, stride, weight, n_rows, n, sum, to);
}

void mixing_columns(const uint8_t *from, int64_t stride, int64_t n_rows,
                    const struct mixing_taps *t, uint8_t *to)
{
    mix_columns_plain(from, stride, n_rows, t, to);
}

void mixing_mirror(const uint8_t *from, int64_t n, uint8_t *to) { mirror_plain(from, n, 0, to); }

#endif
