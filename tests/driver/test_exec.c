/* Tests of report.exec: the command gets every line and its environment, is started again when it
 * dies, is not waited for when it does not read, and ends with the job. */
#include "../test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../report/folder.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/util.h"
#include "driver/exec.h"

enum { GRACE_MS = 2000 };

static struct exec *begin(const char *command)
{
    struct exec *x = NULL;
    struct err err;

    assert_int_equal(exec_new(command, "some/run-2", GRACE_MS, &x, &err), 0);
    return x;
}

static void say(struct exec *x, const char *line) { exec_hear(x, line, strlen(line), 0); }

static void assert_text(const char *path, const char *want)
{
    char *text = read_text(path);

    assert_string_equal(text, want);
    free(text);
}

/* Wait until the file is there. */
static void await(const char *path)
{
    const int64_t until_ns = clock_mono_ns() + INT64_C(20000000000);
    struct stat st;

    while (stat(path, &st) < 0 && clock_mono_ns() < until_ns)
        usleep(1000);
    assert_int_equal(stat(path, &st), 0);
}

static void test_lines(void **state)
{
    struct exec *x = begin("echo \"$DPTRAIN_RUN $DPTRAIN_RUN_DIR $#\" > env; cat > got");

    (void)state;
    say(x, "{\"event\":\"start\"}");
    say(x, "{\"event\":\"row\"}");
    exec_end(x);
    exec_free(x);
    assert_text("env", "run-2 some/run-2 0\n");
    assert_text("got", "{\"event\":\"start\"}\n{\"event\":\"row\"}\n");
}

/* The first command takes a line and dies; the second gets what follows. */
static void test_dies(void **state)
{
    struct exec *x = begin("if [ -e first ]; then cat > second; else head -n1 > part; "
                           "mv part first; kill -KILL $$; fi");

    (void)state;
    say(x, "one");
    await("first");
    usleep(50000); /* it is dead; what it was given in between would be lost with it */
    say(x, "two");
    await("second"); /* after a pause */
    say(x, "three");
    exec_free(x);
    assert_text("first", "one\n");
    assert_text("second", "two\nthree\n");
}

/* Lines that find no room are counted, and the warning stands in their place. */
static void test_slow(void **state)
{
    struct exec *x = begin("touch began; while [ ! -e go ]; do sleep 0.01; done; "
                           "sed 's/^xx*$/x/' > part; "
                           "mv part got");
    static char line[4000];
    int n = 0, n_got = 0, n_lost = 0, n_after = 0;
    const int64_t begun_ns = clock_mono_ns();
    char *text, *rest, *at;

    (void)state;
    memset(line, 'x', sizeof line - 1);
    say(x, line);
    await("began");
    for (n = 1; n < 1000; n++)
        say(x, line);
    assert_true(clock_since_s(begun_ns) < 10); /* nobody waited for it */
    write_text("go", "");
    usleep(300000); /* it reads */
    say(x, "after");
    exec_free(x);
    rest = text = read_text("got");
    while ((at = strsep(&rest, "\n")) && *at) {
        n_got += !strcmp(at, "x");
        n_after += !strcmp(at, "after");
        if (strstr(at, "\"warning\""))
            n_lost += atoi(strstr(at, "\"message\":\"") + strlen("\"message\":\""));
    }
    free(text);
    assert_int_equal(n_after, 1);
    assert_true(n_lost > 0);
    assert_int_equal(n_got + n_lost, n);
    assert_true((int64_t)n_got * (int64_t)sizeof line >= EXEC_QUEUE - (int64_t)sizeof line);
}

/* A command that closes its input and goes on is ended, and another one begins. */
static void test_closes(void **state)
{
    char *text;
    struct exec *x = begin("if [ -e first ]; then cat > second; else exec <&-; touch first; "
                           "exec sleep 1000; fi");

    (void)state;
    say(x, "one");
    await("first");
    say(x, "two");
    await("second");
    exec_free(x);
    text = read_text("second");
    assert_non_null(strstr(text, "two\n"));
    free(text);
}

/* One that takes no notice of the end is killed in the end. */
static void test_stays(void **state)
{
    struct exec *x = begin("trap 'touch term' TERM; echo $$ > part; mv part pid; "
                           "while :; do sleep 0.05; done");
    const int64_t begun_ns = clock_mono_ns();
    char *text;

    (void)state;
    say(x, "one");
    await("pid");
    exec_free(x);
    assert_true(clock_since_s(begun_ns) >= GRACE_MS / 1000.0);
    await("term");
    text = read_text("pid");
    assert_int_equal(kill(atoi(text), 0), -1);
    free(text);
}

/* A grace that is shortened ends at once, also for a command that takes no notice of SIGTERM and
 * has not even begun to read. */
static void test_hastened(void **state)
{
    const int64_t begun_ns = clock_mono_ns();
    struct err err;
    struct exec *x = NULL;
    char *text;

    (void)state;
    assert_int_equal(exec_new("trap '' TERM; echo $$ > part; mv part pid; "
                              "while :; do sleep 0.05; done",
                              "run", 600000, &x, &err),
                     0);
    say(x, "one");
    await("pid");
    assert_int_equal(exec_await(x, 0), 0);
    exec_end(x);
    assert_int_equal(exec_await(x, 50), 0);
    exec_hasten(x, 100000); /* not yet */
    assert_int_equal(exec_await(x, 50), 0);
    exec_hasten(x, 0);
    while (!exec_await(x, 1000))
        assert_true(clock_since_s(begun_ns) < 30);
    exec_free(x);
    text = read_text("pid");
    assert_int_equal(kill(atoi(text), 0), -1);
    free(text);
}

/* The signal reaches what the shell has started, too: nobody holds the fifo any more. */
static void test_whole_command(void **state)
{
    struct pollfd end = {.events = POLLIN};
    struct exec *x;

    (void)state;
    assert_int_equal(mkfifo("fifo", 0600), 0);
    end.fd = open("fifo", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(end.fd >= 0);
    x = begin("sleep 300 > fifo & touch begun; wait");
    say(x, "one");
    await("begun");
    exec_free(x);
    assert_int_equal(poll(&end, 1, 10000), 1);
    assert_true(end.revents & POLLHUP);
    close(end.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lines, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_dies, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_slow, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_closes, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_stays, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_hastened, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_whole_command, folder_setup, folder_teardown),
    };

    signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
