/* control - the small vector at the end of the last bucket, by which ranks agree on a step.
 *
 * Each rank writes what it knows (loss sum, correct, samples, non-finite count, requests); the
 * all-reduce adds them; all ranks read the same sum at the same step and act on it.
 *
 * A step counts as nothing when it was queued behind one that was not clean, which each rank's own
 * device notices, so that all say so; or when its collectives were stopped, which is written here
 * behind the all-reduce, on one rank alone (coll_device_latch).
 *
 * The gradient buffer is F32, so integers are cut into digits of 8 bits, one float each: sums of
 * digits stay exact up to 65,536 ranks, and the result does not depend on the order of addition.
 * The loss sum travels as fixed point in units of 2^-24 (range 2^39), so every rank holds the very
 * same number: metrics are replicated state. */
#ifndef OP_CONTROL_H
#define OP_CONTROL_H

#include <stdint.h>

enum {
    CONTROL_LOSS = 0,       /* 8 digits: loss sum * 2^24, 0 if not finite or negative */
    CONTROL_CORRECT = 8,    /* 4 digits */
    CONTROL_SAMPLES = 12,   /* 4 digits */
    CONTROL_NONFINITE = 16, /* 1 for each rank whose loss was not finite */
    CONTROL_STOP = 17,      /* ranks that ask for each request */
    CONTROL_CHECKPOINT = 18,
    CONTROL_REGROUP = 19,
    CONTROL_VOID = 20, /* > 0: this step counts as nothing (op/seal.c) */
    CONTROL_LEN = 32,  /* a multiple of SEGMENT_ALIGN; the rest is zero */
};

struct control {
    int64_t loss; /* units of 2^-24 */
    int64_t n_correct, n_samples;
    int n_nonfinite, n_stop, n_checkpoint, n_regroup; /* ranks */
    int is_void;
};

/* The sum of one rank's metrics, F64 [METRIC_COUNT], its requests (bits), and whether the step
 * before was not as presumed -> v[CONTROL_LEN]. */
void control_pack(const double *metrics, unsigned requests, int is_void, float *v);
void control_read(const float *v, struct control *out);

#ifdef __CUDACC__
#define OP_BOTH __host__ __device__
#else
#define OP_BOTH
#endif

/* Whether a step's update is applied, from grad_check's verdict and the reduced vector: gradient
 * and losses finite on all ranks, and nothing void. */
OP_BOTH static inline int control_applies(const double *check, const float *control)
{
    return check[1] == 0.0 && !(control[CONTROL_NONFINITE] > 0.0f) &&
           !(control[CONTROL_VOID] > 0.0f);
}

/* Whether it asks for nothing besides. */
OP_BOTH static inline int control_is_quiet(const float *control)
{
    return !(control[CONTROL_STOP] > 0.0f) && !(control[CONTROL_CHECKPOINT] > 0.0f) &&
           !(control[CONTROL_REGROUP] > 0.0f);
}

static inline double control_loss(int64_t fixed) { return (double)fixed * 0x1p-24; }

#endif
