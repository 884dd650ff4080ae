/* dataset: the promises of all readers are checked on each entry of the list; then the folder of
 * the mnist reader. */
#include "../test.h"

#include "base/alloc.h"
#include "data/dataset.h"
#include "data/digits.h"
#include "data/mnist.h"
#include "mnist_files.h"
#include "small_files.h"

/* ---- every reader ---- */

/* Write n records of CIFAR, each with n_labels bytes of labels. */
static void write_cifar(const char *folder, const char *name, int n_labels, int n)
{
    enum { IMAGE = 3072 };
    struct buf b = {0};

    for (int i = 0; i < n * (n_labels + IMAGE); i++)
        buf_append(
            &b,
            &(uint8_t){(uint8_t)(i % (n_labels + IMAGE) < n_labels ? i / 3072 % 10 : i * 7 % 256)},
            1);
    write_file(folder, name, &b);
    buf_fini(&b);
}

/* Make a folder in which each reader finds its files. */
static int setup(void **state)
{
    char *folder = make_folder();

    write_pair(folder, &(struct pair){.prefix = "train"});
    write_pair(folder, &(struct pair){.prefix = "t10k", .gz = 1, .n_images = 20, .n_labels = 20});
    write_pair(folder, &(struct pair){.prefix = "few", .n_images = 20, .n_labels = 20});
    write_cifar(folder, "data_batch_1.bin", 1, N);
    write_cifar(folder, "test_batch.bin", 1, 20);
    write_cifar(folder, "train.bin", 2, N);
    write_cifar(folder, "test.bin", 2, 20);
    write_text(folder, "text", 2000);
    write_arrays(folder, "x.npy", "y.npy", N);
    write_arrays(folder, "vx.npy", "vy.npy", 20);
    write_arrays(folder, "fx.npy", "fy.npy", 19);
    write_table(folder, "train.csv", N);
    write_table(folder, "val.csv", 20);
    write_table(folder, "few.csv", 19);
    write_ids(folder, "ids", 1000);
    write_ids(folder, "t10k", 200);
    write_classes(folder, "train", 3);
    write_classes(folder, "val", 2);
    write_classes(folder, "pictures", 1);
    *state = folder;
    return 0;
}

static int teardown(void **state)
{
    remove_folder(*state);
    return 0;
}

/* A format, to be opened with its default options, except these. */
struct source {
    const struct data_format *kind;
    const char *folder;  /* data.path; of the format text, followed by .. */
    const char *file;    /* .. this file's name; NULL: "text" */
    const char *train;   /* data.train; NULL: its default */
    const char *samples; /* data.samples; NULL: its default */
    enum dataset_purpose purpose;
    const char *validation; /* data.validation; NULL: its default, or files that are there */
};

static const char *path_of(const struct source *s, struct arena *arena)
{
    return s->kind == &format_text
               ? arena_printf(arena, "%s/%s", s->folder, s->file ? s->file : "text")
               : s->folder;
}

static const char *text_of(const struct source *s, const char *key, const char *def,
                           struct arena *arena)
{
    if (!strcmp(key, "data.path"))
        return path_of(s, arena);
    if (s->validation && !strcmp(key, "data.validation"))
        return s->validation;
    if (s->kind == &format_npy && !strcmp(key, "data.validation"))
        return "vx.npy, vy.npy";
    if (s->kind == &format_npy && s->train && !strcmp(key, "data.train"))
        return "fx.npy, fy.npy";
    if (s->kind == &format_csv)
        return !strcmp(key, "data.validation")          ? "val.csv"
               : !strcmp(key, "data.train") && s->train ? "few.csv"
                                                        : def;
    if (s->kind == &format_images && s->train && !strcmp(key, "data.train"))
        return "pictures";
    if (!strcmp(key, "data.cache"))
        return NULL;
    if (!strcmp(key, "data.train") && s->train)
        return s->train;
    if (!strcmp(key, "data.samples") && s->samples)
        return s->samples;
    if (!strcmp(key, "data.train") && s->kind == &format_tokens)
        return "ids";
    return def ? def : "t10k"; /* data.validation of mnist and tokens */
}

