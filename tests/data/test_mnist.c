/* mnist: EMNIST, QMNIST and other sets with files or classes of their own, and what is told where a
 * folder, a split and the job do not fit together. */
#include "../test.h"

#include "mnist_files.h"
#include "open_set.h"

enum { ABSENT = -1 };

/* Two sets of files, the first for training, and options. */
static const struct set_case {
    struct pair train, test;
    struct setting set[4];
    enum dataset_purpose purpose;
    int n_classes, label; /* of sample 3 */
    const char *name;     /* of this sample's class; NULL: classes have no names */
    const char *want;     /* message; @ is the folder; NULL: fine */
    const char *warning;
} set_cases[] = {
    {{"emnist-letters-train", .first = 1},
     {"emnist-letters-test", .gz = 1, .first = 17},
     {{"data.split", "letters"}},
     DATASET_TRAIN,
     26,
     3,
     "d"},
    {{"emnist-letters-train", .first = 1},
     {"emnist-letters-test", .gz = 1, .first = 17},
     {{"data.split", "letters"}},
     DATASET_VALIDATION,
     26,
     19},
    {{"emnist-letters-train", .first = 17},
     {"x"},
     {{"data.train", "emnist-letters-train"}},
     DATASET_TRAIN,
     26,
     19,
     "t"},
    {{"emnist-letters-train", .first = 17},
     {"x"},
     {{"data.split", "letters"}, {"data.classes", "27"}},
     DATASET_TRAIN,
     27,
     20},
    {{"emnist-byclass-train", .gz = 1, .first = 52},
     {"emnist-balanced-train"},
     {{"data.split", "byclass"}},
     DATASET_TRAIN,
     62,
     55,
     "t"},
    {{"emnist-bymerge-train", .first = 37},
     {"emnist-balanced-train"},
     {{"data.split", "bymerge"}},
     DATASET_TRAIN,
     47,
     40,
     "f"},
    {{"emnist-balanced-train", .first = 37},
     {"emnist-bymerge-test", .first = 10},
     {{"data.split", "balanced"}, {"data.validation", "emnist-bymerge-test"}},
     DATASET_VALIDATION,
     47,
     13},
    {{"emnist-digits-train"},
     {"emnist-mnist-train"},
     {{"data.split", "digits"}},
     DATASET_TRAIN,
     10,
     3},
    {{"emnist-digits-train"},
     {"emnist-mnist-test"},
     {{"data.split", "mnist"}},
     DATASET_VALIDATION,
     10,
     3},
    {{"qmnist-train", .wide = 8},
     {"qmnist-test", .gz = 1, .wide = 8, .first = 0},
     {{"data.split", "qmnist"}},
     DATASET_TRAIN,
     10,
     3},
    {{"qmnist-train", .wide = 8},
     {"qmnist-test", .gz = 1, .wide = 8, .bad_at = 3, .bad_label = 7},
     {{"data.split", "qmnist"}},
     DATASET_VALIDATION,
     10,
     7},
    {{"train", .first = 30}, {"x"}, {{"data.classes", "40"}}, DATASET_TRAIN, 40, 33},
    {{"emnist-digits-train"},
     {"t10k"},
     {{"data.split", "digits"}, {"data.validation", "t10k"}},
     DATASET_VALIDATION,
     10,
     3,
     .warning = "EMNIST's pictures are transposed (their rows are MNIST's columns), and of "
                "emnist-digits-train (training) and t10k (validation) only one is EMNIST's"},
    {{"train", .bad_at = 2, .bad_label = 5},
     {"x"},
     {{"data.classes", "5"}},
     DATASET_TRAIN,
     .want = "mnist: @/train-labels-idx1-ubyte: offset 10: label of sample 2 is 5, want 0 to 4, as "
             "the job sets data.classes; is it the right file? data.classes is the number of "
             "classes of sets that are not known"},
    {{"emnist-letters-train"},
     {"x"},
     {{"data.split", "letters"}},
     DATASET_TRAIN,
     .want = "mnist: @/emnist-letters-train-labels-idx1-ubyte: offset 8: label of sample 0 is 0, "
             "want 1 to 26; is it the right file? data.classes is the number of classes of sets "
             "that are not known"},
    {{"qmnist-train", .wide = 8, .bad_at = 2, .bad_label = -5},
     {"x"},
     {{"data.split", "qmnist"}},
     DATASET_TRAIN,
     .want = "mnist: @/qmnist-train-labels-idx2-int: offset 76: label of sample 2 is -5, want 0 "
             "to 9; is it the right file? data.classes is the number of classes of sets that are "
             "not known"},
    {{"qmnist-train", .wide = 7},
     {"x"},
     {{"data.split", "qmnist"}},
     DATASET_TRAIN,
     .want = "mnist: @/qmnist-train-labels-idx2-int: offset 8: 7 numbers for each label, want 8, "
             "as QMNIST has, the class first; is it the right file?"},
    {{"emnist-letters-train"},
     {"emnist-balanced-test"},
     {{"data.split", "letters"}, {"data.validation", "emnist-balanced-test"}},
     DATASET_VALIDATION,
     .want = "mnist: data.validation is emnist-balanced-test, of 47 classes, data.train is "
             "emnist-letters-train, of 26; want two parts of one split"},
    {{"a"},
     {"b"},
     {{"data.split", "letters"}, {"data.train", "a"}},
     DATASET_TRAIN,
     .want = "data.train is a, want it left out: data.split: letters says that the training files "
             "are emnist-letters-train-..."},
    {{"qmnist-train", .wide = 8},
     {"emnist-letters-test", .gz = 1},
     {{NULL}},
     DATASET_TRAIN,
     .want = "mnist: no images in folder @, looked for train-images-idx3-ubyte, "
             "train-images-idx3-ubyte.gz, train-images.idx3-ubyte, train-images.idx3-ubyte.gz; the "
             "folder has emnist-letters-test, qmnist-train; set data.split to letters or qmnist, "
             "or data.train or data.validation to one of these prefixes, or data.path"},
};

