/* server_impl - the driver's process, as server.c, server_open.c, server_session.c and standby.c
 * share it.  No other file includes this.
 *
 * A standby (standby.c) opens trust, loop and port like a driver, and answers followers that wait.
 * Once the standby leads, server.c goes on with all of these.
 *
 * Threads: the loop's. */
#ifndef DRIVER_SERVER_IMPL_H
#define DRIVER_SERVER_IMPL_H

#include "daemon/disk.h"
#include "daemon/heed.h"
#include "driver/local.h"
#include "driver/options.h"
#include "driver/peers.h"
#include "driver/record.h"
#include "driver/status_socket.h"
#include "driver/web.h"
#include "job/job.h"
#include "net/listener.h"
#include "session/driver.h"
#include "session/standby.h"

struct server {
    const struct options *options;
    const struct job *job;
    const struct evaluation *evaluation; /* NULL: this driver trains */
    struct daemon daemon;
    struct driver *driver;
    struct listener *listener;
    struct trust trust;
    struct peers peers;
    struct disk disk;
    struct record record;                /* zero in an evaluation, which owns no run directory */
    struct web *web;                     /* NULL: no --http */
    struct status_socket *status_socket; /* NULL: it could not be made */
    struct local local;
    struct hosts hosts; /* with --hosts; its lines are the options' */
    uv_signal_t child_ended;
    uv_timer_t owner; /* looks whether another driver has taken the run directory over, and hands on
                         rows */
    uv_timer_t hosts_again; /* while machines of --hosts are to be started again */
    uv_timer_t doom;        /* until local followers whose ranks were lost are killed */
    struct heed heed;
    int is_formed;    /* 1: the ranks have formed, so the session deals with lost followers */
    int is_ending;    /* 1: the session has said how it ends */
    int local_status; /* != 0: the driver stops because a local follower ended with this status */
    int status;
    const struct legacy *legacy; /* NULL, unless this was the standby of the driver before */
    const char *standby_id;      /* ... and its id as a standby */
    void (*on_end)(void *arg);   /* server_end calls this first; NULL: nothing */
    void *on_end_arg;
    int64_t start_ns; /* when the process began */
};

/* Set up the loop, the engine's options and all timers.  *s is zeroed before.  Fails with ERR_IO,
 * ERR_DEVICE. */
int server_init(struct server *s, const struct options *o, int64_t start_ns, struct err *err);

/* A connection was accepted: tell the session of a new stranger. */
void server_accept(struct server *s, struct conn *c);

void server_note_unproven(void *arg, const char *why); /* arg: a server */

/* server_session.c */
extern const struct daemon_hooks server_hooks; /* what the session wants; its `arg` is a server */
void server_begin_session(struct server *s);   /* all that it needs is open */

/* server_open.c */
int server_open_trust(struct server *s, struct err *err);
int server_listen(struct server *s, struct err *err);
int server_open_web(struct server *s, int patience_ms, struct err *err); /* with --http */
void server_limit_strangers(struct server *s); /* by s->job; the listener is open already */
int server_start_local(struct server *s, struct err *err);
int server_start_hosts(struct server *s, struct err *err);
int server_write_port_file(const struct server *s, struct err *err);

/* Go on as the driver of this run: s->legacy, s->job and s->options are set, trust and listener are
 * open.  Followers that wait (peer.hello) are served first.  Returns the exit status, once all is
 * closed. */
int server_lead(struct server *s);

/* Close what server_init and its callers opened, and return the exit status. */
int server_end(struct server *s);

#endif
