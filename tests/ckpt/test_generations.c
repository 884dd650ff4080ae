/* ckpt: a generation is whole or is not there, and the newest good one is found whatever happened
 * to the others. */

#include "../test.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "ckpt/ckpt.h"
#include "ckpt/owner.h"

static int64_t best[CKPT_MOST_BEST]; /* [n_best]: what the next saves keep beside the newest */
static int n_best;
static int64_t back_to; /* likewise; 0: none */
static char run[64];
static char warnings[4096];
static const struct hash128 data = {0x1234, 0xfedcba9876543210};

static int make_run(void **state)
{
    (void)state;
    n_best = 0;
    back_to = 0;
    strcpy(run, "/tmp/dptrain-ckpt-XXXXXX");
    warnings[0] = 0;
    return mkdtemp(run) ? 0 : -1;
}

static int remove_run(void **state)
{
    (void)state;
    return remove_tree(run);
}

static void warn(void *arg, const char *text)
{
    (void)arg;
    strncat(warnings, text, sizeof warnings - strlen(warnings) - 1);
}

static const char *in_run(const char *name)
{
    static char path[256];

    snprintf(path, sizeof path, "%s/checkpoints/%s", run, name);
    return path;
}

static int save_in(const char *folder, int64_t step, int keep, struct err *err)
{
    float w[4] = {(float)step, 1, 2, 3}, m[4] = {9, (float)step, 9, 9};
    struct st_tensor model = {"w", DTYPE_F32, SHAPE(4), w};
    struct st_tensor momentum = {"w.momentum_buffer", DTYPE_F32, SHAPE(4), m};
    struct ckpt_content c = {
        .state = {.step = step,
                  .steps_per_epoch = 10,
                  .epoch_loss = 7,
                  .epoch_targets = 5,
                  .row_targets = 2,
                  .epoch_weight = 3,
                  .row_weight = 1,
                  .average_first = 6,
                  .n_updates = step,
                  .n_ranks = 3,
                  .data = data},
        .model = &model,
        .n_model = 1,
        .optimizer = &momentum,
        .n_optimizer = 1,
        .n_best = n_best,
        .back_to = back_to,
    };
    char *path = NULL;
    int rc;

    memcpy(c.best, best, sizeof best);
    rc = ckpt_save(folder, &c, keep, &path, err);

    free(path);
    return rc;
}

static void save(int64_t step, int keep)
{
    struct err err;

    if (save_in(run, step, keep, &err) < 0)
        fail_msg("%s", err.msg);
}

static float number(const struct st_file *f, const char *name, size_t i)
{
    struct err err;
    float v;

    assert_int_equal(st_read(f, st_find(f, name), i * sizeof v, &v, sizeof v, &err), 0);
    return v;
}

/* The step that is found, or the error. */
static int64_t load(struct err *err)
{
    struct ckpt *c;
    int64_t step;
    int rc = ckpt_load_latest(run, warn, NULL, &c, err);

    if (rc != 0)
        return rc;
    step = c->state.step;
    assert_int_equal(c->state.epoch_loss, 7);
    assert_int_equal(c->state.n_ranks, 3);
    assert_int_equal(number(c->model, "w", 0), step);
    assert_int_equal(number(c->optimizer, "w.momentum_buffer", 1), step);
    ckpt_close(c);
    return step;
}

/* Entries that end with .tmp. */
static int n_unfinished(void)
{
    DIR *d = opendir(in_run(""));
    struct dirent *entry;
    int n = 0;

    assert_non_null(d);
    while ((entry = readdir(d)))
        n += strstr(entry->d_name, ".tmp") != NULL;
    closedir(d);
    return n;
}

static void set_best(int n, int64_t first, int64_t second)
{
    n_best = n;
    best[0] = first;
    best[1] = second;
}

static void assert_best(const char *want)
{
    char to[64] = "";

    assert_int_equal(readlink(in_run("best"), to, sizeof to - 1), (ssize_t)strlen(want));
    assert_string_equal(to, want);
}

static int is_there(const char *name) { return access(in_run(name), F_OK) == 0; }

/* The best generations stay beside the newest, and one that is missing is passed over. */
static void test_best(void **state)
{
    (void)state;
    save(10, 1);
    assert_false(is_there("best"));
    set_best(1, 20, 0);
    save(20, 1);
    assert_best("step-00000020");
    set_best(2, 20, 30);
    save(30, 1);
    save(40, 1);
    assert_best("step-00000020");
    assert_true(is_there("step-00000020") && is_there("step-00000030") &&
                is_there("step-00000040"));
    assert_false(is_there("step-00000010"));
    set_best(2, 45, 30); /* the save of 45 failed */
    save(50, 1);
    assert_best("step-00000030");
    assert_true(is_there("step-00000030") && is_there("step-00000050"));
    assert_false(is_there("step-00000020") || is_there("step-00000040"));
}

