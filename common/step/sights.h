/* sights - what the operators of one step read and write, for report.operators and report.tensor: a
 * line of JSON with a hash for each tensor, and the numbers of one of them.
 *
 * The tensors are hashed one by one while the step is made, because most of them have no memory of
 * their own for long.  So the step waits for each operator, and is not recorded, repeated or
 * audited.
 *
 * Life:    zeroed -> sights_open -> { sights_begin -> sights_run_stage ... } ... -> sights_fini.
 * Threads: the engine's.
 * Errors:  those of the stages; ERR_NOMEM. */
#ifndef STEP_SIGHTS_H
#define STEP_SIGHTS_H

#include "base/buf.h"
#include "base/err.h"
#include "data/sampler.h"

struct batch;
struct program;
struct stepper;

struct sights {
    struct buf lines;  /* of this rank's micro-batches, in the order in which they were made */
    struct buf values; /* float32: of the tensor that report.tensor names, in each of these */
    /* private */
    struct span samples; /* of the micro-batch, in the step's batch */
    int64_t micro;
    int64_t number; /* of the micro-batch's tensor that came last, from 1 on */
    void *copy;     /* of a tensor */
    size_t n_bytes, room;
};

/* 1: report.operators asks for this step, which counts from 0.  The same on all ranks. */
int sights_is_due(const struct stepper *t, int64_t step);

/* A step begins.  If it is due, what was listed before is dropped. */
void sights_open(struct stepper *t);
/* The next micro-batch of the step. */
void sights_begin(struct stepper *t, const struct batch *b);
/* program_run_stage, which also lists the tensors of the stage. */
int sights_run_stage(struct stepper *t, struct program *p, int i, struct err *err);
void sights_fini(struct sights *l);

#endif
