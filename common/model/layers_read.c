/* layers_read - reads one layer of model.layers: its word, and the keys that its table has.
 *
 * A value alone in place of a mapping is that of the first key; one number stands for a pair. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "model/layers_impl.h"

int layers_fail(const struct reading *r, const struct tree *t, const char *fmt, ...)
{
    char text[640];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    *r->at = t->at;
    return err_set(r->err, ERR_CONFIG, "%s", text);
}

int layers_is_word(const struct tree *t, const char *word)
{
    return t->kind == TREE_WORD && !strcmp(t->text, word);
}

static int layers_is_empty(const struct tree *t)
{
    return layers_is_word(t, "") || layers_is_word(t, "~") || layers_is_word(t, "null") ||
           (t->kind == TREE_MAP && t->n == 0);
}

int layers_find_kind(const struct reading *r, const struct tree *word,
                     const struct layer_kind **out)
{
    struct buf known = {0};
    char shown[64];
    int rc;

    for (int i = 0; i < n_layer_kinds; i++)
        if (layers_is_word(word, layer_kinds[i].name)) {
            *out = &layer_kinds[i];
            return 0;
        }
    for (int i = 0; i < n_layer_kinds; i++)
        buf_printf(&known, "%s, ", layer_kinds[i].name);
    rc = layers_fail(
        r, word, "no layer is called %s, want %sresidual, shortcut, repeat, save, from or input",
        show_text(word->text, word->len, shown), buf_cstr(&known));
    buf_fini(&known);
    return rc;
}

static const struct option *layers_find_row(const struct layer_kind *k, const struct tree *key)
{
    for (int i = 0; i < k->n_rows; i++)
        if (layers_is_word(key, k->row[i].key))
            return &k->row[i];
    return NULL;
}

static int layers_fail_key(const struct reading *r, const struct layer_kind *k,
                           const struct tree *key)
{
    struct buf known = {0};
    char shown[64];
    int rc;

    for (int i = 0; i < k->n_rows; i++)
        buf_printf(&known, "%s%s", i ? ", " : "", k->row[i].key);
    rc = layers_fail(r, key, "%s has no key %s, want %s", k->name,
                     show_text(key->text, key->len, shown), k->n_rows ? buf_cstr(&known) : "none");
    buf_fini(&known);
    return rc;
}

static const char *kind_of_tree(const struct tree *t)
{
    return t->kind == TREE_LIST ? "a list" : "a mapping";
}

static int read_word(const struct reading *r, const struct option *o, const struct tree *value,
                     void *field)
{
    *r->at = value->at;
    if (value->kind != TREE_WORD)
        return option_fail(o, kind_of_tree(value), r->err);
    return option_parse(o, field, r->arena, value->text, value->len, value->is_quoted, r->err);
}

/* One number or word stands for a whole list: so many items, and the i-th. */
static int count_items(const struct tree *value) { return value->kind == TREE_LIST ? value->n : 1; }

static const struct tree *item_at(const struct tree *value, int i)
{
    return value->kind == TREE_LIST ? value->child[i] : value;
}

static int check_count(const struct reading *r, const struct option *o, const struct tree *value,
                       int most)
{
    const int n = count_items(value);

    if (n >= 1 && n <= most)
        return 0;
    return layers_fail(r, value, "%s is a list of %d, want 1 to %d %s", o->key, n, most,
                       o->type == OPT_NAME ? "names" : "numbers");
}

static int read_pair(const struct reading *r, const struct option *o, const struct tree *value,
                     int64_t pair[2])
{
    struct option one = *o;
    int rc;

    one.count = 0;
    if (value->kind != TREE_LIST) {
        rc = read_word(r, &one, value, pair);
        pair[1] = pair[0];
        return rc;
    }
    if (value->n != 2)
        return layers_fail(r, value,
                           "%s is a list of %d, want one number, or two: for rows and for columns",
                           o->key, value->n);
    one.choices = NULL;
    rc = read_word(r, &one, value->child[0], &pair[0]);
    return rc < 0 ? rc : read_word(r, &one, value->child[1], &pair[1]);
}

