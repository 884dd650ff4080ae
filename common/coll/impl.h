/* coll/impl - what a kind of coll provides: struct coll_ops, and the base struct it embeds first.
 *
 * coll.c checks arguments once for all and calls through here.  Kinds that run on the CPU share
 * coll/host.h, which has the comm thread. */
#ifndef COLL_IMPL_H
#define COLL_IMPL_H

#include "coll/coll.h"

enum coll_what { COLL_ALLREDUCE, COLL_BROADCAST, COLL_ALLGATHER, COLL_BARRIER };

/* One collective.  Pointers are borrowed until its ticket is complete. */
struct coll_job {
    enum coll_what what;
    int root;          /* BROADCAST */
    enum dtype dtype;  /* ALLREDUCE */
    enum coll_red red; /* ALLREDUCE */
    int64_t n;         /* ALLREDUCE: elements */
    size_t n_bytes;    /* of x: ALLREDUCE, BROADCAST; of `mine`: ALLGATHER */
    void *x;           /* in place; ALLGATHER: where all goes */
    const void *mine;  /* ALLGATHER */
    int64_t tag;
};

struct coll_ops {
    /* Queue one collective: its ticket, or an error. */
    int64_t (*queue)(struct coll *c, const struct coll_job *job, struct err *err);
    int (*wait)(struct coll *c, int64_t ticket, struct err *err);
    void (*abort)(struct coll *c);
    void (*free)(struct coll *c);
    void (*stats)(struct coll *c, struct coll_stats *out);
    void (*head)(struct coll *c, struct coll_head *out);
    int (*poll)(struct coll *c, struct err *err); /* NULL: a failure shows where one waits */
};

struct coll_device_ops;

struct coll {
    const struct coll_ops *ops;
    const char *kind; /* "gloo", static */
    int rank, size;
    unsigned dtypes;                      /* bit d: allreduce takes enum dtype d */
    const struct coll_device_ops *device; /* coll/device.h; NULL: of host memory */
    void (*watch)(void *arg, int64_t tag, enum coll_moment moment, int64_t now_ns); /* or NULL */
    void *watch_arg;
};

/* What crosses the border between the program and a plugin (coll/device.h); both must have been
 * built of one. */
#define COLL_DEVICE_LAYOUT                                                                      \
    ((uint32_t)(sizeof(struct err) + 31 * sizeof(struct coll) + 961 * sizeof(struct coll_ops) + \
                29791 * sizeof(struct coll_job) + 923521 * sizeof(struct coll_device_options) + \
                (size_t)28629151 * sizeof(struct coll_device_ops)))

/* Asserts that all slots that must be are filled, and 0 <= rank < size.  dtypes: F32 and F64. */
void coll_init(struct coll *c, const struct coll_ops *ops, const char *kind, int rank, int size);

/* For a kind to call where a collective of `tag` begins and ends. */
void coll_tell(const struct coll *c, int64_t tag, enum coll_moment moment, int64_t now_ns);

#endif
