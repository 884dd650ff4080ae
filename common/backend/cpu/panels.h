/* panels - brings a weight into the layout that oneDNN's products of F32 read on AVX-512.
 *
 * oneDNN calls the layout AB16b64a.  A panel is 64 rows of the matrix (32 or 16 in the layouts for
 * fewer rows).  It is cut into blocks of 16 columns, and a block holds its columns one after
 * another.
 *
 * oneDNN 2.6's own reorder of a matrix of 128 x 512 took 52 us on a Zen 5 where the rows were
 * contiguous, and 12 us where the columns were.  These functions take 5 us and 4 us.  A linear
 * layer needs such a matrix in its forward pass, and the transposed one for the gradient by x.
 *
 * Threads: panels_fill is the engine's, and uses the backend's threads; panels_find is pure. */
#ifndef BACKEND_CPU_PANELS_H
#define BACKEND_CPU_PANELS_H

#include "backend/cpu/onednn.h"

struct panels {
    int width;             /* rows of a panel; 0: this is no such reorder */
    int64_t rows, columns; /* multiples of width and of 16: nothing is padded */
    int64_t row, column;   /* strides of the matrix, one of which is 1 */
};

/* Describe the reorder of an F32 matrix, which lies as *from says, into the layout *to.  p->width
 * is 0 if *to is another layout, or the extents would have to be padded. */
int panels_find(struct onednn *dn, const struct dn_layout *from, const struct dn_md *to,
                struct panels *p, struct err *err);

/* Write the panels of the matrix `from`.  n_threads and least_work are those of struct cpu. */
void panels_fill(const struct panels *p, const float *from, float *to, int n_threads,
                 int64_t least_work);

#endif
