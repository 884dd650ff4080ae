/* moments - mean and standard deviation of rows of numbers, which are no images of bytes.
 *
 * A row has a feature for each place of its last axis: [F] has F features, and an image [H,W,C] has
 * its C channels.
 *
 * Threads: any. */
#ifndef DATA_MOMENTS_H
#define DATA_MOMENTS_H

#include "data/dataset.h"

int64_t moments_features(const struct dataset *ds, int field); /* how many it has */

/* The mean and the standard deviation (of the population) of each feature of a field of real
 * numbers, field 0 or the target, over all samples.  The data set must have none of its own
 * (ds->image.n_channels and ds->targets.n are 0).  They are the same bits on every machine.  Where
 * features have names (ops->feature), those that are words get 0 and 1, and one that is the same in
 * all samples gets its value and 1.  Fails with ERR_CONFIG if there are more than OPT_MAX_REALS
 * features, if some are the same in all samples or deviate by less than LEAST_REAL, or if a number
 * is not finite; the message names them. */
int moments_measure(const struct dataset *ds, int field, struct option_reals *mean,
                    struct option_reals *std, struct err *err);

#endif
