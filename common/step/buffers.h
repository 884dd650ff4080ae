/* buffers - the memory of a step that is not state: gradients, scalars, the arena of temporaries.
 *
 * Gradients.  With accumulation, programs add each micro-batch's gradient to `sum`, which is
 * float32 and zero when a step begins.  If `grad` is of half precision, the sum is rounded to it
 * once. Without accumulation, programs write `grad` itself.
 *
 * Running statistics.  Programs write the next ones to `shadow`.  With accumulation they read
 * `work`, which holds those after the micro-batch before.  Without it they read the state's own.
 *
 * If gradients are divided among the ranks, there is no `grad`.  A bucket's gradients then have
 * memory only while they are written and summed: all buckets share `pool`, in which neighbouring
 * buckets do not overlap.  After each micro-batch the sums are moved to the memory of the shards
 * (state/shards.h).  If parameters are divided, too, their buckets share a pool in the same way.
 *
 * Life:    buffers_new -> buffers_free; buffers_fit makes the arena large enough, and
 *          buffers_fit_buckets and buffers_fit_params the pools.
 * Threads: the engine's. */
#ifndef STEP_BUFFERS_H
#define STEP_BUFFERS_H

#include "backend/backend.h"
#include "coll/device.h"
#include "op/control.h"
#include "op/seal.h"
#include "op/update.h"
#include "program/program.h"
#include "state/state.h"

/* A step's few numbers, in the backend's memory.  The sums must be zero when a step begins: one
 * copy from the host brings these zeros and the step's first scalars (STEP_NUMBERS_SENT bytes). */
struct step_numbers {
    _Alignas(16) double metrics[METRIC_COUNT]; /* of this rank */
    _Alignas(16) int64_t waits[2];             /* backend_stopwatch's: for collectives */
    _Alignas(16) int64_t kept[KEPT_LEN];       /* parameters left as they were (op/update.h) */
    /* If state is divided: written once the sums of gradients have ended.  `stamp` is
     * the step's, and is_void above 0 says that the sums were stopped before their end. */
    struct {
        float stamp, is_void;
    } summed;
    _Alignas(16) struct step_scalars scalars;
    _Alignas(16) double check[2]; /* of grad_check */
};

enum { STEP_NUMBERS_SENT = offsetof(struct step_numbers, scalars) + STEP_SCALARS_SENT };

/* A number for the step that is exact as a float, never 0, and different for steps near each
 * other. */
static inline float step_stamp(int64_t step) { return (float)(step % (1 << 23) + 1); }

struct buffers {
    struct backend *backend;
    const struct coll_device_ops *shared; /* the maker of grad's memory; NULL: the backend */
    void *grad; /* of layout.grad_dtype: what ranks reduce, control vector at the end; or NULL */
    float *control; /* [CONTROL_LEN]: the control vector, in grad or apart */
    void **bucket;  /* [layout_most_buckets]: the address of each bucket, in grad or in the pool */
    /* [layout.n_param_buckets], if parameters are divided: the address of each bucket's parameters,
     * and of their working copies, if programs read such. */
    void **param_bucket, **copy_bucket;
    struct pool {
        void *at; /* or NULL */
        size_t n_bytes;
    } pool, params, copies; /* of buckets of gradients, of parameters, of working copies */
    float *sum;    /* [layout.n_grad]: the sum of micro-batches; grad itself if F32; NULL: there is
                      none, and programs write buckets */
    float *work;   /* [n_state_total]: statistics that programs read; NULL: the state's own */
    float *shadow; /* [n_state_total]: statistics that programs write */
    void *copy;    /* [n_total] of layout.copy_dtype: working copies, the rounded parameters.
                      update_refresh makes them anew after parameters changed by anything but an
                      update.  NULL: programs read the F32 parameters, or copy_bucket */
    struct step_numbers *numbers;
    void *arena;
    size_t arena_bytes;
    int accumulates;

    /* Memory of the host that the device reads and writes. */
    struct step_numbers *sent; /* [BUFFERS_SENT], used in turn: STEP_NUMBERS_SENT of each */
    float *results; /* [SEALED_SLOTS*SEALED_LEN] (op/seal.h), written as each step ends */
};

/* The scalars of this many micro-batches may be on their way to the device at once.  The feed
 * limits the micro-batches under way to fewer (feed.c). */
enum { BUFFERS_SENT = 8 };

/* shared: the maker of the gradients' memory, which collectives on devices need (coll/device.h);
 * NULL: the backend b. */
int buffers_new(struct backend *b, const struct coll_device_ops *shared, const struct state *s,
                int accumulates, struct buffers **out, struct err *err);
void buffers_free(struct buffers *m); /* NULL is fine */

/* The layout has other buckets, in grad. */
void buffers_cut(struct buffers *m, const struct layout *l);

/* Make the arena hold at least n_bytes; no program may be bound to the old one. */
int buffers_fit(struct buffers *m, size_t n_bytes, struct err *err);

/* Where gradients are divided: make the pool large enough for programs that write `most_open`
 * buckets at the same time (program_most_open), and for the sums of one bucket meanwhile.  No
 * program may be bound to the old pool. */
int buffers_fit_buckets(struct buffers *m, const struct layout *l, int most_open, struct err *err);

/* Where parameters are divided: make their pool.  apart[a*n_param_buckets + b] is 1 for buckets
 * whose parameters are in memory at the same time.  No program may be bound to the old pool. */
int buffers_fit_params(struct buffers *m, const struct layout *l, const char *apart,
                       struct err *err);

/* 1: the gradients of both buckets cannot be in memory at the same time. */
int buffers_overlap(const struct buffers *m, const struct layout *l, int a, int b);

/* A formation begins: zero the gradients, whose padding must be zero (program/layout.h).  On a
 * device a collective that broke off in the formation before may have left anything there.
 * Gradients that are divided are left alone, since buffers_clear_padding is called in each step for
 * them. */
int buffers_clear(struct buffers *m, const struct layout *l, struct err *err);

/* Zero the padding between the bucket's gradients, where other gradients may have been. */
int buffers_clear_padding(struct buffers *m, const struct layout *l, int bucket, struct err *err);

struct program_spaces buffers_spaces(const struct buffers *m, const struct state *s);

#endif
