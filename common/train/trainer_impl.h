/* trainer_impl - the struct and the functions that the files of a trainer share: trainer.c,
 * open.c, steps.c, epoch.c, checkpoint.c, validate.c, meet.c, balance.c, buckets.c, explain.c and
 * others.
 *
 * Only files in train/ and tests include this header.
 *
 * Threads: as trainer.h. */
#ifndef TRAIN_TRAINER_IMPL_H
#define TRAIN_TRAINER_IMPL_H

#include "data/dataset.h"
#include "job/course.h"
#include "judge/outputs.h"
#include "optim/schedule.h"
#include "state/joint.h"
#include "state/saver.h"
#include "step/step.h"
#include "train/balance.h"
#include "train/buckets.h"
#include "train/inspect.h"
#include "train/tracing.h"
#include "train/trainer.h"

enum { NOTE_LEN = 384 };

struct trainer {
    struct trainer_options o;
    struct trainer_hooks hooks;
    struct ring *ring;
    struct tracing tracing;

    /* open */
    struct job *job;
    struct dataset *train_set, *valid_set; /* valid_set: NULL when there is none */
    const struct sample_spec *spec;        /* of both */
    struct hash128 fingerprint;            /* of both */
    int may_lack_labels;    /* 1: samples for validation may, because they are for predictions */
    struct outputs outputs; /* for what judges them (judge/) */
    struct sampler sampler;
    struct strategy_shares shares;
    int64_t steps_per_epoch, total_steps; /* total: of the whole job, max_steps included */
    struct backend *backend;
    struct layout *layout;
    struct state *state;
    struct loop loop;              /* of the state */
    int64_t loaded_step;           /* of the checkpoint that this run went on from; or 0 */
    struct saver *saver;           /* from trainer_new on; NULL: this rank writes nothing */
    struct joint *joint;           /* from trainer_new on; opened if the state is divided */
    struct rows_file *predictions; /* rank 0's, with CMD_OPEN's `predict`; else NULL */
    struct feed *valid_feed;       /* NULL when there is no validation set */
    int counts_top5;               /* 1: validations do */

    /* prepare, form */
    int rank, n_ranks;
    int n_threads;    /* of the backend */
    int n_processors; /* trainer_n_processors when the ranks last met */
    struct balance balance;
    struct inspect inspect;
    struct buckets buckets;
    struct stepper step; /* what a step needs (step/step.h) */

    /* of the newest steps */
    char note[NOTE_LEN];      /* the first thing seen not finite on this rank, or "" */
    char kept_note[NOTE_LEN]; /* the parameters that this rank's last update left, or "" */
    int64_t kept_epoch;       /* the last epoch in which that was told; 0: none */
    int looked_at_validation; /* 1: explain_validation has looked */
    int is_of_input;          /* note: samples or a setting are to blame, so no rate mends it */
    int64_t met_step;         /* the newest step at which all ranks held the same state; -1: none */
    int64_t met_generation;   /* the newest formation in which they did */
    int64_t first_step_done;  /* 1 once this process has made a step */
    int has_stepped;          /* 1 once this formation has made a step */
    int64_t closed_at;        /* the step held when the trainer was closed */
    int took_checkpoint;      /* rank 0: 1: it loaded a checkpoint as this formation began */
    int is_checkpoint_due;    /* 1: write one at the end of the next step at which the saver is idle
                               */
    int64_t checkpoint_due_since; /* then: the step at which it became due */
    struct spike_told spike;      /* the newest */
    struct ckpt_state spike_at;   /* the position before its step */
    int64_t warned_step;          /* the checkpoint whose slowness was reported; -1: none */

    /* of the epoch under way, over all the formations that this process trained it in */
    int64_t timed_epoch, epoch_start_ns, epoch_n_samples, epoch_data_ns;
    int64_t epoch_exposed_ns, epoch_summed_ns;

    int64_t row_ns, row_samples; /* of the steps since the last row of metrics.csv, as far as this
                                    process made them */
};

/* 1: outputs are compared with targets as right or wrong.  A loss that the network computes does
 * not say how. */
int trainer_has_accuracy(const struct trainer *t);

/* For train.overfit: keep its samples alone, for training and for validation (overfit.c). */
int trainer_overfit(struct trainer *t, struct err *err);

/* train.on_spike (spike.c).  Refuse what this job or this device cannot do. */
int spike_check(const struct trainer *t, struct err *err);
/* The mean loss above which the next step is a spike; HUGE_VAL: too few steps have been made. */
double spike_limit(const struct trainer *t);
/* A step has ended, and is not added up yet: remember its loss.  Tell of a spike.  1: the job goes
 * back because of it: the step counts as one that was not applied, and spike_rewind follows once it
 * is added up. */
int spike_judge(struct trainer *t, struct step_result *s);
/* The run goes on, or goes on after a checkpoint: make the one due that is planned for the next
 * step, as the plan must not depend on where the run was stopped or saved. */
void spike_make_due(struct trainer *t);
/* All ranks take the state of an earlier checkpoint, but go on with the step that follows here. */
int spike_rewind(struct trainer *t, struct err *err);
/* All ranks take the state of rank 0's checkpoint of this step, with its position; if that is
 * missing, of the newest one; 0: of the job's beginning.  *is_loaded: 1: this is rank 0, and holds
 * that state, even if the other ranks could not take it. */
