/* faults - the faults on purpose of one engine (inject/inject.h): waits for their points, has them
 * announced, and does what is the engine's to do.
 *
 * When a rank reaches a point at which one is due, the report REPORT_INJECT goes out, and the
 * engine waits until faults_announced says that it was passed on: only then does the fault happen.
 * What concerns the whole process (kill, stop, drop) is done by whoever calls faults_announced,
 * before the call; a delay follows here; what befalls a bucket is train/flip.h's.
 *
 * Without any, a point costs one comparison.  Points lie between kernels: where any rank has
 * faults, all ranks' devices do their steps unrecorded (trainer_form).
 *
 * Life:    faults_new -> faults_take (at each Open and Prepare) -> reach ... -> faults_free.
 * Threads: the engine's; faults_announced from any. */
#ifndef TRAIN_FAULTS_H
#define TRAIN_FAULTS_H

#include "inject/inject.h"
#include "session/command.h"

struct faults; /* opaque */

/* `announce` takes the report, in which phase, step and generation are still to be filled in. */
struct faults *faults_new(void (*announce)(void *arg, struct report *r), void *arg);
void faults_free(struct faults *f); /* NULL is fine */

/* Those of `rank` in `text` (which inject_parse reads; NULL: none), instead of those before. */
void faults_take(struct faults *f, const char *text, int rank);

int faults_n(const struct faults *f); /* of those taken; 0 for NULL */

/* The rank is at `point` of step, epoch or generation `number`: what is due there happens. */
void faults_reach_any(struct faults *f, enum injection_point point, int64_t number);

static inline void faults_reach(struct faults *f, enum injection_point point, int64_t number)
{
    if (faults_n(f))
        faults_reach_any(f, point, number);
}

/* What is due of this kind in this bucket of this step, or NULL. */
struct injection *faults_of_bucket(struct faults *f, enum injection_what kind,
                                   enum injection_how how, int64_t step, int64_t bucket);

/* Have it announced and wait until it was; takes text. */
void faults_happen(struct faults *f, struct injection *what, char *text);

void faults_announced(struct faults *f);

#endif
