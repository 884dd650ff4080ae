/* Tests of a listener that takes relays: a relay proves that it knows the secret, and ranks behind
 * one are connections like others, each with its own end. */
#include "relay_machine.h"

#include "base/alloc.h"

/* The keys of a server and of one relay; NULL: they have no secret. */
struct keyed {
    struct tls_context *driver, *follower;
};

static void keyed_open(uv_loop_t *loop, struct keyed *k, struct machine *m, struct server *s,
                       int has_tls)
{
    k->driver = has_tls ? context(1, TLS_DRIVER) : NULL;
    k->follower = has_tls ? context(1, TLS_FOLLOWER) : NULL;
    relays_open(loop, s, (struct listener_options){.tls = k->driver});
    s->n_to_welcome = 3;
    machine_open_with(loop, m, s, k->follower);
}

static void keyed_close(uv_loop_t *loop, struct keyed *k, struct server *s)
{
    listener_close(s->listener);
    uv_run(loop, UV_RUN_DEFAULT);
    tls_context_free(k->driver);
    tls_context_free(k->follower);
}

/* Frames of all sizes go both ways, with TLS and without, beside a connection without a relay; a
 * polite close brings the last frame, and ends that channel alone. */
static void test_ranks(void **state)
{
    for (int has_tls = 0; has_tls < 2; has_tls++) {
        struct keyed k;
        struct machine m;
        struct server s;

        keyed_open(*state, &k, &m, &s, has_tls);
        for (int i = 0; i < 3; i++)
            conn_send(machine_rank(*state, &m)->conn, frame_of(100 + (size_t)i, 'a'));
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
        keyed_close(*state, &k, &s);
    }
}

static char not_let_in[512];
static int n_not_let_in;

static void note_refused(void *arg, const char *why)
{
    (void)arg;
    n_not_let_in++;
    snprintf(not_let_in, sizeof not_let_in, "%s", why);
}

struct refusal {
    int driver, relay; /* keys; 0: no secret */
    const char *relay_says, *driver_says;
};

/* A bad relay, and a good one after it. */
static void refuse(uv_loop_t *loop, const struct refusal *r, struct server *s,
                   const struct tls_context *bad_key, const struct tls_context *good_key)
{
    struct machine bad, good;

    n_not_let_in = 0;
    machine_open_with(loop, &bad, s, bad_key);
    conn_send(machine_rank(loop, &bad)->conn, frame_of(100, 'b'));
    run_until(loop, &bad.party.is_ended);
    assert_says(&bad.party.why, ERR_REFUSED, r->relay_says);
    assert_true(bad.rank[0].is_closed);
    run_until(loop, &n_not_let_in);
    assert_non_null(strstr(not_let_in, r->driver_says));
    machine_open_with(loop, &good, s, good_key);
    conn_send(machine_rank(loop, &good)->conn, frame_of(100, 'g'));
    until_accepted(loop, s, 1);
    run_until(loop, &s->side[0].has_frame);
    machine_close(&good);
    run_until(loop, &s->side[0].is_closed);
    assert_int_equal(s->n_accepted, 1);
    assert_int_equal(n_not_let_in, 1);
}

/* A relay has another secret, or one side has none: no rank of that relay gets to the caller, both
 * sides say why, and a good relay is let in. */
static void test_refused(void **state)
{
    static const struct refusal cases[] = {
        {1, 2, "the secrets differ: no copy of the other", "the secrets differ"},
        {1, 0, "it has a secret, and this side has none: give both", "it has no secret, and"},
        {0, 1, "it has no secret, and this side has one: give both", "it has a secret, and"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tls_context *key[3] = {NULL, context(1, TLS_FOLLOWER), context(2, TLS_FOLLOWER)};
        struct tls_context *driver = cases[i].driver ? context(1, TLS_DRIVER) : NULL;
        struct server s;

        relays_open(*state, &s, (struct listener_options){.tls = driver, .refused = note_refused});
        s.n_to_welcome = 1;
        refuse(*state, &cases[i], &s, key[cases[i].relay], key[cases[i].driver]);
        listener_close(s.listener);
        uv_run(*state, UV_RUN_DEFAULT);
        tls_context_free(driver);
        tls_context_free(key[1]);
        tls_context_free(key[2]);
    }
}

/* A relay takes a program that knows the secret as a follower does for no driver. */
static void test_no_driver_of_ours(void **state)
{
    struct tls_context *follower = context(1, TLS_FOLLOWER), *driver = context(1, TLS_DRIVER);
    struct tls_context *other = context(2, TLS_DRIVER);
    EVP_PKEY *own = driver->key[0].driver;
    struct machine m;
    struct server s;

    driver->key[0].driver = other->key[0].driver;
    relays_open(*state, &s, (struct listener_options){.tls = driver});
    machine_open_with(*state, &m, &s, follower);
    machine_rank(*state, &m);
    run_until(*state, &m.party.is_ended);
    assert_says(&m.party.why, ERR_REFUSED,
                "knows the secret as a follower does, but is no dpdriver");
    assert_false(m.party.is_ready);
    assert_int_equal(s.n_accepted, 0);
    listener_close(s.listener);
    uv_run(*state, UV_RUN_DEFAULT);
    driver->key[0].driver = own;
    tls_context_free(follower);
    tls_context_free(driver);
    tls_context_free(other);
}

/* The machine is lost: each of its ranks is, and the text names the relay. */
static void test_lost_machine(void **state)
{
    for (int has_tls = 0; has_tls < 2; has_tls++) {
        struct keyed k;
        struct machine m;
        struct server s;

        keyed_open(*state, &k, &m, &s, has_tls);
        for (int i = 0; i < 3; i++)
            machine_rank(*state, &m);
        until_accepted(*state, &s, 3);
        mux_abort(m.party.mux);
        for (int i = 0; i < 3; i++) {
            run_until(*state, &s.side[i].is_closed);
            assert_says(&s.side[i].why, ERR_PEER, "the relay at 127.0.0.1:");
            assert_true(m.rank[i].is_closed);
        }
        keyed_close(*state, &k, &s);
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

    piece_greet(&(struct piece_greeting){.side = PIECE_CONNECTS}, greeting);
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
    machine_rank(*state, &m);
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

/* Many ranks of one relay come in at once. */
static void test_many_ranks_of_one(void **state)
{
    enum { MANY = 100 };
    struct tls_context *driver = context(1, TLS_DRIVER), *good = context(1, TLS_FOLLOWER);
    struct side *rank = xcalloc(MANY, sizeof *rank);
    struct machine m;
    struct server s;
    struct err err;

    relays_open(*state, &s, (struct listener_options){.tls = driver, .max_strangers = 2 * MANY});
    machine_open_with(*state, &m, &s, good);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(conn_new(*state, FRAME_MAX, NULL, &rank[i].conn, &err), 0);
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
        LOOP_TEST(test_refused),
        LOOP_TEST(test_no_driver_of_ours),
        LOOP_TEST(test_lost_machine),
        LOOP_TEST(test_first_bytes),
        LOOP_TEST(test_listener_closes),
        LOOP_TEST(test_many_ranks_of_one),
    };

    signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
