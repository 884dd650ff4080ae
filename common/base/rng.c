/* Philox4x32-10 and what is derived from it.
 * tests/base/test_rng.c compares it with the known answers of the paper's authors. */
#include "base/rng.h"

#include <math.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* The paper's constants: two multipliers and two Weyl increments (table 2 and section 4.3). */
enum { ROUNDS = 10 };
static const uint32_t mul_0 = 0xD2511F53, mul_1 = 0xCD9E8D57;
static const uint32_t weyl_0 = 0x9E3779B9, weyl_1 = 0xBB67AE85;

__extension__ typedef unsigned __int128 u128; /* one multiply instruction; GCC and Clang have it */

static struct rng_block rng_philox(struct rng_block ctr, uint32_t k0, uint32_t k1)
{
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t p0 = (uint64_t)mul_0 * ctr.v[0];
        uint64_t p1 = (uint64_t)mul_1 * ctr.v[2];

        ctr = (struct rng_block){{(uint32_t)(p1 >> 32) ^ ctr.v[1] ^ k0, (uint32_t)p1,
                                  (uint32_t)(p0 >> 32) ^ ctr.v[3] ^ k1, (uint32_t)p0}};
        k0 += weyl_0;
        k1 += weyl_1;
    }
    return ctr;
}

/* Counter words: index low, index high 24 bits with the purpose on top, step low, step high. */
struct rng_block rng_draw(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint64_t index)
{
    struct rng_block ctr = {{(uint32_t)index, (uint32_t)(index >> 32) | (uint32_t)purpose << 24,
                             (uint32_t)step, (uint32_t)(step >> 32)}};

    return rng_philox(ctr, (uint32_t)seed, (uint32_t)(seed >> 32));
}

#ifdef __x86_64__

/* Blocks are drawn side by side, one in each 64-bit lane, of which only the low half counts.  A
 * round has to wait for the one before it, so a single vector would leave the processor idle:
 * GROUPS of them take turns. */
enum { GROUPS = 4 };
#ifdef __clang__
#define EACH(g) _Pragma("clang loop unroll(full)") for (int g = 0; g < GROUPS; g++)
#else
#define EACH(g) _Pragma("GCC unroll 4") for (int g = 0; g < GROUPS; g++)
#endif

/* ---- AVX-512: 8 lanes ---- */

enum { SIDE_512 = 8 * GROUPS };
#define AVX512 __attribute__((target("avx512f"), always_inline)) static inline

struct side_512 {
    __m512i a, b, c, d; /* words 0 to 3 of 8 counters */
};

AVX512 void philox_round_512(struct side_512 *s, __m512i k0, __m512i k1)
{
    const __m512i m0 = _mm512_set1_epi64(mul_0), m1 = _mm512_set1_epi64(mul_1);

    EACH(g)
    {
        const __m512i p0 = _mm512_mul_epu32(m0, s[g].a), p1 = _mm512_mul_epu32(m1, s[g].c);

        /* 0x96: the exclusive or of three */
        s[g].a = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), s[g].b, k0, 0x96);
        s[g].b = p1;
        s[g].c = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), s[g].d, k1, 0x96);
        s[g].d = p0;
    }
}

/* Writes 8 blocks. */
AVX512 void rng_store_512(const struct side_512 *s, struct rng_block *out)
{
    const __m512i ab = _mm512_mask_blend_epi32(0xaaaa, s->a, _mm512_slli_epi64(s->b, 32));
    const __m512i cd = _mm512_mask_blend_epi32(0xaaaa, s->c, _mm512_slli_epi64(s->d, 32));
    const __m512i first = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
    const __m512i last = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);

    _mm512_storeu_si512(out, _mm512_permutex2var_epi64(ab, first, cd));
    _mm512_storeu_si512(out + 4, _mm512_permutex2var_epi64(ab, last, cd));
}

/* The twin of rng_draw for SIDE_512 blocks. */
__attribute__((target("avx512f"))) static void draw_side_512(uint64_t seed,
                                                             enum rng_purpose purpose,
                                                             uint64_t step, uint64_t index,
                                                             struct rng_block *out)
{
    const __m512i top = _mm512_set1_epi64((long long)((uint32_t)purpose << 24));
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    struct side_512 s[GROUPS];

    EACH(g)
    {
        s[g].a = _mm512_add_epi64(_mm512_set1_epi64((long long)index + 8 * g),
                                  _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
        s[g].b = _mm512_or_si512(_mm512_srli_epi64(s[g].a, 32), top);
        s[g].c = _mm512_set1_epi64((long long)step);
        s[g].d = _mm512_set1_epi64((long long)(step >> 32));
    }
    for (int i = 0; i < ROUNDS; i++, k0 += weyl_0, k1 += weyl_1)
        philox_round_512(s, _mm512_set1_epi64(k0), _mm512_set1_epi64(k1));
    EACH(g)
    rng_store_512(&s[g], out + 8 * g);
}

/* ---- AVX2: 4 lanes ---- */

enum { SIDE_256 = 4 * GROUPS };
#define AVX2 __attribute__((target("avx2"), always_inline)) static inline

struct side_256 {
    __m256i a, b, c, d; /* words 0 to 3 of 4 counters */
};

AVX2 void philox_round_256(struct side_256 *s, __m256i k0, __m256i k1)
{
    const __m256i m0 = _mm256_set1_epi64x(mul_0), m1 = _mm256_set1_epi64x(mul_1);

    EACH(g)
    {
        const __m256i p0 = _mm256_mul_epu32(m0, s[g].a), p1 = _mm256_mul_epu32(m1, s[g].c);

        s[g].a = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(s[g].b, k0));
        s[g].b = p1;
        s[g].c = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(s[g].d, k1));
        s[g].d = p0;
    }
}