static int open_source(struct dataset **out, const struct source *s, struct err *err)
{
    const struct option_group *g = &s->kind->group;
    const struct data_options o = {s->kind, xcalloc(1, g->size)};
    struct arena arena = {0};
    int rc = 0;

    for (int i = 0; i < g->n_options && rc == 0; i++) {
        const char *text = text_of(s, g->option[i].key, g->option[i].def, &arena);

        rc = !text ? 0
                   : option_parse(&g->option[i], (char *)o.options + g->option[i].offset, &arena,
                                  text, strlen(text), 0, err);
    }
    assert_int_equal(rc, 0);
    rc = dataset_open(out, &o, &(struct dataset_request){.purpose = s->purpose, .context = 5}, err);
    arena_fini(&arena);
    free((void *)o.options);
    return rc;
}

static struct source source_of(size_t i, void **state)
{
    return (struct source){container_of(data_formats[i], struct data_format, group), *state};
}

static struct source folder_source(const char *folder)
{
    return (struct source){&format_mnist, folder};
}

static struct dataset *open_ok(const struct source *s)
{
    struct dataset *ds = NULL;
    struct err err = {0};

    if (open_source(&ds, s, &err) < 0)
        fail_msg("%s: %s", s->kind->group.name, err.msg);
    return ds;
}

/* With data.validation: none there is no validation set, in any format that has the key, and no
 * file is opened.  A text then trains as a whole. */
static void none_validates(void **state)
{
    const struct source text = {&format_text, *state},
                        whole = {&format_text, *state, .validation = "none"};
    char nowhere[] = "/nowhere";
    struct dataset *ds;
    int n = 0;

    for (size_t i = 0; data_formats[i]; i++) {
        struct source s = source_of(i, (void *[]){nowhere});
        struct err err;
        int has_key = 0;

        for (int k = 0; k < s.kind->group.n_options; k++)
            has_key |= !strcmp(s.kind->group.option[k].key, "data.validation");
        s.validation = "none";
        s.purpose = DATASET_VALIDATION;
        if (!has_key)
            continue;
        assert_int_equal(open_source(&ds, &s, &err), DATASET_NONE);
        assert_null(ds);
        n++;
    }
    assert_int_equal(n, 8);
    ds = open_ok(&text);
    assert_int_equal(ds->n_samples, (1800 - 1) / 5);
    dataset_close(ds);
    ds = open_ok(&whole);
    assert_int_equal(ds->n_samples, (2000 - 1) / 5);
    dataset_close(ds);
}

/* All numbers of a field are where they can be. */
static void check_numbers(const struct sample_field *f, const void *numbers, int64_t n)
{
    const float *x = numbers;
    const int32_t *y = numbers;

    for (int64_t i = 0; i < n * shape_elements(&f->shape); i++)
        if (f->dtype == DTYPE_I32)
            assert_in_range(y[i], 0, f->n_classes - 1);
        else
            assert_true(x[i] >= 0 && x[i] <= 1);
}

static void check_samples(const struct dataset *ds)
{
    const int64_t last = ds->n_samples - 1, index[4] = {last, 0, 3, last}, again[1] = {3};
    void *all[SAMPLE_MAX_FIELDS], *alone[SAMPLE_MAX_FIELDS], *targets[SAMPLE_MAX_FIELDS];
    struct err err;

    assert_int_equal(dataset_alloc(ds, 4, all, "samples", &err), 0);
    assert_int_equal(dataset_alloc(ds, 1, alone, "samples", &err), 0);
    assert_int_equal(dataset_alloc(ds, 4, targets, "samples", &err), 0);
    assert_int_equal(dataset_gather(ds, index, 4, all, &err), 0);
    assert_int_equal(dataset_gather(ds, index, 4, (void *[]){NULL, targets[1]}, &err), 0);
    assert_int_equal(dataset_gather(ds, again, 1, alone, &err), 0);
    assert_int_equal(dataset_gather(ds, NULL, 0, (void *[]){NULL, NULL}, &err), 0);
    assert_memory_equal(all[1], targets[1], 4 * sample_field_bytes(&ds->spec.field[1]));
    for (int k = 0; k < ds->spec.n_fields; k++) {
        const size_t size = sample_field_bytes(&ds->spec.field[k]);
        const char *at = all[k];

        assert_memory_equal(at, at + 3 * size, size);
        assert_memory_equal(at + 2 * size, alone[k], size);
        check_numbers(&ds->spec.field[k], at, 4);
    }
    free(all[0]);
    free(alone[0]);
    free(targets[0]);
}

