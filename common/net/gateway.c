/* One connection of a process is a pump: a stream to the process, and a channel of a trunk, which
 * is the connection to a driver.
 *
 * Happy path: a request comes from a lane -> the trunk to that address, or a new one -> the driver
 * greets it -> the channel is opened, the process gets the answer -> bytes both ways -> both sides
 * end -> with the last pump the trunk is closed.
 *
 * Failure modes: no driver answers -> the process gets the error, as its own connect would have
 * had; the secrets differ -> the next secret, or the process gets the text; the trunk breaks -> all
 * of its processes see their streams end; a process is killed -> its stream ends, and the driver
 * sees the channel's end; a process does not read -> what the channel has granted waits here, at
 * most MUX_WINDOW; the driver does not end a channel that its process has ended ->
 * GATEWAY_LINGER_MS.
 *
 * Objects are taken off the lists when their handles are closed, never while a list is walked. */
#include "net/gateway.h"

#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "net/addr.h"
#include "net/lane.h"
#include "net/mux.h"
#include "net/stream.h"
#include "net/tls.h"

enum { PUMP_BYTES = 16 << 10 }; /* read from a process, and not yet taken by its channel */

struct gateway {
    uv_loop_t *loop;
    struct tls_context *tls;
    struct lane *lanes;
    struct trunk *trunks;
    struct pump *pumps;
    uv_timer_t patience; /* runs from gateway_close on */
    int is_closing;
};

/* The relay's end of a lane. */
struct lane {
    struct gateway *gateway;
    struct lane *next;
    uv_poll_t poll;
    int fd;
};

struct trunk {
    struct gateway *gateway;
    struct trunk *next;
    struct sockaddr_storage to;
    struct mux *mux;   /* NULL: it is over */
    uv_timer_t unused; /* runs when the last pump has left */
    int n_pumps, is_ready;
};

struct pump {
    struct gateway *gateway;
    struct pump *next;
    struct trunk *trunk; /* NULL: it has left the trunk */
    struct mux_channel channel;
    int has_channel; /* the channel is open */
    uv_pipe_t pipe;
    uv_timer_t linger;
    uv_shutdown_t shutdown;
    int n_handles, n_writes;
    int is_sending; /* `in` is the channel's */
    char in[PUMP_BYTES];
};

/* Bytes for a process that did not take them at once. */
struct pump_write {
    uv_write_t req;
    struct pump *pump;
    size_t len;
    char data[];
};

static void gateway_see_end(struct gateway *g);

/* ---- trunks ---- */

static void trunk_on_closed(uv_handle_t *h)
{
    struct trunk *t = h->data, **at = &t->gateway->trunks;
    struct gateway *g = t->gateway;

    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    free(t);
    gateway_see_end(g);
}

static void trunk_close(struct trunk *t)
{
    t->mux = NULL;
    uv_close((uv_handle_t *)&t->unused, trunk_on_closed);
}

static void trunk_on_unused(uv_timer_t *timer)
{
    struct trunk *t = timer->data;

    if (t->n_pumps || !t->mux)
        return;
    if (t->is_ready)
        mux_close(t->mux);
    else
        mux_abort(t->mux);
    trunk_close(t);
}

/* This may be within a callback of the mux, so the trunk is closed from the loop. */
static void pump_leave(struct pump *p)
{
    struct trunk *t = p->trunk;

    p->trunk = NULL;
    if (t && --t->n_pumps == 0 && t->mux)
        uv_timer_start(&t->unused, trunk_on_unused, 0, 0);
}

/* ---- the end of a pump ---- */

static void pump_free_when_done(struct pump *p)
{
    struct gateway *g = p->gateway;
    struct pump **at = &g->pumps;

    if (p->n_handles || p->is_sending)
        return;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    free(p);
    gateway_see_end(g);
}

static void pump_on_closed(uv_handle_t *h)
{
    struct pump *p = h->data;

    p->n_handles--;
    pump_free_when_done(p);
}

static int pump_is_closing(const struct pump *p)
{
    return uv_is_closing((const uv_handle_t *)&p->pipe);
}

