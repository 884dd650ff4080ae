/* gemm - a linear layer and its gradients as column-major matrix products C = op(A) op(B).
 *
 * BLAS counts matrices by columns: our row-major [r,c] is its c x r with leading dimension c, that
 * is, the transpose.  So instead of Y = X W^T it is asked for Y^T = W X^T, and so on; N batch,
 * I in, O out (all plain arrays in memory, nothing is moved):
 *
 *   pass     row-major             column-major              m n k   A  op  lda   B  op  ldb   ldc
 *   forward  Y [N,O] = X W^T       Y^T O x N = W  X^T        O N I   W  T   I     X  N   I     O
 *   grad_x   dX [N,I] = dY W       dX^T I x N = W^T dY^T     I N O   W  N   I     Y  N   O     I
 *   grad_w   dW [O,I] = dY^T X     dW^T I x O = X^T dY       I O N   X  N   I     Y  T   O     I
 *
 * A bias, one a row of Y^T, is what BLAS adds along m; db, the sum of dY over N, is what it calls
 * the bias gradient of B (BGRADB), one a column of dW^T.
 * Pure: no CUDA here; tests/cudnn computes with these numbers on the CPU. */
#ifndef BACKEND_CUDA_GEMM_H
#define BACKEND_CUDA_GEMM_H

#include <stdint.h>

enum gemm_pass { GEMM_FORWARD, GEMM_GRAD_X, GEMM_GRAD_W };
enum gemm_tensor { GEMM_X, GEMM_W, GEMM_Y }; /* or its gradient */

struct gemm {
    int64_t m, n, k;              /* C is m x n, k is summed over */
    enum gemm_tensor a, b, c;     /* which tensor is which operand */
    int transpose_a, transpose_b; /* op(A) is m x k, op(B) k x n */
    int64_t lda, ldb, ldc;        /* elements from one column to the next */
};

static inline struct gemm gemm_of(enum gemm_pass pass, int64_t batch, int64_t in, int64_t out)
{
    switch (pass) {
    case GEMM_FORWARD:
        return (struct gemm){out, batch, in, GEMM_W, GEMM_X, GEMM_Y, 1, 0, in, in, out};
    case GEMM_GRAD_X:
        return (struct gemm){in, batch, out, GEMM_W, GEMM_Y, GEMM_X, 0, 0, in, out, in};
    default:
        return (struct gemm){in, out, batch, GEMM_X, GEMM_Y, GEMM_W, 0, 1, in, out, in};
    }
}

/* Rows and columns of A and B as they lie in memory, before op(). */
static inline int64_t gemm_rows_a(const struct gemm *g) { return g->transpose_a ? g->k : g->m; }
static inline int64_t gemm_cols_a(const struct gemm *g) { return g->transpose_a ? g->m : g->k; }
static inline int64_t gemm_rows_b(const struct gemm *g) { return g->transpose_b ? g->n : g->k; }
static inline int64_t gemm_cols_b(const struct gemm *g) { return g->transpose_b ? g->k : g->n; }

#endif
