/* The sending half of a mux.  In the turn of the loop after something was queued, or sooner when it
 * is much, pieces of all channels are gathered into blocks, and a block leaves with one system
 * call.  Each channel in turn gives one piece, so a channel with much to send does not hold up the
 * others.
 *
 * At most a block waits for the socket; everything else waits in its channel, where the user sees
 * it.  So a connection that stands still costs little memory, whatever its channels have to say. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "net/mux_impl.h"

enum {
    BLOCK = 64 << 10,
    MUCH = 16 << 10, /* bytes: a message to all ranks must not exist once more for each of them */
    BLOCKS_A_TURN = 16, /* then other connections have their turn */
    LEAST_ROOM = 256,   /* for all pieces but the data of one channel */
    FAREWELLS = 4 * MUX_MAX_CHANNELS,
};

struct mux_item {
    struct mux_item *next;
    const uint8_t *data;
    size_t len, taken;
    void (*done)(void *owner);
    void *owner;
};

struct mux_rest { /* of a block, which the socket did not take at once */
    struct mux *mux;
    uint8_t data[];
};

static void mux_on_flush(uv_idle_t *idle);

/* Bytes that the socket has yet to take. */
static size_t mux_n_in_socket(const struct mux *m) { return stream_n_unsent(&m->tls.stream); }

/* ---- the queue ---- */

void mux_wake(struct mux *m)
{
    if (m->state != MUX_CONNECTING && m->state != MUX_OVER)
        uv_idle_start(&m->flush, mux_on_flush);
}

static int has_to_say(const struct mux_channel *ch)
{
    return ch->must_open || ch->n_took >= MUX_WINDOW / 2 || (ch->n_unsent && ch->n_may_send) ||
           (ch->must_end && !ch->n_unsent);
}

void mux_queue(struct mux_channel *ch)
{
    struct mux *m = ch->mux;

    if (ch->link || !has_to_say(ch))
        return;
    ch->next = NULL;
    ch->link = m->last_ready;
    *m->last_ready = ch;
    m->last_ready = &ch->next;
    mux_wake(m);
}

static void unlink_ready(struct mux *m, struct mux_channel *ch)
{
    if (!ch->link)
        return;
    *ch->link = ch->next;
    if (ch->next)
        ch->next->link = ch->link;
    else
        m->last_ready = ch->link;
    ch->link = NULL;
}

static void drop_item(struct mux_channel *ch)
{
    struct mux_item *i = ch->first;

    ch->n_unsent -= i->len - i->taken;
    ch->first = i->next;
    if (!ch->first)
        ch->last = &ch->first;
    i->done(i->owner);
    free(i);
}

void mux_unqueue(struct mux_channel *ch)
{
    unlink_ready(ch->mux, ch);
    ch->mux = NULL; /* from here on mux_send takes nothing more */
    while (ch->first)
        drop_item(ch);
}

size_t mux_n_unsent(const struct mux_channel *ch) { return ch->n_unsent; }

void mux_took(struct mux_channel *ch, size_t n)
{
    if (!ch->mux)
        return;
    ch->n_took += (uint32_t)n;
    mux_queue(ch);
}

void mux_end(struct mux_channel *ch)
{
    if (!ch->mux || ch->has_ended)
        return;
    ch->must_end = 1;
    mux_queue(ch);
}

/* No user hears of the end within its own call. */
static void fail_later(struct mux *m, const struct err *why, int status)
{
    if (m->failure)
        return;
    m->failure = xmalloc(sizeof *m->failure);
    *m->failure = *why;
    m->status = status;
    mux_wake(m);
}

static int say_deaf(struct err *err)
{
    return err_set(err, ERR_PEER, "it does not read: it has not taken the ends of %d channels",
                   FAREWELLS);
}

