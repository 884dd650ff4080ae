/* gemm - a linear layer and its gradients as column-major matrix products C = op(A) op(B), or
 * C += op(A) op(B).
 *
 * BLAS stores matrices by columns: a row-major array [r,c] is for BLAS a c x r matrix with leading
 * dimension c, that is, the transpose.  So BLAS computes Y^T = W X^T instead of Y = X W^T, and so
 * on, and no array is moved.  N is the batch, I the inputs, O the outputs:
 *
 *   pass     row-major             column-major              m n k   A  op  lda   B  op  ldb   ldc
 *   forward  Y [N,O] = X W^T       Y^T O x N = W  X^T        O N I   W  T   I     X  N   I     O
 *   grad_x   dX [N,I] = dY W       dX^T I x N = W^T dY^T     I N O   W  N   I     Y  N   O     I
 *   grad_w   dW [O,I] = dY^T X     dW^T I x O = X^T dY       I O N   X  N   I     Y  T   O     I
 *
 * A transposed weight, W [I,O], is O x I for BLAS:
 *
 *   forward  Y [N,O] = X W         Y^T O x N = W^T X^T       O N I   W  N   O     X  N   I     O
 *   grad_x   dX [N,I] = dY W^T     dX^T I x N = W dY^T       I N O   W  T   O     Y  N   O     I
 *   grad_w   dW [I,O] = X^T dY     dW^T O x I = dY^T X       O I N   Y  N   O     X  T   I     O
 *
 * A bias has an element for each row of Y^T, and BLAS adds it along m.  db, the sum of dY over N,
 * has an element for each column of dW^T; cuBLASLt calls it the bias gradient of B (BGRADB).  With
 * a transposed weight it would be that of A, and a pass of ours computes it. No CUDA here;
 * tests/cudnn computes with these numbers on the CPU.
 *
 * Threads: pure. */
#ifndef BACKEND_CUDA_GEMM_H
#define BACKEND_CUDA_GEMM_H

#include <stdint.h>

enum gemm_pass { GEMM_FORWARD, GEMM_GRAD_X, GEMM_GRAD_W };
enum gemm_tensor { GEMM_X, GEMM_W, GEMM_Y }; /* the tensor or its gradient */

struct gemm {
    int64_t m, n, k;              /* C is m x n, k is summed over */
    enum gemm_tensor a, b, c;     /* the tensors that are A, B and C */
    int transpose_a, transpose_b; /* op(A) is m x k, op(B) k x n */
    int64_t lda, ldb, ldc;        /* elements from one column to the next */
    int adds;                     /* 1: the product is added to C; gemm_of leaves 0 here */
};

static inline struct gemm gemm_of_transposed(enum gemm_pass pass, int64_t batch, int64_t in,
                                             int64_t out)
{
    switch (pass) {
    case GEMM_FORWARD:
        return (struct gemm){out, batch, in, GEMM_W, GEMM_X, GEMM_Y, 0, 0, out, in, out, 0};
    case GEMM_GRAD_X:
        return (struct gemm){in, batch, out, GEMM_W, GEMM_Y, GEMM_X, 1, 0, out, out, in, 0};
    default:
        return (struct gemm){out, in, batch, GEMM_Y, GEMM_X, GEMM_W, 0, 1, out, in, out, 0};
    }
}

static inline struct gemm gemm_of(enum gemm_pass pass, int64_t batch, int64_t in, int64_t out)
{
    switch (pass) {
    case GEMM_FORWARD:
        return (struct gemm){out, batch, in, GEMM_W, GEMM_X, GEMM_Y, 1, 0, in, in, out, 0};
    case GEMM_GRAD_X:
        return (struct gemm){in, batch, out, GEMM_W, GEMM_Y, GEMM_X, 0, 0, in, out, in, 0};
    default:
        return (struct gemm){in, out, batch, GEMM_X, GEMM_Y, GEMM_W, 0, 1, in, out, in, 0};
    }
}

/* Rows and columns of A and B as they lie in memory, before op(). */
static inline int64_t gemm_rows_a(const struct gemm *g) { return g->transpose_a ? g->k : g->m; }
static inline int64_t gemm_cols_a(const struct gemm *g) { return g->transpose_a ? g->m : g->k; }
static inline int64_t gemm_rows_b(const struct gemm *g) { return g->transpose_b ? g->n : g->k; }
static inline int64_t gemm_cols_b(const struct gemm *g) { return g->transpose_b ? g->k : g->n; }

#endif
