/* Strangers stand in one list, newest last, until they are welcomed or their sockets are gone: so
 * the list's length bounds the open sockets.  While the list is full no connection is accepted, and
 * the kernel's queue holds the others. */
#include "net/listener.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "net/addr.h"

enum { BACKLOG = 4096, SWEEP_MS = 100 };

struct stranger {
    struct stranger *next, **link; /* oldest first */
    struct listener *listener;
    struct conn *conn;
    uint64_t source;
    int64_t since_ns;
    int is_going; /* it makes room for another; the loop has yet to close its socket */
};

struct listener {
    uv_tcp_t tcp;
    uv_timer_t sweep; /* runs while there are strangers */
    struct listener_options options;
    struct stranger *oldest, **newest;
    int n_strangers;
    int is_waiting; /* a connection waits to be accepted */
    int is_closing;
    int n_handles;
    char text[ADDR_TEXT], number[ADDR_TEXT];
    int64_t said_ns;      /* when the present window of log lines began */
    int n_said, n_unsaid; /* lines of this window: logged, and only counted */
};

static void listener_accept_one(struct listener *l);

/* ---- strangers ---- */

static void listener_free_when_done(struct listener *l)
{
    if (l->is_closing && l->n_handles == 0 && l->n_strangers == 0)
        free(l);
}

/* The connection was welcomed, or its socket is gone: it is no stranger any more. */
static void on_settled(void *arg)
{
    struct stranger *s = arg;
    struct listener *l = s->listener;

    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    else
        l->newest = s->link;
    free(s);
    if (--l->n_strangers == 0 && !l->is_closing)
        uv_timer_stop(&l->sweep);
    if (l->is_waiting && !l->is_closing)
        listener_accept_one(l);
    listener_free_when_done(l);
}

static int64_t age_ms(const struct stranger *s)
{
    return (clock_mono_ns() - s->since_ns) / 1000000;
}

static void turn_out(struct stranger *s, const char *why)
{
    struct conn *c = s->conn;
    struct err err;

    err_set(&err, ERR_TIMEOUT, "%s said nothing that a follower says within %.1f s%s", conn_peer(c),
            1e-3 * (double)age_ms(s), why);
    conn_fail(c, &err);
}

/* The addresses that one owner of a network can have any number of count as one: an IPv4 address,
 * or the first half of an IPv6 address. */
static uint64_t source_of(const struct conn *c)
{
    char number[ADDR_TEXT];
    struct in6_addr six;
    struct in_addr four;
    uint64_t source = 0;

    snprintf(number, sizeof number, "%s", conn_peer_number(c));
    number[strcspn(number, "%")] = '\0';
    if (inet_pton(AF_INET, number, &four) == 1)
        source = four.s_addr;
    else if (inet_pton(AF_INET6, number, &six) == 1)
        memcpy(&source, &six, sizeof source);
    return source;
}

/* The stranger that makes room, of *source, or of any source if that is NULL.  Returns NULL if none
 * is least_age_ms old. */
static struct stranger *next_to_go(const struct listener *l, const uint64_t *source,
                                   int64_t least_age_ms)
{
    struct stranger *oldest = NULL;

    for (struct stranger *s = l->oldest; s && age_ms(s) >= least_age_ms; s = s->next) {
        if (s->is_going || (source && s->source != *source))
            continue;
        if (conn_is_over(s->conn))
            return s;
        if (!oldest)
            oldest = s;
    }
    return oldest;
}

/* The socket of s is gone, and the place free, once the loop has called the close's callback. */
static void push_out(struct stranger *s)
{
    s->is_going = 1;
    if (!conn_is_over(s->conn))
        turn_out(s, ", and others wait");
    conn_abort(s->conn);
}

/* 1: there is a free place.  0: on_settled or the next sweep tries again. */
static int listener_has_room(struct listener *l)
{
    struct stranger *s;

    if (l->n_strangers < l->options.max_strangers)
        return 1;
    s = next_to_go(l, NULL, l->options.room_after_ms);
    if (s)
        push_out(s);
    return 0;
}

static int is_crowd(const struct listener *l, uint64_t source)
{
    int n = 0;

    if (l->n_strangers < l->options.max_each)
        return 0; /* this spares the list */
    for (const struct stranger *s = l->oldest; s; s = s->next)
        n += !s->is_going && s->source == source;
    return n >= l->options.max_each;
}

