/* rig - a job of up to four ranks over coll/nccl and the fakes.
 *
 * Each rank is a thread that does the engine's work: it connects, takes the state, trains (records
 * a step of two buckets and an urgent sum, and replays it a few times) or calls job.after, and
 * ends.  If a rank fails,
 * a thread of its own tells all the others to leave, as the driver would.
 *
 * A test fills in struct job (all zero: the happy path), calls job_run, and looks at the result.
 * job_run itself asserts that only whole sums were applied to any rank's parameters. */
#ifndef TESTS_NCCL_RIG_H
#define TESTS_NCCL_RIG_H

#include "../test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "backend/cuda/cuda.h"
#include "coll/device.h"
#include "coll/nccl/ops.h"
#include "fake.h"

enum { MAX_RANKS = 4, N_GRAD = 1000, BUCKET = 600, N_STATS = 10, N_STEPS = 4 };

struct job;

struct rank {
    int k;
    struct job *job;
    struct cuda cuda;
    pthread_t thread;
    float *grad, *param; /* device memory; grad: N_GRAD gradients, behind them the veto */
    double *stats;       /* device memory: N_STATS of a layer's statistics */
    int64_t n_computed;  /* "on the device" */
    int64_t n_applied;
    struct {
        const uint32_t *poison;
        float *veto;
    } latch;
    cudaGraphExec_t step;
    int rc, quiesced;    /* the results of the training and of coll_device_quiesce */
    struct err err, end; /* ... and their reasons */
    char stuck[512];     /* the rank's message that its process must end */
};

struct job {
    int size;
    int64_t stop_ms, connect_ms; /* deadlines; 0: one minute */
    int64_t finish_ms;           /* rank 0's deadline; the other ranks have one minute */
    uint8_t ids[COLL_ID_BYTES];
    int (*after)(struct rank *r, struct err *err); /* instead of training; or NULL */
    int nccl_sees;                                 /* for the test's own use, as n_there */
    pthread_mutex_t lock;                          /* guards coll, is_over */
    struct coll *coll[MAX_RANKS];
    int is_over;        /* all ranks were told to leave */
    atomic_int n_stuck; /* how often a rank said that its process must end */
    atomic_int n_there; /* for the test's own use */
    struct rank rank[MAX_RANKS];
};

/* For cmocka: the fakes forget the test before. */
int job_setup(void **state);

/* Prepare a job that another thread uses; to be called before job_run. */
void job_begin(struct job *j, int size);

/* Run all ranks, from connecting to their end. */
void job_run(struct job *j, int size);

/* Tell all ranks to leave; any thread may call it. */
void job_abort(struct job *j);
int job_is_over(struct job *j);

/* Assert that no rank failed, and that nothing is left open. */
void job_assert_fine(const struct job *j);

/* The parts of a rank's training, for job.after: a step is recorded once, then launched and waited
 * for, again and again. */
int rank_record_step(struct rank *r, struct coll *c, struct err *err);
int rank_launch(struct rank *r, struct err *err);
int rank_finish_step(struct rank *r, struct coll *c, struct err *err);

/* Return once every rank has called it. */
int rank_meet(struct coll *c, struct err *err);

/* The "kernels" of backward: gradients of the first bucket, and of the rest; `arg` is the rank. */
void rank_compute(void *arg);
void rank_compute_more(void *arg);

#endif
