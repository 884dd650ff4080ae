/* ckpt/owner: a run directory has one owner, and a process that is not the owner writes nothing
 * there. */
#include "../test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt/ckpt.h"
#include "ckpt/owner.h"
#include "runs.h"

static void write_owner(const char *run, const char *text)
{
    char *path = xasprintf("%s/owner", run);
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    free(path);
}

static void test_claim(void **state)
{
    char *run = run_new_folder();
    struct owner o;
    struct err err;

    (void)state;
    assert_int_equal(owner_read(run, &o, &err), OWNER_NONE);
    assert_int_equal(owner_check(run, &err), 0);
    assert_int_equal(owner_claim(run, 7, &err), 0);
    assert_int_equal(owner_claim(run, 8, &err), 0); /* again */
    assert_int_equal(owner_read(run, &o, &err), 0);
    assert_int_equal(o.term, 8);
    assert_int_equal(o.pid, getpid());
    assert_true(o.started > 0);
    assert_int_equal(strlen(o.id), OWNER_ID - 1);
    assert_true(owner_is_self(&o));
    assert_int_equal(owner_lives(&o), 1);
    assert_int_equal(owner_check(run, &err), 0);
    run_remove_folder(run);
}

/* Each field that tells a process from others, changed. */
static void test_lives(void **state)
{
    char *run = run_new_folder();
    struct owner o, other;
    struct err err;

    (void)state;
    assert_int_equal(owner_claim(run, 0, &err), 0);
    assert_int_equal(owner_read(run, &o, &err), 0);
    other = o;
    other.started--;
    assert_int_equal(owner_lives(&other), 0); /* its pid was given to another process */
    other = o;
    other.pid = 1 << 30;
    assert_int_equal(owner_lives(&other), 0);
    other = o;
    other.boot[0] ^= 1;
    assert_int_equal(owner_lives(&other), -1);
    other = o;
    other.pid_space++;
    assert_int_equal(owner_lives(&other), -1);
    run_remove_folder(run);
}

static void test_other_owner(void **state)
{
    const struct run_point first = {10, 0}, second = {20, 0};
    struct run_point seen;
    char *run = run_new_folder();
    struct err err;

    (void)state;
    assert_int_equal(owner_claim(run, 0, &err), 0);
    assert_int_equal(run_save(run, first, 2, &err), 0);
    write_owner(run, "{\"id\": \"another\", \"pid\": 12, \"host\": \"node9\"}");
    assert_int_equal(owner_check(run, &err), ERR_REFUSED);
    assert_non_null(strstr(err.msg, "pid 12 on node9"));
    assert_int_equal(run_save(run, second, 2, &err), ERR_REFUSED);
    assert_int_equal(run_load(run, &seen, &err), 0);
    assert_int_equal(seen.step, first.step);
    assert_int_equal(owner_claim(run, 1, &err), 0); /* and back */
    assert_int_equal(run_save(run, second, 2, &err), 0);
    run_remove_folder(run);
}

/* ---- the directory is lost during a save ---- */

static struct {
    int n_left;       /* the other driver comes at this call of fsync; 0: it does not come */
    const char *run;  /* where */
    char latest[64];  /* where `latest` pointed when it came */
    int has_run_over; /* it has come */
} other;

static char *in_checkpoints(const char *run, const char *name)
{
    return xasprintf("%s/checkpoints/%s", run, name);
}

static int is_there(const char *run, const char *name)
{
    char *path = in_checkpoints(run, name);
    struct stat st;
    int yes = lstat(path, &st) == 0;

    free(path);
    return yes;
}

static void read_latest(const char *run, char out[64])
{
    char *path = in_checkpoints(run, "latest");
    ssize_t n = readlink(path, out, 63);

    out[n < 0 ? 0 : n] = '\0';
    free(path);
}

/* The other driver is writing these, by the names of this version and of the one before. */
static const char *const unfinished[] = {"step.another.tmp", "step.tmp", "latest.tmp"};

