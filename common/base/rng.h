/* rng - random numbers as a pure function of where they are used.
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011, section 4.3): the key is the job's seed; the counter is the purpose, the step and
 * the element.  No state, so any rank, thread or device gets the same numbers, in any order.
 *
 * Threads: any; all functions are pure. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

/* The purpose of a number.  It is part of the counter, so streams never overlap.  Only append here:
 * a run is repeatable because these values stay. */
enum rng_purpose {
    RNG_INIT = 1,    /* initial weights: step = index of the parameter, index = element */
    RNG_SHUFFLE = 2, /* keys of the sampler's permutation: step = epoch */
    RNG_DROPOUT = 3, /* step = global step, index = global element */
    RNG_DIGITS = 4,  /* drawn digits: step = sample, index = draw */
    RNG_AUGMENT = 5, /* step = epoch, index = sample */
    RNG_TEST = 6,    /* tests only */
    RNG_JITTER = 7,  /* pauses between attempts; not part of a run */
    RNG_UNIFORM = 8, /* numbers that a network draws: step = global step, index = global element */
    RNG_SAMPLE = 9,  /* tokens of a text (generate/draw.h): step = draw */
    RNG_AUDIT = 10,  /* what is checked (train/inspect.h): step = global step, index = the check */
};

struct rng_block {
    uint32_t v[4];
};

/* Block number `index` of (seed, purpose, step): 4 words.  `index` < 2^56. */
struct rng_block rng_draw(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint64_t index);

/* Blocks [index, index + n) into out, each as rng_draw gives it; faster than one by one. */
void rng_draw_many(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint64_t index,
                   int64_t n, struct rng_block *out);

/* [0,1): the top 24 bits of v, exact in float. */
static inline float rng_to_unit(uint32_t v) { return (float)(v >> 8) * 0x1p-24f; }

#define RNG_TURN (2.0 * 3.14159265358979323846) /* a whole turn: 2 pi */

/* Two independent N(0,1) numbers from two words (Box, Muller 1958). */
void rng_to_normal(uint32_t u1, uint32_t u2, double out[2]);

/* The same for n pairs of words, times `std`, into to[2 n]: the bits of (float)(number * std);
 * faster than one by one (normal.c). */
void rng_to_normals(const uint32_t *word, int64_t n, double std, float *to);

/* A sequence within one (seed, purpose, step): number 0, 1, 2 ... one after another. */
struct rng_stream {
    uint64_t seed, step, next; /* next: index of the next word */
    enum rng_purpose purpose;
    struct rng_block block; /* holds words next & ~3 .. */
};

void rng_stream_init(struct rng_stream *s, uint64_t seed, enum rng_purpose purpose, uint64_t step);
uint32_t rng_next_u32(struct rng_stream *s);
uint64_t rng_next_below(struct rng_stream *s, uint64_t n); /* uniform in [0,n), n > 0 */
double rng_next_unit(struct rng_stream *s);                /* [0,1), 53 bits */
double rng_next_normal(struct rng_stream *s);              /* N(0,1) */

#endif
