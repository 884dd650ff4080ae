/* programs - one program for each batch size that this rank will meet, made before training.
 *
 * Batch sizes differ because shares differ by one sample, the last step of an epoch may be smaller,
 * and validation has batches of its own.  All programs share one arena, because only one runs at a
 * time.
 *
 * Life:    programs_new -> programs_find ... -> programs_free.
 * Threads: the engine's. */
#ifndef STEP_PROGRAMS_H
#define STEP_PROGRAMS_H

#include "data/sampler.h"
#include "job/job.h"
#include "model/model.h"
#include "step/buffers.h"

struct programs; /* opaque */

struct programs_options {
    const struct job *job;
    const struct sample_spec *spec;
    const struct sampler *sampler;
    int64_t n_validation; /* samples of the validation set, 0: none */
    int rank, n_ranks;
    int n_threads; /* that the backend has now (backend_set_threads) */
    int gathers; /* 1: parameters are divided, so there is a validation program without samples, for
                    a rank that must take part in gathering them */
    int audits;  /* 1: this rank may compute any rank's micro-batches (step/witness.h) */
    int statistics; /* 1: there is a program for programs_statistics */
    /* The programs of the former formation, with the same job, layout, state and buffers; or NULL.
     * programs_new takes them, on failure, too: it keeps those that are wanted again, and frees the
     * others.  On the CPU alone, and not where gradients or parameters are divided. */
    struct programs *former;
};

/* The types in which a job computes.  accumulates 1: the gradients of micro-batches are float32,
 * because they are added up. */
struct program_precision programs_precision(const struct job *job, int accumulates);

/* Give a graph the types of the job: program_pack_base, then program_set_precision. */
int programs_set_types(struct graph *g, const struct job *job, int accumulates, struct err *err);

/* Refuse a batch norm that would have one value per channel in each full micro-batch.  Reads of *o
 * only job, spec, sampler and n_ranks.  programs_new does that, too. */
int programs_check_norms(const struct programs_options *o, struct err *err);

int programs_new(const struct programs_options *o, struct backend *b, const struct state *s,
                 struct buffers *m, struct programs **out, struct err *err);
void programs_free(struct programs *p); /* NULL is fine */

/* The program for `batch` samples, for training or validation.  Asserts that there is one: there is
 * one for every batch that the sampler gives this rank, and for every batch of its part of the
 * validation set. */
struct program *programs_find(const struct programs *p, int training, int64_t batch);

/* The program that computes batch norm's statistics of one batch of programs_statistics_batch
 * samples (the same for any number of ranks), over this rank alone: it is a forward pass in
 * training mode that leaves in the buffers' shadow the batch's means and unbiased variances.  Only
 * with `statistics`. */
struct program *programs_statistics(const struct programs *p);
int64_t programs_statistics_batch(const struct programs *p);

/* The size of validation batches (the last may be smaller). */
int64_t programs_validation_batch(const struct programs *p);

/* The number of samples of which each rank's part of the validation set is a multiple (except for
 * the last part): 1, or with fixed shares the size of a batch, because the bits of a batch's
 * results depend on its size. */
int64_t programs_validation_unit(const struct programs *p);

#endif
