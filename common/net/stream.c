/* Happy path: start -> bytes ... -> the owner closes with linger: the queue drains, shutdown(2)
 * tells the peer, its close is awaited, gone.  Closing with unread input would make the kernel send
 * RST, which destroys the bytes that the peer has not read yet, such as the reason of a refusal.
 *
 * Failure modes: the peer closes or resets -> ended; the peer does not read -> the queue fills and
 * stream_send fails; the peer never closes, or stops reading -> the linger timer does. */
#include "net/stream.h"

#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "net/lane.h"
#include "net/piece.h"

enum { READ_BYTES = 64 << 10, LINGER_LOOKS = 8 };

struct pending_write {
    uv_write_t req;
    struct stream *stream;
    void (*done)(void *owner);
    void *owner;
};

int stream_init(struct stream *s, uv_loop_t *loop, size_t queue_limit,
                const struct stream_events *events, void *arg, struct err *err)
{
    int rc;

    *s = (struct stream){0};
    s->events = events;
    s->arg = arg;
    s->queue_limit = queue_limit;
    rc = uv_tcp_init(loop, &s->tcp);
    if (rc < 0)
        return err_set(err, ERR_IO, "socket: %s (%s)", uv_strerror(rc), uv_err_name(rc));
    uv_timer_init(loop, &s->linger);
    s->tcp.data = s->linger.data = s;
    s->n_handles = 2;
    return 0;
}

/* ---- connecting ---- */

/* One attempt.  Through a relay the answer comes in pieces, as any bytes do. */
struct stream_dial {
    struct stream *stream;
    void (*done)(void *arg, int status);
    void *arg;
    uv_connect_t connect; /* without a relay */
    struct sockaddr_storage to;
    struct lane_answer answer;
    size_t n_answer; /* bytes of it that have come */
};

static void end_dial(struct stream_dial *d, int status)
{
    void (*done)(void *, int) = d->done;
    void *arg = d->arg;

    d->stream->dial = NULL;
    free(d);
    done(arg, status);
}

static void on_connected_itself(uv_connect_t *req, int status)
{
    end_dial(container_of(req, struct stream_dial, connect), status);
}

static void on_answer_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct stream_dial *d = ((struct stream *)h->data)->dial;

    (void)suggested;
    *buf = uv_buf_init((char *)&d->answer + d->n_answer, sizeof d->answer - (unsigned)d->n_answer);
}

static void on_answer_read(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buf)
{
    struct stream *s = tcp->data;
    struct stream_dial *d = s->dial;

    (void)buf;
    if (n > 0)
        d->n_answer += (size_t)n;
    if (n >= 0 && d->n_answer < sizeof d->answer)
        return;
    uv_read_stop(tcp);
    addr_text((struct sockaddr *)&d->to, s->peer);
    addr_number((struct sockaddr *)&d->to, s->peer_number);
    addr_number((struct sockaddr *)&d->answer.local, s->local_number);
    if (n > 0 && d->answer.code) {
        s->refusal = xcalloc(1, sizeof *s->refusal);
        err_set(s->refusal, d->answer.code, "%.*s", (int)sizeof d->answer.why, d->answer.why);
    }
    end_dial(d, n < 0 ? UV_ECONNRESET : d->answer.status);
}

static int connect_through(struct stream *s, int lane)
{
    int fd, rc = lane_ask(lane, (struct sockaddr *)&s->dial->to, &fd);

    if (rc < 0)
        return rc;
    rc = uv_tcp_open(&s->tcp, fd);
    if (rc < 0)
        close(fd);
    if (rc == 0)
        rc = uv_read_start((uv_stream_t *)&s->tcp, on_answer_alloc, on_answer_read);
    return rc;
}

