/* Tests that a run's folder and its files survive a power cut: the calls to the kernel are
 * recorded, and every name was fsynced.  And that a full disk, whichever call meets it, leaves
 * nothing half done. */
#include "../test.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include "../ckpt/disk.h"
#include "base/alloc.h"
#include "folder.h"
#include "report/incidents.h"
#include "report/run_dir.h"

/* The first call from number `from` on of this kind and path; -1: none. */
static int find(int from, enum disk_op_kind kind, const char *path)
{
    int n;
    const struct disk_op *op = disk_ops(&n);

    for (int i = from; i < n; i++)
        if (op[i].kind == kind && !strcmp(kind == DISK_RENAME ? op[i].to : op[i].path, path))
            return i;
    return -1;
}

static void test_names_are_synced(void **state)
{
    static const struct {
        enum disk_op_kind kind;
        const char *path, *folder;
    } made[] = {
        {DISK_MKDIR, "a", ""},
        {DISK_MKDIR, "a/b", "a"},
        {DISK_RENAME, "a/b/job.yaml", "a/b"},
    };
    struct run_dir_request q = {.is_explicit = 1};
    struct run_dir d;
    struct err err;
    char *folder = *state, *run = xasprintf("%s/a/b", folder);
    char *job = xasprintf("%s/job.yaml", run);

    q.path = run;
    disk_record(folder);
    assert_int_equal(run_dir_claim(&q, &d, &err), 0);
    assert_int_equal(run_dir_replace(job, "name: x\n", 8, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(made); i++) {
        int at = find(0, made[i].kind, made[i].path);

        assert_true(at >= 0);
        assert_true(find(at, DISK_FSYNC, made[i].folder) > at);
    }
    disk_record(NULL);
    run_dir_fini(&d);
    free(job);
    free(run);
}

static int n_in(const char *folder)
{
    DIR *d = opendir(folder);
    int n = -2; /* but . and .. */

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Claim a folder while the n-th call fails.  0: no call failed any more. */
static int claim_on_full_disk(int n)
{
    struct run_dir_request q = {.path = "run", .is_explicit = 1};
    struct run_dir d;
    struct err err;
    int n_open = n_in("/proc/self/fd"), rc, has_failed;

    disk_fail_at(n, ENOSPC);
    rc = run_dir_claim(&q, &d, &err);
    has_failed = disk_has_failed();
    disk_fail_at(0, 0);
    if (rc == 0) {
        run_dir_discard(&d);
        run_dir_fini(&d);
    } else {
        assert_non_null(strstr(err.msg, "run"));
    }
    assert_false(run_dir_holds_run("run"));
    rmdir("run"); /* a folder that was made and holds no run harms nobody */
    assert_int_equal(access("run", F_OK), -1);
    assert_int_equal(n_in("/proc/self/fd"), n_open);
    return has_failed;
}

static void test_claim_on_full_disk(void **state)
{
    int n = 0;

    (void)state;
    while (claim_on_full_disk(++n))
        ;
    assert_true(n > 8);
}

/* A file is replaced whole or not at all, and nothing is left aside. */
static void test_replace_on_full_disk(void **state)
{
    int n = 0, has_failed = 1, n_errors = 0;

    (void)state;
    while (has_failed) {
        struct err err;
        char *text;
        int rc;

        write_text("job.yaml", "old");
        disk_fail_at(++n, ENOSPC);
        rc = run_dir_replace("job.yaml", "new one", 7, &err);
        has_failed = disk_has_failed();
        disk_fail_at(0, 0);
        text = read_text("job.yaml");
        assert_string_equal(text, rc == 0 ? "new one" : "old");
        free(text);
        n_errors += rc < 0;
        assert_int_equal(n_in("."), 1);
    }
    assert_true(n_errors >= 4);
}

/* An incident that does not fit leaves no file, and the next one takes its number. */
static void test_incident_on_full_disk(void **state)
{
    int n = 0, has_failed = 1, n_errors = 0;

    (void)state;
    while (has_failed) {
        char *path = NULL;
        struct err err;
        int rc;

        disk_fail_at(++n, ENOSPC);
        rc = incidents_write(".", "{}", &path, &err);
        has_failed = disk_has_failed();
        disk_fail_at(0, 0);
        if (rc == 0)
            assert_string_equal(path, "./incidents/incident-1.json");
        else
            assert_non_null(strstr(err.msg, "No space left on device"));
        n_errors += rc < 0;
        assert_int_equal(access("incidents", F_OK) == 0 ? n_in("incidents") : 0, rc == 0);
        unlink("incidents/incident-1.json");
        free(path);
    }
    assert_true(n_errors >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_names_are_synced, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_claim_on_full_disk, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_replace_on_full_disk, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_incident_on_full_disk, folder_setup, folder_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
