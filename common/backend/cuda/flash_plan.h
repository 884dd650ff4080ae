/* flash_plan - the cuDNN plans of attention: of op/attention.c's operator and of its gradient.
 *
 * Each is one graph of small operations.  cuDNN knows their order and types as attention, and
 * computes them by tiles, so that no T x T matrix of scores is in memory.  The exception is the
 * gradient: its plan writes the gradient of the scores to its workspace, 2*T*T bytes for each head
 * of each sample.  The plan without this workspace adds in no fixed order, and a resumed job must
 * repeat itself.
 *
 * This is apart from flash.c so that tests/cudnn can build, without a GPU, the plans that kernels
 * run.
 *
 * Threads: one per device. */
#ifndef BACKEND_CUDA_FLASH_PLAN_H
#define BACKEND_CUDA_FLASH_PLAN_H

#include "backend/cuda/cudnn.h"

/* qkv is [samples*length, 3*heads*d], the output [samples*length, heads*d]. */
struct flash_shape {
    enum dtype dtype; /* of all but the statistics: DTYPE_BF16 or DTYPE_F16 */
    int64_t samples, length, heads, d;
    int causal;
};

/* The order of a pack's pointers.  Q, K and V lie in one array; their gradients do, too.  STATS is
 * F32 [samples,heads,length]: the log of the sum of e^score over a query's keys.  DOTS has the same
 * shape and is for the plan's own use. */
enum { FLASH_Q, FLASH_K, FLASH_V, FLASH_Y, FLASH_STATS, FLASH_FORWARD_TENSORS };
enum {
    FLASH_DY = FLASH_FORWARD_TENSORS,
    FLASH_DQ,
    FLASH_DK,
    FLASH_DV,
    FLASH_DOTS,
    FLASH_GRAD_TENSORS
};

/* *out belongs to the device.  Fails with ERR_UNSUPPORTED or ERR_DEVICE if cuDNN has no plan for
 * this shape within the rules. */
int flash_plan(struct cudnn_device *d, const struct cudnn_rules *rules, const struct flash_shape *s,
               int is_grad, const struct cudnn_plan **out, struct err *err);

#endif
