/* Tests of follower/agent: how its children end, and that no signal ends it when its status is
 * settled.  This program is its own children: AGENT_TEST says how they end. */
#include "../test.h"

#include <signal.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "daemon/minder.h"
#include "follower/agent.h"
#include "session/action.h"

static int be_child(const char *how)
{
    if (strcmp(how, "SIGTERM") == 0)
        raise(SIGTERM);
    return atoi(how);
}

static int run(const char *children, int once)
{
    const struct options o = {
        .root_text = "127.0.0.1:1",
        .rank = -1,
        .once = once,
        .common = {.device = "cpu", .local_rank = -1, .ranks = "2", .bind = BIND_NONE}};

    signal(SIGTERM, SIG_DFL); /* an agent before this one ended by ignoring it */
    setenv("AGENT_TEST", children, 1);
    return agent_run(&o);
}

/* The last moment of the process: it has its status, and has not returned it yet. */
static void test_no_signal_ends_it_at_the_end(void **state)
{
    static const int numbers[] = {SIGUSR1, SIGTERM, SIGINT, SIGHUP};
    sigset_t before;

    (void)state;
    sigprocmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(run("3", 1), STATUS_REFUSED);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        raise(numbers[i]);
        signal(numbers[i], SIG_IGN); /* this drops it, if it is blocked */
        signal(numbers[i], SIG_DFL);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* A child that a signal stops is not started again, whether or not it catches signals yet. */
static void test_child_that_is_stopped(void **state)
{
    static const char *const children[] = {"4", "SIGTERM"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(children); i++)
        for (int once = 0; once < 2; once++)
            assert_int_equal(run(children[i], once), STATUS_STOPPED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_signal_ends_it_at_the_end),
        cmocka_unit_test(test_child_that_is_stopped),
    };

    daemon_open_standard(); /* as the daemon begins: SIGUSR1 is blocked */
    if (minder_role().kind == MINDER_AGENT)
        return be_child(getenv("AGENT_TEST"));
    alarm(120); /* an agent that starts its children again and again would not end */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
