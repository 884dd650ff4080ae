/* Relays' connections of a listener.  A channel that a relay opens waits until there is room for
 * one more stranger; relays with such channels stand in a line, and each in turn gets one in.
 *
 * A carrier is freed when its mux is over and the last conn of its channels is gone. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "net/listener_impl.h"

static void carrier_free_when_done(struct carrier *c)
{
    if (!c->mux && c->n_conns == 0)
        free(c);
}

/* ---- the line of those with channels that wait ---- */

static void stand_in_line(struct carrier *c)
{
    struct listener *l = c->listener;

    if (c->offering || mux_n_waiting(c->mux) == 0)
        return;
    c->next_offering = NULL;
    c->offering = l->last_offering;
    *l->last_offering = c;
    l->last_offering = &c->next_offering;
}

static void leave_line(struct carrier *c)
{
    if (!c->offering)
        return;
    *c->offering = c->next_offering;
    if (c->next_offering)
        c->next_offering->offering = c->offering;
    else
        c->listener->last_offering = c->offering;
    c->offering = NULL;
}

/* ---- its place ---- */

static void take_place(struct carrier *c)
{
    struct stranger *s = xcalloc(1, sizeof *s);

    s->carrier = c;
    s->holds = PLACE_SOCKET;
    s->source = c->source;
    c->place = listener_add(c->listener, s);
}

static void give_place(struct carrier *c)
{
    if (c->place)
        listener_remove(c->place);
    c->place = NULL;
}

/* The mux is over, or closes by itself: the listener has nothing more to do with it. */
static void carrier_part(struct carrier *c)
{
    c->mux = NULL;
    give_place(c);
    leave_line(c);
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    carrier_free_when_done(c);
}

void carrier_turn_out(struct carrier *c, const char *why)
{
    const double age_s = clock_since_s(c->place->since_ns);
    struct listener *l = c->listener;
    struct mux *m = c->mux;
    struct err err;

    err_set(&err, ERR_TIMEOUT, "the relay at %s brought no rank that was let in within %.1f s%s",
            mux_peer(m), age_s, why);
    listener_say(l, err.msg);
    carrier_part(c); /* c may be free now */
    mux_abort(m);
}

/* ---- its ranks ---- */

static void on_member_gone(void *arg)
{
    struct carrier *c = arg;

    c->n_conns--;
    if (--c->n_members == 0 && c->mux)
        take_place(c);
    carrier_free_when_done(c);
}

void carrier_settled(struct carrier *c, struct conn *conn)
{
    if (!conn_is_over(conn)) {
        c->n_members++;
        c->has_had_members = 1;
        conn_on_settled(conn, on_member_gone, c);
        give_place(c);
        return;
    }
    c->n_conns--;
    carrier_free_when_done(c);
}

void carrier_take_one(struct listener *l)
{
    struct carrier *c = l->first_offering;
    struct conn *conn;
    struct err err;

    leave_line(c);
    if (mux_n_waiting(c->mux) == 0) /* it was given up meanwhile */
        return;
    /* Its bytes are encrypted already, between the relay and here. */
    if (conn_new(l->tcp.loop, FRAME_MAX_STRANGER, NULL, &conn, &err) < 0) {
        err_wrap(&err, "a relay's rank");
        listener_say(l, err.msg);
        return;
    }
    if (conn_start_over(conn, c->mux, &err) < 0) {
        err_wrap(&err, "a relay's rank");
        listener_say(l, err.msg);
        conn_abort(conn);
        return;
    }
    c->n_conns++;
    stand_in_line(c);
    listener_admit(l, conn, c);
}

/* ---- its mux ---- */

static void carrier_on_offered(void *arg)
{
    struct carrier *c = arg;

    stand_in_line(c);
    listener_go_on(c->listener);
}

/* If it carries ranks, the session tells of their loss. */
static void carrier_on_ended(void *arg, const struct err *why, int status)
{
    struct carrier *c = arg;
    struct listener *l = c->listener;

    if (why && c->place && (status != UV_EOF || c->n_conns > 0))
        listener_say(l, why->msg);
    carrier_part(c);
    listener_go_on(l);
}

void carrier_new(struct stranger *s, const void *rest, size_t len)
{
    static const struct mux_events events = {.offered = carrier_on_offered,
                                             .ended = carrier_on_ended};
    struct listener *l = s->listener;
    struct mux_user user = {.events = &events};
    struct carrier *c;
    struct err err;
    int fd = listener_second_file(s->conn);

    conn_abort(s->conn);
    if (fd < 0) {
        listener_say(l, "a relay, as no more files can be opened");
        return;
    }
    user.arg = c = xcalloc(1, sizeof *c);
    if (mux_accept(l->tcp.loop, fd, l->options.tls, &user, &c->mux, &err) < 0) {
        err_wrap(&err, "a relay");
        listener_say(l, err.msg);
        free(c);
        return;
    }
    c->listener = l;
    c->source = s->source;
    c->next = l->first_carrier;
    c->link = &l->first_carrier;
    if (c->next)
        c->next->link = &c->next;
    l->first_carrier = c;
    take_place(c);
    mux_feed(c->mux, rest, len);
}

/* Ranks that have been handed on outlive the listener, and their relays' connections with them.  A
 * relay that never had one goes as strangers do. */
void carrier_close_all(struct listener *l)
{
    while (l->first_carrier) {
        struct carrier *c = l->first_carrier;
        struct mux *m = c->mux;
        const int is_stranger = !c->has_had_members && mux_n_taken(m) == 0;

        carrier_part(c); /* c may be free now */
        if (is_stranger)
            mux_abort(m);
        else
            mux_close(m);
    }
}
