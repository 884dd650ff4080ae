/* tracing - records the steps that report.trace or an operator asks for (base/spans.h), and hands
 * the record over in pieces (REPORT_SPANS).
 *
 * Life:    tracing_new -> { tracing_before_step -> tracing_after_step } ... -> tracing_if_over
 *          -> tracing_free.
 * Threads: the engine's; trainer_trace (train/trainer.h) may come from any.
 * Errors:  without memory for a record there is none, and a warning says so. */
#ifndef TRAIN_TRACING_H
#define TRAIN_TRACING_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/spans.h"

struct trainer;

struct tracing {
    struct spans *spans;
    int is_on;
    int is_job_done;     /* 1: what report.trace asks for was recorded, or tried */
    int64_t number;      /* of the record under way; 0: the job's */
    int64_t first, last; /* its first step; the last one, INT64_MAX: until_ns decides */
    int64_t until_ns;    /* it ends with the step in which this time comes */
    atomic_int_fast64_t wanted, duration_ns; /* by trainer_trace; 0: nothing */
};

void tracing_new(struct tracing *c, struct trainer *t);
void tracing_free(struct tracing *c);

/* The step at state->at.step begins; or the one before that has ended. */
void tracing_before_step(struct trainer *t);
void tracing_after_step(struct trainer *t);

/* No step follows if the job's last one is done, or is_over is 1: hand over what there is. */
void tracing_if_over(struct trainer *t, int is_over);

#endif
