/* latest - the newest numbers of a run, kept from the session's events: what a table of ranks does
 * not have, and a page, a scrape or a script wants.
 *
 * Counters are this driver's: they begin at 0 with it and never fall.  A step that is made again
 * after a loss counts once.
 *
 * Threads: one at a time; pure. */
#ifndef SESSION_LATEST_H
#define SESSION_LATEST_H

#include "session/action.h"

struct latest_options {
    int64_t n_epochs, max_steps; /* max_steps 0: no limit */
    int64_t global_batch;        /* samples of a step; 0: not known */
};

struct latest {
    struct latest_options o;
    int64_t step, epoch;                             /* steps done, of the run; -1: not known yet */
    int64_t steps_per_epoch;                         /* 0: not known yet */
    int64_t n_steps, n_samples, n_lost, n_recovered; /* counters */
    int64_t first_step;                              /* with which this driver began; -1: not yet */
    int64_t first_ns;                                /* when the ranks first formed */
    int64_t step_ns;       /* when the newest step was told of, or the ranks formed; 0: not yet */
    int64_t epoch_samples; /* n_samples at the end of the last epoch, */
    int64_t epoch_step;    /* and its step */
    double loss, learning_rate, grad_norm, samples_per_second; /* NAN: not known */
    double validation_loss, validation_accuracy;               /* likewise */
    int has_failed, is_done;                                   /* an error, or the end, was told */
};

void latest_init(struct latest *l, const struct latest_options *o);

/* An event of the session, at now_ns of its caller's clock. */
void latest_note(struct latest *l, const struct session_event *ev, int64_t now_ns);

int64_t latest_total_steps(const struct latest *l); /* of the whole run; 0: not known yet */

/* Seconds until the last step, by the pace of this driver so far, all pauses included; NAN: not
 * known. */
double latest_eta_s(const struct latest *l, int64_t now_ns);

#endif
