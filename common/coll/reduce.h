/* coll/reduce - a and b into dst, element by element. */
#ifndef COLL_REDUCE_H
#define COLL_REDUCE_H

#include "coll/coll.h"

/* dst[i] = a[i] + b[i], or their maximum.  dst may be a or b.  The maximum of NaN and anything is
 * NaN, so the result depends on the order of the ranks only by the sign of zero. */
void coll_reduce(void *dst, const void *a, const void *b, int64_t n, enum dtype dtype,
                 enum coll_red red);

#endif
