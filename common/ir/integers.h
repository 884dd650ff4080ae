/* integers - the formulas of exact arithmetic of whole numbers, for the kernels of all backends.
 *
 * Threads: pure. */
#ifndef IR_INTEGERS_H
#define IR_INTEGERS_H

#include <stdint.h>

/* kind (ir/graph.h) of a and b; not INTEGERS_PREFIX.  The result is limited to I32. */
#define INTEGERS_OF(kind, a, b)                         \
    ((kind) == INTEGERS_ADD   ? (a) + (b)               \
     : (kind) == INTEGERS_SUB ? (a) - (b)               \
     : (kind) == INTEGERS_MUL ? (a) * (b)               \
     : (kind) == INTEGERS_MIN ? ((a) < (b) ? (a) : (b)) \
     : (kind) == INTEGERS_MAX ? ((a) > (b) ? (a) : (b)) \
                              : ((a) < 0 ? (a) + (b) : (a)))
#define INTEGERS_LIMIT(v) ((v) < INT32_MIN ? INT32_MIN : (v) > INT32_MAX ? INT32_MAX : (v))

#endif
