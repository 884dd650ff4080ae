/* links_impl - the struct that links.c and links_thread.c share, and how the one starts the other.
 * No other file includes it.
 *
 * Threads: the members say which one uses them, or which lock guards them. */
#ifndef COLL_LINKS_IMPL_H
#define COLL_LINKS_IMPL_H

#include <pthread.h>

#include "coll/links.h"
#include "coll/patience.h"
#include "coll/shake.h"

struct place {
    struct link *link;
    int wanted; /* this rank wants the link; it has dialed a lower rank, or is about to */
};

/* A connection that is being made. */
struct attempt {
    struct attempt *next;
    struct shake *shake; /* NULL: dial again at again_ns */
    int is_dialer;
    struct proof_link link; /* of a dialer */
    int64_t first_ns, again_ns;
};

struct links {
    int rank, size, listener, wake;
    int listener_here; /* the listening socket for ranks of this machine; -1: none */
    uint16_t port;
    int64_t timeout_ms;
    pthread_t thread;
    int has_thread;

    /* Only the thread uses these. */
    struct attempt *attempts; /* newest first */
    struct pollfd *fds;
    size_t n_fds;
    int64_t rest_until_ns;

    struct patience patience[COLL_CHANNELS]; /* of each channel's links */

    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t changed;
    struct shake_terms terms;
    struct endpoint_addr *peers; /* set by links_begin, then constant; names, too */
    struct samehost_name *names; /* NULL: none */
    struct fabric *fabric;       /* likewise */
    struct place *places[COLL_CHANNELS];
    struct proof_link *orders; /* links that the thread is to dial */
    size_t n_orders, cap_orders;
    int stop, interrupted;
    int has_failed;
    struct err cause;
    int64_t n_strangers;
    int is_kernel; /* the newest encrypted link is encrypted by the kernel */
};

/* The thread: makes links until it is told to stop.  arg: struct links. */
void *links_main(void *arg);

void links_close_listeners(struct links *l); /* by the thread, or when there is none */

#endif
