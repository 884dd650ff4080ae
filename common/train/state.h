/* state - what training changes, as a table of slots with their memory, and where the run stands.
 *
 * Nothing here or in what walks the table (hashes, snapshots, broadcasts, checkpoints) knows a slot
 * by name: a slot's declaration (optim/slot.h) says what is done with it.  The rows are the
 * parameters, the running statistics, the loss scale where the loss is scaled, and what the
 * optimizer and the strategy declare.
 *
 * Life:    state_new (memory from the backend) -> init, load or broadcast -> ... -> state_free.
 * Threads: the engine's. */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include "backend/backend.h"
#include "ckpt/ckpt.h"
#include "coll/coll.h"
#include "job/job.h"
#include "optim/slot.h"
#include "program/layout.h"
#include "session/command.h"

enum { STATE_MAX_SLOTS = 16 };

struct slot {
    const struct slot_def *def;
    void *data;     /* the backend's memory; padding between tensors is zero */
    size_t n_bytes; /* of the whole */
    int is_divided; /* 1: among the ranks (train/shards.h); then data is NULL unless all of it is
                       here */
};

struct shards;

struct state {
    struct backend *backend;
    const struct layout *layout;
    struct slot slot[STATE_MAX_SLOTS]; /* [n_slots] */
    int n_slots;
    struct shards *shards;                     /* NULL: no slot is divided */
    struct ckpt_state at;                      /* host memory */
    void (*warn)(void *arg, const char *text); /* state_init's, set by the owner; or NULL */
    void *warn_arg;
};

/* The rows of every job; all F32. */
extern const struct slot_def slot_parameters; /* [n_total] */
extern const struct slot_def slot_statistics; /* [n_state_total] */
extern const struct slot_def slot_scaler;     /* [SCALER_LEN]; only where the loss is scaled */

/* How slots are divided among the ranks (train/shards.h). */
struct state_division {
    int n_divided; /* the first so many of the other rows; each has one element a trained parameter
                    */
    int n_holders; /* of each shard; 0: nothing is divided */
    int gradients; /* 1: gradients are divided, too */
    int params;    /* 1: parameters are divided, too; none of them may be frozen */
    int whole;     /* 1: this rank makes or loads the state, so it holds all of it */
};

/* The rows of every job and those of `more`, all zero.  Declarations are borrowed.  division NULL:
 * nothing is divided. */
int state_new(struct backend *b, const struct layout *l, const struct slot_def *const *more,
              int n_more, struct state **out, struct err *err);
int state_new_divided(struct backend *b, const struct layout *l, const struct slot_def *const *more,
                      int n_more, const struct state_division *division, struct state **out,
                      struct err *err);
void state_free(struct state *s); /* NULL is fine */

/* The slot's memory, or NULL if the state has no such row. */
void *state_data(const struct state *s, const struct slot_def *d);

/* Give all rows their initial values; parameters get theirs as the job's model.init says.  s->warn
 * is told what a file of weights lacks (train/weights.h). */
int state_init(struct state *s, const struct job *job, struct err *err);

/* The same, but parameters are drawn also where model.init names a file: for a rank that takes them
 * from a checkpoint. */
int state_init_drawn(struct state *s, const struct job *job, struct err *err);

/* Give initial values to those rows alone that no checkpoint holds: for a rank that resumes, or
 * that takes another rank's state. */
int state_init_unsaved(struct state *s, const struct job *job, struct err *err);

/* One tensor of a slot. */
struct slot_tensor {
    const char *base;   /* its name without the slot's suffix */
    struct shape shape; /* as PyTorch stores it */
    size_t at, n_bytes; /* where it lies in the slot */
};
int slot_n_tensors(const struct layout *l, const struct slot_def *d);
struct slot_tensor slot_tensor(const struct layout *l, const struct slot_def *d, int i);

/* All ranks take the source's position and broadcast slots.  A rank on which this fails holds what
 * it held before.  Where slots are divided, the shards that are left choose the source themselves;
 * SHARDS_LOST (> 0), on all ranks alike: no state is left whole, as *err says. */
int state_broadcast(struct state *s, struct coll *c, int source, struct err *err);

/* All ranks take rank 0's running statistics. */
int state_share_stats(struct state *s, struct coll *c, struct err *err);

/* *out: one hash for each tensor of the hashed slots, with its name.  *all: one hash of everything,
 * position included.  *out has state_n_hashes() rows, heap, names too.  Needs no memory on the CPU,
 * and a few MiB if the backend is a device. */
int state_n_hashes(const struct state *s);
int state_hash(const struct state *s, struct tensor_hash **out, struct hash128 *all,
               struct err *err);

/* Take every saved slot, and the position, from an open generation.  A tensor that is missing,
 * misshapen or not the model's is named, and then nothing was taken. */
int state_load(struct state *s, const struct ckpt *c, struct err *err);

/* Take the weights of an open generation, and no more: those of model.safetensors, or with
 * `averaged` those of model_average.safetensors; and the averaged weights, if the state has them.
 * Fails with ERR_CONFIG where the files lack what is wanted. */
int state_load_weights(struct state *s, const struct ckpt *c, int averaged, struct err *err);

/* 1: `name` is a tensor of the model's file, or a count beside one of them. */
int state_knows(const struct state *s, const char *name);

/* Take n_bytes of the file's tensor to `to`, which is the backend's memory. */
int state_copy_tensor(struct state *s, const struct st_file *f, const struct st_tensor *t, char *to,
                      size_t n_bytes, struct err *err);

/* Take the slots of the model's file from `f`; `path` names it in messages. */
int state_load_model(struct state *s, const struct st_file *f, const char *path, struct err *err);

#endif
