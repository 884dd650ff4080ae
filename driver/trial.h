/* trial - opens a job as rank 0 would, on an engine of its own, and closes it again.  So a standby
 * finds out whether it could lead the job.  The loop goes on meanwhile, because opening data may
 * take long.
 *
 * Life:    trial_init -> trial_begin ... -> trial_close, and the loop runs until its handle is
 *          closed.
 * Threads: the loop's. */
#ifndef DRIVER_TRIAL_H
#define DRIVER_TRIAL_H

#include <uv.h>

#include "driver/options.h"
#include "job/job.h"
#include "net/inbox.h"
#include "train/engine.h"

struct trial { /* all private */
    struct inbox inbox;
    const struct options *options;
    void (*done)(void *arg, const struct err *why);
    void *arg;
    struct engine *engine; /* the engine that opens a job now; NULL: none */
    struct cmd *next;      /* the job to be tried after that; NULL: none */
    int is_closing;
};

/* `done` is called once for each job; of several jobs that came during a trial, only for the last.
 * why: NULL if this process can lead the job, else the engine's error.  `o` is borrowed. */
void trial_init(struct trial *t, uv_loop_t *loop, const struct options *o,
                void (*done)(void *arg, const struct err *why), void *arg);

/* Try `job`, which is copied, with the present o->n_ranks. */
void trial_begin(struct trial *t, const struct job *job);

/* Wait at most some seconds for an engine that is at work.  Returns NULL; or an engine that does
 * not end, and then the process must leave by _exit. */
struct engine *trial_close(struct trial *t);

/* The command by which an engine opens the job, with the newest checkpoint of the run directory
 * `resume`; NULL: without one. */
struct cmd *trial_command(const struct options *o, const struct job *job, const char *resume);

#endif
