/* engine - one rank's trainer: obeys commands, on a thread of its own.
 *
 * Commands and reports are described in session/command.h.  A daemon's loop makes one engine, posts
 * commands to it, and receives its reports in the mailbox that it gave; the engine never blocks the
 * loop.  The engine owns everything else of this rank: graph, programs, memory, data, collectives.
 *
 * Life:    engine_new -> engine_post ... -> engine_free (aborts what runs, joins the thread).
 * Threads: engine_post, engine_request, engine_abort, engine_progress and engine_ring may come from
 *          any thread; new and free from one. */
#ifndef TRAIN_ENGINE_H
#define TRAIN_ENGINE_H

#include <stdint.h>

#include "backend/device.h"
#include "base/err.h"
#include "base/mailbox.h"
#include "session/command.h"

struct engine; /* opaque */

struct engine_options {
    const struct plugin *plugin; /* for "cuda:I" (backend/device.h); borrowed */
    const char *device;          /* "cpu" or "cuda:I" */
    int n_threads;       /* for kernels; 0: cores of this host divided by its ranks, at least 1 */
    int has_secret;      /* the daemons share one: links to other machines may be encrypted */
    const char *run_dir; /* where rank 0 keeps checkpoints; NULL on followers; copied */
};

/* Requests that any rank may make; all ranks agree on the step through the control vector. */
enum engine_request {
    ENGINE_REQUEST_STOP = 1,
    ENGINE_REQUEST_CHECKPOINT = 2,
    ENGINE_REQUEST_REGROUP = 4, /* end training here; forgotten at the next CMD_PREPARE */
};

/* Start an engine whose reports (struct report) go to `reports`, borrowed until engine_free. */
int engine_new(const struct engine_options *o, struct mailbox *reports, struct engine **out,
               struct err *err);

void engine_post(struct engine *e, struct cmd *c); /* takes c */
void engine_request(struct engine *e, enum engine_request r);

/* To be called once a REPORT_INJECT was passed on and its fault of the process was done; the engine
 * then goes on. */
void engine_injected(struct engine *e);

/* Leave a collective at once, from outside: the command that runs, and those that are queued, fail
 * with a REPORT_FAULT whose is_consequence is 1; the engine then holds its last applied step and
 * awaits CMD_PREPARE or CMD_STOP. */
void engine_abort(struct engine *e);

void engine_progress(struct engine *e, struct progress *out);

/* This rank's last collectives, oldest first (session/ring.h); returns how many. */
int engine_ring(const struct engine *e, struct collective out[RING_LEN]);

void engine_free(struct engine *e); /* NULL is fine */

#endif
