/* flash - attention in half precision by cuDNN.
 *
 * cuDNN has plans for most shapes, but draws dropout's numbers in its own way, which would depend
 * on the number of ranks.  So attention with dropout, in float32, within documents, with a window,
 * and of shapes without a plan is left to the kernels of attention.cu.
 *
 * Threads: the backend's. */
#ifndef BACKEND_CUDA_FLASH_H
#define BACKEND_CUDA_FLASH_H

#include "backend/cuda/cuda.h"

/* Make the kernel of an attention or attention_grad node.  Returns 0, FLASH_NONE if attention.cu
 * is to compute the node, or an error. */
enum { FLASH_NONE = 1 };
int flash_new(struct cuda *b, const struct graph *g, const struct node *n, struct kernel **out,
              struct err *err);

#endif