int mux_say_last(struct mux *m, uint32_t number, enum piece_kind kind, struct err *err)
{
    if (m->n_farewells == FAREWELLS)
        return say_deaf(err);
    if (m->n_farewells == m->cap_farewells) {
        m->cap_farewells = m->cap_farewells ? 2 * m->cap_farewells : 8;
        m->farewell = xrealloc(m->farewell, (size_t)m->cap_farewells * sizeof *m->farewell);
    }
    m->farewell[m->n_farewells++] = (struct mux_farewell){number, kind};
    mux_wake(m);
    return 0;
}

void mux_say_last_or_fail(struct mux *m, uint32_t number, enum piece_kind kind)
{
    struct err err;

    if (mux_say_last(m, number, kind, &err) == 0)
        return;
    fail_later(m, &err, UV_ETIMEDOUT);
}

size_t mux_n_left(const struct mux *m)
{
    return mux_n_in_socket(m) + (size_t)m->n_farewells * PIECE_HEADER;
}

/* ---- a block ---- */

static size_t put_piece(const struct mux_channel *ch, enum piece_kind kind, uint8_t *to)
{
    piece_put(&(struct piece){ch->number, kind, 0}, to);
    return PIECE_HEADER;
}

static size_t put_credit(struct mux_channel *ch, uint8_t *to)
{
    piece_put(&(struct piece){ch->number, PIECE_CREDIT, PIECE_CREDIT_LEN}, to);
    piece_put_number(ch->n_took, to + PIECE_HEADER);
    ch->n_may_come += ch->n_took;
    ch->n_took = 0;
    return PIECE_HEADER + PIECE_CREDIT_LEN;
}

/* One piece of what waits, of at most `room` bytes.  Its user may queue more meanwhile. */
static size_t put_data(struct mux_channel *ch, uint8_t *to, size_t room)
{
    const size_t most = (size_t)min_i64(PIECE_MAX, (int64_t)room - PIECE_HEADER);
    const size_t n = (size_t)min_i64((int64_t)most, min_i64((int64_t)ch->n_unsent, ch->n_may_send));
    size_t left = n;
    uint8_t *at = to + PIECE_HEADER;

    if (n == 0)
        return 0;
    piece_put(&(struct piece){ch->number, PIECE_DATA, (uint32_t)n}, to);
    ch->n_may_send -= (uint32_t)n;
    while (left > 0) {
        struct mux_item *i = ch->first;
        const size_t part = i->len - i->taken < left ? i->len - i->taken : left;

        memcpy(at, i->data + i->taken, part);
        i->taken += part;
        ch->n_unsent -= part;
        at += part;
        left -= part;
        if (i->taken == i->len)
            drop_item(ch);
    }
    return PIECE_HEADER + n;
}

/* The channel's turn.  It may be over afterwards. */
static size_t put_channel(struct mux *m, struct mux_channel *ch, uint8_t *to, size_t room)
{
    size_t n = 0;

    unlink_ready(m, ch);
    if (ch->must_open)
        n += put_piece(ch, PIECE_OPEN, to);
    ch->must_open = 0;
    if (ch->n_took >= MUX_WINDOW / 2)
        n += put_credit(ch, to + n);
    n += put_data(ch, to + n, room - n - PIECE_HEADER);
    if (ch->must_end && !ch->n_unsent) {
        n += put_piece(ch, PIECE_END, to + n);
        ch->must_end = 0;
        ch->has_ended = 1;
        mux_settle(ch);
    } else {
        mux_queue(ch);
    }
    return n;
}

static size_t put_farewells(struct mux *m, uint8_t *to, size_t room)
{
    const int n = (int)min_i64(m->n_farewells, (int64_t)(room / PIECE_HEADER));

    for (int i = 0; i < n; i++)
        piece_put(&(struct piece){m->farewell[i].number, m->farewell[i].kind, 0},
                  to + i * PIECE_HEADER);
    m->n_farewells -= n;
    memmove(m->farewell, m->farewell + n, (size_t)m->n_farewells * sizeof *m->farewell);
    return (size_t)n * PIECE_HEADER;
}

