/* csv - tables in text, such as spreadsheets write: a line for each sample, a column for each
 * feature and for the target.
 *
 *     x   [F]   a column of numbers is one feature; a column of words is one feature for each word
 *               of the training file, 1 for the row's word and 0 for the others
 *     y   []    model.loss: cross_entropy: a class for each different value of the target's column
 *         [K]   other losses: the numbers of the K columns of data.target
 *
 * A text has no types, so model.loss decides what the target is.  Classes and words are numbered in
 * their order, which follows from the training file alone; whole numbers are in the order of their
 * values.  The files are read into memory (data/csv_table.h).
 *
 * data.normalize is of the features, and leaves words as they are. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "data/csv_table.h"
#include "data/dataset.h"

enum { X, Y };

static const char every_tenth[] = "every_tenth";

static const char *const delimiters[] = {CSV_DELIMITER_LIST(WORD_NAME) NULL};
static const char *const missings[] = {CSV_MISSING_LIST(WORD_NAME) NULL};
static const char *const unknowns[] = {CSV_UNKNOWN_LIST(WORD_NAME) NULL};

/* The rows of the file that are this data set's. */
enum part { ALL, NINE_TENTHS, ONE_TENTH };

struct csv {
    struct dataset base;
    struct csv_table train, other;
    const struct csv_table *t; /* the one whose rows are samples */
    enum part part;
    const struct csv_column **feature; /* [F] the column of each feature */
    const char **names;                /* of the classes, or of the columns of targets */
};

/* ---- samples ---- */

/* The row of a sample, among those that were kept. */
static int64_t csv_row_of(const struct csv *c, int64_t i)
{
    return c->part == NINE_TENTHS ? i + i / 9 : c->part == ONE_TENTH ? 10 * i + 9 : i;
}

static const double *cells_of(const struct csv *c, int64_t i)
{
    return c->t->cell + csv_row_of(c, i) * c->t->n_cells;
}

static void fill_features(const struct csv *c, const double *cell, double *to)
{
    const struct csv_table *t = &c->train;

    memset(to, 0, (size_t)t->n_features * sizeof *to);
    for (int i = 0; i < t->n_columns; i++) {
        const struct csv_column *col = &t->column[i];

        if (col->role != CSV_FEATURE)
            continue;
        if (col->kind == CSV_NUMBER)
            to[col->feature] = cell[col->cell];
        else if (cell[col->cell] >= 0)
            to[col->feature + (int64_t)cell[col->cell]] = 1;
    }
}

static void fill_target(const struct csv *c, const double *cell, void *to)
{
    const struct csv_table *t = &c->train;
    double *real = to;

    for (int i = 0; i < t->n_columns; i++) {
        const struct csv_column *col = &t->column[i];

        if (col->role == CSV_TARGET && col->kind == CSV_NUMBER)
            *real++ = cell[col->cell];
        else if (col->role == CSV_TARGET)
            *(int32_t *)to = (int32_t)cell[col->cell];
    }
}

static int csv_row(const struct dataset *ds, int64_t i, int field, void *room, const void **row,
                   struct err *err)
{
    const struct csv *c = container_of(ds, struct csv, base);

    (void)err;
    if (field == X)
        fill_features(c, cells_of(c, i), room);
    else
        fill_target(c, cells_of(c, i), room);
    *row = room;
    return 0;
}

static struct dataset_feature csv_feature(const struct dataset *ds, int64_t number)
{
    const struct csv_column *col = container_of(ds, struct csv, base)->feature[number];

    return (struct dataset_feature){.name = col->name, .is_word = col->kind == CSV_WORD};
}

static int64_t csv_number_of(const struct dataset *ds, int64_t i)
{
    const struct csv *c = container_of(ds, struct csv, base);
    const int64_t row = csv_row_of(c, i);

    return c->t->number_in_file ? c->t->number_in_file[row] : row;
}

/* The scheme gives numbers in features and targets their meaning: columns and words, in order. */
static void hash_scheme(const struct csv_table *t, struct hasher *h)
{
    for (int i = 0; i < t->n_columns; i++) {
        const struct csv_column *col = &t->column[i];

        if (col->role == CSV_DROPPED)
            continue;
        hasher_add_text(h, col->name);
        hasher_add_i64(h, col->role);
        hasher_add_i64(h, col->kind);
        hasher_add_i64(h, col->words.n);
        for (int32_t k = 0; k < col->words.n; k++)
            hasher_add_text(h, col->words.word[k].name);
    }
}

