/* csv_table - reads the rows of a table.
 *
 * A column that is not named as one of categories holds numbers or words, never both: its first
 * value says which, and a value of the other kind is refused.  So a slip of the pen in a column of
 * numbers does not silently make thousands of categories of it. */
#include "data/csv_table.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/mapped.h"

/* One call of csv_table_read. */
struct reading {
    struct csv_table *t;
    const struct csv_options *o;
    const struct csv_rules *rules;
    struct csv_reader r;
    int makes_scheme;
    struct csv_missing_words missing;
    int any_targets; /* for predictions: targets do not matter */
};

/* ---- one cell ---- */

static int refuse_kind(const struct reading *g, const struct csv_column *c,
                       const struct csv_cell *cell, struct err *err)
{
    const int64_t line = g->r.line;
    char text[64];

    csv_show(cell, text);
    if (csv_has_decimal_comma(cell))
        return err_set(err, ERR_CORRUPT,
                       "line %lld: column %s is %s, want a decimal point; or name the column in "
                       "data.categories",
                       (long long)line, c->name, text);
    if (g->makes_scheme && c->kind == CSV_WORD && csv_resembles_number(c->words.word[0].name))
        return err_set(
            err, ERR_CORRUPT,
            "line %lld: column %s is \"%.40s\", want a decimal number, as line %lld has %s; "
            "mend it, or name the column in data.categories",
            (long long)c->kind_line, c->name, c->words.word[0].name, (long long)line, text);
    if (c->as->role == CSV_TARGET)
        return err_set(err, ERR_CORRUPT,
                       "line %lld: column %s is %s, want a number, as model.loss is no "
                       "cross_entropy",
                       (long long)line, c->name, text);
    return err_set(err, ERR_CORRUPT,
                   "line %lld: column %s is %s, want a %s as in line %lld of the training file; "
                   "mend it, or name the column in data.categories",
                   (long long)line, c->name, text, c->as->kind == CSV_NUMBER ? "number" : "word",
                   (long long)c->as->kind_line);
}

static int take_number(struct reading *g, struct csv_column *c, const struct csv_cell *cell,
                       double v, struct err *err)
{
    const int is_fraction = g->rules->targets_are_fractions && c->as->role == CSV_TARGET;
    char text[64];

    if (!(fabs(v) <= (double)FLT_MAX))
        return err_set(err, ERR_CORRUPT,
                       "line %lld: column %s is %s, want a number that a float32 "
                       "holds, of at most 3.4e38",
                       (long long)g->r.line, c->name, csv_show(cell, text));
    if (is_fraction && !(v >= 0 && v <= 1))
        return err_set(err, ERR_CORRUPT,
                       "line %lld: column %s is %s, want 0 to 1 with model.loss: bce",
                       (long long)g->r.line, c->name, csv_show(cell, text));
    g->t->number[c->as->cell] = v;
    return 0;
}

static int add_word(struct reading *g, struct csv_column *c, const struct csv_cell *cell,
                    struct err *err)
{
    const int32_t most = c->role == CSV_TARGET ? CSV_MOST_CLASSES : CSV_MOST_WORDS,
                  had = c->words.n;
    char what[96];

    snprintf(what, sizeof what, "column %.80s", c->name);
    g->t->number[c->cell] = csv_words_add(&c->words, &g->t->arena, cell);
    if (c->words.n == had)
        return 0;
    if (c->words.n > most)
        return err_set(err, ERR_CORRUPT,
                       "line %lld: column %s has more than %d different words, the most that are "
                       "read; %s",
                       (long long)g->r.line, c->name, most,
                       c->role == CSV_TARGET ? "for numbers set model.loss: mse"
                                             : "leave it out by data.drop");
    return csv_check_text(cell, g->r.line, what, err);
}

static int find_word(struct reading *g, struct csv_column *c, const struct csv_cell *cell,
                     struct err *err)
{
    const int32_t n = csv_words_find(&c->as->words, cell);
    const int is_target = c->as->role == CSV_TARGET;
    char text[64];

    g->t->number[c->as->cell] = n;
    if (n >= 0)
        return 0;
    if (is_target || g->o->unknown == CSV_REFUSED)
        return err_set(err, ERR_CORRUPT,
                       "line %lld: column %s is %s, want one of the %d %s of the training file%s",
                       (long long)g->r.line, c->name, csv_show(cell, text), c->as->words.n,
                       is_target ? "classes" : "words",
                       is_target ? "" : "; with data.unknown: none it counts as none of them");
    if (c->n_unknown++ == 0)
        c->unknown_line = g->r.line;
    return 0;
}

