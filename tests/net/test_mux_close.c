/* Tests of the end of a mux whose peer reads nothing: it comes in a bounded time, and never
 * within a call of a user who walks over channels. */
#include "mux_party.h"

#include <errno.h>

#include "base/clock.h"

enum { FAREWELLS = 4 * MUX_MAX_CHANNELS, TOO_LATE_S = 20, PAIRS = 100 };

static void greet(uv_loop_t *loop, int fd)
{
    uint8_t greeting[PIECE_GREETING];

    piece_greet(&(struct piece_greeting){.side = PIECE_CONNECTS}, greeting);
    assert_int_equal(write(fd, greeting + PIECE_MAGIC, PIECE_GREETING - PIECE_MAGIC),
                     PIECE_GREETING - PIECE_MAGIC); /* the magic was read */
    mux_turn(loop, 2);
}

static void send_piece(uv_loop_t *loop, int fd, uint32_t number, enum piece_kind kind)
{
    uint8_t piece[PIECE_HEADER];

    piece_put(&(struct piece){number, kind, 0}, piece);
    assert_int_equal(send(fd, piece, sizeof piece, MSG_NOSIGNAL), sizeof piece);
    mux_turn(loop, 2);
}

/* Channels that are opened and ended at once: each costs the other side an end of its own. */
static void send_pairs(uv_loop_t *loop, int fd, uint32_t *number, int n)
{
    uint8_t pairs[2 * PAIRS * PIECE_HEADER], *at = pairs;

    for (int i = 0; i < n; i++) {
        piece_put(&(struct piece){++*number, PIECE_OPEN, 0}, at);
        piece_put(&(struct piece){*number, PIECE_END, 0}, at + PIECE_HEADER);
        at += 2 * PIECE_HEADER;
    }
    assert_int_equal(send(fd, pairs, (size_t)(at - pairs), MSG_NOSIGNAL), at - pairs);
    mux_turn(loop, 2);
}

/* An accepting side with one channel, number 1, whose socket is full. */
static int party_accept_full(struct party *p, uv_loop_t *loop, uint32_t *number)
{
    int fd = party_accept(p, loop), few = 4096;
    uv_os_fd_t own;

    assert_int_equal(uv_fileno((uv_handle_t *)mux_socket(p->mux), &own), 0);
    assert_int_equal(setsockopt(own, SOL_SOCKET, SO_SNDBUF, &few, sizeof few), 0);
    greet(loop, fd);
    send_piece(loop, fd, 1, PIECE_OPEN);
    assert_int_equal(p->n_lines, 1);
    p->is_shy = 1;
    *number = 1;
    while (!stream_n_unsent(&p->mux->tls.stream))
        send_pairs(loop, fd, number, PAIRS);
    assert_false(p->is_ended);
    return fd;
}

/* 1: no handle is left in time. */
static int comes_to_an_end(uv_loop_t *loop)
{
    const int64_t start = clock_mono_ns();

    while (uv_loop_alive(loop) && clock_since_s(start) < TOO_LATE_S) {
        mux_turn(loop, 1);
        usleep(1000);
    }
    return !uv_loop_alive(loop);
}

/* The peer takes nothing more. */
static void test_no_reader(void **state)
{
    struct party p;
    uint32_t number;
    int fd = party_accept_full(&p, *state, &number), has_ended;

    mux_drop(&p.line[0].ch);
    mux_close(p.mux);
    has_ended = comes_to_an_end(*state);
    close(fd);
    assert_true(has_ended);
}

/* While a channel is there, its user's patience counts, and what was left comes all the same. */
static void test_late_reader(void **state)
{
    static char bytes[1 << 20];
    struct party p;
    uint32_t number;
    int fd = party_accept_full(&p, *state, &number);
    size_t n_bytes = 0;
    ssize_t n;

    mux_close(p.mux);
    for (int i = 0; i < 30; i++) {
        mux_turn(*state, 1);
        usleep(100000);
    }
    assert_non_null(p.line[0].ch.mux);
    mux_drop(&p.line[0].ch);
    while ((n = read(fd, bytes, sizeof bytes)) != 0) {
        assert_true(n > 0 || errno == EAGAIN);
        n_bytes += n > 0 ? (size_t)n : 0;
        mux_turn(*state, 1);
    }
    /* The greeting, the window of the first channel, and the end of each. */
    assert_int_equal(n_bytes, PIECE_GREETING + PIECE_HEADER + PIECE_CREDIT_LEN +
                                  (size_t)number * PIECE_HEADER);
    close(fd);
}

/* The peer's first unread end too many comes with a mux_drop: the mux ends, but not in that call,
 * whose user may be walking over a list that this end would change. */
static void test_drop_ends_nothing(void **state)
{
    struct party p;
    uint32_t number;
    int fd = party_accept_full(&p, *state, &number);

    while (p.mux->n_farewells < FAREWELLS)
        send_pairs(*state, fd, &number, (int)min_i64(PAIRS, FAREWELLS - p.mux->n_farewells));
    mux_turn(*state, 5);
    assert_false(p.is_ended);
    mux_drop(&p.line[0].ch);
    assert_false(p.is_ended);
    mux_turn(*state, 2);
    assert_true(p.is_ended);
    assert_int_equal(p.status, UV_ETIMEDOUT);
    assert_non_null(strstr(p.why.msg, "it does not read"));
    assert_false(p.line[0].is_broken);
    mux_turn(*state, 5);
    close(fd);
}

int main(void)
{
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
    const struct CMUnitTest tests[] = {
        LOOP_TEST(test_no_reader),
        LOOP_TEST(test_late_reader),
        LOOP_TEST(test_drop_ends_nothing),
    };

    signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    pattern_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
