/* The standby's process: a connection with the driver, a port for followers that lost the driver,
 * and the session machine session/standby.h between them.  When the session says that the standby
 * leads, driver/server.c takes over loop, port and connections, and becomes the driver.
 *
 * For cluster.driver_timeout after that, the standby goes on dialing the driver that it replaced. A
 * driver that was frozen or cut off so learns from the standby's Hello that it is deposed. */
#include "driver/standby.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "driver/command.h"
#include "driver/files.h"
#include "driver/server_impl.h"
#include "driver/trial.h"
#include "job/imported.h"
#include "net/dialer.h"

enum {
    MAX_STRANGERS = 128, /* until the job says how many followers may come */
    STRANGER_MS = 20000,
    SEEK_PAUSE_MS = 200, /* between two dials of a lost driver; short, because training waits */
};

struct waiting {
    struct server server;
    struct options *options;
    struct standby *standby;
    struct trust trust; /* for the connection to the driver; server.trust is for followers */
    struct dialer *dialer;
    struct conn *conn;       /* with the driver; NULL: none */
    struct job *job;         /* the driver's job; NULL: not welcomed yet */
    struct hash128 job_hash; /* the hash of the job's text */
    struct trial trial;      /* whether this process could lead the job */
    char id[HASH_TEXT_LEN], where[ADDR_MAX_HOST + 8];
    struct daemon_host host;
    struct legacy legacy; /* once it leads */
    int leads, is_over, status;
    int64_t claims_until_ns; /* until then the standby dials the driver that it replaced */
};

static void standby_leave_with(struct waiting *w, int status)
{
    w->is_over = 1;
    w->status = status;
}

/* ---- the job ---- */

static int check_job(struct waiting *w, const struct legacy *l, struct err *err)
{
    struct options *o = w->options;
    const char *backend = device_is_cuda(o->device) ? "cuda" : "cpu";
    int rc;

    if (strcmp(backend, l->device) != 0)
        return err_set(err, ERR_ARG,
                       "this job runs on %s, and this standby would lead it on %s; choose another "
                       "--device",
                       l->device, backend);
    rc = job_unpack(l->job.data, l->job.len, "the driver's job", &w->job, err);
    if (rc < 0)
        return rc;
    o->n_ranks = l->n_ranks;
    rc = job_check_supported(w->job, o->n_ranks, backend, err);
    if (rc == 0)
        rc = job_check_backend(w->job, backend, err);
    return rc == 0 ? files_check(o, w->job, err) : rc;
}

/* The trial of the job has ended: data, model and device could be opened, or not. */
static void on_tried(void *arg, const struct err *why)
{
    struct waiting *w = arg;
    int64_t now = daemon_enter(&w->server.daemon);

    if (!w->is_over)
        standby_checked(w->standby, now, why ? why->msg : NULL);
    daemon_leave(&w->server.daemon);
}

/* The driver's Welcome brought the job: a standby that could not lead it should say so now.  A
 * driver that was started again may bring another one, with more epochs for instance. */
static void standby_load_job(struct waiting *w, int64_t now)
{
    struct legacy l = standby_legacy(w->standby);
    struct hash128 hash;
    struct err err;

    if (!l.job.len || w->is_over)
        return;
    hash = hash_of(l.job.data, l.job.len);
    if (w->job && hash_equal(hash, w->job_hash))
        return;
    job_free(w->job);
    w->server.job = w->job = NULL;
    w->job_hash = hash;
    if (check_job(w, &l, &err) < 0) {
        standby_checked(w->standby, now, err.msg);
        return;
    }
    w->server.job = w->job;
    server_limit_strangers(&w->server); /* followers that wait are strangers, too */
    trial_begin(&w->trial, w->job);
}

/* ---- the connection with the driver ---- */

static void on_driver_frame(void *arg, struct conn *c, const uint8_t *body, size_t len)
{
    struct waiting *w = arg;
    Wire__Control *m = conn_unpack(c, body, len);

    if (!m)
        return;
    int64_t now = daemon_enter(&w->server.daemon);
    if (!w->is_over)
        standby_message(w->standby, now, 0, m);
    standby_load_job(w, now);
    daemon_leave(&w->server.daemon);
    msg_free(m);
}