int stream_connect(struct stream *s, const struct sockaddr *to, int lane,
                   void (*done)(void *arg, int status), void *arg)
{
    struct stream_dial *d = xcalloc(1, sizeof *d);
    int rc;

    d->stream = s;
    d->done = done;
    d->arg = arg;
    memcpy(&d->to, to,
           to->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
    s->dial = d;
    s->is_relayed = lane != 0;
    rc = lane ? connect_through(s, lane)
              : uv_tcp_connect(&d->connect, &s->tcp, to, on_connected_itself);
    if (rc < 0) {
        s->dial = NULL;
        free(d);
    }
    return rc;
}

int stream_has_met_itself(const uv_tcp_t *tcp)
{
    struct sockaddr_storage own = {0}, other = {0};
    int n_own = sizeof own, n_other = sizeof other;

    return uv_tcp_getsockname(tcp, (struct sockaddr *)&own, &n_own) == 0 &&
           uv_tcp_getpeername(tcp, (struct sockaddr *)&other, &n_other) == 0 && n_own == n_other &&
           !memcmp(&own, &other, (size_t)n_own);
}

/* ---- its end ---- */

static void stream_on_closed(uv_handle_t *h)
{
    struct stream *s = h->data;

    if (--s->n_handles)
        return;
    if (s->dial) /* libuv has ended a connect of its own before */
        end_dial(s->dial, UV_ECANCELED);
    free(s->refusal);
    s->events->gone(s->arg);
}

static void close_handles(struct stream *s)
{
    if (s->state == STREAM_CLOSED)
        return;
    s->state = STREAM_CLOSED;
    mux_drop(&s->channel);
    uv_close((uv_handle_t *)&s->tcp, stream_on_closed);
    uv_close((uv_handle_t *)&s->linger, stream_on_closed);
}

static void stream_ended(struct stream *s, const struct err *why)
{
    if (s->state == STREAM_OPEN) {
        s->state = STREAM_ENDED;
        if (!s->is_channel)
            uv_read_stop((uv_stream_t *)&s->tcp);
        s->events->ended(s->arg, why);
    }
}

/* `doing`: "read", "write"; status: libuv's, or UV_EOF */
static void stream_failed(struct stream *s, int status, const char *doing)
{
    struct err why;

    if (status == UV_EOF) {
        stream_ended(s, NULL);
        return;
    }
    if (status == UV_ECONNRESET || status == UV_EPIPE)
        err_set(&why, ERR_PEER, "the connection to %s broke: %s (%s)", s->peer, uv_strerror(status),
                uv_err_name(status));
    else
        err_set(&why, ERR_IO, "connection to %s: %s: %s (%s)", s->peer, doing, uv_strerror(status),
                uv_err_name(status));
    stream_ended(s, &why);
}

static void stream_on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    (void)h;
    (void)suggested;
    *buf = uv_buf_init(xmalloc(READ_BYTES), READ_BYTES);
}

/* ---- a relay's greeting ---- */

void stream_await_greeting(struct stream *s,
                           void (*greeted)(void *arg, const void *rest, size_t len), void *arg)
{
    s->greeted = greeted;
    s->greeted_arg = arg;
}

/* The bytes are no greeting, or not only.  Those that came before are the same as the magic's. */
static void hand_first(struct stream *s, const uint8_t *data, size_t len)
{
    const size_t n = s->n_greeting;

    s->greeted = NULL;
    if (n > 0)
        s->events->bytes(s->arg, piece_magic, n);
    if (len > 0 && s->state == STREAM_OPEN)
        s->events->bytes(s->arg, data, len);
}

static void take_first(struct stream *s, const uint8_t *data, size_t len)
{
    void (*greeted)(void *, const void *, size_t) = s->greeted;
    size_t n = 0;

    while (n < len && s->n_greeting + n < PIECE_MAGIC && data[n] == piece_magic[s->n_greeting + n])
        n++;
    if (s->n_greeting + n == PIECE_MAGIC) {
        s->greeted = NULL;
        greeted(s->greeted_arg, data + n, len - n);
    } else if (n < len) {
        hand_first(s, data, len);
    } else {
        s->n_greeting += n;
    }
}

