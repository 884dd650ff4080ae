/* Tests of a listener that takes relays: ranks behind one are connections like others, each with
 * its own proof and its own end, and a relay gives strangers no more room than connections would.
 */
#include "mux_party.h"

#include <errno.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "tls_pair.h"

enum { RANKS = 8 };

/* A relay's machine: ranks are conns over one mux. */
struct machine {
    struct party party; /* its mux, without channels of the party's own */
    struct side rank[RANKS];
    int is_open[RANKS];
    int n_ranks;
};

static void machine_open(uv_loop_t *loop, struct machine *m, const struct server *s)
{
    struct sockaddr_in sa;
    struct err err;

    memset(m, 0, sizeof *m);
    uv_ip4_addr("127.0.0.1", listener_port(s->listener), &sa);
    assert_int_equal(
        mux_connect(loop, (struct sockaddr *)&sa, &party_events, &m->party, &m->party.mux, &err),
        0);
}

static void on_rank_open(void *arg) { *(int *)arg = 1; }

static struct side *machine_rank(uv_loop_t *loop, struct machine *m, const struct tls_context *tls)
{
    const int i = m->n_ranks++;
    struct side *side = &m->rank[i];
    struct err err;

    assert_true(m->n_ranks <= RANKS);
    assert_int_equal(conn_new(loop, FRAME_MAX, tls, &side->conn, &err), 0);
    conn_listen(side->conn, &side_events, side);
    conn_on_open(side->conn, on_rank_open, &m->is_open[i]);
    assert_int_equal(conn_start_over(side->conn, m->party.mux, &err), 0);
    return side;
}

static void machine_close(struct machine *m)
{
    for (int i = 0; i < m->n_ranks; i++)
        if (m->rank[i].conn)
            conn_close(m->rank[i].conn);
    if (m->party.mux)
        mux_close(m->party.mux);
}

static void relays_open(uv_loop_t *loop, struct server *s, struct listener_options o)
{
    o.takes_relays = 1;
    o.max_strangers = o.max_strangers ? o.max_strangers : 16;
    o.stranger_ms = o.stranger_ms ? o.stranger_ms : NEVER_MS;
    o.room_after_ms = o.room_after_ms ? o.room_after_ms : NEVER_MS;
    server_open_like(loop, s, &o);
}

static void until_accepted(uv_loop_t *loop, const struct server *s, int n)
{
    const int64_t start = clock_mono_ns();

    while (s->n_accepted < n) {
        uv_run(loop, UV_RUN_NOWAIT);
        assert_false(is_late(start));
    }
}

/* Frames of all sizes go both ways, with TLS and without, beside a connection without a relay; a
 * polite close brings the last frame, and ends that channel alone. */
static void test_ranks(void **state)
{
    for (int key = 0; key < 2; key++) {
        struct tls_context *driver = key ? context(1, TLS_DRIVER) : NULL;
        struct tls_context *follower = key ? context(1, TLS_FOLLOWER) : NULL;
        struct machine m;
        struct server s;

        relays_open(*state, &s, (struct listener_options){.tls = driver});
        s.n_to_welcome = 3;
        machine_open(*state, &m, &s);
        for (int i = 0; i < 3; i++)
            conn_send(machine_rank(*state, &m, follower)->conn, frame_of(100 + (size_t)i, 'a'));
        until_accepted(*state, &s, 3);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(strncmp(conn_peer(s.side[i].conn), "127.0.0.1:", 10), 0);
            assert_non_null(strstr(conn_peer(s.side[i].conn), " (relayed "));
            assert_string_equal(conn_peer_number(s.side[i].conn), "127.0.0.1");
            assert_string_equal(conn_local_number(s.side[i].conn), "127.0.0.1");
            assert_null(strchr(conn_peer(m.rank[i].conn), '('));
            run_until(*state, &s.side[i].has_frame);
        }
        conn_send(s.side[0].conn, frame_of(8 << 20, 'x'));
        conn_send(s.side[1].conn, frame_of(1, 'y'));
        conn_close(s.side[1].conn);
        s.side[1].conn = NULL;
        run_until(*state, &m.rank[1].is_closed);
        assert_true(m.rank[1].n_bytes == 1 && m.rank[1].is_plain);
        run_until(*state, &m.rank[0].has_frame);
        assert_int_equal(m.rank[0].n_bytes, 8 << 20);
        conn_send(m.rank[2].conn, frame_of(8 << 20, 'z'));
        while (s.side[2].n_frames < 2)
            uv_run(*state, UV_RUN_ONCE);
        assert_int_equal(n_channels_of(m.party.mux), 2);
        machine_close(&m);
        run_until(*state, &s.side[0].is_closed);
        run_until(*state, &s.side[2].is_closed);
        assert_true(s.side[2].is_plain);
        listener_close(s.listener);
        mux_turn(*state, 20);
        uv_run(*state, UV_RUN_DEFAULT);
        tls_context_free(driver);
        tls_context_free(follower);
    }
}