/* The generation to which the run may go back stays until it is another one. */
static void test_back_to(void **state)
{
    (void)state;
    save(0, 1);
    save(50, 1);
    assert_false(is_there("step-00000000"));
    back_to = 50;
    save(57, 1);
    save(60, 1);
    assert_true(is_there("step-00000050") && is_there("step-00000060"));
    assert_false(is_there("step-00000057"));
    back_to = 75;
    save(75, 1);
    assert_true(is_there("step-00000075"));
    assert_false(is_there("step-00000050") || is_there("step-00000060"));
}

static void test_save_keep_latest(void **state)
{
    char target[64] = "";
    struct err err;

    (void)state;
    for (int64_t step = 10; step <= 50; step += 10)
        save(step, 2);
    assert_int_equal(load(&err), 50);
    assert_string_equal(warnings, "");
    assert_true(access(in_run("step-00000040"), F_OK) == 0);
    assert_true(access(in_run("step-00000030"), F_OK) < 0);
    assert_true(readlink(in_run("latest"), target, sizeof target - 1) > 0);
    assert_string_equal(target, "step-00000050");
    assert_int_equal(n_unfinished(), 0);
}

static void test_same_step_again(void **state)
{
    struct err err;

    (void)state;
    save(10, 1);
    save(10, 1);
    assert_int_equal(load(&err), 10);
}

/* Rewrite a generation's state.json without its sums of weights and its fingerprint of the data, as
 * version 0.1.0 did, or with another text in the fingerprint's place. */
static void change_data(const char *text)
{
    char hash[HASH_TEXT_LEN], *all;
    json_t *o = json_load_file(in_run("step-00000010/state.json"), 0, NULL);

    assert_non_null(o);
    json_object_del(o, "hash");
    json_object_del(o, "data");
    json_object_del(o, "epoch_weight");
    json_object_del(o, "row_weight");
    json_object_del(o, "average_first");
    json_object_del(o, "best");
    if (text)
        json_object_set_new(o, "data", json_string(text));
    all = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    hash_to_text(hash_of(all, strlen(all)), hash);
    free(all);
    json_object_set_new(o, "hash", json_string(hash));
    assert_int_equal(json_dump_file(o, in_run("step-00000010/state.json"), 0), 0);
    json_decref(o);
}

static void test_fingerprint_of_the_data(void **state)
{
    static const struct hash128 unknown = {0};
    struct ckpt *c;
    struct err err;

    (void)state;
    save(10, 1);
    assert_int_equal(ckpt_load_latest(run, warn, NULL, &c, &err), 0);
    assert_true(hash_equal(c->state.data, data));
    assert_true(c->state.epoch_weight == 3 && c->state.row_weight == 1);
    assert_int_equal(c->state.average_first, 6);
    ckpt_close(c);
    change_data(NULL);
    assert_int_equal(ckpt_load_latest(run, warn, NULL, &c, &err), 0);
    assert_true(hash_equal(c->state.data, unknown));
    assert_true(c->state.epoch_weight == 5 << 24 && c->state.row_weight == 2 << 24);
    assert_int_equal(c->state.average_first, 0);
    ckpt_close(c);
    assert_string_equal(warnings, "");
    change_data("no hash");
    assert_int_equal(load(&err), ERR_IO);
    assert_non_null(strstr(warnings, "\"data\": \"no hash\" is no hash"));
}

/* Checkpoints of a version that kept no list of the best: its link is believed, a folder is not. */
static void test_best_of_an_older_version(void **state)
{
    char *path = NULL, *link = xstrdup(in_run("best"));
    struct err err;

    (void)state;
    set_best(1, 10, 0);
    save(10, 1);
    change_data(NULL);
    assert_int_equal(ckpt_find_best(run, &path, &err), 0);
    assert_string_equal(path, in_run("step-00000010"));
    free(path);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(ckpt_find_best(run, &path, &err), CKPT_NONE);
    assert_int_equal(rename(in_run("step-00000010"), link), 0);
    assert_int_equal(ckpt_find_best(run, &path, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "is a folder, not a link"));
    assert_non_null(strstr(err.msg, "it holds that of step 10"));
    free(link);
}

