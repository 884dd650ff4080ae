/* grad_product - c = a^T b, or c += a^T b, of F32 matrices with many rows: the gradients of linear
 * layers' weights, as sums of outer products (outer.h).
 *
 * Each element is the sum of the sums of blocks of rows, which follow from the extents alone; so
 * the number of threads moves no bit.
 *
 * oneDNN 2.6's times on one core of an Emerald Rapids, as multiples of the time here (medians of
 * calls in turn; about 0.75 of the peak with 384 columns, 0.9 with 1024):
 *   M x R x C             backward by weights,       dnnl_sgemm, which
 *                         with its reorder of c      adds to c
 *   3072 x  384 x  384    1.5                        1.0
 *   3072 x 1152 x  384    1.7                        1.2
 *   3072 x 1536 x  384    2.2                        1.4
 *   3072 x  384 x 1536    1.8                        1.3
 *   1024 x  768 x 3072    1.5                        1.0
 *   1024 x 3072 x  768    1.05                       1.0
 *   4096 x 1024 x 1024    1.4                        1.0
 * It has not been measured on AMD's processors; oneDNN multiplies there.
 *
 * Threads: the engine's; grad_product_run uses the backend's threads. */
#ifndef BACKEND_CPU_GRAD_PRODUCT_H
#define BACKEND_CPU_GRAD_PRODUCT_H

#include <stddef.h>
#include <stdint.h>

/* a [M,R], b [M,C] -> c [R,C], a_sum? [R], b_sum? [C]; all contiguous.  The latter two are sums
 * over the rows of a and of b; NULL: not wanted.  The outputs overlap no operand. */
struct grad_product {
    int64_t M, R, C;
    const float *a, *b;
    float *c, *a_sum, *b_sum;
    int adds; /* 1: c += a^T b; a_sum and b_sum are always overwritten */
};

/* 1 if this processor has the instructions, and the product is faster than oneDNN's. */
int grad_product_pays(int64_t M, int64_t R, int64_t C);

/* Floats of scratch. */
int64_t grad_product_scratch(int64_t M, int64_t R, int64_t C);

/* n_threads and least_work are those of struct cpu. */
void grad_product_run(const struct grad_product *g, float *scratch, int n_threads,
                      int64_t least_work);

#endif
