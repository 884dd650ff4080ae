/* flip - the injected faults of a bucket (inject/inject.h): an inverted bit, or no all-reduce.
 *
 * The bit is the sign of the bucket's largest element, because that surely has an effect, and the
 * number stays finite.
 *
 * Threads: the engine's. */
#ifndef STEP_FLIP_H
#define STEP_FLIP_H

#include "inject/inject.h"
#include "step/step.h"

/* ERR_CONFIG when `text` (NULL: none) names a bucket that this layout does not have. */
int flip_check(const char *text, const struct layout *l, struct err *err);

/* Warn of each fault that is due in the step which begins, and whose bucket is not there any more,
 * because train.bucket_bytes: auto has cut the gradients anew.  Such a fault cannot happen. */
void flip_warn_missing(struct stepper *t);

/* The slot `spoil` of reducer_hooks: flip the bit, if that is due in this bucket of the step that
 * is being queued. */
int flip_if_due(void *stepper, int bucket, int is_reduced, struct err *err);

/* The samples of the step's first micro-batch are in p: flip a bit of the first one, if that is
 * due. */
int flip_batch(struct stepper *t, const struct program *p, struct err *err);

/* After the update of the step that is being queued: flip the bits of the state that are due. */
int flip_state(struct stepper *t, struct err *err);

/* The slot is_left_out of exchange_hooks: 1 if a collective of this bucket is due to be left out;
 * the fault was announced then. */
int skip_if_due(void *stepper, int bucket);

#endif
