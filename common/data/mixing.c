/* mixing - weighted sums of pixels, plain and by AVX2, whose bytes are equal: all sums are of whole
 * numbers that fit.
 *
 * By AVX2 two neighbours and their weights are multiplied and added in one instruction.  Rows: the
 * bytes of two rows are put side by side.  Columns: two results at once, one in each half of a
 * register, [r r g g b b . .]. */
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

/* Results [first, n_results). */
static void mix_columns_plain(const uint8_t *from, const struct mixing_taps *t, int64_t first,
                              uint8_t *to)
{
    for (int64_t i = first; i < t->n_results; i++)
        mix_column(from + t->first[i] * MIXING_C, t->weight + i * t->most, t->n[i],
                   to + i * MIXING_C);
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

AVX2 static inline __m256i mixing_add(__m256i sum, __m128i pixels, __m256i weights)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_cvtepu8_epi16(pixels), weights));
}

/* 16 sums become bytes. */
AVX2 static inline __m128i mixing_bytes(__m256i low, __m256i high)
{
    const __m256i words = _mm256_packs_epi32(_mm256_srai_epi32(low, MIXING_SHIFT),
                                             _mm256_srai_epi32(high, MIXING_SHIFT));
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0xd8);
    const __m256i order = _mm256_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15, 0,
                                           1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15);

    return _mm256_castsi256_si128(_mm256_shuffle_epi8(bytes, order));
}

AVX2 static void mix_16(const uint8_t *from, int64_t stride, const int16_t *weight, int64_t n_rows,
                        uint8_t *to)
{
    __m256i low = _mm256_set1_epi32(MIXING_ONE / 2), high = low;

    for (int64_t k = 0; k < n_rows; k += 2) {
        const int has_two = k + 1 < n_rows;
        const __m128i a = _mm_loadu_si128((const __m128i *)(from + k * stride)),
                      b = has_two ? _mm_loadu_si128((const __m128i *)(from + (k + 1) * stride))
                                  : _mm_setzero_si128();
        const __m256i w =
            has_two ? mixing_pair(weight + k) : _mm256_set1_epi32((uint16_t)weight[k]);

        low = mixing_add(low, _mm_unpacklo_epi8(a, b), w);
        high = mixing_add(high, _mm_unpackhi_epi8(a, b), w);
    }
    _mm_storeu_si128((__m128i *)to, mixing_bytes(low, high));
}

/* The last 16 bytes may overlap those before. */
AVX2 static void mix_rows_avx2(const uint8_t *from, int64_t stride, const int16_t *weight,
                               int64_t n_rows, int64_t n, uint8_t *to)
{
    for (int64_t i = 0; i < n; i += 16) {
        const int64_t at = i + 16 <= n ? i : n - 16;

        mix_16(from + at, stride, weight, n_rows, to + at);
    }
}

/* 16 bytes at each of two places. */
AVX2 static inline __m256i mixing_two(const uint8_t *a, const uint8_t *b)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)),
                                   _mm_loadu_si128((const __m128i *)b), 1);
}

AVX2 static inline __m256i mixing_two_weights(const int16_t *a, const int16_t *b)
{
    return _mm256_permute2x128_si256(mixing_pair(a), mixing_pair(b), 0x20);
}

/* Results but for the last ones, whose four bytes would reach beyond the row: how many. */
AVX2 static int64_t mix_columns_avx2(const uint8_t *from, const struct mixing_taps *t, uint8_t *to)
{
    const __m256i pair = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,
                                          0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    int64_t i = 0;

    for (; i + 3 <= t->n_results; i += 2) {
        const uint8_t *a = from + t->first[i] * MIXING_C, *b = from + t->first[i + 1] * MIXING_C;
        const int16_t *w = t->weight + i * t->most;
        __m256i sum = _mm256_set1_epi32(MIXING_ONE / 2);
        int32_t bytes;

        for (int64_t k = 0; k < t->most; k += 2)
            sum = _mm256_add_epi32(
                sum, _mm256_madd_epi16(
                         _mm256_shuffle_epi8(mixing_two(a + MIXING_C * k, b + MIXING_C * k), pair),
                         mixing_two_weights(w + k, w + t->most + k)));
        sum = _mm256_srai_epi32(sum, MIXING_SHIFT);
        sum = _mm256_packs_epi32(sum, sum);
        sum = _mm256_packus_epi16(sum, sum);
        bytes = _mm256_cvtsi256_si32(sum);
        memcpy(to + i * MIXING_C, &bytes, sizeof bytes);
        bytes = _mm_cvtsi128_si32(_mm256_extracti128_si256(sum, 1));
        memcpy(to + (i + 1) * MIXING_C, &bytes, sizeof bytes);
    }
    return i;
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
    if (n >= 16 && has_avx2())
        mix_rows_avx2(from, stride, weight, n_rows, n, to);
    else
        mix_rows_plain(from, stride, weight, n_rows, n, sum, to);
}

void mixing_columns(const uint8_t *from, const struct mixing_taps *t, uint8_t *to)
{
    mix_columns_plain(from, t, has_avx2() ? mix_columns_avx2(from, t, to) : 0, to);
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

void mixing_columns(const uint8_t *from, const struct mixing_taps *t, uint8_t *to)
{
    mix_columns_plain(from, t, 0, to);
}

void mixing_mirror(const uint8_t *from, int64_t n, uint8_t *to) { mirror_plain(from, n, 0, to); }

#endif
