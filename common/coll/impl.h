/* coll/impl - the interface of a kind of coll: struct coll_ops, and the base struct that the kind
 * embeds as its first member.
 *
 * coll.c checks arguments once for all kinds and then calls these functions.  Kinds that run on the
 * CPU share coll/host.h, which has the comm threads.
 *
 * Threads: as coll.h; coll_part_..., the tickets and COLL_DEVICE_LAYOUT are pure. */
#ifndef COLL_IMPL_H
#define COLL_IMPL_H

#include "coll/coll.h"

enum coll_what {
    COLL_ALLREDUCE,
    COLL_REDUCE_SCATTER,
    COLL_ALLGATHER_SPANS,
    COLL_BROADCAST,
    COLL_ALLGATHER,
    COLL_ALL_TO_ALL,
    COLL_EXCHANGE, /* with one rank or two: coll_send, coll_recv, coll_exchange */
};

/* One collective.  Pointers are borrowed until its ticket is complete. */
struct coll_job {
    enum coll_what what;
    enum coll_channel channel;
    enum dtype dtype; /* not used by ALLGATHER */
    int blocks;       /* 1: its caller waits for it at once */
    int has_begun;    /* 1: host_ops->begin has begun it (coll/host.h) */
    int64_t begun_ns; /* when, then */
    int root;         /* BROADCAST */
    int to, from;     /* EXCHANGE; -1: no rank */
    int64_t n;        /* elements of x */
    size_t n_bytes;   /* payload: of x; of `mine` for ALLGATHER; else what is given and taken */
    void *x;          /* in place; ALLGATHER, ALL_TO_ALL, EXCHANGE: what is received */
    const void *mine; /* ALLGATHER, ALL_TO_ALL, EXCHANGE: what is sent */
    int64_t n_mine;   /* EXCHANGE: elements of it */
    const struct coll_span *give, *take; /* ALL_TO_ALL */
    size_t most_bytes; /* ALL_TO_ALL: no part of any rank is longer; 0: not known */
    int64_t tag;
};

/* A run of bytes in x. */
struct coll_part {
    uint8_t *x;
    size_t n_bytes;
};

/* ALL_TO_ALL and EXCHANGE: what goes to rank r, and what comes from it. */
struct coll_part coll_part_to(const struct coll_job *job, int r);
struct coll_part coll_part_from(const struct coll_job *job, int r);

/* Rank r's span of x. */
struct coll_part coll_part_of(const struct coll_job *job, int size, int r);

/* A ticket is the number of the collective in its channel, from 1, and the channel. */
static inline int64_t coll_ticket(enum coll_channel ch, int64_t number)
{
    return number * COLL_CHANNELS + (int64_t)ch;
}

static inline enum coll_channel coll_channel_of(int64_t ticket)
{
    return (enum coll_channel)(ticket % COLL_CHANNELS);
}

static inline int64_t coll_number_of(int64_t ticket) { return ticket / COLL_CHANNELS; }

struct coll_ops {
    /* Queue one collective: its ticket, or an error. */
    int64_t (*queue)(struct coll *c, const struct coll_job *job, struct err *err);
    int (*wait)(struct coll *c, int64_t ticket, struct err *err); /* ticket > 0 */
    void (*abort)(struct coll *c);
    void (*free)(struct coll *c);
    void (*stats)(struct coll *c, struct coll_stats *out);
    int (*poll)(struct coll *c, struct err *err); /* NULL: a failure shows in wait */
};

struct coll_device_ops;

struct coll {
    const struct coll_ops *ops;
    const char *kind; /* "tcp", static */
    int rank, size;
    unsigned dtypes;                      /* bit d: enum dtype d can be summed */
    const struct coll_device_ops *device; /* coll/device.h; NULL: of host memory */
    void (*watch)(void *arg, int64_t tag, enum coll_moment moment, int64_t now_ns); /* or NULL */
    void *watch_arg;
};

/* A number made of the sizes of all structs that the program and a plugin exchange (coll/device.h).
 * If it differs between the two, they were built from different sources. */
#define COLL_DEVICE_LAYOUT                                                                      \
    ((uint32_t)(sizeof(struct err) + 31 * sizeof(struct coll) + 961 * sizeof(struct coll_ops) + \
                29791 * sizeof(struct coll_job) + 923521 * sizeof(struct coll_device_options) + \
                (size_t)28629151 * sizeof(struct coll_device_ops)))

/* Asserts that all required slots are filled, and 0 <= rank < size.  Sets dtypes to F32 and F64; a
 * kind adds its own. */
void coll_init(struct coll *c, const struct coll_ops *ops, const char *kind, int rank, int size);

/* A kind calls this when a collective with this tag begins and when it ends (coll_watch). */
void coll_tell(const struct coll *c, int64_t tag, enum coll_moment moment, int64_t now_ns);

#endif
