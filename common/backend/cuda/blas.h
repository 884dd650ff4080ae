/* blas - matrix products by cuBLASLt, with the bias and the activation that its kernel can add.
 *
 *     rc = blas_open(cuda, &blas, err);
 *     rc = blas_product_new(blas, &gemm, types, BLAS_BIAS, &rules, &product, err);
 *     rc = blas_product_bind(product, bias, NULL, err);
 *     rc = blas_product_run(blas, product, a, b, c, workspace, err);   (queues)
 *
 * The algorithm is the first within the rules that the heuristics name, or with autotune the
 * fastest of the first ones.  Equal products share the choice, so one shape always gives the same
 * bits.  Choices are kept in the backend's plan cache; a kept choice must pass cuBLASLt's own check
 * and the rules again.
 * The rules refuse two things.  Inputs are not rounded to TF32 unless that is allowed; the compute
 * type says so, and what an algorithm tells of itself is checked.  A sum over k is split only with
 * partial sums in a float32 workspace, since their order of addition does not vary.
 * alpha = 1 and beta are host constants, so a captured step holds no pointer to the host.  beta is
 * 0, and C is overwritten; or it is 1, if the gemm adds.
 *
 * cuBLASLt's gelu is gelu_tanh (op/activation.c); the exact gelu is done by a pass of passes.h.  A
 * tail with an activation saves what the tail of its gradient reads (BLAS_..._MASK, _PRE):
 * - mask, of relu: a bit for each element of C, 1 where the element is positive.  Columns are
 *   rounded up to 128 bits; row i is bit i % 32 of word i / 32.  cuBLASLt's documents do not tell
 *   this order of bits: others found it by trial.  passes.cu uses the same order where there is no
 *   tail.  linear.c lets a layer have both tails or none, so that a mask is read by the code that
 *   wrote it.
 * - pre, of gelu: C before the activation, of C's type and shape; cuBLASLt wants m to be a multiple
 *   of 8.
 *
 * Life:    open -> products -> free products -> close.
 * Threads: one.
 * Errors:  ERR_UNSUPPORTED (no algorithm for these shapes or this tail), ERR_DEVICE (cuBLASLt's
 *          status).
 *
 * This has not run on a GPU yet, and cuBLASLt was never asked for an algorithm: it cannot be opened
 * without a GPU.  Its descriptors can be made without one (test cudnn/descriptors).  In tests/cudnn
 * a stand-in for cuBLASLt computes what is described to it, every tail included. */
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
    BLAS_BIAS,      /* C += bias, which has an element for each row of C */
    BLAS_BIAS_RELU, /* the same, then C = max(C, 0) */
    BLAS_RELU,
    BLAS_BIAS_GRAD, /* bias[column] = the sum of op(B) over k */
    BLAS_BIAS_RELU_MASK,
    BLAS_RELU_MASK,
    BLAS_BIAS_GELU,
    BLAS_GELU,
    BLAS_BIAS_GELU_PRE,
    BLAS_GELU_PRE,
    BLAS_RELU_GRAD, /* C times the derivative of relu, from the mask */
    BLAS_GELU_GRAD, /* C times the derivative of gelu_tanh at pre */
};

int blas_tail_has_bias(enum blas_tail tail);

struct blas_rules {
    size_t max_workspace;
    int allow_tf32, autotune;
};

/* b is borrowed; products run on its stream. */
int blas_open(struct cuda *b, struct blas **out, struct err *err);
void blas_close(struct blas *b); /* NULL is fine */

struct blas_types { /* F32, BF16 or F16; sums are float32 in any case */
    enum dtype ab;  /* type of A and B */
    enum dtype c;   /* type of C and the bias: the type of A and B, or F32 */
};

/* Pointers must be 16-byte aligned. */
int blas_product_new(struct blas *b, const struct gemm *g, struct blas_types t, enum blas_tail tail,
                     const struct blas_rules *rules, struct blas_product **out, struct err *err);
size_t blas_product_workspace(const struct blas_product *p);
void blas_product_free(struct blas_product *p); /* NULL is fine */

/* `bias` is the node's bias, or where the bias' gradient goes; `saved` is the mask or pre.  Each is
 * NULL if the tail has none. */
int blas_product_bind(struct blas_product *p, void *bias, void *saved, struct err *err);
int blas_product_run(struct blas *b, const struct blas_product *p, const void *a, const void *bm,
                     void *c, void *workspace, struct err *err);

#endif
