/* statistics - batch norm's running statistics of averaged weights (train.average.name: swa), as
 * torch.optim.swa_utils.update_bn computes them.
 *
 * A pass of the training data goes through the network with the averaged weights, in training mode.
 * The mean over the batches of each batch's mean, and of its unbiased variance, is what the
 * averaged weights are validated and saved with.  The batches are those of the first epoch's order,
 * with that epoch's augmentation, and do not depend on the number of ranks; a last one that is not
 * full is left out, unless it is the only one.
 *
 * Threads: the engine's. */
#ifndef TRAIN_STATISTICS_H
#define TRAIN_STATISTICS_H

#include <stdint.h>

#include "base/err.h"

struct trainer;

/* At the end of an epoch, on all ranks: give the averaged weights their statistics.  Nothing may be
 * queued.  Until the averaging has begun, the trained weights' statistics are copied.  After a
 * failure the state is as it was.  Nothing happens where the average keeps no statistics of its
 * own. */
int statistics_renew(struct trainer *t, int64_t epoch, struct err *err);

#endif