/* A word for no value that is a number stands for all its forms, but where words are compared. */
static int csv_table_is_missing(struct reading *g, const struct csv_column *c,
                                const struct csv_cell *cell)
{
    return csv_missing_has(&g->missing, cell, c->as->kind == CSV_NUMBER || !c->as->is_given);
}

/* Note the word that stands for a missing value: it may be meant as a word. */
static void note_named(struct reading *g, struct csv_column *c, const struct csv_cell *cell)
{
    if (cell->len > 0 && c->n_named++ == 0)
        c->named = csv_name(&g->t->arena, cell);
}

static int take_cell(struct reading *g, struct csv_column *c, const struct csv_cell *cell,
                     struct err *err)
{
    const struct csv_column *as = c->as;
    double v;
    const int is_number = csv_number(cell, &v);

    if (csv_table_is_missing(g, c, cell)) {
        note_named(g, c, cell);
        if (c->n_missing++ == 0)
            c->missing_line = g->r.line;
        g->t->number[as->cell] = NAN;
        return 0;
    }
    if (c->kind == CSV_UNSEEN && g->makes_scheme)
        c->kind = is_number ? CSV_NUMBER : CSV_WORD;
    if (g->makes_scheme && c->n_values++ == 0)
        c->kind_line = g->r.line;
    if (as->kind == CSV_NUMBER ? !is_number
                               : !as->is_given && (is_number || csv_has_decimal_comma(cell)))
        return refuse_kind(g, c, cell, err);
    if (as->kind == CSV_NUMBER)
        return take_number(g, c, cell, v, err);
    return g->makes_scheme ? add_word(g, c, cell, err) : find_word(g, c, cell, err);
}

/* ---- one row ---- */

/* 1: the row has a missing value and is left out. */
static int is_dropped(struct reading *g)
{
    int n = 0;

    for (int i = 0; g->o->missing == CSV_DROP && i < g->t->n_columns; i++) {
        struct csv_column *c = &g->t->column[i];

        if (!c->as || c->as->cell < 0 || (c->role == CSV_TARGET && g->any_targets) ||
            !csv_table_is_missing(g, c, &g->r.cell[i]))
            continue;
        note_named(g, c, &g->r.cell[i]);
        n++;
    }
    return n > 0;
}

/* For predictions: a target that is missing, or none of the training file's, is no error; 1: so it
 * is. */
static int is_without_target(struct reading *g, struct csv_column *c, const struct csv_cell *cell)
{
    struct err ignored;

    if (!g->t->lacks_targets && !csv_table_is_missing(g, c, cell) &&
        take_cell(g, c, cell, &ignored) == 0)
        return 0;
    g->t->number[c->as->cell] = 0;
    return 1;
}

static void count_number(struct csv_column *c, double v)
{
    c->mean += (v - c->mean) / (double)c->n_values;
    c->least = c->n_values == 1 ? v : fmin(c->least, v);
    c->most = c->n_values == 1 ? v : fmax(c->most, v);
}

static int keep_row(const struct reading *g, struct err *err)
{
    struct csv_table *t = g->t;

    if (t->n_rows == t->n_room) {
        const int64_t n = max_i64(t->n_room + t->n_room / 2, 256);

        if (try_realloc((void **)&t->cell, (size_t)n * (size_t)t->n_cells * sizeof *t->cell,
                        "the numbers of a table", err) < 0)
            return err->code;
        if (g->o->missing == CSV_DROP &&
            try_realloc((void **)&t->number_in_file, (size_t)n * sizeof *t->number_in_file,
                        "the numbers of a table's rows", err) < 0)
            return err->code;
        t->n_room = n;
    }
    for (int k = 0; k < t->n_cells; k++)
        t->cell[t->n_rows * t->n_cells + k] = t->number[k];
    if (t->number_in_file)
        t->number_in_file[t->n_rows] = t->n_rows + t->n_dropped;
    t->n_rows++;
    return 0;
}

