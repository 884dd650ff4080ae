/* moments - mean and standard deviation of rows of numbers, which are no images of bytes.
 *
 * A row has a feature for each place of its last axis: [F] has F features, and an image [H,W,C] has
 * its C channels.
 *
 * Threads: any. */
#ifndef DATA_MOMENTS_H
#define DATA_MOMENTS_H

#include "data/dataset.h"

int64_t moments_features(const struct dataset *ds); /* how many field 0 has */

/* The mean and the standard deviation (of the population) of each feature of field 0, over all
 * samples.  The data set must have none of its own (ds->image.n_channels is 0).  They are the same
 * bits on every machine.  Fails with ERR_CONFIG if there are more than OPT_MAX_REALS features, if
 * some are the same in all samples, or if a number is not finite; the message names them. */
int moments_measure(const struct dataset *ds, struct option_reals *mean, struct option_reals *std,
                    struct err *err);

#endif
