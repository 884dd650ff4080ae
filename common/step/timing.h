/* timing - the times of one call of trainer_train: of steps, and of waits for ranks and for data.
 *
 * Threads: the engine's thread. */
#ifndef STEP_TIMING_H
#define STEP_TIMING_H

#include <stdint.h>

#include "base/err.h"
#include "data/effort.h"
#include "session/action.h"

/* The measurements of one call of trainer_train. */
struct timing {
    int64_t start_ns, step_ns, report_ns;  /* start of the call, of this step; last REPORT_STEP */
    int64_t wait_ns, data_ns;              /* step_waited_ns, feed_waited_ns at the step's start */
    int64_t sum_ns;                        /* step_summed_ns likewise */
    int64_t n_samples, n_data_ns;          /* samples of the epoch, and waits for data in it */
    float *step_ms, *exposed_ms, *data_ms; /* [cap]: rings of the latest steps' figures */
    int64_t n, cap;
    int64_t exposed_ns, summed_ns; /* of the epoch: waits for ranks; time inside collectives */
    int64_t n_late;                /* steps of which a tenth or more was a wait for data */
    struct effort effort;          /* feed_effort at the start of the call */
};

/* Begin now.  n_steps: at most so many steps follow; 1 or more.  Fails with ERR_NOMEM.  The caller
 * frees step_ms, in whose memory the other two rings lie. */
int timing_start(struct timing *m, int64_t n_steps, struct err *err);

/* A step of n_samples has ended.  waited_ns, summed_ns and data_ns are step_waited_ns,
 * step_summed_ns and feed_waited_ns.  Returns how long the step took, in ns. */
int64_t timing_step(struct timing *m, int64_t waited_ns, int64_t summed_ns, int64_t data_ns,
                    int64_t n_samples);

/* Samples per second since the start. */
double timing_rate(const struct timing *m);

/* The part of the time since the start, 0 to 1, for which this rank waited for data. */
double timing_data_share(const struct timing *m);

/* The part of the time inside collectives, 0 to 1, in which this rank did not wait for them;
 * NOT_MEASURED: it was in none, or that is not known. */
double timing_hidden_share(const struct timing *m);

/* Why this rank waited for data.  effort: of the threads that read, since the start; n_readers: how
 * many they are; n_processors: those that this process may use. */
enum wait_cause timing_wait_cause(const struct timing *m, const struct effort *effort,
                                  int n_readers, int n_processors);

/* The median of v[n], which is sorted; 0 if n is 0. */
double timing_median(float *v, int64_t n);

#endif
