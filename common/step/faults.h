/* faults - the faults on purpose (inject/inject.h) of one engine: waits for the points at which
 * they are due, has them announced, and makes those happen that concern the engine.
 *
 * When a rank reaches a point at which a fault is due, the report REPORT_INJECT goes out, and the
 * engine waits until faults_announced says that the report was passed on.  Only then does the fault
 * happen.  A fault of the whole process (kill, stop, drop) is done by the caller of
 * faults_announced, before the call.  A delay is done here.  Faults of a bucket are done by
 * step/flip.h.
 *
 * Without faults, a point costs one comparison.  Points lie between kernels, where a recorded step
 * does not stop.  So if any rank has faults, no rank records its steps (trainer_form).
 *
 * Life:    faults_new -> faults_take (at each Open and Prepare) -> reach ... -> faults_free.
 * Threads: the engine's; faults_announced from any. */
#ifndef STEP_FAULTS_H
#define STEP_FAULTS_H

#include "inject/inject.h"
#include "session/command.h"

struct faults; /* opaque */

/* `announce` takes the report, in which phase, step and generation are still to be filled in. */
struct faults *faults_new(void (*announce)(void *arg, struct report *r), void *arg);
void faults_free(struct faults *f); /* NULL is fine */

/* Keep the faults of `rank` in `text` (as inject_parse reads it; NULL: none), and forget those kept
 * before. */
void faults_take(struct faults *f, const char *text, int rank);

int faults_n(const struct faults *f); /* how many are kept; 0 for NULL */

/* The rank is at `point` of step, epoch or generation `last`, which also stands for all numbers
 * from `first` on: the faults due there happen. */
void faults_reach_any(struct faults *f, enum injection_point point, int64_t first, int64_t last);

static inline void faults_reach(struct faults *f, enum injection_point point, int64_t number)
{
    if (faults_n(f))
        faults_reach_any(f, point, number, number);
}

/* Returns the fault of this kind that is due in this bucket of this step, or NULL. */
struct injection *faults_of_bucket(struct faults *f, enum injection_what kind,
                                   enum injection_how how, int64_t step, int64_t bucket);

/* Returns a fault that is due in this step, and whose bucket is not one of the n_buckets that there
 * are; or NULL. */
struct injection *faults_of_no_bucket(struct faults *f, int64_t step, int64_t n_buckets);

/* Have the fault announced, and wait until that is done.  Takes text. */
void faults_happen(struct faults *f, struct injection *what, char *text);

/* The report of a fault was passed on, so the fault may happen.  Any thread. */
void faults_announced(struct faults *f);

#endif
