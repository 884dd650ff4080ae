/* Tests of run_dir: a run claims a folder, resumes one or is refused; torn lines are cut off, and a
 * run that failed at once leaves no folder behind. */
#include "../test.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "folder.h"
#include "report/lines.h"
#include "report/run_dir.h"

static int claim(const char *path, int is_explicit, int resume, struct run_dir *d, struct err *err)
{
    struct run_dir_request q = {.path = path, .is_explicit = is_explicit, .resume = resume};

    return run_dir_claim(&q, d, err);
}

static void expect(const char *path, int is_explicit, int resume, const char *got, int resumed)
{
    struct run_dir d;
    struct err err = {0};

    if (claim(path, is_explicit, resume, &d, &err) < 0)
        fail_msg("%s", err.msg);
    assert_string_equal(d.path, got);
    assert_int_equal(d.resumed, resumed);
    assert_int_equal(d.renamed, strcmp(path, got) != 0);
    run_dir_fini(&d);
}

static void refuse(const char *path, int resume, int code, const char *message)
{
    struct run_dir_request q = {.path = path, .is_explicit = 1, .resume = resume};
    struct run_dir d;
    struct err err = {0};

    assert_int_equal(run_dir_claim(&q, &d, &err), code);
    if (!strstr(err.msg, message))
        fail_msg("\"%s\" is not in: %s", message, err.msg);
}

static void test_names(void **state)
{
    (void)state;
    expect("runs/a", 0, 0, "runs/a", 0);
    expect("runs/a", 0, 0, "runs/a-2", 0);
    expect("runs/a", 0, 0, "runs/a-3", 0);
    expect("runs/a", 0, 1, "runs/a-3", 1); /* the last one */
    expect("runs/b", 0, 1, "runs/b", 0);   /* nothing to resume: a start */
}

