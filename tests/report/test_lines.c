/* Tests of lines and audit: a file of lines is bounded and rotated, keeps its lock, takes no line
 * after another driver has taken the run over, and tells of lines that found no room. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "ckpt/owner.h"
#include "folder.h"
#include "report/audit.h"
#include "report/lines.h"

static struct lines *open_lines(const char *path, int64_t most_bytes, struct writer *w)
{
    struct lines_options o = {
        .path = path, .run_dir = ".", .what = "a line", .most_bytes = most_bytes, .writer = w};
    struct err err;
    int fd;

    assert_int_equal(lines_open(path, &fd, &err), 0);
    return lines_new(fd, &o);
}

static int64_t size_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_size : -1;
}

static void test_rotation(void **state)
{
    enum { LINES = 100, MOST = 50 };
    struct lines *l = open_lines("a", MOST, NULL);
    int next = -1;

    (void)state;
    for (int i = 0; i < LINES; i++) {
        char text[16];

        snprintf(text, sizeof text, "line %d", i);
        lines_add(l, text);
        assert_true(size_of("a") > 0 && size_of("a") <= MOST);
    }
    assert_int_equal(lines_lost(l), 0);
    lines_free(l);
    assert_int_equal(size_of("a.5"), -1);
    assert_int_equal(size_of("a.new"), -1);
    for (int i = 0; i <= LINES_OLD; i++) { /* the parts, oldest first, have no gap */
        char *path = lines_part("a", i), *text = read_text(path), *rest = text, *line;

        while ((line = strsep(&rest, "\n")) && *line) {
            int seen;

            assert_int_equal(sscanf(line, "line %d", &seen), 1);
            assert_true(next < 0 || seen == next);
            next = seen + 1;
        }
        free(text);
        free(path);
    }
    assert_int_equal(next, LINES);
}

/* The lock moves to the new file, so that no other driver can claim the run meanwhile. */
static void test_lock_stays(void **state)
{
    struct lines *l = open_lines("a", 20, NULL);
    int fd;

    (void)state;
    for (int i = 0; i < 10; i++)
        lines_add(l, "a line of text");
    fd = open("a", O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), -1);
    lines_free(l);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    close(fd);
}

/* ---- renames that fail ---- */

static struct {
    int n, from, to; /* calls so far; of these the calls from..to fail, from 1 */
    int no_exchange; /* the file system cannot exchange names */
} renames;