static void pump_close(struct pump *p)
{
    if (pump_is_closing(p))
        return;
    if (p->has_channel)
        mux_drop(&p->channel);
    p->has_channel = 0;
    pump_leave(p);
    uv_close((uv_handle_t *)&p->pipe, pump_on_closed);
    uv_close((uv_handle_t *)&p->linger, pump_on_closed);
}

/* The channel is over.  The process still gets what has come. */
static void pump_finish(struct pump *p)
{
    p->has_channel = 0;
    pump_leave(p);
    uv_read_stop((uv_stream_t *)&p->pipe);
    uv_timer_stop(&p->linger);
    if (!p->n_writes)
        pump_close(p);
}

/* ---- from the driver to the process ---- */

static void pump_on_written(uv_write_t *req, int status)
{
    struct pump_write *w = container_of(req, struct pump_write, req);
    struct pump *p = w->pump;

    p->n_writes--;
    mux_took(&p->channel, w->len);
    free(w);
    if (status < 0 || (!p->has_channel && !p->n_writes))
        pump_close(p);
}

static void pump_write_later(struct pump *p, const char *data, size_t len)
{
    struct pump_write *w = xmalloc(sizeof *w + len);
    uv_buf_t buf = uv_buf_init(w->data, (unsigned)len);

    *w = (struct pump_write){.pump = p, .len = len};
    memcpy(w->data, data, len);
    p->n_writes++;
    if (uv_write(&w->req, (uv_stream_t *)&p->pipe, &buf, 1, pump_on_written) == 0)
        return;
    p->n_writes--;
    free(w);
    pump_close(p);
}

static void pump_on_bytes(void *arg, const void *data, size_t len)
{
    struct pump *p = arg;
    uv_buf_t buf = uv_buf_init((char *)data, (unsigned)len);
    int n = p->n_writes ? UV_EAGAIN : uv_try_write((uv_stream_t *)&p->pipe, &buf, 1);

    if (n < 0 && n != UV_EAGAIN) {
        pump_close(p);
        return;
    }
    if (n > 0)
        mux_took(&p->channel, (size_t)n);
    if (n < 0)
        n = 0;
    if ((size_t)n < len)
        pump_write_later(p, (const char *)data + n, len - (size_t)n);
}

static void pump_on_shut(uv_shutdown_t *req, int status)
{
    (void)req;
    (void)status; /* what follows is the process's end, or an error of its stream */
}

static void pump_on_channel_ended(void *arg, const struct err *why)
{
    struct pump *p = arg;

    if (why)
        pump_finish(p);
    else
        uv_shutdown(&p->shutdown, (uv_stream_t *)&p->pipe, pump_on_shut);
}

static void pump_on_channel_over(void *arg) { pump_finish(arg); }

/* ---- from the process to the driver ---- */

static void pump_on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct pump *p = h->data;

    (void)suggested;
    *buf = uv_buf_init(p->in, sizeof p->in);
}

static void pump_on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf);

/* The channel has taken what was read: go on reading. */
static void pump_on_sent(void *owner)
{
    struct pump *p = owner;

    p->is_sending = 0;
    if (pump_is_closing(p))
        pump_free_when_done(p);
    else if (p->has_channel)
        uv_read_start((uv_stream_t *)&p->pipe, pump_on_alloc, pump_on_read);
}

static void pump_on_linger(uv_timer_t *t) { pump_close(t->data); }

static void pump_on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct pump *p = s->data;

    if (n == 0)
        return;
    if (n != UV_EOF && (n < 0 || !p->has_channel)) {
        pump_close(p);
        return;
    }
    if (n > 0) {
        uv_read_stop(s);
        p->is_sending = 1;
        mux_send(&p->channel, buf->base, (size_t)n, pump_on_sent, p);
        return;
    }
    if (!p->has_channel) { /* the process waits no longer for its driver */
        pump_close(p);
        return;
    }
    uv_read_stop(s);
    uv_timer_start(&p->linger, pump_on_linger, GATEWAY_LINGER_MS, 0);
    mux_end(&p->channel);
}

/* ---- the beginning of a pump ---- */

static void pump_answer(struct pump *p, const struct lane_answer *a)
{
    uv_buf_t buf = uv_buf_init((char *)a, sizeof *a);

    /* It is the stream's first write, so there is room. */
    if (uv_try_write((uv_stream_t *)&p->pipe, &buf, 1) != sizeof *a || a->status < 0 || a->code)
        pump_close(p);
}

