/* rig - a job of up to four ranks over coll/nccl and the fakes.
 *
 * Each rank is a thread that does what the engine does: connect, take the state, then train (record
 * a step of two buckets, replay it a few times) or do what job.after says, and end.  One that fails
 * has all others told, by a thread that is none of theirs, as the driver would.
 *
 * Life: fill in what a test wants of struct job (zeros: the happy path) -> job_run -> look at it.
 * A run checks by itself that only whole sums were applied to any rank's parameters. */
#ifndef TESTS_NCCL_RIG_H
#define TESTS_NCCL_RIG_H

#include "../test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "backend/cuda/cuda.h"
#include "coll/device.h"
#include "coll/nccl/ops.h"
#include "fake.h"

enum { MAX_RANKS = 4, N_GRAD = 1000, BUCKET = 600, N_STEPS = 4 };

struct job;

struct rank {
    int k;
    struct job *job;
    struct cuda cuda;
    pthread_t thread;
    float *grad, *param; /* device memory: [N_GRAD], the veto behind the gradients */
    int64_t n_computed;  /* "on the device" */
    int64_t n_applied;
    struct {
        const uint32_t *poison;
        float *veto;
    } latch;
    cudaGraphExec_t step;
    int rc, quiesced;    /* what the training, and coll_device_quiesce, came to */
    struct err err, end; /* ... and why */
    char stuck[512];     /* what it said when its process had to end */
};

struct job {
    int size;
    int64_t stop_ms, connect_ms; /* deadlines; 0: a minute */
    int64_t finish_ms;           /* rank 0's; the others have a minute */
    uint8_t ids[COLL_ID_BYTES];
    int (*after)(struct rank *r, struct err *err); /* instead of training; or NULL */
    int nccl_sees;                                 /* for the test's own use, as n_there */
    pthread_mutex_t lock;                          /* guards coll, is_over */
    struct coll *coll[MAX_RANKS];
    int is_over;        /* everybody was told to leave */
    atomic_int n_stuck; /* how often a rank said that its process must end */
    atomic_int n_there; /* for the test's own use */
    struct rank rank[MAX_RANKS];
};

/* For cmocka: the fakes forget the test before. */
int job_setup(void **state);

/* Before job_run, where another thread is to see the job. */
void job_begin(struct job *j, int size);

/* All ranks, from connecting to their end. */
void job_run(struct job *j, int size);

/* Tell all ranks to leave; any thread may. */
void job_abort(struct job *j);
int job_is_over(struct job *j);

/* No rank failed, and nothing is left open. */
void job_assert_fine(const struct job *j);

/* What a rank's training is made of, for job.after: a step is recorded once, then launched and
 * waited for, again and again. */
int rank_record_step(struct rank *r, struct coll *c, struct err *err);
int rank_launch(struct rank *r, struct err *err);
int rank_finish_step(struct rank *r, struct coll *c, struct err *err);

/* Return once every rank has called it. */
int rank_meet(struct coll *c, struct err *err);

/* The "kernels" of backward: what the first bucket sums, and the rest; `arg` is the rank. */
void rank_compute(void *arg);
void rank_compute_more(void *arg);

#endif
