/* Fuzz target: the input is what the other side of a relay's connection sends, to a driver or to a
 * relay.  The connection goes on or ends with a text, no channel brings more bytes than were
 * granted, and each hears of its end once.  The input's first byte chooses the side, the size of
 * the pieces in which the other bytes come, and what the user of the channels does.  Where the
 * greeting says that TLS follows, this side has a secret: no channel is offered then. */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "net/mux_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHANNELS = 32, GRANTED = MUX_WINDOW };

struct user {
    struct mux *mux; /* NULL: it has ended */
    struct user_channel {
        struct user *user;
        struct mux_channel ch;
        size_t n_untaken;
        int is_over;
    } channel[CHANNELS];
    int n_channels, habits, n_events;
    int n_sent, n_done;
};

static void on_done(void *owner) { ++*(int *)owner; }

static void say(struct user_channel *c)
{
    static const uint8_t text[3000];

    c->user->n_sent++;
    mux_send(&c->ch, text, 1 + (size_t)(c->user->n_events * 37) % sizeof text, on_done,
             &c->user->n_done);
}

/* A user may do each of these in any callback, and does it now and then. */
static void act(struct user_channel *c)
{
    const int what = ++c->user->n_events * c->user->habits % 8;

    if (c->is_over)
        return;
    if (what == 1)
        say(c);
    else if (what == 3)
        mux_end(&c->ch);
    else if (what == 5) {
        c->is_over = 1;
        mux_drop(&c->ch);
    }
}

static void on_bytes(void *arg, const void *data, size_t len)
{
    struct user_channel *c = arg;

    (void)data;
    ASSERT(!c->is_over && len > 0);
    c->n_untaken += len;
    ASSERT(c->n_untaken <= GRANTED);
    if (c->user->n_events % 3) {
        mux_took(&c->ch, c->n_untaken);
        c->n_untaken = 0;
    }
    act(c);
}

static void on_ended(void *arg, const struct err *why)
{
    struct user_channel *c = arg;

    ASSERT(!c->is_over && (!why || why->msg[0]));
    c->is_over = why != NULL;
    act(c);
}

static void on_over(void *arg)
{
    struct user_channel *c = arg;

    ASSERT(!c->is_over);
    c->is_over = 1;
}

static void open_one(struct user *u)
{
    static const struct mux_channel_events events = {on_bytes, on_ended, on_over};
    struct user_channel *c = &u->channel[u->n_channels];
    struct err err;

    if (u->n_channels == CHANNELS)
        return;
    c->user = u;
    if (mux_open(u->mux, &c->ch, &events, c, &err) < 0)
        return;
    u->n_channels++;
    act(c);
}

static void on_offered(void *arg)
{
    struct user *u = arg;

    ASSERT(!u->mux->tls.context);
    if (++u->n_events % 5)
        open_one(u);
}

static void on_ready(void *arg) { ASSERT(!((struct user *)arg)->mux->tls.context); }

static void on_mux_ended(void *arg, const struct err *why, int status)
{
    struct user *u = arg;

    ASSERT(u->mux && (!why || why->msg[0]) && status < 0);
    u->mux = NULL;
}

/* Pass on bytes as the stream would.  The other side reads what it gets, or not. */
static void give(struct user *u, int peer, const uint8_t *data, size_t size, size_t step)
{
    uv_loop_t *loop = u->mux->flush.loop;
    uint8_t got[4096];

    for (size_t i = 0; i < size && u->mux; i += step) {
        mux_feed(u->mux, data + i, (size_t)min_i64((int64_t)step, (int64_t)(size - i)));
        if (u->mux)
            ASSERT(u->mux->n_seats <= MUX_MAX_CHANNELS && u->mux->n_left <= PIECE_MAX);
        uv_run(loop, UV_RUN_NOWAIT);
        while (u->habits % 4 && read(peer, got, sizeof got) > 0)
            ;
    }
}

static void finish(struct user *u, uv_loop_t *loop)
{
    if (u->mux && u->habits % 2)
        mux_close(u->mux);
    for (int i = 0; i < u->n_channels; i++)
        if (!u->channel[i].is_over && u->mux && u->habits % 2) {
            u->channel[i].is_over = 1;
            mux_drop(&u->channel[i].ch);
        }
    if (u->mux && u->habits % 2 == 0)
        mux_abort(u->mux);
    uv_run(loop, UV_RUN_DEFAULT);
    for (int i = 0; i < u->n_channels; i++)
        ASSERT(u->channel[i].is_over);
    ASSERT(u->n_sent == u->n_done);
}

/* NULL: the input's greeting says that no TLS follows. */
static const struct tls_context *context_for(const uint8_t *data, size_t size)
{
    static const struct tls_texts texts = {"other", "plain"};
    static struct tls_context *contexts[2];
    const enum tls_role role = data[0] & 1 ? TLS_FOLLOWER : TLS_DRIVER;
    struct secret s;
    struct err err;

    if (size < 4 || data[3] != 1)
        return NULL;
    memset(&s, 7, sizeof s);
    if (!contexts[role])
        ASSERT(tls_context_new(&s, 1, role, &texts, &contexts[role], &err) == 0);
    return contexts[role];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct mux_events events = {
        .ready = on_ready, .offered = on_offered, .ended = on_mux_ended};
    struct user u = {0};
    uv_loop_t loop;
    struct err err;
    int ends[2];

    if (size < 1 || size > 64 << 10)
        return 0;
    if (uv_loop_init(&loop) < 0)
        return 0;             /* no more files */
    signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    u.habits = data[0] >> 4;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0) {
        ASSERT(mux_accept(&loop, ends[0], context_for(data, size), &(struct mux_user){&events, &u},
                          &u.mux, &err) == 0);
        if (data[0] & 1) {
            u.mux->side = PIECE_CONNECTS;
            for (int i = 0; i < 4; i++)
                open_one(&u);
        }
        give(&u, ends[1], data + 1, size - 1, 1 + (size_t)(data[0] >> 1 & 7) * 13);
        close(ends[1]);
        finish(&u, &loop);
    }
    ASSERT(uv_loop_close(&loop) == 0);
    return 0;
}
