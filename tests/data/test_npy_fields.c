/* npy by names: fields in the order of data.train with the target at the end, whole numbers that
 * stay whole numbers, and mappings and files that are refused with their reason. */
#include "../test.h"

#include "base/buf.h"
#include "npy_set.h"

#define TRAIN "{labels: y.npy, ids: i.npy, mask: m.npy, x: x.npy}"

/* Three samples: ids [2] int64, mask [2] bool, x [2] float32, labels. */
static void write_fields(const char *folder)
{
    write_npy(folder, "i.npy", 1, KEYS("<i8", "(3, 2)"), (int64_t[]){0, 1, -2, 3, 1 << 30, 5}, 48);
    write_npy(folder, "m.npy", 1, KEYS("|b1", "(3, 2)"), "\1\0\1\1\0\1", 6);
    write_npy(folder, "x.npy", 1, KEYS("<f4", "(3, 2)"), (float[]){1, 2, 3, 4, 5, 6}, 24);
    write_npy(folder, "y.npy", 1, KEYS("|u1", "(3,)"), "\0\3\1", 3);
}

static int open_fields(const char *folder, const char *train, const char *validation,
                       const struct dataset_request *r, struct dataset **ds, struct err *err)
{
    const struct setting settings[] = {
        {"data.path", folder}, {"data.train", train}, {"data.validation", validation}, {NULL}};

    *ds = NULL;
    return open_set(ds, &format_npy, settings, r, err);
}

static void check_spec(const struct dataset *ds, const char *want)
{
    struct buf text = {0};

    sample_print(&ds->spec, &text);
    assert_string_equal(buf_cstr(&text), want);
    buf_fini(&text);
}

static void fields_have_one_order(void **state)
{
    static const struct {
        enum dataset_purpose purpose;
        const char *validation;
    } row[] = {{DATASET_TRAIN, NULL},
               {DATASET_VALIDATION, "{x: x.npy, mask: m.npy, labels: y.npy, ids: i.npy}"}};

    write_fields(*state);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        const struct dataset_request r = purpose(row[i].purpose);
        int32_t ids[4], mask[4], labels[2];
        struct dataset *ds;
        struct err err;
        float x[4];
        char *place, want[512];

        assert_int_equal(open_fields(*state, TRAIN, row[i].validation, &r, &ds, &err), 0);
        check_spec(ds, "ids [2] of whole numbers, mask [2] of whole numbers, x [2], labels of 4 "
                       "classes");
        assert_int_equal(
            dataset_gather(ds, (int64_t[]){2, 1}, 2, (void *[]){ids, mask, x, labels}, &err), 0);
        assert_memory_equal(ids, ((int32_t[]){1 << 30, 5, -2, 3}), sizeof ids);
        assert_memory_equal(mask, ((int32_t[]){0, 1, 1, 1}), sizeof mask);
        assert_memory_equal(x, ((float[]){5, 6, 3, 4}), sizeof x);
        assert_memory_equal(labels, ((int32_t[]){1, 3}), sizeof labels);
        place = dataset_place(ds, 2, 1);
        assert_string_equal(place, fill_in(want, sizeof want, "@/m.npy, row 2", *state));
        free(place);
        dataset_close(ds);
    }
}

/* Without `labels` the last field is the target; real numbers are real targets. */
static void the_last_field_is_the_target(void **state)
{
    const struct dataset_request r = purpose(DATASET_TRAIN);
    struct dataset *ds;
    struct err err;

    write_fields(*state);
    assert_int_equal(open_fields(*state, "{'a, b': i.npy, x: x.npy}", NULL, &r, &ds, &err), 0);
    check_spec(ds, "a, b [2] of whole numbers, x [2] of real numbers");
    dataset_close(ds);
}

/* Another file of one input is another set, and so is another name of it. */
static void fingerprints_differ(void **state)
{
    static const char *const train[] = {
        "{a: i.npy, b: m.npy, labels: y.npy}", "{a: i.npy, b: x.npy, labels: y.npy}",
        "{a: i.npy, c: m.npy, labels: y.npy}", "{b: m.npy, a: i.npy, labels: y.npy}"};
    const struct dataset_request r = purpose(DATASET_TRAIN);
    struct hash128 print[ARRAY_LEN(train)];

    write_fields(*state);
    for (size_t i = 0; i < ARRAY_LEN(train); i++) {
        struct dataset *ds;
        struct err err;

        assert_int_equal(open_fields(*state, train[i], NULL, &r, &ds, &err), 0);
        assert_int_equal(dataset_fingerprint(ds, &print[i], &err), 0);
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(&print[i], &print[k], sizeof *print);
        dataset_close(ds);
    }
}