static void keep_warning(void *arg, const char *text)
{
    char **kept = arg;

    free(*kept);
    *kept = xstrdup(text);
}

static void check_set(const struct set_case *c, const struct dataset *ds, const char *warning)
{
    int32_t y = ABSENT;
    struct err err;

    assert_int_equal(dataset_gather(ds, &(int64_t){3}, 1, (void *[]){NULL, &y}, &err), 0);
    assert_int_equal(ds->spec.field[1].n_classes, c->n_classes);
    assert_int_equal(y, c->label);
    assert_int_equal(!!ds->class_names, !!c->name);
    if (c->name)
        assert_string_equal(ds->class_names[y], c->name);
    assert_int_equal(!!warning, !!c->warning);
    if (warning)
        assert_string_equal(warning, c->warning);
}

static void sets_have_their_classes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(set_cases); i++) {
        const struct set_case *c = &set_cases[i];
        char *folder = make_folder(), want[1024], *warning = NULL;
        struct setting set[6] = {{"data.path", folder}};
        struct dataset *ds = NULL;
        struct err err = {0};
        int rc;

        memcpy(set + 1, c->set, sizeof c->set);
        write_pair(folder, &c->train);
        write_pair(folder, &c->test);
        rc = open_set(&ds, &format_mnist, set,
                      &(struct dataset_request){
                          .purpose = c->purpose, .warn = keep_warning, .warn_arg = &warning},
                      &err);
        if (rc != 0 && !c->want)
            fail_msg("case %zu: %s", i, err.msg);
        if (c->want)
            assert_string_equal(rc < 0 ? err.msg : "read",
                                fill_in(want, sizeof want, c->want, folder));
        else
            check_set(c, ds, warning);
        free(warning);
        dataset_close(ds);
        remove_folder(folder);
    }
}

/* The driver asks for the names alone, where the files need not be. */
static void names_need_no_files(void **state)
{
    const struct setting letters[] = {
        {"data.path", "/nowhere"}, {"data.split", "letters"}, {NULL, NULL}};
    const struct dataset_request request = {.purpose = DATASET_TRAIN, .names_only = 1};
    struct dataset *ds;
    struct err err;

    (void)state;
    assert_int_equal(open_set(&ds, &format_mnist, letters, &request, &err), 0);
    assert_string_equal(ds->class_names[25], "z");
    dataset_close(ds);
    assert_int_equal(
        open_set(&ds, &format_mnist, (struct setting[]){letters[0], {NULL, NULL}}, &request, &err),
        DATASET_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_have_their_classes),
        cmocka_unit_test(names_need_no_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
