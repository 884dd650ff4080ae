/* csv: tables in text are read as their writers meant them (test_csv_bad.c has what is refused). */
#include "../test.h"

#include <math.h>

#include "csv_set.h"
#include "data/csv_file.h"
#include "data/moments.h"
#include "data/targets.h"

/* Append sample i: "0.5 1 0 | 2". */
static void print_sample(const struct dataset *ds, int64_t i, struct buf *out)
{
    const struct sample_field *y = &ds->spec.field[1];
    void *to[SAMPLE_MAX_FIELDS];
    struct err err;

    assert_int_equal(dataset_alloc(ds, 1, to, "a sample", &err), 0);
    assert_int_equal(dataset_gather(ds, &i, 1, to, &err), 0);
    for (int64_t k = 0; k < shape_elements(&ds->spec.field[0].shape); k++)
        buf_printf(out, "%.9g ", (double)((float *)to[0])[k]);
    buf_printf(out, "|");
    for (int64_t k = 0; k < shape_elements(&y->shape); k++)
        buf_printf(out, y->role == SAMPLE_CLASS ? " %.0f" : " %.9g",
                   y->role == SAMPLE_CLASS ? ((int32_t *)to[1])[k] : (double)((float *)to[1])[k]);
    buf_printf(out, "\n");
    free(to[0]);
}

static void expect_samples(const struct dataset *ds, const char *want)
{
    struct buf text = {0};

    for (int64_t i = 0; i < ds->n_samples; i++)
        print_sample(ds, i, &text);
    assert_string_equal(buf_cstr(&text), want);
    buf_fini(&text);
}

/* ---- what is read ---- */