/* A copy by hard links goes on in files of its own. */
static void test_hard_links(void **state)
{
    static const char *const names[] = {"events.jsonl", "metrics.csv", "audit.jsonl"};

    (void)state;
    assert_int_equal(mkdir("run", 0777) | mkdir("copy", 0777), 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char from[64], to[64];

        snprintf(from, sizeof from, "run/%s", names[i]);
        snprintf(to, sizeof to, "copy/%s", names[i]);
        write_text(from, "{}\n");
        assert_int_equal(link(from, to), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct run_dir d;
        struct stat st;
        struct err err;
        char path[64];

        assert_int_equal(claim("copy", 1, 1, &d, &err), 0);
        assert_int_equal(fstat(d.events_fd, &st), 0);
        assert_int_equal(st.st_nlink, 1);
        refuse("copy", 1, ERR_CONFIG, "another dpdriver is using it");
        run_dir_fini(&d);
        snprintf(path, sizeof path, "copy/%s", names[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_true(st.st_nlink == 1 && st.st_size == 3);
    }
}

/* --resume means the folder `want`, whether there is a run or not. */
static void expect_to_resume(const char *path, int is_explicit, const char *want)
{
    struct run_dir_request q = {.path = path, .is_explicit = is_explicit, .resume = 1};
    char *got = run_dir_to_resume(&q);

    assert_string_equal(got, want);
    free(got);
}

static void test_to_resume(void **state)
{
    (void)state;
    expect_to_resume("runs/x", 0, "runs/x");
    expect_to_resume("runs/x", 1, "runs/x");
    assert_int_equal(access("runs", F_OK), -1);
    for (int i = 0; i < 3; i++) {
        struct run_dir d;
        struct err err;

        assert_int_equal(claim("runs/x", 0, 0, &d, &err), 0);
        run_dir_fini(&d);
    }
    expect_to_resume("runs/x", 0, "runs/x-3");
    expect_to_resume("runs/x", 1, "runs/x");
}

/* A run that has trained is preferred to newer ones that have not; without --resume the number
 * after the last one is taken, whatever gaps there are. */
static void test_trained(void **state)
{
    struct run_dir d[6];
    struct err err;

    (void)state;
    for (int i = 1; i <= 5; i++)
        assert_int_equal(claim("runs/x", 0, 0, &d[i], &err), 0);
    run_dir_begin_training(&d[2]);
    run_dir_begin_training(&d[4]);
    assert_true(run_dir_has_trained("runs/x-4") && !run_dir_has_trained("runs/x-3"));
    expect_to_resume("runs/x", 0, "runs/x-4"); /* its ranks may hold state */
    run_dir_end_training(&d[4]);
    expect_to_resume("runs/x", 0, "runs/x-2");
    assert_int_equal(mkdir("runs/x-2/checkpoints/step-00000001", 0777), 0);
    run_dir_end_training(&d[2]);
    expect_to_resume("runs/x", 0, "runs/x-2");
    run_dir_discard(&d[3]);
    for (int i = 1; i <= 5; i++)
        run_dir_fini(&d[i]);
    assert_int_equal(access("runs/x-3", F_OK), -1);
    expect("runs/x", 0, 1, "runs/x-2", 1);
    expect("runs/x", 0, 0, "runs/x-6", 0);
    assert_int_equal(mkdir("runs/x-07", 0777), 0); /* names that dptrain does not give */
    assert_int_equal(mkdir("runs/x-07/checkpoints", 0777), 0);
    assert_int_equal(mkdir("runs/x-8b", 0777), 0);
    assert_int_equal(mkdir("runs/x-8b/checkpoints", 0777), 0);
    assert_int_equal(mkdir("runs/x.9", 0777), 0);
    assert_int_equal(mkdir("runs/x.9/checkpoints", 0777), 0);
    expect_to_resume("runs/x", 0, "runs/x-2");
}

static void test_explicit(void **state)
{
    struct run_dir_request q = {.path = "deep/down/x", .is_explicit = 1};
    struct err err = {0};

    (void)state;
    expect("deep/down/x", 1, 0, "deep/down/x", 0);
    refuse("deep/down/x", 0, ERR_CONFIG, "add --resume");
    assert_int_equal(run_dir_check(&q, &err), ERR_CONFIG);
    q.resume = 1;
    assert_int_equal(run_dir_check(&q, &err), 0);
    expect("deep/down/x", 1, 1, "deep/down/x", 1);
    assert_int_equal(mkdir("empty", 0777), 0);
    expect("empty", 1, 0, "empty", 0); /* a folder without a run is fine */
    assert_int_equal(mkdir("half", 0777), 0);
    assert_int_equal(mkdir("half/checkpoints", 0777), 0);
    refuse("half", 0, ERR_CONFIG, "holds a run already");
    write_text("file", "x");
    refuse("file", 0, ERR_CONFIG, "not a folder");
    refuse("file/below", 0, ERR_IO, "cannot make");
}

static void test_two_drivers(void **state)
{
    struct run_dir first;
    struct err err;

    (void)state;
    assert_int_equal(claim("r", 1, 0, &first, &err), 0);
    refuse("r", 1, ERR_CONFIG, "another dpdriver is using it");
    run_dir_fini(&first);
    expect("r", 1, 1, "r", 1);
}

/* Many processes claim folders at once: each gets a folder of its own. */
static void test_race(void **state)
{
    enum { N = 12 };
    int status, seen = 0;

    (void)state;
    for (int i = 0; i < N; i++)
        if (fork() == 0) {
            struct run_dir d;
            struct err err;
            int rc = claim("runs/race", 0, 0, &d, &err);
            const char *dash = rc == 0 ? strrchr(d.path, '-') : NULL;

            _exit(rc < 0 ? 0 : dash ? atoi(dash + 1) : 1);
        }
    for (int i = 0; i < N; i++) {
        assert_true(wait(&status) > 0 && WIFEXITED(status));
        assert_in_range(WEXITSTATUS(status), 1, N);
        assert_false(seen & 1 << WEXITSTATUS(status));
        seen |= 1 << WEXITSTATUS(status);
    }
}

static void test_torn_line(void **state)
{
    static const struct {
        const char *before, *after;
    } cases[] = {
        {"{\"a\":1}\n{\"b\":2}\n", "{\"a\":1}\n{\"b\":2}\n"},
        {"{\"a\":1}\n{\"b\"", "{\"a\":1}\n"},
        {"{\"a\":1}\n{", "{\"a\":1}\n"},
        {"{\"a\"", ""},
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct run_dir d;
        struct err err;
        char *text;

        mkdir("t", 0777);
        write_text("t/events.jsonl", cases[i].before);
        assert_int_equal(claim("t", 1, 1, &d, &err), 0);
        assert_int_equal(write(d.events_fd, "!\n", 2), 2); /* appends */
        run_dir_fini(&d);
        text = read_text("t/events.jsonl");
        assert_memory_equal(text, cases[i].after, strlen(cases[i].after));
        assert_string_equal(text + strlen(cases[i].after), "!\n");
        free(text);
    }
}

/* A torn line may be longer than the block that is read to find its beginning. */
static void test_long_torn_line(void **state)
{
    static char text[20002];
    struct run_dir d;
    struct err err;
    struct stat st;

    (void)state;
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "ok\n", 3);
    mkdir("t", 0777);
    write_text("t/events.jsonl", text);
    assert_int_equal(claim("t", 1, 1, &d, &err), 0);
    run_dir_fini(&d);
    assert_int_equal(stat("t/events.jsonl", &st), 0);
    assert_int_equal(st.st_size, 3);
}

static void test_replace(void **state)
{
    struct err err;
    char *text;

    (void)state;
    assert_int_equal(run_dir_replace("port", "1\n", 2, &err), 0);
    assert_int_equal(run_dir_replace("port", "23\n", 3, &err), 0);
    text = read_text("port");
    assert_string_equal(text, "23\n");
    free(text);
    assert_int_equal(run_dir_replace("no/such/port", "1", 1, &err), ERR_IO);
    assert_string_equal(err.msg, "no/such/port: No such file or directory");
    assert_int_equal(mkdir("taken", 0777), 0);
    assert_int_equal(run_dir_replace("taken", "1", 1, &err), ERR_IO);
    assert_string_equal(err.msg, "taken: cannot be put in its place: Is a directory");
}

static void test_discard(void **state)
{
    struct run_dir d;
    struct err err;

    (void)state;
    assert_int_equal(claim("runs/x", 0, 0, &d, &err), 0);
    write_text("runs/x/job.yaml", "x");
    run_dir_discard(&d);
    run_dir_fini(&d);
    assert_int_equal(access("runs", F_OK), -1);
    assert_int_equal(claim("runs/x", 0, 0, &d, &err), 0);
    write_text("runs/x/mine", "x"); /* not ours: stays */
    run_dir_discard(&d);
    run_dir_fini(&d);
    assert_int_equal(access("runs/x/mine", F_OK), 0);
    expect("runs/x", 0, 0, "runs/x", 0);
    assert_int_equal(claim("runs/x", 1, 1, &d, &err), 0);
    run_dir_discard(&d); /* the run was there before: nothing is removed */
    run_dir_fini(&d);
    assert_int_equal(access("runs/x/events.jsonl", F_OK), 0);
}

/* Folders that were there before stay, empty or not; folders made for the run are removed. */
static void test_discard_keeps_folders(void **state)
{
    static const char *const paths[] = {"own/x", "own/a/b/x", "own//a//x//", "own"};

    (void)state;
    assert_int_equal(mkdir("own", 0777), 0);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct run_dir d;
        struct err err;

        assert_int_equal(claim(paths[i], 1, 0, &d, &err), 0);
        run_dir_discard(&d);
        run_dir_fini(&d);
        assert_int_equal(rmdir("own"), 0); /* was left, and empty */
        assert_int_equal(mkdir("own", 0777), 0);
    }
}

/* A driver from which another one took the folder removes nothing there. */
static void test_taken_over(void **state)
{
    struct run_dir_request q = {.path = "r", .is_explicit = 1};
    struct run_dir d;
    struct err err;

    (void)state;
    assert_int_equal(run_dir_claim(&q, &d, &err), 0);
    run_dir_begin_training(&d);
    write_text("r/owner", "{\"id\": \"another\", \"pid\": 1, \"host\": \"h\"}");
    run_dir_end_training(&d);
    run_dir_discard(&d);
    assert_int_equal(access("r/checkpoints", F_OK), 0);
    assert_int_equal(access("r/events.jsonl", F_OK), 0);
    assert_int_equal(access("r/owner", F_OK), 0);
    run_dir_fini(&d);
}

/* The next claim removes the rest of a save whose driver was killed. */
static void test_unfinished_save(void **state)
{
    struct run_dir_request q = {.path = "r", .is_explicit = 1};
    struct run_dir d;
    struct err err;

    (void)state;
    assert_int_equal(run_dir_claim(&q, &d, &err), 0);
    run_dir_begin_training(&d);
    run_dir_fini(&d);
    assert_int_equal(mkdir("r/checkpoints/step.another.tmp", 0777), 0);
    q.resume = 1;
    assert_int_equal(run_dir_claim(&q, &d, &err), 0);
    assert_int_equal(access("r/checkpoints/step.another.tmp", F_OK), -1);
    run_dir_fini(&d);
}

/* A standby claims the folder whose lock a frozen driver holds.  When that one is gone the lock is
 * the standby's, at its next look for another owner: a third driver is refused then. */
static void test_lock_of_a_frozen_driver(void **state)
{
    struct run_dir_request q = {.path = "r", .is_explicit = 1};
    struct run_dir frozen, d;
    struct lines *lines;
    struct err err;

    (void)state;
    assert_int_equal(run_dir_claim(&q, &frozen, &err), 0);
    assert_false(frozen.wants_lock);
    q.resume = 1;
    q.run = frozen.run;
    q.term = 1001;
    assert_int_equal(run_dir_claim(&q, &d, &err), 0);
    assert_true(d.wants_lock);
    lines = lines_new(d.events_fd, &(struct lines_options){.path = d.events,
                                                           .run_dir = d.path,
                                                           .what = "a line",
                                                           .most_bytes = 1 << 20,
                                                           .wants_lock = d.wants_lock});
    assert_false(lines_check_owner(lines)); /* the frozen one has the lock still */
    run_dir_fini(&frozen);
    assert_false(lines_check_owner(lines));
    refuse("r", 1, ERR_CONFIG, "another dpdriver is using it");
    lines_free(lines);
    d.events_fd = -1;
    run_dir_fini(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define FOLDER_TEST(t) cmocka_unit_test_setup_teardown(t, folder_setup, folder_teardown)
        FOLDER_TEST(test_names),           FOLDER_TEST(test_explicit),
        FOLDER_TEST(test_two_drivers),     FOLDER_TEST(test_race),
        FOLDER_TEST(test_torn_line),       FOLDER_TEST(test_long_torn_line),
        FOLDER_TEST(test_replace),         FOLDER_TEST(test_discard),
        FOLDER_TEST(test_to_resume),       FOLDER_TEST(test_discard_keeps_folders),
        FOLDER_TEST(test_trained),         FOLDER_TEST(test_taken_over),
        FOLDER_TEST(test_unfinished_save), FOLDER_TEST(test_lock_of_a_frozen_driver),
        FOLDER_TEST(test_hard_links),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
