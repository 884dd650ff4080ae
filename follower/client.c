/* The follower's process: it dials the driver, one connection at a time, and connects the pure
 * session machine (session/follower.h) with that connection and the engine.
 *
 * The session outlives a connection whose driver was lost (ACTION_SEEK).  The process then looks
 * for the driver at two places in turns: where its standby listens, and at --root.  Without --once
 * the follower looks for the next driver when a job has ended. */
#include "follower/client.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "daemon/heed.h"
#include "daemon/minder.h"
#include "daemon/network.h"
#include "net/dialer.h"
#include "session/follower.h"

/* After a job its driver goes on listening for a moment.  So a follower starts to look for the next
 * driver after a pause, which differs from follower to follower.  For DRIVER_ENDS_MS it takes a
 * refusal as coming from the old driver. */
enum { REDIAL_MS = 500, REDIAL_SPREAD_MS = 500, DRIVER_ENDS_MS = 10000 };

/* A driver that has no place for a follower is asked again and again, each time after a longer
 * pause. */
enum { REFUSED_FIRST_MS = 1000, REFUSED_LAST_MS = 60000 };

/* A lost driver is dialed often, because training waits for it.  A process that answered, but
 * cannot lead yet, is asked again after longer and longer pauses. */
enum { SEEK_PAUSE_MS = 200, SEEK_LAST_PAUSE_MS = 2000 };

/* With two places to look at: the time for which each is dialed, and the time in which a process
 * that was found there must answer. */
enum { TURN_MS = 1000, TURN_WELCOME_MS = 3000 };

struct client {
    const struct options *options;
    struct daemon_host host;
    struct devices devices;   /* as far as --device asks for them */
    char device[DEVICE_TEXT]; /* what this rank asks for, by --device or LOCAL_RANK */
    struct daemon daemon;
    struct dialer *dialer;
    struct dialer *other; /* dials the standby; NULL: no standby is known */
    char other_text[MSG_MAX_NAME];
    int is_at_other; /* 1: it is the standby's turn to be dialed */
    uv_timer_t turn;
    struct trust trust;
    struct conn *conn;         /* NULL: none */
    struct follower *follower; /* the session; NULL: there is no job */
    struct minder_role role;   /* a driver's child dies with it */
    int has_next_secret;       /* 1: the driver refused the secret, and there is one more to try */
    struct heed heed;
    int is_over, status;
    uv_timer_t redial;
    int64_t ended_ns;   /* when the last job ended; 0: none has */
    int64_t refused_ms; /* the pause after the last refusal with RETRY_LATER; 0: there was none */
    char *refusal;      /* ... and its reason; NULL: none */
};

static void client_leave_with(struct client *c, int status)
{
    c->is_over = 1;
    c->status = status;
}

/* Name this process in its log lines by the rank that it has, or else by the one that it was
 * started for (--rank).  A spare has none. */
static void name_lines(const struct client *c)
{
    const int rank = c->follower ? follower_rank(c->follower) : -1;
    const int is_spare = c->follower && follower_is_spare(c->follower);

    log_set_name(c->role.number, is_spare ? -1 : rank >= 0 ? rank : c->options->rank);
}

/* The driver has said what to heed.  A child of the driver's goes with it, which heeds for both. */
static void client_heed(struct client *c)
{
    const char *from = c->follower ? follower_heeds(c->follower) : NULL;

    if (from && c->role.kind != MINDER_DRIVER)
        heed_begin(&c->heed, &c->daemon, from, c->trust.tls != NULL);
}

/* ---- the connection ---- */

static void client_on_frame(void *arg, struct conn *conn, const uint8_t *body, size_t len)
{
    struct client *c = arg;
    Wire__Control *m = conn_unpack(conn, body, len);
    int64_t now;

    if (!m)
        return;
    now = daemon_enter(&c->daemon);
    if (c->follower && !daemon_is_deaf(&c->daemon)) {
        follower_message(c->follower, now, m);
        name_lines(c);
        client_heed(c);
    }
    daemon_leave(&c->daemon);
    msg_free(m);
}