static const struct good_case {
    const char *text;
    int numbers;
    struct setting more[MOST_SETTINGS];
    const char *want;    /* samples */
    const char *classes; /* "a b"; NULL: the names are those of the targets' columns */
    const char *warning; /* @ is the folder; NULL: none */
} good_cases[] = {
    /* words are numbered in byte order, and the last column is the target */
    {"size,kind,label\n1.5,b,yes\n-2e3,a,no\n.5,B,yes\n",
     0,
     {{NULL}},
     "1.5 0 0 1 | 1\n-2000 0 1 0 | 0\n0.5 1 0 0 | 1\n",
     "no yes",
     NULL},
    /* whole numbers are classes in their order, whatever their first one; CR LF, and no last one */
    {"label,x\r\n10,1\r\n9,2\r\n100,3",
     0,
     {{"data.target", "label"}},
     "1 | 1\n2 | 0\n3 | 2\n",
     "9 10 100",
     NULL},
    /* ... and numbers, if the loss wants these; a byte order mark, and line ends of CR */
    {"\xef\xbb\xbfy,x\r10,1\r9,2\r", 1, {{"data.target", "y"}}, "1 | 10\n2 | 9\n", NULL, NULL},
    /* quotes hold delimiters, line ends and quotes; blanks outside of them count for nothing */
    {"\"a \"\"b\"\"\", \"k\" ,y\n\"1\",\" p, \",1\n 2 ,\"p\n\"\"q\"\"\",2\n\n3, p,3\n",
     1,
     {{"data.drop", "k"}},
     "1 | 1\n2 | 2\n3 | 3\n",
     NULL,
     NULL},
    {"k,y\n\" p \",1\n p ,2\n\"p\",3\n", 1, {{NULL}}, "1 0 | 1\n0 1 | 2\n0 1 | 3\n", NULL, NULL},
    {"x;y\n1;2\n",
     1,
     {{"data.delimiter", "semicolon"}},
     "1 | 2\n",
     NULL,
     "@/train.csv: column x is the same in all rows and tells nothing"},
    {"x\ty\n1\t2\n3\t4\n", 1, {{"data.delimiter", "tab"}}, "1 | 2\n3 | 4\n", NULL, NULL},
    {"1,2\n3,4\n", 1, {{"data.header", "false"}}, "1 | 2\n3 | 4\n", NULL, NULL},
    {"1,2\n3,4\n",
     1,
     {{"data.header", "false"}, {"data.target", "column 1"}},
     "2 | 1\n4 | 3\n",
     NULL,
     NULL},
    /* pandas' index, which has no name; several targets */
    {",a,b,x\n0,1,2,3\n1,4,5,6\n",
     1,
     {{"data.drop", "column 1"}, {"data.target", "b, a"}},
     "3 | 1 2\n6 | 4 5\n",
     NULL,
     NULL},
    /* codes that look like numbers */
    {"zip,y\n010,1\n10,2\n010,3\n",
     1,
     {{"data.categories", "zip"}},
     "1 0 | 1\n0 1 | 2\n1 0 | 3\n",
     NULL,
     NULL},
    /* missing values */
    {"x,k,y\n1,a,1\n,b,2\n4,NA,3\nnan,b,4\n",
     1,
     {{"data.missing", "mean"}},
     "1 1 0 | 1\n2.5 0 1 | 2\n4 0 0 | 3\n2.5 0 1 | 4\n",
     NULL,
     "@/train.csv: column x has no value in 2 rows, the first in line 3: the mean, 2.5, stands for "
     "it; column k has no value in 1 rows, the first in line 4: it counts as none of the words; "
     "\"NA\" stands for no value in column k (1 rows): if it is a "
     "word, set data.missing_values: empty, or to the words that stand for none"},
    {"x,k,y\n1,a,1\n?,z,2\n4,b,\n7,b,3\n",
     1,
     {{"data.missing", "drop"}},
     "1 1 0 | 1\n7 0 1 | 3\n",
     NULL,
     "@/train.csv: 2 of 4 rows have a missing value and are left out (data.missing)"},
    {"x,y\n1,None\n2,flu\n3,None\n4,cold\n",
     0,
     {{"data.missing", "drop"}},
     "2 | 1\n4 | 0\n",
     "cold flu",
     "@/train.csv: 2 of 4 rows have a missing value and are left out (data.missing); \"None\" "
     "stands "
     "for no value in column y (2 rows): if it is a class, set data.missing_values: empty, or to "
     "the words that stand for none"},
    /* ... by words of one's own, or by none */
    {"x,k,y\n1,NA,None\n2,nan,flu\n3,?,None\n",
     0,
     {{"data.missing_values", "empty"}},
     "1 0 1 0 | 0\n2 0 0 1 | 1\n3 1 0 0 | 0\n",
     "None flu",
     NULL},
    {"x,k,y\n1,NA,None\n-99,nan,flu\n3,.,None\n,nan,flu\n5,nan,flu\n",
     0,
     {{"data.missing_values", "-99, ."}, {"data.missing", "drop"}},
     "1 1 0 | 0\n5 0 1 | 1\n",
     "None flu",
     "@/train.csv: 3 of 5 rows have a missing value and are left out (data.missing); \".\" stands "
     "for no value in column k (1 rows): if it is a word, set data.missing_values: empty, or to "
     "the words that stand for none"},
    {"x,k,y\nNA,usual,None\n-99,nan,flu\n3,a,flu\n4,usual,cold\n5,a,None\n",
     0,
     {{"data.missing_values", "usual, -99"}, {"data.missing", "drop"}},
     "3 1 0 | 1\n4 0 1 | 0\n",
     "cold flu",
     "@/train.csv: 3 of 5 rows have a missing value and are left out (data.missing); \"nan\" "
     "stands "
     "for no value in column k (1 rows): if it is a word, set data.missing_values: empty, or to "
     "the words that stand for none; \"None\" stands for no value in column y (2 rows): if it is a "
     "class, set data.missing_values: empty, or to the words that stand for none"},
    /* ... a number stands for all its forms, but not in words; a word that no cell has is told */
    {"x,k,y\n-999.0,-999,1\n1,-9.99e2,2\n2,a,3\n3,a,4\n4,-999.0,5\n",
     1,
     {{"data.missing_values", "-999, x, -998"}, {"data.missing", "mean"}, {"data.categories", "k"}},
     "2.5 0 0 0 | 1\n1 1 0 0 | 2\n2 0 0 1 | 3\n3 0 0 1 | 4\n4 0 1 0 | 5\n",
     NULL,
     "@/train.csv: data.missing_values has \"x\", -998, but no cell that is read; column x has no "
     "value in 1 rows, the first in line 2: the mean, 2.5, stands for it; column k has no value in "
     "1 rows, the first in line 2: it counts as none of the words; \"-999\" stands for no value in "
     "column k (1 rows): if it is a word, set data.missing_values: empty, or to the words that "
     "stand for none"},
    /* prices without model.loss: mse; most words are a row's own */
    {"n,y\na,1\nb,2\nc,3\nd,4\ne,5\nf,6\ng,7\nh,8\ni,9\nj,10\nk,11\na,1\na,2\na,3\na,4\na,5\na,6\n"
     "a,7\na,8\na,9\n",
     0,
     {{NULL}},
     NULL,
     "1 2 3 4 5 6 7 8 9 10 11",
     "@/train.csv: column n has 11 different values in 20 rows, each of which is a feature; is it "
     "a name (data.drop)?; column y has 11 different values in 20 rows, each of which is a class; "
     "are they numbers (model.loss: mse)?"},
    /* every tenth row validates */
    {"x,y\n1,0\n2,0\n3,0\n4,0\n5,0\n6,0\n7,0\n8,0\n9,0\n10,1\n11,2\n",
     1,
     {{"data.validation", "every_tenth"}},
     "1 | 0\n2 | 0\n3 | 0\n4 | 0\n5 | 0\n6 | 0\n7 | 0\n8 | 0\n9 | 0\n11 | 2\n",
     NULL,
     NULL},
    /* means are subtracted before numbers become floats, which are 128 apart at 1.7e9 */
    {"t,y\n1700000001,1700000007\n1700000003,1700000009\n",
     1,
     {{"data.normalize.mean", "1700000002"}, {"data.targets.mean", "1700000008"}},
     "-1 | -1\n1 | 1\n",
     NULL,
     NULL},
    {"id,t,y\n16777216,290.1,12\n16777217,290.2,12.1\n",
     1,
     {{NULL}},
     "16777216 290.100006 | 12\n16777216 290.200012 | 12.1000004\n",
     NULL,
     "csv data: networks read float32, which keeps 24 bits of a number: feature id has whole "
     "numbers such as 16777217, which becomes 16777216; set data.normalize: auto, which subtracts "
     "the mean before numbers are rounded, or leave names of things (such as identities) out"},
    {"x,y\n1,90000.01\n2,90000.02\n",
     1,
     {{NULL}},
     "1 | 90000.0078\n2 | 90000.0234\n",
     NULL,
     "csv data: networks read float32, which keeps 24 bits of a number: target y is from "
     "90000.01 to 90000.02, where float32 has steps of 0.00781; set "
     "data.targets: {normalize: auto}, which subtracts the mean before numbers are rounded, or "
     "leave names of things (such as identities) out"},
    /* one number normalises all features; targets are learnt by their own */
    {"a,b,y\n0,255,10\n51,102,30\n",
     1,
     {{"data.normalize.std", "255"}, {"data.targets.mean", "10"}, {"data.targets.std", "10"}},
     "0 1 | 0\n0.200000003 0.400000006 | 2\n",
     NULL,
     NULL},
};

