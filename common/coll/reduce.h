/* coll/reduce - the sum of a and b into dst, element by element.
 *
 * Threads: pure. */
#ifndef COLL_REDUCE_H
#define COLL_REDUCE_H

#include "coll/coll.h"

/* dst[i] = a[i] + b[i], of F32, F64, BF16 or F16.  dst may be a or b. */
void coll_sum(void *dst, const void *a, const void *b, int64_t n, enum dtype dtype);

#endif
