/* flip - the injected faults of a bucket (inject/inject.h): an inverted bit, or no all-reduce.
 *
 * The bit is the sign of the bucket's largest element: an effect for sure, and finite.
 *
 * Threads: the engine's. */
#ifndef TRAIN_FLIP_H
#define TRAIN_FLIP_H

#include "inject/inject.h"
#include "train/trainer_impl.h"

/* ERR_CONFIG when `text` (NULL: none) names a bucket that this layout has not. */
int flip_check(const char *text, const struct layout *l, struct err *err);

/* Flip what is due in this bucket of the step under way, before (INJECTION_BUCKET) or after
 * (INJECTION_REDUCED) it was summed. */
int flip_if_due(struct trainer *t, enum injection_how how, int bucket, struct err *err);

int skip_is_due(const struct trainer *t, int bucket); /* that bucket is not to be reduced */
int skip_if_due(struct trainer *t, int bucket);       /* the same, and it is announced */

#endif
