/* past - the status of a run (session/status.h) as its files tell it, for a run that no driver
 * answers for.
 *
 * The stage is "done", "failed", or "stopped" if no driver is at work; of a driver on another
 * machine nothing is known, and the stage is "running when last heard".  The ranks are those of the
 * newest formation, without the ones that were lost since.
 *
 * Life:    past_read -> its fields -> past_fini.
 * Threads: any; a past belongs to one.
 * Errors:  ERR_CONFIG: the folder holds no run; ERR_IO.  A line of a file that cannot be read, such
 *          as a torn last one, is passed over. */
#ifndef SEE_PAST_H
#define SEE_PAST_H

#include "base/arena.h"
#include "base/err.h"
#include "session/status.h"

struct past {
    struct status status;            /* borrows from `texts` */
    double begun_s;                  /* Unix seconds of the first event, */
    double newest_s;                 /* and of the newest one */
    const char *device;              /* of rank 0, or NULL */
    double best_loss, best_accuracy; /* of all validations; NAN: there was none */
    struct arena texts;
};

/* The run in `run_dir`; now_s: Unix seconds, for the ages. */
int past_read(const char *run_dir, double now_s, struct past *out, struct err *err);
void past_fini(struct past *p);

#endif
