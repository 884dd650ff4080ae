/* cifar: good files are read, and bad files are refused with their reason.  The real CIFAR-10 is
 * read if it is in $DPTRAIN_DATA/cifar-10-binary. */
#include "../test.h"

#include <math.h>
#include <unistd.h>

#include "base/alloc.h"
#include "data/dataset.h"
#include "idx_file.h"

enum { IMAGE = 3072, PLANE = 1024 };

/* The difference between a file and a sound one of `n` records. */
struct change {
    int64_t at; /* this byte is `value`; -1: none */
    int value;
    int cut; /* bytes fewer (more, if negative) */
    int gz;
};

static const struct change sound = {.at = -1};

/* Byte b of plane k of record i. */
static uint8_t pixel(int i, int k, int b) { return (uint8_t)(i * 5 + k * 80 + b); }

static void write_records(const char *folder, const char *name, int n_labels, int first, int n,
                          struct change change)
{
    struct buf b = {0};

    for (int i = first; i < first + n; i++) {
        const uint8_t labels[2] = {(uint8_t)(n_labels == 2 ? i % 20 : i % 10), (uint8_t)(i % 100)};

        buf_append(&b, labels, (size_t)n_labels);
        for (int p = 0; p < IMAGE; p++)
            buf_append(&b, &(uint8_t){pixel(i, p / PLANE, p % PLANE)}, 1);
    }
    if (change.at >= 0)
        b.data[change.at] = (uint8_t)change.value;
    for (int i = 0; i < -change.cut; i++)
        buf_append(&b, "", 1);
    b.len -= change.cut > 0 ? (size_t)change.cut : 0;
    if (change.gz)
        gzip_buf(&b);
    write_file(folder, name, &b);
    buf_fini(&b);
}

/* Open the format with its default options, except those given. */
static int open_set(struct dataset **out, const struct data_format *format, const char *folder,
                    const char *train, enum dataset_purpose purpose, struct err *err)
{
    const struct option_group *g = &format->group;
    void *options = xcalloc(1, g->size);
    struct arena arena;
    int rc;

    arena_init(&arena);
    for (int i = 0; i < g->n_options; i++) {
        const struct option *o = &g->option[i];
        const char *text = o->def ? o->def : folder;

        text = train && !strcmp(o->key, "data.train") ? train : text;
        assert_int_equal(
            option_parse(o, (char *)options + o->offset, &arena, text, strlen(text), 0, err), 0);
    }
    rc = dataset_open(out, &(struct data_options){format, options},
                      &(struct dataset_request){.purpose = purpose}, err);
    arena_fini(&arena);
    free(options);
    return rc;
}

static struct dataset *open_ok(const struct data_format *format, const char *folder,
                               const char *train, enum dataset_purpose purpose)
{
    struct dataset *ds = NULL;
    struct err err = {0};

    if (open_set(&ds, format, folder, train, purpose, &err) != 0)
        fail_msg("%s", err.msg);
    return ds;
}

/* Sample i of the set is record first + i: every pixel, in [row,column,channel], and the label. */
static void check_sample(const struct dataset *ds, int64_t i, int record)
{
    static float x[IMAGE];
    int32_t y;
    struct err err;

    assert_int_equal(dataset_gather(ds, &i, 1, (void *[]){x, &y}, &err), 0);
    for (int p = 0; p < IMAGE; p++)
        if (x[p] != (float)pixel(record, p % 3, p / 3) / 255.0f)
            fail_msg("record %d, value %d is %g", record, p, (double)x[p]);
    assert_int_equal(y, record % (int)ds->spec.field[1].n_classes);
}

static void each_record_is_a_sample(void **state)
{
    struct dataset *ds;

    write_records(*state, "data_batch_1.bin", 1, 0, 7, sound);
    write_records(*state, "data_batch_2.bin", 1, 7, 1500, (struct change){.at = -1, .gz = 1});
    write_records(*state, "test_batch.bin.gz", 1, 40, 3, (struct change){.at = -1, .gz = 1});
    ds = open_ok(&format_cifar10, *state, NULL, DATASET_TRAIN);
    assert_int_equal(ds->n_samples, 1507);
    assert_true(shape_equal(&ds->spec.field[0].shape, &SHAPE(32, 32, 3)));
    assert_int_equal(ds->spec.field[1].n_classes, 10);
    for (int i = 0; i < 1507; i++)
        check_sample(ds, i, i);
    dataset_close(ds);
    ds = open_ok(&format_cifar10, *state, NULL, DATASET_VALIDATION);
    assert_int_equal(ds->n_samples, 3);
    check_sample(ds, 2, 42);
    dataset_close(ds);
}

/* The fine label, not the coarse one. */
static void cifar100_has_fine_labels(void **state)
{
    struct dataset *ds;

    write_records(*state, "train.bin", 2, 0, 120, sound);
    ds = open_ok(&format_cifar100, *state, NULL, DATASET_TRAIN);
    assert_int_equal(ds->n_samples, 120);
    assert_int_equal(ds->spec.field[1].n_classes, 100);
    for (int i = 0; i < 120; i++)
        check_sample(ds, i, i);
    dataset_close(ds);
}

