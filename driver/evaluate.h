/* evaluate - dpdriver --evaluate: finds the weights and the job that are meant, and prints the line
 * with the result.
 *
 * An evaluation validates the weights of a checkpoint once, over all ranks.  It owns no run
 * directory, and writes nothing to the run that it evaluates, which may still be training.
 *
 * Life:    evaluate_find -> evaluate_print, once done -> evaluate_fini.
 * Threads: main's. */
#ifndef DRIVER_EVALUATE_H
#define DRIVER_EVALUATE_H

#include "driver/options.h"
#include "session/action.h"

struct evaluation {
    char *from;    /* the folder whose weights are loaded: a run's (its newest) or a checkpoint's */
    char *job;     /* path of the job that the weights were trained by; NULL: --job names one */
    int is_latest; /* 1: `from` is a run's folder, and its newest checkpoint is meant */
};

/* Resolve --checkpoint, --run-dir and --job.  Fails with ERR_CONFIG if there is no such run or
 * checkpoint; *err says what was looked for, and the remedy. */
int evaluate_find(const struct options *o, struct evaluation *out, struct err *err);
void evaluate_fini(struct evaluation *e); /* of a zeroed one, too */

/* Print the result of EVENT_DONE as one line on standard output: text, or JSON with --log-format
 * json. */
void evaluate_print(const struct options *o, const struct evaluation *e,
                    const struct session_event *done);

/* The folder of the run that --run-dir, --job or --set name=NAME name, by the same rules as for
 * --resume; for free(). */
char *evaluate_run(const struct options *o);

#endif
