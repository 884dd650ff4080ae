/* Tests of dialer: it connects by name and address, tries again until the driver comes, gives up in
 * time, and can be closed at any moment. */
#include "../test.h"

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "fixture.h"
#include "net/dialer.h"

struct caller {
    struct side side;
    int is_connected, has_given_up;
    struct err why;
};

static void on_connected(void *arg, struct conn *c)
{
    struct caller *k = arg;

    k->side.conn = c;
    k->is_connected = 1;
    conn_listen(c, &side_events, &k->side);
}

static void on_gave_up(void *arg, const struct err *why)
{
    struct caller *k = arg;

    k->why = *why;
    k->has_given_up = 1;
}

static struct dialer *dial(uv_loop_t *loop, struct caller *k, const char *host, int port, int wait)
{
    struct dialer_options o = {.host = host,
                               .port = port,
                               .wait_ms = wait,
                               .seed = 7,
                               .connected = on_connected,
                               .gave_up = on_gave_up,
                               .arg = k};
    struct dialer *d;
    struct err err;

    memset(k, 0, sizeof *k);
    assert_int_equal(dialer_new(loop, &o, &d, &err), 0);
    dialer_start(d, 0);
    return d;
}

static void test_there(void **state)
{
    struct server s;
    struct caller k;
    struct dialer *d;

    server_open(*state, &s, 4, NEVER_MS);
    d = dial(*state, &k, "localhost", listener_port(s.listener), -1);
    run_until(*state, &k.is_connected);
    conn_send(k.side.conn, frame_of(40000, 'd'));
    s.side[0].answer = frame_of(FRAME_MAX_STRANGER + 100, 'e'); /* a dialer trusts its driver */
    run_until(*state, &k.side.has_frame);
    assert_int_equal(s.side[0].n_bytes, 40000);
    assert_int_equal(k.side.n_bytes, FRAME_MAX_STRANGER + 100);
    conn_close(s.side[0].conn); /* the follower notices at once that the driver leaves */
    run_until(*state, &k.side.is_closed);
    assert_true(k.side.is_plain);
    dialer_close(d);
    listener_close(s.listener);
}

/* The same over IPv6, if this host has it. */
static void test_ipv6(void **state)
{
    struct server s = {0};
    struct listener_options o = {.host = "::1",
                                 .max_strangers = 4,
                                 .stranger_ms = NEVER_MS,
                                 .accepted = server_accepted,
                                 .arg = &s};
    struct caller k;
    struct dialer *d;
    struct err err;
    char text[32];

    if (listener_new(*state, &o, &s.listener, &err) < 0)
        skip();
    snprintf(text, sizeof text, "[::1]:%d", listener_port(s.listener));
    assert_string_equal(listener_text(s.listener), text);
    d = dial(*state, &k, "::1", listener_port(s.listener), -1);
    run_until(*state, &k.is_connected);
    assert_string_equal(conn_peer(k.side.conn), text);
    assert_string_equal(conn_local_number(k.side.conn), "::1");
    conn_close(k.side.conn);
    run_until(*state, &s.side[0].is_closed);
    dialer_close(d);
    listener_close(s.listener);
}

static void test_gives_up(void **state)
{
    struct caller k;
    int port, fd = hold_port(&port);
    struct dialer *d = dial(*state, &k, "127.0.0.1", port, 400);
    char where[32];

    snprintf(where, sizeof where, "127.0.0.1:%d", port);
    run_until(*state, &k.has_given_up);
    assert_int_equal(k.why.code, ERR_TIMEOUT);
    assert_non_null(strstr(k.why.msg, where));
    assert_non_null(strstr(k.why.msg, "ECONNREFUSED"));
    assert_non_null(strstr(k.why.msg, "--wait"));
    dialer_close(d);
    close(fd);
}

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* Before the C library's, also for libuv: the name "both.test" has a link-local address and
 * another.
 */
__attribute__((visibility("default"))) int getaddrinfo(const char *node, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **out)
{
    resolver *real = (resolver *)(uintptr_t)dlsym(RTLD_NEXT, "getaddrinfo");
    int rc;

    if (!node || strcmp(node, "both.test") != 0)
        return real(node, service, hints, out);
    rc = real("fe80::1%lo", service, hints, out);
    return rc ? rc : real("127.0.0.1", service, hints, &(*out)->ai_next);
}

/* A link-local address is tried last: a driver that answers there is refused. */
static void test_link_local_is_last(void **state)
{
    struct caller k;
    int port, fd = hold_port(&port);
    struct dialer *d = dial(*state, &k, "both.test", port, 0);

    run_until(*state, &k.has_given_up);
    if (!strstr(k.why.msg, ": fe80::1%lo: "))
        fail_msg("the last failure is another one: %s", k.why.msg);
    dialer_close(d);
    close(fd);
}