/* Names of files are taken in the order given, with a prefix among them. */
static void files_are_listed(void **state)
{
    struct dataset *ds;

    write_records(*state, "b.bin", 1, 20, 2, sound);
    write_records(*state, "a_1.bin", 1, 10, 1, sound);
    write_records(*state, "a_2.bin", 1, 11, 1, sound);
    ds = open_ok(&format_cifar10, *state, "b.bin, a,b", DATASET_TRAIN);
    assert_int_equal(ds->n_samples, 6);
    check_sample(ds, 1, 21);
    check_sample(ds, 2, 10);
    check_sample(ds, 3, 11);
    check_sample(ds, 4, 20);
    dataset_close(ds);
}

static const struct bad_case {
    const struct data_format *format;
    struct change change;
    const char *train; /* NULL: "f.bin", which is there with 3 records */
    int code;
    const char *want; /* @ is the folder */
} bad_cases[] = {
    {&format_cifar10,
     {.at = -1, .cut = 1},
     NULL,
     ERR_CORRUPT,
     "cifar10: @/f.bin: offset 9218: the file ends within record 2, want records of 3073 bytes; "
     "fetch it again, or is cifar10 not its format?"},
    {&format_cifar10,
     {.at = -1, .cut = -1},
     NULL,
     ERR_CORRUPT,
     "cifar10: @/f.bin: offset 9220: the file ends within record 3, want records of 3073 bytes; "
     "fetch it again, or is cifar10 not its format?"},
    {&format_cifar10,
     {.at = 3073, .value = 10},
     NULL,
     ERR_CORRUPT,
     "cifar10: @/f.bin: offset 3073: label of record 1 is 10, want 0 to 9; is it the right file, "
     "and cifar10 its format?"},
    {&format_cifar100,
     {.at = 3074 + 1, .value = 100},
     NULL,
     ERR_CORRUPT,
     "cifar100: @/f.bin: offset 3075: label of record 1 is 100, want 0 to 99; is it the right "
     "file, and cifar100 its format?"},
    {&format_cifar100,
     {.at = 6148, .value = 20},
     NULL,
     ERR_CORRUPT,
     "cifar100: @/f.bin: offset 6148: coarse label of record 2 is 20, want 0 to 19; is it the "
     "right file, and cifar100 its format?"},
    {&format_cifar10,
     {.at = -1, .cut = 3 * 3073},
     NULL,
     ERR_CORRUPT,
     "cifar10: @/f.bin: offset 0: the file is empty, want records of 3073 bytes"},
    {&format_cifar10,
     {.at = -1},
     "g",
     ERR_IO,
     "cifar10: no file g in folder @, nor g.bin or g_1.bin, nor any with .gz; put it there, or set "
     "data.path, data.train or data.validation"},
    {&format_cifar10,
     {.at = -1},
     "f,",
     ERR_IO,
     "cifar10: no file  in folder @, nor .bin or _1.bin, nor any with .gz; put it there, or set "
     "data.path, data.train or data.validation"},
    {&format_cifar10,
     {.at = -1},
     "gap",
     ERR_IO,
     "cifar10: gap_3.bin is in folder @, but not gap_2.bin; fetch that, or list the files"},
};

static void bad_files_are_refused(void **state)
{
    char want[1024];

    write_records(*state, "gap_1.bin", 1, 0, 1, sound);
    write_records(*state, "gap_3.bin", 1, 0, 1, sound);
    for (size_t i = 0; i < ARRAY_LEN(bad_cases); i++) {
        const struct bad_case *c = &bad_cases[i];
        struct dataset *ds = NULL;
        struct err err = {0};

        write_records(*state, "f.bin", c->format == &format_cifar100 ? 2 : 1, 0, 3, c->change);
        assert_int_equal(
            open_set(&ds, c->format, *state, c->train ? c->train : "f.bin", DATASET_TRAIN, &err),
            c->code);
        assert_string_equal(err.msg, fill_in(want, sizeof want, c->want, *state));
    }
}

/* ---- the real files ---- */

static void the_real_files_are_read(void **state)
{
    const char *data = getenv("DPTRAIN_DATA");
    char *folder = xasprintf("%s/cifar-10-binary", data ? data : DPTRAIN_DATA_DEFAULT);
    double sum[3] = {0};
    struct dataset *ds;

    (void)state;
    if (access(folder, R_OK) != 0) {
        printf("skipped: no folder %s; set DPTRAIN_DATA to the one that holds it\n", folder);
        free(folder);
        skip();
    }
    ds = open_ok(&format_cifar10, folder, NULL, DATASET_TRAIN);
    assert_int_equal(ds->n_samples % 10000, 0);
    for (int64_t i = 0; i < 10000; i++) {
        static float x[IMAGE];
        int32_t y;
        struct err err;

        assert_int_equal(dataset_gather(ds, &i, 1, (void *[]){x, &y}, &err), 0);
        for (int p = 0; p < IMAGE; p++)
            sum[p % 3] += x[p];
    }
    dataset_close(ds);
    free(folder);
    for (int k = 0; k < 3; k++) /* red, green and blue, as the data set's readme has them */
        assert_true(fabs(sum[k] / (10000.0 * PLANE) - (double[]){0.4913, 0.4821, 0.4465}[k]) <
                    0.005);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(each_record_is_a_sample),
        IN_FOLDER(cifar100_has_fine_labels),
        IN_FOLDER(files_are_listed),
        IN_FOLDER(bad_files_are_refused),
        cmocka_unit_test(the_real_files_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
