/* The driver's process: it connects the pure session machine (session/driver.h; server_session.c)
 * with connections, the engine, local followers, run directory and status socket.  server_start
 * opens everything, the loop runs until the session has finished, and server_end closes everything.
 */
#include "driver/server.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "driver/answer.h"
#include "driver/files.h"
#include "driver/server_impl.h"
#include "report/status.h"

enum {
    LOCAL_PATIENCE_MS = 5000, /* for local followers to end after the job has ended */
    AWAIT_MS = 20,
    TELL_AWAIT_MS = 1000,
    FALLEN_MS = 500, /* a killed driver of this host gives its ports back one after another */
};

/* ---- connections ---- */

static void server_on_frame(void *arg, struct conn *c, const uint8_t *body, size_t len)
{
    struct peer *peer = arg;
    struct server *s = peer->owner;
    Wire__Control *m = conn_unpack(c, body, len);
    int64_t now;

    if (!m)
        return;
    now = daemon_enter(&s->daemon);
    if (!daemon_is_deaf(&s->daemon))
        driver_message(s->driver, now, peer->number, m);
    daemon_leave(&s->daemon);
    msg_free(m);
}

static void server_on_closed(void *arg, struct conn *c, const struct err *why)
{
    struct peer *peer = arg;
    struct server *s = peer->owner;
    int64_t number = peer->number, now;

    (void)c;
    now = daemon_enter(&s->daemon);
    peers_remove(&s->peers, number);
    driver_closed(s->driver, now, number, why);
    daemon_leave(&s->daemon);
}

static void serve_peer(struct server *s, struct peer *peer)
{
    static const struct conn_events events = {server_on_frame, server_on_closed};
    int64_t now = daemon_enter(&s->daemon);

    conn_listen(peer->conn, &events, peer);
    driver_connected(s->driver, now, peer->number, conn_peer_number(peer->conn),
                     conn_local_number(peer->conn), conn_peer(peer->conn));
    daemon_leave(&s->daemon);
}

void server_accept(struct server *s, struct conn *c) { serve_peer(s, peers_add(&s->peers, c, s)); }

/* Serve the connections from this process's time as a standby, and pass on each Hello that was
 * kept.
 */
static void serve_waiting(struct server *s)
{
    int64_t last = s->peers.last;

    for (int64_t number = 1; number <= last; number++) {
        struct peer *peer = peers_get(&s->peers, number);
        Wire__Control *hello = peer ? peer->hello : NULL;

        if (!peer)
            continue;
        peer->owner = s;
        peer->hello = NULL;
        serve_peer(s, peer);
        if (hello && peers_get(&s->peers, number)) {
            driver_message(s->driver, daemon_enter(&s->daemon), number, hello);
            daemon_leave(&s->daemon);
        }
        if (hello)
            msg_free(hello);
    }
}

/* A request (driver/request.h), or a line that is none.  The audit hears of either. */
static void on_request(void *arg, const struct status_client *who, const char *request,
                       struct buf *out)
{
    struct server *s = arg;
    int64_t now = daemon_enter(&s->daemon);
    char *refused;

    answer_request(s->driver, now, request, out);
    refused = answer_error(out);
    audit_asked(s->record.audit, request, who->uid, who->pid, refused);
    free(refused);
    daemon_leave(&s->daemon);
}

/* Note in the audit that a peer did not prove to know the secret.  Before the run directory is
 * claimed there is no audit, only the log. */
void server_note_unproven(void *arg, const char *why)
{
    struct server *s = arg;

    if (s->record.audit)
        audit_refused(s->record.audit, why);
}

static void open_status(struct server *s)
{
    struct err err;

    if (status_socket_open(&s->daemon.loop, s->record.dir.path, on_request, s, &s->status_socket,
                           &err) < 0)
        log_warn("--status and the other requests will not find this run: %s", err.msg);
}

/* ---- start and end ---- */

/* Claim the run directory; an evaluation has none. */
static int open_run(struct server *s, struct err *err)
{
    const int64_t n_ranks = max_i64(s->options->n_ranks, s->job->cluster.max_ranks);
    int rc = disk_open(&s->disk, &s->daemon.loop, n_ranks, err);

    if (rc < 0)
        return rc;
    s->daemon.disk = s->disk.writer;
    if (s->evaluation)
        return 0;
    rc = record_open(&s->record, s->options, s->job, s->legacy, s->disk.writer, err);
    s->disk.where = s->record.dir.path;
    if (rc < 0 && s->options->port_file)
        unlink(s->options->port_file); /* so that no follower looks for this driver */
    if (rc == 0)
        open_status(s);
    if (!s->options->find_lr) /* a range test saves nothing */
        s->daemon.engine_options.run_dir = s->record.dir.path;
    return rc;
}

/* Open all that can fail before the session starts.  server_end closes what was opened. */
static int server_start(struct server *s, struct err *err)
{
    int rc = files_check(s->options, s->job, err);

    if (rc == 0)
        rc = local_check_gpus(s->options, s->job, err);
    if (rc == 0)
        rc = server_open_trust(s, err);
    if (rc == 0)
        rc = server_listen(s, err);
    if (rc == 0)
        rc = server_open_web(s, 0, err);
    if (rc == 0)
        rc = server_write_port_file(s, err);
    if (rc == 0)
        rc = open_run(s, err);
    if (rc == 0)
        rc = server_start_local(s, err);
    if (rc == 0)
        rc = server_start_hosts(s, err);
    return rc;
}

