/* base - the slot of the frozen base (program/base.h): its numbers come as float32, part by part,
 * so that no rank holds more of it in float32 than a part.
 *
 * Threads: as state.h. */
#ifndef STATE_BASE_H
#define STATE_BASE_H

#include "state/state.h"

/* Pack n numbers to the elements [first, first + n) of the base's tensor i, which holds codes, and
 * give it their scales, if it has any.  `first` is a multiple of BLOCKS_LEN, and so is n, but at
 * the tensor's end. */
int base_put(struct state *s, int i, int64_t first, const float *x, int64_t n, struct err *err);

/* The hash of the base as it is packed. */
int base_hash(const struct state *s, struct hash128 *out, struct err *err);

#endif