static void client_on_closed(void *arg, struct conn *conn, const struct err *why)
{
    struct client *c = arg;
    int64_t now = daemon_enter(&c->daemon);

    (void)conn;
    c->conn = NULL;
    c->has_next_secret = why && why->code == ERR_REFUSED && c->trust.tls && !c->options->lane &&
                         tls_context_next(c->trust.tls);
    if (c->follower)
        follower_closed(c->follower, now, why);
    daemon_leave(&c->daemon);
}

static void client_do_send(void *arg, int64_t number, struct frame *f)
{
    struct client *c = arg;

    (void)number;
    if (c->conn)
        conn_send(c->conn, f);
    else
        frame_unref(f);
}

static void client_do_close(void *arg, int64_t number)
{
    struct client *c = arg;

    (void)number;
    if (c->conn)
        conn_close(c->conn);
    c->conn = NULL;
}

static void client_do_cut(void *arg)
{
    struct client *c = arg;
    struct err err;

    if (!c->conn)
        return;
    conn_abort(c->conn);
    c->conn = NULL;
    err_set(&err, ERR_PEER, "an injected fault cut the connection");
    follower_closed(c->follower, clock_mono_ns(), &err);
}

static void client_do_trust(void *arg, int64_t number)
{
    (void)arg;
    (void)number; /* a follower trusts the driver that it was told to find */
}

/* ---- the session ---- */

static void client_session_report(void *m, int64_t now, struct report *r)
{
    follower_report(m, now, r);
}
static void client_session_stop(void *m, int64_t now, const char *why)
{
    follower_stop(m, now, why);
}
static void client_session_notice(void *m, int64_t now, const struct notice *n)
{
    follower_notice(m, now, n);
}
static void client_session_tick(void *m, int64_t now) { follower_tick(m, now); }
static int64_t client_session_deadline(const void *m) { return follower_deadline(m); }
static int client_session_next(void *m, struct action *out) { return follower_next(m, out); }

static void client_session_progress(void *m, int64_t now, const struct progress *p)
{
    follower_progress(m, now, p);
}

static void client_session_describe(const void *m, int64_t now, struct buf *out)
{
    follower_describe(m, now, out);
}

static void client_session_ring(void *m, int64_t now, const struct collective *c, int n)
{
    follower_ring(m, now, c, n);
}

static const struct daemon_machine machine = {
    client_session_report,   client_session_progress, client_session_stop, client_session_notice,
    client_session_tick,     client_session_deadline, client_session_next, client_session_describe,
    client_session_describe, client_session_ring};

/* List the GPUs that can be used. */
static int list_gpus(const struct devices *d, struct follower_gpu *out)
{
    int n = 0;

    for (int i = 0; d->plugin && i < d->probe.n_gpus && i < PLUGIN_MAX_GPUS; i++)
        if (!d->probe.gpu[i].trouble[0])
            out[n++] = (struct follower_gpu){.index = i,
                                             .uuid = d->probe.gpu[i].uuid,
                                             .name = d->probe.gpu[i].name,
                                             .bus = d->probe.gpu[i].bus};
    return n;
}

/* Give the new connection to a session: to the one that looks for its driver, or to a new one. */
static void client_begin_session(struct client *c, int64_t now)
{
    static const char *const backends[] = {"cpu", "cuda"};
    struct follower_gpu gpus[PLUGIN_MAX_GPUS];
    const struct options *o = c->options;
    struct follower_options f = {
        .rank = o->rank,
        .host = c->host.name,
        .host_id = c->host.id,
        .pid = getpid(),
        .pid_space = host_pid_space(),
        .device = c->device,
        .gpus = gpus,
        .n_gpus = list_gpus(&c->devices, gpus),
        .no_gpu = c->devices.trouble,
        .backends = backends,
        .n_backends = c->devices.plugin ? 2 : 1,
        .advertise = o->advertise[0] ? o->advertise : NULL,
        .data_dir = o->data,
        .driver = c->is_at_other   ? c->other_text
                  : o->n_ports > 1 ? conn_peer(c->conn)
                                   : o->root_text,
        .launch = o->launch[0] ? o->launch : NULL,
        .keeps_state = c->role.kind != MINDER_DRIVER,
        .is_proven = c->trust.tls != NULL,
        .welcome_ms = c->other ? TURN_WELCOME_MS : 0,
    };

    if (c->follower) {
        follower_connected(c->follower, &f, now);
        return;
    }
    c->follower = follower_new(&f, now);
    daemon_attach(&c->daemon, &machine, c->follower);
}

