/* mux_party - one side of a mux, and what its user has heard. */
#ifndef TESTS_NET_MUX_PARTY_H
#define TESTS_NET_MUX_PARTY_H

#include "../test.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "fixture.h"
#include "net/mux_impl.h"
#include "net/piece.h"

struct line { /* a channel */
    struct mux_channel ch;
    int is_lazy;    /* it does not take what comes */
    size_t n_bytes; /* that have come; each is the low byte of its number */
    int n_ends;     /* in order */
    int is_over, is_broken;
    struct err why;
    const char *answer; /* to what comes, or NULL */
    int ends_then;      /* it ends behind the answer */
    int n_answered;
};

struct party {
    struct mux *mux; /* NULL: it has ended */
    struct line line[8];
    int n_lines;
    int is_shy; /* it takes no channel that is offered */
    int n_offered, is_ready, is_ended, is_unused, status;
    struct err why;
};

static inline int n_channels_of(const struct mux *m) { return m->n_seats; }

static uint8_t pattern[4 * MUX_WINDOW];

static inline void on_done(void *owner) { ++*(int *)owner; }

static inline void line_on_bytes(void *arg, const void *data, size_t len)
{
    struct line *l = arg;

    for (size_t i = 0; i < len; i++)
        assert_int_equal(((const uint8_t *)data)[i], (uint8_t)(l->n_bytes + i));
    l->n_bytes += len;
    if (!l->is_lazy)
        mux_took(&l->ch, len);
    if (l->answer)
        mux_send(&l->ch, l->answer, strlen(l->answer), on_done, &l->n_answered);
    if (l->ends_then)
        mux_end(&l->ch);
}

static inline void line_on_ended(void *arg, const struct err *why)
{
    struct line *l = arg;

    assert_false(l->is_over || l->is_broken);
    l->n_ends += why == NULL;
    l->is_broken = why != NULL;
    if (why)
        l->why = *why;
}

static inline void line_on_over(void *arg)
{
    struct line *l = arg;

    assert_int_equal(l->n_ends, 1);
    assert_false(l->is_over || l->is_broken);
    l->is_over = 1;
}

static const struct mux_channel_events line_events = {line_on_bytes, line_on_ended, line_on_over};

static inline struct line *party_open(struct party *p)
{
    struct line *l = &p->line[p->n_lines++];
    struct err err;

    assert_true(p->n_lines <= (int)ARRAY_LEN(p->line));
    assert_int_equal(mux_open(p->mux, &l->ch, &line_events, l, &err), 0);
    return l;
}

static inline void party_on_ready(void *arg) { ((struct party *)arg)->is_ready = 1; }

static inline void party_on_offered(void *arg)
{
    struct party *p = arg;

    p->n_offered++;
    if (!p->is_shy)
        party_open(p);
}

static inline void party_on_ended(void *arg, const struct err *why, int status)
{
    struct party *p = arg;

    assert_false(p->is_ended);
    p->is_ended = 1;
    p->is_unused = why == NULL;
    if (why)
        p->why = *why;
    p->status = status;
    p->mux = NULL;
}

static const struct mux_events party_events = {party_on_ready, party_on_offered, party_on_ended};

static inline void pattern_init(void)
{
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)i;
}

/* Send the next n bytes of the pattern; *from counts. */
static inline void line_send(struct line *l, size_t *from, size_t n, int *n_done)
{
    assert_true((*from & 0xff) + n <= sizeof pattern);
    mux_send(&l->ch, pattern + (*from & 0xff), n, on_done, n_done);
    *from += n;
}

static inline void mux_turn(uv_loop_t *loop, int n)
{
    for (int i = 0; i < n; i++)
        uv_run(loop, UV_RUN_NOWAIT);
}

/* The accepting side alone, over one end of a pair of sockets; the test has the other one, which
 * does not block. */
static inline int party_accept(struct party *p, uv_loop_t *loop)
{
    int ends[2];
    struct err err;

    memset(p, 0, sizeof *p);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    assert_int_equal(
        mux_accept(loop, ends[0], NULL, &(struct mux_user){&party_events, p}, &p->mux, &err), 0);
    return ends[1];
}

#endif