int trainer_go_back(struct trainer *t, int64_t step, int *is_loaded, struct err *err);

/* Check that the data's classes are the job's (data.class_names), and note their names. */
int trainer_check_classes(struct trainer *t, struct err *err);
/* Once the data are open: give the outputs what judges read, except the names. */
void trainer_open_outputs(struct trainer *t);
/* Note the shape of a sample's outputs.  g: the network with a batch of 1. */
void trainer_note_outputs(struct trainer *t, const struct graph *g);
/* Give the state what its checkpoints tell beside tensors: the classes' names, and the config.json
 * of transformers; and the plan by which one of them stays. */
void trainer_describe(struct trainer *t);

/* 1: parts of the state are on other ranks. */
int trainer_is_divided(const struct trainer *t);

/* Give the stepper what it borrows of the trainer, once the state is there. */
void trainer_open_step(struct trainer *t);

/* Run the step at state->at.step, as step_run does. */
int trainer_run_step(struct trainer *t, int64_t last, struct step_result *out, struct err *err);

/* That step has ended: find out why it was not applied, for t->note, or which parameters it left as
 * they were.  May run micro-batches again, which computes in the place of the step's gradients. */
int trainer_explain_step(struct trainer *t, const struct step_result *s, struct err *err);

/* A step has ended.  If a checkpoint is due by checkpoint.every_steps, or because some rank asked,
 * begin it, unless the one before is under way; that one goes on.  None begins at the step `last`,
 * where the epoch or the job ends: what comes then, such as a validation, changes the state of that
 * step, and a checkpoint of it must have the changes. */
int trainer_save_if_due(struct trainer *t, const struct step_result *s, int64_t last,
                        struct err *err);

/* A checkpoint is due at `step`.  It begins there, or later if the one before is under way. */
void trainer_make_checkpoint_due(struct trainer *t, int64_t step);

/* The formation ends: drop the checkpoint that its ranks write.  The next one writes another. */
void trainer_give_up_checkpoint(struct trainer *t);

/* Once the state is there: make what writes its checkpoints. */
int trainer_open_savers(struct trainer *t, struct err *err);

/* Something in the step at state->at.step was not finite.  If that happened on this rank, find the
 * operator, and write its name to t->note (explain.c). */
int explain_nonfinite(struct trainer *t, const struct step_result *result, struct err *err);

/* Warn of what is legal, but rarely meant, in the job, the sizes of its targets, and the step whose
 * gradients are to be written. */
void explain_doubts(struct trainer *t);

/* The loss of a validation sample of this rank is not finite.  The first time *note says, for
 * free(), which number of these samples is not; NULL: all are. */
int explain_validation(struct trainer *t, char **note, struct err *err);

/* The update left n parameters as they were, the lowest at this place in the space of parameters.
 * Write that to t->kept_note, and report it, once in an epoch. */
void explain_kept(struct trainer *t, int64_t n, int64_t lowest);

/* The number of threads with which this rank computes if n_local ranks (0: one) share its host's
 * processors, and n_container of them its container's CPU quota. */
int trainer_n_threads(const struct trainer *t, int n_local, int n_container);
/* The processors that this process may use at the same time, by its affinity and CPU quota. */
int trainer_n_processors(void);
/* Log t->n_threads if they are fewer because of a CPU quota. */
void trainer_say_quota(const struct trainer *t, int n_local);
/* The number of threads that decode pictures, unless the job says it. */
int trainer_n_workers(const struct trainer *t);

/* Tell the driver.  arg is the struct trainer.  The event has step 0. */
void trainer_warn(void *arg, const char *text);
/* Likewise, of a step. */
void trainer_warn_at(struct trainer *t, int64_t step, const char *text);

/* The method of the job's strategy. */
const struct strategy_ops *trainer_strategy(const struct trainer *t);

/* Rank 0 takes the newest checkpoint in run_dir; if there is none yet, or run_dir is NULL, it
 * begins a run.  The user is told what the links to this run's checkpoints will lack. */
int trainer_begin(struct trainer *t, const char *run_dir, struct err *err);
/* The position of a run that has not done a step. */
struct ckpt_state trainer_beginning(const struct trainer *t);

/* Make the programs for this rank's shares, in place of the present ones. */
int trainer_make_programs(struct trainer *t, struct err *err);

/* Make the update for the present layout and shards, in place of the present one. */
int trainer_make_update(struct trainer *t, struct err *err);

/* Start to read this rank's micro-batches of the steps from the state's on, before `last`. */
int trainer_start_feed(struct trainer *t, int64_t last, struct err *err);

/* Make train.average's part of the trainer, which the job wants. */
int trainer_make_average(struct trainer *t, struct err *err);

/* Read again what the host keeps of the state, and make anew what is made of it, after the state
 * came from another rank. */
int trainer_reread(struct trainer *t, struct err *err);

/* Give up the formation: recordings, coll. */
void trainer_leave(struct trainer *t);

/* Do the work with averaged weights in the parameters' place (average_enter), and put the trained
 * ones back, however it ends. */
int trainer_with_average(struct trainer *t, int with_statistics,
                         int (*work)(struct trainer *t, void *arg, struct err *err), void *arg,
                         struct err *err);

/* Resident and peak memory of this process, in MiB. */
double rss_mib(void);
double peak_rss_mib(void);

#endif
