/* member - connects one follower of the swarm, and carries out its session's actions: messages go
 * out on the connection, commands are answered by pretend.h. */
#include "member.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "pretend.h"

enum { RANKS_PER_HOST = 8, RANKS_PER_ADDRESS = 16384 };

/* ---- in the place of an engine ---- */

static void heard(struct member *m, enum heard what) { m->crowd->heard(m->crowd, m, what); }

static void obey(struct member *m, const struct cmd *c)
{
    struct report *r = c->kind == CMD_TRAIN ? pretend_first_step(c) : pretend_answer(c);

    m->generation = c->generation;
    m->training_since_ns = c->kind == CMD_TRAIN ? clock_mono_ns() : 0;
    if (c->kind == CMD_OPEN)
        heard(m, HEARD_WELCOME);
    if (c->kind == CMD_FORM)
        heard(m, HEARD_FORM);
    if (c->kind == CMD_TRAIN)
        heard(m, HEARD_TRAIN);
    follower_report(m->follower, clock_mono_ns(), r);
}

static void abort_training(struct member *m)
{
    if (!m->training_since_ns)
        return;
    m->training_since_ns = 0;
    heard(m, HEARD_PAUSE);
    follower_report(m->follower, clock_mono_ns(), pretend_aborted(m->generation));
}

/* ---- the session's actions ---- */

static void let_go(struct member *m)
{
    if (m->conn)
        conn_close(m->conn);
    m->conn = NULL;
}

static void finish(struct member *m, int status, const char *text)
{
    if (m->is_finished)
        return;
    m->is_finished = 1;
    m->status = status;
    m->text = xstrdup(text);
    let_go(m);
    heard(m, HEARD_FINISHED);
}

static void do_action(struct member *m, struct action *a)
{
    switch (a->kind) {
    case ACTION_SEND:
        if (m->conn) {
            conn_send(m->conn, a->send.frame);
            a->send.frame = NULL;
        }
        break;
    case ACTION_CLOSE:
        let_go(m);
        break;
    case ACTION_COMMAND:
        obey(m, a->command);
        break;
    case ACTION_ABORT:
        abort_training(m);
        break;
    case ACTION_FINISHED:
        finish(m, a->finished.status, a->finished.text);
        break;
    case ACTION_RING: /* without an engine there are no collectives to tell */
        follower_ring(m->follower, clock_mono_ns(), NULL, 0);
        break;
    case ACTION_SEEK: /* its followers keep no state */
    case ACTION_TRUST:
    case ACTION_REQUEST:
    case ACTION_INJECT:
    case ACTION_INCIDENT:
    case ACTION_TRACE: /* it has no engine */
    case ACTION_LOG:   /* it would be thousands of equal lines */
    case ACTION_EVENT:
        break;
    }
}

static void drain(struct member *m)
{
    struct action a;

    while (!m->is_finished && follower_next(m->follower, &a)) {
        do_action(m, &a);
        action_fini(&a);
    }
}

void member_tick(struct member *m, int64_t now_ns)
{
    struct progress p;

    if (!m->follower || m->is_finished || now_ns < follower_deadline(m->follower))
        return;
    if (m->training_since_ns) {
        pretend_progress(m->generation, m->training_since_ns, now_ns, &p);
        follower_progress(m->follower, now_ns, &p);
    }
    follower_tick(m->follower, now_ns);
    drain(m);
}

/* ---- the connection ---- */

static void on_frame(void *arg, struct conn *c, const uint8_t *body, size_t len)
{
    struct member *m = arg;
    Wire__Control *message = conn_unpack(c, body, len);

    if (!message)
        return;
    follower_message(m->follower, clock_mono_ns(), message);
    msg_free(message);
    drain(m);
}

static void on_closed(void *arg, struct conn *c, const struct err *why)
{
    struct member *m = arg;

    (void)c;
    m->conn = NULL;
    if (!m->follower) {
        finish(m, STATUS_FAILED, why ? why->msg : "the driver closed the connection");
        return;
    }
    follower_closed(m->follower, clock_mono_ns(), why);
    drain(m);
}

static void on_open(void *arg)
{
    static const char *const backends[] = {"cpu"};
    struct member *m = arg;
    struct follower_options o = {.rank = -1,
                                 .host = m->host,
                                 .host_id = m->host,
                                 .pid = 1000 + m->number,
                                 .device = "cpu",
                                 .backends = backends,
                                 .n_backends = ARRAY_LEN(backends),
                                 .driver = conn_peer(m->conn)};

    m->follower = follower_new(&o, clock_mono_ns());
    drain(m);
    heard(m, HEARD_OPEN);
}

