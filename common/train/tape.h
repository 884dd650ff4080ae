/* tape - work that is queued again and again: recorded once, then done by one launch.
 *
 * What is queued under a key the first time is done as it is queued (libraries load what they need
 * then), recorded the second time, and launched from then on.  Where nothing is recorded (the
 * backend cannot, or train.record is false) it is queued each time, for the same numbers.
 *
 * So whoever queues must queue the same each time: addresses and sizes, and nothing read from host
 * memory but through backend_put, from places that never change.
 *
 * Life:    tapes_new -> tapes_run ... -> tapes_free, before what was recorded is freed (programs,
 *          buffers, and a device's coll: coll/device.h).
 * Threads: the engine's. */
#ifndef TRAIN_TAPE_H
#define TRAIN_TAPE_H

#include "backend/backend.h"

struct tapes; /* opaque */

/* What tells one recording from another: all that all ranks know alike, and nothing of one rank's
 * own, so that a collective is done, recorded and launched by all at the same times, as NCCL wants
 * it.  (Whose shares differ by one sample may have the same program twice, and two recordings.) */
struct tape_key {
    int training;     /* 0: validation, which has no collectives: */
    int64_t n_global; /* samples of the whole step; 0 */
    int64_t most,
        least;       /* of the micro-batch, on rank 0 and on the last rank; this rank's, twice */
    int first, last; /* micro-batch of its step; 0 */
};

/* records   the same on all ranks; 0: as a backend that cannot. */
struct tapes *tapes_new(struct backend *b, int records);
void tapes_free(struct tapes *t); /* NULL is fine */

int tapes_run(struct tapes *t, struct tape_key key, int (*queue)(void *arg, struct err *err),
              void *arg, struct err *err);

int64_t tapes_launches(const struct tapes *t); /* so far: for tests */

#endif
