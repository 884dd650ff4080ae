/* mnist: the real files are read and compared with known figures, if they are in
 * $DPTRAIN_DATA/mnist. */
#include "../test.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "data/mnist.h"

static const struct set_case {
    enum dataset_purpose purpose;
    const char *prefix;
    int64_t n;
    int32_t first[8];  /* labels */
    int histogram[10]; /* of all labels */
    double mean;       /* of all pixels, in [0,1] */
} set_cases[] = {
    {DATASET_TRAIN,
     "train",
     60000,
     {5, 0, 4, 1, 9, 2, 1, 3},
     {5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949},
     0.1307},
    {DATASET_VALIDATION,
     "t10k",
     10000,
     {7, 2, 1, 0, 4, 1, 4, 9},
     {980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009},
     0.1325},
};

static struct dataset *open_set(const char *folder, const struct set_case *c)
{
    const struct mnist_options mnist = {folder, c->prefix, c->prefix};
    const struct data_options o = {&format_mnist, &mnist};
    struct dataset *ds;
    struct err err;

    err.msg[0] = 0;
    if (dataset_open(&ds, &o, &(struct dataset_request){c->purpose, 0}, &err) != 0)
        fail_msg("no data set: %s", err.msg);
    return ds;
}

static void check_labels(const struct dataset *ds, const struct set_case *c)
{
    int histogram[10] = {0};
    struct err err;

    for (int64_t i = 0; i < ds->n_samples; i++) {
        int32_t y;

        assert_int_equal(dataset_gather(ds, &i, 1, (void *[]){NULL, &y}, &err), 0);
        if (i < 8)
            assert_int_equal(y, c->first[i]);
        histogram[y]++;
    }
    assert_memory_equal(histogram, c->histogram, sizeof histogram);
}

static double mean_pixel(const struct dataset *ds)
{
    enum { BATCH = 250 };
    float *x = xcalloc(BATCH * 784, sizeof *x);
    int64_t index[BATCH];
    int32_t y[BATCH];
    double sum = 0;
    struct err err;

    for (int64_t at = 0; at < ds->n_samples; at += BATCH) {
        for (int i = 0; i < BATCH; i++)
            index[i] = at + i;
        assert_int_equal(dataset_gather(ds, index, BATCH, (void *[]){x, y}, &err), 0);
        for (int i = 0; i < BATCH * 784; i++)
            sum += x[i];
    }
    free(x);
    return sum / ((double)ds->n_samples * 784);
}

static void sets_are_complete(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(set_cases); i++) {
        const struct set_case *c = &set_cases[i];
        int64_t start = clock_mono_ns();
        struct dataset *ds = open_set(*state, c);
        double mean;

        print_message("opened in %.3f s\n", clock_since_s(start));
        assert_int_equal(ds->n_samples, c->n);
        assert_int_equal(ds->spec.field[1].n_classes, 10);
        assert_true(shape_equal(&ds->spec.field[0].shape, &SHAPE(28, 28, 1)));
        check_labels(ds, c);
        mean = mean_pixel(ds);
        assert_true(mean > c->mean - 5e-5 && mean < c->mean + 5e-5);
        dataset_close(ds);
    }
}

static void fingerprint_is_bounded(void **state)
{
    struct dataset *ds = open_set(*state, &set_cases[0]);
    int64_t start = clock_mono_ns();
    struct hash128 h;
    struct err err;

    assert_int_equal(dataset_fingerprint(ds, &h, &err), 0);
    print_message("fingerprint in %.3f ms\n", 1e3 * clock_since_s(start));
    assert_true(h.lo != 0 && h.hi != 0);
    dataset_close(ds);
}

int main(void)
{
    const char *data = getenv("DPTRAIN_DATA");
    char *folder = xasprintf("%s/mnist", data ? data : DPTRAIN_DATA_DEFAULT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(sets_are_complete, folder),
        cmocka_unit_test_prestate(fingerprint_is_bounded, folder),
    };
    int rc;

    if (access(folder, R_OK) != 0) {
        printf("skipped: no folder %s; set DPTRAIN_DATA to the one that holds mnist\n", folder);
        free(folder);
        return 77;
    }
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    free(folder);
    return rc;
}
