/* What every reader does, run over the table of readers; then the folder of an mnist reader. */
#include "../test.h"

#include "base/alloc.h"
#include "data/dataset.h"
#include "idx_file.h"

enum { N = 40, H = 5, W = 3, BYTES = H * W };

/* How to break a pair of files. */
struct pair {
    const char *prefix;
    int dotted, gz;
    int n_images, n_labels; /* 0: N; -1: no such file */
    int bad_at, bad_label;  /* label bad_at is this, where not 0 */
};

static uint8_t pixel(int64_t sample, int64_t i) { return (uint8_t)(sample * 31 + i * 7); }

static void write_images(const char *folder, const struct pair *p)
{
    struct buf b = {0};
    char *name =
        xasprintf("%s-images%cidx3-ubyte%s", p->prefix, p->dotted ? '.' : '-', p->gz ? ".gz" : "");
    int n = p->n_images ? p->n_images : N;

    put_u32(&b, 0x803);
    put_u32(&b, (uint32_t)n);
    put_u32(&b, H);
    put_u32(&b, W);
    for (int i = 0; i < n * BYTES; i++)
        buf_append(&b, &(uint8_t){pixel(i / BYTES, i % BYTES)}, 1);
    if (p->gz)
        gzip_buf(&b);
    write_file(folder, name, &b);
    buf_fini(&b);
    free(name);
}

static void write_labels(const char *folder, const struct pair *p)
{
    struct buf b = {0};
    char *name =
        xasprintf("%s-labels%cidx1-ubyte%s", p->prefix, p->dotted ? '.' : '-', p->gz ? ".gz" : "");
    int n = p->n_labels ? p->n_labels : N;

    put_u32(&b, 0x801);
    put_u32(&b, (uint32_t)n);
    for (int i = 0; i < n; i++)
        buf_append(
            &b, &(uint8_t){(uint8_t)(p->bad_label && i == p->bad_at ? p->bad_label : i % 10)}, 1);
    if (p->gz)
        gzip_buf(&b);
    write_file(folder, name, &b);
    buf_fini(&b);
    free(name);
}

static void write_pair(const char *folder, const struct pair *p)
{
    if (p->n_images >= 0)
        write_images(folder, p);
    if (p->n_labels >= 0)
        write_labels(folder, p);
}

/* ---- every reader ---- */

/* A folder in which each reader finds what it wants. */
static int setup(void **state)
{
    char *folder = make_folder();

    write_pair(folder, &(struct pair){.prefix = "train"});
    write_pair(folder, &(struct pair){.prefix = "t10k", .gz = 1, .n_images = 20, .n_labels = 20});
    *state = folder;
    return 0;
}

static int teardown(void **state)
{
    remove_folder(*state);
    return 0;
}

static struct dataset *open_ok(const struct dataset_options *o)
{
    struct dataset *ds = NULL;
    struct err err = {0};

    if (dataset_open(&ds, o, &err) < 0)
        fail_msg("%s: %s", o->format, err.msg);
    return ds;
}

static void check_samples(const struct dataset *ds)
{
    const int64_t size = shape_elements(&ds->sample), last = ds->n_samples - 1;
    const int64_t index[4] = {last, 0, 3, last}, again[1] = {3};
    float *x = xcalloc((size_t)(5 * size), sizeof *x), *alone = x + 4 * size;
    int32_t y[4], labels[4], y_alone[1];
    struct err err;

    assert_int_equal(dataset_gather(ds, index, 4, x, y, &err), 0);
    assert_int_equal(dataset_gather(ds, index, 4, NULL, labels, &err), 0);
    assert_int_equal(dataset_gather(ds, again, 1, alone, y_alone, &err), 0);
    assert_int_equal(dataset_gather(ds, NULL, 0, NULL, NULL, &err), 0);
    assert_memory_equal(y, labels, sizeof y);
    assert_memory_equal(x, x + 3 * size, (size_t)size * sizeof *x);
    assert_memory_equal(x + 2 * size, alone, (size_t)size * sizeof *x);
    assert_int_equal(y[2], y_alone[0]);
    for (int64_t i = 0; i < 4 * size; i++)
        assert_true(x[i] >= 0 && x[i] <= 1);
    for (int i = 0; i < 4; i++)
        assert_in_range(y[i], 0, ds->n_classes - 1);
    free(x);
}

static void each_reader_gives_samples(void **state)
{
    for (size_t i = 0; dataset_format_name(i); i++)
        for (int purpose = DATASET_TRAIN; purpose <= DATASET_VALIDATION; purpose++) {
            const struct dataset_options o = {
                .format = dataset_format_name(i), .path = *state, .purpose = purpose};
            struct dataset *ds = open_ok(&o);

            assert_string_equal(ds->ops->name, o.format);
            assert_int_equal(ds->sample.n, 3);
            assert_true(ds->n_samples > 0 && ds->n_classes > 1);
            check_samples(ds);
            dataset_close(ds);
        }
}

static struct hash128 print_of(const struct dataset_options *o)
{
    struct dataset *ds = open_ok(o);
    struct hash128 h;
    struct err err;