static void on_driver_closed(void *arg, struct conn *c, const struct err *why)
{
    struct waiting *w = arg;
    int64_t now = daemon_enter(&w->server.daemon);

    (void)c;
    w->conn = NULL;
    if (why && why->code == ERR_REFUSED && !w->job && !w->is_over) { /* it has another secret */
        log_error("%s", why->msg);
        standby_leave_with(w, STATUS_REFUSED);
    } else if (!w->is_over) {
        standby_closed(w->standby, now, 0, why);
    }
    daemon_leave(&w->server.daemon);
}

/* Ignore what the driver that was replaced sends.  It closes the connection. */
static void on_claim_frame(void *arg, struct conn *c, const uint8_t *body, size_t len)
{
    (void)arg;
    (void)c;
    (void)body;
    (void)len;
}

static void claim_again(struct waiting *w)
{
    if (clock_mono_ns() < w->claims_until_ns)
        dialer_start(w->dialer, 1);
}

static void on_claim_closed(void *arg, struct conn *c, const struct err *why)
{
    struct waiting *w = arg;

    (void)c;
    (void)why;
    w->conn = NULL;
    claim_again(w);
}

static void standby_on_connected(void *arg, struct conn *c)
{
    static const struct conn_events driver = {on_driver_frame, on_driver_closed};
    static const struct conn_events claim = {on_claim_frame, on_claim_closed};
    struct waiting *w = arg;

    w->conn = c;
    conn_listen(c, w->leads ? &claim : &driver, w);
    if (w->leads) {
        conn_send(c, standby_claim(w->standby));
        return;
    }
    int64_t now = daemon_enter(&w->server.daemon);
    standby_connected(w->standby, now);
    daemon_leave(&w->server.daemon);
}

static void standby_on_gave_up(void *arg, const struct err *why)
{
    struct waiting *w = arg;

    if (w->leads) {
        claim_again(w);
    } else if (w->job) { /* the session says when it gives up */
        dialer_start(w->dialer, 1);
    } else {
        log_error("%s", why->msg);
        standby_leave_with(w, STATUS_REFUSED);
    }
}

/* ---- the followers ---- */

static void standby_on_frame(void *arg, struct conn *c, const uint8_t *body, size_t len)
{
    struct peer *peer = arg;
    struct waiting *w = peer->owner;
    Wire__Control *m = conn_unpack(c, body, len);
    int64_t number = peer->number;

    if (!m)
        return;
    int64_t now = daemon_enter(&w->server.daemon);
    if (!w->is_over)
        standby_message(w->standby, now, number, m);
    /* Once it leads, and before there is a driver, each first message waits for that. */
    if ((standby_holds(w->standby, number) || w->leads) && !peer->hello) {
        peer->hello = m;
        m = NULL;
    }
    daemon_leave(&w->server.daemon);
    if (m)
        msg_free(m);
}

static void standby_on_closed(void *arg, struct conn *c, const struct err *why)
{
    struct peer *peer = arg;
    struct waiting *w = peer->owner;
    int64_t number = peer->number, now = daemon_enter(&w->server.daemon);

    (void)c;
    peers_remove(&w->server.peers, number);
    if (!w->is_over)
        standby_closed(w->standby, now, number, why);
    daemon_leave(&w->server.daemon);
}

static void standby_on_accepted(void *arg, struct conn *c)
{
    static const struct conn_events events = {standby_on_frame, standby_on_closed};
    struct waiting *w = arg;

    if (w->server.driver)
        server_accept(&w->server, c);
    else
        conn_listen(c, &events, peers_add(&w->server.peers, c, w));
}

/* ---- what the session wants ---- */

static void standby_do_send(void *arg, int64_t number, struct frame *f)
{
    struct waiting *w = arg;
    struct conn *c = number ? peers_find(&w->server.peers, number) : w->conn;

    if (c)
        conn_send(c, f);
    else
        frame_unref(f);
}

static void standby_do_close(void *arg, int64_t number)
{
    struct waiting *w = arg;
    struct conn *c = number ? peers_remove(&w->server.peers, number) : w->conn;

    if (c)
        conn_close(c);
    if (!number)
        w->conn = NULL;
}

static void standby_do_seek(void *arg, int is_again, const char *other)
{
    struct waiting *w = arg;

    (void)is_again;
    (void)other;
    dialer_limit_pause(w->dialer, w->job ? SEEK_PAUSE_MS : 0);
    dialer_start(w->dialer, w->job != NULL);
}

