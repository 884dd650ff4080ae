/* engine - runs one rank's trainer (train/trainer.h) on a thread of its own, by commands.
 *
 * Commands and reports are described in session/command.h.  A daemon's loop makes one engine, posts
 * commands to it, and receives the engine's reports in a mailbox.  A REPORT_ROW or
 * REPORT_HASHES is left there without waking the loop, which takes it with the REPORT_STEP that
 * follows.  No call blocks the
 * loop, except engine_free.  The engine owns everything that this rank trains with: graph,
 * programs, memory, data and collectives.
 *
 * Life:    engine_new -> engine_post ... -> engine_free (aborts what runs, joins the thread).
 * Threads: engine_post, engine_request, engine_abort, engine_trace, engine_progress and engine_ring
 *          may come from any thread; new and free from one. */
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
    int n_threads;  /* for kernels; 0: cores of this host divided by its ranks, at least 1 */
    int has_secret; /* 1: the daemons share a secret, so links between machines can be encrypted
                     */
    const char *run_dir; /* where rank 0 keeps checkpoints; NULL on followers; copied */
};

/* Start an engine whose reports (struct report) go to `reports`, borrowed until engine_free. */
int engine_new(const struct engine_options *o, struct mailbox *reports, struct engine **out,
               struct err *err);

void engine_post(struct engine *e, struct cmd *c); /* takes c */
void engine_request(struct engine *e, enum engine_request r);

/* The engine waits after each REPORT_INJECT until this is called.  Call it when the report was
 * passed on, and a fault of the whole process (kill, stop, drop) has been done. */
void engine_injected(struct engine *e);

/* Abort the command that runs, even inside a collective, and those that are queued.  They fail with
 * a REPORT_FAULT whose is_consequence is 1.  The engine then holds the state of its last applied
 * step, and waits for CMD_PREPARE or CMD_STOP. */
void engine_abort(struct engine *e);

/* Record a timeline from the next step on, for this long; REPORT_SPANS has it. */
void engine_trace(struct engine *e, int64_t number, int64_t duration_ns);

/* Where the engine stands now, for heartbeats (session/command.h). */
void engine_progress(struct engine *e, struct progress *out);

/* This rank's last collectives, oldest first (session/ring.h); returns how many. */
int engine_ring(const struct engine *e, struct collective out[RING_LEN]);

/* Abort what runs, and wait for the thread's end.  NULL is fine. */
void engine_free(struct engine *e);

#endif
