/* flip - the injected faults of a bucket (inject/inject.h): an inverted bit, or no all-reduce.
 *
 * The bit is the sign of the bucket's largest element: an effect for sure, and finite.
 *
 * Threads: the engine's. */
#ifndef TRAIN_FLIP_H
#define TRAIN_FLIP_H

#include "inject/inject.h"
#include "train/trainer_impl.h"

/* ERR_CONFIG when `text` (NULL: none) names a bucket that this layout does not have. */
int flip_check(const char *text, const struct layout *l, struct err *err);

/* As reducer_hooks.spoil: flip the bit that is due in this bucket of the step being queued. */
int flip_if_due(void *trainer, int bucket, int is_reduced, struct err *err);

/* As exchange_hooks.is_left_out: a collective of this bucket is due to be left out; announced. */
int skip_if_due(void *trainer, int bucket);

#endif
