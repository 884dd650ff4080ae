/* shards - slots that are divided among the ranks: each rank has memory for its own shard and, with
 * two holders, for a copy of its buddy's.
 *
 * A shard is what cut_span (strategy/cut.h) gives one rank: a span of each bucket, one after
 * another in memory.  The buddy of rank r is rank r + 1 of the same formation (the last one's is
 * rank 0).  It holds the same values of r's shard as r does, because it takes the same sums of
 * gradients and makes the same update.  No slot travels in a step.
 *
 * A formation of one rank has one shard, which is the whole flat space.  So has rank 0 before its
 * first formation, when it made the state or loaded it, and other ranks hold nothing.
 *
 * How a rank may be lost at any moment.  Until all sums of a step have arrived on all ranks, no
 * rank changes anything.  The sum of the gradient's check tells that they have (update_check).  A
 * rank that has this sum updates both of its shards, and counts the step.  Another rank's call for
 * the sum may fail at the same time.  This rank still has all that its update needs but the check:
 * the step is prepared there.  The next formation gives it the check, and it makes the update then.
 * So either all ranks that are left go on after the step, or none has changed anything.  The
 * parameters are whole again when the holders of the shards have sent theirs.
 *
 * How a formation may break off at any moment.  A rank keeps its old shards until every rank has
 * all of its new ones.  A rank that cannot tell whether the others have theirs keeps both, and the
 * next formation takes those that are complete.  Two sets of shards fit together only if they come
 * from the same formation: each formation gives its sets a number of its own, the lineage.
 *
 * Life:    shards_new -> { shards_agree -> shards_exchange } ... -> shards_free.
 * Threads: the engine's. */
#ifndef TRAIN_SHARDS_H
#define TRAIN_SHARDS_H

#include "train/state.h"

enum { SHARD_OWN, SHARD_COPY, SHARDS_HELD };

/* The shards of one formation that this rank holds. */
struct shard_set {
    int size, rank;  /* of that formation; size 0: nothing is held */
    int n_held;      /* 1: its own; 2: and the copy of the rank before it */
    int64_t lineage; /* of that formation */
    void *data[STATE_MAX_SLOTS][SHARDS_HELD]; /* by the state's slots; NULL: not divided */
    /* Where gradients are divided, their sums in these shards, of layout.grad_dtype, which the
     * update reads; NULL until shards_make_sums. */
    void *sums[SHARDS_HELD];
};

struct shards {
    int n_holders;
    int divides_gradients, divides_params;
    struct shard_set now;  /* the shards that are trained with */
    struct shard_set next; /* complete, but perhaps not on all ranks */
    int64_t prepared_step; /* the step whose summed gradients are complete here; -1: none */
    /* Makes the update of the prepared step; check[2] is the sum over all ranks. */
    int (*roll)(void *arg, const double *check, struct err *err);
    void *roll_arg;
    double check[2]; /* of the newest step that was updated here */
};

/* s->shards, as the division says. */
int shards_new(struct state *s, const struct state_division *d, struct err *err);
void shards_free(struct state *s);

/* Memory for the sums of gradients, where these are divided: once a formation has its shards. */
int shards_make_sums(struct state *s, struct err *err);

/* This rank gives up its shards, and holds the whole of each slot, zeroed. */
int shards_hold_all(struct state *s, struct err *err);

/* The rank of the set's formation whose shard is the h-th one held. */
int shard_owner(const struct shard_set *set, int h);
/* Bytes from the begin of the shard of `owner` to its span of `bucket`. */
size_t shard_offset(const struct state *s, int slot, int size, int owner, int bucket);
/* The bytes of all shards held, without sums of gradients. */
size_t shards_bytes(const struct state *s);

/* The step and the rank that all ranks take the state from. */
struct shard_source {
    int root;              /* a rank that holds the step */
    int size;              /* of the formation that made the shards; 1: one rank holds all */
    int64_t step, lineage; /* lineage: the one that the new formation has */
    int *holder;           /* [size]: the rank, of those connected now, that sends the shard */
    int *is_next;          /* [size]: from its set `next` */
};

enum { SHARDS_LOST = 1 };

/* The ranks agree on the newest step of which every shard is left, and a rank on which that step is
 * prepared makes its update.  Fills *out, which shard_source_fini frees.  SHARDS_LOST, on all ranks
 * alike: no step is left whole; *err says what is missing. */
int shards_agree(struct state *s, struct coll *c, struct shard_source *out, struct err *err);
void shard_source_fini(struct shard_source *from);

/* All ranks take the parameters, and their shards of this formation.  `at` is the position that a
 * rank holds once it has everything. */
int shards_exchange(struct state *s, struct coll *c, const struct shard_source *from,
                    const struct ckpt_state *at, struct err *err);

/* Rank 0 gets the whole of each divided slot that is saved: to(arg, slot) is room for it.  All
 * ranks call it together; the others' `to` is not used. */
int shards_gather(struct state *s, struct coll *c, void *(*to)(void *arg, int slot), void *arg,
                  struct err *err);

/* Rank 0 holds everything, so that any other rank may leave.  All ranks call it together. */
int shards_collect(struct state *s, struct coll *c, struct err *err);

/* All ranks call it together.  ERR_NUMERIC: this rank's copy differs from its original.  Where no
 * slot is divided, or each shard has one holder, there is nothing to compare. */
int shards_prove(struct state *s, struct coll *c, struct err *err);

#endif