static void client_on_connected(void *arg, struct conn *conn)
{
    static const struct conn_events events = {client_on_frame, client_on_closed};
    struct client *c = arg;
    struct err err;

    if (options_check_peer(c->options, conn_peer_number(conn), &err) < 0) {
        log_error("%s", err.msg);
        conn_abort(conn);
        client_leave_with(c, STATUS_USAGE);
        return;
    }
    const struct follower *before = c->follower;
    int64_t now = daemon_enter(&c->daemon);
    if (c->follower != before) { /* the session gave up just now */
        conn_abort(conn);
        return;
    }
    conn_listen(conn, &events, c);
    c->conn = conn;
    c->has_next_secret = 0;
    uv_timer_stop(&c->turn);
    dialer_limit_pause(c->dialer, 0);
    client_begin_session(c, now);
    daemon_leave(&c->daemon);
}

/* ---- two places to look at ---- */

static struct dialer *dialer_of_turn(const struct client *c)
{
    return c->is_at_other ? c->other : c->dialer;
}

static void on_turn(uv_timer_t *t);

static void begin_turn(struct client *c)
{
    dialer_limit_pause(dialer_of_turn(c), SEEK_PAUSE_MS);
    dialer_start(dialer_of_turn(c), 1);
    uv_timer_start(&c->turn, on_turn, TURN_MS, 0);
}

static void on_turn(uv_timer_t *t)
{
    struct client *c = t->data;

    dialer_stop(dialer_of_turn(c));
    c->is_at_other = !c->is_at_other;
    begin_turn(c);
}

static void forget_other(struct client *c)
{
    uv_timer_stop(&c->turn);
    dialer_close(c->other);
    c->other = NULL;
    c->is_at_other = 0;
}

/* Note the standby's address.  A text that is no address is ignored; then there is only --root. */
static void note_other(struct client *c, const char *text)
{
    struct dialer_options d = {.tls = c->trust.tls,
                               .wait_ms = -1,
                               .seed = (uint64_t)clock_mono_ns() ^ (uint64_t)getpid() << 32,
                               .is_quiet = 1,
                               .lane = c->options->lane,
                               .connected = client_on_connected,
                               .arg = c};
    char host[ADDR_MAX_HOST];
    struct err err;

    if (c->other && text && !strcmp(text, c->other_text))
        return;
    forget_other(c);
    if (!text || !strcmp(text, c->options->root_text))
        return;
    d.host = host;
    snprintf(c->other_text, sizeof c->other_text, "%s", text);
    if (addr_split(text, host, &d.port, &err) < 0 ||
        dialer_new(&c->daemon.loop, &d, &c->other, &err) < 0)
        log_warn("the standby's address cannot be used: %s", err.msg);
}

/* The driver was lost: look for it, and for its standby.  Most attempts fail at once, so each
 * begins with a pause.  The machine of a frozen driver still accepts connections, so the standby is
 * dialed first. */
static void client_do_seek(void *arg, int is_again, const char *other)
{
    struct client *c = arg;

    note_other(c, other);
    if (c->other) {
        c->is_at_other = is_again ? !c->is_at_other : 1;
        begin_turn(c);
        return;
    }
    dialer_limit_pause(c->dialer, is_again ? SEEK_LAST_PAUSE_MS : SEEK_PAUSE_MS);
    dialer_start(c->dialer, 1);
}

static void client_on_gave_up(void *arg, const struct err *why)
{
    struct client *c = arg;

    if (c->follower) { /* the session keeps its state, and says when it gives up */
        dialer_start(c->dialer, 1);
        return;
    }
    log_error("%s", why->msg);
    client_leave_with(c, STATUS_REFUSED);
}

static const char *client_device_of(void *arg)
{
    const struct client *c = arg;
    const char *device = follower_device(c->follower);

    if (device_is_cuda(device)) {
        const struct plugin_gpu *gpu = &c->devices.probe.gpu[device_index(device)];

        daemon_check_nccl(&c->options->common);
        daemon_check_shared_memory("/dev/shm");
        sampler_watch_gpu(c->daemon.sampler, gpu->bus, gpu->uuid);
    }
    return device;
}

