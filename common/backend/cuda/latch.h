/* latch - what one thread does between the kernels of a step: one verdict for all of it, and the
 * time. */
#ifndef BACKEND_CUDA_LATCH_H
#define BACKEND_CUDA_LATCH_H

#include "backend/cuda/cuda.h"

/* Queue one thread that stores 1 at *veto (on the device) if *poison (pinned memory by its address
 * on the device, which the host may set at any moment) is not 0, and else leaves *veto.  Kernels
 * that read *veto then agree, where those that read *poison might not. */
int latch_queue(struct cuda *b, const uint32_t *poison, float *veto, struct err *err);

/* backend_stopwatch, by the device's clock (a microsecond fine, or better).  Not measured on a GPU
 * yet: what it costs, and the two kernels' own time in what it shows. */
int latch_time(struct cuda *b, int64_t watch[2], int stops, struct err *err);

#endif
