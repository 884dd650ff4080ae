/* How a mux begins.  Happy path, connecting side: connect, greet -> the other side's greeting ->
 * with a secret, TLS -> `ready`.  Accepting side: the greeting's magic was read by the stream that
 * was accepted -> greet -> the rest of the greeting -> TLS -> `ready`.  Until then nothing of the
 * channels leaves, and nothing that comes is a piece.
 *
 * Failure modes: no answer, or one that is no greeting; one side has no secret, or another one; the
 * driver does not prove its role (net/tls.h).  Ended tells. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "net/mux_impl.h"

enum { STREAM_LIMIT = 1 << 20 };

static int mux_has_tls(const struct mux *m) { return m->tls.context != NULL; }

/* ---- the greeting ---- */

/* Both sides have greeted, and with TLS each has proven that it knows the secret. */
static void mux_on_open(void *arg)
{
    struct mux *m = arg;

    if (m->side == PIECE_CONNECTS)
        uv_timer_stop(&m->patience);
    m->state = MUX_OPEN;
    mux_wake(m);
    if (m->events && m->events->ready)
        m->events->ready(m->arg);
}

static int take_greeting(struct mux *m, struct err *err)
{
    const struct piece_greeting own = {m->side, mux_has_tls(m)};
    int rc = piece_check_greeting(m->head, &own, err);

    if (rc < 0)
        return rc;
    m->was_greeted = 1;
    if (!mux_has_tls(m))
        mux_on_open(m);
    return 0;
}

/* These are the first bytes, which are not encrypted. */
static void mux_on_greeting(void *arg, const void *data, size_t len)
{
    struct mux *m = arg;
    const size_t n = len < PIECE_GREETING - m->n_head ? len : PIECE_GREETING - m->n_head;
    struct err err;
    int rc;

    memcpy(m->head + m->n_head, data, n);
    m->n_head += n;
    if (m->n_head < PIECE_GREETING)
        return;
    m->n_head = 0;
    rc = take_greeting(m, &err);
    if (rc == 0 && m->state != MUX_OVER)
        rc = tls_enter(&m->tls, (const uint8_t *)data + n, len - n, &err);
    if (rc < 0)
        mux_fail(m, &err, mux_status_of(&err));
}

/* ---- life ---- */

static void mux_on_sent(void *arg) { mux_wake(arg); }

static int mux_new(uv_loop_t *loop, const struct tls_context *tls, enum piece_side side,
                   const struct mux_user *user, struct mux **out, struct err *err)
{
    static const struct tls_events below = {
        {mux_on_bytes, mux_on_ended, mux_on_gone}, mux_on_open, mux_on_sent};
    struct mux *m = xcalloc(1, sizeof *m);
    int rc;

    m->side = side;
    m->events = user->events;
    m->arg = user->arg;
    m->last_ready = &m->first_ready;
    rc = tls_init(&m->tls, loop, tls, STREAM_LIMIT, &below, m, err);
    if (rc < 0) {
        free(m);
        return rc;
    }
    uv_idle_init(loop, &m->flush);
    uv_timer_init(loop, &m->patience);
    m->flush.data = m->patience.data = m;
    m->n_handles = 2;
    *out = m;
    return 0;
}

static void on_no_answer(uv_timer_t *t)
{
    struct mux *m = t->data;
    struct err err;

    err_set(&err, ERR_TIMEOUT, "no answer in %d s", MUX_READY_MS / 1000);
    mux_fail(m, &err, UV_ETIMEDOUT);
}

static void fail_connect(struct mux *m, int status)
{
    struct err err;

    err_set(&err, ERR_PEER, "%s (%s)", uv_strerror(status), uv_err_name(status));
    mux_fail(m, &err, status);
}

static void on_no_connect(uv_idle_t *idle)
{
    struct mux *m = idle->data;

    fail_connect(m, m->status);
}

/* The greeting leaves at once, so that a side of another version gets it before the connection ends
 * for that. */
static int mux_greet(struct mux *m, struct err *err)
{
    const struct piece_greeting own = {m->side, mux_has_tls(m)};
    uint8_t greeting[PIECE_GREETING];

    piece_greet(&own, greeting);
    return tls_start_after(&m->tls, greeting, sizeof greeting, mux_on_greeting, err);
}

static void mux_on_connect(uv_connect_t *req, int status)
{
    struct mux *m = container_of(req, struct mux, connect);
    struct err err;

    if (m->state == MUX_OVER)
        return;
    if (status < 0)
        fail_connect(m, status);
    else if (mux_greet(m, &err) < 0)
        mux_fail(m, &err, UV_ECONNRESET);
}

int mux_connect(uv_loop_t *loop, const struct sockaddr *to, const struct tls_context *tls,
                const struct mux_user *user, struct mux **out, struct err *err)
{
    struct mux *m;
    int rc = mux_new(loop, tls, PIECE_CONNECTS, user, &m, err);

    if (rc < 0)
        return rc;
    addr_text(to, m->tls.stream.peer);
    addr_number(to, m->tls.stream.peer_number);
    m->status = uv_tcp_connect(&m->connect, &m->tls.stream.tcp, to, mux_on_connect);
    if (m->status < 0)
        uv_idle_start(&m->flush, on_no_connect);
    uv_timer_start(&m->patience, on_no_answer, MUX_READY_MS, 0);
    *out = m;
    return 0;
}

/* The magic was read already. */
static int begin_accepted(struct mux *m, struct err *err)
{
    int rc = mux_greet(m, err);

    if (rc < 0)
        return rc;
    memcpy(m->head, piece_magic, PIECE_MAGIC);
    m->n_head = PIECE_MAGIC;
    return 0;
}

int mux_accept(uv_loop_t *loop, int fd, const struct tls_context *tls, const struct mux_user *user,
               struct mux **out, struct err *err)
{
    struct mux *m;
    int rc = mux_new(loop, tls, PIECE_ACCEPTS, user, &m, err), status;

    if (rc < 0) {
        close(fd);
        return rc;
    }
    status = uv_tcp_open(&m->tls.stream.tcp, fd);
    if (status < 0) {
        close(fd);
        rc = err_set(err, ERR_IO, "a relay's socket: %s (%s)", uv_strerror(status),
                     uv_err_name(status));
    } else {
        rc = begin_accepted(m, err);
    }
    if (rc < 0)
        mux_abort(m);
    else
        *out = m;
    return rc;
}
