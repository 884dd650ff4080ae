/* part - the bytes of a checkpoint that one rank writes, where all ranks write together.
 *
 * Of each slot with one element for each parameter, a rank writes the elements of its shard
 * (strategy/cut.h), whether the slot is divided in memory or not.  Rank 0 also writes the rest:
 * frozen parameters, running statistics, slots of the job.
 *
 * Threads: one at a time. */
#ifndef STATE_PART_H
#define STATE_PART_H

#include "ckpt/draft.h"
#include "state/contents.h"

struct part {
    struct draft_part files; /* the pieces in the files of the checkpoint */
    struct part_source {     /* [files.n]: where each piece is in the state */
        int slot, bucket;    /* bucket: -1: it is of no shard */
        size_t at;           /* bytes from the start of the slot */
        const void *kept;    /* CONTENTS_KEPT: the elements */
    } * source;
    int64_t n_bytes; /* of all pieces */
};

/* List what `rank` of `size` ranks writes of a checkpoint with these contents. */
void part_init(struct part *p, const struct contents *c, const struct state *s, int size, int rank);
void part_fini(struct part *p);

/* Copy this rank's own part from the state to `to` [n_bytes], host memory. */
int part_copy(const struct part *p, const struct contents *c, const struct state *s, char *to,
              struct err *err);

#endif