/* A rank that has another secret ends its channel alone; the ones beside it join. */
static void test_wrong_secret(void **state)
{
    struct tls_context *driver = context(1, TLS_DRIVER);
    struct tls_context *good = context(1, TLS_FOLLOWER), *bad = context(2, TLS_FOLLOWER);
    struct machine m;
    struct server s;

    relays_open(*state, &s, (struct listener_options){.tls = driver});
    s.n_to_welcome = 2;
    machine_open(*state, &m, &s);
    machine_rank(*state, &m, good);
    machine_rank(*state, &m, bad);
    machine_rank(*state, &m, good);
    run_until(*state, &m.rank[1].is_closed);
    assert_says(&m.rank[1].why, ERR_REFUSED, "the secrets differ");
    run_until(*state, &m.is_open[0]);
    run_until(*state, &m.is_open[2]);
    assert_int_equal(s.n_accepted, 2);
    assert_false(m.rank[0].is_closed || m.rank[2].is_closed);
    machine_close(&m);
    run_until(*state, &s.side[0].is_closed);
    run_until(*state, &s.side[1].is_closed);
    listener_close(s.listener);
    uv_run(*state, UV_RUN_DEFAULT);
    tls_context_free(driver);
    tls_context_free(good);
    tls_context_free(bad);
}

/* The machine is lost: each of its ranks is, and the text names the relay. */
static void test_lost_machine(void **state)
{
    struct machine m;
    struct server s;

    relays_open(*state, &s, (struct listener_options){0});
    s.n_to_welcome = 3;
    machine_open(*state, &m, &s);
    for (int i = 0; i < 3; i++)
        machine_rank(*state, &m, NULL);
    until_accepted(*state, &s, 3);
    mux_abort(m.party.mux);
    for (int i = 0; i < 3; i++) {
        run_until(*state, &s.side[i].is_closed);
        assert_says(&s.side[i].why, ERR_PEER, "the relay at 127.0.0.1:");
        assert_true(m.rank[i].is_closed);
    }
    listener_close(s.listener);
}

/* ---- strangers ---- */

/* While there is no room for one more stranger, a rank behind a relay waits, as a connection does;
 * a welcome makes room. */
static void test_rank_waits(void **state)
{
    struct machine m;
    struct server s;

    relays_open(*state, &s,
                (struct listener_options){.max_strangers = 2, .max_each = 9, .max_sockets = 9});
    machine_open(*state, &m, &s);
    for (int i = 0; i < 4; i++)
        machine_rank(*state, &m, NULL);
    until_accepted(*state, &s, 2);
    mux_turn(*state, 50);
    assert_int_equal(s.n_accepted, 2);
    conn_welcome(s.side[0].conn);
    mux_turn(*state, 50);
    assert_int_equal(s.n_accepted, 3);
    conn_abort(s.side[1].conn); /* its place is free, too */
    s.side[1].conn = NULL;
    until_accepted(*state, &s, 4);
    run_until(*state, &m.rank[1].is_closed);
    machine_close(&m);
    for (int i = 0; i < 4; i++)
        if (i != 1)
            run_until(*state, &s.side[i].is_closed);
    listener_close(s.listener);
}