static void each_reader_gives_samples(void **state)
{
    for (size_t i = 0; data_formats[i]; i++)
        for (int purpose = DATASET_TRAIN; purpose <= DATASET_VALIDATION; purpose++) {
            struct source s = source_of(i, state);
            struct dataset *ds;

            s.purpose = purpose;
            ds = open_ok(&s);
            assert_string_equal(ds->ops->name, s.kind->group.name);
            assert_true(ds->n_samples > 0 && ds->spec.field[1].n_classes > 1);
            check_samples(ds);
            dataset_close(ds);
        }
}

static struct hash128 print_of(const struct source *s)
{
    struct dataset *ds = open_ok(s);
    struct hash128 h;
    struct err err;

    assert_int_equal(dataset_fingerprint(ds, &h, &err), 0);
    dataset_close(ds);
    return h;
}

static void fingerprints_tell_apart(void **state)
{
    for (size_t i = 0; data_formats[i]; i++) {
        struct source s = source_of(i, state), few = s, other = s;
        const int is_100 = s.kind == &format_cifar100;
        struct hash128 train = print_of(&s), again = print_of(&s);

        if (s.kind == &format_cifar10 || is_100)
            write_cifar(*state, "few.bin", is_100 ? 2 : 1, 20);
        if (s.kind == &format_tokens)
            write_ids(*state, "few", 150);
        if (s.kind == &format_text)
            write_text(*state, "few", 300);
        few.samples = "20";
        few.train = few.file = "few";
        other.purpose = DATASET_VALIDATION;
        assert_true(hash_equal(train, again));
        assert_false(hash_equal(train, print_of(&few)));
        assert_false(hash_equal(train, print_of(&other)));
    }
}

/* One wrong label of a small set changes the fingerprint, whichever label it is. */
static void fingerprints_see_labels(void **state)
{
    const struct source good = folder_source(*state);
    struct hash128 right = print_of(&good);
    char *folder = make_folder();
    const struct source bad = folder_source(folder);

    for (int i = 0; i < N; i++) {
        write_pair(folder, &(struct pair){"train", .bad_at = i, .bad_label = i % 10 == 9 ? 8 : 9});
        assert_false(hash_equal(print_of(&bad), right));
    }
    write_pair(folder, &(struct pair){"train"});
    assert_true(hash_equal(print_of(&bad), right));
    remove_folder(folder);
}

/* Few samples have a fingerprint, too. */
static void one_sample_is_enough(void **state)
{
    struct source s = {&format_digits, *state, .samples = "1"};
    struct dataset *ds = open_ok(&s);
    struct err err;

    assert_int_equal(ds->n_samples, 1);
    assert_int_equal(dataset_fingerprint(ds, &(struct hash128){0, 0}, &err), 0);
    dataset_close(ds);
}

/* Options may name no data for validation. */
static void no_validation_is_not_an_error(void **state)
{
    static const struct digits_options digits = {.samples = 5};
    const struct mnist_options mnist = {*state, "train", NULL};
    const struct data_options none[] = {{&format_digits, &digits}, {&format_mnist, &mnist}};
    const struct dataset_request validation = {.purpose = DATASET_VALIDATION};

    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        struct dataset *ds = (struct dataset *)&none; /* to be overwritten */
        struct err err;

        assert_int_equal(dataset_open(&ds, &none[i], &validation, &err), DATASET_NONE);
        assert_null(ds);
    }
}

static void failed_allocations_are_errors(void **state)
{
    for (size_t i = 0; data_formats[i]; i++) {
        const struct source s = source_of(i, state);
        struct dataset *ds = NULL;
        struct err err;
        int n = 0;

        do
            alloc_fail_at((uint64_t)++n);
        while (open_source(&ds, &s, &err) == ERR_NOMEM && n < 10);
        alloc_fail_at(0);
        assert_in_range(
            n, /* files are mapped, or opened when they are read */
            s.kind == &format_tokens || s.kind == &format_npy || s.kind == &format_images ? 1 : 2,
            9);
        assert_non_null(ds);
        dataset_close(ds);
    }
}

