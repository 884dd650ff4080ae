/* Tests of daemon: signals to stop find the machine that is attached, and change nothing at the
 * end, which always comes.  The machine only counts its stops. */
#include "../test.h"

#include <netdb.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/daemon.h"

struct fake {
    int n_stops;
};

static void stop(void *m, int64_t now_ns, const char *why)
{
    (void)now_ns;
    assert_string_equal(why, "SIGTERM");
    ((struct fake *)m)->n_stops++;
}

static int64_t deadline(const void *m)
{
    (void)m;
    return INT64_MAX;
}

static int next(void *m, struct action *out)
{
    (void)m;
    (void)out;
    return 0;
}

static const struct daemon_machine machine = {.stop = stop, .deadline = deadline, .next = next};
static const struct daemon_hooks hooks = {.finished = NULL};

static void open_daemon(struct daemon *d)
{
    const struct engine_options engine = {.device = "cpu"};
    struct err err;

    assert_int_equal(daemon_init(d, &hooks, NULL, &engine, &err), 0);
}

static void get_signal(struct daemon *d)
{
    const int before = d->n_stops;

    raise(SIGTERM);
    while (d->n_stops == before)
        uv_run(&d->loop, UV_RUN_NOWAIT);
}

/* A signal that comes when the machine has just finished is for the machine that follows. */
static void test_between_two_machines(void **state)
{
    struct fake one = {0}, two = {0}, three = {0};
    struct daemon d;

    (void)state;
    open_daemon(&d);
    daemon_attach(&d, &machine, &one);
    get_signal(&d);
    assert_int_equal(one.n_stops, 1);
    daemon_stop_if_missed(&d);
    assert_int_equal(one.n_stops, 1);
    d.is_finished = 1;
    get_signal(&d);
    assert_int_equal(one.n_stops, 1);
    daemon_detach(&d, 0);
    daemon_attach(&d, &machine, &two);
    daemon_stop_if_missed(&d);
    assert_int_equal(two.n_stops, 1);
    daemon_detach(&d, 0);
    daemon_attach(&d, &machine, &three);
    daemon_stop_if_missed(&d);
    assert_int_equal(three.n_stops, 0);
    daemon_detach(&d, 0);
    assert_int_equal(daemon_close(&d, 0), 0);
}

/* The status is settled when the daemon closes: a signal does not end the process before it has
 * returned the status. */
static void test_at_the_end(void **state)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct daemon d;

    (void)state;
    open_daemon(&d);
    assert_int_equal(daemon_close(&d, 0), 0);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        raise(numbers[i]);
        signal(numbers[i], SIG_DFL);
    }
}

/* In place of the C library's, also for libuv: a name server that does not answer. */
__attribute__((visibility("default"))) int getaddrinfo(const char *node, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **out)
{
    (void)node;
    (void)service;
    (void)hints;
    (void)out;
    for (;;)
        pause();
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *found)
{
    (void)req;
    (void)status;
    (void)found;
}

static void test_lookup_that_hangs(void **state)
{
    pid_t pid = fork();
    int status;

    (void)state;
    if (pid == 0) {
        uv_getaddrinfo_t lookup;
        struct daemon d;

        alarm(60); /* it would hang for ever */
        open_daemon(&d);
        uv_getaddrinfo(&d.loop, &lookup, on_resolved, "host", "7000", NULL);
        daemon_close(&d, 4);
        _exit(5);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_between_two_machines),
        cmocka_unit_test(test_at_the_end),
        cmocka_unit_test(test_lookup_that_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
