/* Tables in text: which column is the target, which ones are left out, and what the cells are, as
 * the first rows tell. */
#include "driver/init_find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/util.h"
#include "data/csv_file.h"
#include "data/mapped.h"

enum {
    MOST_ROWS = 5000,  /* that are looked at */
    MOST_VALUES = 256, /* different ones of a column that are told apart */
    MOST_COLUMNS = 4096,
    MOST_CLASSES = 20, /* whole numbers with more values are amounts */
    MOST_FEATURES_OF_WORDS = 200,
};

/* The facts about a column that the first rows tell. */
struct init_column {
    char *name;
    int64_t n_numbers, n_words, n_missing;
    int is_whole, is_negative;
    uint64_t value[MOST_VALUES]; /* hashes of its different values */
    int n_values, has_more;      /* has_more: there are others */
};

struct init_table {
    const char *file;
    char delimiter;
    int has_header, n, is_cut; /* is_cut: there are more rows than were looked at */
    int64_t n_rows;
    struct init_column *column; /* [n] */
};

static uint64_t table_hash(const struct csv_cell *c) { return hash_of(c->text, c->len).lo; }

static void table_take(struct init_column *c, const struct csv_cell *cell)
{
    const uint64_t h = table_hash(cell);
    double v;
    int i = 0;

    if (cell->len == 0 || csv_is_usual_missing(cell)) {
        c->n_missing++;
        return;
    }
    if (csv_number(cell, &v)) {
        c->n_numbers++;
        c->is_whole &= v > -1e9 && v < 1e9 && (double)(int64_t)v == v;
        c->is_negative |= v < 0;
    } else {
        c->n_words++;
    }
    while (i < c->n_values && c->value[i] != h)
        i++;
    if (i == c->n_values && i < MOST_VALUES)
        c->value[c->n_values++] = h;
    else
        c->has_more |= i == MOST_VALUES;
}

/* The character that most often stands in the first line. */
static char table_delimiter(const uint8_t *b, size_t n)
{
    static const char known[] = ",;\t";
    size_t count[3] = {0};
    int best = 0;

    for (size_t i = 0; i < n && b[i] != '\n' && b[i] != '\r'; i++)
        for (int k = 0; k < 3; k++)
            count[k] += b[i] == (uint8_t)known[k];
    for (int k = 1; k < 3; k++)
        best = count[k] > count[best] ? k : best;
    return known[best];
}

/* The name in a cell, where a quote inside quotes is written twice. */
static char *table_name(const struct csv_cell *c)
{
    char *name = xmalloc(c->len + 1);
    size_t n = 0;

    for (size_t i = 0; i < c->len; i++) {
        name[n++] = c->text[i];
        i += c->text[i] == '"' && i + 1 < c->len && c->text[i + 1] == '"';
    }
    name[n] = '\0';
    return name;
}

/* A first line without a number has the names of the columns. */
static void table_begin(struct init_table *t, const struct csv_reader *r)
{
    double v;

    t->n = (int)min_i64(r->n_cells, MOST_COLUMNS);
    t->column = xcalloc((size_t)max_i64(t->n, 1), sizeof *t->column);
    t->has_header = 1;
    for (int i = 0; i < t->n; i++)
        t->has_header &= !csv_number(&r->cell[i], &v);
    for (int i = 0; i < t->n; i++) {
        t->column[i].name = t->has_header ? table_name(&r->cell[i]) : xasprintf("column %d", i + 1);
        t->column[i].is_whole = 1;
        if (!t->has_header)
            table_take(&t->column[i], &r->cell[i]);
    }
    t->n_rows = !t->has_header;
}

static int table_read(struct init_table *t, const struct init_look *l, struct err *err)
{
    char *path = init_look_join(l, t->file);
    struct mapped file = {0};
    struct csv_reader r = {0};
    int rc = mapped_open(&file, path, err);

    if (rc == 0) {
        t->delimiter = table_delimiter(file.bytes, file.n_bytes);
        rc = csv_begin(&r, file.bytes, file.n_bytes, t->delimiter, err);
    }
    if (rc == 0)
        rc = csv_next(&r, err);
    if (rc == 0)
        table_begin(t, &r);
    while (rc == 0 && t->n_rows < MOST_ROWS) {
        rc = csv_next(&r, err);
        for (int i = 0; rc == 0 && i < t->n && i < r.n_cells; i++)
            table_take(&t->column[i], &r.cell[i]);
        t->n_rows += rc == 0;
    }
    t->is_cut = rc == 0;
    csv_end(&r);
    mapped_close(&file);
    rc = rc < 0 ? err_wrap(err, "%s", path) : 0;
    free(path);
    return rc;
}

static void table_free_columns(struct init_table *t)
{
    for (int i = 0; i < t->n; i++)
        free(t->column[i].name);
    free(t->column);
}

/* ---- columns ---- */

/* A column whose name says that it is the target, or else the last one. */
static int table_target(const struct init_table *t)
{
    static const char *const names[] = {"target", "label",   "labels",  "class",
                                        "y",      "outcome", "species", NULL};

    for (int k = 0; names[k]; k++)
        for (int i = 0; i < t->n; i++)
            if (!strcasecmp(t->column[i].name, names[k]))
                return i;
    return t->n - 1;
}

