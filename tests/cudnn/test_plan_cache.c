/* Tests of plan_cache: an entry that was put is got again, by any number of processes.  A damaged
 * or foreign file counts as no entry and is replaced, and the folder's size is bounded. */
#include "../test.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "backend/cuda/plan_cache.h"
#include "base/util.h"

static char root[] = "/tmp/dptrain-plans-XXXXXX";
static char folder[64];
static int n_warnings;
static char last_warning[512];

static void note(void *arg, const char *text)
{
    (void)arg;
    n_warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", text);
}

static void run_shell(const char *command)
{
    char line[1200];

    snprintf(line, sizeof line, "cd '%s' && %s", root, command);
    assert_int_equal(system(line), 0);
}

static int fresh(void **state)
{
    (void)state;
    run_shell("chmod -R u+rwX . && rm -rf cache outer");
    snprintf(folder, sizeof folder, "%s/cache/dptrain/plans", root);
    n_warnings = 0;
    return 0;
}

static struct plan_cache *open_cache(void) { return plan_cache_open(folder, note, NULL); }

static void put(const char *key, const void *data, size_t n)
{
    struct plan_cache *c = open_cache();

    plan_cache_put(c, key, data, n);
    plan_cache_close(c);
}

static int get(const char *key, struct buf *out)
{
    struct plan_cache *c = open_cache();
    const int found = plan_cache_get(c, key, out);

    plan_cache_close(c);
    return found;
}

static void expect(const char *key, const void *data, size_t n)
{
    struct buf b = {0};

    assert_int_equal(get(key, &b), 1);
    assert_int_equal(b.len, n);
    assert_memory_equal(b.data, data, n);
    buf_fini(&b);
}

static void expect_none(const char *key)
{
    struct buf b = {0};

    assert_int_equal(get(key, &b), 0);
    assert_int_equal(b.len, 0);
    buf_fini(&b);
}

static int n_files(void)
{
    DIR *d = opendir(folder);
    int n = 0;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

static void kept(void **state)
{
    static const char binary[] = "\n\0plan\n\n\xff";

    (void)state;
    expect_none("first");
    put("first", "one", 3);
    put("second", binary, sizeof binary);
    expect("first", "one", 3);
    expect("second", binary, sizeof binary);
    expect_none("firs");
    put("first", "another", 7);
    expect("first", "another", 7);
    assert_int_equal(n_files(), 2);
    assert_int_equal(n_warnings, 0);
}

/* The path of the cache's only entry. */
static void path_of_entry(char *out, size_t room)
{
    DIR *d = opendir(folder);

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.')
            snprintf(out, room, "%s/%.60s", folder, e->d_name);
    closedir(d);
}

static void write_file(const char *path, const char *data, size_t n)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), (ssize_t)n);
    close(fd);
}

/* An entry cut anywhere, with any byte changed, longer or empty is not got, and a put mends it. */
static void damaged(void **state)
{
    char path[160] = "", good[256];
    ssize_t n;
    int fd;

    (void)state;
    put("key", "the body", 8);
    path_of_entry(path, sizeof path);
    fd = open(path, O_RDONLY);
    n = read(fd, good, sizeof good - 1);
    close(fd);
    assert_true(n > 8 && n < (ssize_t)sizeof good - 1);
    for (ssize_t i = 0; i < n; i++) {
        write_file(path, good, (size_t)i);
        expect_none("key");
        good[i] ^= 1;
        write_file(path, good, (size_t)n);
        expect_none("key");
        good[i] ^= 1;
    }
    good[n] = 'x';
    write_file(path, good, (size_t)n + 1);
    expect_none("key");
    put("key", "the body", 8);
    expect("key", "the body", 8);
    assert_int_equal(n_files(), 1);
}

static void foreign(void **state)
{
    char path[160] = "", command[1000];

    (void)state;
    put("key", "body", 4);
    path_of_entry(path, sizeof path);
    snprintf(command, sizeof command, "mv '%s' '%s.x' && ln -s '%s.x' '%s'", path, path, path,
             path);
    run_shell(command);
    expect_none("key"); /* a link */
    snprintf(command, sizeof command, "rm '%s' && mkdir '%s'", path, path);
    run_shell(command);
    expect_none("key"); /* a folder */
    snprintf(command, sizeof command, "rmdir '%s' && cp '%s.x' '%s'", path, path, path);
    run_shell(command);
    expect("key", "body", 4);
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(path, 4242, 4242), 0); /* another user's */
    expect_none("key");
}