static void standby_on_finished(void *arg, const struct action *end)
{
    struct waiting *w = arg;
    int status = end->finished.status;

    w->leads = end->finished.is_leader;
    if (!w->leads && status == STATUS_OK)
        log_info("%s", end->finished.text);
    else if (!w->leads && status == STATUS_STOPPED)
        log_warn("%s", end->finished.text);
    else if (!w->leads)
        log_error("%s", end->finished.text);
    dialer_stop(w->dialer);
    standby_leave_with(w, status);
}

static void standby_on_idle_stop(void *arg, const char *signal)
{
    (void)signal;
    standby_leave_with(arg, STATUS_STOPPED);
}

/* ---- the session as daemon/daemon calls it ---- */

static void standby_session_report(void *m, int64_t now, struct report *r)
{
    (void)m;
    (void)now;
    report_free(r); /* it has no engine */
}

static void standby_session_progress(void *m, int64_t now, const struct progress *p)
{
    (void)m;
    (void)now;
    (void)p;
}

static void standby_session_ring(void *m, int64_t now, const struct collective *c, int n)
{
    (void)m;
    (void)now;
    (void)c;
    (void)n;
}

static void standby_session_stop(void *m, int64_t now, const char *why)
{
    standby_stop(m, now, why);
}
static void standby_session_notice(void *m, int64_t now, const struct notice *n)
{
    char text[64];

    snprintf(text, sizeof text, "the notice that this machine goes away (%s)", n->source);
    standby_stop(m, now, text);
}
static void standby_session_tick(void *m, int64_t now) { standby_tick(m, now); }
static int64_t standby_session_deadline(const void *m) { return standby_deadline(m); }
static int standby_session_next(void *m, struct action *out) { return standby_next(m, out); }

static void standby_session_describe(const void *m, int64_t now, struct buf *out)
{
    standby_describe(m, now, out);
}

static const struct daemon_machine machine = {standby_session_report,   standby_session_progress,
                                              standby_session_stop,     standby_session_notice,
                                              standby_session_tick,     standby_session_deadline,
                                              standby_session_next,     standby_session_describe,
                                              standby_session_describe, standby_session_ring};

static const struct daemon_hooks hooks = {.send = standby_do_send,
                                          .close = standby_do_close,
                                          .seek = standby_do_seek,
                                          .finished = standby_on_finished,
                                          .idle_stop = standby_on_idle_stop};

/* ---- life ---- */

static int open_both_trusts(struct waiting *w, struct err *err)
{
    const struct daemon_options *o = &w->options->common;
    struct trust_options t = {
        .role = TLS_DRIVER, .files = &o->secret_files, .insecure = o->insecure, .has_guests = 1};
    int rc = trust_open(&t, &w->server.trust, err);

    t.role = TLS_FOLLOWER;
    if (rc == 0)
        rc = trust_open(&t, &w->trust, err);
    w->server.daemon.engine_options.has_secret = w->server.trust.tls != NULL;
    return rc;
}

static int start_listening(struct waiting *w, struct err *err)
{
    const struct listener_options l = {.host = w->options->host,
                                       .port = (int)w->options->port,
                                       .max_strangers = MAX_STRANGERS,
                                       .stranger_ms = STRANGER_MS,
                                       .takes_relays = 1,
                                       .tls = w->server.trust.tls,
                                       .accepted = standby_on_accepted,
                                       .arg = w};
    int rc = listener_new(&w->server.daemon.loop, &l, &w->server.listener, err);

    if (rc == 0)
        rc = server_write_port_file(&w->server, err);
    if (rc == 0)
        log_info("standby of the driver at %s, listening on %s", w->where,
                 listener_text(w->server.listener));
    return rc;
}

static int standby_start_dialing(struct waiting *w, struct err *err)
{
    struct dialer_options d = {.host = w->options->root_host,
                               .port = w->options->root_port,
                               .tls = w->trust.tls,
                               .wait_ms = w->options->wait_s < 0 ? -1 : 1000 * w->options->wait_s,
                               .seed = (uint64_t)clock_mono_ns() ^ (uint64_t)getpid() << 32,
                               .connected = standby_on_connected,
                               .gave_up = standby_on_gave_up,
                               .arg = w};

    return dialer_new(&w->server.daemon.loop, &d, &w->dialer, err);
}

