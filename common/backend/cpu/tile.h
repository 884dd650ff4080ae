/* tile - products of small F32 matrices by AVX2 and FMA: attention's and those of convolutions, on
 * processors without AVX-512 (outer.h).  Blocks of 6 x 16 sums stay in registers over all terms.
 *
 * An element's terms are added in their order, with one rounding for each.  So its bits do not
 * depend on its place in the block, nor on the other extents.
 *
 * Threads: pure. */
#ifndef BACKEND_CPU_TILE_H
#define BACKEND_CPU_TILE_H

#include <stdint.h>

#include "backend/cpu/outer.h"

enum { TILE_ROWS = 6, TILE_COLUMNS = 16 };

/* Element (i, l) of the left matrix is at[i * row + l * col]. */
struct matrix {
    const float *at;
    int64_t row, col;
};

/* to [m,n] = a [m,k] b [k,n], or += if it adds; rows of b and of `to` are contiguous, and b_row and
 * to_row apart.  Nothing beside these rows is read or written. */
void tile_product(struct matrix a, const float *b, int64_t b_row, float *to, int64_t to_row,
                  int64_t m, int64_t n, int64_t k, int adds);

/* outer_run's OUTER_ADD and OUTER_STORE, without o->add, for n_i <= TILE_ROWS and n_j =
 * TILE_COLUMNS.  The bits are those of outer_run. */
void tile_outer(const struct outer *o, const float *a, const float *b, float *to);

/* 1 if this processor has AVX2 and FMA, and oneDNN's cap on the instruction set
 * (ONEDNN_MAX_CPU_ISA) allows them. */
int tile_available(void);

#endif