/* data.normalize makes real numbers of the first input, and of no other. */
static void the_first_field_may_be_normalised(void **state)
{
    const struct setting settings[] = {{"data.path", *state},
                                       {"data.train", "{ids: i.npy, mask: m.npy, labels: y.npy}"},
                                       {"data.normalize.mean", "[1]"},
                                       {"data.normalize.std", "[2]"},
                                       {NULL}};
    const struct dataset_request r = purpose(DATASET_TRAIN);
    struct dataset *ds;
    int32_t mask[2];
    struct err err;
    float ids[2];

    write_npy(*state, "i.npy", 1, KEYS("|u1", "(3, 2, 1)"), "\1\2\3\4\5\6", 6);
    write_npy(*state, "m.npy", 1, KEYS("|b1", "(3, 2)"), "\1\0\1\1\0\1", 6);
    write_npy(*state, "y.npy", 1, KEYS("|u1", "(3,)"), "\0\3\1", 3);
    assert_int_equal(open_set(&ds, &format_npy, settings, &r, &err), 0);
    check_spec(ds, "ids [2,1], mask [2] of whole numbers, labels of 4 classes");
    assert_int_equal(dataset_gather(ds, (int64_t[]){2}, 1, (void *[]){ids, mask, NULL}, &err), 0);
    assert_memory_equal(ids, ((float[]){2, 2.5F}), sizeof ids);
    assert_memory_equal(mask, ((int32_t[]){0, 1}), sizeof mask);
    dataset_close(ds);
}

static void predictions_need_no_target(void **state)
{
    struct dataset_request r = purpose(DATASET_VALIDATION);
    struct dataset *ds;
    int32_t labels[1];
    struct err err;

    write_fields(*state);
    r.may_lack_labels = 1;
    assert_int_equal(
        open_fields(*state, TRAIN, "{mask: m.npy, x: x.npy, ids: i.npy}", &r, &ds, &err), 0);
    assert_int_equal(ds->has_no_labels, 1);
    assert_int_equal(
        dataset_gather(ds, (int64_t[]){0}, 1, (void *[]){NULL, NULL, NULL, labels}, &err), 0);
    assert_int_equal(labels[0], SAMPLE_IGNORED);
    dataset_close(ds);
}

static const struct bad_fields {
    const char *train, *validation;
    int code;
    const char *want; /* @ is the folder */
} bad_fields[] = {
    {"{x: x.npy}", NULL, ERR_CONFIG,
     "data.train has 1 field, want one for each input of the network, and the target, such as "
     "{input_ids: ids.npy, labels: y.npy}"},
    {"{}", NULL, ERR_CONFIG,
     "data.train has 0 fields, want one for each input of the network, and the target, such as "
     "{input_ids: ids.npy, labels: y.npy}"},
    {"{x: x.npy, y: [y.npy]}", NULL, ERR_CONFIG,
     "data.train has the field y, which is a list, want one file"},
    {"{x: x.npy, y: ''}", NULL, ERR_CONFIG,
     "data.train has the field y, which is empty, want one file"},
    {"{x: x.npy, x: y.npy}", NULL, ERR_CONFIG, "data.train has the field x twice, want each once"},
    {"{x: x.npy, y: y.npy", NULL, ERR_CONFIG,
     "data.train is {x: x.npy, y: y.npy, which is no mapping of fields to files"},
    {"{a: x, b: x, c: x, d: x, e: x, f: x, g: x, h: x, i: x}", NULL, ERR_CONFIG,
     "data.train has more than 8 fields, want at most that many"},
    {TRAIN, "{x: x.npy, ids: i.npy, labels: y.npy}", ERR_CONFIG,
     "npy: data.validation has no field mask, want the same fields as data.train"},
    {TRAIN, "{x: x.npy, ids: i.npy, mask: m.npy}", ERR_CONFIG,
     "npy: data.validation has no field labels, want the same fields as data.train"},
    {TRAIN, "{x: x.npy, ids: i.npy, labels: y.npy, masks: m.npy}", ERR_CONFIG,
     "npy: data.validation has the field masks, which data.train has not, want the same fields in "
     "both"},
    {TRAIN, "x.npy, y.npy", ERR_CONFIG,
     "npy: data.validation is x.npy, y.npy, and data.train is " TRAIN
     ", want both with names or both without"},
    {"{x: x.npy, two: two.npy, labels: y.npy}", NULL, ERR_CORRUPT,
     "npy: @/two.npy has 2 rows, want 3, as many as @/x.npy; do the two belong together?"},
    {"{x: x.npy, none: none.npy, labels: y.npy}", NULL, ERR_IO,
     "npy: file @/none.npy (of data.path, data.train or data.validation): No such file or "
     "directory"},
};