/* All cells count: they are in memory. */
static int csv_print(const struct dataset *ds, struct hasher *h, struct err *err)
{
    const struct csv *c = container_of(ds, struct csv, base);

    (void)err;
    hash_scheme(&c->train, h);
    hasher_add(h, c->t->cell, (size_t)(c->t->n_rows * c->t->n_cells) * sizeof *c->t->cell);
    return 0;
}

static void csv_close(struct dataset *ds)
{
    struct csv *c = container_of(ds, struct csv, base);

    csv_table_fini(&c->train);
    csv_table_fini(&c->other);
    free(c->feature);
    free(c->names);
    free(c);
}

static const struct dataset_ops csv_ops = {.name = "csv",
                                           .row = csv_row,
                                           .close = csv_close,
                                           .print = csv_print,
                                           .feature = csv_feature,
                                           .number = csv_number_of};

/* ---- opening ---- */

/* The columns of the features, and the names of the classes, or of the columns of targets. */
static int32_t note_columns(struct csv *c)
{
    const struct csv_table *t = &c->train;
    int32_t n_classes = 0;
    int n = 0;

    c->feature = xcalloc((size_t)t->n_features, sizeof *c->feature);
    c->names = xcalloc((size_t)t->n_targets, sizeof *c->names);
    for (int i = 0; i < t->n_columns; i++) {
        const struct csv_column *col = &t->column[i];
        const int32_t n_words = col->kind == CSV_WORD ? col->words.n : 1;

        for (int32_t k = 0; col->role == CSV_FEATURE && k < n_words; k++)
            c->feature[col->feature + k] = col;
        if (col->role == CSV_TARGET && col->kind == CSV_NUMBER)
            c->names[n++] = col->name;
        if (col->role != CSV_TARGET || col->kind != CSV_WORD)
            continue;
        n_classes = n_words; /* there is one target */
        c->names = xrealloc(c->names, (size_t)n_words * sizeof *c->names);
        for (int32_t k = 0; k < n_words; k++)
            c->names[k] = col->words.word[k].name;
    }
    c->base.class_names = c->names;
    return n_classes;
}

static void csv_make_spec(struct csv *c)
{
    struct sample_spec *s = &c->base.spec;
    const int32_t n_classes = note_columns(c);

    s->n_fields = 2;
    s->field[X] = (struct sample_field){.name = "x",
                                        .role = SAMPLE_INPUT,
                                        .dtype = DTYPE_F32,
                                        .shape = SHAPE(c->train.n_features),
                                        .stored = DTYPE_F64,
                                        .scale = SAMPLE_AS_IS};
    s->field[Y] =
        (struct sample_field){.name = "y",
                              .role = n_classes ? SAMPLE_CLASS : SAMPLE_REAL,
                              .dtype = n_classes ? DTYPE_I32 : DTYPE_F32,
                              .shape = n_classes ? (struct shape){0} : SHAPE(c->train.n_targets),
                              .n_classes = n_classes,
                              .stored = n_classes ? DTYPE_I32 : DTYPE_F64,
                              .scale = SAMPLE_AS_IS};
    c->base.room_bytes = (size_t)round_up_i64(
        max_i64(c->train.n_features, c->train.n_targets) * (int64_t)sizeof(double), SAMPLE_ALIGN);
}

/* Log what the columns were taken for: once, before a run has its scheme. */
static void log_scheme(const struct csv_table *t, const char *path)
{
    struct buf targets = {0};
    int n[2] = {0}, n_classes = 0, n_named = 0;

    for (int i = 0; i < t->n_columns; i++) {
        const struct csv_column *col = &t->column[i];

        if (col->role == CSV_FEATURE)
            n[col->kind == CSV_WORD]++;
        else if (col->role == CSV_TARGET && n_named++ < 8)
            buf_printf(&targets, "%s%s", n_named > 1 ? ", " : "", col->name);
        if (col->role == CSV_TARGET && col->kind == CSV_WORD)
            n_classes = col->words.n;
    }
    if (n_classes)
        buf_printf(&targets, " of %d classes", n_classes);
    log_info("%s: %lld rows; target %s%s; %lld features, of %d columns of numbers and %d of words",
             path, (long long)t->n_rows, buf_cstr(&targets), n_named > 8 ? " and more" : "",
             (long long)t->n_features, n[0], n[1]);
    buf_fini(&targets);
}

