/* membership - the machine of the driver's session that knows who takes part: connections, seats,
 * the run's leaders before, and the standby.
 *
 *   driver_conns.c       the connections
 *   driver_seats.c       which rank has which connection and GPU
 *   driver_neighbours.c  which seat a follower gets, by its machine
 *   driver_gather.c      Hello, Ready, refusals
 *   driver_device.c      which device a follower is told to use
 *   driver_strangers.c   log lines about connections that are not let in, limited in number
 *
 * Its files about those who led before or may lead next have a header of their own,
 * session/succession.h.
 *
 * As in each machine, a function that takes `struct membership *` may write it, and one that takes
 * `const struct driver *` only looks.
 *
 * Threads: as driver.h. */
#ifndef SESSION_MEMBERSHIP_H
#define SESSION_MEMBERSHIP_H

#include "base/arena.h"
#include "base/numbered.h"
#include "session/decision.h"
#include "session/seat.h"
#include "session/succession.h"

struct driver;

struct gather {              /* driver_gather.c: until every rank is ready */
    int64_t full_ms;         /* when the last seat was taken; -1: a seat is free */
    int64_t next_missing_ms; /* when the next line names the missing ranks */
};

struct membership {
    const struct driver *d; /* the whole, to look at */
    struct numbered conns;  /* struct conn, by id */
    struct seat *seats; /* [n_seats]: the ranks, then the spares; each machine writes its part */
    int n_seats;
    int n_ranks; /* of the formation; o.n_ranks until some are lost for good, or join */
    int n_here;  /* ranks whose seat is taken */
    int free_from,
        unready;          /* the ranks at which searches stopped; there may be thousands of ranks */
    void *gpus;           /* tsearch: struct gpu_use */
    struct {              /* driver_strangers.c */
        int64_t since_ms; /* when the window's first line was said */
        int n_said, n_unsaid;
    } strangers;
    struct gather gather;
    struct lead lead;
    struct succession succession;
};

/* driver_conns.c */
struct conn *conn_add(struct membership *m, int64_t id, const char *peer, const char *local,
                      const char *from);
struct conn *conn_find(const struct driver *d, int64_t id); /* NULL: none */
struct conn *conn_first(const struct driver *d);            /* the oldest; NULL: none */
struct conn *conn_up(const struct driver *d, size_t *at);   /* the next, as numbered_up has it; */
struct conn *conn_down(const struct driver *d, size_t *at); /* numbered_down (base/numbered.h) */
void conn_drop(struct membership *m, struct conn *c);       /* forget it; no action */
void conn_leave(struct membership *m, struct conn *c, int64_t ms); /* now CONN_LEAVING */

void conn_gone(struct membership *m, struct conn *c);   /* nothing can be sent to it any more */
void conn_unseat(struct membership *m, struct conn *c); /* it holds no seat any more */

/* driver_seats.c.  None of these looks at all ranks at each call, because a job begins with at
 * least one call for each rank. */
void seat_take(struct membership *m, int rank, struct conn *c); /* a free one */
void seat_take_own(struct membership *m);                       /* rank 0's */
void seat_use_gpu(struct membership *m, int rank, const char *uuid, const char *bus);
void seat_open(struct membership *m, int rank, struct report *r); /* it is Ready; takes r */
void seat_clear(struct membership *m, int rank);
/* 1: the seat's process is on this machine, and in this container. */
int seat_is_here(const struct driver *d, const struct seat *s);
void seat_move(struct membership *m, int from, int to); /* `to` is free */
int seat_name(const struct driver *d, int rank); /* the value of seat.named for this seat now */
/* If the log knows this seat's follower by another number, log its present one. */
void seat_say_moved(struct membership *m, int rank);
void seats_say_moved(struct membership *m); /* of all; in a large job only of the first */
int seats_free_rank(struct membership *m);  /* the lowest; -1: none */
int seats_are_ready(struct membership *m);  /* all ranks have opened */
/* The next rank from *at on, round all ranks, for which is_missing is true; -1: none. */
int seats_search(const struct driver *d, int *at, int (*is_missing)(const struct seat *s));
/* The rank that uses this GPU, or another slice of it, which NCCL takes for the same GPU; -1: none.
 */
int seats_rank_of_gpu(const struct driver *d, const struct gpu_ref *g);
int seat_is_ready(const struct seat *s);                     /* 1: the next formation may have it */
int seats_n_ready(const struct driver *d, int from, int to); /* the number of such seats */
void seats_fill(struct membership *m);                       /* by spares that are ready */
void seats_grow(struct membership *m, int n_wanted);         /* take in spares that are ready */
/* Close up to the ranks that are ready, and make all others spares; was[k]: the rank that k was. */
void seats_shrink(struct membership *m, int *was);

/* driver_neighbours.c */
/* The spare that is ready for this rank, or for a new one behind the last: of a machine beside it,
 * or else the first; -1: none. */
int neighbour_spare(const struct membership *m, int rank);
/* The free rank for a follower of that machine: beside another rank of it, or else the lowest, as
 * always while the job gathers; -1: none. */
int neighbour_free_rank(struct membership *m, const char *host_id);
/* Put the ranks of each machine one behind another, unless a follower asked for its rank or has a
 * state. */
void neighbours_gather(struct membership *m);

/* driver_gather.c */
struct decision gather_hello(struct membership *m, struct conn *c, const Wire__Hello *h);
void gather_begin(struct membership *m);
struct decision gather_own_opened(const struct driver *d); /* rank 0 has opened the job */
void gather_compare_all(struct membership *m); /* those who opened before rank 0, with rank 0 */
void gather_opened(struct membership *m, int rank);
void gather_leave(struct membership *m, int rank, const char *why); /* the seat becomes free */
struct decision gather_check(struct membership *m);                 /* prepare, if all are ready */
void gather_wait(struct membership *m); /* ranks are missing: when to say which */
void gather_say_missing(struct membership *m);
void gather_refuse(struct membership *m, struct conn *c, Wire__Reason reason, const char *text);
/* Fill in what Welcome says to ranks and standbys alike; the texts lie in `a`. */
void gather_fill_welcome(const struct driver *d, Wire__Welcome *w, struct arena *a);

/* driver_device.c: the device for this follower and its GPU (NULL: cpu), for free(); NULL and *why
 * when none fits. */
char *choose_device(const struct driver *d, const Wire__Hello *h, const Wire__Gpu **gpu,
                    char **why);

/* driver_strangers.c */
void stranger_say(struct membership *m, const char *fmt, ...) /* unless there are too many */
    __attribute__((format(printf, 2, 3)));
void stranger_check(struct membership *m);    /* at each tick: logs how many lines were left out */
void stranger_say_rest(struct membership *m); /* the same, at once */
void stranger_at_data_port(struct membership *m, int rank, int64_t n); /* once in a formation */
/* 1: the follower looks for this driver's job.  0: it was refused. */
int stranger_is_of_launch(struct membership *m, struct conn *c, const Wire__Hello *h);

#endif