static int rename_fails(void)
{
    int n = ++renames.n;

    errno = EIO;
    return n >= renames.from && n <= renames.to;
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_renameat2(int dir, const char *from, int to_dir, const char *to, unsigned flags);
int __wrap_renameat2(int dir, const char *from, int to_dir, const char *to, unsigned flags);

int __wrap_rename(const char *from, const char *to)
{
    return rename_fails() ? -1 : __real_rename(from, to);
}

int __wrap_renameat2(int dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    if (rename_fails())
        return -1;
    errno = EINVAL;
    return renames.no_exchange ? -1 : __real_renameat2(dir, from, to_dir, to, flags);
}

/* Lines of `path` in order from *next on; a file that is not there has none. */
static void check_lines_of(const char *path, int *next)
{
    char *text, *rest, *line;

    if (size_of(path) < 0)
        return;
    rest = text = read_text(path);
    while ((line = strsep(&rest, "\n")) && *line)
        assert_int_equal(atoi(line), (*next)++);
    free(text);
}

static void remove_parts(void)
{
    for (int i = 0; i <= LINES_OLD; i++) {
        char *path = lines_part("a", i);

        unlink(path);
        free(path);
    }
    unlink("a.new");
}

/* Write lines over three rotations while the calls from..to fail.  No line is lost or out of order.
 * 0: no call failed any more. */
static int rotate_while_failing(int from, int to)
{
    enum { LINES = 24, MOST = 50 };
    struct lines *l = open_lines("a", MOST, NULL);
    int next = 0;

    renames.n = 0;
    renames.from = from;
    renames.to = to;
    for (int i = 0; i < LINES; i++) {
        char text[16];

        snprintf(text, sizeof text, "%07d", i);
        lines_add(l, text);
    }
    renames.from = renames.to = 0;
    assert_int_equal(lines_lost(l), 0);
    lines_free(l);
    for (int i = 0; i < LINES_OLD; i++) {
        char *path = lines_part("a", i);

        check_lines_of(path, &next);
        free(path);
    }
    check_lines_of("a.new", &next);
    check_lines_of("a", &next);
    assert_int_equal(next, LINES);
    remove_parts();
    return renames.n >= from;
}

static void test_renames_fail(void **state)
{
    (void)state;
    for (int no_exchange = 0; no_exchange < 2; no_exchange++) {
        renames.no_exchange = no_exchange;
        for (int n_fail = 1; n_fail <= 4; n_fail++) {
            int from = 1;

            while (rotate_while_failing(from, from + n_fail - 1))
                from++;
            assert_true(from > 8);
        }
    }
    renames.no_exchange = 0;
}

/* The lock stays where the lines go, though the old part cannot get its name. */
static void test_lock_stays_when_a_rename_fails(void **state)
{
    struct lines *l;
    int fd;

    (void)state;
    fd = open("a", O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    l = lines_new(fd, &(struct lines_options){.path = "a", .what = "a line", .most_bytes = 20});
    renames.n = 0;
    renames.from = renames.to = 2; /* after the exchange */
    lines_add(l, "a line of text");
    lines_add(l, "a second");
    assert_int_equal(renames.n, 3);
    renames.from = renames.to = 0;
    fd = open("a", O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), -1);
    assert_int_equal(size_of("a"), 24); /* both lines */
    assert_int_equal(size_of("a.1"), -1);
    close(fd);
    lines_add(l, "a third");
    assert_int_equal(size_of("a.1"), 24);
    assert_int_equal(size_of("a"), 8);
    lines_free(l);
}

/* A line longer than the bound stands alone in its file. */
static void test_long_line(void **state)
{
    struct lines *l = open_lines("a", 10, NULL);
    char *text;

    (void)state;
    lines_add(l, "0123456789012345");
    lines_add(l, "x");
    lines_free(l);
    text = read_text("a.1");
    assert_string_equal(text, "0123456789012345\n");
    free(text);
    text = read_text("a");
    assert_string_equal(text, "x\n");
    free(text);
}

/* A link in the file's place is not written through. */
static void test_link(void **state)
{
    struct err err;
    int fd;

    (void)state;
    write_text("precious", "torn");
    assert_int_equal(symlink("precious", "a"), 0);
    assert_int_equal(lines_open("a", &fd, &err), ERR_IO);
    assert_int_equal(size_of("precious"), 4);
}

static void test_taken_over(void **state)
{
    struct lines *l = open_lines("a", 1000, NULL);
    struct err err;
    char *text;

    (void)state;
    assert_int_equal(owner_claim(".", 0, &err), 0);
    lines_add(l, "ours");
    write_text("owner", "{\"id\": \"another\", \"pid\": 1, \"host\": \"h\"}");
    lines_add(l, "late");
    assert_int_equal(lines_lost(l), 1);
    lines_free(l);
    text = read_text("a");
    assert_string_equal(text, "ours\n");
    free(text);
}

/* With `owner_ms` the owner is read again only after that time. */
static void test_owner_is_read_rarely(void **state)
{
    struct lines_options o = {
        .path = "a", .run_dir = ".", .what = "a line", .most_bytes = 1000, .owner_ms = 100};
    struct lines *l;
    int64_t began = clock_mono_ns();
    struct err err;
    char *text;
    int fd, in_time;

    (void)state;
    assert_int_equal(owner_claim(".", 0, &err), 0);
    assert_int_equal(lines_open("a", &fd, &err), 0);
    l = lines_new(fd, &o);
    lines_add(l, "ours");
    write_text("owner", "{\"id\": \"another\", \"pid\": 1, \"host\": \"h\"}");
    lines_add(l, "soon");
    in_time = clock_since_s(began) < 0.1;
    while (clock_since_s(began) < 0.25)
        sched_yield();
    lines_add(l, "late");
    lines_free(l);
    text = read_text("a");
    if (in_time) /* else this process stood still meanwhile */
        assert_string_equal(text, "ours\nsoon\n");
    free(text);
}

/* ---- a writer that is held up ---- */

struct plug {
    struct task task;
    int pipe;
};

static void run_plug(struct task *t)
{
    struct plug *p = container_of(t, struct plug, task);
    char byte;

    assert_int_equal(read(p->pipe, &byte, 1), 1);
    free(p);
}

static struct plug *plug_new(int pipe)
{
    struct plug *p = xmalloc(sizeof *p);

    *p = (struct plug){.task.run = run_plug, .pipe = pipe};
    return p;
}

/* A file that has a part of the queue leaves the rest of it to the others. */
static void test_part_of_the_queue(void **state)
{
    enum { LINES = 1000, PART = 500, TEXT = 10 };
    struct lines_options o = {.path = "audit", .what = "a line", .most_bytes = 1 << 20};
    struct lines *audit, *events;
    struct writer *w;
    struct err err;
    int pipes[2], fd;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(writer_new(PART * 100, &w, &err), 0);
    assert_int_equal(writer_put(w, &plug_new(pipes[0])->task), 0);
    o.writer = w;
    o.most_queued = PART;
    assert_int_equal(lines_open("audit", &fd, &err), 0);
    audit = lines_new(fd, &o);
    events = open_lines("events", 1 << 20, w);
    for (int i = 0; i < LINES; i++)
        lines_add(audit, "123456789");
    assert_int_equal(lines_lost(audit), LINES - PART / TEXT);
    lines_add(events, "an event");
    assert_int_equal(lines_lost(events), 0);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    assert_int_equal(lines_flush(audit, 60000), 0);
    lines_add(audit, "123456789"); /* there is room again */
    assert_int_equal(lines_lost(audit), LINES - PART / TEXT);
    assert_int_equal(writer_free(w, 60000), 0);
    lines_free(audit);
    lines_free(events);
    close(pipes[0]);
    close(pipes[1]);
}

/* Lines that find no room are missing at their place, with their number. */
static void test_no_room(void **state)
{
    enum { LINES = 1000 };
    int pipes[2], next = 0, missing = 0;
    struct writer *w;
    struct lines *l;
    char *text, *rest, *line;
    struct err err;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(writer_new(10000, &w, &err), 0);
    l = open_lines("a", 1 << 20, w);
    assert_int_equal(writer_put(w, &plug_new(pipes[0])->task), 0);
    for (int i = 0; i < LINES; i++) {
        char number[16];

        snprintf(number, sizeof number, "%d", i);
        lines_add(l, number);
    }
    assert_in_range(lines_lost(l), LINES / 2, LINES - 1);
    assert_int_equal(lines_flush(l, 10), WRITER_LATE);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    assert_int_equal(lines_flush(l, 60000), 0);
    assert_int_equal(writer_free(w, 60000), 0);
    rest = text = read_text("a");
    while ((line = strsep(&rest, "\n")) && *line) {
        const char *told = strstr(line, "\"message\":\"");

        if (told) {
            missing = atoi(told + strlen("\"message\":\""));
            next += missing;
        } else {
            assert_int_equal(atoi(line), next++);
        }
    }
    assert_int_equal(missing, lines_lost(l));
    assert_int_equal(next, LINES);
    lines_free(l);
    free(text);
    close(pipes[0]);
    close(pipes[1]);
}

/* ---- audit ---- */

static void test_audit(void **state)
{
    static const char *const want[] = {
        "{\"event\":\"asked\",\"time\":0,\"request\":\"drain node\",\"uid\":1000,\"pid\":42,"
        "\"refused\":null}",
        "{\"event\":\"asked\",\"time\":0,\"request\":null,\"uid\":-1,\"pid\":7,"
        "\"refused\":\"this ? is none\"}",
        "{\"event\":\"refused\",\"time\":0,\"reason\":\"10.0.0.5:7: no secret\"}",
    };
    struct audit *a = audit_new(open_lines("audit.jsonl", 10000, NULL));
    char *text, *rest;

    (void)state;
    audit_asked(a, "drain node", 1000, 42, NULL);
    audit_asked(a, NULL, -1, 7, "this \x1b is none");
    audit_refused(a, "10.0.0.5:7: no secret");
    audit_free(a);
    rest = text = read_text("audit.jsonl");
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        json_t *seen = json_loads(strsep(&rest, "\n"), 0, NULL);
        json_t *wanted = json_loads(want[i], 0, NULL);

        assert_true(json_real_value(json_object_get(seen, "time")) > 1.5e9);
        json_object_set_new(seen, "time", json_integer(0));
        assert_true(json_equal(seen, wanted));
        json_decref(seen);
        json_decref(wanted);
    }
    assert_string_equal(rest, "");
    free(text);
}