static size_t gather_block(struct mux *m, uint8_t *to)
{
    size_t n = 0;

    m->is_gathering = 1;
    m->n_fresh = 0;
    if (m->n_farewells)
        n += put_farewells(m, to + n, BLOCK / 2);
    while (m->first_ready && BLOCK - n >= LEAST_ROOM)
        n += put_channel(m, m->first_ready, to + n, BLOCK - n);
    m->is_gathering = 0;
    return n;
}

/* ---- to the socket ---- */

static void on_rest_sent(void *owner)
{
    struct mux_rest *r = owner;
    struct mux *m = r->mux;

    free(r);
    mux_wake(m);
}

/* That the socket broke is told by the stream's own `ended`. */
static void write_block(struct mux *m, const uint8_t *block, size_t n)
{
    struct mux_rest *r;
    struct err err;
    size_t taken;

    if (tls_try(&m->tls, block, n, &taken, &err) < 0) {
        fail_later(m, &err, UV_ECONNRESET);
        return;
    }
    if (taken == n || m->state == MUX_OVER)
        return;
    r = xmalloc(sizeof *r + n - taken);
    r->mux = m;
    memcpy(r->data, block + taken, n - taken);
    tls_send(&m->tls, r->data, n - taken, on_rest_sent, r, &err);
}

static int has_all_left(const struct mux *m)
{
    return !m->first_ready && !m->n_farewells && !mux_n_in_socket(m);
}

/* Data alone: no user hears of an end while another one sends. */
static void flush_data(struct mux *m)
{
    uint8_t block[BLOCK];
    size_t n = 0;

    m->is_gathering = 1;
    for (struct mux_channel *ch = m->first_ready; ch && BLOCK - n >= LEAST_ROOM; ch = ch->next)
        if (!ch->must_open)
            n += put_data(ch, block + n, BLOCK - n);
    m->is_gathering = 0;
    m->n_fresh = 0;
    write_block(m, block, n);
}

static int can_flush(const struct mux *m)
{
    return m->state != MUX_CONNECTING && !m->is_gathering && !mux_n_in_socket(m);
}

void mux_send(struct mux_channel *ch, const void *data, size_t len, void (*done)(void *owner),
              void *owner)
{
    struct mux *m = ch->mux;
    struct mux_item *i;

    if (!m || ch->must_end || ch->has_ended || len == 0) {
        done(owner);
        return;
    }
    i = xcalloc(1, sizeof *i);
    *i = (struct mux_item){.data = data, .len = len, .done = done, .owner = owner};
    *ch->last = i;
    ch->last = &i->next;
    ch->n_unsent += len;
    mux_queue(ch);
    m->n_fresh += len;
    if (m->n_fresh >= MUCH && can_flush(m))
        flush_data(m);
}

/* Data that an end follows waits for it: the two leave by one system call. */
void mux_answer(struct mux *m)
{
    if (m->n_fresh == 0 || m->n_farewells > 0 || m->state == MUX_OVER || !can_flush(m))
        return;
    for (const struct mux_channel *ch = m->first_ready; ch; ch = ch->next)
        if (ch->must_end)
            return;
    flush_data(m);
}

static void mux_on_flush(uv_idle_t *idle)
{
    struct mux *m = container_of(idle, struct mux, flush);
    uint8_t block[BLOCK];
    int i = 0;

    uv_idle_stop(idle);
    if (m->failure) {
        mux_fail(m, m->failure, m->status);
        return;
    }
    while (m->state != MUX_OVER && !m->failure && !has_all_left(m) && !mux_n_in_socket(m)) {
        if (++i > BLOCKS_A_TURN) {
            mux_wake(m);
            return;
        }
        write_block(m, block, gather_block(m, block));
    }
    if (has_all_left(m))
        mux_finish(m);
}
