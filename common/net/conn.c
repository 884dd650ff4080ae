/* Frames over tls.h: incoming bytes are cut into frames, outgoing frames are queued.
 * A conn lives until the loop has closed its handles, whoever closed it first. */
#include "net/conn.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "net/tls.h"

struct conn {
    struct tls tls;
    struct frame_reader reader;
    const struct conn_events *events; /* NULL: no function is called */
    void *arg;
    void (*opened)(void *arg); /* NULL: no caller waits for the opening, or it was told */
    void *opened_arg;
    void (*settled)(void *arg);
    void *settled_arg;
    uv_idle_t later;     /* runs once, for a failure that conn_send found */
    struct err *failure; /* NULL: none; half of a KiB, of which few have need */
    int is_over;         /* closed by either side; the socket may linger */
    int is_unheard;      /* no byte has come of what may be a relay without TLS */
};

static void conn_settle(struct conn *c)
{
    void (*settled)(void *) = c->settled;

    c->settled = NULL;
    if (settled)
        settled(c->settled_arg);
}

void conn_fail(struct conn *c, const struct err *why)
{
    const struct conn_events *events = c->events;

    c->events = NULL;
    c->opened = NULL;
    c->is_over = 1;
    if (events)
        events->closed(c->arg, c, why);
    tls_close(&c->tls, CONN_LINGER_MS);
}

static void conn_answer_done(void *owner) { (void)owner; }

/* The answer to a peer that began with TLS while this side has none: the start of a frame, which
 * net/tls.c recognizes. */
static void answer_tls(struct conn *c)
{
    static const uint8_t plain[FRAME_HEADER] = {'D', 'P', 'T', '1'};
    struct err err;

    if (!c->tls.context && frame_reader_is_tls(&c->reader))
        tls_send(&c->tls, plain, sizeof plain, conn_answer_done, NULL, &err);
}

static void on_open(void *arg)
{
    struct conn *c = arg;
    void (*opened)(void *) = c->opened;

    c->opened = NULL;
    if (opened)
        opened(c->opened_arg);
}

static void conn_on_bytes(void *arg, const void *data, size_t len)
{
    struct conn *c = arg;
    const uint8_t *body;
    size_t body_len;
    struct err err;
    int rc;

    if (c->is_unheard) {
        c->is_unheard = 0;
        on_open(c);
    }
    if (frame_reader_add(&c->reader, data, len, &err) < 0) {
        err_wrap(&err, "from %s", c->tls.stream.peer);
        conn_fail(c, &err);
        return;
    }
    while (c->events && (rc = frame_reader_next(&c->reader, &body, &body_len, &err)) != 0) {
        if (rc < 0) {
            err_wrap(&err, "from %s", c->tls.stream.peer);
            answer_tls(c);
            conn_fail(c, &err);
            return;
        }
        c->events->frame(c->arg, c, body, body_len);
    }
    frame_reader_rest(&c->reader);
}

static void conn_on_ended(void *arg, const struct err *why) { conn_fail(arg, why); }

static void on_later_closed(uv_handle_t *h)
{
    struct conn *c = h->data;

    frame_reader_fini(&c->reader);
    free(c->failure);
    free(c);
}

static void conn_on_gone(void *arg)
{
    struct conn *c = arg;

    conn_settle(c);
    uv_close((uv_handle_t *)&c->later, on_later_closed);
}

int conn_new(uv_loop_t *loop, size_t frame_limit, const struct tls_context *tls, struct conn **out,
             struct err *err)
{
    static const struct tls_events events = {{conn_on_bytes, conn_on_ended, conn_on_gone}, on_open};
    struct conn *c = xcalloc(1, sizeof *c);
    int rc = tls_init(&c->tls, loop, tls, CONN_QUEUE_LIMIT, &events, c, err);

    if (rc < 0) {
        free(c);
        return rc;
    }
    uv_idle_init(loop, &c->later);
    c->later.data = c;
    frame_reader_init(&c->reader, frame_limit);
    *out = c;
    return 0;
}

uv_tcp_t *conn_socket(struct conn *c) { return &c->tls.stream.tcp; }
int conn_connect(struct conn *c, const struct sockaddr *to, int lane,
                 void (*done)(void *arg, int status), void *arg)
{
    return stream_connect(&c->tls.stream, to, lane, done, arg);
}

int conn_start(struct conn *c, struct err *err) { return tls_start(&c->tls, err); }

int conn_start_over(struct conn *c, struct mux *m, struct err *err)
{
    ASSERT(!c->tls.context);
    return stream_start_over(&c->tls.stream, m, err);
}

void conn_await_greeting(struct conn *c, void (*greeted)(void *arg, const void *rest, size_t len),
                         void *arg)
{
    c->is_unheard = !c->tls.context;
    stream_await_greeting(&c->tls.stream, greeted, arg);
}

const char *conn_peer(const struct conn *c) { return c->tls.stream.peer; }
const char *conn_peer_number(const struct conn *c) { return c->tls.stream.peer_number; }
const char *conn_local_number(const struct conn *c) { return c->tls.stream.local_number; }

void conn_listen(struct conn *c, const struct conn_events *events, void *arg)
{
    c->events = events;
    c->arg = arg;
}

void conn_on_settled(struct conn *c, void (*left)(void *arg), void *arg)
{
    c->settled = left;
    c->settled_arg = arg;
}

Wire__Control *conn_unpack(struct conn *c, const uint8_t *body, size_t len)
{
    Wire__Control *m;
    struct err err;

    if (msg_unpack(body, len, &m, &err) == 0)
        return m;
    err_wrap(&err, "from %s", c->tls.stream.peer);
    conn_fail(c, &err);
    return NULL;
}

int conn_is_over(const struct conn *c) { return c->is_over; }

int conn_is_open(const struct conn *c) { return tls_is_open(&c->tls) && !c->is_unheard; }

void conn_on_open(struct conn *c, void (*opened)(void *arg), void *arg)
{
    c->opened = opened;
    c->opened_arg = arg;
}

static void frame_done(void *owner) { frame_unref(owner); }

static void on_later(uv_idle_t *idle)
{
    struct conn *c = idle->data;

    uv_idle_stop(idle);
    if (c->events)
        conn_fail(c, c->failure);
}

void conn_send(struct conn *c, struct frame *f)
{
    struct err err;

    if (tls_send(&c->tls, f->data, f->len, frame_done, f, &err) == 0 || c->failure)
        return;
    c->failure = xmalloc(sizeof *c->failure);
    *c->failure = err;
    if (c->tls.stream.state == STREAM_OPEN)
        uv_idle_start(&c->later, on_later);
}

void conn_welcome(struct conn *c)
{
    c->reader.limit = FRAME_MAX;
    conn_settle(c);
}

void conn_close(struct conn *c)
{
    c->events = NULL;
    c->opened = NULL;
    c->is_over = 1;
    tls_close(&c->tls, CONN_LINGER_MS);
}

void conn_abort(struct conn *c)
{
    c->events = NULL;
    c->opened = NULL;
    c->is_over = 1;
    tls_close(&c->tls, 0);
}
