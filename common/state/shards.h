/* shards - slots that are divided among the ranks: each rank has memory for its own shard and, with
 * two holders, for a copy of the shard of the rank before it.
 *
 * A shard is what cut_span (strategy/cut.h) gives one rank: a span of each bucket, one after
 * another in memory.  Where parameters are divided, their shards end with the spans of the frozen
 * ones, which no other slot has.  The buddy of rank r is rank r + 1 of the same formation (the last
 * one's is rank 0).  It holds the same values of r's shard as r does, because it takes the same
 * sums of gradients and makes the same update.  No slot travels in a step.
 *
 * A formation of one rank has one shard, which is the whole flat space.  So has rank 0 before its
 * first formation, when it made the state or loaded it, and other ranks hold nothing.
 *
 * Why a rank may be lost at any moment of a step:
 *   1. No rank changes its state before all sums of gradients have arrived on all ranks.  The sum
 *      of the gradient's check over all ranks proves that they have (update_check).
 *   2. A rank that gets this sum updates the shards that it holds, and counts the step.
 *   3. At the same time the sum may fail on another rank.  That rank still has all that its update
 *      needs, except for the check: the step is *prepared* there.
 *   4. The next formation gives that rank the check, and it makes the update then.
 * So either all ranks that are left go on after the step, or none has changed anything.  The
 * parameters are whole again when the holders of the shards have sent theirs.
 *
 * On a device all that is queued runs to its end, with garbage from the collectives that were
 * stopped.  So each backend notes in its memory whether all sums of gradients arrived, and then, in
 * the control vector, whether the sum of the check arrived (step/step.c).  No step is queued behind
 * one that may have to be made later.
 *
 * Why a formation may break off at any moment: a rank keeps its old shards until every rank has all
 * of its new ones.  A rank that cannot know whether the others have theirs keeps both sets, and the
 * next formation takes those that are complete.  Two sets of shards fit together only if they come
 * from the same formation.  So each formation gives its sets a number of its own, the lineage.
 *
 * Life:    shards_new -> { shards_agree -> shards_exchange } ... -> shards_free.
 * Threads: the engine's. */
#ifndef STATE_SHARDS_H
#define STATE_SHARDS_H

#include "state/state.h"

enum { SHARD_OWN, SHARD_COPY, SHARDS_HELD };

/* The shards of one formation that this rank holds. */
struct shard_set {
    int size, rank;  /* of that formation; size 0: nothing is held */
    int n_held;      /* 1: the rank's own shard; 2: also a copy of that of the rank before it */
    int64_t lineage; /* of that formation */
    /* By slot of the state, of state_alloc; NULL: the slot is not divided. */
    void *data[STATE_MAX_SLOTS][SHARDS_HELD];
    /* Where gradients are divided, their sums in these shards, of layout.grad_dtype, which the
     * update reads; NULL until shards_equip. */
    void *sums[SHARDS_HELD];
    /* On a device, unless parameters are divided: the parameters of the shard that this rank has a
     * copy of; NULL until shards_equip, or if there is none.  A collective of parameters that is
     * stopped leaves garbage in all spans that it receives; these stay whole. */
    float *param;
};

struct shards {
    int n_holders;
    int divides_gradients, divides_params;
    struct shard_set now;  /* the shards with which this rank trains */
    struct shard_set next; /* complete, but perhaps not on all ranks */
    int64_t prepared_step; /* the step whose summed gradients are complete here; -1: none */
    /* Makes the update of the prepared step; check[2] is the sum over all ranks. */
    int (*roll)(void *arg, const double *check, struct err *err);
    void *roll_arg;
    double check[2]; /* of the newest step that was updated here */
    /* 1: if the newest step is not whole, take the newest one that is.  0: say SHARDS_LOST then, so
     * that rank 0 may look for a newer checkpoint first. */
    int takes_older;
    int64_t older_step; /* after SHARDS_LOST: the newest step that is left whole; -1: none */
};

/* Make s->shards, as the division says. */
int shards_new(struct state *s, const struct state_division *d, struct err *err);
void shards_free(struct state *s);

/* Take the memory that only training needs: sums and `param` of struct shard_set.  Call it once a
 * formation has its shards and parameters. */
int shards_equip(struct state *s, struct err *err);

/* This rank gives up its shards, and holds the whole of each slot, zeroed. */
int shards_hold_all(struct state *s, struct err *err);

/* The rank of the set's formation whose shard is the h-th one held. */
int shard_owner(const struct shard_set *set, int h);
/* The number of buckets of which the slot's shards have spans. */
int shard_n_buckets(const struct state *s, int slot);
/* Bytes from the start of the shard of `owner` to its span of `bucket`. */
size_t shard_offset(const struct state *s, int slot, int size, int owner, int bucket);
/* The parameters of the h-th shard that this rank holds and trains, from its span of `bucket` on.
 */
float *shard_params(const struct state *s, int h, int bucket);
/* The bytes of all shards held, without sums of gradients. */
size_t shards_bytes(const struct state *s);

/* The step and the rank that all ranks take the state from. */
struct shard_source {
    int root;              /* a rank that holds the step */
    int size;              /* of the formation that made the shards; 1: one rank holds all */
    int64_t step, lineage; /* lineage: the number of the new formation's sets */
    int *holder;           /* [size]: the rank, of those connected now, that sends the shard */
    int *is_next;          /* [size]: 1: it sends the shard from its set `next` */
};

enum { SHARDS_LOST = 1 };

/* The ranks agree on the newest step of which every shard is left, and a rank on which that step is
 * prepared makes its update.  Fills *out, which shard_source_fini frees.  Returns SHARDS_LOST (> 0)
 * on all ranks alike in two cases: the newest step is not left whole, and an older one is not to be
 * taken (takes_older); or no step is left whole; *err says what is missing. */
int shards_agree(struct state *s, struct coll *c, struct shard_source *out, struct err *err);
void shard_source_fini(struct shard_source *from);

/* Every rank takes the parameters and its shards of this formation from the ranks that *from names.
 * `at` is the position that the rank holds once it has everything. */
int shards_exchange(struct state *s, struct coll *c, const struct shard_source *from,
                    const struct ckpt_state *at, struct err *err);

/* Rank 0 gets the whole state, so that any other rank may leave.  All ranks call this together. */
int shards_collect(struct state *s, struct coll *c, struct err *err);

/* Compare each copy of a shard with its original, by hashes: of one bucket's spans, or of all
 * (bucket -1).  differs [size of the formation]: 1: the copy that this rank holds is not equal to
 * the original of the rank before it.  The same on all ranks, which call this together. */
int shards_compare(struct state *s, struct coll *c, int bucket, int *differs, struct err *err);

/* Compare each copy of a shard with its original, as a whole.  All ranks call this together.  Fails
 * with ERR_NUMERIC on the rank whose copy differs.  If no slot is divided, or each shard has one
 * holder, nothing is compared. */
int shards_prove(struct state *s, struct coll *c, struct err *err);

#endif
