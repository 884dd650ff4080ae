/* Tests of run_dir on a file system without locks: flock fails here, and the file `owner` tells two
 * drivers apart. */
#include "../test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt/owner.h"
#include "folder.h"
#include "report/run_dir.h"

static int n_flocks, held_at = -1; /* the call that finds another driver's lock; -1: none does */

int __wrap_flock(int fd, int operation);

int __wrap_flock(int fd, int operation)
{
    (void)fd;
    (void)operation;
    errno = n_flocks++ == held_at ? EWOULDBLOCK : ENOLCK;
    return -1;
}

static int claim(struct run_dir *d, struct err *err)
{
    return run_dir_claim(&(struct run_dir_request){.path = "r", .is_explicit = 1, .resume = 1}, d,
                         err);
}

/* The owner is the process with this pid, of this boot and space of pids. */
static void write_owner(const char *id, int64_t pid, int64_t pid_space)
{
    char boot[HOST_BOOT];
    char *text;

    host_boot(boot);
    text = xasprintf("{\"id\": \"%s\", \"term\": 3, \"host\": \"node7\", \"pid\": %lld, "
                     "\"pid_space\": %lld, \"boot\": \"%s\", \"started\": %lld}",
                     id, (long long)pid, (long long)pid_space, boot,
                     (long long)host_process_start(pid));
    write_text("r/owner", text);
    free(text);
}

static void test_owner_lives(void **state)
{
    struct run_dir d;
    struct err err;

    (void)state;
    assert_int_equal(claim(&d, &err), 0);
    run_dir_fini(&d);
    write_owner("another", getppid(), host_pid_space());
    assert_int_equal(claim(&d, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "another dpdriver is using it"));
    assert_non_null(strstr(err.msg, "node7"));
}

static int refuse(void *arg, const char *dir, struct err *err)
{
    assert_string_equal(dir, "r");
    ++*(int *)arg;
    return err_set(err, ERR_CONFIG, "other data");
}

/* A resume that is refused does not take the folder from an owner that may live elsewhere.  An
 * owner that has ended loses nothing, and the check, which is slow, is left out. */
static void test_a_refused_resume_claims_nothing(void **state)
{
    int n_checks = 0;
    const struct run_dir_request q = {
        .path = "r", .is_explicit = 1, .resume = 1, .check = refuse, .arg = &n_checks};
    struct owner o;
    struct run_dir d;
    struct err err;

    (void)state;
    assert_int_equal(claim(&d, &err), 0);
    run_dir_fini(&d);
    write_owner("another", getppid(), host_pid_space() + 1);
    assert_int_equal(run_dir_claim(&q, &d, &err), ERR_CONFIG);
    assert_int_equal(n_checks, 1);
    assert_string_equal(err.msg, "other data");
    assert_int_equal(owner_read("r", &o, &err), 0);
    assert_string_equal(o.id, "another");
    write_owner("another", getppid(), host_pid_space()); /* it lives: no need to look further */
    assert_int_equal(run_dir_claim(&q, &d, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "another dpdriver is using it"));
    write_owner("another", 1 << 30, host_pid_space());
    assert_int_equal(run_dir_claim(&q, &d, &err), 0);
    assert_int_equal(n_checks, 1);
    run_dir_fini(&d);
}

/* An owner that has ended, that is elsewhere, or whose file is damaged does not keep the folder. */
static void test_owner_may_be_gone(void **state)
{
    struct owner o;
    struct run_dir d;
    struct err err;

    (void)state;
    assert_int_equal(claim(&d, &err), 0);
    run_dir_fini(&d);
    write_owner("another", 1 << 30, host_pid_space());
    assert_int_equal(claim(&d, &err), 0);
    run_dir_fini(&d);
    write_owner("another", getppid(), host_pid_space() + 1);
    assert_int_equal(claim(&d, &err), 0);
    assert_int_equal(owner_read("r", &o, &err), 0);
    assert_true(owner_is_self(&o));
    assert_int_equal(o.term, 4); /* one more than the owner's before */
    assert_int_equal(d.term, 4);
    assert_string_equal(d.run, o.run);
    run_dir_fini(&d);
    write_text("r/owner", "");
    assert_int_equal(claim(&d, &err), 0);
    run_dir_fini(&d);
    assert_int_equal(owner_check("r", &err), 0);
}

/* Where the name cannot be written, nothing is claimed, and no empty run stays. */
static void test_not_claimed(void **state)
{
    struct run_dir d;
    struct err err;

    (void)state;
    assert_int_equal(mkdir("r", 0777), 0);
    assert_int_equal(mkdir("r/owner", 0777), 0);
    assert_int_equal(claim(&d, &err), ERR_IO);
    assert_int_equal(access("r/events.jsonl", F_OK), -1);
}

/* A resumed copy made of hard links gets a new events.jsonl.  Another driver may lock the new file
 * first, and then has the run. */
static void test_another_locks_the_new_file(void **state)
{
    struct run_dir d;
    struct err err;

    (void)state;
    assert_int_equal(claim(&d, &err), 0);
    run_dir_fini(&d);
    assert_int_equal(link("r/events.jsonl", "of_another_run"), 0);
    n_flocks = 0;
    held_at = 1; /* 0 locks the old file */
    assert_int_equal(claim(&d, &err), ERR_CONFIG);
    held_at = -1;
    assert_int_equal(n_flocks, 2);
    assert_non_null(strstr(err.msg, "another dpdriver is using it"));
    assert_int_equal(claim(&d, &err), 0);
    run_dir_fini(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_owner_lives, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_owner_may_be_gone, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_a_refused_resume_claims_nothing, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(test_not_claimed, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_another_locks_the_new_file, folder_setup,
                                        folder_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
