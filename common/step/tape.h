/* tape - work that is the same in every step: recorded once, then repeated by one launch (a CUDA
 * graph).
 *
 * The first time that work comes under a key, it is queued and not recorded, because libraries load
 * what they need then.  The second time it is recorded and launched.  From then on it is only
 * launched.  If nothing is recorded (the backend cannot, or train.record is false), the work is
 * queued each time, with the same results.
 *
 *     rc = tapes_begin(t, key, err);
 *     if (rc == TAPE_RECORDED)
 *         rc = tapes_repeat(t, err);
 *     else if (rc == TAPE_QUEUE)
 *         rc = tapes_end(t, queue the work, err);
 *
 * The same work must be queued each time under a key: the same addresses and sizes.  It may read
 * host memory only through backend_put, from addresses that never change.
 *
 * Life:    tapes_new -> begin, end, repeat ... -> tapes_free, before what was recorded is freed
 *          (programs, buffers, and a device's coll: coll/device.h).
 * Threads: the engine's. */
#ifndef STEP_TAPE_H
#define STEP_TAPE_H

#include "backend/backend.h"
#include "strategy/exchange.h"

struct tapes; /* opaque */

/* The key of a recording.  It holds only what is the same on all ranks.  So all ranks queue, record
 * and launch a collective at the same times, as NCCL demands.  (For two keys a rank may have the
 * same program, and then has two recordings of it.) */
struct tape_key {
    int training;        /* 0: validation; one that has collectives is not recorded */
    int64_t n_global;    /* samples of the whole step; validation: 0 */
    int64_t most, least; /* samples of the micro-batch on rank 0 and on the last rank; validation:
                            this rank's, twice */
    int micro;           /* the number of the micro-batch, if shares follow the ranks' speed or are
                            fixed; else 0 */
    int first, last;     /* 1: the step's first, last micro-batch; validation: 0 */
    int is_watched;      /* watch_holds_up; validation: 0 */
    int variant;         /* reducer_variant; validation: 0 */
};

/* x         the exchange that starts the work's collectives; borrowed.
 * records   0: nothing is recorded.  The same on all ranks. */
struct tapes *tapes_new(struct backend *b, struct exchange *x, int records);
void tapes_free(struct tapes *t); /* NULL is fine */

/* Free all recordings, because the work under their keys has changed.  Nothing is under way, and
 * all ranks do the same. */
void tapes_clear(struct tapes *t);

enum { TAPE_QUEUE = 1, TAPE_RECORDED };

/* TAPE_QUEUE: queue the work, then call tapes_end.  TAPE_RECORDED: call tapes_repeat.  <0: failed,
 * and neither is called. */
int tapes_begin(struct tapes *t, struct tape_key key, struct err *err);
/* The work is queued; rc and *err are the result.  If it was recorded, launch the recording. */
int tapes_end(struct tapes *t, int rc, struct err *err);
/* Launch the recording, and enter its collectives into the record of collectives again. */
int tapes_repeat(struct tapes *t, struct err *err);

int64_t tapes_launches(const struct tapes *t); /* so far: for tests */

#endif
