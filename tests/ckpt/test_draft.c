/* draft: a checkpoint that three ranks write has the bytes of one that a single rank writes; it
 * becomes a checkpoint only if all parts are there and right, whichever call fails. */
#include "../test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/draft.h"
#include "disk.h"
#include "runs.h"

enum { N_RANKS = 3, N_W = 64, N_B = 2, E = sizeof(float) };

/* The tensors of runs.c: "w" and "b" in the model's file, w's momentum in the optimizer's. */
struct numbers {
    float w[N_W], m[N_W];
    struct st_tensor model[2], optimizer;
    struct ckpt_content content;
};

static void make_numbers(struct numbers *x, struct run_point p)
{
    *x = (struct numbers){.w = {(float)p.step, (float)p.version},
                          .m = {(float)p.version, (float)p.step}};
    x->model[0] = (struct st_tensor){"w", DTYPE_F32, SHAPE(N_W), x->w};
    x->model[1] = (struct st_tensor){"b", DTYPE_F32, SHAPE(N_B), x->w};
    x->optimizer = (struct st_tensor){"w.momentum_buffer", DTYPE_F32, SHAPE(N_W), x->m};
    x->content = (struct ckpt_content){.state = {.step = p.step,
                                                 .steps_per_epoch = 10,
                                                 .epoch_loss = p.version,
                                                 .n_updates = p.step,
                                                 .n_ranks = 3},
                                       .model = x->model,
                                       .n_model = 2,
                                       .optimizer = &x->optimizer,
                                       .n_optimizer = 1,
                                       .config = p.config};
}

/* Rank 0 has the ends of w and of its momentum and all of b, ranks 1 and 2 the rest. */
static const struct draft_piece pieces[N_RANKS][4] = {
    {{0, 0, 4 * E}, {0, 60 * E, 4 * E}, {0, N_W *E, N_B *E}, {1, 0, 1 * E}},
    {{0, 4 * E, 50 * E}, {1, 1 * E, 3 * E}},
    {{0, 54 * E, 6 * E}, {1, 4 * E, 60 * E}},
};
static const int n_pieces[N_RANKS] = {4, 2, 2};

/* The bytes of a rank's part, one piece behind another; for free(). */
static char *gather(const struct numbers *x, int rank, size_t *n)
{
    char file[2][(N_W + N_B) * E], *out = xmalloc(sizeof file);

    memcpy(file[0], x->w, sizeof x->w);
    memcpy(file[0] + sizeof x->w, x->w, N_B * E);
    memcpy(file[1], x->m, sizeof x->m);
    *n = 0;
    for (int i = 0; i < n_pieces[rank]; i++) {
        const struct draft_piece *p = &pieces[rank][i];

        memcpy(out + *n, file[p->file] + p->at, (size_t)p->n_bytes);
        *n += (size_t)p->n_bytes;
    }
    return out;
}

/* Write a rank's part in windows of seven bytes. */
static int write_part(struct draft *d, const struct numbers *x, int rank, struct draft_part *part,
                      struct err *err)
{
    size_t n;
    char *bytes = gather(x, rank, &n);
    int rc = 0;

    *part = (struct draft_part){pieces[rank], n_pieces[rank], hash_of(bytes, n)};
    for (size_t at = 0; at < n && rc == 0; at += 7)
        rc = draft_write(d, part, (int64_t)at, bytes + at, n - at < 7 ? n - at : 7, err);
    free(bytes);
    return rc;
}

enum flaw { NO_FLAW, LAST_RANK_IS_MISSING, OTHER_BYTES, OTHER_HEADER };

static uint8_t is_bad[N_RANKS]; /* the parts that are read back differently */

static int write_other(const char *folder, const struct numbers *x, int rank,
                       struct draft_part *part, struct err *err)
{
    struct draft *d = NULL;
    int rc = draft_join(folder, &x->content, &d, err);

    if (rc > 0)
        rc = err->code;
    if (rc == 0)
        rc = write_part(d, x, rank, part, err);
    if (rc == 0)
        rc = draft_sync(d, err);
    draft_free(d);
    return rc;
}

