/* Tests of a listener that takes relays: ranks behind one are connections like others, each with
 * its own proof and its own end. */
#include "relay_machine.h"

#include "base/alloc.h"

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

int main(void)
{
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
    const struct CMUnitTest tests[] = {
        LOOP_TEST(test_ranks),
        LOOP_TEST(test_wrong_secret),
        LOOP_TEST(test_lost_machine),
        LOOP_TEST(test_first_bytes),
        LOOP_TEST(test_listener_closes),
        LOOP_TEST(test_none_encrypted),
        LOOP_TEST(test_many_ranks_of_one),
    };

    signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
