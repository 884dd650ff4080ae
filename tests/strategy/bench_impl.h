/* bench_impl - what the bench's files share; no other file includes it.
 *
 *   bench.c          ranks, steps, and the updates of whole weights
 *   bench_divided.c  weights, gradients and momentum that are divided among the ranks */
#ifndef TESTS_STRATEGY_BENCH_IMPL_H
#define TESTS_STRATEGY_BENCH_IMPL_H

#include "bench.h"
#include "job/job.h"
#include "op/update.h"
#include "program/layout.h"
#include "strategy/reducer.h"

enum { BENCH_BUCKETS = SIM_MAX_SEGMENTS, BENCH_HELD = 2, BENCH_PLACES = 2 };

/* The shards of one rank (strategy/cut.h): its own, then the copy of that of the rank before. */
struct divided {
    int n_held;                                                         /* 0: nothing is divided */
    float *sums[BENCH_HELD], *momentum[BENCH_HELD], *param[BENCH_HELD]; /* stage 2; any; stage 3 */
    /* Stage 2 and 3: buckets lie where the buckets two before them have lain. */
    float *place[BENCH_PLACES], *param_place[BENCH_PLACES];
    void *param_bucket[BENCH_BUCKETS];
};

struct rank {
    const struct bench_run *run;
    struct bench_result *out;
    int rank;
    struct coll *coll;
    struct job *job;
    const struct strategy_ops *ops;
    struct layout layout;
    struct segment param[SIM_MAX_SEGMENTS];
    struct bucket bucket[BENCH_BUCKETS];
    struct backend *backend;
    struct reducer *reducer;
    struct ring *ring;
    float *w, *grad, *momentum;     /* [sim_space.len], and in grad the control vector at the end */
    void *bucket_at[BENCH_BUCKETS]; /* where the strategy finds each bucket's gradients */
    double *check;
    struct step_scalars scalars;
    void *slot[STRATEGY_MAX_SLOTS];
    void *moment[OPTIMIZER_MAX_SLOTS]; /* of Adam, as all that follows */
    double segments[SEGMENT_COLUMNS];
    int64_t kept[KEPT_LEN];
    struct program *adam; /* NULL: gradient descent, with momentum if the run has it */
    void *arena;
    struct divided d;
};

/* Make the rank's shards, and fill in the addresses that the strategy gets. */
int divided_open(struct rank *k, struct err *err);
void divided_close(struct rank *k);

/* Stage 3: bring the weights of all ranks to k->w. */
int divided_gather(struct rank *k, struct err *err);
/* Put the gradients of this bucket, which are in k->grad, where the strategy finds them. */
int divided_fill(struct rank *k, int bucket, struct err *err);
/* Update the shards that this rank holds, by the sums that it has. */
void divided_update(struct rank *k);
/* Write the momentum that this rank holds to the result. */
void divided_show(struct rank *k);

#endif
