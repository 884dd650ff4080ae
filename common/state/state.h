/* state - everything that training changes: a table of slots with their memory, and the position
 * where the run stands.
 *
 * A slot is a row of the table.  Its declaration (optim/slot.h) says what is done with it.  The
 * rows are the parameters, the running statistics, the loss scale (if the loss is scaled), and what
 * the optimizer, the strategy, the weight average and the loop declare.  Hashes, snapshots,
 * broadcasts and checkpoints walk the table and know no slot by name.  So a new slot needs no
 * change there.
 *
 * Life:    state_new (memory from the backend) -> init, load or broadcast -> ... -> state_free.
 * Threads: the engine's.  While a checkpoint is copied beside a step (saver_begin_beside), the
 *          saver's thread reads the slots, and the engine changes neither them nor their sizes. */
#ifndef STATE_STATE_H
#define STATE_STATE_H

#include "backend/backend.h"
#include "ckpt/ckpt.h"
#include "ckpt/plan.h"
#include "coll/coll.h"
#include "job/job.h"
#include "optim/slot.h"
#include "program/layout.h"
#include "session/command.h"

enum { STATE_MAX_SLOTS = 16 };

struct slot {
    const struct slot_def *def;
    void *data;       /* the backend's memory; padding between tensors is zero */
    size_t n_bytes;   /* of the whole slot */
    int is_divided;   /* 1: divided among the ranks (state/shards.h); then data is NULL, unless this
                         rank holds the whole slot */
    int is_offloaded; /* 1: in memory of the host, which a device's kernels reach */
};

struct buf;
struct import_network;
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
    int n_threads;              /* that draw initial values, set by the owner; 0 is 1 */
    const char *class_names;    /* ckpt_content's, set by the owner; borrowed */
    const char *config;         /* likewise */
    const char *adapter_config; /* likewise */
    /* Set by the owner if the ranks may go back to planned checkpoints, of which the newest stays;
     * else all zero. */
    struct ckpt_plan plan;
    /* Of a job with model.import: its tensors that no slot holds are part of the model's file. */
    const struct import_network *network; /* likewise; or NULL */
};

/* The rows of every job; all F32. */
extern const struct slot_def slot_parameters; /* [n_total] */
extern const struct slot_def slot_statistics; /* [n_state_total] */
extern const struct slot_def slot_scaler;     /* [SCALER_LEN]; only where the loss is scaled */
/* U8 [n_base_bytes]; only with model.base: the same on all ranks, never divided, in no checkpoint.
 */
extern const struct slot_def slot_base;

/* The division of slots among the ranks (state/shards.h), and between a device and its host. */
struct state_division {
    int n_divided; /* number of divided rows: the first ones of `more`; each has one element for
                      each trained parameter */
    int n_holders; /* of each shard; 0: nothing is divided */
    int gradients; /* 1: gradients are divided, too */
    int params;    /* 1: parameters are divided, too, frozen ones included */
    int whole;     /* 1: this rank makes or loads the state, so it holds the whole of it at first */
    /* On a device the first n_offloaded rows of `more` are in memory of the host, and with
     * offloads_params the parameters, too, which must be divided. */
    int n_offloaded, offloads_params;
};

/* Make a state of the rows of every job and those of `more` [n_more], all zero.  Declarations are
 * borrowed.  division NULL: nothing is divided. */
int state_new(struct backend *b, const struct layout *l, const struct slot_def *const *more,
              int n_more, struct state **out, struct err *err);
int state_new_divided(struct backend *b, const struct layout *l, const struct slot_def *const *more,
                      int n_more, const struct state_division *division, struct state **out,
                      struct err *err);
void state_free(struct state *s); /* NULL is fine */

/* Zeroed memory for n_bytes of the k-th row: the backend's, or the host's if it is offloaded. */
int state_alloc(const struct state *s, int k, size_t n_bytes, void **out, struct err *err);
void state_release(const struct state *s, int k, void *p); /* NULL is fine */

/* The slot's memory, or NULL if the state has no such row. */
void *state_data(const struct state *s, const struct slot_def *d);

