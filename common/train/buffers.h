/* buffers - the memory of a step that is not state: gradients, scalars, the arena of temporaries.
 *
 * With accumulation, programs write each micro-batch's gradient to `micro`, and the sum grows in
 * `grad`; otherwise both are the same memory.  Running statistics likewise: programs read `work`
 * and write `shadow`; with accumulation `work` follows the micro-batches, otherwise it is the
 * state's own.
 *
 * Life:    buffers_new -> buffers_free; buffers_fit makes the arena large enough.
 * Threads: the engine's. */
#ifndef TRAIN_BUFFERS_H
#define TRAIN_BUFFERS_H

#include "backend/backend.h"
#include "program/program.h"
#include "train/state.h"

struct buffers {
    struct backend *backend;
    float *grad;     /* [layout.n_grad]: what is reduced, control vector at the end */
    float *micro;    /* [layout.n_grad]: what programs write */
    float *work;     /* [n_state_total]: what programs read */
    float *shadow;   /* [n_state_total]: what programs write */
    double *metrics; /* [METRIC_COUNT] */
    double *check;   /* [2]: of grad_check */
    struct step_scalars *scalars;
    void *arena;
    size_t arena_bytes;
    int accumulates;
};

int buffers_new(struct backend *b, const struct state *s, int accumulates, struct buffers **out,
                struct err *err);
void buffers_free(struct buffers *m); /* NULL is fine */

/* Make the arena hold at least n_bytes; no program may be bound to the old one. */
int buffers_fit(struct buffers *m, size_t n_bytes, struct err *err);

struct program_spaces buffers_spaces(const struct buffers *m, const struct state *s);

#endif
