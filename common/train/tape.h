/* tape - work that is queued again and again: recorded once, then done by one launch.
 *
 * Work that is queued under a key for the first time is done as it is queued (libraries load what
 * they need then).  The second time it is recorded and launched, and from then on only launched.
 * Where nothing is recorded (the backend cannot, or train.record is false) the work is queued each
 * time, with the same results.
 *
 *     rc = tapes_begin(t, key, err);
 *     if (rc == TAPE_RECORDED)
 *         rc = tapes_repeat(t, err);
 *     else if (rc == TAPE_QUEUE)
 *         rc = tapes_end(t, queue the work, err);
 *
 * So the same work must be queued each time: the same addresses and sizes, and nothing read from
 * host memory but through backend_put, from places that never change.
 *
 * Life:    tapes_new -> begin, end, repeat ... -> tapes_free, before what was recorded is freed
 *          (programs, buffers, and a device's coll: coll/device.h).
 * Threads: the engine's. */
#ifndef TRAIN_TAPE_H
#define TRAIN_TAPE_H

#include "backend/backend.h"
#include "strategy/exchange.h"

struct tapes; /* opaque */

/* The key that tells one recording from another.  It holds only what all ranks know alike, and
 * nothing of one rank's own, so that all ranks do, record and launch a collective at the same
 * times, as NCCL demands.  (A rank whose shares differ by one sample may have the same program
 * twice, and two recordings of it.) */
struct tape_key {
    int training;        /* 0: validation, which has no collectives */
    int64_t n_global;    /* samples of the whole step; validation: 0 */
    int64_t most, least; /* of the micro-batch, on rank 0 and on the last rank; validation: this
                            rank's, twice */
    int first, last;     /* micro-batch of its step; validation: 0 */
};

/* x         the exchange that starts the work's collectives; borrowed.
 * records   the same on all ranks; 0: as with a backend that cannot record. */
struct tapes *tapes_new(struct backend *b, struct exchange *x, int records);
void tapes_free(struct tapes *t); /* NULL is fine */

enum { TAPE_QUEUE = 1, TAPE_RECORDED };

/* TAPE_QUEUE: queue the work, then call tapes_end.  TAPE_RECORDED: call tapes_repeat.  <0: failed,
 * and neither is called. */
int tapes_begin(struct tapes *t, struct tape_key key, struct err *err);
/* rc and *err: what queueing the work returned. */
int tapes_end(struct tapes *t, int rc, struct err *err);
int tapes_repeat(struct tapes *t, struct err *err);

int64_t tapes_launches(const struct tapes *t); /* so far: for tests */

#endif
