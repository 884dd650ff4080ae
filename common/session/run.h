/* run - the machine of the driver's session that knows how far training is: epochs, validations,
 * checkpoints, and what comes next.
 *
 *   driver_run.c       the order of epochs, validations and checkpoints
 *   driver_results.c   what the ranks' answers add up to
 *   driver_replicas.c  compares the ranks' replicas at the end of an epoch
 *
 * A function that takes `struct run *` may write it, and one that takes `const struct driver *`
 * only looks.
 *
 * Threads: as driver.h. */
#ifndef SESSION_RUN_H
#define SESSION_RUN_H

#include "session/decision.h"
#include "session/seat.h"

struct driver;

struct run {                /* training and its results */
    const struct driver *d; /* the whole, to look at */
    struct seat *seats;     /* [n_seats] */
    int unstepped;          /* the rank at which the search for one without a step stopped */
    int64_t epoch, step, steps_per_epoch;
    int is_epoch_open;   /* 1: Train was sent, and not all ranks have answered */
    double first_step_s; /* seconds from the start to the first step's end; < 0: not yet */
    int is_first_step_said;
    struct session_epoch last; /* the last epoch; .epoch == 0: none yet */
    char *figures;             /* last.figures */
    int is_last_said;          /* 1: the event of `last` was sent */
    int is_kept;               /* 1: its checkpoint is one of the best (train.best) */
    int stops_early;           /* 1: train.early_stop ends the job */
    int is_final;              /* 1: no epoch follows, so the present checkpoint is the last */
    int is_saving_last;        /* 1: the engine answers when the checkpoint is on disk */
    int data_wait_cause;       /* enum wait_cause */
    double data_wait_share;    /* part of the epoch so far in which rank 0 waited for data */
    double live_lr;            /* of --set-live, in the place of optimizer.lr; 0: none */
    int64_t live_step;         /* the first step with it */
    int is_live_new;           /* 1: it is that of the next formation */
    int64_t saved_step;        /* step of the newest checkpoint of this process; -1: none */
    char *saved_path;          /* its path */
    int is_dir_gone;           /* the checkpoint after it failed: the run directory is gone */
    char *save_error;          /* why the final checkpoint could not be written */
    char *nonfinite;           /* why training cannot go on, once the checkpoint is written */
    int nonfinite_is_of_input; /* 1: samples or a setting are to blame for it, not the rate */
    int nonfinite_rank;        /* the rank that saw the value that is not finite; -1: unknown */
};

/* driver_run.c */
void run_opened(struct run *r);                     /* rank 0 has opened the job; the event */
int run_formed(struct run *r);                      /* 1: the ranks hold an older step */
void run_end_again(struct run *r);                  /* the epoch at whose end the step held is */
struct decision run_choose(const struct driver *d); /* what the ranks do once they have formed */
struct cmd *run_train(struct run *r);               /* the command */
struct cmd *run_validate(struct run *r);
struct cmd *run_checkpoint(struct run *r);
struct decision run_check_epoch(const struct driver *d); /* all ranks ended it in the same way */
struct decision run_trained(struct run *r);
struct decision run_validated(struct run *r);
struct decision run_checkpointed(struct run *r);
int run_nothing_to_do(const struct driver *d, int64_t step);
int run_is_past_stop(const struct driver *d);           /* train.stop_after is reached */
struct decision run_stop_again(const struct driver *d); /* the run was past it from the start */
const char *run_reason(const struct driver *d);         /* what ended the training: "epochs", ... */
int run_is_saving(const struct driver *d); /* rank 0 writes a checkpoint in mid-training */
void run_note_step(struct run *r, const struct report *step); /* rank 0's */
void run_stepped(struct run *r, int rank, double rss_mib);
void run_fini(struct run *r);

/* driver_live.c */
void run_take_live(struct run *r); /* --set-live: the formation is there from which it counts */

/* driver_results.c */
struct decision run_note_validation(struct run *r);              /* an accusation, or nothing */
void run_note_checkpoint(struct run *r, const struct report *c); /* rank 0's */
void run_say_epoch(struct run *r); /* the event of the last epoch, unless it is out */

/* driver_replicas.c */
int replicas_differing_end(const struct driver *d); /* first rank that ended unlike rank 0; or -1 */
struct decision replicas_compare(const struct driver *d); /* all must hold the same bits */

#endif
