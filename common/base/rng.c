/* Philox4x32-10 and what is derived from it.
 * tests/base/test_rng.c compares it with the known answers of the paper's authors. */
#include "base/rng.h"

#include <math.h>

/* The paper's constants: two multipliers and two Weyl increments (table 2 and section 4.3). */
enum { ROUNDS = 10 };
static const uint32_t mul_0 = 0xD2511F53, mul_1 = 0xCD9E8D57;
static const uint32_t weyl_0 = 0x9E3779B9, weyl_1 = 0xBB67AE85;

__extension__ typedef unsigned __int128 u128; /* one multiply instruction; GCC and Clang have it */

static struct rng_block philox(struct rng_block ctr, uint32_t k0, uint32_t k1)
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

    return philox(ctr, (uint32_t)seed, (uint32_t)(seed >> 32));
}

void rng_to_normal(uint32_t u1, uint32_t u2, double out[2])
{
    double r = sqrt(-2.0 * log(((double)u1 + 0.5) * 0x1p-32));
    double angle = 2.0 * 3.14159265358979323846 * ((double)u2 + 0.5) * 0x1p-32;

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
