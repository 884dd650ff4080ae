/* blas - matrix products by cuBLASLt, with the bias and the activation that its kernel can add.
 *
 *     rc = blas_open(cuda, &blas, err);
 *     rc = blas_product_new(blas, &gemm, types, BLAS_BIAS, &rules, &product, err);
 *     rc = blas_product_bind(product, bias, NULL, err);
 *     rc = blas_product_run(blas, product, a, b, c, workspace, err);   (queues)
 *
 * The algorithm is the heuristics' first within the rules, or with autotune the fastest of the
 * first ones; equal products share the choice, so one shape always gives the same bits.  Choices
 * are kept in the backend's plan cache; a kept one must pass cuBLASLt's own check and the rules
 * again.  Refused: rounding inputs to TF32 unless allowed (the compute type says so, and what an
 * algorithm tells of itself), and splitting the sum with anything but a workspace in float32 (an
 * order that does not vary).  alpha = 1 and beta = 0 are host constants: C is overwritten, and a
 * captured step holds no pointer to the host.
 *
 * Its gelu is gelu_tanh (op/activation.c); the exact one is left to a pass.  A tail with an
 * activation leaves for the gradient (BLAS_..._MASK, _PRE) is what that gradient's tail reads:
 * - mask, of relu: a bit for each element of C, 1 where it is positive; columns are rounded up to
 *   128 bits, row i is bit i % 32 of word i / 32.  (cuBLASLt's documents do not tell the order of
 *   bits; it is what others found, and what passes.cu writes and reads where there is no tail.
 *   linear.c lets a layer have both tails or none, so no mask is read by another than wrote it.)
 * - pre, of gelu: C before it, of C's type and shape; cuBLASLt wants m to be a multiple of 8.
 *
 * Life:    open -> products -> free products -> close.
 * Threads: one.
 * Errors:  ERR_UNSUPPORTED (no algorithm: shapes, epilogue), ERR_DEVICE (cuBLASLt's status).
 * Never ran on a GPU so far, and no algorithm was asked for: cuBLASLt cannot be opened without one
 * (its descriptors can: cudnn/descriptors).
 * tests/cudnn has a stand-in compute what it is described here, every tail included. */
#ifndef BACKEND_CUDA_BLAS_H
#define BACKEND_CUDA_BLAS_H

#include <stddef.h>

#include "backend/cuda/gemm.h"
#include "base/err.h"
#include "tensor/dtype.h"

struct cuda;
struct blas;         /* opaque */
struct blas_product; /* opaque */

enum blas_tail {
    BLAS_ALONE,
    BLAS_BIAS,      /* C += bias, one a row of C */
    BLAS_BIAS_RELU, /* and max(C, 0) */
    BLAS_RELU,
    BLAS_BIAS_GRAD, /* bias, one a column of C, becomes the sum of op(B) over k */
    BLAS_BIAS_RELU_MASK,
    BLAS_RELU_MASK,
    BLAS_BIAS_GELU,
    BLAS_GELU,
    BLAS_BIAS_GELU_PRE,
    BLAS_GELU_PRE,
    BLAS_RELU_GRAD, /* C times the derivative of relu, by the mask */
    BLAS_GELU_GRAD, /* C times the derivative of gelu_tanh at pre */
};

int blas_tail_has_bias(enum blas_tail tail);

struct blas_rules {
    size_t max_workspace;
    int allow_tf32, autotune;
};

/* b: borrowed; products run on its stream. */
int blas_open(struct cuda *b, struct blas **out, struct err *err);
void blas_close(struct blas *b); /* NULL is fine */

struct blas_types { /* F32, BF16 or F16; sums are float32 in any case */
    enum dtype ab;  /* of A and B */
    enum dtype c;   /* of C and the bias: that of A and B, or F32 */
};

/* Pointers must be 16-byte aligned. */
int blas_product_new(struct blas *b, const struct gemm *g, struct blas_types t, enum blas_tail tail,
                     const struct blas_rules *rules, struct blas_product **out, struct err *err);
size_t blas_product_workspace(const struct blas_product *p);
void blas_product_free(struct blas_product *p); /* NULL is fine */

/* bias: the node's, or where its gradient goes; saved: mask or pre; NULL without such a tail. */
int blas_product_bind(struct blas_product *p, void *bias, void *saved, struct err *err);
int blas_product_run(struct blas *b, const struct blas_product *p, const void *a, const void *bm,
                     void *c, void *workspace, struct err *err);

#endif