static const struct conn_events member_events = {on_frame, on_closed};

static void on_connected(uv_connect_t *req, int status)
{
    struct member *m = container_of(req, struct member, connecting);
    struct err err;

    if (!m->conn) /* the connection was closed meanwhile */
        return;
    if (status < 0) {
        err_set(&err, ERR_PEER, "connecting: %s", uv_strerror(status));
        conn_abort(m->conn);
        on_closed(m, m->conn, &err);
        return;
    }
    conn_listen(m->conn, &member_events, m);
    if (conn_start(m->conn, &err) < 0) {
        conn_abort(m->conn);
        on_closed(m, m->conn, &err);
    } else if (conn_is_open(m->conn)) {
        on_open(m);
    } else {
        conn_on_open(m->conn, on_open, m);
    }
}

/* One address has too few ports for all: each 127.0.0.x takes some of them. */
static int bind_member(struct member *m)
{
    struct sockaddr_in from;
    char address[16];
    int rc;

    if (m->number < RANKS_PER_ADDRESS)
        return 0;
    snprintf(address, sizeof address, "127.0.0.%d", 1 + m->number / RANKS_PER_ADDRESS);
    rc = uv_ip4_addr(address, 0, &from);
    return rc < 0 ? rc : uv_tcp_bind(conn_socket(m->conn), (struct sockaddr *)&from, 0);
}

static int connect_alone(struct member *m, struct err *err)
{
    int rc = bind_member(m);

    if (rc == 0)
        rc = uv_tcp_connect(&m->connecting, conn_socket(m->conn),
                            (struct sockaddr *)&m->crowd->driver, on_connected);
    return rc < 0 ? err_set(err, ERR_IO, "connecting: %s", uv_strerror(rc)) : 0;
}

/* Its members hear of it, too. */
static void on_relay_ended(void *arg, const struct err *why, int status)
{
    (void)why;
    (void)status;
    ((struct relay *)arg)->mux = NULL;
}

static void on_relay_ready(void *arg)
{
    struct relay *r = arg;

    r->is_ready = 1;
    for (struct member *m = r->first; m; m = m->next)
        if (m->conn)
            on_open(m);
}

static int connect_relayed(struct member *m, struct err *err)
{
    static const struct mux_events events = {.ready = on_relay_ready, .ended = on_relay_ended};
    struct crowd *c = m->crowd;
    struct relay *r = &c->relay[(m->number - 1) / c->n_relayed];
    const struct mux_user user = {&events, r};
    int rc = 0;

    if (!r->mux)
        rc = mux_connect(&c->loop, (struct sockaddr *)&c->driver, c->tls, &user, &r->mux, err);
    if (rc == 0)
        conn_listen(m->conn, &member_events, m);
    if (rc == 0)
        rc = conn_start_over(m->conn, r->mux, err);
    if (rc < 0)
        return rc;
    m->next = r->first;
    r->first = m;
    if (r->is_ready)
        on_open(m);
    return 0;
}

void member_start(struct member *m, struct crowd *c, int number)
{
    struct err err;

    *m = (struct member){.crowd = c, .number = number};
    snprintf(m->host, sizeof m->host, "node%05d", (number - 1) / RANKS_PER_HOST);
    /* Behind a relay, the relay has TLS. */
    if (conn_new(&c->loop, FRAME_MAX, c->n_relayed ? NULL : c->tls, &m->conn, &err) < 0) {
        finish(m, STATUS_FAILED, err.msg);
        return;
    }
    if ((c->n_relayed ? connect_relayed(m, &err) : connect_alone(m, &err)) < 0) {
        conn_abort(m->conn);
        m->conn = NULL;
        finish(m, STATUS_FAILED, err.msg);
    }
}

void member_leave(struct member *m)
{
    if (m->conn)
        conn_abort(m->conn);
    m->conn = NULL;
    m->has_left = 1;
    finish(m, STATUS_STOPPED, "it left");
}

void member_fini(struct member *m)
{
    if (m->conn)
        conn_abort(m->conn);
    m->conn = NULL;
    follower_free(m->follower);
    free(m->text);
}

void relay_fini(struct relay *r)
{
    if (r->mux)
        mux_abort(r->mux);
    r->mux = NULL;
}