static int is_old_driver(const struct client *c)
{
    return c->ended_ns && clock_mono_ns() - c->ended_ns < (int64_t)DRIVER_ENDS_MS * 1000000;
}

static void forget_refusal(struct client *c)
{
    free(c->refusal);
    c->refusal = NULL;
    c->refused_ms = 0;
}

static void say_end(const struct client *c, const struct action *end)
{
    if (end->finished.status == STATUS_REFUSED && end->finished.retry && is_old_driver(c)) {
        log_info("the driver of the last job is still ending: %s", end->finished.text);
        return;
    }
    switch (end->finished.status) {
    case STATUS_OK:
        log_info("%s", end->finished.text);
        break;
    case STATUS_STOPPED:
        log_warn("%s", end->finished.text);
        break;
    default:
        log_error("%s", end->finished.text);
    }
}

static void on_redial(uv_timer_t *t) { dialer_start(((struct client *)t->data)->dialer, 0); }

/* The driver has no place for this follower: ask it again after 1 s, 2 s, ... 60 s.  The pause is
 * shortened at random, by up to a half.  Only a new reason is logged. */
static void ask_later(struct client *c, const struct action *end)
{
    int64_t pause_ms;

    c->refused_ms = c->refused_ms ? min_i64(2 * c->refused_ms, REFUSED_LAST_MS) : REFUSED_FIRST_MS;
    if (!c->refusal || strcmp(c->refusal, end->finished.text) != 0) {
        free(c->refusal);
        c->refusal = xstrdup(end->finished.text);
        log_warn("%s; trying again, up to every %d s", c->refusal, REFUSED_LAST_MS / 1000);
    }
    pause_ms = c->refused_ms - (int64_t)(clock_mono_ns() % (c->refused_ms / 2));
    uv_timer_start(&c->redial, on_redial, (uint64_t)pause_ms, 0);
}

static void look_for_next(struct client *c, int status)
{
    log_info("waiting for the next driver at %s", c->options->root_text);
    if (status != STATUS_REFUSED)
        c->ended_ns = clock_mono_ns();
    if (status == STATUS_OK || status == STATUS_STOPPED)
        uv_timer_start(&c->redial, on_redial, REDIAL_MS + (uint64_t)(getpid() % REDIAL_SPREAD_MS),
                       0);
    else
        dialer_start(c->dialer, status == STATUS_REFUSED);
}

static void client_on_finished(void *arg, const struct action *end)
{
    struct client *c = arg;
    int status = end->finished.status, is_stuck = end->finished.is_engine_stuck;
    enum retry retry = end->finished.retry;
    int again = retry == RETRY_AS_NEW || (retry != RETRY_NOT && !c->options->once);
    int is_next = c->has_next_secret && status == STATUS_REFUSED;
    int goes_on =
        (c->options->once || c->options->n_ports > 1) && retry == RETRY_UNANSWERED && !is_next;
    int is_later = again && retry == RETRY_LATER && !is_old_driver(c);

    c->has_next_secret = 0;
    if (is_next) {
        log_info("the driver does not have this secret; trying the next --secret-file");
    } else if (!is_later && !goes_on) {
        say_end(c, end);
        forget_refusal(c);
    }
    daemon_detach(&c->daemon, is_stuck);
    heed_end(&c->heed);
    follower_free(c->follower);
    c->follower = NULL;
    name_lines(c);
    client_do_close(c, 0);
    forget_other(c);
    dialer_stop(c->dialer);
    dialer_limit_pause(c->dialer, 0);
    if (is_next) {
        dialer_start(c->dialer, 0);
        return;
    }
    if (goes_on) {
        dialer_go_on(c->dialer, end->finished.text);
        return;
    }
    if (!again) {
        client_leave_with(c, status);
        return;
    }
    if (is_later)
        ask_later(c, end);
    else
        look_for_next(c, status);
}

static void client_on_event(void *arg, const struct session_event *ev)
{
    (void)arg;
    (void)ev; /* the driver keeps the record */
}

