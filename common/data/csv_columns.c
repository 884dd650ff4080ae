/* csv_columns - the header of a table: the columns' names, and what each of them is for.  A file
 * that is read by the scheme of another takes these from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/csv_table.h"

const char *csv_show(const struct csv_cell *c, char out[64])
{
    char text[128];
    const size_t n = c->len < sizeof text ? c->len : sizeof text - 1;

    memcpy(text, c->text, n);
    text[n] = 0;
    return show_text(text, n, out);
}

int csv_check_text(const struct csv_cell *c, int64_t line, const char *what, struct err *err)
{
    size_t n;

    for (size_t at = 0; at < c->len; at += n) {
        n = line_char_len(c->text + at, c->len - at);
        if (n == 0)
            return err_set(err, ERR_CORRUPT,
                           "line %lld: %s has byte 0x%02x, which begins no printable character of "
                           "UTF-8, at its place %zu; convert the file",
                           (long long)line, what, (uint8_t)c->text[at], at + 1);
    }
    return 0;
}

/* ---- lists of names ---- */

int csv_list_next(const char **list, struct csv_cell *item)
{
    const char *s = *list + strspn(*list, ", ");

    *item = (struct csv_cell){s, strcspn(s, ",")};
    *list = s + item->len;
    while (item->len > 0 && s[item->len - 1] == ' ')
        item->len--;
    return item->len > 0;
}

int csv_is(const struct csv_cell *c, const char *text)
{
    return strlen(text) == c->len && !memcmp(text, c->text, c->len);
}

int csv_list_has_name(const char *list, const char *name)
{
    struct csv_cell item;

    if (!list || !strcmp(list, name))
        return list != NULL;
    while (csv_list_next(&list, &item))
        if (csv_is(&item, name))
            return 1;
    return 0;
}

static const struct csv_column *csv_columns_find(const struct csv_table *t, const char *name,
                                                 size_t len)
{
    for (int i = 0; i < t->n_columns; i++)
        if (strlen(t->column[i].name) == len && !memcmp(t->column[i].name, name, len))
            return &t->column[i];
    return NULL;
}

/* Append the names of the columns, as far as there is room for them in a message. */
static void print_names(const struct csv_table *t, struct buf *out)
{
    enum { MOST_NAMED = 20 };
    struct csv_cell name;
    char text[64];

    for (int i = 0; i < t->n_columns && i < MOST_NAMED; i++) {
        name = (struct csv_cell){t->column[i].name, strlen(t->column[i].name)};
        buf_printf(out, "%s%s", i ? ", " : "", csv_show(&name, text));
    }
    if (t->n_columns > MOST_NAMED)
        buf_printf(out, " and %d more", t->n_columns - MOST_NAMED);
}

static int no_such_column(const struct csv_table *t, const char *key, const struct csv_cell *name,
                          struct err *err)
{
    struct buf names = {0};
    char text[64];

    print_names(t, &names);
    err_set(err, ERR_CONFIG, "%s has %s, want a column: %s", key, csv_show(name, text),
            buf_cstr(&names));
    buf_fini(&names);
    return err->code;
}

/* Each name of a list is that of a column. */
static int csv_columns_check_list(const struct csv_table *t, const char *key, const char *list,
                                  struct err *err)
{
    struct csv_cell item;

    if (!list || csv_columns_find(t, list, strlen(list)))
        return 0;
    while (csv_list_next(&list, &item))
        if (!csv_columns_find(t, item.text, item.len))
            return no_such_column(t, key, &item, err);
    return 0;
}

/* ---- names ---- */

/* The first line is a header, and cut by the right delimiter. */
static int check_header(const struct csv_reader *r, struct err *err)
{
    static const char others[] = ",;\t";
    int n_numbers = 0;
    double v;

    for (int i = 0; i < r->n_cells; i++)
        n_numbers += csv_number(&r->cell[i], &v);
    if (n_numbers == r->n_cells)
        return err_set(err, ERR_CORRUPT,
                       "line %lld has numbers only, want the columns' names; without such a line "
                       "set data.header: false",
                       (long long)r->line);
    for (const char *c = others; r->n_cells == 1 && *c; c++)
        if (*c != r->delimiter && memchr(r->cell[0].text, *c, r->cell[0].len))
            return err_set(err, ERR_CORRUPT,
                           "line %lld has one name, %s in it; want data.delimiter: %s?",
                           (long long)r->line,
                           *c == ','   ? "with a comma"
                           : *c == ';' ? "with a semicolon"
                                       : "with a tab",
                           *c == ','   ? "comma"
                           : *c == ';' ? "semicolon"
                                       : "tab");
    return 0;
}

static int csv_columns_by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_differ(const struct csv_table *t, int64_t line, struct err *err)
{
    const char **name = xcalloc((size_t)t->n_columns, sizeof *name), *twice = NULL;

    for (int i = 0; i < t->n_columns; i++)
        name[i] = t->column[i].name;
    qsort(name, (size_t)t->n_columns, sizeof *name, csv_columns_by_name);
    for (int i = 1; i < t->n_columns && !twice; i++)
        twice = !strcmp(name[i - 1], name[i]) ? name[i] : NULL;
    free(name);
    if (!twice)
        return 0;
    return err_set(err, ERR_CORRUPT, "line %lld: two columns are called %s, want different names",
                   (long long)line, twice);
}