static void on_sweep(uv_timer_t *t)
{
    struct listener *l = t->data;

    for (struct stranger *s = l->oldest, *next; s; s = next) {
        next = s->next; /* s stays in the list, also when it is turned out */
        if (age_ms(s) < l->options.stranger_ms)
            break;
        if (!conn_is_over(s->conn))
            turn_out(s, "");
    }
    if (l->is_waiting)
        listener_accept_one(l);
}

static void add_stranger(struct listener *l, struct stranger *s)
{
    s->listener = l;
    s->since_ns = clock_mono_ns();
    s->link = l->newest;
    *l->newest = s;
    l->newest = &s->next;
    if (l->n_strangers++ == 0)
        uv_timer_start(&l->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    conn_on_settled(s->conn, on_settled, s);
}

/* ---- before the secret is proven ---- */

static void say_rest(struct listener *l)
{
    if (l->n_unsaid)
        log_warn("%d more connections came to nothing within %g s", l->n_unsaid,
                 1e-3 * l->options.say_window_ms);
    l->n_said = l->n_unsaid = 0;
}

/* A flood of strangers must not become a flood of log lines. */
static void listener_say(struct listener *l, const char *text)
{
    int64_t now = clock_mono_ns();

    if (l->options.refused)
        l->options.refused(l->options.arg, text);
    if (now - l->said_ns >= (int64_t)l->options.say_window_ms * 1000000) {
        say_rest(l);
        l->said_ns = now;
    }
    if (l->n_said < LISTENER_SAYS) {
        l->n_said++;
        log_warn("not let in: %s", text);
    } else {
        l->n_unsaid++;
    }
}

static void on_unproven_frame(void *arg, struct conn *c, const uint8_t *body, size_t len)
{
    (void)arg;
    (void)c;
    (void)body;
    (void)len;
    ASSERT(!"a frame from a peer that has not proven to know the secret");
}

/* The listener is still there: `settled` comes after this. */
static void on_unproven_closed(void *arg, struct conn *c, const struct err *why)
{
    struct listener *l = arg;
    struct err err;

    if (!why)
        err_set(&err, ERR_PEER, "%s left before it had proven to know the secret", conn_peer(c));
    listener_say(l, why ? why->msg : err.msg);
}

static void on_proven(void *arg)
{
    struct stranger *s = arg;

    s->listener->options.accepted(s->listener->options.arg, s->conn);
}

static void hand_on(struct listener *l, struct stranger *s)
{
    static const struct conn_events unproven = {on_unproven_frame, on_unproven_closed};

    if (conn_is_open(s->conn)) {
        on_proven(s);
        return;
    }
    conn_listen(s->conn, &unproven, l);
    conn_on_open(s->conn, on_proven, s);
}

/* The caller does not know of these connections, so only the listener can close them. */
static void drop_unproven(struct listener *l)
{
    struct stranger *s = l->oldest, *next;

    for (; s; s = next) {
        next = s->next;
        if (!conn_is_open(s->conn))
            conn_abort(s->conn);
    }
}

/* ---- accepting ---- */

/* A source that has all its places gets a new place by giving up another, however young: if the new
 * one were closed instead, a follower could not come from a machine that a flood comes from, too.
 */
static void take_in(struct listener *l, struct conn *c)
{
    struct stranger *s = xcalloc(1, sizeof *s);

    s->conn = c;
    s->source = source_of(c);
    if (is_crowd(l, s->source))
        push_out(next_to_go(l, &s->source, 0));
    add_stranger(l, s);
    hand_on(l, s);
}

/* Without uv_accept the other connections stay in the kernel's queue: libuv stops polling the
 * socket until uv_accept is called. */
static void listener_accept_one(struct listener *l)
{
    struct conn *c;
    struct err err;
    int rc;

    l->is_waiting = !listener_has_room(l);
    if (l->is_waiting)
        return;
    if (conn_new(l->tcp.loop, FRAME_MAX_STRANGER, l->options.tls, &c, &err) < 0) {
        log_warn("a connection cannot be accepted: %s", err.msg);
        return;
    }
    rc = uv_accept((uv_stream_t *)&l->tcp, (uv_stream_t *)conn_socket(c));
    if (rc < 0 || conn_start(c, &err) < 0) {
        if (rc < 0 && rc != UV_EAGAIN)
            log_warn("a connection cannot be accepted: %s", uv_strerror(rc));
        conn_abort(c);
        return;
    }
    take_in(l, c);
}

static void listener_on_connection(uv_stream_t *tcp, int status)
{
    struct listener *l = tcp->data;

    if (status < 0)
        log_warn("listening on %s: %s (%s)", l->text, uv_strerror(status), uv_err_name(status));
    else
        listener_accept_one(l);
}

/* ---- opening and closing ---- */

static int listen_error(const struct listener *l, int rc, struct err *err)
{
    int port = l->options.port;

    if (l->options.is_in_use)
        *l->options.is_in_use = rc == UV_EADDRINUSE;
    if (rc == UV_EADDRINUSE)
        return err_set(err, ERR_IO,
                       "cannot listen on %s: address already in use (EADDRINUSE): another dpdriver "
                       "or some other program has it (\"ss -ltnp sport = :%d\" says which); end "
                       "it, or take another --port (--port 0: any free one)",
                       l->text, port);
    if (rc == UV_EADDRNOTAVAIL)
        return err_set(err, ERR_IO,
                       "cannot listen on %s: this host has no such address (EADDRNOTAVAIL); "
                       "give --host one of its own (\"ip address\" lists them)",
                       l->text);
    if (rc == UV_EACCES)
        return err_set(err, ERR_IO,
                       "cannot listen on %s: permission denied (EACCES): ports below 1024 are "
                       "root's; take a --port above, or --port 0",
                       l->text);
    return err_set(err, ERR_IO, "cannot listen on %s: %s (%s)", l->text, uv_strerror(rc),
                   uv_err_name(rc));
}

static void read_own_name(struct listener *l)
{
    struct sockaddr_storage sa = {0};
    int len = sizeof sa;

    if (uv_tcp_getsockname(&l->tcp, (struct sockaddr *)&sa, &len) < 0)
        return;
    addr_text((struct sockaddr *)&sa, l->text);
    addr_number((struct sockaddr *)&sa, l->number);
    l->options.port = addr_port((struct sockaddr *)&sa);
}

static int bind_and_listen(struct listener *l, struct err *err)
{
    struct sockaddr_storage sa = {0};
    int rc = addr_resolve(l->options.host, l->options.port, &sa, err);

    if (rc < 0)
        return rc;
    addr_text((struct sockaddr *)&sa, l->text);
    rc = uv_tcp_bind(&l->tcp, (struct sockaddr *)&sa, 0);
    if (rc == 0)
        rc = uv_listen((uv_stream_t *)&l->tcp, BACKLOG, listener_on_connection);
    if (rc < 0)
        return listen_error(l, rc, err);
    read_own_name(l);
    return 0;
}

void listener_limit(struct listener *l, int max_strangers, int max_each)
{
    l->options.max_strangers = max_strangers;
    l->options.max_each = max_each ? max_each : max_strangers;
    if (l->is_waiting && !l->is_closing)
        listener_accept_one(l);
}

int listener_new(uv_loop_t *loop, const struct listener_options *o, struct listener **out,
                 struct err *err)
{
    struct listener *l = xcalloc(1, sizeof *l);
    int rc;

    ASSERT(o->max_strangers > 0 && o->stranger_ms > 0 && o->accepted);
    l->options = *o;
    if (l->options.room_after_ms == 0)
        l->options.room_after_ms = LISTENER_ROOM_AFTER_MS;
    if (l->options.say_window_ms == 0)
        l->options.say_window_ms = LISTENER_SAY_WINDOW_MS;
    listener_limit(l, o->max_strangers, o->max_each);
    l->newest = &l->oldest;
    rc = uv_tcp_init(loop, &l->tcp);
    if (rc < 0) {
        free(l);
        return err_set(err, ERR_IO, "socket: %s (%s)", uv_strerror(rc), uv_err_name(rc));
    }
    uv_timer_init(loop, &l->sweep);
    l->tcp.data = l->sweep.data = l;
    l->n_handles = 2;
    rc = bind_and_listen(l, err);
    l->options.host = NULL; /* borrowed for this call only */
    if (rc < 0)
        listener_close(l);
    else
        *out = l;
    return rc;
}

static void listener_on_closed(uv_handle_t *h)
{
    struct listener *l = h->data;

    l->n_handles--;
    listener_free_when_done(l);
}

void listener_close(struct listener *l)
{
    if (!l || l->is_closing)
        return;
    l->is_closing = 1;
    say_rest(l);
    drop_unproven(l);
    uv_close((uv_handle_t *)&l->tcp, listener_on_closed);
    uv_close((uv_handle_t *)&l->sweep, listener_on_closed);
}

int listener_port(const struct listener *l) { return l->options.port; }
const char *listener_text(const struct listener *l) { return l->text; }
const char *listener_number(const struct listener *l) { return l->number; }
