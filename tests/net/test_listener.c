/* Tests of listener: strangers get a limited time and a limited number of places, a welcome makes
 * room, and a closed listener leaves its connections alone. */
#include "../test.h"

#include <unistd.h>

#include "base/clock.h"
#include "fixture.h"

static void ignore(void *arg, struct conn *c)
{
    (void)arg;
    conn_abort(c);
}

static void expect_refusal(uv_loop_t *loop, const char *host, int port, int code, const char *has)
{
    struct listener_options o = {
        .host = host, .port = port, .max_strangers = 1, .stranger_ms = 1, .accepted = ignore};
    struct listener *l;
    struct err err;

    assert_int_equal(listener_new(loop, &o, &l, &err), code);
    if (!strstr(err.msg, has))
        fail_msg("\"%s\" is not in: %s", has, err.msg);
}

static void test_errors(void **state)
{
    struct server s;
    char with_port[64];

    server_open(*state, &s, 4, NEVER_MS);
    snprintf(with_port, sizeof with_port, "sport = :%d", listener_port(s.listener));
    expect_refusal(*state, "127.0.0.1", listener_port(s.listener), ERR_IO, "EADDRINUSE");
    expect_refusal(*state, "127.0.0.1", listener_port(s.listener), ERR_IO, "--port 0");
    expect_refusal(*state, "127.0.0.1", listener_port(s.listener), ERR_IO, with_port);
    expect_refusal(*state, "192.0.2.1", 0, ERR_IO, "EADDRNOTAVAIL");
    expect_refusal(*state, "no.such.host.invalid", 0, ERR_ARG, "cannot be resolved");
    listener_close(s.listener);
}

static void test_silent_stranger(void **state)
{
    struct server s;
    int fd;

    server_open(*state, &s, 4, 150);
    fd = raw_connect(&s);
    run_until(*state, &s.side[0].is_closed);
    assert_int_equal(s.side[0].why.code, ERR_TIMEOUT);
    assert_non_null(strstr(s.side[0].why.msg, "said nothing"));
    close(fd);
    listener_close(s.listener);
}

static void test_welcomed_stays(void **state)
{
    struct server s;
    int quiet, welcomed;

    server_open(*state, &s, 4, 150);
    s.n_to_welcome = 1;
    welcomed = raw_connect(&s);
    run_until(*state, &s.has_one);
    quiet = raw_connect(&s); /* this connection's end shows that the time has passed */
    run_until(*state, &s.side[1].is_closed);
    assert_false(s.side[0].is_closed);
    conn_close(s.side[0].conn);
    close(quiet);
    close(welcomed);
    listener_close(s.listener);
}

/* With two places, the third stranger waits in the kernel's queue until the oldest is 0.2 s old. */
static void test_room(void **state)
{
    struct server s;
    int fd[3];
    int64_t start;

    server_open_like(*state, &s,
                     &(struct listener_options){.max_strangers = 2, .stranger_ms = NEVER_MS});
    for (size_t i = 0; i < ARRAY_LEN(fd); i++)
        fd[i] = raw_connect(&s);
    start = clock_mono_ns();
    run_until(*state, &s.side[0].is_closed);
    assert_true(clock_since_s(start) > 0.15);
    assert_non_null(strstr(s.side[0].why.msg, "others wait"));
    while (s.n_accepted < 3)
        uv_run(*state, UV_RUN_ONCE);
    assert_false(s.side[1].is_closed);
    for (size_t i = 0; i < ARRAY_LEN(fd); i++)
        close(fd[i]);
    run_until(*state, &s.side[1].is_closed);
    run_until(*state, &s.side[2].is_closed);
    listener_close(s.listener);
}

/* A welcome makes room at once. */
static void test_room_by_welcome(void **state)
{
    struct server s;
    int fd[3];

    server_open(*state, &s, 1, NEVER_MS);
    for (size_t i = 0; i < ARRAY_LEN(fd); i++)
        fd[i] = raw_connect(&s);
    run_until(*state, &s.has_one);
    for (int i = 0; i < 2; i++) {
        conn_welcome(s.side[i].conn);
        while (s.n_accepted < i + 2)
            uv_run(*state, UV_RUN_ONCE);
    }
    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        assert_non_null(s.side[i].conn);
        conn_abort(s.side[i].conn);
        close(fd[i]);
    }
    listener_close(s.listener);
}

/* The listener is closed first; its connections live on, and are freed by themselves. */
static void test_close_first(void **state)
{
    struct server s;
    int fd;

    server_open(*state, &s, 4, NEVER_MS);
    fd = raw_connect(&s);
    run_until(*state, &s.has_one);
    listener_close(s.listener);
    uv_run(*state, UV_RUN_NOWAIT);
    close(fd);
    run_until(*state, &s.side[0].is_closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
        LOOP_TEST(test_errors), LOOP_TEST(test_silent_stranger), LOOP_TEST(test_welcomed_stays),
        LOOP_TEST(test_room),   LOOP_TEST(test_room_by_welcome), LOOP_TEST(test_close_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
