/* control - the small vector at the end of the last bucket, by which ranks agree on a step.
 *
 * Each rank writes its own numbers (loss sum, correct predictions, targets, their weights, a loss
 * that is not finite, requests).  The all-reduce adds the vectors.  All ranks read the same sum at
 * the same step and act on it.
 *
 * A step is void for one of two reasons.  The step before it was not clean: each rank's own device
 * notices this, so all ranks write CONTROL_VOID.  Or its collectives were stopped: then
 * coll_device_latch writes CONTROL_VOID after the all-reduce, on that rank alone.
 *
 * The vector is F32, so integers are cut into digits of 8 bits, one float each.  Sums of digits are
 * exact up to CONTROL_MAX_RANKS, and do not depend on the order of addition.  The loss sum travels
 * as fixed point in units of 2^-24, so that every rank holds the very same number: metrics are
 * replicated state.  One of 2^39 or more, of a run that diverges, is told as infinite.  The digits
 * of a negative sum are negative.
 *
 * The sum of the targets' weights, by which the optimizer divides, travels in units of 2^-30, of
 * which every class weight is a multiple (WEIGHT_UNITS): so it is exact, and the same for any
 * number of ranks, up to 2^23 on a rank.  Without class weights it is the number of targets.
 *
 * Threads: pure. */
#ifndef OP_CONTROL_H
#define OP_CONTROL_H

#include <math.h>
#include <stdint.h>

#include "ir/graph.h"

enum { CONTROL_MAX_RANKS = 65536 }; /* so many vectors have an exact sum */

enum {
    CONTROL_LOSS = 0,       /* 8 digits: loss sum * 2^24, 0 if not finite; of its sign */
    CONTROL_CORRECT = 8,    /* 4 digits */
    CONTROL_TARGETS = 12,   /* 4 digits: targets that were not ignored */
    CONTROL_NONFINITE = 16, /* ranks whose loss was not finite, or that refuse the step */
    CONTROL_STOP = 17,      /* ranks that request a stop; likewise the next two */
    CONTROL_CHECKPOINT = 18,
    CONTROL_REGROUP = 19,
    CONTROL_VOID = 20,   /* > 0: this step is void (op/seal.c) */
    CONTROL_READY = 21,  /* ranks that are ready for what the strategy begins when all are ready */
    CONTROL_WEIGHT = 22, /* 8 digits: sum of the targets' weights * 2^30 */
    CONTROL_SPIKE = 30,  /* > 0: this step's update is left out (train.on_spike).  No rank packs it:
                            each one writes it to the sum, by the same losses */
    CONTROL_LEN = 32,    /* a multiple of SEGMENT_ALIGN; the rest is zero */
};

enum { CONTROL_WEIGHT_DIGITS = 8 };

struct control {
    int64_t loss; /* units of 2^-24 */
    int64_t n_correct, n_targets;
    int64_t weight;                                            /* of all targets, units of 2^-30 */
    int n_nonfinite, n_stop, n_checkpoint, n_regroup, n_ready; /* ranks */
    int is_void, is_spike;
};

/* Write one rank's vector, v[CONTROL_LEN].
 *   metrics   F64 [METRIC_COUNT], sums over this rank's targets
 *   requests  bits of enum engine_request
 *   is_void   1: the step before was not clean, though this step was queued as if it were */
void control_pack(const double *metrics, unsigned requests, int is_void, float *v);
void control_read(const float *v, struct control *out);

#ifdef __CUDACC__
#define OP_BOTH __host__ __device__
#else
#define OP_BOTH
#endif

/* 1: the step's update is applied.  By grad_check's result and the reduced vector, gradient and
 * losses are finite on all ranks, and the step is neither void nor left out as a spike. */
OP_BOTH static inline int control_applies(const double *check, const float *control)
{
    return check[1] == 0.0 && !(control[CONTROL_NONFINITE] > 0.0f) &&
           !(control[CONTROL_VOID] > 0.0f) && !(control[CONTROL_SPIKE] > 0.0f);
}

/* 1: no rank requested anything at this step. */
OP_BOTH static inline int control_is_quiet(const float *control)
{
    return !(control[CONTROL_STOP] > 0.0f) && !(control[CONTROL_CHECKPOINT] > 0.0f) &&
           !(control[CONTROL_REGROUP] > 0.0f);
}

/* The weight of the step's targets, of all ranks: their number without class weights. */
OP_BOTH static inline double control_weight(const float *control)
{
    double w = 0;

    for (int i = CONTROL_WEIGHT + CONTROL_WEIGHT_DIGITS - 1; i >= CONTROL_WEIGHT; i--)
        w = w * 256 + (double)control[i];
    return w / WEIGHT_UNITS;
}

#define CONTROL_LOSS_CUT INT64_MAX /* a loss sum beyond the range; below it -CONTROL_LOSS_CUT */

static inline double control_loss(int64_t fixed)
{
    if (fixed == CONTROL_LOSS_CUT || fixed == -CONTROL_LOSS_CUT)
        return fixed > 0 ? HUGE_VAL : -HUGE_VAL;
    return (double)fixed * 0x1p-24;
}

/* Sums of weights over many steps are kept in units of 2^-24, as those of losses are: in units of
 * 2^-30 an epoch of 10^10 tokens would not fit.  A step loses less than a unit by it, and the same
 * on all ranks. */
static inline int64_t control_weight_kept(int64_t weight) { return weight >> 6; }

/* The mean loss, of a sum of losses and of weights that were kept; NaN if nothing counted. */
static inline double control_mean_loss(int64_t loss, int64_t weight)
{
    return weight > 0 ? control_loss(loss) / ((double)weight * 0x1p-24) : (double)NAN;
}

#endif