/* A server at the port behind one that refuses connections; returns the latter's socket. */
static int open_behind(uv_loop_t *loop, struct server *s, int *closed_port)
{
    struct listener_options o = {.host = "127.0.0.1",
                                 .max_strangers = 4,
                                 .stranger_ms = NEVER_MS,
                                 .accepted = server_accepted,
                                 .arg = s};
    struct err err;

    memset(s, 0, sizeof *s);
    for (;;) {
        int fd = hold_port(closed_port);

        o.port = *closed_port + 1;
        if (o.port < 65536 && listener_new(loop, &o, &s->listener, &err) == 0)
            return fd;
        close(fd);
    }
}

/* The driver is at one of two ports.  A closed one is skipped within an attempt, and the last words
 * are about the process that was there, not about the closed port. */
static void test_two_ports(void **state)
{
    struct server s;
    struct caller k = {0};
    struct dialer_options o = {.host = "127.0.0.1",
                               .n_ports = 2,
                               .hint = "the remedy",
                               .wait_ms = 1000,
                               .seed = 7,
                               .connected = on_connected,
                               .gave_up = on_gave_up,
                               .arg = &k};
    struct dialer *d;
    struct err err;
    char where[32];
    int fd = open_behind(*state, &s, &o.port);

    assert_int_equal(dialer_new(*state, &o, &d, &err), 0);
    dialer_start(d, 0);
    for (int i = 0; i < 2; i++) {
        run_until(*state, &k.is_connected);
        if (i == 1)
            listener_close(s.listener);
        conn_abort(k.side.conn);
        k.is_connected = 0;
        dialer_go_on(d, "it is no driver");
    }
    run_until(*state, &k.has_given_up);
    snprintf(where, sizeof where, "127.0.0.1:%d-%d", o.port, o.port + 1);
    assert_non_null(strstr(k.why.msg, where));
    assert_non_null(strstr(k.why.msg, "it is no driver; "));
    assert_non_null(strstr(k.why.msg, "; the remedy"));
    dialer_close(d);
    close(fd);
}

/* A driver that dies before it has answered is an attempt that failed: the dialer looks for it
 * again, for the rest of the time. */
static void test_goes_on(void **state)
{
    enum { WAIT_MS = 1000 };
    struct server s;
    struct caller k;
    struct dialer *d;
    int64_t began = clock_mono_ns();
    double seconds;

    server_open(*state, &s, 4, NEVER_MS);
    d = dial(*state, &k, "127.0.0.1", listener_port(s.listener), WAIT_MS);
    run_until(*state, &k.is_connected);
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            listener_close(s.listener);
        conn_abort(k.side.conn);
        k.is_connected = 0;
        dialer_go_on(d, "it closed the connection");
        if (i == 0)
            run_until(*state, &k.is_connected);
    }
    run_until(*state, &k.has_given_up);
    seconds = clock_since_s(began);
    assert_true(seconds > 1e-3 * WAIT_MS && seconds < 2.5e-3 * WAIT_MS);
    dialer_close(d);
}

/* The time may be over when the connection comes to nothing: the reason is that of the connection.
 */
static void test_goes_on_too_late(void **state)
{
    struct server s;
    struct caller k;
    struct dialer *d;

    server_open(*state, &s, 4, NEVER_MS);
    d = dial(*state, &k, "127.0.0.1", listener_port(s.listener), 0);
    run_until(*state, &k.is_connected);
    conn_abort(k.side.conn);
    usleep(2000);
    dialer_go_on(d, "it closed the connection");
    assert_true(k.has_given_up);
    assert_non_null(strstr(k.why.msg, "it closed the connection"));
    dialer_close(d);
    listener_close(s.listener);
}

static void test_unresolvable(void **state)
{
    struct caller k;
    struct dialer *d = dial(*state, &k, "no.such.host.invalid", 7000, 1);

    run_until(*state, &k.has_given_up);
    assert_non_null(strstr(k.why.msg, "cannot be resolved"));
    dialer_close(d);
}

/* The driver comes later than its follower, on a port that refused connections before. */
static void test_comes_later(void **state)
{
    struct server s;
    struct caller k;
    int port, fd = hold_port(&port);
    struct dialer *d = dial(*state, &k, "127.0.0.1", port, -1);

    for (int i = 0; i < 5; i++)
        uv_run(*state, UV_RUN_ONCE);
    assert_false(k.is_connected);
    server_open_like(
        *state, &s,
        &(struct listener_options){.port = port, .max_strangers = 4, .stranger_ms = NEVER_MS});
    run_until(*state, &k.is_connected);
    conn_close(k.side.conn);
    run_until(*state, &s.side[0].is_closed);
    listener_close(s.listener);
    dialer_close(d);
    close(fd);
}