static int name_columns(struct csv_table *t, const struct csv_reader *r,
                        const struct csv_options *o, struct err *err)
{
    char what[32];

    if (o->header && check_header(r, err) < 0)
        return err->code;
    t->n_columns = r->n_cells;
    t->column = xcalloc((size_t)r->n_cells, sizeof *t->column);
    for (int i = 0; i < r->n_cells; i++) {
        snprintf(what, sizeof what, "name %d", i + 1);
        if (o->header && csv_check_text(&r->cell[i], r->line, what, err) < 0)
            return err->code;
        t->column[i].name = o->header && r->cell[i].len
                                ? csv_name(&t->arena, &r->cell[i])
                                : arena_printf(&t->arena, "column %d", i + 1);
        t->column[i].cell = -1;
    }
    return check_differ(t, r->line, err);
}

/* ---- roles ---- */

/* pandas writes a column without a name, the rows' numbers, which tells a network what it should
 * not see. */
static int check_named(const struct csv_table *t, const struct csv_reader *r,
                       const struct csv_options *o, struct err *err)
{
    for (int i = 0; o->header && i < t->n_columns; i++)
        if (r->cell[i].len == 0 && t->column[i].role != CSV_DROPPED)
            return err_set(err, ERR_CORRUPT,
                           "line %lld: column %d has no name, as the rows' numbers that pandas "
                           "writes; leave it out by data.drop: [column %d], or give it a name",
                           (long long)r->line, i + 1, i + 1);
    return 0;
}

static int set_roles(struct csv_table *t, const struct csv_options *o,
                     const struct csv_rules *rules, struct err *err)
{
    struct csv_column *last = NULL;

    if (csv_columns_check_list(t, "data.target", o->target, err) < 0 ||
        csv_columns_check_list(t, "data.drop", o->drop, err) < 0 ||
        csv_columns_check_list(t, "data.categories", o->categories, err) < 0)
        return err->code;
    for (int i = 0; i < t->n_columns; i++) {
        struct csv_column *c = &t->column[i];

        c->as = c;
        c->role = csv_list_has_name(o->drop, c->name)     ? CSV_DROPPED
                  : csv_list_has_name(o->target, c->name) ? CSV_TARGET
                                                          : CSV_FEATURE;
        c->cell = c->role == CSV_DROPPED ? -1 : t->n_cells++;
        t->n_targets += c->role == CSV_TARGET;
        last = c->role == CSV_DROPPED ? last : c;
    }
    if (!o->target && last) {
        last->role = CSV_TARGET;
        t->n_targets = 1;
    }
    for (int i = 0; i < t->n_columns; i++) {
        struct csv_column *c = &t->column[i];

        c->is_given = c->role == CSV_TARGET || csv_list_has_name(o->categories, c->name);
        if (c->is_given)
            c->kind = c->role == CSV_TARGET && rules->targets_are_numbers ? CSV_NUMBER : CSV_WORD;
    }
    if (t->n_targets == 0 || t->n_cells == t->n_targets)
        return err_set(err, ERR_CONFIG,
                       "of %d columns %d are targets and %d features, want one target and one "
                       "feature at least; see data.target, data.drop and data.delimiter",
                       t->n_columns, t->n_targets, t->n_cells - t->n_targets);
    if (t->n_targets > 1 && !rules->targets_are_numbers)
        return err_set(err, ERR_CONFIG,
                       "data.target has %d columns, want one with model.loss: cross_entropy",
                       t->n_targets);
    return 0;
}

/* ---- by a scheme ---- */

/* A column that the training file does not have is left out, and told of. */
static int take_roles(struct csv_table *t, const struct csv_rules *rules,
                      const struct csv_table *scheme, struct err *err)
{
    int n = 0, n_targets = 0;

    for (int i = 0; i < t->n_columns; i++) {
        struct csv_column *c = &t->column[i];

        c->as = i < scheme->n_columns && !strcmp(scheme->column[i].name, c->name)
                    ? &scheme->column[i] /* as in most files */
                    : csv_columns_find(scheme, c->name, strlen(c->name));
        c->role = c->as ? c->as->role : CSV_DROPPED;
        c->cell = c->as ? c->as->cell : -1;
        n += c->cell >= 0;
        n_targets += c->role == CSV_TARGET;
    }
    t->lacks_targets = rules->may_lack_targets && n_targets < scheme->n_targets;
    for (int i = 0; n < scheme->n_cells && i < scheme->n_columns; i++) {
        const struct csv_column *c = &scheme->column[i];

        if (c->cell >= 0 && !(c->role == CSV_TARGET && t->lacks_targets) &&
            !csv_columns_find(t, c->name, strlen(c->name)))
            return err_set(err, ERR_CORRUPT,
                           "there is no column %s, which the training file has; want the same "
                           "columns, in any order",
                           c->name);
    }
    t->n_cells = scheme->n_cells;
    t->n_targets = scheme->n_targets;
    t->n_features = scheme->n_features;
    return 0;
}

int csv_columns_make(struct csv_table *t, const struct csv_reader *r, const struct csv_options *o,
                     const struct csv_rules *rules, const struct csv_table *scheme, struct err *err)
{
    int rc = name_columns(t, r, o, err);

    if (rc == 0)
        rc = scheme ? take_roles(t, rules, scheme, err) : set_roles(t, o, rules, err);
    return rc == 0 ? check_named(t, r, o, err) : rc;
}
