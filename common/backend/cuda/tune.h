/* tune - how long an algorithm takes here, on tensors of the real sizes (all zero).
 *
 * For when a kernel is made, never while a step is recorded.  Timings vary, so two processes may
 * choose differently among algorithms of nearly equal speed, and their sums then differ in the last
 * bits: job option train.autotune says what that means.
 *
 * Errors: ERR_NOMEM (no room for the tensors), ERR_DEVICE; callers then do without timing. */
#ifndef BACKEND_CUDA_TUNE_H
#define BACKEND_CUDA_TUNE_H

#include "backend/cuda/cuda.h"

/* The GPU that a choice was made on, as one line: name, architecture, size, driver. */
enum { TUNE_GPU_LEN = 128 };
int tune_describe_gpu(const struct cuda *b, char out[TUNE_GPU_LEN], struct err *err);

typedef int tune_work(void *arg, struct err *err); /* queues on LANE_MAIN */

/* Microseconds a run, as in a recorded step: the best of several launches of a few runs each,
 * behind a run and a launch to warm up. */
int tune_time(struct cuda *b, tune_work *work, void *arg, double *us, struct err *err);

/* n blocks of device memory, n_bytes[i] each (0: none), 256-byte aligned; *base is to be given back
 * by backend_free. */
int tune_alloc(struct cuda *b, const size_t *n_bytes, int n, void **at, void **base,
               struct err *err);

#endif
