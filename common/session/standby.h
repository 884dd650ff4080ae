/* standby - the session machine of a standby, which leads a run once its driver is lost.  The
 * process around it is driver/standby.c.
 *
 * Happy path: the standby says Hello to the driver, with a random id, and is welcomed with the job,
 * the run and the term.  Heartbeats go both ways.  The driver tells the standby of formations
 * (Voters), which it acknowledges.  When the driver is lost, followers that also lost it come here
 * with their Hello and are held.  As soon as these let the standby lead (session/voters.h),
 * ACTION_FINISHED comes with is_leader.  The caller then makes a driver (session/driver.h) from
 * standby_legacy, and hands the held connections and their Hellos over to it.
 *
 * Otherwise:
 *   - The driver ends the job: the standby ends, too.
 *   - The driver comes back: it leads again, and the held followers are sent back to it.
 *   - A follower comes while the driver seems to be there: it is held until the driver's next
 *     message, and then sent back.
 *   - The followers do not make the standby the leader within cluster.driver_timeout: it ends with
 *     STATUS_FAILED.
 *
 * Pure, as session/driver.h.  Connection 0 is the one with the driver, which ACTION_SEEK asks for;
 * the others have the caller's numbers, from 1.
 *
 * Life:    standby_new -> events ... until ACTION_FINISHED -> standby_free.
 * Threads: one at a time. */
#ifndef SESSION_STANDBY_H
#define SESSION_STANDBY_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "session/account.h"
#include "session/action.h"
#include "session/energy.h"
#include "wire/msg.h"

struct standby; /* opaque */

struct standby_options {    /* copied; texts may be NULL where said */
    const char *id;         /* random, of this process */
    int port;               /* where it listens */
    const char *host;       /* this host's name */
    const char *host_id;    /* boot id */
    int64_t pid, pid_space; /* base/host.h */
    const char *device;     /* that rank 0 will compute on: "cpu", "cuda:0" */
    const char *advertise;  /* --iface: numeric address for others; NULL: as the driver sees it */
    const char *driver;     /* "10.0.0.1:7000", for messages */
    int checks_job;     /* 1: the standby leads no job before standby_checked was called for it */
    int64_t welcome_ms; /* how long a driver may take to answer Hello; 0: 10 s */
};

/* Queues ACTION_SEEK. */
struct standby *standby_new(const struct standby_options *o, int64_t now_ns);
void standby_free(struct standby *s); /* NULL is fine */

/* After ACTION_SEEK there is a connection with the driver.  Queues Hello. */
void standby_connected(struct standby *s, int64_t now_ns);

/* As driver_message, driver_closed.  A connection of a follower is new with its first message. */
void standby_message(struct standby *s, int64_t now_ns, int64_t conn, const Wire__Control *m);
void standby_closed(struct standby *s, int64_t now_ns, int64_t conn, const struct err *why);

/* The caller has tried the job of standby_legacy.  why NULL: this process can lead it.  Otherwise
 * the driver is told the reason, and the standby ends with STATUS_USAGE, because as the leader it
 * would have to end the job. */
void standby_checked(struct standby *s, int64_t now_ns, const char *why);

void standby_stop(struct standby *s, int64_t now_ns, const char *why); /* by the operator */
void standby_tick(struct standby *s, int64_t now_ns);
int64_t standby_deadline(const struct standby *s);
int standby_next(struct standby *s, struct action *out);

/* Everything that a new leader needs to know about the run; the state comes from the followers. */
struct legacy {
    struct blob job;    /* the resolved job (YAML); .len 0: the driver has not welcomed it yet */
    const char *run;    /* random name */
    int64_t term;       /* the term with which this process would lead */
    int n_ranks;        /* of the job */
    const char *device; /* the kind that the job computes on: "cpu", "cuda" */
    int64_t driver_timeout_ms;
    struct voters voters;        /* the newest formation known */
    struct account_past account; /* where the time of the run went, ... */
    int64_t account_ns;          /* ... as it was told at this time; 0: it was not */
    struct energy_sums energy;   /* likewise */
    const char *led_by;          /* where the driver listened */
    const char *leads_at;        /* where this process is, as the driver saw it */
};

struct legacy standby_legacy(const struct standby *s);    /* borrowed */
int standby_holds(const struct standby *s, int64_t conn); /* 1: a follower waits on it */

/* The Hello for the driver that was replaced, by which it learns that this process leads. */
struct frame *standby_claim(const struct standby *s);

void standby_describe(const struct standby *s, int64_t now_ns, struct buf *out);

#endif
