/* slot - the declaration of something that training changes: the parameters, an optimizer's
 * moments, the running statistics, the loss scale, or the own state of a strategy.
 *
 * A job's state (state/state.h) is a table of slots.  Memory, initial values, hashes, broadcasts,
 * checkpoints and recovery follow from the declaration alone.  So a new slot needs only a
 * declaration and the code that computes with it.  Optimizers (optim/optimizer.h) and strategies
 * (strategy/strategy.h) declare their own slots.  The address of a declaration identifies the slot.
 *
 * Threads: declarations are constant. */
#ifndef OPTIM_SLOT_H
#define OPTIM_SLOT_H

#include <stdint.h>

#include "tensor/dtype.h"

struct job;
struct layout;

/* A slot has one element for each of these.  The first three are flat spaces with the layout's
 * offsets. */
enum slot_scope {
    SLOT_PER_PARAMETER, /* every parameter */
    SLOT_PER_TRAINED,   /* every parameter that is not frozen */
    SLOT_PER_STATISTIC, /* every running statistic */
    SLOT_PER_BASE,      /* the bytes of the layout's base */
    SLOT_PER_JOB,       /* the job: `length` elements */
};

/* The distribution of a slot's values over the ranks.  Every rank has memory for the whole slot,
 * whatever its placement, unless the engine divides the state (state/shards.h).  Only replicated
 * slots are hashed, broadcast and saved.  A rank that joins or resumes gives the other slots their
 * initial values, and its strategy may then fill them (strategy_ops.form). */
enum slot_placement {
    SLOT_REPLICATED, /* each rank holds the whole slot, with the same values after each step */
    SLOT_SHARDED,    /* each rank holds a part; the engine refuses such slots so far */
    SLOT_OWN,        /* each rank holds values of its own, which no other rank has */
};

/* The file of a checkpoint in which the slot is saved.  SLOT_IN_AVERAGE: model_average.safetensors,
 * which also has the model's other tensors.  There the slot's tensors have the names of the
 * parameters, without the suffix.  SLOT_IN_BASE: no file of a checkpoint, but the one that
 * model.init names, which stays the user's. */
enum slot_file { SLOT_UNSAVED, SLOT_IN_MODEL, SLOT_IN_OPTIMIZER, SLOT_IN_AVERAGE, SLOT_IN_BASE };

struct slot_def {
    const char *name; /* "momentum": in messages about memory, and as an operator's operand */
    /* Appended to a tensor's name in the file and in hashes: "conv1.weight" + ".momentum_buffer".
     * For a slot per job this is the tensor's whole name. */
    const char *suffix;
    enum slot_scope scope;
    int64_t length; /* SLOT_PER_JOB: elements */
    enum dtype dtype;
    enum slot_placement placement;
    enum slot_file file;
    int is_hashed;    /* 1: replicas are compared by this slot, too */
    int is_broadcast; /* 1: a rank that joins takes the slot from another rank */
    /* 1: a checkpoint may lack the slot, because the run had another strategy when it was written,
     * or because an older version wrote it.  The slot then begins with zeros, so it has no `init`.
     */
    int may_be_missing;
    /* Write the initial values of the slot's i-th tensor to `to`, host memory that holds zeros.
     * NULL: they are zeros, or those of init_part. */
    void (*init)(const struct job *job, const struct layout *l, int i, void *to);
    /* For values that take long: write those of the elements [first, first + n) alone.  `first` is
     * a multiple of SLOT_PART.  Several threads call it at once. */
    void (*init_part)(const struct job *job, const struct layout *l, int i, int64_t first,
                      int64_t n, void *to);
};

enum { SLOT_PART = 1 << 16 };

/* Only replicated slots are hashed, broadcast and saved, because only then is one rank's copy that
 * of all ranks. */
static inline int slot_is_hashed(const struct slot_def *d)
{
    return d->placement == SLOT_REPLICATED && d->is_hashed;
}

static inline int slot_is_broadcast(const struct slot_def *d)
{
    return d->placement == SLOT_REPLICATED && d->is_broadcast;
}

static inline int slot_is_saved(const struct slot_def *d)
{
    return d->placement == SLOT_REPLICATED && d->file != SLOT_UNSAVED && d->file != SLOT_IN_BASE;
}

#endif
