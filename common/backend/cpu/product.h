/* product - products of matrices whose bits follow from the operands alone.
 *
 * Each element is the sum of its terms in their order, and every product and sum is rounded by
 * itself.  So neither the number of threads nor the processor moves a bit, as the kernels need that
 * every rank runs for itself (backend/cpu/plain.h).  oneDNN's products, which the layers use, are
 * faster and do not promise that.
 *
 * Threads: those of plain_split. */
#ifndef BACKEND_CPU_PRODUCT_H
#define BACKEND_CPU_PRODUCT_H

#include "backend/cpu/plain.h"

/* c [m,n] = alpha * (a b) + beta * add, with a [m,k], b [k,n]; add NULL: c = alpha * (a b).
 * Rows of a lie `k` elements apart, those of c and add `n`.  Element (t, j) of b is
 * b[t * b_row + j * b_column].  c overlaps no operand. */
struct product {
    int64_t m, n, k;
    const float *a, *b, *add;
    int64_t b_row, b_column;
    float alpha, beta;
    float *c;
};

/* Bytes of scratch for each part of the kernel's plain_split, for products of up to k terms. */
size_t product_part_bytes(int64_t k);

/* Compute columns of c: part i of the kernel p has [from, to) of product_panels(x) panels, in
 * plain_part_scratch(p, i). */
int64_t product_panels(const struct product *x);
void product_run(const struct plain *p, const struct product *x, int i, int64_t from, int64_t to);

/* The work of the whole product, for plain_split. */
int64_t product_work(const struct product *x);

#endif