static int take_row(struct reading *g, struct err *err)
{
    struct csv_table *t = g->t;
    int is_unlabelled = 0;

    if (g->r.n_cells != t->n_columns)
        return err_set(err, ERR_CORRUPT, "line %lld has %d cells, want %d, as many as line 1",
                       (long long)g->r.line, g->r.n_cells, t->n_columns);
    if (is_dropped(g)) {
        t->n_dropped++;
        return 0;
    }
    for (int i = 0; i < t->n_columns; i++) {
        struct csv_column *c = &t->column[i];

        if (!c->as || c->as->cell < 0)
            continue;
        if (g->any_targets && c->role == CSV_TARGET)
            is_unlabelled |= is_without_target(g, c, &g->r.cell[i]);
        else if (take_cell(g, c, &g->r.cell[i], err) < 0)
            return err->code;
        if (g->makes_scheme && c->kind == CSV_NUMBER && !isnan(t->number[c->cell]))
            count_number(c, t->number[c->cell]);
    }
    if (is_unlabelled && t->n_unlabelled++ == 0)
        t->unlabelled_line = g->r.line;
    return keep_row(g, err);
}

static int csv_table_take_rows(struct reading *g, struct err *err)
{
    int rc = g->o->header ? csv_next(&g->r, err) : 0;

    for (; rc == 0; rc = csv_next(&g->r, err)) {
        rc = take_row(g, err);
        if (rc < 0)
            return rc;
    }
    if (rc < 0)
        return rc;
    if (g->t->n_rows == 0)
        return err_set(err, ERR_CORRUPT, "there is no row%s, want one at least",
                       g->t->n_dropped ? " without a missing value" : "");
    return 0;
}

/* ---- all rows ---- */

/* Append a remedy, if a word for no value may be meant as one of the column's words. */
static void doubt_named(const struct csv_column *c, struct buf *out)
{
    if (c->named && c->as->kind != CSV_NUMBER)
        buf_printf(out,
                   "; \"%.40s\" stands for no value in column %s (%lld rows): if it is a %s, set "
                   "data.missing_values: empty, or to the words that stand for none",
                   c->named, c->name, (long long)c->n_named,
                   c->role == CSV_TARGET ? "class" : "word");
}

static int refuse_missing(const struct csv_table *t, struct err *err)
{
    enum { MOST_NAMED = 8 };
    struct buf others = {0}, words = {0};
    const struct csv_column *first = NULL;
    int n = 0;

    for (int i = 0; i < t->n_columns; i++) {
        const struct csv_column *c = &t->column[i];

        if (c->n_missing == 0)
            continue;
        if (!first || c->missing_line < first->missing_line)
            first = c;
        if (words.len == 0)
            doubt_named(c, &words);
        if (++n <= MOST_NAMED)
            buf_printf(&others, "%s%lld in column %.80s", n > 1 ? ", " : "",
                       (long long)c->n_missing, c->name);
    }
    if (n > MOST_NAMED)
        buf_printf(&others, " and some in %d more columns", n - MOST_NAMED);
    if (first)
        err_set(
            err, ERR_CORRUPT,
            "line %lld: column %s has no value; in all %s. Set data.missing: drop to leave such "
            "rows out, or mean to put the training file's mean (of words: none) in their place, "
            "or leave columns out by data.drop%s",
            (long long)first->missing_line, first->name, buf_cstr(&others), buf_cstr(&words));
    buf_fini(&others);
    buf_fini(&words);
    return first ? err->code : 0;
}

/* A target cannot be made up. */
static int refuse_missing_target(const struct csv_table *t, struct err *err)
{
    for (int i = 0; i < t->n_columns; i++) {
        const struct csv_column *c = &t->column[i];

        struct buf words = {0};

        if (c->role != CSV_TARGET || c->n_missing == 0)
            continue;
        doubt_named(c, &words);
        err_set(
            err, ERR_CORRUPT,
            "line %lld: column %s, a target, has no value (%lld rows); want data.missing: drop, "
            "which leaves such rows out%s",
            (long long)c->missing_line, c->name, (long long)c->n_missing, buf_cstr(&words));
        buf_fini(&words);
        return err->code;
    }
    return 0;
}

/* Missing values get what stands for them, and words their final numbers. */
static void csv_table_settle(struct csv_table *t, const struct csv_column *c, const int32_t *number)
{
    const struct csv_column *as = c->as;

    if (as->kind == CSV_NUMBER && c->n_missing == 0)
        return;
    for (int64_t i = 0; i < t->n_rows; i++) {
        double *v = &t->cell[i * t->n_cells + as->cell];

        if (isnan(*v))
            *v = as->kind == CSV_NUMBER ? as->mean : -1;
        else if (as->kind == CSV_WORD && number)
            *v = number[(int32_t)*v];
    }
}

