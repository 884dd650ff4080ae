/* membership - the machine of the driver's session that knows who takes part: connections, seats,
 * the run's leaders before, and the standby.
 *
 *   driver_conns.c       the connections
 *   driver_seats.c       which rank has which connection and GPU
 *   driver_gather.c      Hello, Ready, refusals
 *   driver_device.c      which device a follower is told to use
 *   driver_lead.c        going on with the run of another driver, which is gone
 *   driver_succession.c  the standby, and the votes that decide who leads
 *   driver_strangers.c   log lines about connections that are not let in, limited in number
 *
 * As in each machine, a function that takes `struct membership *` may write it, and one that takes
 * `const struct driver *` only looks.
 *
 * Threads: as driver.h. */
#ifndef SESSION_MEMBERSHIP_H
#define SESSION_MEMBERSHIP_H

#include "base/arena.h"
#include "session/decision.h"
#include "session/seat.h"

struct driver;

struct gather {              /* driver_gather.c: until every rank is ready */
    int64_t full_ms;         /* when the last seat was taken; -1: a seat is free */
    int64_t next_missing_ms; /* when the next line names the missing ranks */
};

struct lead {           /* driver_lead.c: the run was led by another driver before */
    int is_taking_over; /* 1: until the first formation holds the state */
    int64_t newest;     /* the newest step that a follower had begun or done */
    int64_t told_step;  /* the epoch that ended at this step has its line in events.jsonl */
    int64_t release_ms; /* the job is finished: wait for its followers until then; 0: it is not */
};

enum { MOST_FORMATIONS = 16 };

struct succession {         /* driver_succession.c: the standby and the votes */
    struct conn *conn;      /* the standby's connection; NULL: none is connected */
    char id[VOTERS_ID];     /* the standby's id, also after it has gone */
    char *told, *advertise; /* its address for people; the address of its --iface, or NULL */
    char *host;             /* its host, and there */
    int64_t pid;
    int port; /* the port on which the standby listens */
    int64_t heard_ms;
    struct voters voters[MOST_FORMATIONS]; /* [n] formations that ranks may name; oldest first */
    int n, is_overfull;                    /* is_overfull: 1: there was no room for one */
    int64_t formed;     /* generation of the newest one that all its ranks entered; 0: none */
    struct voters next; /* of the formation under way */
    int is_asked, is_acknowledged; /* of `next`: the standby was told; it has acknowledged */
    int is_elected;                /* 1: this driver was a standby, and its followers let it lead */
    int64_t lacking_ms;            /* since when too few voters are here; -1: enough are here */
};

struct membership {
    const struct driver *d; /* the whole, to look at */
    struct conn **conns;    /* sorted by id */
    int n_conns, cap_conns;
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
struct conn *conn_find(const struct driver *d, int64_t id);        /* NULL: none */
void conn_drop(struct membership *m, struct conn *c);              /* forget it; no action */
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

/* driver_lead.c */
/* 1: the follower may take a seat.  0: it was refused, because its kept state is of no use here; or
 * *out ends the job. */
int lead_hears(struct membership *m, struct conn *c, const Wire__Hello *h, struct decision *out);
void lead_seated(struct membership *m, int rank, const Wire__Hello *h);
int lead_may_begin(const struct driver *d); /* 1: with fewer ranks than were asked for */
struct decision lead_check_claims(struct membership *m); /* the steps in Endpoints */
/* All ranks hold the state.  1: a run that another driver led goes on at a step other than 0. */
int lead_formed(struct membership *m);
int64_t lead_newest(const struct driver *d);       /* the newest step that it had reached */
const char *lead_source(const struct driver *d);   /* of the state: "followers", "checkpoint" */
int lead_ends_epoch_again(const struct driver *d); /* 1: its end may not have been reported */
int lead_lacks_validation(const struct driver *d); /* 1: the run broke off before the validation of
                                                      the step that rank 0 opened */
struct decision lead_nothing_to_do(struct membership *m); /* that is the job's last step */
struct decision lead_releases(struct membership *m);      /* a finished job's followers, in time */
struct decision lead_release_now(struct membership *m);

/* driver_succession.c */
void succession_init(struct membership *m);
void succession_say_leader(const struct driver *d); /* it was a standby, and leads now */
void succession_fini(struct membership *m);
struct decision succession_hello(struct membership *m, struct conn *c, const Wire__Hello *h);
struct decision succession_welcome(struct membership *m);
struct decision succession_heard(struct membership *m, const Wire__Control *msg);
void succession_resign(struct membership *m); /* it said Goodbye, and never comes again */
struct decision succession_lost(struct membership *m, struct conn *c,
                                const char *why); /* nothing if c is another's */
void succession_release(const struct driver *d);
void succession_seated(struct membership *m, int rank, const Wire__Hello *h);
int succession_votes(const struct driver *d);      /* 1: the standby that is connected has a vote */
const char *succession_id(const struct driver *d); /* of the connected standby, or NULL */
/* The standby's address, as the peer of `c` reaches it, or ""; for free(). */
char *succession_address(const struct driver *d, const struct conn *c);
void succession_prepare(struct membership *m); /* a formation begins */
/* All ranks are prepared: FORM, or an accusation, or nothing yet. */
struct decision succession_lets_form(struct membership *m);
void succession_formed(struct membership *m);
/* 1: no formation may begin now, because the standby may lead; *out may end the job for that. */
int succession_holds_up(struct membership *m, struct decision *out);
int64_t succession_give_up_ms(
    const struct driver *d); /* when it ends that; INT64_MIN: it does not */
int succession_wants_regroup(
    const struct driver *d); /* 1: a standby that came or went needs a formation */
int succession_all_are_here(const struct driver *d); /* 1: was a standby; all followers are here */
int succession_is_here(const struct driver *d);      /* 1: the standby is, if the run had one */
int succession_n_ranks(const struct driver *d);      /* of the newest formation; 0: none is known */
int succession_waits_no_more(const struct driver *d); /* 1: was a standby; enough came, in time */

/* driver_strangers.c */
void stranger_say(struct membership *m, const char *fmt, ...) /* unless there are too many */
    __attribute__((format(printf, 2, 3)));
void stranger_check(struct membership *m);    /* at each tick: logs how many lines were left out */
void stranger_say_rest(struct membership *m); /* the same, at once */
void stranger_at_data_port(struct membership *m, int rank, int64_t n); /* once in a formation */
/* 1: the follower looks for this driver's job.  0: it was refused. */
int stranger_is_of_launch(struct membership *m, struct conn *c, const Wire__Hello *h);

#endif
