/* ckpt - generations of a run's state on disk: written whole or not at all.
 *
 *   RUN/checkpoints/step-00002350/model.safetensors      parameters and states, PyTorch's names
 *                                 optimizer.safetensors  "conv1.weight.momentum_buffer" ...
 *                                 model_average.safetensors  as model's, with train.average
 *                                 config.json            transformers', if it has the network
 *                                 adapter_model.safetensors, adapter_config.json  PEFT's, with
 *                                                        model.lora; the model's file has them, too
 *                                 state.json             where the run stands, hashes of these
 *   RUN/checkpoints/latest -> step-00002350
 *   RUN/checkpoints/best -> step-00001880                if the job wants it
 *
 * The newest generation is found by its step, and the best one by the list in the newest one's
 * state.json.  The links are for people; ckpt/links.h tells what becomes of them where a file
 * system has none, and in a copy of a run.
 *
 * Happy path of a save: everything goes into a folder step.ID.tmp, each file fsynced; state.json,
 * with the hashes, last; the folder is fsynced, renamed to step-N, its parents fsynced; then
 * `latest` is replaced by a rename, and the oldest generations beyond `keep` are removed.  ID is
 * the id of this process (ckpt/owner.h).
 * Each file of tensors is read back from the disk and compared with the hash of what was in memory.
 * If it differs it is written once more.
 * Failure modes: a crash at any point leaves the generations before it untouched, and at most a
 * .tmp folder, which the next driver removes (ckpt_clear).  A full disk fails the save, and nothing
 * else.  A driver that loses the run directory during a save removes its own .tmp folder, and
 * changes nothing else from then on.
 *
 * A generation is damaged if a file of it is missing, does not have the hash in its state.json, or
 * cannot be read (a bad sector).  Loading warns, takes the generation before it, and, if this
 * process owns the run directory (ckpt/owner.h), sets the damaged one aside as damaged-step-N, so
 * that it counts no more among those kept.  Nothing is removed for that.  Whatever else fails, such
 * as memory or descriptors that are used up, or a format of a later version, is no damage: loading
 * fails, and says so. state.json's own hash is made alike in all formats, so that damage and a
 * later format are told apart.
 *
 * Threads: one at a time per run directory.
 * Errors:  ERR_IO, ERR_CORRUPT, ERR_NOMEM; each names the file. */
#ifndef CKPT_CKPT_H
#define CKPT_CKPT_H

#include <stdint.h>

#include "base/err.h"
#include "ckpt/safetensors.h"

enum { CKPT_RECENT = 128 };

/* The progress of a run, which is the same on every rank. */
struct ckpt_state {
    int64_t step;                         /* done so far, skipped ones included */
    int64_t steps_per_epoch;              /* to tell the epoch, and that the data are the same */
    int64_t epoch_loss;                   /* sums of the epoch under way, see op/control.h */
    int64_t epoch_correct, epoch_targets; /* targets: op/control.h */
    int64_t epoch_samples, epoch_skipped;
    int64_t epoch_weight, row_weight; /* of the targets, units of 2^-24: op/control.h */
    int64_t row_loss, row_targets;    /* sums of the steps since the last row of metrics.csv */
    int64_t row_steps;                /* ... and how many steps; 0 if the file does not say */
    /* Of the last step alone; weight 0: it was not applied; -1: the file does not say. */
    int64_t step_loss, step_weight;
    double grad_norm;    /* of the last step, before clipping; NAN: not known */
    int64_t n_updates;   /* steps that the optimizer made; skipped ones do not count */
    int n_ranks;         /* when it was written; a run may go on with any other number */
    struct hash128 data; /* fingerprint of the data; 0 if the version that wrote it kept none */
    struct hash128 base; /* of the packed base that model.base keeps out of the files; 0: none */
    /* The step, from 1, with whose weights the mean of train.average has begun; 0: not begun. */
    int64_t average_first;
    /* The size on which train.bucket_bytes: auto has decided; 0: nothing was decided yet. */
    int64_t bucket_bytes;
    /* With train.on_spike: the mean losses of the newest steps, the oldest first. */
    double recent_loss[CKPT_RECENT];
    int64_t n_recent;
    double live_lr; /* the rate that --set-live has put in the place of optimizer.lr; 0: none */
};

enum { CKPT_MOST_BEST = 16 };

/* Whom a save tells of a file of which the disk gave back other bytes than were written. is_mended:
 * 1: it was written again, and is right now; 0: the save fails. */
struct ckpt_told {
    void *arg;
    void (*damaged)(void *arg, const char *file, int is_mended); /* NULL: nobody is told */
};

