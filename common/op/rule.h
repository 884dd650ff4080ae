/* rule - an optimizer's update as one formula for each element, which every backend compiles into
 * its kernel (backend/cpu/rules.c, backend/cuda/rules.cu).
 *
 * A rule is a word with its slots and numbers in op/meson.build.  op/update.c has the operands and
 * the start of the formula; optim/NAME.h has the rest of it:
 *
 *   enum { RULE_WORK_NAME }  vector instructions for 16 elements, roughly
 *   struct NAME_terms        the terms of the formula that many elements share
 *   NAME_begin               makes those that all elements share, from the node's numbers and the
 *                            number of updates so far
 *   NAME_row                 makes those that follow from the settings of a row of the segments, at
 *                            the start of each row
 *   NAME_step                updates an element
 *
 * Every product and sum is rounded by itself (no contraction), so that replicas stay equal.  Terms
 * that do not depend on the element are made in double and rounded once.
 *
 * Threads: pure. */
#ifndef OP_RULE_H
#define OP_RULE_H

#include "op/op.h"
#include "op/update.h"

/* struct NAME_element: one element of the space of parameters.  NAME_step brings `param` and the
 * slots, which have members of their names, to their new values.  Slots that may be absent are 0
 * then, and are not kept. */
#define RULE_SLOT(name, k, is_optional) float name;
#define X(rule)                                                                                  \
    struct rule##_element {                                                                      \
        float g;             /* the gradient, divided by its factor and clipped (op/update.c) */ \
        float grad, unscale; /* the gradient as it came, and the factor that was divided out */  \
        int is_whole;        /* 0: the slots that may be absent are */                           \
        float param;                                                                             \
        RULE_SLOTS_##rule(RULE_SLOT)                                                             \
    };
RULE_LIST(X)
#undef X
#undef RULE_SLOT

#endif