static void spoil_header(const struct draft *d)
{
    char *path = xasprintf("%s/optimizer.safetensors", draft_folder(d));
    FILE *f = fopen(path, "r+");

    assert_non_null(f);
    assert_int_equal(fseek(f, 12, SEEK_SET), 0);
    assert_int_equal(fputc('?', f), '?');
    assert_int_equal(fclose(f), 0);
    free(path);
}

/* As run_save, but by three ranks.  Rank 1 does not see the disk, so rank 0 writes its part. */
static int save_together(const char *run, struct run_point p, int keep, enum flaw flaw,
                         struct err *err)
{
    struct draft_part part[N_RANKS] = {0};
    struct numbers x, other;
    struct draft *d = NULL;
    char *path = NULL;
    int rc;

    make_numbers(&x, p);
    make_numbers(&other, (struct run_point){p.step, p.version + 1});
    rc = draft_new(run, &x.content, &d, err);
    if (rc == 0)
        rc = write_part(d, &x, 0, &part[0], err);
    if (rc == 0)
        rc = write_other(draft_folder(d), &x, 2, &part[2], err);
    if (rc == 0)
        rc = write_part(d, &x, 1, &part[1], err);
    if (rc == 0 && flaw == OTHER_BYTES)
        rc = write_part(d, &other, 0, &(struct draft_part){0}, err);
    if (rc == 0)
        rc = draft_sync(d, err);
    if (rc == 0 && flaw == LAST_RANK_IS_MISSING) {
        char *file = xasprintf("%s/optimizer.safetensors", draft_folder(d));

        assert_int_equal(truncate(file, 200), 0);
        free(file);
    }
    if (rc == 0 && flaw == OTHER_HEADER)
        spoil_header(d);
    if (rc == 0)
        rc = draft_check(d, part, N_RANKS, is_bad, err);
    if (rc == DRAFT_DAMAGED)
        rc = err->code;
    if (rc == 0)
        rc = draft_place(d, &x.content, keep, &path, err);
    assert_true(!path == (rc < 0));
    draft_free(d);
    free(path);
    return rc;
}

static char *read_file(const char *run, const char *name, size_t *n)
{
    char *path = xasprintf("%s/checkpoints/latest/%s", run, name), *out = xcalloc(1, 1 << 16);
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    *n = fread(out, 1, 1 << 16, f);
    fclose(f);
    free(path);
    return out;
}

static void test_same_bytes(void **state)
{
    static const char *const name[] = {"model.safetensors", "optimizer.safetensors", "config.json",
                                       "state.json"};
    const struct run_point p = {30, 2, 0, "{}\n"};
    char *one = run_new_folder(), *all = run_new_folder();
    struct run_point seen;
    struct err err;

    (void)state;
    assert_int_equal(run_save(one, p, 2, &err), 0);
    assert_int_equal(save_together(all, p, 2, NO_FLAW, &err), 0);
    assert_int_equal(run_load(all, &seen, &err), 0);
    assert_int_equal(seen.step, 30);
    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        size_t n, m;
        char *x = read_file(one, name[i], &n), *y = read_file(all, name[i], &m);

        assert_int_equal(n, m);
        assert_memory_equal(x, y, n);
        if (!strcmp(name[i], "config.json"))
            assert_string_equal(x, p.config);
        free(x);
        free(y);
    }
    run_remove_folder(one);
    run_remove_folder(all);
}

/* bad: the ranks whose parts are bad, one bit each. */
static void assert_flaw(enum flaw flaw, const char *why, int bad)
{
    char *run = run_new_folder();
    struct run_point seen;
    struct err err;

    assert_int_equal(save_together(run, (struct run_point){10, 0}, 2, NO_FLAW, &err), 0);
    assert_int_equal(save_together(run, (struct run_point){20, 0}, 2, flaw, &err), ERR_IO);
    if (!strstr(err.msg, why))
        fail_msg("%s", err.msg);
    for (int r = 0; r < N_RANKS; r++)
        assert_int_equal(is_bad[r], bad >> r & 1);
    assert_int_equal(run_load(run, &seen, &err), 0);
    assert_int_equal(seen.step, 10);
    run_remove_folder(run);
}

