/* Strangers stand in one list, newest last, until they are welcomed or their sockets are gone: so
 * the list's length bounds the open sockets.  While the list is full no connection is accepted, and
 * the kernel's queue holds the others; ranks behind a relay wait as channels that nobody took. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "net/addr.h"
#include "net/listener_impl.h"

enum { BACKLOG = 4096, SWEEP_MS = 100 };

/* ---- strangers ---- */

static void listener_free_when_done(struct listener *l)
{
    if (l->is_closing && l->n_handles == 0 && l->n_strangers == 0)
        free(l);
}

static void hold_places(struct listener *l, int places, int n)
{
    for (int i = 0; i < N_PLACES; i++)
        if (places & 1 << i)
            l->n_held[i] += n;
}

void listener_remove(struct stranger *s)
{
    struct listener *l = s->listener;

    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    else
        l->newest = s->link;
    hold_places(l, s->holds, -1);
    free(s);
    if (--l->n_strangers == 0 && !l->is_closing)
        uv_timer_stop(&l->sweep);
}

/* The connection was welcomed, or its socket is gone: it is no stranger any more. */
static void on_settled(void *arg)
{
    struct stranger *s = arg;
    struct listener *l = s->listener;
    struct carrier *carrier = s->carrier;
    struct conn *c = s->conn;

    listener_remove(s);
    if (carrier)
        carrier_settled(carrier, c);
    listener_go_on(l);
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

    if (!c) {
        carrier_turn_out(s->carrier, why);
        return;
    }
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

static int listener_is_over(const struct stranger *s) { return s->conn && conn_is_over(s->conn); }

/* The stranger that makes room for one that needs `place`: of *source, or of any source if that is
 * NULL.  Returns NULL if none is least_age_ms old. */
static struct stranger *next_to_go(const struct listener *l, const uint64_t *source, int place,
                                   int64_t least_age_ms)
{
    struct stranger *oldest = NULL;

    for (struct stranger *s = l->oldest; s && age_ms(s) >= least_age_ms; s = s->next) {
        if (s->is_going || !(s->holds & place) || (source && s->source != *source))
            continue;
        if (listener_is_over(s))
            return s;
        if (!oldest)
            oldest = s;
    }
    return oldest;
}

/* The socket of s is gone, and the place free, once the loop has called the close's callback; a
 * relay's place is free at once. */
static void push_out(struct stranger *s)
{
    struct conn *c = s->conn;

    s->is_going = 1;
    if (!listener_is_over(s))
        turn_out(s, ", and others wait");
    if (c)
        conn_abort(c);
}

/* The one of these places of which none is free, or 0. */
static int missing_place(const struct listener *l, int places)
{
    const int most[N_PLACES] = {l->options.max_sockets, l->options.max_strangers};

    for (int i = 0; i < N_PLACES; i++)
        if (places & 1 << i && l->n_held[i] >= most[i])
            return 1 << i;
    return 0;
}

/* 1: these places are free.  0: on_settled or the next sweep tries again. */
static int listener_has_room(struct listener *l, int places)
{
    const int missing = missing_place(l, places);
    struct stranger *s;

    if (!missing)
        return 1;
    s = next_to_go(l, NULL, missing, l->options.room_after_ms);
    if (s)
        push_out(s);
    return s && !missing_place(l, places);
}

/* Of this kind of place the source has as many as it may have. */
static int is_crowd(const struct listener *l, uint64_t source, int i)
{
    const int most[N_PLACES] = {l->options.max_sockets_each, l->options.max_each};
    int n = 0;

    if (l->n_held[i] < most[i])
        return 0; /* this spares the list */
    for (const struct stranger *s = l->oldest; s; s = s->next)
        n += !s->is_going && s->holds & 1 << i && s->source == source;
    return n >= most[i];
}

static void on_sweep(uv_timer_t *t)
{
    struct listener *l = t->data;

    for (struct stranger *s = l->oldest, *next; s; s = next) {
        next = s->next; /* s stays in the list, also when it is turned out */
        if (age_ms(s) < l->options.stranger_ms)
            break;
        if (!listener_is_over(s))
            turn_out(s, "");
    }
    listener_go_on(l);
}

struct stranger *listener_add(struct listener *l, struct stranger *s)
{
    s->listener = l;
    s->since_ns = clock_mono_ns();
    s->link = l->newest;
    *l->newest = s;
    l->newest = &s->next;
    hold_places(l, s->holds, 1);
    if (l->n_strangers++ == 0)
        uv_timer_start(&l->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    return s;
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
static void warn_of_few(struct listener *l, const char *what, const char *text)
{
    int64_t now = clock_mono_ns();

    if (now - l->said_ns >= (int64_t)l->options.say_window_ms * 1000000) {
        say_rest(l);
        l->said_ns = now;
    }
    if (l->n_said < LISTENER_SAYS) {
        l->n_said++;
        log_warn("%s: %s", what, text);
    } else {
        l->n_unsaid++;
    }
}

void listener_say(struct listener *l, const char *text)
{
    if (l->options.refused)
        l->options.refused(l->options.arg, text);
    warn_of_few(l, "not let in", text);
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
        err_set(&err, ERR_PEER, "%s left before it %s", conn_peer(c),
                l->options.tls ? "had proven to know the secret" : "said anything");
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
        if (s->conn && !conn_is_open(s->conn))
            conn_abort(s->conn);
    }
}

/* ---- accepting ---- */

/* A source that has all its places gets a new place by giving up another, however young: if the new
 * one were closed instead, a follower could not come from a machine that a flood comes from, too.
 */
static struct stranger *take_in(struct listener *l, struct conn *c, struct carrier *from)
{
    struct stranger *s = xcalloc(1, sizeof *s);

    s->conn = c;
    s->carrier = from;
    s->holds = from ? PLACE_CONN : PLACE_CONN | PLACE_SOCKET;
    s->source = from ? from->source : source_of(c);
    for (int i = 0; i < N_PLACES; i++)
        if (s->holds & 1 << i && is_crowd(l, s->source, i))
            push_out(next_to_go(l, &s->source, 1 << i, 0));
    conn_on_settled(c, on_settled, s);
    return listener_add(l, s);
}

void listener_admit(struct listener *l, struct conn *c, struct carrier *from)
{
    hand_on(l, take_in(l, c, from));
}

static void listener_on_greeted(void *arg, const void *rest, size_t len)
{
    carrier_new(arg, rest, len);
}

static void listener_admit_socket(struct listener *l, struct conn *c)
{
    struct stranger *s = take_in(l, c, NULL);

    if (l->options.takes_relays)
        conn_await_greeting(c, listener_on_greeted, s);
    hand_on(l, s);
}

/* The conn owns the first one, and closes it. */
int listener_second_file(struct conn *c)
{
    uv_os_fd_t fd;

    return uv_fileno((uv_handle_t *)conn_socket(c), &fd) < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

/* Without a free descriptor libuv closes the connections that come, and calls nobody.  So the
 * listener tells of the connection that took the last one. */
static void tell_if_last(struct listener *l, struct conn *c)
{
    const int fd = listener_second_file(c);

    if (fd >= 0)
        close(fd);
    else if (errno == EMFILE)
        warn_of_few(l, conn_peer(c),
                    "its connection is the last one, and others are closed at once, as no more "
                    "files can be opened (EMFILE): raise the limit (ulimit -Hn; LimitNOFILE= in a "
                    "systemd unit), or let the followers of each machine share one connection: "
                    "dpfollower --ranks N --relay");
}

/* Without uv_accept the other connections stay in the kernel's queue: libuv stops polling the
 * socket until uv_accept is called. */
static void listener_accept_one(struct listener *l)
{
    struct conn *c;
    struct err err;
    int rc;

    l->is_waiting = 0;
    if (conn_new(l->tcp.loop, FRAME_MAX_STRANGER, l->options.tls, &c, &err) < 0) {
        warn_of_few(l, "a connection cannot be accepted", err.msg);
        return;
    }
    rc = uv_accept((uv_stream_t *)&l->tcp, (uv_stream_t *)conn_socket(c));
    if (rc < 0 || conn_start(c, &err) < 0) {
        if (rc < 0 && rc != UV_EAGAIN)
            warn_of_few(l, "a connection cannot be accepted", uv_strerror(rc));
        conn_abort(c);
        return;
    }
    tell_if_last(l, c);
    listener_admit_socket(l, c);
}

void listener_go_on(struct listener *l)
{
    while (!l->is_closing && (l->is_waiting || l->first_offering)) {
        int is_relay = l->first_offering && (l->is_relay_next || !l->is_waiting);

        if (!listener_has_room(l, is_relay ? PLACE_CONN : PLACE_CONN | PLACE_SOCKET)) {
            if (is_relay || !l->first_offering || !listener_has_room(l, PLACE_CONN))
                return;
            is_relay = 1; /* it needs no socket */
        }
        l->is_relay_next = !is_relay;
        if (is_relay)
            carrier_take_one(l);
        else
            listener_accept_one(l);
    }
}

static void listener_on_connection(uv_stream_t *tcp, int status)
{
    struct listener *l = tcp->data;

    if (status < 0) {
        warn_of_few(l, l->text, uv_strerror(status));
    } else {
        l->is_waiting = 1;
        listener_go_on(l);
    }
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

void listener_limit(struct listener *l, const struct listener_options *o)
{
    struct listener_options *mine = &l->options;

    mine->max_strangers = o->max_strangers;
    mine->max_each = o->max_each ? o->max_each : mine->max_strangers;
    mine->max_sockets = o->max_sockets ? o->max_sockets : mine->max_strangers;
    mine->max_sockets_each = o->max_sockets_each ? o->max_sockets_each : mine->max_each;
    listener_go_on(l);
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
    listener_limit(l, o);
    l->newest = &l->oldest;
    l->last_offering = &l->first_offering;
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
    carrier_close_all(l);
    uv_close((uv_handle_t *)&l->tcp, listener_on_closed);
    uv_close((uv_handle_t *)&l->sweep, listener_on_closed);
}

int listener_port(const struct listener *l) { return l->options.port; }
const char *listener_text(const struct listener *l) { return l->text; }
const char *listener_number(const struct listener *l) { return l->number; }
