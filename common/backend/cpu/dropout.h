/* dropout - the random words of dropout (op/dropout.c), drawn for many elements at once.
 *
 * Threads: pure. */
#ifndef BACKEND_CPU_DROPOUT_H
#define BACKEND_CPU_DROPOUT_H

#include "backend/cpu/plain.h"
#include "base/rng.h"

enum { DROPOUT_BLOCKS = PLAIN_PIECE / 4 + 1 }; /* of a room for the words of a piece */

/* The words of elements [first, first + n), n <= PLAIN_PIECE: element e of the global batch takes
 * word e & 3 of draw e >> 2.  They are in the room. */
static inline const uint32_t *dropout_words_for(const struct step_scalars *s,
                                                enum rng_purpose purpose, int64_t tag,
                                                uint64_t first, int64_t n, struct rng_block *room)
{
    const int64_t skipped = (int64_t)(first & 3);

    rng_draw_many(s->seed, purpose, s->step, ((uint64_t)tag << 40) + (first >> 2),
                  (skipped + n + 3) / 4, room);
    return room[0].v + skipped;
}

static inline const uint32_t *dropout_words(const struct step_scalars *s, int64_t tag,
                                            uint64_t first, int64_t n, struct rng_block *room)
{
    return dropout_words_for(s, RNG_DROPOUT, tag, first, n, room);
}

/* rng_to_unit, by a conversion that all vector units have. */
static inline float dropout_unit(uint32_t word) { return (float)(int32_t)(word >> 8) * 0x1p-24f; }

#endif