static void pump_fail(struct pump *p, int status)
{
    pump_answer(p, &(struct lane_answer){.status = status});
}

static void pump_join(struct pump *p)
{
    static const struct mux_channel_events events = {pump_on_bytes, pump_on_channel_ended,
                                                     pump_on_channel_over};
    struct lane_answer a = {.status = 0};
    int len = sizeof a.local;
    struct err err;

    if (mux_open(p->trunk->mux, &p->channel, &events, p, &err) < 0) {
        log_warn("relay: %s", err.msg);
        pump_fail(p, UV_ECONNRESET);
        return;
    }
    p->has_channel = 1;
    uv_tcp_getsockname(mux_socket(p->trunk->mux), (struct sockaddr *)&a.local, &len);
    pump_answer(p, &a);
}

/* Answer all processes that wait for a trunk; NULL: it is ready. */
static void trunk_answer(struct trunk *t, const struct lane_answer *a)
{
    for (struct pump *p = t->gateway->pumps; p; p = p->next) {
        if (p->trunk != t || p->has_channel || pump_is_closing(p))
            continue;
        if (a)
            pump_answer(p, a);
        else
            pump_join(p);
    }
}

static void trunk_failed(struct trunk *t, int status)
{
    trunk_close(t);
    trunk_answer(t, &(struct lane_answer){.status = status});
}

static void trunk_refused(struct trunk *t, const struct err *why)
{
    struct lane_answer a = {.code = why->code};

    snprintf(a.why, sizeof a.why, "%s", why->msg);
    trunk_close(t);
    trunk_answer(t, &a);
}

static void trunk_on_ready(void *arg)
{
    struct trunk *t = arg;

    if (stream_has_met_itself(mux_socket(t->mux))) {
        mux_abort(t->mux);
        trunk_failed(t, UV_ECONNREFUSED);
        return;
    }
    t->is_ready = 1;
    log_info("relay: one connection to the driver at %s for all processes", mux_peer(t->mux));
    trunk_answer(t, NULL);
}

static int trunk_connect(struct trunk *t);

static void trunk_on_ended(void *arg, const struct err *why, int status)
{
    struct trunk *t = arg;
    struct tls_context *tls = t->gateway->tls;
    const int is_refused = !t->is_ready && why->code == ERR_REFUSED;
    const int tries_next = is_refused && tls && tls_context_next(tls);

    if (t->is_ready && why)
        log_warn("relay: %s", why->msg);
    if (tries_next)
        log_info("relay: the driver does not have this secret; trying the next --secret-file");
    if (tries_next && trunk_connect(t) == 0)
        return;
    if (is_refused && !tries_next)
        trunk_refused(t, why);
    else
        trunk_failed(t, status == UV_EOF ? UV_ECONNRESET : status);
}

static int trunk_connect(struct trunk *t)
{
    static const struct mux_events events = {.ready = trunk_on_ready, .ended = trunk_on_ended};
    const struct mux_user user = {&events, t};
    struct gateway *g = t->gateway;
    struct err err;
    int rc = mux_connect(g->loop, (struct sockaddr *)&t->to, g->tls, &user, &t->mux, &err);

    if (rc < 0)
        log_warn("relay: %s", err.msg);
    return rc;
}

static struct trunk *trunk_new(struct gateway *g, const struct sockaddr_storage *to)
{
    struct trunk *t = xcalloc(1, sizeof *t);

    t->gateway = g;
    t->to = *to;
    if (trunk_connect(t) < 0) {
        free(t);
        return NULL;
    }
    uv_timer_init(g->loop, &t->unused);
    t->unused.data = t;
    t->next = g->trunks;
    g->trunks = t;
    return t;
}

/* 1: the peer's system confirms what is sent.  Where the network between was cut, packets are sent
 * again after longer and longer pauses, and a new connection finds the driver sooner. */
static int trunk_is_heard(const struct trunk *t)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    uv_os_fd_t fd;

    if (!t->is_ready || uv_fileno((uv_handle_t *)mux_socket(t->mux), &fd) < 0 ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return 1;
    return info.tcpi_retransmits == 0;
}

