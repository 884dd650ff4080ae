/* latch - one verdict for a whole step, whenever it is queued. */
#ifndef BACKEND_CUDA_LATCH_H
#define BACKEND_CUDA_LATCH_H

#include "backend/cuda/cuda.h"

/* Queue one thread that stores 1 at *veto (on the device) if *poison (pinned memory by its address
 * on the device, which the host may set at any moment) is not 0, and else leaves *veto.  Kernels
 * that read *veto then agree, where those that read *poison might not. */
int latch_queue(struct cuda *b, const uint32_t *poison, float *veto, struct err *err);

#endif