/* A run's scheme is that of the training file that it began with. */
static int check_scheme(struct csv *c, const char *path, const char *wanted, struct err *err)
{
    struct hasher *h = hasher_new();

    hash_scheme(&c->train, h);
    hash_to_text(hasher_end(h), c->base.scheme);
    hasher_free(h);
    if (!wanted || !strcmp(wanted, c->base.scheme))
        return 0;
    return err_set(err, ERR_CONFIG,
                   "data.scheme is %s, but that of %s is %s: its columns, words or classes are not "
                   "those that the run began with, so the network would take one for another; want "
                   "the old file, or a new run",
                   wanted, path, c->base.scheme);
}

static int count_samples(struct csv *c, const char *path, struct err *err)
{
    const int64_t n = c->t->n_rows;

    if (c->part != ALL && n < 10)
        return err_set(err, ERR_CONFIG,
                       "%s has %lld rows, want at least 10 with data.validation: %s", path,
                       (long long)n, every_tenth);
    c->base.n_samples = c->part == NINE_TENTHS ? n - n / 10 : c->part == ONE_TENTH ? n / 10 : n;
    return 0;
}

static char *csv_path_of(const struct csv_options *o, const char *name)
{
    return name[0] == '/' ? xstrdup(name) : xasprintf("%s/%s", o->path, name);
}

static int read_tables(struct csv *c, const struct csv_options *o,
                       const struct dataset_request *request, struct err *err)
{
    const struct csv_rules rules = {.targets_are_numbers = request->targets_are_numbers ||
                                                           request->targets_are_fractions,
                                    .targets_are_fractions = request->targets_are_fractions,
                                    .may_lack_targets = request->may_lack_labels};
    const int is_other = request->purpose == DATASET_VALIDATION && c->part == ALL;
    char *train = csv_path_of(o, o->train),
         *other = is_other ? csv_path_of(o, o->validation) : NULL;
    struct buf told = {0};
    int rc = csv_table_read(&c->train, train, o, &rules, NULL, err);

    c->t = is_other ? &c->other : &c->train;
    if (rc == 0)
        rc = check_scheme(c, train, o->scheme, err);
    if (rc == 0 && !o->scheme && request->purpose == DATASET_TRAIN && !request->names_only)
        log_scheme(c->t, train);
    if (rc == 0 && is_other)
        rc = csv_table_read(&c->other, other, o, &rules, &c->train, err);
    c->base.has_no_labels = c->t->lacks_targets;
    if (rc == 0)
        rc = count_samples(c, is_other ? other : train, err);
    if (rc == 0 && c->part != ONE_TENTH) /* it is told of with the others */
        csv_table_tell(c->t, is_other ? other : train, o, &told);
    if (told.len > 0)
        dataset_warn(request, "%s", buf_cstr(&told));
    buf_fini(&told);
    free(train);
    free(other);
    return rc;
}

/* One number for mean or std is for all features. */
static int csv_prepare(struct csv *c, const struct csv_options *o,
                       const struct dataset_request *request, struct err *err)
{
    const struct option_reals *mean = &o->image.mean, *std = &o->image.std;
    const int is_one = mean->n <= 1 && std->n <= 1;

    if (!is_one && normalize_check(&o->image, c->train.n_features, "feature", err) < 0)
        return err->code;
    image_prepare(&c->base, &o->image, request->purpose);
    return targets_prepare(&c->base, &o->targets, request, err);
}

static int csv_open(struct dataset **out, const void *options,
                    const struct dataset_request *request, struct err *err)
{
    const struct csv_options *o = options;
    const int is_train = request->purpose == DATASET_TRAIN,
              is_cut = o->validation && !strcmp(o->validation, every_tenth);
    struct csv *c;
    int rc;

    if (!is_train && !o->validation)
        return DATASET_NONE;
    if (request->ignored && *request->ignored != SAMPLE_IGNORED)
        return err_set(err, ERR_CONFIG,
                       "csv: train.ignore_index is %lld, but the classes of a table are numbered "
                       "by their values; leave the key out, and such rows out of the file",
                       (long long)*request->ignored);
    c = xcalloc(1, sizeof *c);
    c->base.ops = &csv_ops;
    c->part = !is_cut ? ALL : is_train ? NINE_TENTHS : ONE_TENTH;
    rc = read_tables(c, o, request, err);
    if (rc == 0) {
        csv_make_spec(c);
        rc = csv_prepare(c, o, request, err);
    }
    if (rc < 0) {
        dataset_close(&c->base);
        return err_wrap(err, "csv");
    }
    *out = &c->base;
    return 0;
}