static void tables_are_read(void **state)
{
    char want[1024];

    for (size_t i = 0; i < ARRAY_LEN(good_cases); i++) {
        const struct good_case *c = &good_cases[i];
        struct buf names = {0};
        struct dataset *ds;

        put(*state, "train.csv", c->text);
        ds = open_ok(*state, DATASET_TRAIN, c->numbers, c->more);
        if (c->want)
            expect_samples(ds, c->want);
        for (int64_t k = 0; c->classes && k < ds->spec.field[1].n_classes; k++)
            buf_printf(&names, "%s%s", k ? " " : "", ds->class_names[k]);
        if (c->classes)
            assert_string_equal(buf_cstr(&names), c->classes);
        if (c->warning)
            assert_string_equal(csv_told, fill_in(want, sizeof want, c->warning, *state));
        else
            assert_string_equal(csv_told, "");
        buf_fini(&names);
        dataset_close(ds);
    }
}

/* Without targets there is nothing to compare with, but everything to predict. */
static void targets_may_be_lacking(void **state)
{
    static const struct setting more[] = {
        {"data.validation", "val.csv"}, {"data.target", "b, a"}, {NULL}};
    struct setting s[] = {{"data.path", *state}, more[0], more[1], {NULL}};
    const struct dataset_request r = {
        .purpose = DATASET_VALIDATION, .targets_are_numbers = 1, .may_lack_labels = 1};
    struct dataset *ds = NULL;
    struct err err = {0};

    put(*state, "train.csv", "a,x,b\n1,2,3\n4,5,6\n");
    put(*state, "val.csv", "x\n7\n8\n");
    assert_int_equal(open_set(&ds, &format_csv, s, &r, &err), 0);
    assert_int_equal(ds->has_no_labels, 1);
    expect_samples(ds, "7 | 0 0\n8 | 0 0\n");
    assert_string_equal(ds->class_names[0], "a");
    assert_string_equal(ds->class_names[1], "b");
    dataset_close(ds);
    assert_int_equal(open_table(&ds, *state, DATASET_VALIDATION, 1, more, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "there is no column a, which the training file has"));
    put(*state, "val.csv", "x,b\n7,1\n");
    assert_int_equal(open_set(&ds, &format_csv, s, &r, &err), 0);
    assert_int_equal(ds->has_no_labels, 1);
    expect_samples(ds, "7 | 0 0\n");
    dataset_close(ds);
}