static void test_older_step_than_those_kept(void **state)
{
    struct err err;

    (void)state;
    save(30, 1);
    save(20, 1); /* a run that went on from an older generation */
    assert_true(access(in_run("step-00000020"), F_OK) == 0);
    assert_int_equal(load(&err), 20);
}

static void flip(const char *file, off_t at)
{
    int fd = open(in_run(file), O_RDWR);
    uint8_t byte = 0;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};

/* Any flipped byte, in any file of the newest generation, makes loading fall back to the one
 * before. */
static void test_flipped_byte(void **state)
{
    struct err err;

    (void)state;
    save(10, 3);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char name[64];
        struct stat st;

        save(20, 3);
        snprintf(name, sizeof name, "step-00000020/%s", files[i]);
        assert_int_equal(stat(in_run(name), &st), 0);
        for (off_t at = 0; at < st.st_size; at++) {
            warnings[0] = 0;
            flip(name, at);
            if (load(&err) != 10 || !strstr(warnings, "skipping a damaged checkpoint") ||
                !strstr(warnings, "step-00000020"))
                fail_msg("%s, byte %d: %s", name, (int)at, warnings);
            flip(name, at);
        }
        assert_int_equal(load(&err), 20);
    }
}

static void test_truncated_or_missing(void **state)
{
    struct err err;

    (void)state;
    save(10, 3);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char name[64];

        save(20, 3);
        snprintf(name, sizeof name, "step-00000020/%s", files[i]);
        assert_int_equal(truncate(in_run(name), 9), 0);
        assert_int_equal(load(&err), 10);
        assert_int_equal(unlink(in_run(name)), 0);
        assert_int_equal(load(&err), 10);
    }
}

/* A generation of a later version is not passed over. */
static void test_later_format(void **state)
{
    char hash[HASH_TEXT_LEN], *all;
    struct err err;
    json_t *o;

    (void)state;
    save(10, 3);
    save(20, 3);
    o = json_load_file(in_run("step-00000020/state.json"), 0, NULL);
    assert_non_null(o);
    json_object_set_new(o, "format", json_integer(2));
    json_object_del(o, "hash");
    all = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    hash_to_text(hash_of(all, strlen(all)), hash);
    free(all);
    json_object_set_new(o, "hash", json_string(hash));
    assert_int_equal(json_dump_file(o, in_run("step-00000020/state.json"), 0), 0);
    json_decref(o);
    assert_int_equal(load(&err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "step-00000020/state.json: format 2, this version reads 1"));
    assert_string_equal(warnings, "");
}

/* The owner of the run sets damaged generations aside, so that they do not count among those that
 * are kept; another process changes nothing. */
static void test_damaged_are_set_aside(void **state)
{
    char target[64] = "";
    struct err err;

    (void)state;
    for (int64_t step = 10; step <= 40; step += 10)
        save(step, 4);
    flip("step-00000030/model.safetensors", 100);
    assert_int_equal(unlink(in_run("step-00000040/state.json")), 0);
    assert_int_equal(load(&err), 20);
    assert_true(access(in_run("step-00000030"), F_OK) == 0);
    assert_int_equal(owner_claim(run, 0, &err), 0);
    assert_int_equal(load(&err), 20);
    assert_true(access(in_run("damaged-step-00000030/model.safetensors"), F_OK) == 0);
    assert_true(access(in_run("damaged-step-00000040/model.safetensors"), F_OK) == 0);
    assert_true(readlink(in_run("latest"), target, sizeof target - 1) > 0);
    assert_string_equal(target, "step-00000020");
    warnings[0] = 0;
    assert_int_equal(load(&err), 20);
    assert_string_equal(warnings, "");
    save(30, 2);
    assert_true(access(in_run("step-00000020"), F_OK) == 0); /* the second that is kept */
    assert_true(access(in_run("step-00000010"), F_OK) < 0);
    flip("step-00000030/model.safetensors", 100); /* again */
    assert_int_equal(load(&err), 20);
    assert_true(access(in_run("step-00000030"), F_OK) < 0);
}

/* "best" does not lead to a generation that was set aside.  The next save makes the link again. */
static void test_the_best_is_damaged(void **state)
{
    struct err err;

    (void)state;
    save(10, 3);
    set_best(2, 20, 10);
    save(20, 3);
    assert_best("step-00000020");
    assert_int_equal(owner_claim(run, 0, &err), 0);
    flip("step-00000020/model.safetensors", 100);
    assert_int_equal(load(&err), 10);
    assert_int_equal(readlink(in_run("best"), (char[8]){0}, 8), -1);
    save(30, 3);
    assert_best("step-00000010");
    flip("step-00000030/model.safetensors", 100);
    assert_int_equal(load(&err), 10);
    assert_best("step-00000010");
}