struct ckpt_content {
    struct ckpt_state state;
    const char *beside; /* the folder whose tokenizer is copied (ckpt/beside.h); NULL: none */
    int64_t best[CKPT_MOST_BEST]; /* [n_best] steps of generations that stay, the best first */
    int n_best;
    int64_t back_to;               /* the step of one more generation that stays; 0: none */
    const struct st_tensor *model; /* [n_model] */
    int n_model;
    const struct st_tensor *optimizer; /* [n_optimizer] */
    int n_optimizer;
    const struct st_tensor *average; /* [n_average]: the model with averaged weights; or 0 */
    int n_average;
    const struct st_tensor
        *adapter; /* [n_adapter]: the model's adapters under PEFT's names; or 0 */
    int n_adapter;
    /* A list of names in JSON, for state.json and the metadata of the model's files; NULL: none. */
    const char *class_names;
    struct ckpt_told told;
    const char *config; /* the text of config.json, which has no hash; NULL: there is none */
    const char *adapter_config; /* the same of adapter_config.json */
};

enum { CKPT_UNLINKED = 1 }; /* an outcome: the generation is written, a link to it is not */

/* Write a generation, point `best` to the first of c->best that is there, and remove old ones; the
 * newest `keep` (>= 1), those in c->best and that of c->back_to stay.  So does one where somebody
 * put other files; if it is of the same step, it becomes replaced-step-N.  *path: its folder,
 * absolute or as run_dir is, heap; set unless it fails.  A generation of the same step is replaced.
 * 0, or CKPT_UNLINKED, and then *err says why.  Fails with ERR_IO: which file, and why;
 * ERR_REFUSED: another driver owns run_dir (ckpt/owner.h). */
int ckpt_save(const char *run_dir, const struct ckpt_content *c, int keep, char **path,
              struct err *err);

/* Remove the remains of saves that earlier drivers did not end.  Call it once, after the
 * claim of run_dir: a later call could remove what a newer driver writes. */
void ckpt_clear(const char *run_dir);

struct ckpt { /* a generation, open */
    struct ckpt_state state;
    struct st_file *model, *optimizer;
    struct st_file *average; /* NULL: the run averages no weights */
    char *path;              /* its folder */
};

enum { CKPT_NONE = 1 }; /* an outcome, not a failure: no generation at all */

/* The newest generation of run_dir that is complete and undamaged.  For each generation that is
 * skipped, warn(arg, text) is called with the reason.  The owner of the run first puts folders
 * where they belong that a copy has in the places of links.
 *
 * 0: *out is open.  CKPT_NONE: the run has not written any yet.  Fails with ERR_IO if there are
 * some and all of them are damaged, and with ERR_IO, ERR_NOMEM, ERR_UNSUPPORTED if one cannot be
 * read for a reason that is no damage. */
int ckpt_load_latest(const char *run_dir, void (*warn)(void *arg, const char *text), void *arg,
                     struct ckpt **out, struct err *err);
/* The generation in `folder`, which may lie anywhere.  Fails as ckpt_load_latest does, and with
 * ERR_CORRUPT if it is damaged. */
int ckpt_load_folder(const char *folder, struct ckpt **out, struct err *err);
/* 1: `folder` is a generation's, damaged or not. */
int ckpt_is_folder(const char *folder);

/* The best generation of run_dir that is there, by what the newest one says: *path is its folder,
 * for free().  A version that wrote no such list is believed its link, but never a folder of that
 * name.  CKPT_NONE: no generation is the best.  Fails with ERR_CONFIG if there is such a folder. */
int ckpt_find_best(const char *run_dir, char **path, struct err *err);
/* How many ranks wrote the newest generation whose state.json can be read; 0: there is none. */
int ckpt_n_ranks(const char *run_dir);
/* The number of steps of an epoch, by the same generation; 0: there is none. */
int64_t ckpt_steps_per_epoch(const char *run_dir);

/* The run has written a checkpoint of `step`.  Fails with ERR_CONFIG if there is no checkpoint at
 * all now, damaged or not, and says what stands in the place of their folder; or if that cannot be
 * read. */
int ckpt_check_lost(const char *run_dir, int64_t step, struct err *err);

/* Fails with ERR_IO if the run directory is not there any more.  A save finds out all else. */
int ckpt_check_run_dir(const char *run_dir, struct err *err);
/* The folder of the generation that the link at `path`, or the text file in its place, names; for
 * free().  NULL: it is neither. */
char *ckpt_named_by(const char *path);
/* Call warn(arg, text) if the file system of run_dir, which may not be there yet, has no links.  To
 * find out, it makes a link in the run's folder of checkpoints, or in the nearest folder above that
 * is there, and removes it. */
void ckpt_check_disk(const char *run_dir, void (*warn)(void *arg, const char *text), void *arg);
/* The same, and for each folder that stands in the place of a link. */
void ckpt_check_links(const char *run_dir, void (*warn)(void *arg, const char *text), void *arg);
void ckpt_close(struct ckpt *c); /* NULL is fine */

#endif
