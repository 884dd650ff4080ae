/* adasum - the arithmetic of strategy adasum: which rows are paired, and how a pair is combined.
 *
 * Gradients a and b of one tensor are combined to
 *
 *   (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b;   a factor is 1 if its a.a or b.b is 0
 *
 * Of R rows, pair p with distance `stride` is row 2 p stride and the row `stride` behind it.  So
 * with strides 1, 2, 4 ... the rows form a tree, and the last of an odd number passes to the next
 * level where it is.
 *
 * Threads: pure. */
#ifndef OP_ADASUM_H
#define OP_ADASUM_H

#include <float.h>
#include <math.h>
#include <stdint.h>

#include "op/control.h" /* OP_BOTH */

/* The dot products of a tensor of a pair. */
enum { ADASUM_AB, ADASUM_AA, ADASUM_BB, ADASUM_N_DOTS };

/* The number of pairs of n_rows rows. */
OP_BOTH static inline int64_t adasum_pairs(int64_t n_rows, int64_t stride)
{
    return (n_rows + stride - 1) / stride / 2;
}

/* A gradient's factor.  A NaN in the dot products makes it NaN. */
OP_BOTH static inline double adasum_factor(double ab, double squares)
{
    return squares < sqrt(DBL_MIN) ? 1 : 1 - ab / (2 * squares);
}

#endif
