/* step_impl - what the files of a stepper share: step.c, flight.c, parts.c and flip.c.
 *
 * Threads: as step.h. */
#ifndef STEP_STEP_IMPL_H
#define STEP_STEP_IMPL_H

#include "step/step.h"

static inline int flight_slot(int64_t step) { return (int)(step % SEALED_SLOTS); }

/* Queue one whole global step: micro-batches, collectives, update.  Allocates nothing (on a device:
 * from the third step of a batch size on). */
int step_queue(struct stepper *t, struct flight *f, struct err *err);

/* The slot `at` of exchange_hooks: the engine enters this phase of the step that is being queued.
 */
void step_at(void *stepper, enum phase phase, int64_t bucket);

#endif