static void client_on_idle_stop(void *arg, const char *signal)
{
    if (((struct client *)arg)->is_over)
        return; /* this process is ending already */
    log_warn("stopped by %s while waiting for a driver", signal);
    client_leave_with(arg, STATUS_STOPPED);
}

/* ---- life ---- */

static int open_trust(struct client *c, struct err *err)
{
    const struct daemon_options *o = &c->options->common;
    const struct trust_options t = {
        .role = TLS_FOLLOWER, .files = &o->secret_files, .insecure = o->insecure};
    int rc = trust_open(&t, &c->trust, err);

    if (rc == 0 && c->trust.why_not[0])
        log_info("another user of this machine could play the driver, as no secret proves it: %s",
                 c->trust.why_not);
    c->daemon.engine_options.has_secret = c->trust.tls != NULL;
    return rc;
}

static int client_start_dialing(struct client *c, struct err *err)
{
    static const char hint[] =
        "a driver on another machine needs --secret-file or --insecure, as "
        "this follower does: without them it listens on its own machine alone";
    const struct options *o = c->options;
    struct dialer_options d = {.host = o->host,
                               .hint = o->common.insecure || o->common.secret_files.n ||
                                               !strcmp(o->host, "localhost") ||
                                               addr_number_is_loopback(o->host)
                                           ? NULL
                                           : hint,
                               .port = o->port,
                               .n_ports = o->n_ports,
                               .tls = c->trust.tls,
                               .wait_ms = o->once ? 1000 * o->wait_s : -1,
                               .lane = o->lane,
                               .seed = (uint64_t)clock_mono_ns(),
                               .connected = client_on_connected,
                               .gave_up = client_on_gave_up,
                               .arg = c};

    if (getrandom(&d.seed, sizeof d.seed, 0) < 0)
        d.seed ^= (uint64_t)getpid() << 32;
    if (dialer_new(&c->daemon.loop, &d, &c->dialer, err) < 0)
        return err->code;
    uv_timer_init(&c->daemon.loop, &c->redial);
    uv_timer_init(&c->daemon.loop, &c->turn);
    c->redial.data = c->turn.data = c;
    dialer_start(c->dialer, 0);
    return 0;
}

int client_run(const struct options *o)
{
    static const struct daemon_hooks hooks = {.send = client_do_send,
                                              .trust = client_do_trust,
                                              .close = client_do_close,
                                              .seek = client_do_seek,
                                              .cut = client_do_cut,
                                              .event = client_on_event,
                                              .device = client_device_of,
                                              .finished = client_on_finished,
                                              .idle_stop = client_on_idle_stop};
    struct engine_options engine = {.n_threads = (int)o->common.n_threads};
    struct client c = {.options = o, .role = minder_role()};
    struct err err;

    name_lines(&c);
    daemon_host(&c.host);
    if (devices_find(o->common.device, &c.devices, &err) < 0) {
        log_error("%s", err.msg);
        return STATUS_USAGE;
    }
    devices_of_local_rank(&c.devices, o->common.device, o->common.local_rank, c.device);
    if (c.devices.has_driver && c.devices.trouble[0])
        log_warn("--device auto: no GPU can be used: %s; there is only the CPU", c.devices.trouble);
    engine.plugin = c.devices.plugin;
    if (daemon_init(&c.daemon, &hooks, &c, &engine, &err) < 0) {
        log_error("%s", err.msg);
        return STATUS_FAILED;
    }
    /* A batch system signals all processes of a task, and the agent passes its signal on. */
    c.daemon.ignores_second_stop = c.role.kind == MINDER_AGENT;
    if (open_trust(&c, &err) < 0 || client_start_dialing(&c, &err) < 0) {
        log_error("%s", err.msg);
        client_leave_with(&c, STATUS_USAGE);
    } else {
        pulse_start(&c.daemon.pulse);
    }
    while (!c.is_over)
        uv_run(&c.daemon.loop, UV_RUN_ONCE);
    client_do_close(&c, 0);
    if (c.dialer) {
        forget_other(&c);
        uv_close((uv_handle_t *)&c.redial, NULL);
        uv_close((uv_handle_t *)&c.turn, NULL);
    }
    dialer_close(c.dialer);
    c.status = daemon_close(&c.daemon, c.status);
    trust_close(&c.trust);
    free(c.refusal);
    return c.status;
}