/* ... whatever stands in their columns, and whatever is done with missing values. */
static void predictions_need_no_targets(void **state)
{
    static const struct {
        const char *val;
        int numbers, lacks;
        const char *missing, *want, *told;
    } cases[] = {
        {"x,y\n7,1\n8,2\n", 1, 0, "error", "7 | 1\n8 | 2\n", ""},
        {"x,y\n7,\n8,\n", 1, 1, "error", "7 | 0\n8 | 0\n",
         "2 of 2 rows, the first in line 2, have no target, or one"},
        {"x,y\n7,1\n8,NA\n", 1, 1, "drop", "7 | 0\n8 | 0\n",
         "1 of 2 rows, the first in line 3, have no target, or one"},
        {"x,y\n7,?\n,3\n9,5\n", 1, 1, "drop", "7 | 0\n9 | 0\n",
         "1 of 3 rows have a missing value and are left out (data.missing); 1 of 2 rows, the first "
         "in line 2, have no target, or one"},
        {"x,y\n7,to do\n8,1\n", 1, 1, "mean", "7 | 0\n8 | 0\n",
         "1 of 2 rows, the first in line 2, have no target, or one"},
        {"x,y\n7,3\n8,5\n", 0, 1, "error", "7 | 0\n8 | 0\n",
         "1 of 2 rows, the first in line 3, have no target, or one"},
    };

    put(*state, "train.csv", "x,y\n1,3\n2,4\n");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct setting s[] = {{"data.path", *state},
                                    {"data.validation", "val.csv"},
                                    {"data.missing", cases[i].missing},
                                    {NULL}};
        const struct dataset_request r = {.purpose = DATASET_VALIDATION,
                                          .targets_are_numbers = cases[i].numbers,
                                          .may_lack_labels = 1,
                                          .warn = csv_hear};
        struct dataset *ds = NULL;
        struct err err = {0};

        csv_told[0] = 0;
        put(*state, "val.csv", cases[i].val);
        assert_int_equal(open_set(&ds, &format_csv, s, &r, &err), 0);
        assert_int_equal(ds->has_no_labels, cases[i].lacks);
        expect_samples(ds, cases[i].want);
        assert_int_equal(csv_told[0] != 0, cases[i].told[0] != 0);
        assert_non_null(strstr(csv_told, cases[i].told));
        dataset_close(ds);
    }
}

/* A sample's number is that of its row in the file, those left out included. */
static void rows_keep_their_numbers(void **state)
{
    static const struct setting drop[] = {{"data.missing", "drop"}, {NULL}},
                                tenth[] = {{"data.missing", "drop"},
                                           {"data.validation", "every_tenth"},
                                           {NULL}};
    struct dataset *ds = NULL;

    put(*state, "train.csv",
        "x,y\n0,0\n,1\n2,2\n\n3,3\n4,\n5,5\n6,6\n7,7\n8,8\n9,9\n10,10\n11,11\n12,12\n");
    ds = open_ok(*state, DATASET_TRAIN, 1, drop);
    assert_int_equal(ds->n_samples, 11);
    for (int64_t i = 0; i < ds->n_samples; i++)
        assert_int_equal(ds->ops->number(ds, i), i == 0 ? 0 : i < 3 ? i + 1 : i + 2);
    dataset_close(ds);
    ds = open_ok(*state, DATASET_VALIDATION, 1, tenth);
    assert_int_equal(ds->n_samples, 1);
    assert_int_equal(ds->ops->number(ds, 0), 11);
    dataset_close(ds);
}

/* The names of quoted columns and words, which the table above only reads. */
static void quotes_are_undone(void **state)
{
    static const struct setting more[] = {{"data.target", "the \"best\", k"}, {NULL}};
    struct dataset *ds;

    put(*state, "train.csv",
        "x,\"the \"\"best\"\", k\"\n1,\"a, \"\"b\"\"\"\n2,\" p\nq \"\n3,\"a, \"\"b\"\"\"\n");
    struct err err = {0};
    assert_int_equal(open_table(&ds, *state, DATASET_TRAIN, 0, more, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "train.csv: line 3: column the \"best\", k has byte 0x0a"));
    put(*state, "train.csv",
        "x,\"the \"\"best\"\", k\"\n1,\"a, \"\"b\"\"\"\n2,\" p q \"\n3,\"a, \"\"b\"\"\"\n");
    ds = open_ok(*state, DATASET_TRAIN, 0, more);
    expect_samples(ds, "1 | 1\n2 | 0\n3 | 1\n");
    assert_string_equal(ds->class_names[0], " p q ");
    assert_string_equal(ds->class_names[1], "a, \"b\"");
    assert_string_equal(ds->ops->feature(ds, 0).name, "x");
    dataset_close(ds);
}