static int read_ints(const struct reading *r, const struct option *o, const struct tree *value,
                     struct option_ints *out)
{
    struct option one = *o;
    int rc = check_count(r, o, value, OPT_MAX_INTS);

    one.type = OPT_INT;
    out->n = rc == 0 ? count_items(value) : 0;
    for (int i = 0; rc == 0 && i < out->n; i++)
        rc = read_word(r, &one, item_at(value, i), &out->v[i]);
    return rc;
}

static int layers_read_names(const struct reading *r, const struct option *o,
                             const struct tree *value, struct layer_names *out)
{
    int rc = check_count(r, o, value, COUNT_NAMES);

    out->n = rc == 0 ? count_items(value) : 0;
    for (int i = 0; rc == 0 && i < out->n; i++)
        rc = layers_read_name(r, o->key, item_at(value, i), &out->v[i]);
    return rc;
}

static int read_value(const struct reading *r, const struct option *o, const struct tree *value,
                      struct layer_args *a)
{
    char *field = (char *)a + o->offset;

    if (o->type == OPT_INT && o->count == COUNT_PAIR)
        return read_pair(r, o, value, (int64_t *)(void *)field);
    if (o->type == OPT_NAME)
        return layers_read_names(r, o, value, (struct layer_names *)(void *)field);
    if (o->type == OPT_INTS)
        return read_ints(r, o, value, (struct option_ints *)(void *)field);
    return read_word(r, o, value, field);
}

static int read_key(const struct reading *r, const struct layer_kind *k, const struct tree *key,
                    const struct tree *value, unsigned *seen, struct layer_args *a)
{
    const struct option *o = layers_find_row(k, key);

    if (!o)
        return layers_fail_key(r, k, key);
    if (*seen >> (o - k->row) & 1)
        return layers_fail(r, key, "%s is given twice", o->key);
    *seen |= 1u << (o - k->row);
    return read_value(r, o, value, a);
}

static int read_default(const struct reading *r, const struct option *o, struct layer_args *a)
{
    const struct tree def = {.text = o->def, .len = strlen(o->def), .at = *r->at};

    return *o->def ? read_value(r, o, &def, a) : 0;
}

int layers_read_args(const struct reading *r, const struct layer_kind *k, const struct tree *word,
                     const struct tree *args, struct layer_args *a)
{
    unsigned seen = 0;
    int rc = 0;

    *a = (struct layer_args){0};
    if (args && layers_is_empty(args))
        args = NULL;
    if (args && k->n_rows == 0 && args->kind != TREE_MAP)
        return layers_fail(r, args, "%s has no keys; write the word alone", k->name);
    if (args && args->kind != TREE_MAP) {
        seen = 1;
        rc = read_value(r, &k->row[0], args, a);
    }
    for (int i = 0; args && args->kind == TREE_MAP && rc == 0 && i < args->n; i++)
        rc = read_key(r, k, args->key[i], args->child[i], &seen, a);
    for (int i = 0; rc == 0 && i < k->n_rows; i++) {
        if (seen >> i & 1)
            continue;
        if (!k->row[i].def)
            return layers_fail(r, word, "%s: %s is missing", k->name, k->row[i].key);
        rc = read_default(r, &k->row[i], a);
    }
    return rc;
}

int layers_read_name(const struct reading *r, const char *key, const struct tree *value,
                     const char **out)
{
    const struct option o = {.key = key, .type = OPT_NAME};

    return read_word(r, &o, value, out);
}

int layers_read_count(const struct reading *r, const char *key, const struct tree *value,
                      int64_t most, int64_t *out)
{
    const struct option o = {.key = key, .type = OPT_INT, .min = 1, .max = (double)most};

    return read_word(r, &o, value, out);
}
