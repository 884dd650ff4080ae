/* linked - a run whose folder of checkpoints has the links `latest` and `best`. */
#ifndef TESTS_CKPT_LINKED_H
#define TESTS_CKPT_LINKED_H

#include "../test.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "disk.h"
#include "runs.h"

static char *run;
static struct buf told; /* warnings, a line each */

static inline int make_run(void **state)
{
    (void)state;
    run = run_new_folder();
    return 0;
}

static inline int remove_run(void **state)
{
    (void)state;
    disk_be_plain(0);
    buf_fini(&told);
    run_remove_folder(run);
    return 0;
}

static inline void warn(void *arg, const char *text)
{
    (void)arg;
    buf_printf(&told, "%s\n", text);
}

/* For free(). */
static inline char *in_run(const char *name) { return xasprintf("%s/checkpoints/%s", run, name); }

static inline void save(struct run_point p, int keep, int want)
{
    struct err err = {0};
    const int rc = run_save(run, p, keep, &err);

    if (rc != want)
        fail_msg("step %d: %d, want %d: %s", (int)p.step, rc, want, rc ? err.msg : "");
}

static inline void assert_newest(int64_t step)
{
    struct run_point seen;
    struct err err;

    if (run_load(run, &seen, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(seen.step, step);
}

static inline void assert_best(int64_t step)
{
    char *path = NULL;
    struct ckpt *c;
    struct err err;

    assert_int_equal(ckpt_find_best(run, &path, &err), 0);
    assert_int_equal(ckpt_load_folder(path, &c, &err), 0);
    assert_int_equal(c->state.step, step);
    ckpt_close(c);
    free(path);
}

/* The link, or "" if there is none; a file without a link's mode is told by the content. */
static inline void read_place(const char *which, char out[64])
{
    char *path = in_run(which);
    struct stat st;
    ssize_t n = readlink(path, out, 63);

    out[n > 0 ? n : 0] = 0;
    if (n < 0 && lstat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        FILE *f = fopen(path, "r");

        assert_non_null(f);
        assert_non_null(fgets(out, 64, f));
        fclose(f);
    }
    free(path);
}

static inline void assert_place(const char *which, const char *want)
{
    char seen[64];

    read_place(which, seen);
    assert_string_equal(seen, want);
}

static inline int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The entries of the folder of checkpoints, a word each. */
static inline char *entries(void)
{
    char *path = in_run("");
    struct dirent **e;
    struct buf text = {0};
    const int n = scandir(path, &e, NULL, by_name);

    for (int i = 0; i < n; i++) {
        if (e[i]->d_name[0] != '.')
            buf_printf(&text, "%s%s", text.len ? " " : "", e[i]->d_name);
        free(e[i]);
    }
    free(e);
    free(path);
    path = xstrdup(buf_cstr(&text));
    buf_fini(&text);
    return path;
}

static inline void assert_entries(const char *want)
{
    char *seen = entries();

    assert_string_equal(seen, want);
    free(seen);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, make_run, remove_run)

#endif