/* The one rounding that convert.c promises, for all 256 values. */
static void values_are_divided_exactly(void **state)
{
    const struct source s = folder_source(*state);
    struct dataset *ds = open_ok(&s);
    float x[N * BYTES];
    int64_t index[N];
    int32_t y[N];
    int seen[256] = {0}, n_seen = 0;
    struct err err;

    for (int i = 0; i < N; i++)
        index[i] = i;
    assert_int_equal(dataset_gather(ds, index, N, (void *[]){x, y}, &err), 0);
    for (int i = 0; i < N * BYTES; i++) {
        volatile float v = (float)pixel(i / BYTES, i % BYTES);
        float want = v / 255.0f;

        assert_memory_equal(&x[i], &want, sizeof want);
        n_seen += !seen[(int)v]++;
    }
    assert_int_equal(n_seen, 256);
    for (int i = 0; i < N; i++)
        assert_int_equal(y[i], i % 10);
    assert_true(shape_equal(&ds->spec.field[0].shape, &SHAPE(H, W, 1)));
    dataset_close(ds);
}

/* ---- the folder of an mnist reader ---- */

static const struct folder_case {
    struct pair pair;
    const char *asked; /* prefix */
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
             "one there, or set data.path, data.train or data.validation"},
    {{"train", .n_labels = -1},
     .code = ERR_IO,
     .want = "mnist: no labels in folder @, looked for train-labels-idx1-ubyte, "
             "train-labels-idx1-ubyte.gz, train-labels.idx1-ubyte, train-labels.idx1-ubyte.gz, "
             "train-labels-idx2-int, train-labels-idx2-int.gz; put "
             "one there, or set data.path, data.train or data.validation"},
    {{"train"},
     "t10k",
     .code = ERR_IO,
     .want = "mnist: no images in folder @, looked for t10k-images-idx3-ubyte, "
             "t10k-images-idx3-ubyte.gz, t10k-images.idx3-ubyte, t10k-images.idx3-ubyte.gz; the "
             "folder has train; set data.train or data.validation to one of these prefixes, or "
             "data.path"},
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
             "is it the right file? data.classes is the number of classes of sets that are not "
             "known"},
    {{"train", .bad_at = 39, .bad_label = 255},
     .code = ERR_CORRUPT,
     .want = "mnist: @/train-labels-idx1-ubyte: offset 47: label of sample 39 is 255, want 0 to 9; "
             "is it the right file? data.classes is the number of classes of sets that are not "
             "known"},
};

static void folders_are_read_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(folder_cases); i++) {
        const struct folder_case *c = &folder_cases[i];
        char *folder = make_folder(), want[1024];
        const struct source s = {&format_mnist, folder, .train = c->asked};
        struct dataset *ds = NULL;
        struct err err = {0};
        int rc;

        write_pair(folder, &c->pair);
        rc = open_source(&ds, &s, &err);
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
    const struct source s = folder_source(folder);
    struct dataset *ds;

    (void)state;
    write_pair(folder, &(struct pair){"train", .n_images = 11, .n_labels = 11});
    write_pair(folder, &(struct pair){"train", .gz = 1});
    ds = open_ok(&s);
    assert_int_equal(ds->n_samples, 11);
    dataset_close(ds);
    remove_folder(folder);
}

static void missing_folders_are_refused(void **state)
{
    char *folder = make_folder(), want[1024], *file = xasprintf("%s/file", folder);
    struct mnist_options mnist = {.train = "train"};
    const struct data_options o = {&format_mnist, &mnist};
    const struct dataset_request request = {.purpose = DATASET_TRAIN};
    struct dataset *ds;
    struct err err;

    (void)state;
    assert_int_equal(dataset_open(&ds, &o, &request, &err), ERR_ARG);
    assert_string_equal(err.msg, "mnist: no folder given, want data.path: where MNIST's files are");
    mnist.path = file;
    assert_int_equal(dataset_open(&ds, &o, &request, &err), ERR_IO);
    assert_string_equal(
        err.msg,
        fill_in(want, sizeof want, "mnist: folder @ (data.path): No such file or directory", file));
    write_file(folder, "file", &(struct buf){0});
    assert_int_equal(dataset_open(&ds, &o, &request, &err), ERR_ARG);
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
        cmocka_unit_test(one_sample_is_enough),
        cmocka_unit_test(failed_allocations_are_errors),
        cmocka_unit_test(no_validation_is_not_an_error),
        cmocka_unit_test(none_validates),
        cmocka_unit_test(values_are_divided_exactly),
        cmocka_unit_test(folders_are_read_or_refused),
        cmocka_unit_test(plain_files_come_first),
        cmocka_unit_test(missing_folders_are_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
