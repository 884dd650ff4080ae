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

/* SIDE blocks side by side, GROUPS vectors of 8: a round has to wait for the one before it, so a
 * single vector would leave the processor idle.  Only the low half of each 64-bit lane counts. */
enum { GROUPS = 4, SIDE = 8 * GROUPS };
#define AVX512 __attribute__((target("avx512f"), always_inline)) static inline
#ifdef __clang__
#define EACH(g) _Pragma("clang loop unroll(full)") for (int g = 0; g < GROUPS; g++)
#else
#define EACH(g) _Pragma("GCC unroll 4") for (int g = 0; g < GROUPS; g++)
#endif

struct side {
    __m512i a, b, c, d; /* words 0 to 3 of 8 counters */
};

AVX512 void philox_round(struct side *s, __m512i k0, __m512i k1)
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
AVX512 void rng_store(const struct side *s, struct rng_block *out)
{
    const __m512i ab = _mm512_mask_blend_epi32(0xaaaa, s->a, _mm512_slli_epi64(s->b, 32));
    const __m512i cd = _mm512_mask_blend_epi32(0xaaaa, s->c, _mm512_slli_epi64(s->d, 32));
    const __m512i first = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
    const __m512i last = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);

    _mm512_storeu_si512(out, _mm512_permutex2var_epi64(ab, first, cd));
    _mm512_storeu_si512(out + 4, _mm512_permutex2var_epi64(ab, last, cd));
}

/* The twin of rng_draw for SIDE blocks. */
__attribute__((target("avx512f"))) static void draw_side(uint64_t seed, enum rng_purpose purpose,
                                                         uint64_t step, uint64_t index,
                                                         struct rng_block *out)
{
    const __m512i top = _mm512_set1_epi64((long long)((uint32_t)purpose << 24));
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    struct side s[GROUPS];

    EACH(g)
    {
        s[g].a = _mm512_add_epi64(_mm512_set1_epi64((long long)index + 8 * g),
                                  _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
        s[g].b = _mm512_or_si512(_mm512_srli_epi64(s[g].a, 32), top);
        s[g].c = _mm512_set1_epi64((long long)step);
        s[g].d = _mm512_set1_epi64((long long)(step >> 32));
    }
    for (int i = 0; i < ROUNDS; i++, k0 += weyl_0, k1 += weyl_1)
        philox_round(s, _mm512_set1_epi64(k0), _mm512_set1_epi64(k1));
    EACH(g)
    rng_store(&s[g], out + 8 * g);
}

static int has_side(void) { return __builtin_cpu_supports("avx512f"); }

#else

enum { SIDE = 1 };

static int has_side(void) { return 0; }

static void draw_side(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint64_t index,
                      struct rng_block *out)
{
    *out = rng_draw(seed, purpose, step, index);
}

#endif

void rng_draw_many(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint64_t index,
                   int64_t n, struct rng_block *out)
{
    int64_t i = 0;

    if (has_side())
        for (; i + SIDE <= n; i += SIDE)
            draw_side(seed, purpose, step, index + (uint64_t)i, out + i);
    for (; i < n; i++)
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