/* Writes 4 blocks.  unpack works in halves of a register: `even` has blocks 0 and 2, `odd` 1 and 3.
 */
AVX2 void rng_store_256(const struct side_256 *s, struct rng_block *out)
{
    const __m256i ab = _mm256_blend_epi32(s->a, _mm256_slli_epi64(s->b, 32), 0xaa);
    const __m256i cd = _mm256_blend_epi32(s->c, _mm256_slli_epi64(s->d, 32), 0xaa);
    const __m256i even = _mm256_unpacklo_epi64(ab, cd), odd = _mm256_unpackhi_epi64(ab, cd);

    _mm256_storeu_si256((__m256i *)out, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((__m256i *)(out + 2), _mm256_permute2x128_si256(even, odd, 0x31));
}

/* The twin of rng_draw for SIDE_256 blocks. */
__attribute__((target("avx2"))) static void draw_side_256(uint64_t seed, enum rng_purpose purpose,
                                                          uint64_t step, uint64_t index,
                                                          struct rng_block *out)
{
    const __m256i top = _mm256_set1_epi64x((long long)((uint32_t)purpose << 24));
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    struct side_256 s[GROUPS];

    EACH(g)
    {
        s[g].a = _mm256_add_epi64(_mm256_set1_epi64x((long long)index + 4 * g),
                                  _mm256_setr_epi64x(0, 1, 2, 3));
        s[g].b = _mm256_or_si256(_mm256_srli_epi64(s[g].a, 32), top);
        s[g].c = _mm256_set1_epi64x((long long)step);
        s[g].d = _mm256_set1_epi64x((long long)(step >> 32));
    }
    for (int i = 0; i < ROUNDS; i++, k0 += weyl_0, k1 += weyl_1)
        philox_round_256(s, _mm256_set1_epi64x(k0), _mm256_set1_epi64x(k1));
    EACH(g)
    rng_store_256(&s[g], out + 4 * g);
}

/* Draw as many of n blocks as fit vectors; returns how many these are. */
static int64_t rng_draw_vectors(uint64_t seed, enum rng_purpose purpose, uint64_t step,
                                uint64_t index, int64_t n, struct rng_block *out)
{
    int64_t i = 0;

    if (__builtin_cpu_supports("avx512f"))
        for (; i + SIDE_512 <= n; i += SIDE_512)
            draw_side_512(seed, purpose, step, index + (uint64_t)i, out + i);
    if (__builtin_cpu_supports("avx2"))
        for (; i + SIDE_256 <= n; i += SIDE_256)
            draw_side_256(seed, purpose, step, index + (uint64_t)i, out + i);
    return i;
}

#else

static int64_t rng_draw_vectors(uint64_t seed, enum rng_purpose purpose, uint64_t step,
                                uint64_t index, int64_t n, struct rng_block *out)
{
    (void)seed, (void)purpose, (void)step, (void)index, (void)n, (void)out;
    return 0;
}

#endif

void rng_draw_many(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint64_t index,
                   int64_t n, struct rng_block *out)
{
    for (int64_t i = rng_draw_vectors(seed, purpose, step, index, n, out); i < n; i++)
        out[i] = rng_draw(seed, purpose, step, index + (uint64_t)i);
}

void rng_to_normal(uint32_t u1, uint32_t u2, double out[2])
{
    double r = sqrt(-2.0 * log(((double)u1 + 0.5) * 0x1p-32));
    double angle = RNG_TURN * ((double)u2 + 0.5) * 0x1p-32;

    out[0] = r * cos(angle);
    out[1] = r * sin(angle);
}

void rng_stream_init(struct rng_stream *s, uint64_t seed, enum rng_purpose purpose, uint64_t step)
{
    *s = (struct rng_stream){.seed = seed, .step = step, .purpose = purpose};
}

uint32_t rng_next_u32(struct rng_stream *s)
{
    unsigned lane = s->next & 3;

    if (lane == 0)
        s->block = rng_draw(s->seed, s->purpose, s->step, s->next >> 2);
    s->next++;
    return s->block.v[lane];
}

/* Lemire's method: multiply, and reject the few words that would make some values likelier. */
uint64_t rng_next_below(struct rng_stream *s, uint64_t n)
{
    uint64_t least = -n % n;

    for (;;) {
        uint64_t x = (uint64_t)rng_next_u32(s) << 32 | rng_next_u32(s);
        u128 m = (u128)x * n;

        if ((uint64_t)m >= least)
            return (uint64_t)(m >> 64);
    }
}

double rng_next_unit(struct rng_stream *s)
{
    uint64_t hi = rng_next_u32(s), lo = rng_next_u32(s);

    return (double)((hi << 32 | lo) >> 11) * 0x1p-53;
}

double rng_next_normal(struct rng_stream *s)
{
    double out[2];
    uint32_t u1 = rng_next_u32(s), u2 = rng_next_u32(s);

    rng_to_normal(u1, u2, out);
    return out[0];
}