/* Give all rows their initial values.  Those of the parameters follow the job's model.init: of a
 * file, what it has is taken, and only the rest is drawn (state/weights.h).  s->warn is called with
 * what the file lacks. */
int state_init(struct state *s, const struct job *job, struct err *err);

/* Take the base of model.base from the file that model.init names; no effect without one.  For a
 * rank that takes the other rows from a checkpoint, whose state.base is `wanted`.  Fails with
 * ERR_CONFIG if the file has other weights than it had then. */
int state_take_base(struct state *s, const struct job *job, struct hash128 wanted, struct err *err);

/* Give initial values only to the rows that a checkpoint's file of the model does not hold.  For a
 * rank that takes these from a checkpoint; a file that model.init names need not exist then. */
int state_init_beside_model(struct state *s, const struct job *job, struct err *err);

/* Give initial values only to the rows that no checkpoint holds.  For a rank that resumes, or that
 * takes another rank's state. */
int state_init_unsaved(struct state *s, const struct job *job, struct err *err);

/* One tensor of a slot. */
struct slot_tensor {
    const char *base;   /* its name without the slot's suffix */
    struct shape shape; /* as PyTorch stores it */
    size_t at, n_bytes; /* where it lies in the slot */
};
int slot_n_tensors(const struct layout *l, const struct slot_def *d);
struct slot_tensor slot_tensor(const struct layout *l, const struct slot_def *d, int i);

/* All ranks take the position and the broadcast slots of rank `source`.  A rank on which this fails
 * holds what it held before.  If slots are divided, `source` is not used: the ranks agree on the
 * newest step of which all shards are left.  Returns SHARDS_LOST (> 0), on all ranks alike, if no
 * step is left whole; *err says what is missing. */
int state_broadcast(struct state *s, struct coll *c, int source, struct err *err);

/* All ranks take rank 0's running statistics. */
int state_broadcast_stats(struct state *s, struct coll *c, struct err *err);

/* *out [state_n_hashes()]: one hash for each tensor of the hashed slots, with its name; heap, the
 * names, too.  *all: one hash of everything, position included.  On a CPU the slots are hashed
 * where they lie; a device needs a few MiB of host memory. */
int state_n_hashes(const struct state *s);
/* The slot to which the tensor of the i-th of these hashes belongs. */
const struct slot_def *state_hashed_slot(const struct state *s, int i);
int state_hash(const struct state *s, struct tensor_hash **out, struct hash128 *all,
               struct err *err);

/* *out: a hash of one part of the hashed slots, of a few MiB; `draw` chooses it, the same one on
 * all ranks.  Without with_statistics the running statistics are left out, for ranks that have
 * their own.  Allocates nothing on a CPU. */
int state_hash_part(const struct state *s, uint32_t draw, int with_statistics, struct hash128 *out,
                    struct err *err);

/* Take every saved slot, and the position, from an open generation of checkpoints.  A slot that
 * may_be_missing, and is, becomes zeros.  If another tensor is missing, has another shape, or does
 * not belong to the model, the error names it, and nothing was taken. */
int state_load(struct state *s, const struct ckpt *c, struct err *err);

/* Append the names, joined by ", ", of what state_load does not take because the checkpoint is of
 * another strategy: the slots that the checkpoint has and s has not, by the ends of their tensors'
 * names; and the slots that begin with zeros because the checkpoint lacks them (may_be_missing), if
 * it lacks all of them. */
void state_list_dropped(const struct state *s, const struct ckpt *c, struct buf *names);
void state_list_begun(const struct state *s, const struct ckpt *c, struct buf *names);

/* Take only the weights of an open generation: those of model.safetensors, or with `averaged` 1
 * those of model_average.safetensors; and the averaged weights, if the state has that slot.
 * Fails with ERR_CONFIG if the files do not have them. */
int state_load_weights(struct state *s, const struct ckpt *c, int averaged, struct err *err);

/* 1: `name` is a tensor of the model's file, or the count that PyTorch keeps for one
 * (num_batches_tracked). */
int state_knows(const struct state *s, const char *name);

#endif
