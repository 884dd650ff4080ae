/* Tests of a listener that takes relays: one gives strangers no more room than connections would,
 * and does not hold up others. */
#include "relay_machine.h"

#include <errno.h>

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
        machine_rank(*state, &m);
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
        machine_rank(*state, &m[i / 3]);
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
        machine_rank(*state, &m);
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
    machine_rank(*state, &m[1]);
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
    machine_rank(*state, &m);
    until_accepted(*state, &s, 1);
    conn_welcome(s.side[0].conn);
    for (int i = 0; i < 2; i++)
        fd[i] = raw_connect(&s);
    mux_turn(*state, 50);
    for (int i = 1; i < 3; i++) { /* the second one is not its relay's turn */
        machine_rank(*state, &m);
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
    machine_rank(*state, &good);
    until_accepted(*state, &s, 1);
    machine_open(*state, &quiet, &s);
    machine_rank(*state, &quiet); /* it says nothing, and is a stranger of its own */
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

/* A relay that has brought no rank goes with the listener, at once, as other strangers do. */
static void test_strangers_go(void **state)
{
    uint8_t greeting[PIECE_GREETING];
    struct server s;
    int fd;

    relays_open(*state, &s, (struct listener_options){0});
    fd = raw_connect(&s);
    piece_greet(&(struct piece_greeting){.side = PIECE_CONNECTS}, greeting);
    assert_int_equal(write(fd, greeting, sizeof greeting), sizeof greeting);
    while (recv(fd, greeting, sizeof greeting, MSG_DONTWAIT) < 0)
        uv_run(*state, UV_RUN_NOWAIT);
    listener_close(s.listener);
    mux_turn(*state, 5);
    assert_false(uv_loop_alive(*state));
    close(fd);
}

static int n_not_let_in;
static char not_let_in[512];

static void count_refused(void *arg, const char *why)
{
    (void)arg;
    snprintf(not_let_in, sizeof not_let_in, "%s", why);
    n_not_let_in++;
}

/* A relay that has not proven that it knows the secret opens no channel: its pieces are no TLS.
 * Ranks that come from the same address push nobody out, and are not pushed out. */
static void test_unproven_relay(void **state)
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
    piece_greet(&(struct piece_greeting){.side = PIECE_CONNECTS, .has_tls = 1}, bytes);
    for (int i = 0; i < SILENT; i++)
        piece_put(&(struct piece){(uint32_t)i + 1, PIECE_OPEN, 0},
                  bytes + PIECE_GREETING + i * PIECE_HEADER);
    assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
    mux_turn(*state, 50);
    assert_int_equal(n_not_let_in, 1);
    assert_non_null(strstr(not_let_in, "neither TLS nor dptrain"));
    machine_open_with(*state, &m, &s, good);
    for (int i = 0; i < RANKS; i++)
        machine_rank(*state, &m);
    until_accepted(*state, &s, RANKS);
    assert_int_equal(n_not_let_in, 1);
    close(fd);
    machine_close(&m);
    for (int i = 0; i < RANKS; i++)
        run_until(*state, &s.side[i].is_closed);
    listener_close(s.listener);
    uv_run(*state, UV_RUN_DEFAULT);
    tls_context_free(driver);
    tls_context_free(good);
}

int main(void)
{
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
    const struct CMUnitTest tests[] = {
        LOOP_TEST(test_rank_waits),   LOOP_TEST(test_turns),
        LOOP_TEST(test_each_relay),   LOOP_TEST(test_sockets),
        LOOP_TEST(test_each_socket),  LOOP_TEST(test_no_socket_needed),
        LOOP_TEST(test_quiet_relay),  LOOP_TEST(test_none_taken),
        LOOP_TEST(test_strangers_go), LOOP_TEST(test_unproven_relay),
    };

    signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
