/* Tests of notices: what a command's end and output mean, and that nothing of a command is left. */
#include "../test.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "../write_file.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "daemon/notice_command.h"
#include "daemon/notices.h"

enum { EACH_MS = 10, PATIENCE_S = 30 };

/* ---- a run of the command ---- */

static int ask(const char *text, int limit_ms, int stop_fd, struct notice *out, struct err *err)
{
    struct notice_command c = {.text = text, .limit_ms = limit_ms};
    int rc = notice_command_ask(&c, stop_fd, out, err);

    assert_int_equal(minder_n_running(&c.minder), 0);
    notice_command_fini(&c);
    return rc;
}

static void a_run_says(void **state)
{
    static const struct {
        const char *text;
        int rc;
        int64_t seconds;
        const char *part;
    } cases[] = {
        {"exit 0", 1, -1, ""},
        {"echo 120 s are left", 1, 120, ""},
        {"echo '  7.9'", 1, 7, ""},
        {"echo 99999999999999999999", 1, 7 * 24 * 3600, ""},
        {"echo soon", 1, -1, ""},
        {"echo 12x", 1, -1, ""},
        {"echo -5", 1, -1, ""},
        {"echo; echo 5", 1, 5, ""},
        {"head -c 300000 /dev/zero", 1, -1, ""},
        {"exec >&-; exit 0", 1, -1, ""},
        {"exit 1", 0, 0, ""},
        {"echo 5; exit 1", 0, 0, ""},
        {"exit 2", ERR_IO, 0, "exited with status 2; want 0 (this machine goes away) or 1"},
        {"kill -9 $$", ERR_IO, 0, "was killed by SIGKILL"},
        {"sleep 600", ERR_IO, 0, "ran for longer than 0.2 s, and was killed"},
        {"yes sleep", ERR_IO, 0, "ran for longer than 0.2 s, and was killed"},
        {"yes & exit 0", 1, -1, ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct notice n = {.seconds = 0};
        struct err err = {.code = 0};
        const int is_late = strstr(cases[i].text, "sleep") != NULL;
        const int rc = ask(cases[i].text, is_late ? 200 : 1000 * PATIENCE_S, -1, &n, &err);

        if (rc != cases[i].rc || n.seconds != cases[i].seconds || !strstr(err.msg, cases[i].part))
            fail_msg("%s: %d, %lld s, %s", cases[i].text, rc, (long long)n.seconds, err.msg);
        if (rc > 0)
            assert_string_equal(n.source, "command");
    }
}

/* The processes whose command line has this text. */
static int n_processes(const char *text)
{
    DIR *proc = opendir("/proc");
    struct dirent *e;
    int n = 0;

    assert_non_null(proc);
    while ((e = readdir(proc))) {
        char path[300], line[256] = "";
        FILE *f;

        snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
        f = atoi(e->d_name) > 0 ? fopen(path, "r") : NULL;
        if (!f)
            continue;
        for (size_t i = 0, k = fread(line, 1, sizeof line - 1, f); i + 1 < k; i++)
            line[i] = line[i] ? line[i] : ' ';
        fclose(f);
        n += strstr(line, text) != NULL && !strstr(line, "sh -c");
    }
    closedir(proc);
    return n;
}

static void wait_gone(const char *text)
{
    const int64_t begun = clock_mono_ns();

    while (n_processes(text))
        if (clock_since_s(begun) > PATIENCE_S)
            fail_msg("%d of '%s' are left", n_processes(text), text);
}

/* A process that the shell has started in the background ends with the run. */
static void nothing_of_it_is_left(void **state)
{
    struct notice n;
    struct err err;

    (void)state;
    assert_int_equal(ask("sleep 6789.5 & exit 1", 1000 * PATIENCE_S, -1, &n, &err), 0);
    wait_gone("sleep 6789.5");
    assert_int_equal(ask("sleep 6789.25 | cat", 200, -1, &n, &err), ERR_IO);
    wait_gone("sleep 6789.25");
}

/* The end of the daemon does not wait for it. */
static void the_end_ends_it(void **state)
{
    struct notice n;
    struct err err;
    const int stop = eventfd(1, EFD_CLOEXEC);

    (void)state;
    assert_int_equal(ask("sleep 6789.125; exit 0", 1000 * PATIENCE_S, stop, &n, &err), 0);
    wait_gone("sleep 6789.125");
    close(stop);
}

/* ---- the thread ---- */

struct heard {
    int n;
    int64_t seconds;
};

static void hear(void *arg, const struct notice *n)
{
    struct heard *h = arg;

    assert_string_equal(n->source, "command");
    h->n++;
    h->seconds = n->seconds;
}

static struct notices *open_notices(uv_loop_t *loop, const char *from, struct heard *h)
{
    const struct notices_options o = {.from = from, .each_ms = EACH_MS, .heard = hear, .arg = h};
    struct notices *n;
    struct err err;

    assert_int_equal(uv_loop_init(loop), 0);
    if (notices_new(loop, &o, &n, &err) < 0)
        fail_msg("%s", err.msg);
    return n;
}

static void close_notices(uv_loop_t *loop, struct notices *n)
{
    notices_free(n);
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
}

/* It is asked until it says so, and a failure does not end that. */
static void it_is_asked_again(void **state)
{
    char root[] = "/tmp/dptrain-notices-XXXXXX", *command, *errors, *next, *leaves;
    const int64_t begun = clock_mono_ns();
    struct heard h = {0};
    struct notices *n;
    uv_loop_t loop;

    (void)state;
    assert_non_null(mkdtemp(root));
    command = xasprintf("echo >>%s/runs; test $(wc -l <%s/runs) = 3 && exit 7; cat %s/leaves "
                        "2>%s/errors",
                        root, root, root, root);
    errors = xasprintf("%s/errors", root);
    next = xasprintf("%s/next", root);
    leaves = xasprintf("%s/leaves", root);
    write_file(root, "next", "42\n"); /* a reader sees no part of it */
    n = open_notices(&loop, command, &h);
    while (!h.n) {
        if (access(errors, F_OK) == 0 && access(next, F_OK) == 0) /* it has run */
            assert_int_equal(rename(next, leaves), 0);
        uv_run(&loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
        if (clock_since_s(begun) > PATIENCE_S)
            fail_msg("no notice came");
    }
    assert_int_equal(h.seconds, 42);
    close_notices(&loop, n);
    assert_int_equal(h.n, 1);
    free(command);
    free(errors);
    free(next);
    free(leaves);
    remove_tree(root);
}

static void it_ends_in_the_middle(void **state)
{
    struct heard h = {0};
    uv_loop_t loop;

    (void)state;
    close_notices(&loop, open_notices(&loop, "sleep 6789.0625", &h));
    wait_gone("sleep 6789.0625");
    close_notices(&loop, open_notices(&loop, "none", &h));
    close_notices(&loop, open_notices(&loop, NULL, &h));
    assert_int_equal(h.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_says),
        cmocka_unit_test(nothing_of_it_is_left),
        cmocka_unit_test(the_end_ends_it),
        cmocka_unit_test(it_is_asked_again),
        cmocka_unit_test(it_ends_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