/* Two relays with ranks that wait get them in by turns. */
static void test_turns(void **state)
{
    struct machine m[2];
    struct server s;

    relays_open(*state, &s,
                (struct listener_options){.max_strangers = 1, .max_each = 9, .max_sockets = 9});
    for (int i = 0; i < 2; i++) {
        machine_open(*state, &m[i], &s);
        run_until(*state, &m[i].party.is_ready);
        mux_turn(*state, 20);
    }
    for (int i = 0; i < 6; i++)
        machine_rank(*state, &m[i / 3], NULL);
    for (int i = 0; i < 6; i++) {
        const char *now, *before;

        until_accepted(*state, &s, i + 1);
        mux_turn(*state, 20);
        assert_int_equal(s.n_accepted, i + 1);
        now = conn_peer(s.side[i].conn);
        before = i > 0 ? conn_peer(s.side[i - 1].conn) : "";
        if (2 <= i &&
            i <= 4) /* the first machine's second rank stood in line before the other one */
            assert_int_not_equal(strncmp(now, before, strcspn(now, " ")), 0);
        conn_welcome(s.side[i].conn);
    }
    machine_close(&m[0]);
    machine_close(&m[1]);
    for (int i = 0; i < 6; i++)
        run_until(*state, &s.side[i].is_closed);
    listener_close(s.listener);
}

/* The ranks of a relay count by its address: one more costs another, however young. */
static void test_each_relay(void **state)
{
    struct machine m;
    struct server s;

    relays_open(*state, &s, (struct listener_options){.max_each = 2});
    machine_open(*state, &m, &s);
    for (int i = 0; i < 3; i++)
        machine_rank(*state, &m, NULL);
    until_accepted(*state, &s, 3);
    run_until(*state, &m.rank[0].is_closed);
    mux_turn(*state, 20);
    assert_true(s.side[0].is_closed && strstr(s.side[0].why.msg, "others wait"));
    assert_false(s.side[1].is_closed || s.side[2].is_closed);
    machine_close(&m);
    run_until(*state, &s.side[1].is_closed);
    run_until(*state, &s.side[2].is_closed);
    listener_close(s.listener);
}

/* Relays without a welcomed rank take the places of sockets, as connections do. */
static void test_sockets(void **state)
{
    struct machine m[3];
    struct server s;

    relays_open(*state, &s, (struct listener_options){.max_sockets = 2});
    for (int i = 0; i < 3; i++)
        machine_open(*state, &m[i], &s);
    run_until(*state, &m[0].party.is_ready);
    run_until(*state, &m[1].party.is_ready);
    mux_turn(*state, 50);
    assert_false(m[2].party.is_ready);
    machine_rank(*state, &m[1], NULL);
    until_accepted(*state, &s, 1);
    assert_false(m[2].party.is_ready);
    conn_welcome(s.side[0].conn);
    run_until(*state, &m[2].party.is_ready);
    for (int i = 0; i < 3; i++)
        machine_close(&m[i]);
    run_until(*state, &s.side[0].is_closed);
    listener_close(s.listener);
}