static int csv_check(const void *options, struct err *err)
{
    const struct csv_options *o = options;

    if (!strcmp(o->missing_values, CSV_EMPTY) || !csv_list_has_name(o->missing_values, CSV_EMPTY))
        return 0;
    return err_set(err, ERR_CONFIG,
                   "data.missing_values is %s, but " CSV_EMPTY " says that no word stands for no "
                   "value; want " CSV_EMPTY " alone, or the list without it: an empty cell has no "
                   "value in any case",
                   o->missing_values);
}

#define AT(field) offsetof(struct csv_options, field)

static const struct option rows[] = {
    {"data.path", OPT_PATH, AT(path), NULL, .flags = OPT_REQUIRED | OPT_RESUME,
     .help = "The folder of the data on every rank; a follower's --data overrides it there."},
    {"data.train", OPT_STRING, AT(train), "train.csv",
     .help = "The training file. Its columns, words and classes are those of the job."},
    {"data.validation", OPT_STRING, AT(validation), NULL,
     .help = "The validation file, with the same columns in any order; every_tenth: rows 10, 20, "
             "30 ... of the training file validate, and the others train. Without it, or with "
             "none, nothing is validated."},
    {"data.target", OPT_STRING, AT(target), NULL, .flags = OPT_MANY,
     .help = "The name of the target's column. Without it, it is the last one that is not "
             "dropped. Several columns are several outputs, if model.loss is not cross_entropy."},
    {"data.drop", OPT_STRING, AT(drop), NULL, .flags = OPT_MANY,
     .help = "The names of columns that are left out."},
    {"data.categories", OPT_STRING, AT(categories), NULL, .flags = OPT_MANY,
     .help = "The names of columns whose values are words even where they look like numbers, such "
             "as postal codes. Without them a column holds numbers or words as its first value "
             "says, and a value of the other kind is refused."},
    {"data.delimiter", OPT_CHOICE, AT(delimiter), "comma", .choices = delimiters,
     .help = "The character between the cells of a line."},
    {"data.header", OPT_BOOL, AT(header), "true",
     .help = "The first line has the names of the columns; without it they are \"column 1\" and so "
             "on."},
    {"data.missing", OPT_CHOICE, AT(missing), "error", .choices = missings,
     .help = "Cells without a value (data.missing_values). error: they are refused, with line and "
             "column; drop: their rows are left out; mean: the training file's mean stands for a "
             "number, and no word for a word. Their number is told."},
    {"data.missing_values", OPT_STRING, AT(missing_values), CSV_USUAL, .flags = OPT_MANY,
     .help = "The words that stand for no value, besides empty cells: a list; or usual: NA, N/A, "
             "n/a, #N/A, <NA>, nan, NaN, null, None, NaT and ?, which may stand in a list beside "
             "others; or empty: none, so that None and NA are words as others."},
    {"data.unknown", OPT_CHOICE, AT(unknown), "error", .choices = unknowns,
     .help = "Words of the validation file that the training file does not have. error: they are "
             "refused, with line and column; none: all features of the column are 0."},
    {"data.scheme", OPT_STRING, AT(scheme), NULL,
     .help = "The hash of the training file's columns, words and classes. The driver sets it, and "
             "job.yaml has it: a run does not go on, and is not evaluated, with another file, "
             "whose words have other numbers."},
    {"data.normalize.source", OPT_CHOICE, AT(image.normalize), "given", .choices = normalize_names,
     .flags = OPT_SHORT,
     .help = "auto, for which data.normalize: auto is short: mean and standard deviation are those "
             "of the training set's columns of numbers; features of words stay 0 and 1. The "
             "driver measures them, and job.yaml has them."},
    {"data.normalize.mean", OPT_REALS, AT(image.mean), "[]", -MOST_REAL, MOST_REAL,
     .only = "data.normalize.source", .only_values = 1u << NORMALIZE_GIVEN,
     .help = "These numbers are subtracted from the features, one for each, or one for all."},
    {"data.normalize.std", OPT_REALS, AT(image.std), "[]", LEAST_REAL, MOST_REAL,
     .only = "data.normalize.source", .only_values = 1u << NORMALIZE_GIVEN,
     .help = "The features are then divided by these numbers."},
    TARGETS_ROWS(struct csv_options, targets),
};

const struct data_format format_csv = {
    .group = {.name = "csv",
              .help = "tables in text, of numbers and words",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct csv_options),
              .check = csv_check},
    .open = csv_open,
    .knows_names = 1,
};
