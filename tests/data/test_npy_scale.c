/* npy: mean and deviation of features and targets are measured, and taken out, as the arrays have
 * them; numbers that cannot be scaled, or are too wide for float32, are named. */
#include "../test.h"

#include <math.h>

#include "data/moments.h"
#include "npy_set.h"

/* Rows of numbers are normalised by the places of their last axis; the numbers to give are those
 * that are measured. */
static void features_are_normalised(void **state)
{
    static const float rows[] = {1e6F, 5, 1e6F + 1, 7, 1e6F + 2, 9, 1e6F + 3, 11};
    const struct setting settings[] = {{"data.path", *state},
                                       {"data.normalize.mean", "1000001.5,8"},
                                       {"data.normalize.std", "0.5,4"},
                                       {NULL}};
    const struct dataset_request r = purpose(DATASET_TRAIN);
    struct option_reals mean, std;
    struct dataset *ds;
    struct err err;
    float x[4];

    write_npy(*state, "x.npy", 1, KEYS("<f4", "(2, 2, 2)"), rows, sizeof rows);
    write_npy(*state, "y.npy", 1, KEYS("|u1", "(2,)"), "\0\1", 2);
    ds = open_ok(*state, DATASET_TRAIN);
    assert_int_equal(moments_measure(ds, 0, &mean, &std, &err), 0);
    assert_int_equal(mean.n, 2);
    assert_int_equal(std.n, 2);
    assert_float_equal(mean.v[0], 1e6 + 1.5, 1e-9);
    assert_float_equal(std.v[0], sqrt(1.25), 1e-9);
    assert_float_equal(mean.v[1], 8, 1e-12);
    assert_float_equal(std.v[1], sqrt(5), 1e-12);
    dataset_close(ds);
    assert_int_equal(open_set(&ds, &format_npy, settings, &r, &err), 0);
    assert_int_equal(dataset_gather(ds, (int64_t[]){1}, 1, (void *[]){x, NULL}, &err), 0);
    for (int i = 0; i < 4; i++)
        assert_true(x[i] == (i % 2 ? (rows[4 + i] - 8) / 4 : (rows[4 + i] - 1000001.5F) / 0.5F));
    dataset_close(ds);
}

/* Real targets are scaled by the places of their last axis; classes have no scale. */
static void targets_are_scaled(void **state)
{
    static const float rows[] = {10, 200, 14, 300, 12, 100, 16, 400};
    const struct setting settings[] = {{"data.path", *state},
                                       {"data.targets.mean", "12,200"},
                                       {"data.targets.std", "2,100"},
                                       {NULL}};
    const struct dataset_request r = purpose(DATASET_TRAIN);
    struct option_reals mean, std;
    struct dataset *ds;
    struct err err;
    float y[4];

    write_npy(*state, "x.npy", 1, KEYS("|u1", "(2,)"), "\0\1", 2);
    write_npy(*state, "y.npy", 1, KEYS("<f4", "(2, 2, 2)"), rows, sizeof rows);
    ds = open_ok(*state, DATASET_TRAIN);
    assert_int_equal(moments_measure(ds, 1, &mean, &std, &err), 0);
    assert_true(mean.n == 2 && mean.v[0] == 13 && mean.v[1] == 250);
    assert_float_equal(std.v[0], sqrt(5), 1e-12);
    dataset_close(ds);
    assert_int_equal(open_set(&ds, &format_npy, settings, &r, &err), 0);
    assert_int_equal(dataset_gather(ds, (int64_t[]){1}, 1, (void *[]){NULL, y}, &err), 0);
    assert_true(y[0] == 0 && y[1] == -1 && y[2] == 2 && y[3] == 2);
    dataset_close(ds);
    write_npy(*state, "y.npy", 1, KEYS("|u1", "(2,)"), "\0\1", 2);
    for (int numbers = 0; numbers < 2; numbers++) {
        const struct dataset_request ask = {.purpose = DATASET_TRAIN,
                                            .targets_are_numbers = numbers};

        assert_int_equal(open_set(&ds, &format_npy, settings, &ask, &err), ERR_CONFIG);
        assert_string_equal(
            err.msg, numbers ? "npy: data.targets has mean and std, or normalize: auto, but the "
                               "targets are whole numbers, which are taken as classes; store them "
                               "as float32, such as by y.astype('float32')"
                             : "npy: data.targets has mean and std, or normalize: auto, but the "
                               "targets are classes, want real numbers and model.loss: mse or l1");
    }
}

static const struct unfit_case {
    const char *shape;
    float x[6]; /* the first numbers; the others are 0 */
    const char *want;
} unfit_cases[] = {
    {KEYS("<f4", "(3, 2)"),
     {1, 4, 2, 4, 3, 4},
     "data.normalize is auto, but feature 1 is the same in all samples; leave it out of the array, "
     "or give mean and std"},
    {KEYS("<f4", "(3, 10)"),
     {1},
     "data.normalize is auto, but features 1, 2, 3, 4, 5, 6, 7, 8 and 1 more are the same in all "
     "samples; leave them out of the array, or give mean and std"},
    {KEYS("<f4", "(3, 2)"),
     {1, 4, 2, NAN, 3, 5},
     "data.normalize is auto, but @/x.npy, row 1: feature 1 is nan, want finite numbers; mend it, "
     "or leave such samples out of the file"},
    {KEYS("<f4", "(3, 2)"),
     {1, 4, 2, 1e31F, 3, 5},
     "data.normalize is auto, but @/x.npy, row 1: feature 1 is 1e+31, want finite numbers of at "
     "most 1e30; mend it, or leave such samples out of the file"},
    {KEYS("<f4", "(3, 2)"),
     {1, 1e-40F, 2, 2e-40F, 3, 3e-40F},
     "data.normalize is auto, but feature 1 has a deviation below 1e-30, want larger numbers; "
     "multiply them, leave it out of the array, or give mean and std"},
    {KEYS("<f4", "(3, 257)"),
     {1},
     "data.normalize is auto, but a sample has 257 features, want at most 256; normalise the "
     "arrays before they are saved"},
};

