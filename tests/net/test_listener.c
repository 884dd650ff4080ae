/* Tests of listener: strangers get a limited time and a limited number of places, together and from
 * one address, until their sockets are gone; a welcome makes room, a closed listener leaves its
 * connections alone, and a flood is no flood of log lines. */
#include "../test.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
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

/* ---- places ---- */

static void close_all(int *fd, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

static void turn(uv_loop_t *loop, int n)
{
    for (int i = 0; i < n; i++)
        uv_run(loop, UV_RUN_NOWAIT);
}

/* A connection that failed keeps its place until its socket is gone. */
static void test_lingering_counts(void **state)
{
    struct server s;
    int fd[3];

    server_open(*state, &s, 2, NEVER_MS);
    for (size_t i = 0; i < 2; i++) {
        fd[i] = raw_connect(&s);
        assert_int_equal(write(fd[i], "GET / HTTP", 10), 10);
        run_until(*state, &s.side[i].is_closed);
    }
    fd[2] = raw_connect(&s);
    turn(*state, 50);
    assert_int_equal(s.n_accepted, 2);
    close(fd[0]); /* this stranger has read the reason */
    while (s.n_accepted < 3)
        uv_run(*state, UV_RUN_ONCE);
    close_all(fd + 1, 2);
    run_until(*state, &s.side[2].is_closed);
    listener_close(s.listener);
}

/* A connection that only lingers makes room before one that is older and open, when both are old
 * enough. */
static void test_lingering_goes_first(void **state)
{
    struct server s;
    int fd[3];
    int64_t start;

    server_open_like(*state, &s,
                     &(struct listener_options){.max_strangers = 2, .stranger_ms = NEVER_MS});
    fd[0] = raw_connect(&s);
    run_until(*state, &s.has_one);
    fd[1] = raw_connect(&s);
    assert_int_equal(write(fd[1], "GET / HTTP", 10), 10);
    run_until(*state, &s.side[1].is_closed);
    uv_sleep(LISTENER_ROOM_AFTER_MS + 50);
    fd[2] = raw_connect(&s);
    start = clock_mono_ns();
    while (s.n_accepted < 3)
        uv_run(*state, UV_RUN_ONCE);
    assert_true(clock_since_s(start) < 1.5); /* it would have lingered for 2 s */
    assert_false(s.side[0].is_closed);
    close_all(fd, 3);
    run_until(*state, &s.side[0].is_closed);
    run_until(*state, &s.side[2].is_closed);
    listener_close(s.listener);
}

/* One address has at most its part of the places: its oldest stranger goes for a new one, and each
 * new one costs another.  Members and other addresses do not count. */
static void test_each_source(void **state)
{
    struct server s;
    int fd[8];

    server_open_like(*state, &s,
                     &(struct listener_options){.max_strangers = 16,
                                                .max_each = 2,
                                                .stranger_ms = NEVER_MS,
                                                .room_after_ms = NEVER_MS});
    s.n_to_welcome = 2;
    for (int i = 0; i < 5; i++) {
        fd[i] = i == 2 ? raw_connect_from(&s, "127.0.0.2") : raw_connect(&s);
        while (s.n_accepted < i + 1)
            uv_run(*state, UV_RUN_ONCE);
    }
    turn(*state, 50);
    for (int i = 0; i < 5; i++)
        assert_false(s.side[i].is_closed);
    for (int i = 5; i < 8; i++) /* all three come in one turn of the loop */
        fd[i] = raw_connect(&s);
    while (s.n_accepted < 8)
        uv_run(*state, UV_RUN_ONCE);
    turn(*state, 50);
    for (int i = 0; i < 8; i++)
        assert_int_equal(s.side[i].is_closed, 3 <= i && i <= 5);
    assert_non_null(strstr(s.side[3].why.msg, "others wait"));
    close_all(fd, 8);
    for (int i = 0; i < 8; i++)
        run_until(*state, &s.side[i].is_closed);
    listener_close(s.listener);
}

/* A connection for which there was no room comes in as soon as there may be more. */
static void test_limit(void **state)
{
    struct server s;
    int fd[3];

    server_open_like(*state, &s,
                     &(struct listener_options){
                         .max_strangers = 1, .stranger_ms = NEVER_MS, .room_after_ms = NEVER_MS});
    for (int i = 0; i < 3; i++)
        fd[i] = raw_connect(&s);
    turn(*state, 50);
    assert_int_equal(s.n_accepted, 1);
    listener_limit(s.listener, &(struct listener_options){.max_strangers = 3, .max_each = 2});
    turn(*state, 50);
    assert_int_equal(s.n_accepted, 3);
    assert_true(s.side[0].is_closed);
    assert_false(s.side[1].is_closed || s.side[2].is_closed);
    close_all(fd, 3);
    for (int i = 0; i < 3; i++)
        run_until(*state, &s.side[i].is_closed);
    listener_close(s.listener);
}

/* ---- what is logged ---- */

/* Read what was written to standard error since stderr_to. */
static int stderr_to(FILE *f)
{
    int saved = dup(STDERR_FILENO);

    fflush(stderr);
    dup2(fileno(f), STDERR_FILENO);
    return saved;
}

static char *stderr_back(FILE *f, int saved)
{
    char *text = xcalloc(1, 1 << 16);

    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(f);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

static int n_in(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

/* Of many strangers that are not let in, some get a line of their own in each window of time, and
 * the others are counted. */
static void test_log_window(void **state)
{
    enum { N = LISTENER_SAYS + 7, WINDOW_MS = 2000 };
    static const struct tls_texts texts = {"other", "plain"};
    struct secret key = {{1}};
    struct tls_context *tls;
    struct server s;
    struct err err;
    FILE *f = tmpfile();
    const int saved = stderr_to(f);
    int fd[N + 1];
    char *text;

    assert_int_equal(tls_context_new(&key, 1, TLS_DRIVER, &texts, &tls, &err), 0);
    server_open_like(*state, &s,
                     &(struct listener_options){.max_strangers = N + 1,
                                                .stranger_ms = NEVER_MS,
                                                .say_window_ms = WINDOW_MS,
                                                .tls = tls});
    for (int i = 0; i <= N; i++) {
        fd[i] = raw_connect(&s);
        assert_int_equal(write(fd[i], "GET / HTTP", 10), 10);
        turn(*state, 5);
        for (int64_t start = clock_mono_ns();
             i == N - 1 && clock_since_s(start) < 1.1e-3 * WINDOW_MS;)
            uv_run(*state, UV_RUN_NOWAIT);
    }
    turn(*state, 20);
    close_all(fd, N + 1);
    listener_close(s.listener);
    uv_run(*state, UV_RUN_DEFAULT);
    tls_context_free(tls);
    text = stderr_back(f, saved);
    assert_int_equal(n_in(text, "not let in: from 127.0.0.1:"), LISTENER_SAYS + 1);
    assert_int_equal(n_in(text, ": 7 more connections came to nothing within 2 s"), 1);
    assert_int_equal(n_in(text, "more connections"), 1);
    free(text);
}

/* A stranger that calls itself a relay and is gone at once gets no line of its own either. */
static void test_log_of_relays(void **state)
{
    enum { N = LISTENER_SAYS + 7 };
    const struct linger at_once = {.l_onoff = 1};
    struct server s;
    FILE *f = tmpfile();
    const int saved = stderr_to(f);
    char *text;

    server_open_like(
        *state, &s,
        &(struct listener_options){.max_strangers = 4, .stranger_ms = NEVER_MS, .takes_relays = 1});
    for (int i = 0; i < N; i++) {
        const int fd = raw_connect(&s);

        turn(*state, 20);
        assert_int_equal(write(fd, "DPTR", 4), 4);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
        close(fd);
        turn(*state, 20);
    }
    listener_close(s.listener);
    uv_run(*state, UV_RUN_DEFAULT);
    text = stderr_back(f, saved);
    assert_int_equal(n_in(text, "\n"), LISTENER_SAYS + 1);
    assert_int_equal(n_in(text, "not let in: a relay: "), LISTENER_SAYS);
    assert_int_equal(n_in(text, ": 7 more connections came to nothing within 10 s"), 1);
    free(text);
}

/* The connection that takes the last file is told of.  The next one is closed at once, and nobody
 * hears of it. */
static void test_last_file(void **state)
{
    struct server s;
    struct rlimit before, few;
    FILE *f = tmpfile();
    const int saved = stderr_to(f);
    int fd[2];
    char *text, byte;

    server_open_like(*state, &s,
                     &(struct listener_options){.max_strangers = 4, .stranger_ms = NEVER_MS});
    for (int i = 0; i < 2; i++)
        fd[i] = raw_connect(&s);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)dup(fd[0]) + 1; /* the lowest free one is the last one */
    close((int)few.rlim_cur - 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    turn(*state, 50);
    assert_int_equal(s.n_accepted, 1);
    assert_true(read(fd[1], &byte, 1) <= 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    close_all(fd, 2);
    run_until(*state, &s.side[0].is_closed);
    listener_close(s.listener);
    uv_run(*state, UV_RUN_DEFAULT);
    text = stderr_back(f, saved);
    assert_int_equal(n_in(text, "\n"), 1);
    assert_int_equal(n_in(text, ": its connection is the last one, and others are closed"), 1);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
        LOOP_TEST(test_errors),           LOOP_TEST(test_silent_stranger),
        LOOP_TEST(test_welcomed_stays),   LOOP_TEST(test_room),
        LOOP_TEST(test_room_by_welcome),  LOOP_TEST(test_close_first),
        LOOP_TEST(test_lingering_counts), LOOP_TEST(test_lingering_goes_first),
        LOOP_TEST(test_each_source),      LOOP_TEST(test_limit),
        LOOP_TEST(test_log_window),       LOOP_TEST(test_log_of_relays),
        LOOP_TEST(test_last_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
