/* This file reads what comes over a mux's connection, and ends channels and the mux.  Happy path,
 * connecting side: open -> credit -> data both ways -> end from both sides -> the channel is over.
 * Accepting side: open -> `offered` -> mux_open, which grants a window.
 *
 * Failure modes: a piece that is not in order, after which nothing that comes can be trusted, so
 * the connection ends; the connection breaks, and with it every channel. */
#include "net/mux.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "net/mux_impl.h"

enum { MUX_LINGER_MS = 2000, MUX_LOOKS = 8 };

/* ---- seats ---- */

/* The index of the channel `number`, or -1 if it is not there. */
static int mux_find_seat(const struct mux *m, uint32_t number)
{
    int low = 0, high = m->n_seats;

    while (low < high) {
        const int middle = low + (high - low) / 2;

        if (m->seat[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < m->n_seats && m->seat[low].number == number ? low : -1;
}

static void add_seat(struct mux *m, uint32_t number, struct mux_channel *ch)
{
    if (m->n_seats == m->cap_seats) {
        m->cap_seats = m->cap_seats ? 2 * m->cap_seats : 8;
        m->seat = xrealloc(m->seat, (size_t)m->cap_seats * sizeof *m->seat);
    }
    m->seat[m->n_seats++] = (struct mux_seat){number, ch};
    m->n_waiting += ch == NULL;
    m->last = number;
}

static void remove_seat(struct mux *m, int at)
{
    m->n_waiting -= m->seat[at].channel == NULL;
    m->n_seats--;
    memmove(m->seat + at, m->seat + at + 1, (size_t)(m->n_seats - at) * sizeof *m->seat);
    if (m->state == MUX_CLOSING && m->n_seats == 0)
        mux_wake(m);
}

static void mux_remove(struct mux_channel *ch)
{
    remove_seat(ch->mux, mux_find_seat(ch->mux, ch->number));
    mux_unqueue(ch);
}

void mux_settle(struct mux_channel *ch)
{
    if (!ch->has_ended || !ch->peer_has_ended)
        return;
    mux_remove(ch);
    ch->events->over(ch->arg);
}

/* ---- the connection's end ---- */

static void end_stream(struct mux *m, int linger_ms)
{
    m->state = MUX_OVER;
    uv_idle_stop(&m->flush);
    uv_timer_stop(&m->patience);
    tls_close(&m->tls, linger_ms);
}

static void end_channels(struct mux *m, const struct err *why)
{
    while (m->n_seats > 0) {
        struct mux_channel *ch = m->seat[m->n_seats - 1].channel;

        if (!ch) {
            remove_seat(m, m->n_seats - 1);
            continue;
        }
        mux_remove(ch);
        ch->events->ended(ch->arg, why);
    }
}

static const char *mux_other_side(const struct mux *m)
{
    return m->side == PIECE_ACCEPTS ? "relay" : "driver";
}

/* Tell the user that the mux is over. */
static void tell_end(struct mux *m, const struct mux_events *events, const struct err *why,
                     int status)
{
    if (events)
        events->ended(m->arg, why, status);
    end_stream(m, 0);
}

void mux_fail(struct mux *m, const struct err *why, int status)
{
    const struct mux_events *events = m->events;
    struct err err = *why;

    if (m->state == MUX_OVER)
        return;
    m->events = NULL;
    m->state = MUX_OVER;
    if (!strstr(err.msg, m->tls.stream.peer)) /* TLS names the peer, too */
        err_wrap(&err, "the %s at %s", mux_other_side(m), m->tls.stream.peer);
    end_channels(m, &err);
    tell_end(m, events, &err, status);
}

static void end_unused(struct mux *m)
{
    const struct mux_events *events = m->events;

    m->events = NULL;
    m->state = MUX_OVER;
    tell_end(m, events, NULL, UV_EOF);
}

void mux_on_ended(void *arg, const struct err *why)
{
    struct mux *m = arg;
    struct err err;

    if (why) {
        mux_fail(m, why, UV_ECONNRESET);
        return;
    }
    if (!m->was_greeted && m->side == PIECE_CONNECTS) {
        err_set(&err, ERR_UNSUPPORTED,
                "it closed the connection without an answer: it is no dpdriver that takes relays");
        mux_fail(m, &err, UV_EPROTONOSUPPORT);
        return;
    }
    if (m->state == MUX_OPEN && m->n_seats == 0) {
        end_unused(m);
        return;
    }
    err_set(&err, ERR_PEER, "it has closed the connection, and with it %d rank%s", m->n_seats,
            m->n_seats == 1 ? "" : "s");
    mux_fail(m, &err, UV_EOF);
}

static void mux_on_handle_closed(uv_handle_t *h)
{
    struct mux *m = h->data;

    if (--m->n_handles > 0)
        return;
    free(m->seat);
    free(m->farewell);
    free(m->failure);
    free(m);
}

void mux_on_gone(void *arg)
{
    struct mux *m = arg;

    uv_close((uv_handle_t *)&m->flush, mux_on_handle_closed);
    uv_close((uv_handle_t *)&m->patience, mux_on_handle_closed);
}

/* While there are channels, their users' patience counts.  After that the peer has the time that
 * it has at a stream's end, counted in the same way (net/stream.h). */
static void on_closing_look(uv_timer_t *t)
{
    struct mux *m = t->data;
    const size_t left = mux_n_left(m);

    if (m->n_seats == 0)
        m->n_looks++;
    m->n_quiet = m->n_seats > 0 || left < m->n_left_here ? 0 : m->n_quiet + 1;
    m->n_left_here = left;
    if (m->n_quiet >= MUX_LOOKS || m->n_looks >= STREAM_PATIENCE * MUX_LOOKS)
        mux_abort(m);
}

void mux_close(struct mux *m)
{
    const int look_ms = MUX_LINGER_MS / MUX_LOOKS;

    m->events = NULL;
    if (m->state != MUX_OPEN) {
        mux_abort(m);
        return;
    }
    m->state = MUX_CLOSING;
    while (m->n_waiting > 0) {
        const uint32_t number = m->seat[m->n_seats - 1].number;

        remove_seat(m, m->n_seats - 1);
        mux_say_last_or_fail(m, number, PIECE_BREAK);
    }
    m->n_left_here = mux_n_left(m);
    uv_timer_start(&m->patience, on_closing_look, look_ms, look_ms);
    mux_wake(m);
}

void mux_finish(struct mux *m)
{
    if (m->state == MUX_CLOSING && m->n_seats == 0)
        end_stream(m, MUX_LINGER_MS);
}

void mux_abort(struct mux *m)
{
    struct err err;

    m->events = NULL;
    if (m->state == MUX_OVER)
        return;
    err_set(&err, ERR_PEER, "the connection to the %s at %s was closed here", mux_other_side(m),
            m->tls.stream.peer);
    m->state = MUX_OVER;
    end_channels(m, &err);
    end_stream(m, 0);
}

/* ---- what comes ---- */

static int take_open(struct mux *m, uint32_t number, struct err *err)
{
    if (m->side == PIECE_CONNECTS)
        return err_set(err, ERR_PROTO, "it opens channel %u, and only relays open", number);
    if (number <= m->last)
        return err_set(err, ERR_PROTO, "it opens channel %u after channel %u", number, m->last);
    if (m->n_seats == MUX_MAX_CHANNELS)
        return err_set(err, ERR_PROTO, "it opens more than %d channels", MUX_MAX_CHANNELS);
    if (m->state == MUX_CLOSING) {
        m->last = number;
        return mux_say_last(m, number, PIECE_BREAK, err);
    }
    add_seat(m, number, NULL);
    if (m->events)
        m->events->offered(m->arg);
    return 0;
}

static int take_credit(struct mux_channel *ch, uint32_t n, struct err *err)
{
    if (n == 0 || n > MUX_WINDOW - ch->n_may_send)
        return err_set(err, ERR_PROTO, "it grants channel %u %u bytes more than %u, at most %d",
                       ch->number, n, ch->n_may_send, MUX_WINDOW);
    ch->n_may_send += n;
    mux_queue(ch);
    return 0;
}

static void take_end(struct mux_channel *ch)
{
    struct mux *m = ch->mux;
    const uint32_t number = ch->number;

    ch->peer_has_ended = 1;
    ch->events->ended(ch->arg, NULL);
    if (mux_find_seat(m, number) >= 0) /* the user has not dropped it in that call */
        mux_settle(ch);
}

static void take_break(struct mux *m, struct mux_channel *ch)
{
    struct err err;

    mux_remove(ch);
    err_set(&err, ERR_PEER, "the %s at %s has broken channel %u off", mux_other_side(m),
            m->tls.stream.peer, ch->number);
    ch->events->ended(ch->arg, &err);
}

/* The other side gives up a channel that nobody has taken here. */
static int take_from_waiting(struct mux *m, int at, struct err *err)
{
    const struct piece p = m->piece;

    if (p.kind != PIECE_END && p.kind != PIECE_BREAK)
        return err_set(err, ERR_PROTO, "it sends on channel %u, which was not taken yet",
                       p.channel);
    remove_seat(m, at);
    return p.kind == PIECE_END ? mux_say_last(m, p.channel, PIECE_BREAK, err) : 0;
}

/* Data is read later; here it is only checked. */
static int take_piece(struct mux *m, struct err *err)
{
    const struct piece p = m->piece;
    const int at = p.kind == PIECE_OPEN ? -1 : mux_find_seat(m, p.channel);
    struct mux_channel *ch = at < 0 ? NULL : m->seat[at].channel;

    if (p.kind == PIECE_OPEN)
        return take_open(m, p.channel, err);
    if (at < 0 && p.channel > m->last)
        return err_set(err, ERR_PROTO, "a piece of channel %u, which was not opened", p.channel);
    if (at < 0) /* it is over here, and the other side did not know yet */
        return 0;
    if (!ch)
        return take_from_waiting(m, at, err);
    if (p.kind == PIECE_BREAK)
        take_break(m, ch);
    else if (p.kind == PIECE_CREDIT)
        return take_credit(ch, piece_get_number(m->head + PIECE_HEADER), err);
    else if (ch->peer_has_ended)
        return err_set(err, ERR_PROTO, "it goes on after the end of channel %u", p.channel);
    else if (p.kind == PIECE_END)
        take_end(ch);
    else if (p.len > ch->n_may_come)
        return err_set(err, ERR_PROTO, "it sends %u bytes on channel %u, which may have %u", p.len,
                       p.channel, ch->n_may_come);
    else
        ch->n_may_come -= p.len;
    return 0;
}

int mux_status_of(const struct err *why)
{
    return why->code == ERR_UNSUPPORTED ? UV_EPROTONOSUPPORT
           : why->code == ERR_PEER      ? UV_ECONNREFUSED
                                        : UV_EPROTO;
}

/* A whole header is there, or a credit's number behind the header. */
static int mux_take_head(struct mux *m, struct err *err)
{
    int rc = 0;

    if (m->n_head == PIECE_HEADER)
        rc = piece_get(m->head, &m->piece, err);
    if (rc < 0 || (m->piece.kind == PIECE_CREDIT && m->n_head == PIECE_HEADER))
        return rc;
    m->n_head = 0;
    m->n_left = m->piece.kind == PIECE_DATA ? m->piece.len : 0;
    return take_piece(m, err);
}

static size_t read_head(struct mux *m, const uint8_t *data, size_t len, struct err *err)
{
    const size_t want = m->n_head < PIECE_HEADER ? PIECE_HEADER : PIECE_HEADER + PIECE_CREDIT_LEN;
    const size_t n = len < want - m->n_head ? len : want - m->n_head;

    memcpy(m->head + m->n_head, data, n);
    m->n_head += n;
    if (m->n_head == want)
        mux_take_head(m, err);
    return n;
}

static size_t read_data(struct mux *m, const uint8_t *data, size_t len)
{
    const size_t n = len < m->n_left ? len : m->n_left;
    const int at = mux_find_seat(m, m->piece.channel);
    struct mux_channel *ch = at < 0 ? NULL : m->seat[at].channel;

    m->n_left -= (uint32_t)n;
    if (ch)
        ch->events->bytes(ch->arg, data, n);
    return n;
}

/* A callback may end the mux, which stays in memory until the loop has closed its handles. */
static void read_pieces(struct mux *m, const void *data, size_t len)
{
    const uint8_t *p = data, *end = p + len;
    struct err err = {0};

    while (p < end && m->state != MUX_OVER) {
        if (m->n_left > 0)
            p += read_data(m, p, (size_t)(end - p));
        else
            p += read_head(m, p, (size_t)(end - p), &err);
        if (err.code)
            mux_fail(m, &err, mux_status_of(&err));
    }
}

/* Answers leave at once, so that the other side need not wait until this one has read all of its
 * sockets. */
void mux_on_bytes(void *arg, const void *data, size_t len)
{
    read_pieces(arg, data, len);
    mux_answer(arg);
}

void mux_feed(struct mux *m, const void *data, size_t len) { tls_bytes_came(&m->tls, data, len); }

/* ---- channels ---- */

static int check_open(const struct mux *m, struct err *err)
{
    if (m->state >= MUX_CLOSING)
        return err_set(err, ERR_PEER, "the connection to %s is closed", m->tls.stream.peer);
    if (m->side == PIECE_ACCEPTS && m->n_waiting == 0)
        return err_set(err, ERR_PEER, "no channel of %s waits", m->tls.stream.peer);
    if (m->side == PIECE_CONNECTS && m->n_seats == MUX_MAX_CHANNELS)
        return err_set(err, ERR_PEER,
                       "the connection to %s carries %d ranks, and no more can come by it",
                       m->tls.stream.peer, MUX_MAX_CHANNELS);
    if (m->side == PIECE_CONNECTS && m->last == UINT32_MAX)
        return err_set(err, ERR_PEER, "the connection to %s has no numbers of channels left",
                       m->tls.stream.peer);
    return 0;
}

int mux_open(struct mux *m, struct mux_channel *ch, const struct mux_channel_events *events,
             void *arg, struct err *err)
{
    int rc = check_open(m, err);

    if (rc < 0)
        return rc;
    *ch = (struct mux_channel){.mux = m, .events = events, .arg = arg};
    ch->last = &ch->first;
    if (m->side == PIECE_CONNECTS) {
        ch->number = m->last + 1;
        ch->must_open = 1;
        ch->n_may_come = MUX_WINDOW;
        add_seat(m, ch->number, ch);
    } else {
        struct mux_seat *s = &m->seat[m->n_seats - m->n_waiting--];

        s->channel = ch;
        ch->number = s->number;
        ch->n_may_send = MUX_WINDOW;
        ch->n_took = MUX_WINDOW; /* this is what it grants */
    }
    mux_queue(ch);
    return 0;
}

void mux_drop(struct mux_channel *ch)
{
    struct mux *m = ch->mux;

    if (!m)
        return;
    const int is_secret = ch->must_open; /* the other side has not heard of it */
    const int is_whole = ch->peer_has_ended && !ch->n_unsent;
    const int is_said = ch->has_ended && ch->peer_has_ended;

    mux_remove(ch);
    if (m->state == MUX_OVER || is_secret || is_said)
        return;
    mux_say_last_or_fail(m, ch->number, is_whole ? PIECE_END : PIECE_BREAK);
}

int mux_n_taken(const struct mux *m) { return m->n_seats - m->n_waiting; }
int mux_n_waiting(const struct mux *m) { return m->n_waiting; }
uv_tcp_t *mux_socket(struct mux *m) { return &m->tls.stream.tcp; }
const char *mux_peer(const struct mux *m) { return m->tls.stream.peer; }
const char *mux_peer_number(const struct mux *m) { return m->tls.stream.peer_number; }
const char *mux_local_number(const struct mux *m) { return m->tls.stream.local_number; }

void mux_name(const struct mux_channel *ch, char out[ADDR_TEXT])
{
    const struct mux *m = ch->mux;

    if (m->side == PIECE_ACCEPTS)
        snprintf(out, ADDR_TEXT, "%.50s (relayed %u)", m->tls.stream.peer, ch->number);
    else
        snprintf(out, ADDR_TEXT, "%s", m->tls.stream.peer);
}
