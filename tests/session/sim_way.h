/* sim_way - strategies, as the protocol sees them: the ranks that an engine waits for in the parts
 * of a step, and the ranks without which the state is lost.
 *
 * Where state is divided, a formation goes on from the newest step of which every shard is left, on
 * its owner or on its buddy.  If there is none, it goes on from the newest checkpoint.
 *
 * Both worlds of the simulator, sim.c and sim_standby.c, have these.  Threads: pure. */
#ifndef TESTS_SESSION_SIM_WAY_H
#define TESTS_SESSION_SIM_WAY_H

#include <stdint.h>

/* A step's collectives.  Every step has a sum over all ranks, by which they agree on it. */
enum way_kind {
    WAY_ALL,    /* this sum alone (strategy allreduce) */
    WAY_PAIRS,  /* before it each rank meets one other rank, or rests (decentralized, shift_one) */
    WAY_RING,   /* after it each rank meets its two neighbours (low_precision_decentralized) */
    WAY_SHARDS, /* before it each rank gives its sums to the next one; after it, all meet (zero) */
    WAY_COUNT
};

enum way_part { PART_BEFORE, PART_SUM, PART_AFTER, PARTS };

struct way {
    enum way_kind kind;
    int has_buddies; /* WAY_SHARDS: the next rank holds a copy of a rank's shard */
};

/* WAY_SHARDS: the part of the state that an engine holds, by the formation that divided it. */
struct shard {
    int64_t lineage;  /* the number of that formation; 0: it was not divided yet */
    int size, rank;   /* in that formation; size 0: nothing is held, 1: the whole state */
    int64_t prepared; /* the step whose sums have arrived; -1: none */
};

struct way_rank { /* what a rank of a formation holds */
    int64_t step;
    struct shard shard;
};

struct way way_of_seed(uint64_t seed);
const char *way_name(const struct way *w);

/* 1: a step has this part. */
int way_has(const struct way *w, enum way_part part);
/* 1: all ranks meet in this part.  0: each rank waits for those that it meets. */
int way_is_of_all(const struct way *w, enum way_part part);
/* 1: in `part` of `step`, rank a of n waits for rank b. */
int way_meets(const struct way *w, enum way_part part, int64_t step, int n, int a, int b);

/* WAY_SHARDS: the rank with the newest step of which every shard is left on these n ranks; -1: no
 * step is left whole. */
int way_newest_whole(const struct way *w, const struct way_rank *rank, int n);

#endif
