/* trainer_impl - what the files of a trainer share; nobody else includes this. */
#ifndef TRAIN_TRAINER_IMPL_H
#define TRAIN_TRAINER_IMPL_H

#include "data/dataset.h"
#include "data/sampler.h"
#include "op/control.h"
#include "optim/schedule.h"
#include "train/buffers.h"
#include "train/faults.h"
#include "train/feed.h"
#include "train/programs.h"
#include "train/saver.h"
#include "train/state.h"
#include "train/tape.h"
#include "train/trainer.h"
#include "train/update.h"

enum { NOTE_LEN = 384 };

struct trainer {
    struct trainer_options o;
    struct trainer_hooks hooks;
    struct ring *ring;

    /* open */
    struct job *job;
    struct dataset *train_set, *valid_set; /* valid_set: NULL when there is none */
    struct model_input input;
    struct sampler sampler;
    int64_t steps_per_epoch, total_steps; /* total: of the whole job, max_steps included */
    struct backend *backend;
    struct layout *layout;
    struct state *state;
    struct buffers *buffers;
    struct update *update;
    struct saver *saver;                  /* from new on; NULL: nothing is written here */
    struct feed *train_feed, *valid_feed; /* valid_feed: NULL when there is none */

    /* prepare, form */
    int rank, n_ranks;
    struct programs *programs;
    struct tapes *tapes;
    struct coll *coll; /* NULL until formed */

    /* of the step under way */
    int64_t *ticket;                   /* [n_buckets] of its all-reduces */
    int64_t n_sent;                    /* scalars, ever */
    int64_t first_handed, last_handed; /* ids in the ring of a device's collectives; 0: none */
    int64_t next_bucket;               /* the one that backward fills now; -1 none */
    char note[NOTE_LEN];               /* what was first seen not finite here, or "" */
    double loss_scale;                 /* of the next step; 0: not scaled */
    int64_t first_step_done;           /* 1 once this process has made a step */
    int has_stepped;                   /* 1 once this formation has */
    int64_t closed_at;                 /* the step held, once closed */
    int is_checkpoint_due;             /* at the next step's end at which the saver is idle */
    int64_t warned_step; /* the checkpoint that is taking too long, and was said to; -1 */

    /* of the epoch under way, over all the formations that this process trained it in */
    int64_t timed_epoch, epoch_start_ns, epoch_n_samples;
};

/* What all ranks know after a step. */
struct step_result {
    struct control control;
    int applied;    /* 0: something was not finite */
    int overflowed; /* 1: not applied because of the loss scale, which will be lowered (or was):
                       train.on_nonfinite is not asked */
};

/* One whole global step: micro-batches, all-reduces, update.  Allocates nothing (on a device: from
 * the third step of a batch size on). */
int step_run(struct trainer *t, struct step_result *out, struct err *err);

/* On a device: poll until all that was queued is done, or the coll fails. */
int step_wait(struct trainer *t, struct err *err);

/* The scalars of b's micro-batch, of which only step, first and n_global matter. */
void step_scalars(const struct trainer *t, const struct batch *b, struct step_scalars *out);

/* Something in the step that step_run has just done was not finite: if it was this rank's, say in
 * t->note where. */
int explain_nonfinite(struct trainer *t, const struct control *control, struct err *err);

/* Resident and peak memory of this process. */
double rss_mib(void);
double peak_rss_mib(void);

#endif
