/* loader - batches made ahead of the engine, by a thread of the loader's own, the data thread, and
 * by the workers that the dataset asks for.
 *
 * A loader serves one dataset (make a second one for validation).  It is given work: a range of
 * global steps, or one validation pass.  Its thread then fills a ring of slots in order; the engine
 * takes them with loader_next and gives them back, oldest first, with loader_release.
 * Every step gives exactly sampler_n_micros batches, in order, also where this rank's part is empty
 * (n = 0): the engine must take part in the collectives anyway.
 *
 * Life:    loader_new -> { loader_start_... -> next, release ... } -> free.
 *          A start at any time drops the work before it, and all batches taken from it (recovery,
 *          other ranks).  Free and start never wait for more than the batch being filled.
 * Threads: all functions from one thread, the engine's; only the data thread and
 *          its workers read the dataset.
 *          A batch's samples are divided among the workers (data/pool.h); each sample goes to its
 *          own place, so a batch does not depend on their number.
 * Lock:    one mutex guards the work and the ring's counters; `changed` wakes the data thread,
 *          `progress` the engine.  A slot's content is the data thread's until it is counted as
 *          filled, then the engine's until released; neither touches it under the lock.
 * Memory:  slots are allocated by loader_new, and again by a start that needs larger ones; never
 *          per batch. */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include <stdint.h>

#include "base/err.h"
#include "base/spans.h"
#include "data/dataset.h"
#include "data/effort.h"
#include "data/sampler.h"

enum {
    LOADER_END = 1,  /* loader_next: the work is done */
    LOADER_LATE = 2, /* loader_next_within: the batch is not filled yet */
};

struct batch {
    /* Each field of the data set's spec, [n, its shape], aligned to SAMPLE_ALIGN; NULL with
     * indices_only. */
    void *field[SAMPLE_MAX_FIELDS];
    const int64_t *index; /* [n] the samples' numbers */
    int64_t n;            /* 0: this rank's part is empty */
    int64_t step;         /* global step, from 0; in a pass: the batch's number, from 0 */
    int64_t epoch;        /* from 1; 0 in a pass */
    int micro;            /* this rank's micro-batch of the step, from 0; 0 in a pass */
    int64_t first; /* position of the first sample in the global batch; in a pass: in the dataset */
    int64_t n_global; /* samples of this step over all ranks; in a pass: of the dataset */
};

/* The maker of the slots' memory, if that is not the heap but, say, memory that a device copies
 * from.  The memory is zeroed. */
struct loader_memory {
    int (*alloc)(void *arg, size_t n_bytes, const char *what, void **out, struct err *err);
    void (*free)(void *arg, void *p); /* NULL is fine */
    void *arg;
};

struct loader_options {
    const struct dataset *dataset;      /* borrowed for the loader's life */
    int64_t max_batch;                  /* samples a slot holds to begin with */
    int n_slots;                        /* batches ahead, 2 .. 64; 0: 4 */
    int indices_only;                   /* 1: batches have no fields (NULL), and nothing is read */
    const struct loader_memory *memory; /* NULL: the heap; copied */
};

struct loader;

int loader_new(struct loader **out, const struct loader_options *o, struct err *err);
void loader_free(struct loader *l); /* NULL is fine; returns after at most one batch's filling */

/* Record the filling of batches in this track (base/spans.h).  Before any work is given. */
void loader_record(struct loader *l, struct spans_track *track);

/* Give work: steps [first_step, end_step) of the plan, as `rank` of `n_ranks`, with shares of
 * `accumulate` batches.  s is copied, with its bounds.  s->n_samples must be the dataset's.  Fails
 * with ERR_ARG, ERR_NOMEM; then there is no work. */
int loader_start_train(struct loader *l, const struct sampler *s, int accumulate, int n_ranks,
                       int rank, int64_t first_step, int64_t end_step, struct err *err);

/* Give work: this rank's part of the whole dataset, in order, in batches of `batch` samples (the
 * last one may be smaller; an empty part gives none).  The parts of all ranks consist of whole
 * pieces of `unit` samples (span_part_of_pieces).  Fails in the same way. */
int loader_start_pass(struct loader *l, int64_t batch, int64_t unit, int n_ranks, int rank,
                      struct err *err);

/* Give work: whole global batches of the first epoch, those before `end`, dealt out to the ranks in
 * turn: this rank takes batch `rank` and each n_ranks-th one after it.  b->step is the batch's
 * number. Fails in the same way. */
int loader_start_turns(struct loader *l, const struct sampler *s, int n_ranks, int rank,
                       int64_t end, struct err *err);

/* Take the next batch, in *out, which is valid until released.  Blocks until it is filled.
 * LOADER_END at the end of the work, and while there is none; <0: reading failed (again at each
 * call, until a start). Taking a batch while holding all n_slots is a bug of the caller's. */
int loader_next(struct loader *l, const struct batch **out, struct err *err);

/* The same, but it waits for at most limit_ns, >= 0; LOADER_LATE: not filled yet. */
int loader_next_within(struct loader *l, int64_t limit_ns, const struct batch **out,
                       struct err *err);

/* Where the time of the threads that read training batches has gone since loader_new, as far as it
 * was measured. */
struct effort loader_effort(const struct loader *l);

void loader_release(struct loader *l); /* the oldest batch taken and not yet released */

#endif