/* Columns in another order, words and classes by the training file's numbers, means as well. */
static void validation_follows_training(void **state)
{
    static const struct setting more[] = {
        {"data.validation", "val.csv"}, {"data.missing", "mean"}, {"data.unknown", "none"}, {NULL}};
    static const struct setting tenth[] = {{"data.validation", "every_tenth"}, {NULL}};
    char want[1024];
    struct dataset *ds;

    put(*state, "train.csv", "x,k,label\n1,b,no\n2,c,yes\n6,b,maybe\n");
    put(*state, "val.csv", "note,label,k,x\nhello,yes,c,5\n,no,d,\n,yes,,7\n,no,e,8\n");
    ds = open_ok(*state, DATASET_VALIDATION, 0, more);
    expect_samples(ds, "5 0 1 | 2\n3 0 0 | 1\n7 0 0 | 2\n8 0 0 | 1\n");
    assert_int_equal(ds->spec.field[1].n_classes, 3);
    assert_string_equal(
        csv_told,
        fill_in(want, sizeof want,
                "@/val.csv: column note is not in the training file and is left out; column k has "
                "no value in 1 rows, the first in line 4: it counts as "
                "none of the words; column k has words in 2 rows that the training file does not "
                "have, the first in line 3: they count as none (data.unknown); column x has no "
                "value in 1 rows, the first in line 3: the mean, 3, stands for it",
                *state));
    dataset_close(ds);
    put(*state, "train.csv",
        "x,y\n1,0\n2,0\n3,0\n4,0\n5,0\n6,0\n7,0\n8,0\n9,0\n10,1\n11,2\n12,0\n13,0\n14,0\n15,0\n"
        "16,0\n17,0\n18,0\n19,0\n20,3\n21,0\n");
    ds = open_ok(*state, DATASET_VALIDATION, 1, tenth);
    expect_samples(ds, "10 | 1\n20 | 3\n");
    dataset_close(ds);
}

/* ---- numbers ---- */

static void numbers_are_the_nearest(void **state)
{
    static const char *const texts[] = {
        "0",
        "-0",
        "1",
        "+7",
        "1.",
        ".5",
        "123456789012345678",
        "1234567890123456789",
        "0.30000000000000004",
        "9007199254740993",
        "1e22",
        "1e23",
        "-1E-22",
        "4.35e-23",
        "0.000000000000000000000000000001",
        "2.2250738585072011e-308",
        "1e400",
        "1e-400",
        "179769313486231580793728971405301e276",
        "5e-324",
        "000000000000000000000000000012.5",
        "0.1000000000000000055511151231257827021181583404541015625"};
    static const char *const none[] = {"",    "-",     ".",   "e5",   "1e",
                                       "1e+", "1 2",   "1,5", "0x10", "inf",
                                       "nan", "1e5.0", "--1", "1f",   "\xd9\xa1"};
    uint64_t x = 88172645463325252u;
    double v;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const double want = strtod(texts[i], NULL);

        assert_int_equal(csv_number(&(struct csv_cell){texts[i], strlen(texts[i])}, &v), 1);
        assert_memory_equal(&v, &want, sizeof v);
    }
    for (size_t i = 0; i < ARRAY_LEN(none); i++)
        assert_int_equal(csv_number(&(struct csv_cell){none[i], strlen(none[i])}, &v), 0);
    for (int i = 0; i < 20000; i++) { /* xorshift64 */
        char text[64];
        double want;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        snprintf(text, sizeof text, "%s%llu.%0*llue%d", x & 1 ? "-" : "",
                 (unsigned long long)(x >> (20 + x % 44)), (int)(x >> 8 & 7) + 1,
                 (unsigned long long)(x >> 40) % 100, (int)(x >> 3 & 31) - 16);
        want = strtod(text, NULL);
        assert_int_equal(csv_number(&(struct csv_cell){text, strlen(text)}, &v), 1);
        assert_memory_equal(&v, &want, sizeof v);
    }
}

