/* ranks - runs one function on every rank of a coll, over each transport, in threads or in
 * processes. */
#ifndef TESTS_COLL_RANKS_H
#define TESTS_COLL_RANKS_H

#include "coll/coll.h"

enum transport {
    OVER_LOCAL,       /* threads, coll/local */
    OVER_TCP_THREADS, /* threads, coll/tcp over loopback */
    OVER_TCP_FORK,    /* processes, coll/tcp over loopback */
    OVER_TLS_THREADS, /* threads, encrypted */
    OVER_TLS_FORK,    /* processes, encrypted */
    OVER_SHM_THREADS, /* threads, coll/tcp through shared memory; half of the ranks have the address
                         of another host */
    OVER_FABRIC_THREADS, /* threads, over libfabric's provider tcp;ofi_rxm */
    OVER_FABRIC_FORK,    /* processes, likewise, encrypted */
    TRANSPORTS,
    OVER_SHM_FORK =
        TRANSPORTS, /* processes, through shared memory, all of one host: where processes matter */
    OVER_FABRIC_SHM_FORK,   /* processes, over libfabric's provider shm, which is for one machine */
    OVER_FABRIC_PLAIN_FORK, /* processes, over tcp;ofi_rxm, not encrypted */
};

const char *transport_name(enum transport t);

/* A rank's part of a test.  It returns 0 if all is well; otherwise the test fails with `why`, which
 * starts empty. */
struct verdict {
    char why[400];
};
typedef int rank_fn(struct coll *c, const void *arg, struct verdict *v);

/* In a rank_fn: `return unexpected(v, ...)`. */
int unexpected(struct verdict *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

enum { RANKS_MAX = 8 };

static inline size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* Make a coll of `size` ranks, run fn on each, free.  Returns 0, or 1 with the first complaint
 * printed.  Without libfabric a transport over it is skipped, which is told once; those before
 * TRANSPORTS run with 2 and 3 ranks only.  A forked rank
 * that dies by signal `may_die` does not count as a complaint. */
int run_ranks(enum transport t, int size, int may_die, rank_fn *fn, const void *arg);

/* 1: ranks can go over libfabric; 0: it is not on this machine, or was not when this was built. */
int ranks_have_fabric(void);

/* The same over coll/local, with faults injected: faults[size]. */
struct coll_fault;
int run_ranks_with_faults(int size, const struct coll_fault *faults, rank_fn *fn, const void *arg);

/* n elements of rank r: sums of them depend on the order. */
void fill(void *x, int64_t n, enum dtype dtype, int rank);

/* The sum that all ranks must have, bit for bit: added in rank order. */
void expect(void *x, int64_t n, enum dtype dtype, int size);

/* Make the first n numbers of `dtype`, and their sums, once for all ranks of all sizes; each rank
 * would make its own otherwise.  Before any rank runs. */
void ranks_keep(int64_t n, enum dtype dtype);

/* Return once every rank has called it. */
int ranks_meet(struct coll *c, struct err *err);

/* The number of descriptors that this process has open, to see that a test leaves none.  All of
 * dptrain's end with exec, and only such are counted: libfabric 1.17 leaves a socket without
 * FD_CLOEXEC open if a connection comes while its endpoint is closed. */
int ranks_open_fds(void);

#endif