static void stream_on_read(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buf)
{
    struct stream *s = tcp->data;

    if (s->state == STREAM_LINGERING && n < 0)
        close_handles(s);
    else if (n < 0)
        stream_failed(s, (int)n, "read");
    else if (n > 0 && s->state == STREAM_OPEN && s->greeted)
        take_first(s, (uint8_t *)buf->base, (size_t)n);
    else if (n > 0 && s->state == STREAM_OPEN)
        s->events->bytes(s->arg, buf->base, (size_t)n);
    free(buf->base);
}

/* ---- bytes ---- */

/* A dead machine is noticed after KEEPALIVE_S seconds at least.  The sockets of this process ask at
 * different times: many of them fall silent at once, as after a formation, and as many probes at
 * once can overflow what a machine keeps for its network, again and again. */
static void keep_alive(uv_tcp_t *tcp)
{
    enum { KEEPALIVE_S = 15, SPREAD_S = 16, AGAIN_S = 3, N_PROBES = 5 };
    static atomic_uint n_sockets;
    const int again_s = AGAIN_S, n_probes = N_PROBES;
    const unsigned more_s = atomic_fetch_add(&n_sockets, 1) % SPREAD_S;
    int fd;

    uv_tcp_keepalive(tcp, 1, KEEPALIVE_S + more_s);
    if (uv_fileno((uv_handle_t *)tcp, &fd) < 0)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &again_s, sizeof again_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof n_probes);
}

/* Note the addresses, and send small frames at once. */
static int stream_set_up(struct stream *s)
{
    struct sockaddr_storage sa;
    int len = sizeof sa, rc;

    rc = uv_tcp_getpeername(&s->tcp, (struct sockaddr *)&sa, &len);
    if (rc == 0) {
        addr_text((struct sockaddr *)&sa, s->peer);
        addr_number((struct sockaddr *)&sa, s->peer_number);
        len = sizeof sa;
        rc = uv_tcp_getsockname(&s->tcp, (struct sockaddr *)&sa, &len);
    }
    if (rc == 0) {
        addr_number((struct sockaddr *)&sa, s->local_number);
        uv_tcp_nodelay(&s->tcp, 1);
        keep_alive(&s->tcp);
    }
    return rc;
}

static void on_refusal(uv_timer_t *t)
{
    struct stream *s = t->data;

    stream_ended(s, s->refusal);
}

int stream_start(struct stream *s, struct err *err)
{
    int rc = s->is_relayed ? 0 : stream_set_up(s);

    if (s->refusal)
        uv_timer_start(&s->linger, on_refusal, 0, 0);
    else if (rc == 0)
        rc = uv_read_start((uv_stream_t *)&s->tcp, stream_on_alloc, stream_on_read);
    if (rc < 0)
        return err_set(err, ERR_PEER, "the connection broke at once: %s (%s)", uv_strerror(rc),
                       uv_err_name(rc));
    return 0;
}

/* ---- over a channel ---- */

static void stream_on_channel_bytes(void *arg, const void *data, size_t len)
{
    struct stream *s = arg;

    if (s->state == STREAM_OPEN)
        s->events->bytes(s->arg, data, len);
    mux_took(&s->channel, len);
}

static void stream_on_channel_ended(void *arg, const struct err *why)
{
    struct stream *s = arg;

    if (s->state == STREAM_LINGERING)
        close_handles(s);
    else
        stream_ended(s, why);
}

static void stream_on_channel_over(void *arg) { close_handles(arg); }

int stream_start_over(struct stream *s, struct mux *m, struct err *err)
{
    static const struct mux_channel_events events = {
        stream_on_channel_bytes, stream_on_channel_ended, stream_on_channel_over};
    int rc = mux_open(m, &s->channel, &events, s, err);

    if (rc < 0)
        return rc;
    s->is_channel = 1;
    mux_name(&s->channel, s->peer);
    snprintf(s->peer_number, sizeof s->peer_number, "%s", mux_peer_number(m));
    snprintf(s->local_number, sizeof s->local_number, "%s", mux_local_number(m));
    return 0;
}