/* ---- normalisation ---- */

/* Words stay as they are, and a column that is the same in all rows harms nothing. */
static void features_are_measured(void **state)
{
    static const struct setting none[] = {{NULL}};
    struct option_reals mean, std;
    struct dataset *ds;
    struct err err;

    put(*state, "train.csv", "x,k,c,y\n1,a,5,10\n3,b,5,20\n5,a,5,30\n7,b,5,40\n");
    ds = open_ok(*state, DATASET_TRAIN, 1, none);
    assert_int_equal(moments_measure(ds, 0, &mean, &std, &err), 0);
    assert_int_equal(mean.n, 4);
    assert_true(mean.v[0] == 4 && fabs(std.v[0] - sqrt(5)) < 1e-12);
    for (int k = 1; k < 3; k++)
        assert_true(mean.v[k] == 0 && std.v[k] == 1);
    assert_true(mean.v[3] == 5 && std.v[3] == 1);
    assert_int_equal(moments_measure(ds, 1, &mean, &std, &err), 0);
    assert_true(mean.n == 1 && mean.v[0] == 25 && fabs(std.v[0] - sqrt(125)) < 1e-12);
    dataset_close(ds);
    put(*state, "train.csv", "x,y\n1,10\n3,10\n");
    ds = open_ok(*state, DATASET_TRAIN, 1, none);
    assert_int_equal(moments_measure(ds, 1, &mean, &std, &err), ERR_CONFIG);
    assert_string_equal(err.msg, "data.targets.normalize is auto, but output 0 is the same in all "
                                 "samples; leave it out of the array, or give mean and std");
    dataset_close(ds);
    put(*state, "train.csv", "x,z,w,y\n1,1e-200,1e-33,10\n3,2e-200,1e-32,20\n");
    ds = open_ok(*state, DATASET_TRAIN, 1, none);
    assert_int_equal(moments_measure(ds, 0, &mean, &std, &err), ERR_CONFIG);
    assert_string_equal(err.msg, "data.normalize is auto, but features z, w have deviations below "
                                 "1e-30, want larger numbers; multiply them, leave them out of the "
                                 "table, or give mean and std");
    dataset_close(ds);
}

/* Learnt numbers are turned back, from any output on. */
static void targets_are_turned_back(void **state)
{
    static const struct setting more[] = {{"data.target", "a, b"},
                                          {"data.targets.mean", "10,100"},
                                          {"data.targets.std", "2,50"},
                                          {NULL}};
    float y[] = {1, -1, 0, 2};
    struct dataset *ds;

    put(*state, "train.csv", "x,a,b\n1,10,50\n3,14,200\n");
    ds = open_ok(*state, DATASET_TRAIN, 1, more);
    expect_samples(ds, "1 | 0 -1\n3 | 2 2\n");
    targets_undo(ds, 3, y, 4); /* b a b a */
    assert_true(y[0] == 150 && y[1] == 8 && y[2] == 100 && y[3] == 14);
    dataset_close(ds);
}

/* A fingerprint differs with a word, a class, or any number. */
static void fingerprints_see_all(void **state)
{
    static const char *const texts[] = {"x,k,y\n1,a,0\n2,b,1\n", "x,k,y\n1,a,0\n2,c,1\n",
                                        "x,k,y\n1,a,0\n2,b,2\n", "x,k,y\n1,a,0\n3,b,1\n",
                                        "z,k,y\n1,a,0\n2,b,1\n"};
    static const struct setting none[] = {{NULL}};
    struct hash128 prints[ARRAY_LEN(texts)];
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct dataset *ds;

        put(*state, "train.csv", texts[i]);
        ds = open_ok(*state, DATASET_TRAIN, 0, none);
        assert_int_equal(dataset_fingerprint(ds, &prints[i], &err), 0);
        for (size_t k = 0; k < i; k++)
            assert_false(hash_equal(prints[i], prints[k]));
        dataset_close(ds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(tables_are_read),
        IN_FOLDER(quotes_are_undone),
        IN_FOLDER(targets_may_be_lacking),
        IN_FOLDER(predictions_need_no_targets),
        IN_FOLDER(rows_keep_their_numbers),
        IN_FOLDER(validation_follows_training),
        cmocka_unit_test(numbers_are_the_nearest),
        IN_FOLDER(features_are_measured),
        IN_FOLDER(targets_are_turned_back),
        IN_FOLDER(fingerprints_see_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
