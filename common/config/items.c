/* Lists of mappings: [{match: "fc.*", lr_scale: 10}, ...], from YAML's flow style and back.
 *
 * The text is short (OPT_TEXT_BYTES), and the document is walked along the rows, so that neither
 * deep nesting nor aliases in it cost anything. */
#include "config/option.h"

#include <math.h>
#include <string.h>
#include <yaml.h>

#include "base/util.h"

static const struct option *items_find_row(const struct option_item *item, const char *key)
{
    for (int i = 0; i < item->n_options; i++)
        if (!strcmp(item->option[i].key, key))
            return &item->option[i];
    return NULL;
}

static void list_keys(const struct option_item *item, struct buf *out)
{
    for (int i = 0; i < item->n_options; i++)
        buf_printf(out, "%s%s",
                   i == 0                    ? ""
                   : i + 1 < item->n_options ? ", "
                                             : " or ",
                   item->option[i].key);
}

static int items_fail_key(const struct option_item *item, const char *key, size_t len,
                          struct err *err)
{
    struct buf known = {0};
    char shown[64];
    int rc;

    list_keys(item, &known);
    rc = err_set(err, ERR_CONFIG, "unknown key %s, want %s", show_text(key, len, shown),
                 buf_cstr(&known));
    buf_fini(&known);
    return rc;
}

static int is_quoted(const yaml_node_t *n)
{
    return n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
}

/* One "key: value" of a mapping; *seen has a bit for each row. */
static int items_read_pair(const struct option_item *item, yaml_document_t *doc,
                           const yaml_node_pair_t *pair, void *to, unsigned *seen,
                           struct arena *arena, struct err *err)
{
    const yaml_node_t *key = yaml_document_get_node(doc, pair->key);
    const yaml_node_t *value = yaml_document_get_node(doc, pair->value);
    const struct option *o;
    const char *word;

    if (key->type != YAML_SCALAR_NODE)
        return err_set(err, ERR_CONFIG, "a key is a list or a mapping, want a word");
    word = (const char *)key->data.scalar.value;
    o = items_find_row(item, word);
    if (!o || strlen(word) != key->data.scalar.length)
        return items_fail_key(item, word, key->data.scalar.length, err);
    if (*seen >> (o - item->option) & 1)
        return err_set(err, ERR_CONFIG, "%s is given twice", o->key);
    *seen |= 1u << (o - item->option);
    if (value->type != YAML_SCALAR_NODE)
        return option_fail(o, "a list or a mapping", err);
    return option_parse(o, (char *)to + o->offset, arena, (const char *)value->data.scalar.value,
                        value->data.scalar.length, is_quoted(value), err);
}

/* The rows that were not given. */
static int fill_rest(const struct option_item *item, void *to, unsigned seen, struct arena *arena,
                     struct err *err)
{
    for (int i = 0; i < item->n_options; i++) {
        const struct option *o = &item->option[i];
        void *field = (char *)to + o->offset;

        if (seen >> i & 1)
            continue;
        if (o->flags & OPT_REQUIRED)
            return err_set(err, ERR_CONFIG, "%s is missing", o->key);
        if (o->def)
            ASSERT(option_parse(o, field, arena, o->def, strlen(o->def), 0, err) == 0);
        else if (o->type == OPT_REAL)
            *(double *)field = NAN;
    }
    return 0;
}

static int items_read_mapping(const struct option *o, yaml_document_t *doc, const yaml_node_t *n,
                              void *to, struct arena *arena, struct err *err)
{
    unsigned seen = 0;
    int rc = 0;

    if (n->type != YAML_MAPPING_NODE)
        return err_set(err, ERR_CONFIG, "want a mapping, such as {%s: ...}",
                       o->item->option[0].key);
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start;
         p < n->data.mapping.pairs.top && rc == 0; p++)
        rc = items_read_pair(o->item, doc, p, to, &seen, arena, err);
    return rc == 0 ? fill_rest(o->item, to, seen, arena, err) : rc;
}

static int read_items(const struct option *o, yaml_document_t *doc, struct option_items *field,
                      struct arena *arena, struct err *err)
{
    const yaml_node_t *root = yaml_document_get_root_node(doc);
    yaml_node_item_t *first;
    char *items;
    int n, rc = 0;

    if (!root || root->type != YAML_SEQUENCE_NODE)
        return option_fail(o, root ? "no list" : "empty", err);
    first = root->data.sequence.items.start;
    n = (int)min_i64(root->data.sequence.items.top - first, OPT_MAX_ITEMS + 1);
    if (n > OPT_MAX_ITEMS)
        return option_fail(o, "longer", err);
    items = arena_alloc(arena, (size_t)n * o->item->size + 1);
    for (int i = 0; i < n && rc == 0; i++) {
        rc = items_read_mapping(o, doc, yaml_document_get_node(doc, first[i]),
                                items + (size_t)i * o->item->size, arena, err);
        if (rc < 0)
            err_wrap(err, "%s[%d]", o->key, i);
    }
    *field = (struct option_items){n, items};
    return rc;
}

int option_parse_items(const struct option *o, struct option_items *field, struct arena *arena,
                       const char *text, size_t len, struct err *err)
{
    yaml_document_t doc;
    yaml_parser_t p;
    char shown[64];
    int rc;

    if (len > OPT_TEXT_BYTES)
        return option_fail(o, "longer", err);
    ASSERT(yaml_parser_initialize(&p));
    yaml_parser_set_encoding(&p, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&p, (const unsigned char *)text, len);
    if (yaml_parser_load(&p, &doc)) {
        rc = read_items(o, &doc, field, arena, err);
        yaml_document_delete(&doc);
    } else {
        rc = option_fail(o, show_text(text, len, shown), err);
    }
    yaml_parser_delete(&p);
    return rc;
}

/* Is there nothing to write of this field? */
static int is_none(const struct option *o, const void *field)
{
    return o->type == OPT_REAL ? isnan(*(const double *)field)
                               : option_may_be_none(o) && !*(const char *const *)field;
}

void option_format_items(const struct option *o, const struct option_items *field, struct buf *out)
{
    buf_printf(out, "[");
    for (int i = 0; i < field->n; i++) {
        const char *item = (const char *)field->v + (size_t)i * o->item->size;
        int n = 0;

        buf_printf(out, "%s{", i ? ", " : "");
        for (int k = 0; k < o->item->n_options; k++) {
            const struct option *row = &o->item->option[k];

            if (is_none(row, item + row->offset))
                continue;
            buf_printf(out, "%s%s: ", n++ ? ", " : "", row->key);
            option_format(row, item + row->offset, out);
        }
        buf_printf(out, "}");
    }
    buf_printf(out, "]");
}