/* ---- sending ---- */

size_t stream_n_unsent(const struct stream *s)
{
    return s->is_channel ? mux_n_unsent(&s->channel)
                         : uv_stream_get_write_queue_size((const uv_stream_t *)&s->tcp);
}

size_t stream_try(struct stream *s, const void *data, size_t len)
{
    uv_buf_t buf = uv_buf_init((char *)data, (unsigned)len);
    int n = s->state == STREAM_OPEN && len > 0 ? uv_try_write((uv_stream_t *)&s->tcp, &buf, 1) : 0;

    return n > 0 ? (size_t)n : 0;
}

static void stream_on_written(uv_write_t *req, int status)
{
    struct pending_write *w = container_of(req, struct pending_write, req);
    struct stream *s = w->stream;

    w->done(w->owner);
    free(w);
    if (status == 0 || status == UV_ECANCELED)
        return;
    if (s->state == STREAM_LINGERING)
        close_handles(s);
    else
        stream_failed(s, status, "write");
}

int stream_send(struct stream *s, const void *data, size_t len, void (*done)(void *owner),
                void *owner, struct err *err)
{
    const size_t waiting = stream_n_unsent(s);
    const int is_over = s->state != STREAM_OPEN;
    uv_buf_t buf = uv_buf_init((char *)data, (unsigned)len);
    struct pending_write *w;
    int rc;

    if (is_over || waiting + len > s->queue_limit) {
        done(owner);
        if (is_over)
            return err_set(err, ERR_PEER, "the connection to %s is closed", s->peer);
        return err_set(err, ERR_PEER, "%s does not read: %zu bytes wait for it, at most %zu may",
                       s->peer, waiting + len, s->queue_limit);
    }
    if (s->is_channel) {
        mux_send(&s->channel, data, len, done, owner);
        return 0;
    }
    if (s->refusal) { /* the relay has closed its end, and `ended` is to say why, not the write */
        done(owner);
        return 0;
    }
    w = xcalloc(1, sizeof *w);
    w->stream = s;
    w->done = done;
    w->owner = owner;
    rc = uv_write(&w->req, (uv_stream_t *)&s->tcp, &buf, 1, stream_on_written);
    if (rc == 0)
        return 0;
    done(owner);
    free(w);
    return err_set(err, ERR_PEER, "connection to %s: write: %s (%s)", s->peer, uv_strerror(rc),
                   uv_err_name(rc));
}

/* Looks are counted, not time: while this loop stood still, the peer was not silent. */
static void on_linger_look(uv_timer_t *t)
{
    struct stream *s = t->data;
    const size_t unsent = stream_n_unsent(s);

    s->n_quiet = unsent < s->n_unsent ? 0 : s->n_quiet + 1;
    s->n_unsent = unsent;
    if (s->n_quiet >= LINGER_LOOKS || ++s->n_looks >= STREAM_PATIENCE * LINGER_LOOKS)
        close_handles(s);
}

static void on_shutdown(uv_shutdown_t *req, int status)
{
    (void)req;
    (void)status; /* what follows is the peer's close, an error of it, or the timer */
}

static int stream_shut(struct stream *s)
{
    if (!s->is_channel)
        return uv_shutdown(&s->shutdown, (uv_stream_t *)&s->tcp, on_shutdown);
    mux_end(&s->channel);
    return 0;
}

void stream_close(struct stream *s, int linger_ms)
{
    const uint64_t look_ms = (uint64_t)max_i64(linger_ms / LINGER_LOOKS, 1);

    if (s->state == STREAM_CLOSED || (s->state == STREAM_LINGERING && linger_ms > 0))
        return;
    if (s->state != STREAM_OPEN || linger_ms <= 0 || stream_shut(s) < 0) {
        close_handles(s);
        return;
    }
    s->state = STREAM_LINGERING;
    s->n_unsent = stream_n_unsent(s);
    uv_timer_start(&s->linger, on_linger_look, look_ms, look_ms);
}