/* While all are damaged, nothing is set aside: a run with checkpoints is not taken for a new one.
 */
static void test_all_damaged(void **state)
{
    struct err err;

    (void)state;
    save(10, 3);
    assert_int_equal(owner_claim(run, 0, &err), 0);
    flip("step-00000010/model.safetensors", 100);
    assert_int_equal(load(&err), ERR_IO);
    assert_int_equal(load(&err), ERR_IO);
    assert_true(access(in_run("step-00000010"), F_OK) == 0);
}

/* A link that somebody put into a run is removed, and the folder behind it stays as it is. */
static void test_links_are_not_followed(void **state)
{
    char precious[80], file[96], own[80];
    const char *const places[] = {own, "step-00000010"};
    struct err err;

    (void)state;
    snprintf(own, sizeof own, "step.%s.tmp", owner_own_id());
    snprintf(precious, sizeof precious, "%s/precious", run);
    snprintf(file, sizeof file, "%s/file", precious);
    assert_int_equal(mkdir(precious, 0777), 0);
    save(20, 1);
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        close(open(file, O_CREAT | O_WRONLY, 0666));
        assert_int_equal(symlink(precious, in_run(places[i])), 0);
        save(30 + (int64_t)i, 1);
        assert_true(access(in_run(places[i]), F_OK) < 0);
        assert_true(access(file, F_OK) == 0);
    }
    assert_int_equal(load(&err), 31);
}

/* A save that failed left a folder, which is no generation; the next save of this process removes
 * it. */
static void test_left_over_folder(void **state)
{
    char own[80], file[120];
    struct err err;

    (void)state;
    save(10, 3);
    snprintf(own, sizeof own, "step.%s.tmp", owner_own_id());
    assert_int_equal(mkdir(in_run(own), 0777), 0);
    snprintf(file, sizeof file, "%s/model.safetensors", own);
    close(open(in_run(file), O_CREAT | O_WRONLY, 0666));
    assert_int_equal(load(&err), 10);
    save(20, 3);
    assert_int_equal(load(&err), 20);
    assert_int_equal(n_unfinished(), 0);
}

static void test_none(void **state)
{
    struct err err;

    (void)state;
    assert_int_equal(load(&err), CKPT_NONE); /* no folder */
    assert_int_equal(mkdir(in_run(""), 0777), 0);
    assert_int_equal(load(&err), CKPT_NONE); /* an empty one */
    assert_int_equal(mkdir(in_run("step.tmp"), 0777), 0);
    assert_int_equal(load(&err), CKPT_NONE); /* killed while writing the first */
    assert_int_equal(mkdir(in_run("step-00000007"), 0777), 0);
    assert_int_equal(load(&err), ERR_IO);
    assert_non_null(strstr(err.msg, "holds no complete checkpoint (1 looked at)"));
}

static void test_disk_full(void **state)
{
    struct err err;
    char disk[80];

    (void)state;
    snprintf(disk, sizeof disk, "%s/disk", run);
    assert_int_equal(mkdir(disk, 0777), 0);
    if (mount("tmpfs", disk, "tmpfs", 0, "size=16k") < 0) {
        print_message("skipped: mounting a tmpfs needs root\n");
        skip();
    }
    assert_int_equal(save_in(disk, 10, 3, &err), 0);
    for (int64_t step = 20; step < 200; step += 10)
        if (save_in(disk, step, 100, &err) < 0)
            break;
    assert_int_equal(err.code, ERR_IO);
    assert_non_null(strstr(err.msg, "No space left on device"));
    strcpy(run, disk); /* the earlier generation is intact */
    assert_true(load(&err) >= 10);
    assert_string_equal(warnings, "");
    assert_int_equal(umount(disk), 0);
    *strstr(run, "/disk") = 0;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, make_run, remove_run)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_save_keep_latest),
        CASE(test_best),
        CASE(test_back_to),
        CASE(test_same_step_again),
        CASE(test_fingerprint_of_the_data),
        CASE(test_best_of_an_older_version),
        CASE(test_older_step_than_those_kept),
        CASE(test_flipped_byte),
        CASE(test_truncated_or_missing),
        CASE(test_later_format),
        CASE(test_damaged_are_set_aside),
        CASE(test_the_best_is_damaged),
        CASE(test_all_damaged),
        CASE(test_links_are_not_followed),
        CASE(test_left_over_folder),
        CASE(test_none),
        CASE(test_disk_full),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