static void unfit_features_are_named(void **state)
{
    static float x[3 * 257];
    static const int64_t width[] = {2, 10, 2, 2, 2, 257};
    const struct setting settings[] = {
        {"data.path", *state}, {"data.normalize.std", "1,2,3"}, {NULL}};
    const struct dataset_request r = purpose(DATASET_TRAIN);
    struct option_reals mean, std;
    struct dataset *ds;
    struct err err;
    char want[256];

    write_npy(*state, "y.npy", 1, KEYS("|u1", "(3,)"), "\0\1\1", 3);
    for (size_t i = 0; i < ARRAY_LEN(unfit_cases); i++) {
        memcpy(x, unfit_cases[i].x, sizeof unfit_cases[i].x);
        write_npy(*state, "x.npy", 1, unfit_cases[i].shape, x, sizeof *x * 3 * (size_t)width[i]);
        ds = open_ok(*state, DATASET_TRAIN);
        assert_int_equal(moments_measure(ds, 0, &mean, &std, &err), ERR_CONFIG);
        assert_string_equal(err.msg, fill_in(want, sizeof want, unfit_cases[i].want, *state));
        dataset_close(ds);
    }
    assert_int_equal(open_set(&ds, &format_npy, settings, &r, &err), ERR_CONFIG);
    assert_string_equal(err.msg, "npy: data.normalize.std has 3 numbers, want 257, one for each "
                                 "feature");
}

/* Seconds since 1970 as doubles, of which floats are 128 apart: means are subtracted before they
 * are rounded; without means the user is told. */
static void wide_numbers_keep_their_differences(void **state)
{
    static const double at[] = {1700000001, 1700000002, 1700000004}, near[] = {8e8, 8e8 + 64, 1e9};
    static const float narrow[] = {1, 2, 3};
    const struct setting scaled[] = {{"data.path", *state},
                                     {"data.normalize.mean", "1700000001"},
                                     {"data.normalize.std", "2"},
                                     {"data.targets.mean", "1700000002"},
                                     {"data.targets.std", "1"},
                                     {NULL}},
                         plain[] = {
                             {"data.path", *state}, {"data.validation", "v.npy,v.npy"}, {NULL}};
    struct dataset_request r = {.purpose = DATASET_TRAIN, .warn = tell};
    struct option_reals mean, std;
    struct dataset *ds, *other;
    struct err err;
    float x[3], y[3];

    write_npy(*state, "x.npy", 1, KEYS("<f8", "(3, 1)"), at, sizeof at);
    write_npy(*state, "y.npy", 1, KEYS("<f8", "(3,)"), at, sizeof at);
    told[0] = 0;
    assert_int_equal(open_set(&ds, &format_npy, scaled, &r, &err), 0);
    assert_int_equal(dataset_gather(ds, (int64_t[]){0, 1, 2}, 3, (void *[]){x, y}, &err), 0);
    assert_true(x[0] == 0 && x[1] == 0.5F && x[2] == 1.5F);
    assert_true(y[0] == -1 && y[1] == 0 && y[2] == 2);
    assert_string_equal(told, "");
    dataset_close(ds);
    r.warn = NULL;
    assert_int_equal(open_set(&ds, &format_npy, plain, &r, &err), 0);
    for (int f = 0; f < 2; f++) {
        assert_int_equal(moments_measure(ds, f, &mean, &std, &err), 0);
        assert_float_equal(mean.v[0], 1700000000 + 7 / 3.0, 1e-6);
        assert_float_equal(std.v[0], sqrt(14 / 9.0), 1e-6);
    }
    /* validation data of another width are samples of the same kind */
    write_npy(*state, "v.npy", 1, KEYS("<f4", "(3, 1)"), narrow, sizeof narrow);
    r.purpose = DATASET_VALIDATION;
    assert_int_equal(open_set(&other, &format_npy, plain, &r, &err), 0);
    assert_int_equal(sample_equal(&ds->spec, &other->spec), 1);
    dataset_close(other);
    dataset_close(ds);
    /* y is held exactly */
    r = (struct dataset_request){.purpose = DATASET_TRAIN, .warn = tell};
    write_npy(*state, "y.npy", 1, KEYS("<f8", "(3,)"), near, sizeof near);
    assert_int_equal(open_set(&ds, &format_npy, plain, &r, &err), 0);
    assert_string_equal(
        told,
        "npy data: networks read float32, which keeps 24 bits of a number: feature 0 has "
        "whole numbers such as 1700000001, which becomes 1700000000; set data.normalize: auto, "
        "which subtracts the mean before numbers are rounded, or leave names of things (such "
        "as identities) out");
    dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(features_are_normalised),
        IN_FOLDER(unfit_features_are_named),
        IN_FOLDER(targets_are_scaled),
        IN_FOLDER(wide_numbers_keep_their_differences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
