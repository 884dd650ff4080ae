/* succession - the part of the machine of membership that knows who led the run before, and who may
 * lead it next.
 *
 *   driver_lead.c        going on with the run of another driver, which is gone
 *   driver_succession.c  the standby, and the votes that decide who leads
 *
 * Life:    members of struct membership (session/membership.h).
 * Threads: as driver.h. */
#ifndef SESSION_SUCCESSION_H
#define SESSION_SUCCESSION_H

#include "session/decision.h"
#include "session/voters.h"

struct conn;
struct driver;
struct membership;

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
int succession_votes(const struct driver *d); /* 1: the standby that is connected has a vote */
/* 1: the connected standby would lead if this driver were lost and these followers of the newest
 * formation stayed. */
int succession_would_lead(const struct driver *d, int n_followers);
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

#endif
