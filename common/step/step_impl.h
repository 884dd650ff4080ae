/* step_impl - what the files of a stepper share: step.c, flight.c, parts.c, flip.c, sights.c,
 * sums.c and witness.c.
 *
 * Threads: as step.h. */
#ifndef STEP_STEP_IMPL_H
#define STEP_STEP_IMPL_H

#include "step/step.h"

struct micro { /* a micro-batch under way */
    struct batch batch;
    struct program *program;
    struct tape_key key; /* .first, .last: 1 for the first, the last one of the step */
};

static inline int flight_slot(int64_t step) { return (int)(step % SEALED_SLOTS); }

/* Queue one whole global step: micro-batches, collectives, update.  Allocates nothing (on a device:
 * from the third step of a batch size on). */
int step_queue(struct stepper *t, struct flight *f, struct err *err);

/* Parts of step_queue, which an audited step has in another order (step/witness.h): load the next
 * micro-batch of this rank; send its scalars; set its sums to zero; carry running statistics to the
 * next one; where gradients are divided, make room for those that a stage writes; and all that
 * follows once the buckets are handed to the strategy. */
int step_load(struct stepper *t, int64_t micro, struct micro *out, struct err *err);
int step_send_scalars(struct stepper *t, const struct batch *b, struct err *err);
int step_begin_sums(struct stepper *t, const struct micro *m, struct err *err);
int step_carry(struct stepper *t, struct err *err);
int step_open_buckets(struct stepper *t, const struct stage *s, struct err *err);
int step_conclude(struct stepper *t, struct err *err);

/* Combined gradients of a bucket. */
struct step_sums {
    char *x;
    struct coll_span span; /* in the bucket */
};

/* Once the strategy has combined them: those of the h-th shard that this rank holds, or all of the
 * bucket where state is whole. */
struct step_sums step_find_sums(const struct stepper *t, int bucket, int h);

/* Before the update: if the ranks compare after this step what they hold, hash what the update
 * gets.  A device is not waited for, and hashes nothing. */
void step_hash_sums(struct stepper *t);

/* The slot `at` of exchange_hooks: the engine enters this phase of the step that is being queued.
 */
void step_at(void *stepper, enum phase phase, int64_t bucket);

#endif