/* The reason to leave a column of features out; NULL: there is none. */
static const char *table_reason(const struct init_table *t, const struct init_column *c)
{
    static const char *const numbers[] = {"id", "index", "no", "nr", "row", "unnamed: 0", ""};

    if (c->n_values == 0)
        return "it has no values";
    if (c->n_values == 1 && !c->n_missing)
        return "all its values are the same";
    if (c->n_words == 0 && c->is_whole)
        for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
            if (!strcasecmp(c->name, numbers[i]))
                return "it counts the rows";
    if (c->n_words > 0 && (c->has_more || c->n_values > MOST_FEATURES_OF_WORDS ||
                           (t->n_rows > 20 && c->n_values == t->n_rows)))
        return "it has too many different words";
    return NULL;
}

/* Words, and whole numbers with few values, are classes. */
static int table_is_class(const struct init_column *c)
{
    return c->n_words > 0 || (c->is_whole && !c->is_negative && !c->has_more &&
                              c->n_values <= MOST_CLASSES && c->n_numbers > c->n_values);
}

static void table_set_columns(const struct init_table *t, int target, struct init_job *j)
{
    const char **drop = xcalloc((size_t)t->n, sizeof *drop),
               **mixed = xcalloc((size_t)t->n, sizeof *mixed);
    int n_drop = 0, n_mixed = 0, n_words = 0;
    int64_t n_missing = 0;

    for (int i = 0; i < t->n; i++) {
        const struct init_column *c = &t->column[i];
        const char *why = i == target ? NULL : table_reason(t, c);

        if (why) {
            init_note(j, "The column %s is left out (data.drop): %s.", c->name, why);
            drop[n_drop++] = c->name;
            continue;
        }
        n_missing += i == target ? 0 : c->n_missing;
        n_words += i != target && c->n_words > 0;
        if (i != target && c->n_words > 0 && c->n_numbers > 0)
            mixed[n_mixed++] = c->name;
    }
    if (n_drop > 0)
        init_set_texts(j, "data.drop", drop, n_drop);
    if (n_mixed > 0)
        init_set_texts(j, "data.categories", mixed, n_mixed);
    if (n_missing > 0)
        init_set(j, "data.missing", "mean");
    if (n_words > 0)
        init_set(j, "data.unknown", "none");
    if (n_words < t->n - n_drop - 1)
        init_set(j, "data.normalize.source", "auto");
    free(drop);
    free(mixed);
}

/* ---- the files ---- */

static int table_is(const char *name) { return init_ends(name, ".csv") || init_ends(name, ".tsv"); }

/* train.csv, else the first table that does not validate; NULL: there is no table. */
static const char *table_find_training(const struct init_look *l, const char *validation)
{
    const char *found = NULL;

    for (int i = 0; i < l->n; i++)
        if (table_is(l->name[i]) && (!validation || strcmp(l->name[i], validation) != 0) &&
            (!found || (!strncasecmp(l->name[i], "train", 5) && strncasecmp(found, "train", 5))))
            found = l->name[i];
    return found;
}

static const char *table_find_validation(const struct init_look *l)
{
    for (int k = 0; init_validation_names[k]; k++)
        for (int i = 0; i < l->n; i++)
            if (table_is(l->name[i]) && !strncasecmp(l->name[i], init_validation_names[k],
                                                     strlen(init_validation_names[k])))
                return l->name[i];
    return NULL;
}

/* 1: the file has the training file's target, too: some tables are for predictions alone. */
static int table_has_target(const struct init_look *l, const char *file, const char *target)
{
    struct init_table t = {.file = file};
    struct err err;
    int found = 0;

    if (table_read(&t, l, &err) == 0)
        for (int i = 0; i < t.n; i++)
            found |= !strcmp(t.column[i].name, target) && t.column[i].n_missing == 0;
    table_free_columns(&t);
    return found;
}

static void table_settle(const struct init_table *t, const struct init_look *l,
                         const char *validation, struct init_job *j)
{
    const int target = table_target(t);
    const struct init_column *y = &t->column[target];

    if (validation && !table_has_target(l, validation, y->name)) {
        init_note(j, "%s has no values of %s, so that it does not validate.", validation, y->name);
        validation = NULL;
    }
    init_set_text(j, "data.path", l->folder);
    init_set_text(j, "data.train", t->file);
    if (validation)
        init_set_text(j, "data.validation", validation);
    else
        init_set(j, "data.validation", t->n_rows >= 20 ? "every_tenth" : "none");
    if (t->delimiter != ',')
        init_set(j, "data.delimiter", t->delimiter == ';' ? "semicolon" : "tab");
    if (!t->has_header)
        init_set(j, "data.header", "false");
    init_set_text(j, "data.target", y->name);
    table_set_columns(t, target, j);
    init_set_network(j, 1, 1);
    init_set(j, "model.hidden", "[64, 64]");
    if (table_is_class(y)) {
        init_note(j, "The values of %s are taken for classes; for an amount set model.loss: mse.",
                  y->name);
    } else {
        init_set(j, "model.loss", "mse");
        init_set(j, "data.targets.normalize", "auto");
    }
    if (t->is_cut)
        init_note(j, "The kinds of the columns follow from the first %d rows.", MOST_ROWS);
}

int init_find_csv(const struct init_look *l, struct init_job *j, struct err *err)
{
    const char *validation = table_find_validation(l);
    struct init_table t = {.file = table_find_training(l, validation)};
    int rc;

    if (!t.file) {
        t.file = validation; /* the only one */
        validation = NULL;
    }
    if (!t.file)
        return INIT_NONE;
    rc = table_read(&t, l, err);
    if (rc == 0 && (t.n < 2 || t.n_rows < 1))
        rc = INIT_NONE;
    if (rc == 0)
        table_settle(&t, l, validation, j);
    table_free_columns(&t);
    return rc;
}