static void bad_fields_are_refused(void **state)
{
    write_fields(*state);
    write_npy(*state, "two.npy", 1, KEYS("|u1", "(2,)"), "ab", 2);
    for (size_t i = 0; i < ARRAY_LEN(bad_fields); i++) {
        const struct bad_fields *c = &bad_fields[i];
        const struct dataset_request r =
            purpose(c->validation ? DATASET_VALIDATION : DATASET_TRAIN);
        struct err err = {0};
        struct dataset *ds;
        char want[1024];

        assert_int_equal(open_fields(*state, c->train, c->validation, &r, &ds, &err), c->code);
        assert_string_equal(err.msg, fill_in(want, sizeof want, c->want, *state));
    }
}

/* The network takes 0 to 9 of ids, and any of others. */
static void limit_ids(const void *arg, const struct sample_spec *s, int field, int64_t *least,
                      int64_t *most)
{
    if (arg && !strcmp(s->field[field].name, "ids")) {
        *least = 0;
        *most = 9;
    }
}

/* A number is refused when its sample is read, and not before. */
static void numbers_out_of_range_are_refused(void **state)
{
    static const struct {
        const char *keys;
        int64_t bad;
        int is_limited;
        const char *want;
    } row[] = {
        {KEYS("<i8", "(2, 100)"), 10, 1, "10, want 0 to 9, which is what the network takes"},
        {KEYS("<i8", "(2, 100)"), -1, 1, "-1, want 0 to 9, which is what the network takes"},
        {KEYS("<u8", "(2, 100)"), -1, 0, "18446744073709551615, want -2147483648 to 2147483647"},
        {KEYS("<i8", "(2, 100)"), (int64_t)INT32_MAX + 1, 0,
         "2147483648, want -2147483648 to 2147483647"},
        {KEYS("<i8", "(2, 100)"), (int64_t)INT32_MIN - 1, 0,
         "-2147483649, want -2147483648 to 2147483647"},
    };

    write_npy(*state, "y.npy", 1, KEYS("|u1", "(2,)"), "\0\1", 2);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct dataset_request r = purpose(DATASET_TRAIN);
        int64_t numbers[200] = {0};
        char part[256], want[512];
        int32_t ids[100];
        struct dataset *ds;
        struct err err;

        numbers[199] = row[i].bad;
        write_npy(*state, "i.npy", 1, row[i].keys, numbers, sizeof numbers);
        r.limit = limit_ids;
        r.limit_arg = row[i].is_limited ? "" : NULL;
        assert_int_equal(open_fields(*state, "{ids: i.npy, labels: y.npy}", NULL, &r, &ds, &err),
                         0);
        assert_int_equal(dataset_gather(ds, (int64_t[]){0}, 1, (void *[]){ids, NULL}, &err), 0);
        assert_int_equal(dataset_gather(ds, (int64_t[]){1}, 1, (void *[]){ids, NULL}, &err),
                         ERR_CORRUPT);
        snprintf(part, sizeof part, "@/i.npy: row 1: a number of ids is %s", row[i].want);
        assert_string_equal(err.msg, fill_in(want, sizeof want, part, *state));
        dataset_close(ds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(fields_have_one_order),
        IN_FOLDER(the_last_field_is_the_target),
        IN_FOLDER(fingerprints_differ),
        IN_FOLDER(the_first_field_may_be_normalised),
        IN_FOLDER(predictions_need_no_target),
        IN_FOLDER(bad_fields_are_refused),
        IN_FOLDER(numbers_out_of_range_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
