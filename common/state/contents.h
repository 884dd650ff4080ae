/* contents - what a checkpoint of a state holds: the tensors of each file, their names, and the
 * slot that each comes from.
 *
 * Threads: one at a time. */
#ifndef STATE_CONTENTS_H
#define STATE_CONTENTS_H

#include "base/arena.h"
#include "state/state.h"

enum {
    CONTENTS_FILES = 4,  /* struct ckpt_content's lists, in their order */
    CONTENTS_COUNT = -1, /* no slot: the number of updates, an I64 */
    CONTENTS_KEPT = -2,  /* no slot: a tensor of the imported network, as it is */
};

struct contents_source {
    int slot;         /* of the state, CONTENTS_COUNT or CONTENTS_KEPT */
    size_t at;        /* bytes from the start of the slot; KEPT: 0 */
    const void *kept; /* KEPT: its elements */
};

/* Must not be moved in memory: `files` points to the lists. */
struct contents {
    struct ckpt_content files;
    struct st_tensor *tensor[CONTENTS_FILES];       /* [n]; data: NULL until the owner sets it */
    struct contents_source *source[CONTENTS_FILES]; /* [n] */
    int n[CONTENTS_FILES], most;                    /* most: the lists' room */
    struct arena memory;                            /* of the lists and the names */
};

/* List the tensors of s. */
void contents_init(struct contents *c, const struct state *s);
void contents_fini(struct contents *c);

/* Take what state.json holds: the state's position, for a checkpoint of n_ranks ranks, and the
 * generations that stay. */
int contents_set_state(struct contents *c, const struct state *s, int n_ranks, struct err *err);

int64_t contents_bytes(const struct contents *c); /* of all tensors of all files */

/* The name of a slot's tensor in its file, for free(). */
char *contents_name(const struct slot_def *d, const char *base);

/* PyTorch's batch norm keeps a count beside its running mean, and a strict load demands it.  Our
 * state has no such tensor: it is written from the number of updates, and ignored when read. */
extern const char contents_count[]; /* the end of its name */

/* "bn1.running_mean" -> how long "bn1." is; 0 for any other name. */
size_t contents_tracked(const char *name);

#endif