    assert_int_equal(dataset_fingerprint(ds, &h, &err), 0);
    dataset_close(ds);
    return h;
}

static void fingerprints_tell_apart(void **state)
{
    for (size_t i = 0; dataset_format_name(i); i++) {
        struct dataset_options o = {.format = dataset_format_name(i), .path = *state};
        struct hash128 train = print_of(&o), again = print_of(&o), fewer, validation;

        o.n_samples = 20;
        fewer = print_of(&o);
        o.n_samples = 0;
        o.purpose = DATASET_VALIDATION;
        validation = print_of(&o);
        assert_true(hash_equal(train, again));
        assert_false(hash_equal(train, fewer));
        assert_false(hash_equal(train, validation));
    }
}

/* One wrong label of a small set shows, whichever it is. */
static void fingerprints_see_labels(void **state)
{
    const struct dataset_options good = {.format = "mnist", .path = *state};
    struct hash128 right = print_of(&good);
    char *folder = make_folder();
    const struct dataset_options bad = {.format = "mnist", .path = folder};

    for (int i = 0; i < N; i++) {
        write_pair(folder, &(struct pair){"train", .bad_at = i, .bad_label = i % 10 == 9 ? 8 : 9});
        assert_false(hash_equal(print_of(&bad), right));
    }
    write_pair(folder, &(struct pair){"train"});
    assert_true(hash_equal(print_of(&bad), right));
    remove_folder(folder);
}

static void n_samples_cuts(void **state)
{
    for (size_t i = 0; dataset_format_name(i); i++) {
        struct dataset_options o = {
            .format = dataset_format_name(i), .path = *state, .n_samples = 7};
        struct dataset *ds = open_ok(&o);
        struct err err;

        assert_int_equal(ds->n_samples, 7);
        dataset_close(ds);
        o.n_samples = 1;
        ds = open_ok(&o);
        assert_int_equal(dataset_fingerprint(ds, &(struct hash128){0, 0}, &err), 0);
        dataset_close(ds);
        o.n_samples = -1;
        assert_int_equal(dataset_open(&ds, &o, &err), ERR_ARG);
        assert_string_equal(err.msg, "-1 samples wanted, want 0 (all) or more");
    }
}

static void failed_allocations_are_errors(void **state)
{
    for (size_t i = 0; dataset_format_name(i); i++) {
        const struct dataset_options o = {.format = dataset_format_name(i), .path = *state};
        struct dataset *ds = NULL;
        struct err err;
        int n = 0;

        do
            alloc_fail_at((uint64_t)++n);
        while (dataset_open(&ds, &o, &err) == ERR_NOMEM && n < 10);
        alloc_fail_at(0);
        assert_in_range(n, 2, 9);
        assert_non_null(ds);
        dataset_close(ds);
    }
}

static void unknown_formats_are_refused(void **state)
{
    struct dataset *ds;
    struct err err;

    (void)state;
    assert_int_equal(dataset_open(&ds, &(struct dataset_options){.format = "minst"}, &err),
                     ERR_ARG);
    assert_string_equal(err.msg, "data format \"minst\" is unknown, want one of mnist, digits");
    assert_int_equal(dataset_open(&ds, &(struct dataset_options){0}, &err), ERR_ARG);
    assert_int_equal(
        dataset_open(&ds, &(struct dataset_options){.format = "digits", .n_samples = 1e9}, &err),
        ERR_ARG);
    assert_string_equal(err.msg, "digits: 1000000000 samples, want at most 4000000");
    dataset_close(NULL);
}

/* The one rounding that is promised, for all 256 values. */
static void values_are_divided_exactly(void **state)
{
    const struct dataset_options o = {.format = "mnist", .path = *state};
    struct dataset *ds = open_ok(&o);
    float x[N * BYTES];
    int64_t index[N];
    int32_t y[N];
    int seen[256] = {0}, n_seen = 0;
    struct err err;

    for (int i = 0; i < N; i++)
        index[i] = i;
    assert_int_equal(dataset_gather(ds, index, N, x, y, &err), 0);
    for (int i = 0; i < N * BYTES; i++) {
        volatile float v = (float)pixel(i / BYTES, i % BYTES);
        float want = v / 255.0f;

        assert_memory_equal(&x[i], &want, sizeof want);
        n_seen += !seen[(int)v]++;
    }
    assert_int_equal(n_seen, 256);
    for (int i = 0; i < N; i++)
        assert_int_equal(y[i], i % 10);
    assert_true(shape_equal(&ds->sample, &SHAPE(H, W, 1)));
    dataset_close(ds);
}

/* ---- the folder of an mnist reader ---- */

