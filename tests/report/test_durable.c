/* Tests that a run's folder and its files survive a power cut: the calls to the kernel are
 * recorded, and every name was fsynced. */
#include "../test.h"

#include "../ckpt/disk.h"
#include "base/alloc.h"
#include "folder.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_names_are_synced, folder_setup, folder_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
