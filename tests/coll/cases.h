/* cases - each kind of collective as a row of a table, to run over any coll: host memory over each
 * transport, and a device's memory over the fake NCCL. */
#ifndef TESTS_COLL_CASES_H
#define TESTS_COLL_CASES_H

#include "coll/coll.h"
#include "ranks.h"

/* The kind of memory that a coll works on. */
struct ground {
    void *(*take)(size_t n_bytes);
    void (*give)(void *p);
    /* After coll_wait: wait until the collectives are done.  NULL: they are done by then. */
    int (*finish)(void *arg, struct coll *c, struct err *err);
    void *arg;
    unsigned dtypes;      /* bit d: enum dtype d is summed */
    const int64_t *sizes; /* numbers of elements, beside numbers near the number of ranks */
    int n_sizes;
};

extern const struct ground ground_of_host;

/* One collective of one rank: its memory, with guard bytes around it. */
struct play {
    struct coll *c;
    const struct ground *g;
    enum coll_channel channel;
    enum dtype dtype;
    int64_t n, tag;
    int root;
    uint8_t *x, *y; /* [bytes_x], [bytes_y], behind and before guard bytes */
    size_t bytes_x, bytes_y;
    struct coll_span give[RANKS_MAX], take[RANKS_MAX]; /* of the all-to-all */
};

struct kind {
    const char *name;
    int sums;                                          /* else it only moves bytes */
    void (*shape)(struct play *p);                     /* bytes_x, bytes_y */
    void (*prepare)(struct play *p);                   /* x, y */
    int64_t (*start)(struct play *p, struct err *err); /* its ticket; 0: this rank takes no part */
    int (*check)(const struct play *p, struct verdict *v);
};

extern const struct kind kinds[];
extern const int n_kinds;

/* Take memory for it and fill that.  play_end checks the guard bytes and frees. */
void play_begin(struct play *p, const struct kind *k);
int play_end(struct play *p, const struct kind *k, struct verdict *v);

/* Run all kinds, sizes and dtypes on both channels.  0, or v says what is wrong. */
int run_cases(struct coll *c, const struct ground *g, struct verdict *v);

/* A sum on the urgent channel is done on all ranks before rank 1 queues its bulk sum, which rank 0
 * queued first. */
int urgent_overtakes_bulk(struct coll *c, const struct ground *g, struct verdict *v);

#endif
