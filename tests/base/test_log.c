/* Tests of log: standard error gets the expected bytes, as text and as JSON that a strict parser
 * accepts. */
#include "../test.h"

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

static int saved_stderr = -1;
static FILE *captured;

static int start_capture(void **state)
{
    (void)state;
    saved_stderr = dup(STDERR_FILENO);
    captured = tmpfile();
    return captured && dup2(fileno(captured), STDERR_FILENO) >= 0 ? 0 : -1;
}

static int end_capture(void **state)
{
    (void)state;
    log_init("dptrain", LOG_TEXT, LOG_INFO);
    log_set_before_line(NULL);
    fclose(captured);
    dup2(saved_stderr, STDERR_FILENO);
    return close(saved_stderr);
}

/* All that was written since the last call, in a static buffer. */
static const char *written(void)
{
    static char text[1 << 20];
    ssize_t n = pread(fileno(captured), text, sizeof text - 1, 0);

    assert_true(n >= 0);
    text[n] = 0;
    assert_int_equal(ftruncate(fileno(captured), 0), 0);
    lseek(STDERR_FILENO, 0, SEEK_SET);
    return text;
}

static void text_names_program_and_level(void **state)
{
    (void)state;
    log_init("dpdriver", LOG_TEXT, LOG_INFO);
    log_info("listening on %s:%d", "127.0.0.1", 7000);
    log_warn("slow");
    log_error("lost");
    log_debug("hidden");
    assert_string_equal(written(), "dpdriver: listening on 127.0.0.1:7000\n"
                                   "dpdriver: warning: slow\n"
                                   "dpdriver: error: lost\n");
    log_init("dpdriver", LOG_TEXT, LOG_DEBUG);
    log_debug("shown");
    assert_string_equal(written(), "dpdriver: debug: shown\n");
}

static void check_json(const char *line, const char *level, const char *message)
{
    json_error_t error;
    json_t *o = json_loads(line, 0, &error);

    if (!o)
        fail_msg("%s: %s", error.text, line);
    assert_string_equal(json_string_value(json_object_get(o, "message")), message);
    assert_string_equal(json_string_value(json_object_get(o, "level")), level);
    assert_string_equal(json_string_value(json_object_get(o, "program")), "dpfollower");
    assert_true(json_real_value(json_object_get(o, "time")) > 1.5e9);
    assert_int_equal(json_object_size(o), 4);
    assert_int_equal(strlen(line) - 1, strcspn(line, "\n")); /* one line */
    json_decref(o);
}

static void json_survives_any_message(void **state)
{
    static const struct {
        const char *message, *want;
    } cases[] = {
        {"plain", "plain"},
        {"", ""},
        {"say \"hi\" \\ there", "say \"hi\" \\ there"},
        {"two\nlines\tand a tab", "two\nlines\tand a tab"},
        {"escape \033[2J bell \a", "escape ?[2J bell ?"},
        {"caf\xc3\xa9 \xe2\x82\xac", "caf\xc3\xa9 \xe2\x82\xac"},
        {"broken \xff\xc3", "broken ??"},
        {"100 %s", "100 %s"},
    };

    (void)state;
    log_init("dpfollower", LOG_JSON, LOG_INFO);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        log_warn("%s", cases[i].message);
        check_json(written(), "warning", cases[i].want);
    }
}

/* A message is cut at 2047 bytes, even if each takes six in JSON; no character is cut apart. */
static void long_messages_are_cut_whole(void **state)
{
    static const char *const units[] = {"a", "\n", "\"", "\xe2\x82\xac"};
    char message[5000], want[2048];

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(units); k++) {
        size_t len = strlen(units[k]);

        for (size_t i = 0; i + 1 < sizeof message; i++)
            message[i] = units[k][i % len];
        message[sizeof message - 1] = 0;
        memcpy(want, message, 2047);
        want[2047] = 0;
        for (size_t i = 2047 / len * len; i < 2047; i++)
            want[i] = '?';
        log_init("dpfollower", LOG_JSON, LOG_INFO);
        log_error("%s", message);
        check_json(written(), "error", want);
        log_init("dpfollower", LOG_TEXT, LOG_INFO);
        log_info("%s", message);
        assert_int_equal(strlen(written()), strlen("dpfollower: ") + 2047 + 1);
    }
}

static void clear_progress(void)
{
    static const char clear[] = "<clear>";

    assert_int_equal(write(STDERR_FILENO, clear, sizeof clear - 1), sizeof clear - 1);
}

static void before_line_runs_only_for_shown_lines(void **state)
{
    (void)state;
    log_init("dpdriver", LOG_TEXT, LOG_INFO);
    log_set_before_line(clear_progress);
    log_debug("hidden");
    assert_string_equal(written(), "");
    log_info("shown");
    assert_string_equal(written(), "<clear>dpdriver: shown\n");
}

static void *log_many(void *arg)
{
    for (int i = 0; i < 200; i++)
        log_info("thread %d line %d of a length that takes more than a few bytes", *(int *)arg, i);
    return NULL;
}