static int check_classes(const struct csv_column *c, struct err *err)
{
    const struct csv_words *w = &c->words;

    if (w->n < 2)
        return err_set(err, ERR_CORRUPT,
                       "column %s, the target, is %s in all rows, want two classes", c->name,
                       w->word[0].name);
    for (int32_t i = 0; i < w->n; i++)
        if (!w->word[i].is_number)
            return 0;
    for (int32_t i = 0; i < w->n; i++) {
        if (w->word[i].number != floor(w->word[i].number))
            return err_set(err, ERR_CONFIG,
                           "column %s, the target, has %s, want whole numbers or words with "
                           "model.loss: cross_entropy; for numbers set model.loss: mse",
                           c->name, w->word[i].name);
        if (i > 0 && w->word[i].number == w->word[i - 1].number)
            return err_set(err, ERR_CORRUPT,
                           "column %s, the target, has %s and %s, which are the same number; want "
                           "one form",
                           c->name, w->word[i - 1].name, w->word[i].name);
    }
    return 0;
}

/* The scheme is complete: number the words and the features. */
static int end_scheme(struct csv_table *t, struct err *err)
{
    for (int i = 0; i < t->n_columns; i++) {
        struct csv_column *c = &t->column[i];
        int32_t *number;

        if (c->cell < 0)
            continue;
        if (c->n_values == 0)
            return err_set(err, ERR_CORRUPT,
                           "column %s has no value in any row; leave it out by data.drop", c->name);
        number = xcalloc((size_t)c->words.n + 1, sizeof *number);
        csv_words_sort(&c->words, number);
        csv_table_settle(t, c, number);
        free(number);
        if (c->role == CSV_FEATURE) {
            c->feature = t->n_features;
            t->n_features += c->kind == CSV_WORD ? c->words.n : 1;
        } else if (c->kind == CSV_WORD && check_classes(c, err) < 0) {
            return err->code;
        }
    }
    if (t->n_features > CSV_MOST_FEATURES)
        return err_set(err, ERR_CORRUPT,
                       "there are %lld features, one for each column of numbers and each word of "
                       "the others, want at most %d",
                       (long long)t->n_features, CSV_MOST_FEATURES);
    return 0;
}

/* If some rows have no target, none has: nothing is compared with what is predicted. */
static void drop_targets(struct csv_table *t)
{
    t->lacks_targets = 1;
    for (int i = 0; i < t->n_columns; i++)
        for (int64_t r = 0; t->column[i].role == CSV_TARGET && r < t->n_rows; r++)
            t->cell[r * t->n_cells + t->column[i].cell] = 0;
}

static void note_unused(const struct reading *g)
{
    struct buf words = {0};

    csv_missing_tell(&g->missing, &words);
    if (words.len > 0)
        g->t->unused = arena_printf(&g->t->arena, "%s", buf_cstr(&words));
    buf_fini(&words);
}

static int csv_table_read_all(struct reading *g, const struct csv_table *scheme, struct err *err)
{
    struct csv_table *t = g->t;
    int rc = csv_next(&g->r, err);

    if (rc == CSV_END)
        return err_set(err, ERR_CORRUPT, "the file is empty, want the columns' names and rows");
    if (rc == 0)
        rc = csv_columns_make(t, &g->r, g->o, g->rules, scheme, err);
    if (rc < 0)
        return rc;
    t->number = xcalloc((size_t)t->n_cells, sizeof *t->number);
    rc = csv_table_take_rows(g, err);
    if (rc == 0 && g->makes_scheme)
        note_unused(g);
    if (rc == 0 && t->n_unlabelled > 0)
        drop_targets(t);
    if (rc == 0 && g->o->missing == CSV_ERROR)
        rc = refuse_missing(t, err);
    if (rc == 0)
        rc = refuse_missing_target(t, err);
    if (rc == 0 && g->makes_scheme)
        return end_scheme(t, err);
    for (int i = 0; rc == 0 && i < t->n_columns; i++)
        if (t->column[i].as && t->column[i].as->cell >= 0)
            csv_table_settle(t, &t->column[i], NULL);
    return rc;
}

