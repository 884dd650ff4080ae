/* ckpt: every call that writes or reads a checkpoint fails once.  The error says so, nothing is
 * lost, no file is left open, and the next checkpoint is written as if nothing had happened. */
#include "../test.h"

#include <dirent.h>
#include <errno.h>

#include "base/alloc.h"
#include "disk.h"
#include "runs.h"

static int n_open(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void assert_loads(const char *run, struct run_point a, struct run_point b)
{
    struct run_point seen;
    struct err err;

    if (run_load(run, &seen, &err) != 0)
        fail_msg("%s", err.msg);
    if ((seen.step != a.step || seen.version != a.version) &&
        (seen.step != b.step || seen.version != b.version))
        fail_msg("loaded step %d, version %d", (int)seen.step, seen.version);
}

/* Let each call of a save fail in turn.  errnum 0: writes are cut.  is_harmless: no failure may be
 * noticed. */
static void sweep_save(struct run_point next, int errnum, int is_harmless)
{
    const struct run_point before = {20, 0}, after = {40, 0};
    int n = 0, has_failed = 1, n_errors = 0;

    while (has_failed) {
        char *run = run_new_folder();
        struct err err;
        int rc, fds;

        assert_int_equal(run_save(run, (struct run_point){10, 0}, 2, &err), 0);
        assert_int_equal(run_save(run, before, 2, &err), 0);
        fds = n_open();
        disk_fail_at(++n, errnum);
        rc = run_save(run, next, 2, &err);
        has_failed = disk_has_failed();
        disk_fail_at(0, 0);
        if (rc < 0 && (is_harmless || err.code != ERR_IO || !strstr(err.msg, run)))
            fail_msg("call %d: %s", n, err.msg);
        n_errors += rc < 0;
        assert_loads(run, rc < 0 ? before : next, next);
        assert_int_equal(n_open(), fds);
        assert_int_equal(run_save(run, after, 2, &err), 0);
        assert_loads(run, after, after);
        run_remove_folder(run);
    }
    assert_true(n > 20);
    assert_true(is_harmless ? n_errors == 0 : n_errors > 15);
}

static void test_save(void **state)
{
    static const struct run_point next[] = {{30, 0}, {20, 1}}; /* a new step; the same again */

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(next); i++) {
        sweep_save(next[i], EIO, 0);
        sweep_save(next[i], ENOSPC, 0);
    }
}

static void test_interrupted_or_cut(void **state)
{
    (void)state;
    sweep_save((struct run_point){30, 0}, EINTR, 1);
    sweep_save((struct run_point){30, 0}, 0, 1);
}

enum fault { BY_EIO, BY_DESCRIPTORS, BY_MEMORY, N_FAULTS };

static void strike(enum fault by, int n)
{
    if (by == BY_MEMORY)
        alloc_fail_at((uint64_t)n);
    else
        disk_fail_at(n, by == BY_EIO ? EIO : EMFILE);
}

/* A file with a bad sector is passed over.  Descriptors or memory that are used up are no damage:
 * the load fails, and says so. */
static void sweep_load(enum fault by)
{
    static const int codes[N_FAULTS] = {[BY_DESCRIPTORS] = ERR_NOMEM, [BY_MEMORY] = ERR_NOMEM};
    const struct run_point old = {10, 0}, new = {20, 0};
    char *run = run_new_folder();
    int n = 0, has_failed = 1, n_fell_back = 0, n_errors = 0;
    struct err err;

    assert_int_equal(run_save(run, old, 2, &err), 0);
    assert_int_equal(run_save(run, new, 2, &err), 0);
    while (has_failed) {
        int fds = n_open(), rc;
        struct run_point seen;

        strike(by, ++n);
        rc = run_load(run, &seen, &err);
        has_failed = by == BY_MEMORY ? rc < 0 : disk_has_failed();
        disk_fail_at(0, 0);
        alloc_fail_at(0);
        n_errors += rc < 0;
        n_fell_back += rc == 0 && seen.step == old.step;
        if (rc < 0 && (err.code != codes[by] && err.code != ERR_CORRUPT))
            fail_msg("call %d: %s", n, err.msg);
        assert_int_equal(n_open(), fds);
    }
    assert_true(by == BY_EIO ? n_fell_back >= 6 : n_fell_back == 0 && n_errors >= 4);
    run_remove_folder(run);
}

static void test_load(void **state)
{
    (void)state;
    for (int by = 0; by < N_FAULTS; by++)
        sweep_load((enum fault)by);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_save),
        cmocka_unit_test(test_interrupted_or_cut),
        cmocka_unit_test(test_load),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