static void standby_make_id(char out[HASH_TEXT_LEN])
{
    struct hash128 bits = {(uint64_t)getpid(), (uint64_t)clock_mono_ns()};

    if (getrandom(&bits, sizeof bits, 0) < 0)
        bits.lo ^= (uint64_t)host_pid_space() << 32;
    hash_to_text(bits, out);
}

static void standby_start_session(struct waiting *w)
{
    const struct options *o = w->options;
    const struct standby_options s = {.id = w->id,
                                      .port = listener_port(w->server.listener),
                                      .host = w->host.name,
                                      .host_id = w->host.id,
                                      .pid = getpid(),
                                      .pid_space = host_pid_space(),
                                      .device = o->device,
                                      .checks_job = 1,
                                      .advertise = o->advertise[0] ? o->advertise : NULL,
                                      .driver = w->where};

    w->standby = standby_new(&s, clock_mono_ns());
    daemon_attach(&w->server.daemon, &machine, w->standby);
    daemon_leave(&w->server.daemon);
}

/* The standby has the votes: from here on this process is the driver. */
static int standby_lead(struct waiting *w)
{
    struct server *s = &w->server;

    w->legacy = standby_legacy(w->standby);
    options_give_ranks(w->options, w->legacy.n_ranks);
    s->job = w->job;
    s->legacy = &w->legacy;
    s->standby_id = w->id;
    s->start_ns = clock_mono_ns(); /* of its time as the driver */
    w->claims_until_ns = s->start_ns + 1000000 * w->legacy.driver_timeout_ms;
    dialer_limit_pause(w->dialer, 0);
    dialer_start(w->dialer, 1);
    return server_lead(s);
}

/* A standby needs its key only once it leads, when it is too late for another one. */
static int standby_check_key(const struct waiting *w, struct err *err)
{
    struct signing_key *key = NULL;
    int rc = w->options->sign ? signing_open_private(w->options->sign, &key, err) : 0;

    signing_key_free(key);
    return rc < 0 ? err_wrap(err, "--sign") : 0;
}

static int standby_open_all(struct waiting *w, struct err *err)
{
    int rc = standby_check_key(w, err);

    if (rc == 0)
        rc = open_both_trusts(w, err);
    if (rc == 0)
        rc = start_listening(w, err);
    return rc == 0 ? standby_start_dialing(w, err) : rc;
}

/* Close the standby's own handles, before server_end runs the loop to its end. */
static void close_own(void *arg)
{
    struct waiting *w = arg;
    struct engine *stuck;

    w->claims_until_ns = 0;
    standby_do_close(w, 0);
    dialer_close(w->dialer);
    w->dialer = NULL;
    stuck = trial_close(&w->trial);
    if (stuck)
        w->server.daemon.engine = stuck; /* daemon_close leaves without it */
}

int standby_run(struct options *o, int64_t start_ns)
{
    struct waiting *w = xcalloc(1, sizeof *w);
    struct server *s = &w->server;
    struct err err;
    int status;

    w->options = o;
    standby_make_id(w->id);
    daemon_host(&w->host);
    snprintf(w->where, sizeof w->where, strchr(o->root_host, ':') ? "[%s]:%d" : "%s:%d",
             o->root_host, o->root_port);
    if (server_init(s, o, start_ns, &err) < 0) {
        log_error("%s", err.msg);
        return STATUS_FAILED;
    }
    trial_init(&w->trial, &s->daemon.loop, o, on_tried, w);
    const struct daemon_hooks *leading = s->daemon.hooks;
    s->daemon.hooks = &hooks;
    s->daemon.arg = w;
    if (standby_open_all(w, &err) < 0) {
        log_error("%s", err.msg);
        standby_leave_with(w, STATUS_USAGE);
    } else {
        standby_start_session(w);
        pulse_start(&s->daemon.pulse);
    }
    while (!w->is_over)
        uv_run(&s->daemon.loop, UV_RUN_ONCE);
    daemon_detach(&s->daemon, 0);
    s->daemon.hooks = leading;
    s->daemon.arg = s;
    s->on_end = close_own;
    s->on_end_arg = w;
    s->status = w->status;
    status = w->leads ? standby_lead(w) : server_end(s);
    trust_close(&w->trust);
    standby_free(w->standby);
    job_free(w->job);
    free(w);
    return status;
}
