/* The schema of a job file, from which editors complete and check it.
 *
 * A key that several entries have, each with a range of its own, may be as any of them says: that a
 * key wants a choice is told in words, and checked by dpdriver alone. */
#include "deploy/manual/manual.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/util.h"

static json_t *schema_type(const char *name) { return json_pack("{s:s}", "type", name); }

/* An integer, or a number, of the row's range. */
static json_t *schema_number(const struct option *o, int is_integer)
{
    json_t *s = schema_type(is_integer ? "integer" : "number");

    if (isfinite(o->min))
        json_object_set_new(s, o->flags & OPT_ABOVE ? "exclusiveMinimum" : "minimum",
                            is_integer ? json_integer((json_int_t)o->min) : json_real(o->min));
    if (isfinite(o->max))
        json_object_set_new(s, o->flags & OPT_BELOW ? "exclusiveMaximum" : "maximum",
                            is_integer ? json_integer((json_int_t)o->max) : json_real(o->max));
    return s;
}

static json_t *schema_words(const char *const *word)
{
    json_t *list = json_array();

    for (; *word; word++)
        json_array_append_new(list, json_string(*word));
    return json_pack("{s:o}", "enum", list);
}

static json_t *schema_entries(const struct option_registry *r)
{
    json_t *list = json_array();

    for (int i = 0; r->entry[i]; i++)
        json_array_append_new(list, json_string(r->entry[i]->name));
    return json_pack("{s:o}", "enum", list);
}

static json_t *schema_list(json_t *item, int least, int most)
{
    json_t *s = json_pack("{s:s, s:o}", "type", "array", "items", item);

    if (least > 0)
        json_object_set_new(s, "minItems", json_integer(least));
    if (most > 0)
        json_object_set_new(s, "maxItems", json_integer(most));
    return s;
}

static json_t *schema_either(json_t *a, json_t *b)
{
    return json_pack("{s:[o, o]}", "anyOf", a, b);
}

static json_t *schema_text(const struct option *o)
{
    json_t *s = schema_type("string");

    if (o->flags & OPT_MANY)
        s = schema_either(s, schema_list(schema_type("string"), 0, 0));
    return o->flags & OPT_MAP ? schema_either(s, schema_type("object")) : s;
}

static json_t *schema_of(const struct option *o);

/* The default as a value; a word where it is no JSON. */
static json_t *schema_default(const struct option *o)
{
    json_t *v = json_loads(o->def, JSON_DECODE_ANY, NULL);

    return v ? v : json_string(o->def);
}

/* Give `s` the key's help and default. */
static json_t *schema_told(json_t *s, const struct option *o)
{
    if (o->help)
        json_object_set_new(s, "description", json_string(o->help));
    if (o->def && o->type != OPT_ITEMS)
        json_object_set_new(s, "default", schema_default(o));
    return s;
}

static json_t *schema_items(const struct option_item *item)
{
    json_t *keys = json_object();

    for (int i = 0; i < item->n_options; i++)
        json_object_set_new(keys, item->option[i].key,
                            schema_told(schema_of(&item->option[i]), &item->option[i]));
    return json_pack("{s:s, s:o, s:b}", "type", "object", "properties", keys,
                     "additionalProperties", 0);
}

static json_t *schema_bare(const struct option *o)
{
    switch (o->type) {
    case OPT_BOOL:
        return schema_type("boolean");
    case OPT_INT:
        return o->choices ? schema_either(schema_number(o, 1), schema_words(o->choices))
                          : schema_number(o, 1);
    case OPT_REAL:
    case OPT_SECONDS:
        return schema_number(o, 0);
    case OPT_CHOICE:
        return schema_words(o->choices + o->first);
    case OPT_ENTRY:
        return schema_entries(o->registry);
    case OPT_INTS:
        return schema_list(schema_number(o, 1), 0, OPT_MAX_INTS);
    case OPT_REALS:
        return schema_list(schema_number(o, 0), o->count, o->count ? o->count : OPT_MAX_REALS);
    case OPT_NUMBERS:
        return schema_list(schema_number(o, 0), 0, OPT_MAX_NUMBERS);
    case OPT_SET:
        return schema_list(schema_words(o->choices + o->first), 0, 0);
    case OPT_ITEMS:
        return schema_list(schema_items(o->item), 0, OPT_MAX_ITEMS);
    case OPT_TREE:
        return o->flags & OPT_MAP ? schema_either(schema_type("string"), schema_type("object"))
                                  : schema_type("array");
    case OPT_NAME:
    case OPT_STRING:
    case OPT_PATH:
        return schema_text(o);
    }
    ASSERT(!"a type of option without a schema");
    return NULL;
}

