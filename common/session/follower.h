/* follower - the session machine of a follower: its part in one job, from its first Hello to the
 * end of the job.  The process around it is follower/client.c.
 *
 * Happy path: it says Hello, opens its engine on Welcome, then passes the driver's commands to the
 * engine and the engine's reports to the driver.
 *
 * Another rank is lost: the engine aborts its command and keeps its state, and the follower waits
 * for the next formation (Abort with `recover`, then Prepare).
 *
 * The driver is lost, because it is silent or the connection breaks: the engine aborts its command
 * in the same way.  ACTION_SEEK asks the caller for a connection with the driver, or with another
 * driver that goes on with the run (follower_keep.c).
 *
 * The end: no driver is found in time, or the driver ends the job or refuses the follower.  Then
 * the engine is stopped, and ACTION_FINISHED says with which status to exit, and whether to wait
 * for another driver instead.
 *
 * Pure, as session/driver.h.  It has one connection at a time, whose number is 0.
 *
 * Life:    follower_new (a connection exists) -> events ... (ACTION_SEEK -> follower_connected ->
 *          events ...) until ACTION_FINISHED -> follower_free.
 * Threads: one at a time. */
#ifndef SESSION_FOLLOWER_H
#define SESSION_FOLLOWER_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "session/action.h"
#include "session/notice.h"
#include "wire/msg.h"

struct follower; /* opaque */

struct follower_gpu {
    int index; /* CUDA's number of it */
    const char *uuid, *name;
    const char *bus; /* NULL: not known */
};

struct follower_options {   /* copied; texts may be NULL where said */
    int rank;               /* wanted; -1: any */
    const char *host;       /* this host's name */
    const char *host_id;    /* boot id */
    int64_t pid, pid_space; /* base/host.h */
    const char *device;     /* wanted: "auto", "cpu", "cuda", "cuda:I" */
    const struct follower_gpu *gpus;
    int n_gpus;
    const char *no_gpu;          /* why there is no GPU, if that is known; may be NULL */
    const char *const *backends; /* the backends that this build has: "cpu", ... */
    int n_backends;
    const char *advertise; /* --iface: numeric address for others; NULL: as the driver sees it */
    const char *data_dir;  /* --data; NULL: the job's */
    const char *driver;    /* "10.0.0.1:7000", for messages */
    const char *launch;    /* the launcher's job that is looked for at several ports; NULL: none */
    int64_t welcome_ms;    /* how long a driver may take to answer Hello; 0: 10 s */
    int keeps_state;       /* 1: keep the state when the driver is lost, as long as Welcome says */
    int is_proven;         /* 1: the driver has proven that it knows the connection's secret */
};

/* Queues Hello. */
struct follower *follower_new(const struct follower_options *o, int64_t now_ns);
void follower_free(struct follower *f); /* NULL is fine */

/* After ACTION_SEEK there is a connection again, with the driver that `o` names.  Queues Hello,
 * or closes the connection if the search has ended meanwhile. */
void follower_connected(struct follower *f, const struct follower_options *o, int64_t now_ns);

/* As driver_message, driver_closed. */
void follower_message(struct follower *f, int64_t now_ns, const Wire__Control *m);
void follower_closed(struct follower *f, int64_t now_ns, const struct err *why);

void follower_report(struct follower *f, int64_t now_ns, struct report *r); /* takes r */
void follower_progress(struct follower *f, int64_t now_ns, const struct progress *p);

/* For ACTION_RING: the engine's last collectives (engine_ring). */
void follower_ring(struct follower *f, int64_t now_ns, const struct collective *c, int n);

/* The operator wants to stop this follower, and the driver is told.
 *
 * First call: in the middle of training the engine goes on until the driver lets it go, at the end
 * of the step; otherwise, or when that takes too long, it is stopped at once.  Second call: it is
 * stopped at once.  A call after it was stopped: the session no longer waits for the engine. */
void follower_stop(struct follower *f, int64_t now_ns, const char *why);

/* This follower's machine is about to go away.  The driver is told, and the follower leaves as
 * after the first follower_stop, or at once if that is not possible.  The first call counts, and
 * the first follower_stop after it, with which such a machine ends its services, does nothing. */
void follower_notice(struct follower *f, int64_t now_ns, const struct notice *n);

void follower_tick(struct follower *f, int64_t now_ns);
int64_t follower_deadline(const struct follower *f);
int follower_next(struct follower *f, struct action *out);

/* The driver's decisions in Welcome: the rank (-1 before), and the device to use ("" before).  Make
 * the engine for that device when the first ACTION_COMMAND (CMD_OPEN) comes. */
int follower_rank(const struct follower *f);
int follower_is_spare(const struct follower *f); /* 1: it waits to take a lost rank's place */
const char *follower_device(const struct follower *f);
/* cluster.notice of the driver's job; NULL: the driver has not welcomed the follower yet. */
const char *follower_heeds(const struct follower *f);

void follower_describe(const struct follower *f, int64_t now_ns, struct buf *out);

#endif