/* A cache that cannot be written gives one warning and no error. */
static void cannot_be_written(void **state)
{
    struct plan_cache *c;
    struct buf b = {0};

    (void)state;
    put("key", "body", 4);
    run_shell("rm -rf outer && mkdir outer && : > outer/file");
    snprintf(folder, sizeof folder, "%s/outer/file/plans", root); /* below a file */
    c = open_cache();
    plan_cache_put(c, "key", "body", 4);
    plan_cache_put(c, "other", "body", 4);
    assert_int_equal(plan_cache_get(c, "key", &b), 0);
    plan_cache_close(c);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(last_warning, "outer/file/plans: Not a directory"));
    assert_non_null(strstr(last_warning, "train.plan_cache"));
}

static void without_a_folder(void **state)
{
    struct plan_cache *c = plan_cache_open(NULL, note, NULL);
    struct buf b = {0};

    (void)state;
    assert_null(c);
    plan_cache_put(c, "key", "body", 4);
    assert_int_equal(plan_cache_get(c, "key", &b), 0);
    plan_cache_close(c);
}

/* Several processes write the same entries at once: each file is whole, and one process's. */
static void written_at_once(void **state)
{
    enum { N_PROCESSES = 4, N_KEYS = 20, LEN = 20000 };
    static char body[LEN];
    char key[32];
    pid_t pid[N_PROCESSES];

    (void)state;
    for (int p = 0; p < N_PROCESSES; p++) {
        pid[p] = fork();
        assert_true(pid[p] >= 0);
        if (pid[p] > 0)
            continue;
        memset(body, 'a' + p, LEN);
        for (int turn = 0; turn < 5; turn++)
            for (int k = 0; k < N_KEYS; k++) {
                snprintf(key, sizeof key, "key %d", k);
                put(key, body, LEN);
            }
        _exit(0);
    }
    for (int p = 0; p < N_PROCESSES; p++) {
        int status = -1;

        assert_int_equal(waitpid(pid[p], &status, 0), pid[p]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(n_files(), N_KEYS);
    for (int k = 0; k < N_KEYS; k++) {
        struct buf b = {0};

        snprintf(key, sizeof key, "key %d", k);
        assert_int_equal(get(key, &b), 1);
        assert_int_equal(b.len, LEN);
        for (int i = 1; i < LEN; i++)
            assert_int_equal(b.data[i], b.data[0]);
        buf_fini(&b);
    }
}

/* A full cache drops its oldest entries; an entry that was got lately stays. */
static void bounded(void **state)
{
    struct plan_cache *c = open_cache();
    const struct timespec old[2] = {{1000, 0}, {1000, 0}};
    char key[32], path[160] = "";

    (void)state;
    put("first", "1", 1);
    path_of_entry(path, sizeof path);
    for (int i = 0; i < PLAN_CACHE_MAX_FILES; i++) {
        snprintf(key, sizeof key, "key %d", i);
        plan_cache_put(c, key, "x", 1);
    }
    plan_cache_close(c);
    assert_int_equal(n_files(), PLAN_CACHE_MAX_FILES + 1);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    expect("first", "1", 1); /* a get makes the entry young */
    run_shell("touch cache/dptrain/plans/notes");
    put("last", "2", 1);
    assert_int_equal(n_files(), PLAN_CACHE_MAX_FILES / 2 + 1); /* and the notes */
    expect("first", "1", 1);
    expect("last", "2", 1);
}

static void expect_folder(const char *service, const char *xdg, const char *home, const char *want)
{
    const char *const name[] = {"CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME"};
    const char *const value[] = {service, xdg, home};
    char *got;

    for (int i = 0; i < 3; i++)
        if (value[i])
            assert_int_equal(setenv(name[i], value[i], 1), 0);
        else
            assert_int_equal(unsetenv(name[i]), 0);
    got = plan_cache_folder();
    if (want)
        assert_string_equal(got, want);
    else
        assert_null(got);
    free(got);
}

static void folders(void **state)
{
    (void)state;
    expect_folder("/var/cache/dptrain", "/x", "/h", "/var/cache/dptrain/plans");
    expect_folder("/var/cache/a:/var/cache/b", NULL, NULL, "/var/cache/a/plans");
    expect_folder(NULL, "/x", "/h", "/x/dptrain/plans");
    expect_folder(NULL, "relative", "/h", "/h/.cache/dptrain/plans");
    expect_folder(NULL, NULL, "/h", "/h/.cache/dptrain/plans");
    expect_folder(NULL, NULL, NULL, NULL);
    expect_folder(NULL, "", "", NULL);
}

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return remove_tree(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(kept, fresh),    cmocka_unit_test_setup(damaged, fresh),
        cmocka_unit_test_setup(foreign, fresh), cmocka_unit_test_setup(cannot_be_written, fresh),
        cmocka_unit_test(without_a_folder),     cmocka_unit_test_setup(written_at_once, fresh),
        cmocka_unit_test_setup(bounded, fresh), cmocka_unit_test(folders),
    };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}