static void other_comes(void)
{
    write_owner(other.run, "{\"id\": \"another\", \"pid\": 12, \"host\": \"node9\"}");
    for (size_t i = 0; i < ARRAY_LEN(unfinished); i++) {
        char *path = in_checkpoints(other.run, unfinished[i]);

        assert_int_equal(mkdir(path, 0777), 0);
        free(path);
    }
    read_latest(other.run, other.latest);
    other.has_run_over = 1;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    if (other.n_left && --other.n_left == 0)
        other_comes();
    return __real_fsync(fd);
}

/* Lose the directory at each fsync of a save in turn.  From then on the save changes nothing. */
static void test_lost_during_a_save(void **state)
{
    int n_refused = 0;

    (void)state;
    for (int n = 1; n == 1 || other.has_run_over; n++) {
        char *run = run_new_folder(), latest[64];
        struct err err;
        int rc;

        other.n_left = other.has_run_over = 0;
        assert_int_equal(owner_claim(run, 0, &err), 0);
        assert_int_equal(run_save(run, (struct run_point){10, 0}, 1, &err), 0);
        other.n_left = n;
        other.run = run;
        rc = run_save(run, (struct run_point){20, 0}, 1, &err);
        other.n_left = 0;
        assert_true(rc == 0 || rc == ERR_REFUSED);
        n_refused += rc < 0;
        if (other.has_run_over) {
            for (size_t i = 0; i < ARRAY_LEN(unfinished); i++)
                assert_true(is_there(run, unfinished[i]));
            read_latest(run, latest);
            assert_string_equal(latest, other.latest);
            assert_true(is_there(run, "step-00000010"));
        }
        run_remove_folder(run);
    }
    assert_true(n_refused >= 4);
}

/* A driver removes what drivers before it left, and a save does not. */
static void test_clear(void **state)
{
    char *run = run_new_folder(), *path;
    struct err err;

    (void)state;
    assert_int_equal(owner_claim(run, 0, &err), 0);
    assert_int_equal(run_save(run, (struct run_point){10, 0}, 1, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(unfinished); i++) {
        path = in_checkpoints(run, unfinished[i]);
        assert_int_equal(mkdir(path, 0777), 0);
        free(path);
    }
    assert_int_equal(run_save(run, (struct run_point){20, 0}, 1, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(unfinished); i++)
        assert_true(is_there(run, unfinished[i]));
    ckpt_clear(run);
    for (size_t i = 0; i < ARRAY_LEN(unfinished); i++)
        assert_false(is_there(run, unfinished[i]));
    assert_true(is_there(run, "step-00000020") && is_there(run, "latest"));
    run_remove_folder(run);
    ckpt_clear("/nonexistent/run"); /* has saved nothing yet */
}

static void test_bad_file(void **state)
{
    static const char *const texts[] = {"", "{}", "[1]", "{\"id\": 7}", "{\"id\": \"x\""};
    char *run = run_new_folder();
    struct owner o;
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        write_owner(run, texts[i]);
        assert_int_equal(owner_read(run, &o, &err), ERR_CORRUPT);
        assert_int_equal(owner_check(run, &err), ERR_CORRUPT);
    }
    assert_int_equal(owner_claim(run, 0, &err), 0);
    assert_int_equal(owner_check(run, &err), 0);
    run_remove_folder(run);
}

/* A link is neither read nor written through. */
static void test_link(void **state)
{
    char *run = run_new_folder(), *path = xasprintf("%s/owner", run);
    char *target = xasprintf("%s/target", run);
    struct owner o;
    struct err err;

    (void)state;
    write_owner(run, "{\"id\": \"x\"}");
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(owner_read(run, &o, &err), ERR_IO);
    assert_int_equal(owner_claim(run, 0, &err), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(target, path), 0);
    assert_int_equal(owner_read(run, &o, &err), 0);
    assert_string_equal(o.id, "x");
    free(target);
    free(path);
    run_remove_folder(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_claim),       cmocka_unit_test(test_lives),
        cmocka_unit_test(test_other_owner), cmocka_unit_test(test_bad_file),
        cmocka_unit_test(test_link),        cmocka_unit_test(test_lost_during_a_save),
        cmocka_unit_test(test_clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
