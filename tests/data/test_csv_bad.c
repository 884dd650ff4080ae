/* csv: what could be meant in two ways, or is none of a table, is refused, with line, column and
 * value. */
#include "csv_set.h"

static const struct bad_case {
    const char *text;
    int numbers;
    struct setting more[MOST_SETTINGS];
    const char *val;  /* the validation file, which is then opened */
    const char *want; /* behind "csv: FOLDER/train.csv: ", or val.csv */
} bad_cases[] = {
    {"", 0, {{NULL}}, NULL, "the file is empty, want the columns' names and rows"},
    {"x,y\n", 0, {{NULL}}, NULL, "there is no row, want one at least"},
    {"x,y\n1,2\n3\n", 1, {{NULL}}, NULL, "line 3 has 1 cells, want 2, as many as line 1"},
    {"x,y\n1,2\n\"3,4\n",
     1,
     {{NULL}},
     NULL,
     "line 3: cell 1 begins with a quote, and no other ends it"},
    {"x,y\n\"1\"2,2\n",
     1,
     {{NULL}},
     NULL,
     "line 2: cell 1 goes on behind the quote that ends it; a quote inside is written twice"},
    {"x,y\n5\" pipe,2\n",
     1,
     {{NULL}},
     NULL,
     "line 2: cell 1 has a quote inside, but begins with none; want \"a \"\"b\"\"\""},
    {"\xff\xfex\0",
     1,
     {{NULL}},
     NULL,
     "line 1: the text is in UTF-16, want UTF-8; save or convert it as UTF-8"},
    {"x,k,y\n1,caf\xe9,2\n",
     1,
     {{NULL}},
     NULL,
     "line 2: column k has byte 0xe9, which begins no printable character of UTF-8, at its place "
     "4; convert the file"},
    {"1,2\n3,4\n",
     1,
     {{NULL}},
     NULL,
     "line 1 has numbers only, want the columns' names; without such a line set data.header: "
     "false"},
    {"x;y\n1;2\n",
     1,
     {{NULL}},
     NULL,
     "line 1 has one name, with a semicolon in it; want data.delimiter: semicolon?"},
    {"x,x\n1,2\n", 1, {{NULL}}, NULL, "line 1: two columns are called x, want different names"},
    {",x,y\n0,1,2\n",
     1,
     {{NULL}},
     NULL,
     "line 1: column 1 has no name, as the rows' numbers that pandas writes; leave it out by "
     "data.drop: [column 1], or give it a name"},
    {"x,y\n1,2\n",
     1,
     {{"data.target", "price"}},
     NULL,
     "data.target has \"price\", want a column: \"x\", \"y\""},
    {"x,y\n1,2\n",
     1,
     {{"data.drop", "y, z"}},
     NULL,
     "data.drop has \"z\", want a column: \"x\", \"y\""},
    {"x,y\n1,2\n",
     1,
     {{"data.drop", "x"}},
     NULL,
     "of 2 columns 1 are targets and 0 features, want one target and one feature at least; see "
     "data.target, data.drop and data.delimiter"},
    {"x,y,z\n1,2,3\n",
     0,
     {{"data.target", "y, z"}},
     NULL,
     "data.target has 2 columns, want one with model.loss: cross_entropy"},
    /* numbers */
    {"x,y\n1,2\n\"1,5\",3\n",
     1,
     {{NULL}},
     NULL,
     "line 3: column x is \"1,5\", want a decimal point; or name the column in data.categories"},
    {"x,y\n\"1,5\",3\n",
     1,
     {{NULL}},
     NULL,
     "line 2: column x is \"1,5\", want a decimal point; or name the column in data.categories"},
    {"x,y\n1,2\n1O,3\n",
     1,
     {{NULL}},
     NULL,
     "line 3: column x is \"1O\", want a number as in line 2 of the training file; mend it, or "
     "name the column in data.categories"},
    {"x,y\na,2\n10,3\n",
     1,
     {{NULL}},
     NULL,
     "line 3: column x is 10, want a word as in line 2 of the training file; mend it, or name the "
     "column in data.categories"},
    {"x,y\n1,2\n0x10,3\n",
     1,
     {{NULL}},
     NULL,
     "line 3: column x is \"0x10\", want a number as in line 2 of the training file; mend it, or "
     "name "
     "the column in data.categories"},
    /* ... of which the first cell is the wrong one */
    {"x,y\ninf,2\n10,3\n",
     1,
     {{NULL}},
     NULL,
     "line 2: column x is \"inf\", want a decimal number, as line 3 has 10; mend it, or name the "
     "column in data.categories"},
    {"x,y\n0x1F,2\n0x2a,2\n10,3\n",
     1,
     {{NULL}},
     NULL,
     "line 2: column x is \"0x1F\", want a decimal number, as line 4 has 10; mend it, or name the "
     "column in data.categories"},
    {"x,y\n0xbox,2\n10,3\n",
     1,
     {{NULL}},
     NULL,
     "line 3: column x is 10, want a word as in line 2 of the training file; mend it, or name the "
     "column in data.categories"},
    {"x,y\n1,2\n1e39,3\n",
     1,
     {{NULL}},
     NULL,
     "line 3: column x is 1e39, want a number that a float32 holds, of at most 3.4e38"},
    {"x,y\n1,2\n2,high\n",
     1,
     {{NULL}},
     NULL,
     "line 3: column y is \"high\", want a number, as model.loss is no cross_entropy"},
    /* classes */
    {"x,y\n1,2\n2,2.5\n",
     0,
     {{NULL}},
     NULL,
     "column y, the target, has 2.5, want whole numbers or words with model.loss: cross_entropy; "
     "for numbers set model.loss: mse"},
    {"x,y\n1,1\n2,1.0\n",
     0,
     {{NULL}},
     NULL,
     "column y, the target, has 1 and 1.0, which are the same number; want one form"},
    {"x,y\n1,a\n2,a\n",
     0,
     {{NULL}},
     NULL,
     "column y, the target, is a in all rows, want two classes"},
    /* missing values */
    {"x,k,y\n1,a,2\n,,2\nNA,b,3\n",
     1,
     {{NULL}},
     NULL,
     "line 3: column x has no value; in all 2 in column x, 1 in column k. Set data.missing: drop "
     "to leave such rows out, or mean to put the training file's mean (of words: none) in their "
     "place, or leave columns out by data.drop"},
    {"x,y\n1,2\n2,\n",
     1,
     {{"data.missing", "mean"}},
     NULL,
     "line 3: column y, a target, has no value (1 rows); want data.missing: drop, which leaves "
     "such rows out"},
    {"x,y\n1,None\n2,flu\n",
     0,
     {{NULL}},
     NULL,
     "line 2: column y has no value; in all 1 in column y. Set data.missing: drop to leave such "
     "rows out, or mean to put the training file's mean (of words: none) in their place, or leave "
     "columns out by data.drop; \"None\" stands for no value in column y (1 rows): if it is a "
     "class, set data.missing_values: empty, or to the words that stand for none"},
    {"x,e,y\n1,,2\n2,,3\n",
     1,
     {{"data.missing", "mean"}},
     NULL,
     "column e has no value in any row; leave it out by data.drop"},
    {"x,y\n,2\n",
     1,
     {{"data.missing", "drop"}},
     NULL,
     "there is no row without a missing value, want one at least"},
    {"x,y\n1,2\n3,4\n", 1, {{"data.validation", "every_tenth"}}, NULL, NULL},
    /* the validation file */
    {"x,k,y\n1,a,0\n2,b,1\n",
     0,
     {{NULL}},
     "x,k,y\n1,a,0\n1,c,1\n",
     "line 3: column k is \"c\", want one of the 2 words of the training file; with data.unknown: "
     "none it counts as none of them"},
    {"x,y\n1,0\n2,1\n",
     0,
     {{NULL}},
     "x,y\n1,2\n",
     "line 2: column y is 2, want one of the 2 classes of the training file"},
    {"x,z,y\n1,3,0\n2,4,1\n",
     0,
     {{NULL}},
     "x,y\n1,0\n",
     "there is no column z, which the training file has; want the same columns, in any order"},
    {"x,y\n1,0\n2,1\n",
     0,
     {{NULL}},
     "x,y\nten,0\n",
     "line 2: column x is \"ten\", want a number as in line 2 of the training file; mend it, or "
     "name the column in data.categories"},
};

