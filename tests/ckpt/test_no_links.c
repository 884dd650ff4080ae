/* ckpt: checkpoints on a file system without links, and one that has no room for a link. */
#include "linked.h"

static void test_without_links(void **state)
{
    static const int kinds[] = {EPERM, ENOSYS, EOPNOTSUPP, EROFS};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        char *path, *named;

        make_run(NULL);
        disk_be_plain(kinds[i]);
        ckpt_check_links(run, warn, NULL);
        assert_non_null(strstr(buf_cstr(&told), "has no symbolic links"));
        for (int64_t step = 10; step <= 40; step += 10)
            save((struct run_point){step, 0, step > 10 ? 20 : 10}, 2, 0);
        save((struct run_point){40, 1, 20}, 2, 0); /* the two folders cannot change places */
        assert_entries("best latest step-00000020 step-00000030 step-00000040");
        assert_place("latest", "step-00000040\n");
        assert_place("best", "step-00000020\n");
        assert_newest(40);
        assert_best(20);
        path = in_run("best");
        named = ckpt_named_by(path);
        assert_true(named && strstr(named, "/checkpoints/step-00000020"));
        free(named);
        free(path);
        disk_be_plain(0); /* copied to another disk */
        save((struct run_point){50, 0, 50}, 1, 0);
        assert_entries("best latest step-00000050");
        assert_place("latest", "step-00000050");
        assert_place("best", "step-00000050");
        remove_run(NULL);
    }
}

/* A full disk has room for the checkpoint and none for its link: the checkpoint counts, and no link
 * leads to one that was removed. */
static void test_no_room_for_the_link(void **state)
{
    (void)state;
    save((struct run_point){10, 0, 0}, 1, 0);
    disk_be_plain(ENOSPC);
    ckpt_check_links(run, warn, NULL);
    assert_int_equal(told.len, 0);
    save((struct run_point){20, 0, 0}, 1, CKPT_UNLINKED);
    assert_newest(20);
    assert_entries("step-00000020");
}

/* Each call of an exchange in three steps fails once.  The next save finds nothing in its way. */
static void test_failed_exchange(void **state)
{
    int n = 0, n_refused = 0, has_failed = 1;

    (void)state;
    while (has_failed) {
        struct run_point p = {10, 1, 0};
        struct err err = {0};
        int rc;

        make_run(NULL);
        save((struct run_point){10, 0, 0}, 1, 0);
        disk_be_plain(EPERM);
        disk_fail_at(++n, EIO);
        rc = run_save(run, p, 1, &err);
        has_failed = disk_has_failed();
        disk_fail_at(0, 0);
        if (rc < 0 && strstr(err.msg, "cannot rename")) {
            assert_int_equal(run_load(run, &p, &err), 0);
            assert_int_equal(p.version, 0); /* a save that took place has not failed */
            n_refused++;
        }
        save((struct run_point){10, 2, 0}, 1, 0);
        assert_int_equal(run_load(run, &p, &err), 0);
        assert_int_equal(p.version, 2);
        ckpt_clear(run);
        assert_entries("latest step-00000010");
        remove_run(NULL);
    }
    assert_int_equal(n_refused, 2); /* of three renames */
}

/* A crash may leave the link that a look at the disk makes.  It goes with the rest. */
static void test_no_remains_of_a_look(void **state)
{
    const struct disk_op *op;
    char *path;
    int n;

    (void)state;
    save((struct run_point){10, 0, 0}, 1, 0);
    disk_record(run);
    ckpt_check_disk(run, warn, NULL);
    op = disk_ops(&n);
    assert_true(n == 2 && op->kind == DISK_SYMLINK);
    path = xasprintf("%s/%s", run, op->path);
    assert_int_equal(symlink("nothing", path), 0);
    free(path);
    disk_record(NULL);
    ckpt_clear(run);
    assert_entries("latest step-00000010");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_no_room_for_the_link),
        cmocka_unit_test(test_without_links),
        cmocka_unit_test(test_failed_exchange),
        CASE(test_no_remains_of_a_look),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
