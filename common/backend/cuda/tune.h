/* tune - measures the time of an algorithm on this GPU, on tensors of the real sizes (all zero).
 *
 * Kernels use it while they are made, never while a step is recorded.  Timings vary, so two
 * processes may choose differently among algorithms of nearly equal speed, and their sums then
 * differ in the last bits.  The help of job option train.autotune says what that means.
 *
 * Threads: the backend's.
 * Errors:  ERR_NOMEM (memory for the tensors), ERR_DEVICE; callers then choose without timing. */
#ifndef BACKEND_CUDA_TUNE_H
#define BACKEND_CUDA_TUNE_H

#include "backend/cuda/cuda.h"

/* Writes a line that identifies the GPU, for keys: name, architecture, size, driver. */
enum { TUNE_GPU_LEN = 128 };
int tune_describe_gpu(const struct cuda *b, char out[TUNE_GPU_LEN], struct err *err);

typedef int tune_work(void *arg, struct err *err); /* queues on LANE_MAIN */

/* The time of a run in a recorded step, in microseconds.  After a run and a launch to warm up, this
 * is the best of several launches of a recording of a few runs each. */
int tune_time(struct cuda *b, tune_work *work, void *arg, double *us, struct err *err);

/* Allocates n blocks of device memory: block i has n_bytes[i] (0: NULL) and is 256-byte aligned.
 * The caller frees *base, which holds all blocks, by backend_free. */
int tune_alloc(struct cuda *b, const size_t *n_bytes, int n, void **at, void **base,
               struct err *err);

#endif
