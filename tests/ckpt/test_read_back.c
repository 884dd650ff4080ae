/* ckpt: a disk that gives back other bytes than were written.  A file is written again and told of;
 * if the second one is wrong, too, the save fails, and the generation before stays. */
#include "../test.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "runs.h"

static int n_bad; /* so many of the next files have a wrong byte once they are on disk */

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    struct stat st;
    const int rc = __real_fsync(fd);

    if (rc == 0 && n_bad > 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        n_bad--;
        assert_int_equal(pwrite(fd, "?", 1, st.st_size - 1), 1);
        assert_int_equal(__real_fsync(fd), 0);
    }
    return rc;
}

struct heard {
    int n, n_mended;
    char file[64];
};

static void hear(void *arg, const char *file, int is_mended)
{
    struct heard *h = arg;

    h->n++;
    h->n_mended += is_mended;
    snprintf(h->file, sizeof h->file, "%s", file);
}

static int save(const char *run, int64_t step, struct heard *h, struct err *err)
{
    float w[64] = {1, 2, 3};
    struct st_tensor model = {"w", DTYPE_F32, SHAPE(64), w},
                     momentum = {"w.momentum_buffer", DTYPE_F32, SHAPE(64), w};
    struct ckpt_content c = {.state = {.step = step, .steps_per_epoch = 10, .n_ranks = 1},
                             .model = &model,
                             .n_model = 1,
                             .optimizer = &momentum,
                             .n_optimizer = 1,
                             .told = {h, hear}};
    char *path = NULL;
    const int rc = ckpt_save(run, &c, 2, &path, err);

    free(path);
    return rc;
}

static void warn(void *arg, const char *text)
{
    (void)arg;
    fail_msg("%s", text);
}

static void assert_newest(const char *run, int64_t step)
{
    struct ckpt *c;
    struct err err;

    assert_int_equal(ckpt_load_latest(run, warn, NULL, &c, &err), 0);
    assert_int_equal(c->state.step, step);
    ckpt_close(c);
}

static void test_written_again(void **state)
{
    char *run = run_new_folder();
    struct heard h = {0};
    struct err err;

    (void)state;
    n_bad = 1;
    assert_int_equal(save(run, 10, &h, &err), 0);
    assert_int_equal(h.n, 1);
    assert_int_equal(h.n_mended, 1);
    assert_string_equal(h.file, "model.safetensors");
    assert_newest(run, 10);
    assert_int_equal(save(run, 20, &h, &err), 0);
    assert_int_equal(h.n, 1);
    assert_newest(run, 20);
    run_remove_folder(run);
}

static void test_wrong_twice(void **state)
{
    char *run = run_new_folder();
    struct heard h = {0};
    struct err err;

    (void)state;
    assert_int_equal(save(run, 10, &h, &err), 0);
    assert_int_equal(h.n, 0);
    n_bad = 2;
    assert_int_equal(save(run, 20, &h, &err), ERR_IO);
    assert_non_null(strstr(err.msg, "gives back other bytes than were written"));
    assert_int_equal(h.n, 1);
    assert_int_equal(h.n_mended, 0);
    assert_int_equal(n_bad, 0);
    assert_newest(run, 10);
    assert_int_equal(save(run, 20, &h, &err), 0);
    assert_newest(run, 20);
    run_remove_folder(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_again),
        cmocka_unit_test(test_wrong_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