/* A flood of strangers: the first have a line each, the others are counted, none is forgotten, and
 * a request has its line still. */
static void test_audit_of_a_flood(void **state)
{
    enum { FLOOD = 5 * AUDIT_BURST };
    struct audit *a = audit_new(open_lines("audit.jsonl", 1 << 20, NULL));
    int64_t began = clock_mono_ns();
    int n_refused = 0, n_omitted = 0, n_asked = 0, most;
    char *text, *rest, *line;

    (void)state;
    for (int i = 0; i < FLOOD; i++)
        audit_refused(a, "a stranger");
    audit_asked(a, "status", 1000, 42, NULL);
    most = AUDIT_BURST + 1 + (int)(AUDIT_RATE * clock_since_s(began));
    audit_flush(a);
    audit_flush(a); /* the number is told once */
    audit_free(a);
    rest = text = read_text("audit.jsonl");
    while ((line = strsep(&rest, "\n")) && *line) {
        json_t *o = json_loads(line, 0, NULL);
        const char *event = json_string_value(json_object_get(o, "event"));

        n_refused += !strcmp(event, "refused");
        n_asked += !strcmp(event, "asked");
        n_omitted += (int)json_integer_value(json_object_get(o, "count"));
        json_decref(o);
    }
    assert_in_range(n_refused, AUDIT_BURST, most);
    assert_int_equal(n_refused + n_omitted, FLOOD);
    assert_int_equal(n_asked, 1);
    free(text);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_rotation),
        CASE(test_lock_stays),
        CASE(test_renames_fail),
        CASE(test_lock_stays_when_a_rename_fails),
        CASE(test_long_line),
        CASE(test_link),
        CASE(test_taken_over),
        CASE(test_owner_is_read_rarely),
        CASE(test_part_of_the_queue),
        CASE(test_no_room),
        CASE(test_audit),
        CASE(test_audit_of_a_flood),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
