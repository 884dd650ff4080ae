/* loop - the decisions after each validation: which checkpoints are the best, whether to stop
 * early, whether the learning rate drops.
 *
 * All that these decisions need is one slot of the state (optim/slot.h), so it is hashed,
 * broadcast, saved and recovered like the parameters.  Every rank decides for itself, by the same
 * metrics of the whole set, and so reaches the same decision.  A decision belongs to a step and is
 * made once.  If the validation of a step is repeated, because a rank or the driver was lost, the
 * second one changes nothing.
 *
 * A job's last step is validated wherever it lies: inside an epoch, too, where train.max_steps ends
 * the job, or after an epoch that train.validate_every leaves out.  Such a validation counts for
 * train.best, whose checkpoint exists.  It does not count for train.early_stop and the schedule.
 * So a job that is resumed with larger limits stops, and lowers its rate, as if it had had them
 * from the beginning.
 *
 * Life:    slot_loop is a row of the state.  Each time that the state came from elsewhere:
 *          loop_read -> loop_decide after each validation.
 * Threads: the engine's. */
#ifndef STATE_LOOP_H
#define STATE_LOOP_H

#include "ckpt/ckpt.h"
#include "job/job.h"
#include "state/state.h"

enum {
    LOOP_STEP,      /* the step of the newest decision; 0: none was made yet */
    LOOP_STOP_BEST, /* train.early_stop: the best score (optim/goal.h) */
    LOOP_STOP_BAD,  /* ... and how many validations since then were no better */
    LOOP_N_BEST,    /* train.best: the number of steps listed at LOOP_BEST */
    LOOP_SCHEDULE,  /* [SCHEDULE_STATE] of the learning rate's schedule */
    LOOP_BEST = LOOP_SCHEDULE + SCHEDULE_STATE, /* [2 * CKPT_MOST_BEST]: step, score; best first */
    LOOP_LEN = LOOP_BEST + 2 * CKPT_MOST_BEST
};

extern const struct slot_def slot_loop; /* F64 [LOOP_LEN] */

struct loop { /* the slot's values, in host memory */
    double v[LOOP_LEN];
};

/* 1: the job asks for one of these decisions, so its state has the slot. */
int loop_is_wanted(const struct job *job);
const char *loop_wanted_by(const struct job *job); /* the key that asks for it; NULL: none */

/* Read the slot's values from `s`; if it has no such slot, take those of a job that decides
 * nothing.  Fails with ERR_CORRUPT if the values cannot be those of a run. */
int loop_read(struct loop *l, const struct state *s, struct err *err);

/* Decide by `v`, the validation of the step that `s` holds, and write the slot. */
int loop_decide(struct loop *l, const struct job *job, struct state *s, const struct validated *v,
                struct err *err);

int loop_stops(const struct loop *l, const struct job *job); /* 1: train.early_stop ends training */
int loop_is_best(const struct loop *l, int64_t step);        /* 1: no step is better */

/* The steps whose checkpoints are kept, best first; returns how many. */
int loop_best(const double v[LOOP_LEN], int64_t step[CKPT_MOST_BEST]);
int loop_keeps(const struct loop *l, int64_t step);

#endif