static struct trunk *trunk_to(struct gateway *g, const struct sockaddr_storage *to)
{
    for (struct trunk *t = g->trunks; t; t = t->next)
        if (t->mux && !memcmp(&t->to, to, sizeof *to) && t->n_pumps < MUX_MAX_CHANNELS &&
            trunk_is_heard(t))
            return t;
    return trunk_new(g, to);
}

static void pump_new(struct gateway *g, int fd, const struct sockaddr_storage *to)
{
    struct pump *p = xcalloc(1, sizeof *p);

    p->gateway = g;
    uv_pipe_init(g->loop, &p->pipe, 0);
    uv_timer_init(g->loop, &p->linger);
    p->pipe.data = p->linger.data = p;
    p->n_handles = 2;
    p->next = g->pumps;
    g->pumps = p;
    if (uv_pipe_open(&p->pipe, fd) < 0) {
        close(fd);
        pump_close(p);
        return;
    }
    uv_read_start((uv_stream_t *)&p->pipe, pump_on_alloc, pump_on_read);
    p->trunk = trunk_to(g, to);
    if (!p->trunk) {
        pump_fail(p, UV_EMFILE);
        return;
    }
    p->trunk->n_pumps++;
    if (p->trunk->is_ready)
        pump_join(p);
}

/* ---- lanes ---- */

static void lane_on_closed(uv_handle_t *h)
{
    struct lane *l = h->data, **at = &l->gateway->lanes;
    struct gateway *g = l->gateway;

    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    close(l->fd);
    free(l);
    gateway_see_end(g);
}

static void lane_close(struct lane *l)
{
    if (!uv_is_closing((uv_handle_t *)&l->poll))
        uv_close((uv_handle_t *)&l->poll, lane_on_closed);
}

static void lane_on_readable(uv_poll_t *poll, int status, int events)
{
    struct lane *l = poll->data;
    struct sockaddr_storage to;
    int fd, rc;

    (void)status; /* lane_take meets the error, too */
    (void)events;
    while ((rc = lane_take(l->fd, &to, &fd)) > 0)
        pump_new(l->gateway, fd, &to);
    if (rc < 0)
        lane_close(l);
}

int gateway_add(struct gateway *g, int *lane, struct err *err)
{
    struct lane *l = xcalloc(1, sizeof *l);
    int rc = lane_make(&l->fd, lane, err);

    if (rc == 0 && uv_poll_init(g->loop, &l->poll, l->fd) < 0) {
        rc = err_set(err, ERR_IO, "--relay: the event loop takes no more sockets");
        close(l->fd);
        close(*lane);
    }
    if (rc < 0) {
        *lane = 0;
        free(l);
        return rc;
    }
    l->gateway = g;
    l->poll.data = l;
    l->next = g->lanes;
    g->lanes = l;
    uv_poll_start(&l->poll, UV_READABLE, lane_on_readable);
    return 0;
}

/* ---- life ---- */

struct gateway *gateway_new(uv_loop_t *loop, struct tls_context *tls)
{
    struct gateway *g = xcalloc(1, sizeof *g);

    g->loop = loop;
    g->tls = tls;
    uv_timer_init(loop, &g->patience);
    g->patience.data = g;
    return g;
}

static void gateway_on_closed(uv_handle_t *h) { free(h->data); }

static void gateway_see_end(struct gateway *g)
{
    if (g->is_closing && !g->lanes && !g->trunks && !g->pumps &&
        !uv_is_closing((uv_handle_t *)&g->patience))
        uv_close((uv_handle_t *)&g->patience, gateway_on_closed);
}

static void gateway_on_patience(uv_timer_t *t)
{
    struct gateway *g = t->data;

    for (struct pump *p = g->pumps; p; p = p->next)
        pump_close(p);
}

void gateway_close(struct gateway *g)
{
    if (!g || g->is_closing)
        return;
    g->is_closing = 1;
    for (struct lane *l = g->lanes; l; l = l->next)
        lane_close(l);
    for (struct pump *p = g->pumps; p; p = p->next)
        if (!p->has_channel && p->trunk)
            pump_close(p);
    uv_timer_start(&g->patience, gateway_on_patience, GATEWAY_END_MS, 0);
    gateway_see_end(g);
}
