/* Tests of pulse: when an engine counts as alive, and the messages that the service manager gets
 * (READY, STATUS, WATCHDOG). */
#include "../test.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/notify.h"
#include "daemon/pulse.h"

struct fake {
    int has_engine;
    struct progress progress;
};

static int progress_of(void *arg, struct progress *out)
{
    const struct fake *f = arg;

    *out = f->progress;
    return f->has_engine;
}

static void describe(void *arg, struct buf *out)
{
    (void)arg;
    buf_printf(out, "epoch 3, step 7\nmore\n");
}

static const struct pulse_events events = {progress_of, describe};

static void close_pulse(struct pulse *p, uv_loop_t *loop)
{
    pulse_close(p);
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
}

static void test_alive(void **state)
{
    struct fake f = {0};
    struct pulse p;
    uv_loop_t loop;

    (void)state;
    uv_loop_init(&loop);
    pulse_init(&p, &loop, &events, &f);
    p.engine_patience_ns = 100;
    assert_int_equal(pulse_is_alive(&p, 1000), 1); /* no engine */
    f.has_engine = 1;
    f.progress.phase = PHASE_IDLE;
    assert_int_equal(pulse_is_alive(&p, 1000), 1);
    f.progress.phase = PHASE_FORWARD;
    f.progress.since_ns = 950;
    assert_int_equal(pulse_is_alive(&p, 1000), 1);
    assert_int_equal(pulse_is_alive(&p, 1049), 1);
    assert_int_equal(pulse_is_alive(&p, 1050), 0);
    close_pulse(&p, &loop);
}

/* ---- the messages to the service manager ---- */

struct manager {
    int fd;
    char path[64];
    char heard[2000]; /* datagrams, each with a newline */
};

static void manager_open(struct manager *m)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};

    memset(m, 0, sizeof *m);
    snprintf(m->path, sizeof m->path, "/tmp/dptrain-notify-%ld", (long)getpid());
    strcpy(sa.sun_path, m->path);
    unlink(m->path);
    m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(m->fd, (struct sockaddr *)&sa, sizeof sa), 0);
    setenv("NOTIFY_SOCKET", m->path, 1);
    setenv("WATCHDOG_USEC", "3000", 1);
    unsetenv("WATCHDOG_PID");
}

static void manager_hear(struct manager *m)
{
    char text[256];
    ssize_t n;

    while ((n = recv(m->fd, text, sizeof text - 1, 0)) > 0)
        if (strlen(m->heard) + (size_t)n + 2 < sizeof m->heard)
            strcat(strncat(m->heard, text, (size_t)n), "\n");
}

static void manager_close(struct manager *m)
{
    close(m->fd);
    unlink(m->path);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
}

/* Run the loop for n pulses.  The messages are read in between, since the socket holds few. */
static void run_pulses(uv_loop_t *loop, struct manager *m, int n)
{
    m->heard[0] = '\0';
    for (int i = 0; i < n; i++) {
        uv_sleep(4); /* longer than a period */
        uv_run(loop, UV_RUN_NOWAIT);
        manager_hear(m);
    }
}

static void test_heard(void **state)
{
    struct fake f = {.has_engine = 1, .progress = {.phase = PHASE_UPDATE}};
    struct manager m;
    struct pulse p;
    uv_loop_t loop;

    (void)state;
    manager_open(&m);
    if (!notify_is_wanted() || notify_watchdog_ms() != 3) {
        manager_close(&m);
        skip(); /* built without libsystemd */
    }
    uv_loop_init(&loop);
    pulse_init(&p, &loop, &events, &f);
    uv_ref((uv_handle_t *)&p.timer); /* nothing else is on this loop */
    pulse_start(&p);
    f.progress.since_ns = INT64_MAX / 2; /* alive for ever */
    run_pulses(&loop, &m, 5);
    assert_ptr_equal(strstr(m.heard, "READY=1\n"), m.heard);
    assert_non_null(strstr(m.heard, "STATUS=epoch 3, step 7\n"));
    assert_non_null(strstr(m.heard, "WATCHDOG=1\n"));
    assert_null(strstr(m.heard, "more"));

    f.progress.since_ns = INT64_MIN / 2; /* stuck for ever */
    p.engine_patience_ns = 1;
    p.is_dead = 1; /* as if that had been logged: keeps the test's output clean */
    run_pulses(&loop, &m, 5);
    assert_non_null(strstr(m.heard, "STATUS="));
    assert_null(strstr(m.heard, "WATCHDOG=1"));
    close_pulse(&p, &loop);
    manager_hear(&m);
    assert_non_null(strstr(m.heard, "STOPPING=1\n"));
    manager_close(&m);
}

static void test_nobody_listens(void **state)
{
    struct fake f = {0};
    struct pulse p;
    uv_loop_t loop;

    (void)state;
    assert_int_equal(notify_is_wanted(), 0);
    assert_int_equal(notify_watchdog_ms(), 0);
    uv_loop_init(&loop);
    pulse_init(&p, &loop, &events, &f);
    pulse_start(&p);
    assert_int_equal(uv_is_active((uv_handle_t *)&p.timer), 0);
    close_pulse(&p, &loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alive),
        cmocka_unit_test(test_heard),
        cmocka_unit_test(test_nobody_listens),
    };

    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