static void test_parts_are_checked(void **state)
{
    (void)state;
    assert_flaw(LAST_RANK_IS_MISSING, "optimizer.safetensors: has 200 bytes after all ranks", 0);
    assert_flaw(OTHER_BYTES, "what rank 0 wrote is not what is read back", 1);
    assert_flaw(OTHER_HEADER, "what rank 0 wrote is not what is read back", 1);
}

/* A rank joins only the files that the owner made, with the headers that it expects itself. */
static void test_another_disk(void **state)
{
    char *run = run_new_folder(), *folder;
    struct numbers x, longer;
    struct draft *d, *other;
    struct err err;

    (void)state;
    make_numbers(&x, (struct run_point){10, 0});
    make_numbers(&longer, (struct run_point){10, 0});
    longer.model[1].shape = SHAPE(N_B + 1);
    assert_int_equal(draft_new(run, &x.content, &d, &err), 0);
    assert_int_equal(draft_join(draft_folder(d), &longer.content, &other, &err), DRAFT_UNSEEN);
    assert_non_null(strstr(err.msg, "another header"));
    folder = xstrdup(draft_folder(d));
    draft_free(d);
    assert_int_equal(draft_join(folder, &x.content, &other, &err), DRAFT_UNSEEN);
    assert_int_equal(access(folder, F_OK), -1); /* given up, so nothing of it is left */
    free(folder);
    run_remove_folder(run);
}

static int is_on_nfs;

int __real_fstatfs64(int fd, struct statfs *s);
int __wrap_fstatfs64(int fd, struct statfs *s);

int __wrap_fstatfs64(int fd, struct statfs *s)
{
    const int rc = __real_fstatfs64(fd, s);

    if (is_on_nfs)
        s->f_type = 0x6969;
    return rc;
}

/* On NFS the owner alone writes. */
static void test_nfs(void **state)
{
    char *run = run_new_folder();
    struct numbers x;
    struct draft *d, *other;
    struct err err;

    (void)state;
    make_numbers(&x, (struct run_point){10, 0});
    is_on_nfs = 1;
    assert_int_equal(draft_new(run, &x.content, &d, &err), 0);
    assert_int_equal(draft_join(draft_folder(d), &x.content, &other, &err), DRAFT_UNSEEN);
    assert_non_null(strstr(err.msg, "it is on NFS"));
    is_on_nfs = 0;
    draft_free(d);
    run_remove_folder(run);
}

/* Let each call fail in turn.  errnum 0: writes are cut, which no rank may notice. */
static void sweep(int errnum)
{
    const struct run_point before = {20, 0}, next = {30, 0};
    int n = 0, has_failed = 1, n_errors = 0;

    while (has_failed) {
        char *run = run_new_folder();
        struct run_point seen;
        struct err err;
        int rc;

        assert_int_equal(run_save(run, before, 2, &err), 0);
        disk_fail_at(++n, errnum);
        rc = save_together(run, next, 2, NO_FLAW, &err);
        has_failed = disk_has_failed();
        disk_fail_at(0, 0);
        if (rc < 0 && !strstr(err.msg, run))
            fail_msg("call %d: %s", n, err.msg);
        n_errors += rc < 0;
        assert_int_equal(run_load(run, &seen, &err), 0);
        if (rc == 0 && seen.step != 30)
            fail_msg("call %d: loaded step %d", n, (int)seen.step);
        assert_int_equal(save_together(run, (struct run_point){40, 0}, 2, NO_FLAW, &err), 0);
        assert_int_equal(run_load(run, &seen, &err), 0);
        assert_int_equal(seen.step, 40);
        run_remove_folder(run);
    }
    assert_true(errnum ? n_errors > 40 : n_errors == 0);
}

static void test_each_call_fails(void **state)
{
    (void)state;
    sweep(EIO);
    sweep(ENOSPC);
    sweep(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes),      cmocka_unit_test(test_parts_are_checked),
        cmocka_unit_test(test_another_disk),    cmocka_unit_test(test_nfs),
        cmocka_unit_test(test_each_call_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
