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

enum { GRACE_MS = 2000, NUMBERED = 904 /* the length of a line with a number */ };

static struct exec *begin(const char *command)
{
    struct exec *x = NULL;
    struct err err;

    assert_int_equal(exec_new(command, "some/run-2", GRACE_MS, &x, &err), 0);
    return x;
}

static void say(struct exec *x, const char *line) { exec_hear(x, line, strlen(line), 0); }

static void say_row(struct exec *x, const char *line) { exec_hear(x, line, strlen(line), 1); }

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

/* The first command reads a line and dies; the second gets what follows, also what lay in the pipe
 * of the first. */
static void test_dies(void **state)
{
    struct exec *x = begin("if [ -e first ]; then cat > second; else read a; echo $a > part; "
                           "mv part first; while [ ! -e go ]; do sleep 0.01; done; "
                           "kill -KILL $$; fi");

    (void)state;
    say(x, "one");
    await("first");
    say(x, "two");
    usleep(100000); /* it is in the pipe */
    write_text("go", "");
    await("second"); /* after a pause */
    say(x, "three");
    exec_free(x);
    assert_text("first", "one\n");
    assert_text("second", "two\nthree\n");
}

/* The log tells what a command leaves unread at the end. */
static void test_leaves_some(void **state)
{
    struct exec *x = begin("read a; touch began; while [ ! -e go ]; do sleep 0.01; done; "
                           "read b; echo $b > part; mv part got");
    char text[512] = "";
    FILE *log = tmpfile();
    const int kept = dup(STDERR_FILENO);

    (void)state;
    assert_true(log && kept >= 0);
    say(x, "one");
    await("began");
    say(x, "two");
    say(x, "three");
    say(x, "four");
    exec_end(x);
    usleep(100000); /* its input has ended */
    write_text("go", "");
    assert_true(dup2(fileno(log), STDERR_FILENO) >= 0);
    exec_free(x);
    assert_true(dup2(kept, STDERR_FILENO) >= 0 && close(kept) == 0);
    assert_text("got", "two\n");
    assert_true(pread(fileno(log), text, sizeof text - 1, 0) > 0);
    assert_non_null(strstr(text, "the command did not get 2 lines"));
    fclose(log);
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

/* Rows come together; none waits for more than a while, for an event, or beyond the end. */
static void test_rows_are_gathered(void **state)
{
    enum { N_ROWS = 50 };
    const int64_t begun_ns = clock_mono_ns();
    struct exec *x = begin("read a; touch began; read b; touch alone; "
                           "read c; read d; touch event; dd bs=65536 of=rest 2>reads");
    int n_reads = 0, n_whole = 0, n_lines = 0;
    char *text, *at;

    (void)state;
    say(x, "one");
    await("began");
    say_row(x, "row");
    await("alone"); /* nothing follows it */
    say_row(x, "row");
    say(x, "two");
    await("event");
    for (int i = 0; i < N_ROWS; i++) {
        say_row(x, "row");
        usleep(2000);
    }
    exec_free(x);
    assert_true(clock_since_s(begun_ns) < 20);
    text = read_text("reads");
    assert_int_equal(sscanf(text, "%d+%d records in", &n_whole, &n_reads), 2);
    assert_true(n_reads >= 1 && n_reads <= 3 + (int)clock_since_s(begun_ns)); /* one by one: 50 */
    free(text);
    text = read_text("rest");
    for (at = text; (at = strstr(at, "row\n")); at += 4)
        n_lines++;
    assert_int_equal(n_lines, N_ROWS);
    free(text);
}

/* The number at the beginning of each line of the file is one more than that of the line before.
 * Sets the first and the last; returns how many there are.  Only a last line may be torn. */
static int read_numbers(const char *path, int *first, int *last)
{
    char *text = read_text(path), *rest = text, *at;
    int n = 0;

    *first = *last = -1;
    while ((at = strsep(&rest, "\n")) && *at) {
        const int number = atoi(at);

        if (rest)
            assert_int_equal(strlen(at), NUMBERED);
        if (n++ == 0)
            *first = number;
        else
            assert_int_equal(number, *last + 1);
        *last = number;
    }
    free(text);
    return n;
}

/* A command dies with part of what was written to it together.  The second one gets the lines that
 * were not taken, each of them whole, and none that the first one has read. */
static void test_dies_within_a_batch(void **state)
{
    enum { N_LINES = 200 }; /* batches of 72, and a pipe that holds 4 */
    int first, last, last_read;
    struct exec *x;
    char line[NUMBERED + 1];

    (void)state;
    x = begin("if [ -e first ]; then touch again; cat > second; "
              "else python3 -c 'import fcntl; fcntl.fcntl(0, fcntl.F_SETPIPE_SZ, 4096)'; "
              "read a; touch began; while [ ! -e go ]; do sleep 0.01; done; "
              "dd bs=1000 count=100 iflag=fullblock of=part 2>/dev/null; mv part first; "
              "kill -KILL $$; fi");
    say(x, "begin");
    await("began");
    for (int i = 0; i < N_LINES; i++) {
        snprintf(line, sizeof line, "%d %0*d", i, NUMBERED - 4 + (i < 100) + (i < 10), 0);
        assert_int_equal(strlen(line), NUMBERED);
        say_row(x, line);
    }
    write_text("go", "");
    await("again"); /* after a pause */
    exec_free(x);
    assert_true(read_numbers("first", &first, &last_read) > 100);
    assert_int_equal(first, 0);
    assert_true(read_numbers("second", &first, &last) > 0);
    assert_true(first >= last_read && first < last_read + 10);
    assert_int_equal(last, N_LINES - 1);
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
        cmocka_unit_test_setup_teardown(test_leaves_some, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_slow, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_rows_are_gathered, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_dies_within_a_batch, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_closes, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_stays, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_hastened, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_whole_command, folder_setup, folder_teardown),
    };

    signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
