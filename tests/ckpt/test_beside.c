/* ckpt: the files of a tokenizer beside a checkpoint.  Each call that copies them fails in turn: a
 * file that cannot be copied is left out whole, the others are there, and the log names it. */
#include "../test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt/beside.h"
#include "disk.h"
#include "runs.h"

static const char *const names[] = {"tokenizer.json", "merges.txt", "chat_template.jinja"};

static void write_file(const char *folder, const char *name)
{
    char *path = xasprintf("%s/%s", folder, name);
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_true(fputs(name, f) >= 0);
    assert_int_equal(fclose(f), 0);
    free(path);
}

/* 1: the copy has the file; 0: it has none of that name. */
static int has_whole(const char *folder, const char *name)
{
    char *path = xasprintf("%s/%s", folder, name), text[64] = "";
    FILE *f = fopen(path, "rb");

    free(path);
    if (!f)
        return 0;
    assert_int_equal(fread(text, 1, sizeof text - 1, f), strlen(name));
    assert_int_equal(fclose(f), 0);
    assert_string_equal(text, name);
    return 1;
}

static char *make_source(void)
{
    char *from = run_new_folder();

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        write_file(from, names[i]);
    write_file(from, "model.py"); /* no file of a tokenizer */
    return from;
}

static void all_are_copied(void **state)
{
    char *from = make_source(), *to = run_new_folder();
    struct err err;

    (void)state;
    assert_int_equal(beside_copy(from, to, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_true(has_whole(to, names[i]) && beside_is_name(names[i]));
    assert_false(has_whole(to, "model.py") || beside_is_name("model.py"));
    assert_int_equal(beside_copy("/nowhere", to, &err), 0);
    run_remove_folder(from);
    run_remove_folder(to);
}

static void one_cannot_be_copied(void **state)
{
    char *from = make_source();
    int n = 0, n_left_out = 0, has_failed = 1;

    (void)state;
    while (has_failed) {
        char *to = run_new_folder();
        struct err err;
        int n_whole = 0, rc;

        disk_fail_at(++n, EIO);
        rc = beside_copy(from, to, &err);
        has_failed = disk_has_failed();
        disk_fail_at(0, 0);
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            n_whole += has_whole(to, names[i]);
        assert_true(n_whole >= (int)ARRAY_LEN(names) - 1);
        assert_true(rc == 0 || n_whole == (int)ARRAY_LEN(names)); /* the folder's own fsync */
        n_left_out += n_whole < (int)ARRAY_LEN(names);
        run_remove_folder(to);
    }
    assert_true(n_left_out >= 3 * (int)ARRAY_LEN(names));
    run_remove_folder(from);
}

/* A folder stands where a file should be. */
static void the_log_names_it(void **state)
{
    char *from = make_source(), *to = run_new_folder(), *taken = xasprintf("%s/merges.txt", to),
         text[512] = "";
    FILE *log = tmpfile();
    const int kept = dup(STDERR_FILENO);
    struct err err;

    (void)state;
    assert_true(log && kept >= 0 && mkdir(taken, 0700) == 0);
    assert_true(dup2(fileno(log), STDERR_FILENO) >= 0);
    assert_int_equal(beside_copy(from, to, &err), 0);
    assert_true(dup2(kept, STDERR_FILENO) >= 0 && close(kept) == 0);
    assert_true(pread(fileno(log), text, sizeof text - 1, 0) > 0);
    assert_non_null(strstr(text, "the checkpoint has no copy of "));
    assert_non_null(strstr(text, "/merges.txt: "));
    assert_true(has_whole(to, names[0]) && has_whole(to, names[2]));
    fclose(log);
    free(taken);
    run_remove_folder(from);
    run_remove_folder(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_copied),
        cmocka_unit_test(one_cannot_be_copied),
        cmocka_unit_test(the_log_names_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