int csv_table_read(struct csv_table *t, const char *path, const struct csv_options *o,
                   const struct csv_rules *rules, const struct csv_table *scheme, struct err *err)
{
    static const char delimiter[] = {[CSV_COMMA] = ',', [CSV_SEMICOLON] = ';', [CSV_TAB] = '\t'};
    struct reading g = {.t = t,
                        .o = o,
                        .rules = rules,
                        .makes_scheme = !scheme,
                        .any_targets = scheme && rules->may_lack_targets};
    struct mapped file;
    int rc = mapped_open(&file, path, err);

    *t = (struct csv_table){0};
    if (rc < 0)
        return rc;
    csv_missing_init(&g.missing, o->missing_values);
    if ((long long)file.n_bytes > CSV_MOST_BYTES)
        rc = err_set(err, ERR_CORRUPT,
                     "the file has %zu bytes, want at most %lld, as it is read into memory; arrays "
                     "of data.format: npy may be larger",
                     file.n_bytes, CSV_MOST_BYTES);
    if (rc == 0)
        rc = csv_begin(&g.r, file.bytes, file.n_bytes, delimiter[o->delimiter], err);
    if (rc == 0)
        rc = csv_table_read_all(&g, scheme, err);
    csv_end(&g.r);
    csv_missing_fini(&g.missing);
    mapped_close(&file);
    return rc < 0 ? err_wrap(err, "%s", path) : 0;
}

void csv_table_fini(struct csv_table *t)
{
    for (int i = 0; i < t->n_columns; i++)
        csv_words_fini(&t->column[i].words);
    free(t->column);
    free(t->cell);
    free(t->number);
    free(t->number_in_file);
    arena_fini(&t->arena);
    *t = (struct csv_table){0};
}

/* ---- what a user has to be told ---- */

/* Names, or numbers that were meant as such: most rows have a word of their own. */
static int is_nearly_unique(const struct csv_column *c)
{
    return c->as == c && c->kind == CSV_WORD && c->n_values >= 20 && 2 * c->words.n > c->n_values;
}

static void tell_column(const struct csv_column *c, const struct csv_options *o, struct buf *out)
{
    const int is_number = c->as->kind == CSV_NUMBER;

    if (is_nearly_unique(c))
        buf_printf(out,
                   "; column %s has %d different values in %lld rows, each of which is a %s; %s",
                   c->name, c->words.n, (long long)c->n_values,
                   c->role == CSV_TARGET ? "class" : "feature",
                   c->role == CSV_TARGET ? "are they numbers (model.loss: mse)?"
                                         : "is it a name (data.drop)?");
    if (c->n_missing > 0 && is_number)
        buf_printf(out,
                   "; column %s has no value in %lld rows, the first in line %lld: the mean, "
                   "%.6g, stands for it",
                   c->name, (long long)c->n_missing, (long long)c->missing_line, c->as->mean);
    else if (c->n_missing > 0)
        buf_printf(out,
                   "; column %s has no value in %lld rows, the first in line %lld: it counts "
                   "as none of the words",
                   c->name, (long long)c->n_missing, (long long)c->missing_line);
    doubt_named(c, out);
    if (c->n_unknown > 0)
        buf_printf(out,
                   "; column %s has words in %lld rows that the training file does not have, "
                   "the first in line %lld: they count as none (data.unknown)",
                   c->name, (long long)c->n_unknown, (long long)c->unknown_line);
    if (c->as == c && c->role == CSV_FEATURE &&
        (is_number ? !(c->least < c->most) : c->words.n < 2) && o->missing != CSV_DROP)
        buf_printf(out, "; column %s is the same in all rows and tells nothing", c->name);
}

void csv_table_tell(const struct csv_table *t, const char *path, const struct csv_options *o,
                    struct buf *out)
{
    enum { MOST_BYTES = 2000 };
    struct buf all = {0};
    int n_left = 0;

    if (t->n_dropped > 0)
        buf_printf(&all, "; %lld of %lld rows have a missing value and are left out (data.missing)",
                   (long long)t->n_dropped, (long long)(t->n_dropped + t->n_rows));
    if (t->unused)
        buf_printf(&all, "; data.missing_values has %s, but no cell that is read", t->unused);
    if (t->n_unlabelled > 0)
        buf_printf(&all,
                   "; %lld of %lld rows, the first in line %lld, have no target, or one that the "
                   "training file does not have: predictions are compared with none",
                   (long long)t->n_unlabelled, (long long)t->n_rows, (long long)t->unlabelled_line);
    for (int i = 0; i < t->n_columns; i++) {
        const size_t had = all.len;

        if (!t->column[i].as)
            buf_printf(&all, "; column %s is not in the training file and is left out",
                       t->column[i].name);
        else if (t->column[i].as->cell >= 0)
            tell_column(&t->column[i], o, &all);
        if (all.len > MOST_BYTES && all.len > had) {
            all.len = had;
            n_left++;
        }
    }
    if (n_left > 0)
        buf_printf(&all, "; and so on in %d more columns", n_left);
    if (all.len > 0)
        buf_printf(out, "%s: %s", path, buf_cstr(&all) + 2);
    buf_fini(&all);
}