static int is_still_open(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* The sockets of one address have a bound of their own, also where its ranks may be more: one more
 * costs the oldest, a relay or not.  Other addresses keep theirs. */
static void test_each_socket(void **state)
{
    struct machine m[3];
    struct server s;
    int other, fd;

    relays_open(*state, &s,
                (struct listener_options){
                    .max_strangers = 64, .max_each = 32, .max_sockets = 8, .max_sockets_each = 2});
    other = raw_connect_from(&s, "127.0.0.2");
    mux_turn(*state, 50);
    for (int i = 0; i < 3; i++) {
        machine_open(*state, &m[i], &s);
        run_until(*state, &m[i].party.is_ready);
        mux_turn(*state, 50);
    }
    assert_true(m[0].party.is_ended);
    assert_false(m[1].party.is_ended || m[2].party.is_ended);
    fd = raw_connect(&s);
    run_until(*state, &m[1].party.is_ended);
    mux_turn(*state, 50);
    assert_false(m[2].party.is_ended);
    assert_true(is_still_open(fd) && is_still_open(other));
    machine_close(&m[2]);
    close(fd);
    close(other);
    mux_turn(*state, 50);
    listener_close(s.listener);
}

/* A connection that waits for the place of a socket does not hold up ranks behind relays, which
 * need none. */
static void test_no_socket_needed(void **state)
{
    struct machine m;
    struct server s;
    int fd[2];

    relays_open(*state, &s, (struct listener_options){.max_sockets = 1});
    machine_open(*state, &m, &s);
    machine_rank(*state, &m, NULL);
    until_accepted(*state, &s, 1);
    conn_welcome(s.side[0].conn);
    for (int i = 0; i < 2; i++)
        fd[i] = raw_connect(&s);
    mux_turn(*state, 50);
    for (int i = 1; i < 3; i++) { /* the second one is not its relay's turn */
        machine_rank(*state, &m, NULL);
        until_accepted(*state, &s, i + 1);
        assert_non_null(strstr(conn_peer(s.side[i].conn), "relayed"));
    }
    machine_close(&m);
    for (int i = 0; i < 2; i++)
        close(fd[i]);
    for (int i = 0; i < 3; i++)
        run_until(*state, &s.side[i].is_closed);
    listener_close(s.listener);
}

/* A relay has the time of a stranger until it has a welcomed rank, and again after the last one has
 * left. */
static void test_quiet_relay(void **state)
{
    enum { STRANGER_MS = 300 };
    struct machine quiet, good;
    struct server s;
    int64_t start = clock_mono_ns();

    relays_open(*state, &s, (struct listener_options){.stranger_ms = STRANGER_MS});
    s.n_to_welcome = 1;
    machine_open(*state, &good, &s);
    machine_rank(*state, &good, NULL);
    until_accepted(*state, &s, 1);
    machine_open(*state, &quiet, &s);
    machine_rank(*state, &quiet, NULL); /* it says nothing, and is a stranger of its own */
    run_until(*state, &quiet.party.is_ended);
    assert_true(clock_since_s(start) > 1e-3 * STRANGER_MS);
    assert_true(s.side[1].is_closed && quiet.rank[0].is_closed);
    assert_false(good.party.is_ended || s.side[0].is_closed);
    conn_close(s.side[0].conn);
    s.side[0].conn = NULL;
    run_until(*state, &good.rank[0].is_closed);
    start = clock_mono_ns();
    run_until(*state, &good.party.is_ended);
    assert_true(clock_since_s(start) > 0.5e-3 * STRANGER_MS);
    listener_close(s.listener);
}

/* A listener without takes_relays, such as that of an older driver, refuses. */
static void test_none_taken(void **state)
{
    for (int key = 0; key < 2; key++) {
        struct tls_context *driver = key ? context(1, TLS_DRIVER) : NULL;
        struct machine m;
        struct server s;

        server_open_like(
            *state, &s,
            &(struct listener_options){.max_strangers = 4, .stranger_ms = NEVER_MS, .tls = driver});
        machine_open(*state, &m, &s);
        run_until(*state, &m.party.is_ended);
        assert_says(&m.party.why, ERR_UNSUPPORTED, "no dpdriver that takes relays");
        assert_int_equal(m.party.status, UV_EPROTONOSUPPORT);
        listener_close(s.listener);
        uv_run(*state, UV_RUN_DEFAULT);
        tls_context_free(driver);
    }
}

/* The first bytes of a connection come one by one: whatever they are, they arrive where they
 * should. */
static void test_first_bytes(void **state)
{
    struct frame *f = frame_of(10, 'f');
    uint8_t greeting[PIECE_GREETING];
    struct server s;
    int frames, relay, other;

    piece_greet(PIECE_CONNECTS, greeting);
    relays_open(*state, &s, (struct listener_options){0});
    frames = raw_connect(&s);
    relay = raw_connect(&s);
    other = raw_connect(&s);
    for (size_t i = 0; i < f->len; i++) {
        assert_int_equal(write(frames, f->data + i, 1), 1);
        if (i < sizeof greeting)
            assert_int_equal(write(relay, greeting + i, 1), 1);
        if (i < 4)
            assert_int_equal(write(other, &"DPTX"[i], 1), 1);
        mux_turn(*state, 5);
    }
    run_until(*state, &s.side[0].has_frame);
    assert_int_equal(s.side[0].n_bytes, 10);
    assert_int_equal(read(relay, greeting, sizeof greeting), sizeof greeting);
    run_until(*state, &s.side[1].is_closed);
    assert_says(&s.side[1].why, ERR_PROTO, "another version of dptrain's protocol");
    assert_int_equal(s.n_accepted, 2); /* the relay was none of them */
    close(frames);
    close(relay);
    close(other);
    run_until(*state, &s.side[0].is_closed);
    frame_unref(f);
    listener_close(s.listener);
}

/* Ranks outlive the listener, and their relay with them. */
static void test_listener_closes(void **state)
{
    struct machine m;
    struct server s;

    relays_open(*state, &s, (struct listener_options){0});
    s.n_to_welcome = 1;
    machine_open(*state, &m, &s);
    machine_rank(*state, &m, NULL);
    until_accepted(*state, &s, 1);
    listener_close(s.listener);
    mux_turn(*state, 20);
    conn_send(s.side[0].conn, frame_of(1 << 20, 'l'));
    run_until(*state, &m.rank[0].has_frame);
    conn_close(s.side[0].conn);
    run_until(*state, &m.rank[0].is_closed);
    run_until(*state, &m.party.is_ended);
    assert_int_equal(m.party.status, UV_EOF);
}

/* A relay that has brought no rank goes with the listener, at once, as other strangers do. */
static void test_strangers_go(void **state)
{
    uint8_t greeting[PIECE_GREETING];
    struct server s;
    int fd;

    relays_open(*state, &s, (struct listener_options){0});
    fd = raw_connect(&s);
    piece_greet(PIECE_CONNECTS, greeting);
    assert_int_equal(write(fd, greeting, sizeof greeting), sizeof greeting);
    while (recv(fd, greeting, sizeof greeting, MSG_DONTWAIT) < 0)
        uv_run(*state, UV_RUN_NOWAIT);
    listener_close(s.listener);
    mux_turn(*state, 5);
    assert_false(uv_loop_alive(*state));
    close(fd);
}

/* ---- what waits for a lost machine ---- */

struct waiting {
    struct frame *last; /* of those that wait */
    int is_closed, n_refs;
};

static void on_no_frame(void *arg, struct conn *c, const uint8_t *body, size_t len)
{
    (void)arg;
    (void)c;
    (void)body;
    (void)len;
    fail_msg("a frame came");
}

static void on_waiting_closed(void *arg, struct conn *c, const struct err *why)
{
    struct waiting *w = arg;

    (void)c;
    assert_non_null(why);
    w->is_closed = 1;
    w->n_refs = w->last->refs;
}

/* It is not encrypted any more: it still waits when its connection's user hears of the loss. */
static void test_none_encrypted(void **state)
{
    static const struct conn_events events = {on_no_frame, on_waiting_closed};
    struct tls_context *driver = context(1, TLS_DRIVER), *follower = context(1, TLS_FOLLOWER);
    struct waiting w = {.last = frame_of(1000, 'w')};
    struct machine m;
    struct server s;

    relays_open(*state, &s, (struct listener_options){.tls = driver});
    s.n_to_welcome = 1;
    machine_open(*state, &m, &s);
    machine_rank(*state, &m, follower);
    until_accepted(*state, &s, 1);
    run_until(*state, &m.is_open[0]);
    conn_listen(s.side[0].conn, &events, &w);
    conn_send(s.side[0].conn, frame_of(8 << 20, 'v'));
    conn_send(s.side[0].conn, frame_ref(w.last));
    mux_abort(m.party.mux);
    run_until(*state, &w.is_closed);
    listener_close(s.listener);
    uv_run(*state, UV_RUN_DEFAULT);
    assert_int_equal(w.n_refs, 2);
    assert_int_equal(w.last->refs, 1);
    frame_unref(w.last);
    tls_context_free(driver);
    tls_context_free(follower);
}

static int n_not_let_in;

static void count_refused(void *arg, const char *why)
{
    (void)arg;
    (void)why;
    n_not_let_in++;
}

/* Strangers behind a relay, who say nothing, hold a part of their address's places alone: a rank
 * that comes from there pushes nobody out, and is not pushed out by the next one. */
static void test_silent_ranks(void **state)
{
    enum { SILENT = 60, PLACES = 40 };
    struct tls_context *driver = context(1, TLS_DRIVER), *good = context(1, TLS_FOLLOWER);
    uint8_t bytes[PIECE_GREETING + SILENT * PIECE_HEADER];
    struct machine m;
    struct server s;
    int fd;

    n_not_let_in = 0;
    relays_open(
        *state, &s,
        (struct listener_options){
            .tls = driver, .max_strangers = PLACES, .max_sockets = 9, .refused = count_refused});
    s.n_to_welcome = RANKS;
    fd = raw_connect(&s);
    piece_greet(PIECE_CONNECTS, bytes);
    for (int i = 0; i < SILENT; i++)
        piece_put(&(struct piece){(uint32_t)i + 1, PIECE_OPEN, 0},
                  bytes + PIECE_GREETING + i * PIECE_HEADER);
    assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
    mux_turn(*state, 50);
    machine_open(*state, &m, &s);
    for (int i = 0; i < RANKS; i++)
        machine_rank(*state, &m, good);
    until_accepted(*state, &s, RANKS);
    assert_int_equal(n_not_let_in, 0);
    close(fd);
    machine_close(&m);
    for (int i = 0; i < RANKS; i++)
        run_until(*state, &s.side[i].is_closed);
    listener_close(s.listener);
    uv_run(*state, UV_RUN_DEFAULT);
    tls_context_free(driver);
    tls_context_free(good);
}

/* More ranks than may prove the secret at the same time all come in. */
static void test_many_ranks_of_one(void **state)
{
    enum { MANY = 100 };
    struct tls_context *driver = context(1, TLS_DRIVER), *good = context(1, TLS_FOLLOWER);
    struct side *rank = xcalloc(MANY, sizeof *rank);
    struct machine m;
    struct server s;
    struct err err;

    relays_open(*state, &s, (struct listener_options){.tls = driver, .max_strangers = 2 * MANY});
    machine_open(*state, &m, &s);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(conn_new(*state, FRAME_MAX, good, &rank[i].conn, &err), 0);
        conn_listen(rank[i].conn, &side_events, &rank[i]);
        assert_int_equal(conn_start_over(rank[i].conn, m.party.mux, &err), 0);
    }
    until_accepted(*state, &s, MANY);
    mux_abort(m.party.mux);
    listener_close(s.listener);
    uv_run(*state, UV_RUN_DEFAULT);
    free(rank);
    tls_context_free(driver);
    tls_context_free(good);
}

int main(void)
{
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
    const struct CMUnitTest tests[] = {
        LOOP_TEST(test_ranks),
        LOOP_TEST(test_wrong_secret),
        LOOP_TEST(test_lost_machine),
        LOOP_TEST(test_rank_waits),
        LOOP_TEST(test_turns),
        LOOP_TEST(test_each_relay),
        LOOP_TEST(test_sockets),
        LOOP_TEST(test_each_socket),
        LOOP_TEST(test_no_socket_needed),
        LOOP_TEST(test_quiet_relay),
        LOOP_TEST(test_none_taken),
        LOOP_TEST(test_first_bytes),
        LOOP_TEST(test_listener_closes),
        LOOP_TEST(test_strangers_go),
        LOOP_TEST(test_none_encrypted),
        LOOP_TEST(test_silent_ranks),
        LOOP_TEST(test_many_ranks_of_one),
    };

    signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
