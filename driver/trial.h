/* trial - opens a job as rank 0 would, on an engine of its own, and closes it again: could this
 * process lead it?  The loop goes on meanwhile, as data may take long to open.
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
    struct engine *engine; /* at work; NULL: none is */
    struct cmd *next;      /* to be tried then; NULL: nothing */
    int is_closing;
};

/* `done` is called once for each job, or for the last of several that came meanwhile: why is NULL
 * if it can be led here, else the engine's error.  `o` is borrowed. */
void trial_init(struct trial *t, uv_loop_t *loop, const struct options *o,
                void (*done)(void *arg, const struct err *why), void *arg);

/* Try `job`, which is copied, with o->n_ranks of now. */
void trial_begin(struct trial *t, const struct job *job);

/* Returns NULL, or an engine that does not end: the process must leave by _exit then.  Waits at
 * most some seconds for one that is at work. */
struct engine *trial_close(struct trial *t);

/* The command that has an engine open the job, with the newest checkpoint of the run directory
 * `resume`, or NULL. */
struct cmd *trial_command(const struct options *o, const struct job *job, const char *resume);

#endif