/* A dialer can be closed at any moment: while it resolves, connects, or pauses. */
static void test_close_any_time(void **state)
{
    int port, fd = hold_port(&port);

    for (int turns = 0; turns < 8; turns++) {
        struct caller k;
        struct dialer *d = dial(*state, &k, turns % 2 ? "localhost" : "192.0.2.1", port, -1);

        for (int i = 0; i < turns; i++)
            uv_run(*state, UV_RUN_NOWAIT);
        dialer_close(d);
        uv_run(*state, UV_RUN_DEFAULT);
        assert_false(k.is_connected || k.has_given_up);
    }
    close(fd);
}

/* A dialer that is started again after its connection was closed connects again. */
static void test_again(void **state)
{
    struct server s;
    struct caller k;
    struct dialer *d;

    server_open(*state, &s, 4, NEVER_MS);
    d = dial(*state, &k, "127.0.0.1", listener_port(s.listener), -1);
    for (int i = 1; i <= 3; i++) {
        run_until(*state, &k.is_connected);
        while (s.n_accepted < i)
            uv_run(*state, UV_RUN_ONCE);
        conn_close(s.side[i - 1].conn);
        run_until(*state, &k.side.is_closed);
        memset(&k, 0, sizeof k);
        if (i < 3)
            dialer_start(d, 1);
    }
    dialer_close(d);
    listener_close(s.listener);
}

/* A dialer that is stopped at any moment, while it resolves or connects among them, and started at
 * once, connects. */
static void test_stopped_and_started(void **state)
{
    struct server s;

    server_open(*state, &s, 16, NEVER_MS);
    for (int turns = 0; turns < 8; turns++) {
        struct caller k;
        struct dialer *d = dial(*state, &k, "localhost", listener_port(s.listener), -1);

        for (int i = 0; i < turns && !k.is_connected; i++)
            uv_run(*state, UV_RUN_NOWAIT);
        if (!k.is_connected) {
            dialer_stop(d);
            dialer_start(d, turns % 2);
        }
        run_until(*state, &k.is_connected);
        conn_close(k.side.conn);
        dialer_close(d);
    }
    for (int i = 0; i < s.n_accepted; i++)
        run_until(*state, &s.side[i].is_closed);
    listener_close(s.listener);
}

/* ---- no threads ---- */

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);

static int n_fail, n_before; /* so many fail, behind so many that succeed */

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg)
{
    if (n_fail > 0 && n_before-- <= 0) {
        n_fail--;
        return EAGAIN;
    }
    return __real_pthread_create(t, a, f, arg);
}

/* libuv would end the process if it could not start its threads: the dialer looks first, and tries
 * again. */
static void test_no_threads(void **state)
{
    struct server s;
    struct caller k;
    struct dialer *d;

    server_open(*state, &s, 4, NEVER_MS);
    for (n_before = 0; n_before < 4;) {
        const int before = n_before;

        n_fail = 1;
        d = dial(*state, &k, "127.0.0.1", listener_port(s.listener), -1);
        assert_int_equal(n_fail, 0);
        run_until(*state, &k.is_connected);
        conn_close(k.side.conn);
        run_until(*state, &s.side[before].is_closed);
        dialer_close(d);
        n_before = before + 1;
    }
    n_fail = 1 << 20;
    n_before = 0;
    d = dial(*state, &k, "127.0.0.1", listener_port(s.listener), 100);
    run_until(*state, &k.has_given_up);
    n_fail = 0;
    assert_int_equal(k.why.code, ERR_TIMEOUT);
    assert_non_null(strstr(k.why.msg, "threads cannot be started: "));
    assert_non_null(strstr(k.why.msg, "EAGAIN"));
    dialer_close(d);
    listener_close(s.listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
        LOOP_TEST(test_goes_on),
        LOOP_TEST(test_goes_on_too_late),
        LOOP_TEST(test_there),
        LOOP_TEST(test_gives_up),
        LOOP_TEST(test_link_local_is_last),
        LOOP_TEST(test_unresolvable),
        LOOP_TEST(test_comes_later),
        LOOP_TEST(test_close_any_time),
        LOOP_TEST(test_again),
        LOOP_TEST(test_stopped_and_started),
        LOOP_TEST(test_ipv6),
        LOOP_TEST(test_no_threads),
        LOOP_TEST(test_two_ports),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