static void lines_of_threads_do_not_mix(void **state)
{
    pthread_t thread[4];
    int number[4], n_lines = 0;
    char *text, *line, *rest;

    (void)state;
    log_init("p", LOG_TEXT, LOG_INFO);
    for (int i = 0; i < 4; i++) {
        number[i] = i;
        assert_int_equal(pthread_create(&thread[i], NULL, log_many, &number[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    text = strdup(written());
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        int t, i, end = 0;

        sscanf(line, "p: thread %d line %d of a length that takes more than a few bytes%n", &t, &i,
               &end);
        assert_int_equal(end, strlen(line));
        n_lines++;
    }
    assert_int_equal(n_lines, 800);
    free(text);
}

static size_t read_some(int fd, char *to, size_t cap)
{
    ssize_t n = read(fd, to, cap);

    return n > 0 ? (size_t)n : 0;
}

/* Standard error is a pipe that nobody reads.  The thread that logs goes on; once somebody reads,
 * there are the first lines, the number of the missing ones, and the later lines. */
static void nobody_reads(void **state)
{
    enum { LINES = 3000, BYTES = 100000, PATIENCE_MS = 60000 };
    static char text[1 << 20];
    struct writer *w;
    struct err err;
    int pipes[2], missing = 0, next = 0;
    size_t len = 0;
    char *rest = text;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_true(fcntl(pipes[1], F_SETPIPE_SZ, 4096) >= 4096);
    dup2(pipes[1], STDERR_FILENO);
    log_init("p", LOG_TEXT, LOG_INFO);
    assert_int_equal(writer_new(BYTES, &w, &err), 0);
    log_set_writer(w);
    for (int i = 0; i < LINES; i++)
        log_info("line %d of a length that takes more than a few bytes", i);
    assert_true(log_is_behind());
    assert_int_equal(log_flush(10), WRITER_LATE);
    assert_int_equal(fcntl(pipes[0], F_SETFL, O_NONBLOCK), 0);
    while (writer_flush(w, 1) == WRITER_LATE)
        len += read_some(pipes[0], text + len, sizeof text - 1 - len);
    log_info("line %d of a length that takes more than a few bytes", LINES);
    while (writer_flush(w, 1) == WRITER_LATE)
        len += read_some(pipes[0], text + len, sizeof text - 1 - len);
    read_some(pipes[0], text + len, sizeof text - 1 - len);
    log_set_writer(NULL);
    assert_int_equal(writer_free(w, PATIENCE_MS), 0);
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        int i = -1, n = 0;

        if (sscanf(line, "p: warning: %d lines are missing here", &n) == 1)
            missing += n;
        else
            assert_int_equal(sscanf(line, "p: line %d of", &i), 1);
        assert_true(i < 0 || i == next);
        next = i < 0 ? next + n : i + 1;
    }
    assert_in_range(missing, 1, LINES - 1);
    assert_int_equal(next, LINES + 1);
    close(pipes[0]);
    close(pipes[1]);
}

/* A terminal that another program has made non-blocking loses no byte. */
static void non_blocking(void **state)
{
    enum { LEN = 200000 };
    static char data[LEN], got[LEN];
    struct writer *w;
    struct err err;
    int pipes[2];

    (void)state;
    for (int i = 0; i < LEN; i++)
        data[i] = (char)(i * 7 >> 3);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(fcntl(pipes[1], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(writer_new(1, &w, &err), 0);
    log_set_writer(w);
    log_put(pipes[1], data, LEN);
    for (size_t at = 0; at < LEN;) {
        ssize_t n = read(pipes[0], got + at, LEN - at);

        assert_true(n > 0);
        at += (size_t)n;
    }
    assert_memory_equal(got, data, LEN);
    log_set_writer(NULL);
    assert_int_equal(writer_free(w, 60000), 0);
    close(pipes[0]);
    close(pipes[1]);
}

/* ASSERT names the condition and the place, and ends the process by SIGABRT. */
static void assert_says_where_and_aborts(void **state)
{
    const char *text;
    int status, line = __LINE__ + 6;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka catches it */
        ASSERT(line == 0);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    text = written();
    assert_non_null(strstr(text, "error: internal error: line == 0 is false "
                                 "(tests/base/test_log.c:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(text_names_program_and_level, start_capture, end_capture),
        cmocka_unit_test_setup_teardown(json_survives_any_message, start_capture, end_capture),
        cmocka_unit_test_setup_teardown(long_messages_are_cut_whole, start_capture, end_capture),
        cmocka_unit_test_setup_teardown(before_line_runs_only_for_shown_lines, start_capture,
                                        end_capture),
        cmocka_unit_test_setup_teardown(lines_of_threads_do_not_mix, start_capture, end_capture),
        cmocka_unit_test_setup_teardown(nobody_reads, start_capture, end_capture),
        cmocka_unit_test_setup_teardown(non_blocking, start_capture, end_capture),
        cmocka_unit_test_setup_teardown(assert_says_where_and_aborts, start_capture, end_capture),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