static void dismiss_local(struct server *s)
{
    struct status last;

    if (!s->is_formed) { /* nothing has begun */
        local_kill(&s->local);
        return;
    }
    driver_status(s->driver, clock_mono_ns(), &last);
    local_dismiss(&s->local, &last);
    status_fini(&last);
}

/* Leave without waiting for the writer's thread, which is in a call on a disk that hangs, and such
 * a call does not return. */
static _Noreturn void leave_disk(struct server *s, int status)
{
    log_warn("%s: the disk hangs: leaving without it", s->record.dir.path);
    daemon_flush(&s->daemon);
    _exit(status);
}

/* The command of report.exec may take its time.  Meanwhile signals to stop are heard. */
static void server_await_record(struct server *s)
{
    for (int ms = 0; !record_await(&s->record, AWAIT_MS); ms += AWAIT_MS) {
        if (ms == TELL_AWAIT_MS)
            log_info("waiting for the command of report.exec to end; Ctrl-C ends it sooner");
        uv_run(&s->daemon.loop, UV_RUN_NOWAIT);
    }
}

int server_end(struct server *s)
{
    const int patience_ms =
        s->status == STATUS_OK || s->status == STATUS_STOPPED ? LOCAL_PATIENCE_MS : 1000;
    int status = s->status, disk_hangs = disk_flush(&s->disk) == WRITER_LATE;
    struct peer *peer;

    if (s->on_end)
        s->on_end(s->on_end_arg);
    daemon_detach(&s->daemon, s->daemon.engine != NULL);
    heed_end(&s->heed);
    listener_close(s->listener);
    web_close(s->web);
    dismiss_local(s);
    if (!disk_hangs) /* its name is on that disk */
        status_socket_close(s->status_socket);
    while ((peer = peers_first(&s->peers)))
        conn_close(peers_remove(&s->peers, peer->number));
    uv_close((uv_handle_t *)&s->child_ended, NULL);
    uv_close((uv_handle_t *)&s->doom, NULL);
    uv_close((uv_handle_t *)&s->hosts_again, NULL);
    uv_close((uv_handle_t *)&s->owner, NULL);
    local_end(&s->local, patience_ms);
    hosts_end(&s->hosts, s->is_formed ? patience_ms : 0);
    if (disk_hangs)
        leave_disk(s, status);
    server_await_record(s);
    /* A start that a local follower cut short leaves no folder, like one that was stopped. */
    if (!s->evaluation)
        record_close(&s->record, s->local_status ? STATUS_STOPPED : status);
    disk_close(&s->disk);
    s->daemon.disk = NULL;
    driver_free(s->driver);
    peers_fini(&s->peers);
    status = daemon_close(&s->daemon, status);
    trust_close(&s->trust);
    return status;
}

int server_init(struct server *s, const struct options *o, int64_t start_ns, struct err *err)
{
    const struct engine_options engine = {.plugin = o->devices.plugin,
                                          .n_threads = (int)o->common.n_threads};
    int rc = daemon_init(&s->daemon, &server_hooks, s, &engine, err);

    s->options = o;
    s->start_ns = start_ns;
    if (rc < 0)
        return rc;
    uv_signal_init(&s->daemon.loop, &s->child_ended);
    uv_timer_init(&s->daemon.loop, &s->doom);
    uv_timer_init(&s->daemon.loop, &s->hosts_again);
    uv_timer_init(&s->daemon.loop, &s->owner);
    s->child_ended.data = s->owner.data = s->doom.data = s->hosts_again.data = s;
    return 0;
}

static void server_loop(struct server *s)
{
    while (!s->daemon.is_finished)
        uv_run(&s->daemon.loop, UV_RUN_ONCE);
}

int server_lead(struct server *s)
{
    struct err err;

    if (open_run(s, &err) < 0) {
        log_error("%s", err.msg);
        s->status = daemon_status_of(&err);
        return server_end(s);
    }
    if (server_open_web(s, FALLEN_MS, &err) < 0)
        log_warn("%s; this driver goes on without", err.msg);
    server_begin_session(s);
    serve_waiting(s);
    daemon_stop_if_missed(&s->daemon);
    server_loop(s);
    return server_end(s);
}

int server_run(const struct options *o, const struct job *job, const struct evaluation *e,
               int64_t start_ns)
{
    struct server s = {.job = job, .evaluation = e};
    struct err err;

    if (server_init(&s, o, start_ns, &err) < 0) {
        log_error("%s", err.msg);
        return STATUS_FAILED;
    }
    if (server_start(&s, &err) < 0) {
        log_error("%s", err.msg);
        s.status = daemon_status_of(&err);
        return server_end(&s);
    }
    server_begin_session(&s);
    pulse_start(&s.daemon.pulse);
    server_loop(&s);
    return server_end(&s);
}