static json_t *schema_of(const struct option *o)
{
    json_t *s = schema_bare(o);

    return option_may_be_none(o) ? schema_either(s, schema_type("null")) : s;
}

/* ---- nesting ---- */

/* The mapping that `parent` has under the `len` bytes of a name; made if it is not there. */
static json_t *schema_mapping(json_t *parent, const char *name, size_t len)
{
    json_t *s = json_object_getn(parent, name, len);

    if (!s) {
        s = json_pack("{s:s, s:{}, s:b}", "type", "object", "properties", "additionalProperties",
                      0);
        json_object_setn_new(parent, name, len, s);
    }
    return json_object_get(s, "properties");
}

/* Is `s` one of the list? */
static int schema_is_in(const json_t *list, const json_t *s)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), s))
            return 1;
    return 0;
}

/* Under `name` there is one schema, or {"alternatives": [...]} of several that differ in more than
 * the default. */
static void schema_add(json_t *keys, const char *name, json_t *s)
{
    json_t *old = json_object_get(keys, name), *list;

    if (!old) {
        json_object_set_new(keys, name, s);
        return;
    }
    list = json_object_get(old, "alternatives");
    if (!json_equal(old, s)) {
        json_object_del(s, "default");
        json_object_del(old, "default");
    }
    if (list ? schema_is_in(list, s) : json_equal(old, s)) {
        json_decref(s);
        return;
    }
    if (!list) {
        list = json_pack("[O]", old);
        json_object_set_new(keys, name, json_pack("{s:o}", "alternatives", list));
    }
    json_array_append_new(list, s);
}

/* A word in place of a mapping stands beside the mapping: {"alternatives": [word, mapping]}. */
static json_t *schema_finish(json_t *keys)
{
    const char *name;
    json_t *s, *made = json_object();

    json_object_foreach(keys, name, s)
    {
        json_t *inner = json_object_get(s, "properties");
        json_t *several = json_object_get(s, "alternatives");
        json_t *word = json_object_get(s, "word");
        json_t *done = NULL;

        if (several)
            done = json_pack("{s:O}", "anyOf", several);
        else if (inner)
            done = json_pack("{s:s, s:o, s:b}", "type", "object", "properties",
                             schema_finish(inner), "additionalProperties", 0);
        else
            done = json_incref(s);
        if (word)
            done = schema_either(json_incref(word), done);
        json_object_set_new(made, name, done);
    }
    return made;
}

static void schema_key(json_t *top, const struct option *o)
{
    const char *name = o->key;
    json_t *keys = top, *holder = top;
    const char *group = NULL;
    size_t n = 0;

    for (const char *dot; (dot = strchr(name, '.')); name = dot + 1) {
        holder = keys;
        group = name;
        n = (size_t)(dot - name);
        keys = schema_mapping(keys, name, n);
    }
    schema_add(keys, name, schema_told(schema_of(o), o));
    if (o->flags & OPT_SHORT && group)
        json_object_set_new(json_object_getn(holder, group, n), "word",
                            schema_told(schema_of(o), o));
}

void manual_schema(const struct option_list *keys, FILE *f)
{
    json_t *top = json_object(), *schema;

    for (size_t i = 0; i < keys->n; i++)
        schema_key(top, keys->ref[i].o);
    schema =
        json_pack("{s:s, s:s, s:s, s:o, s:b}", "$schema",
                  "https://json-schema.org/draft/2020-12/schema", "title", "dptrain job file",
                  "type", "object", "properties", schema_finish(top), "additionalProperties", 0);
    ASSERT(schema);
    json_dumpf(schema, f, JSON_INDENT(1));
    fputc('\n', f);
    json_decref(schema);
    json_decref(top);
}
