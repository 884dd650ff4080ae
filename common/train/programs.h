/* programs - one program for each batch size that this rank will meet, made ahead.
 *
 * Sizes differ because shares differ by one, the last step of an epoch is smaller, and validation
 * has batches of its own.  All share one arena.
 *
 * Life:    programs_new -> programs_find ... -> programs_free.
 * Threads: the engine's. */
#ifndef TRAIN_PROGRAMS_H
#define TRAIN_PROGRAMS_H

#include "data/sampler.h"
#include "job/job.h"
#include "model/model.h"
#include "train/buffers.h"

struct programs; /* opaque */

struct programs_options {
    const struct job *job;
    const struct sample_spec *spec;
    const struct sampler *sampler;
    int64_t n_validation; /* samples of the validation set, 0: none */
    int rank, n_ranks;
    int gathers; /* 1: there is a validation program of no samples, too */
};

/* The types that a job computes in.  accumulates: gradients of micro-batches are float32, to be
 * added up. */
struct program_precision programs_precision(const struct job *job, int accumulates);

int programs_new(const struct programs_options *o, struct backend *b, const struct state *s,
                 struct buffers *m, struct programs **out, struct err *err);
void programs_free(struct programs *p); /* NULL is fine */

/* The program for `batch` samples.  There is one for every batch that the sampler gives this rank,
 * and for every piece of its part of the validation set (asserted). */
struct program *programs_find(const struct programs *p, int training, int64_t batch);

/* The size of validation batches (the last may be smaller). */
int64_t programs_validation_batch(const struct programs *p);

/* The parts of all ranks of the validation set consist of whole pieces of so many samples: 1, or
 * with fixed shares a batch, because a batch's bits depend on its size. */
int64_t programs_validation_unit(const struct programs *p);

#endif