static const struct folder_case {
    struct pair pair;
    const char *asked; /* prefix */
    int64_t n_samples;
    int code;
    const char *want; /* message; @ is the folder; NULL: fine */
} folder_cases[] = {
    {{"train"}},
    {{"train", .gz = 1}},
    {{"train", .dotted = 1}},
    {{"train", .dotted = 1, .gz = 1}},
    {{"mine"}, "mine"},
    {{"train", .n_images = -1},
     .code = ERR_IO,
     .want = "mnist: no images in folder @, looked for train-images-idx3-ubyte, "
             "train-images-idx3-ubyte.gz, train-images.idx3-ubyte, train-images.idx3-ubyte.gz; put "
             "one there, or set data.path or the prefix"},
    {{"train", .n_labels = -1},
     .code = ERR_IO,
     .want = "mnist: no labels in folder @, looked for train-labels-idx1-ubyte, "
             "train-labels-idx1-ubyte.gz, train-labels.idx1-ubyte, train-labels.idx1-ubyte.gz; put "
             "one there, or set data.path or the prefix"},
    {{"train"},
     "t10k",
     .code = ERR_IO,
     .want = "mnist: no images in folder @, looked for t10k-images-idx3-ubyte, "
             "t10k-images-idx3-ubyte.gz, t10k-images.idx3-ubyte, t10k-images.idx3-ubyte.gz; put "
             "one there, or set data.path or the prefix"},
    {{"train", .n_labels = 39},
     .code = ERR_CORRUPT,
     .want = "mnist: @/train-labels-idx1-ubyte: offset 4: 39 labels, want 40, as many as images in "
             "@/train-images-idx3-ubyte; do the two belong together?"},
    {{"train", .gz = 1, .n_images = 39},
     .code = ERR_CORRUPT,
     .want = "mnist: @/train-labels-idx1-ubyte.gz: offset 4: 40 labels, want 39, as many as images "
             "in @/train-images-idx3-ubyte.gz; do the two belong together?"},
    {{"train", .bad_at = 17, .bad_label = 10},
     .code = ERR_CORRUPT,
     .want = "mnist: @/train-labels-idx1-ubyte: offset 25: label of sample 17 is 10, want 0 to 9; "
             "is it the right file?"},
    {{"train", .bad_at = 39, .bad_label = 255},
     .code = ERR_CORRUPT,
     .want = "mnist: @/train-labels-idx1-ubyte: offset 47: label of sample 39 is 255, want 0 to 9; "
             "is it the right file?"},
    {{"train"},
     .n_samples = 41,
     .code = ERR_ARG,
     .want = "mnist: @/train-images-idx3-ubyte: 41 samples wanted, want at most the 40 it has"},
};

static void folders_are_read_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(folder_cases); i++) {
        const struct folder_case *c = &folder_cases[i];
        char *folder = make_folder(), want[1024];
        const struct dataset_options o = {
            .format = "mnist", .path = folder, .prefix = c->asked, .n_samples = c->n_samples};
        struct dataset *ds = NULL;
        struct err err = {0};
        int rc;

        write_pair(folder, &c->pair);
        rc = dataset_open(&ds, &o, &err);
        if (rc != c->code)
            fail_msg("case %zu: returned %d, want %d: %s", i, rc, c->code, err.msg);
        if (c->want)
            assert_string_equal(err.msg, fill_in(want, sizeof want, c->want, folder));
        else
            check_samples(ds);
        dataset_close(ds);
        remove_folder(folder);
    }
}

/* A plain file is preferred to a compressed one of the same name: it is quicker to read. */
static void plain_files_come_first(void **state)
{
    char *folder = make_folder();
    const struct dataset_options o = {.format = "mnist", .path = folder};
    struct dataset *ds;

    (void)state;
    write_pair(folder, &(struct pair){"train", .n_images = 11, .n_labels = 11});
    write_pair(folder, &(struct pair){"train", .gz = 1});
    ds = open_ok(&o);
    assert_int_equal(ds->n_samples, 11);
    dataset_close(ds);
    remove_folder(folder);
}

static void missing_folders_are_refused(void **state)
{
    char *folder = make_folder(), want[1024], *file = xasprintf("%s/file", folder);
    struct dataset_options o = {.format = "mnist"};
    struct dataset *ds;
    struct err err;

    (void)state;
    assert_int_equal(dataset_open(&ds, &o, &err), ERR_ARG);
    assert_string_equal(err.msg, "mnist: no folder given, want data.path: where MNIST's files are");
    o.path = file;
    assert_int_equal(dataset_open(&ds, &o, &err), ERR_IO);
    assert_string_equal(
        err.msg,
        fill_in(want, sizeof want, "mnist: folder @ (data.path): No such file or directory", file));
    write_file(folder, "file", &(struct buf){0});
    assert_int_equal(dataset_open(&ds, &o, &err), ERR_ARG);
    assert_string_equal(err.msg, fill_in(want, sizeof want,
                                         "mnist: @ (data.path) is not a folder, want the one that "
                                         "holds MNIST's files",
                                         file));
    free(file);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_reader_gives_samples),
        cmocka_unit_test(fingerprints_tell_apart),
        cmocka_unit_test(fingerprints_see_labels),
        cmocka_unit_test(n_samples_cuts),
        cmocka_unit_test(failed_allocations_are_errors),
        cmocka_unit_test(unknown_formats_are_refused),
        cmocka_unit_test(values_are_divided_exactly),
        cmocka_unit_test(folders_are_read_or_refused),
        cmocka_unit_test(plain_files_come_first),
        cmocka_unit_test(missing_folders_are_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