static void doubtful_tables_are_refused(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(bad_cases); i++) {
        const struct bad_case *c = &bad_cases[i];
        const enum dataset_purpose p = c->val ? DATASET_VALIDATION : DATASET_TRAIN;
        struct setting more[MOST_SETTINGS] = {{NULL}};
        char want[1024];
        struct dataset *ds;
        struct err err = {0};
        int rc;

        memcpy(more, c->more, sizeof more);
        if (c->val)
            more[0] = (struct setting){"data.validation", "val.csv"};
        put(*state, "train.csv", c->text);
        put(*state, "val.csv", c->val ? c->val : "");
        rc = open_table(&ds, *state, p, c->numbers, more, &err);
        assert_true(rc == ERR_CORRUPT || rc == ERR_CONFIG);
        snprintf(want, sizeof want, "csv: %s/%s: %s", (char *)*state,
                 c->val ? "val.csv" : "train.csv", c->want ? c->want : "");
        if (!c->want)
            snprintf(want, sizeof want,
                     "csv: %s/train.csv has 2 rows, want at least 10 with data.validation: "
                     "every_tenth",
                     (char *)*state);
        assert_string_equal(err.msg, want);
    }
}

static void keys_are_checked(void **state)
{
    static const struct {
        int numbers, shares;
        int64_t ignored;
        struct setting more;
        const char *want;
    } cases[] = {
        {0,
         0,
         7,
         {NULL},
         "csv: train.ignore_index is 7, but the classes of a table are numbered by their values; "
         "leave the key out, and such rows out of the file"},
        {0,
         0,
         SAMPLE_IGNORED,
         {"data.normalize.mean", "1,2"},
         "csv: data.normalize.mean has 2 numbers, want 1, one for each feature"},
        {0,
         0,
         SAMPLE_IGNORED,
         {"data.targets.normalize", "auto"},
         "csv: data.targets has mean and std, or normalize: auto, but the targets are classes, "
         "want real numbers and model.loss: mse or l1"},
        {1,
         1,
         SAMPLE_IGNORED,
         {"data.targets.mean", "1"},
         "csv: data.targets has mean and std, or normalize: auto, but the targets are from 0 to 1, "
         "as model.loss: bce wants them; leave data.targets out"},
        {1,
         0,
         SAMPLE_IGNORED,
         {"data.targets.std", "1,2"},
         "csv: data.targets.std has 2 numbers, want 1, one for each output"},
        {0,
         0,
         SAMPLE_IGNORED,
         {"data.missing_values", "empty, -99"},
         "data.missing_values is empty, -99, but empty says that no word stands for no value; want "
         "empty alone, or the list without it: an empty cell has no value in any case"},
    };

    put(*state, "train.csv", "x,y\n1,0\n2,1\n");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct setting s[] = {{"data.path", *state}, cases[i].more, {NULL}};
        const struct dataset_request r = {.ignored = &cases[i].ignored,
                                          .targets_are_numbers = cases[i].numbers,
                                          .targets_are_fractions = cases[i].shares};
        struct dataset *ds;
        struct err err = {0};

        assert_int_equal(open_set(&ds, &format_csv, s, &r, &err), ERR_CONFIG);
        assert_string_equal(err.msg, cases[i].want);
    }
    const struct setting s[] = {{"data.path", *state}, {NULL}};
    const struct dataset_request r = {.targets_are_numbers = 1, .targets_are_fractions = 1};
    struct dataset *ds;
    struct err err = {0};

    put(*state, "train.csv", "x,y\n1,0\n2,1.5\n");
    assert_int_equal(open_set(&ds, &format_csv, s, &r, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "line 3: column y is 1.5, want 0 to 1 with model.loss: bce"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(doubtful_tables_are_refused),
        IN_FOLDER(keys_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
