/* latch - two kernels of one thread between the kernels of a step: one reads the poison once for
 * all of the step, the other reads the GPU's clock.
 *
 * Threads: the backend's. */
#ifndef BACKEND_CUDA_LATCH_H
#define BACKEND_CUDA_LATCH_H

#include "backend/cuda/cuda.h"

/* Queue a kernel that stores 1 in *veto if *poison is not 0, and else leaves *veto as it is.  *veto
 * is device memory.  *poison is pinned memory, given by its address on the device; the host may set
 * it at any moment.  So kernels that read *veto agree with each other, while kernels that read
 * *poison might not. */
int latch_queue(struct cuda *b, const uint32_t *poison, float *veto, struct err *err);

/* backend_stopwatch, by the device's clock (a resolution of a microsecond, or better).  Not
 * measured on a GPU yet: its cost, and how much of the time shown is that of the two kernels
 * themselves. */
int latch_time(struct cuda *b, int64_t watch[2], int stops, struct err *err);

#endif
