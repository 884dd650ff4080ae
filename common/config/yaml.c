/* Reading YAML; a stranger may have written every byte of it.
 *
 * A first pass over libyaml's events bounds depth and number before libyaml builds the document:
 * its scanner takes quadratic time on deep nesting.  The document is then walked along the table,
 * so aliases, which may form cycles, cannot lead anywhere that the table does not. */
#include "config/document.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "config/read.h"

enum { MAX_DEPTH = 16, MAX_EVENTS = 10000 };

struct walk {
    struct reader *r;
    yaml_document_t doc;
    const yaml_node_t *culprit; /* the part of a value that is wrong; NULL: the whole value is */
    size_t sought;              /* of write_flow: culprit is the last node written before this */
};

/* Has the line (from 0) a tab where it is indented? */
static int is_tab_indented(const char *text, size_t len, size_t line)
{
    const char *end = text + len;
    size_t n = 0;

    for (; line > 0 && text; line--) {
        text = memchr(text, '\n', (size_t)(end - text));
        text = text ? text + 1 : NULL;
    }
    while (text && text + n < end && text[n] == ' ')
        n++;
    return text && text + n < end && text[n] == '\t';
}

/* The byte at which character n of the text begins. */
static size_t byte_of_char(const char *text, size_t len, size_t n)
{
    size_t at = 0;

    for (; n > 0 && at < len; n--)
        for (at++; at < len && ((unsigned char)text[at] & 0xc0) == 0x80;)
            at++;
    return at;
}

/* The character that two halves (surrogates) stand for, in UTF-8. */
static void join_halves(unsigned high, unsigned low, char out[5])
{
    const unsigned c = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);

    snprintf(out, 5, "%c%c%c%c", (int)(0xf0 | c >> 18), (int)(0x80 | (c >> 12 & 0x3f)),
             (int)(0x80 | (c >> 6 & 0x3f)), (int)(0x80 | (c & 0x3f)));
}

/* JSON writes a character beyond U+FFFF as two escapes, \ud83d\ude00, and libyaml refuses the
 * first one: its mark is behind the "\u".  Returns 0 if the parser stopped for another reason. */
static int fail_escape(const char *origin, const yaml_parser_t *p, const char *text, size_t len,
                       struct err *err)
{
    const size_t at = byte_of_char(text, len, p->problem_mark.index);
    const size_t line = p->problem_mark.line + 1, column = p->problem_mark.column - 1;
    char seen[13], whole[5];
    unsigned high = 0, low = 0;

    if (at < 2)
        return 0;
    snprintf(seen, sizeof seen, "%.*s", (int)(len - (at - 2)), text + at - 2);
    if (sscanf(seen, "\\u%4x\\u%4x", &high, &low) < 1 || high < 0xd800 || high > 0xdfff)
        return 0;
    if (high >= 0xdc00 || low < 0xdc00 || low > 0xdfff)
        return err_set(
            err, ERR_CONFIG,
            "%s:%zu:%zu: %.6s is one half of a pair of escapes; write the character itself", origin,
            line, column, seen);
    join_halves(high, low, whole);
    return err_set(
        err, ERR_CONFIG,
        "%s:%zu:%zu: %s is JSON's pair of escapes for one character, and YAML has no such "
        "pairs; write the character itself: %s",
        origin, line, column, seen, whole);
}

static int fail_parser(const char *origin, const yaml_parser_t *p, const char *text, size_t len,
                       struct err *err)
{
    const char *problem = p->problem ? p->problem : "unknown problem";
    int rc;

    if (p->error == YAML_MEMORY_ERROR)
        return err_set(err, ERR_NOMEM, "%s: out of memory", origin);
    if (p->error == YAML_READER_ERROR)
        return err_set(err, ERR_CONFIG, "%s: not YAML: %s (byte %zu)", origin, problem,
                       p->problem_offset);
    if (is_tab_indented(text, len, p->problem_mark.line))
        return err_set(err, ERR_CONFIG, "%s:%zu:%zu: a tab; YAML indents with spaces", origin,
                       p->problem_mark.line + 1, p->problem_mark.column + 1);
    rc = fail_escape(origin, p, text, len, err);
    if (rc < 0)
        return rc;
    return err_set(err, ERR_CONFIG, "%s:%zu:%zu: not YAML: %s%s%s", origin,
                   p->problem_mark.line + 1, p->problem_mark.column + 1, problem,
                   p->context ? ", " : "", p->context ? p->context : "");
}

static void parser_init(yaml_parser_t *p, const char *text, size_t len)
{
    ASSERT(yaml_parser_initialize(p));
    yaml_parser_set_encoding(p, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(p, (const unsigned char *)text, len);
}

/* Fail if `event` exceeds a limit.  *depth and *n_documents are the counts so far. */
static int check_event(const char *origin, const yaml_event_t *event, int n_events, int *depth,
                       int *n_documents, struct err *err)
{
    const char *what = NULL;

    if (event->type == YAML_SEQUENCE_START_EVENT || event->type == YAML_MAPPING_START_EVENT)
        ++*depth;
    else if (event->type == YAML_SEQUENCE_END_EVENT || event->type == YAML_MAPPING_END_EVENT)
        --*depth;
    else if (event->type == YAML_DOCUMENT_START_EVENT)
        ++*n_documents;
    if (*depth > MAX_DEPTH)
        what = "nested too deep";
    else if (*n_documents > 1)
        what = "a second document, want one";
    else if (n_events > MAX_EVENTS)
        what = "too many values";
    return what ? err_set(err, ERR_CONFIG, "%s:%zu:%zu: %s", origin, event->start_mark.line + 1,
                          event->start_mark.column + 1, what)
                : 0;
}

static int check_limits(const char *origin, const char *text, size_t len, struct err *err)
{
    int rc = 0, depth = 0, n_documents = 0;
    yaml_parser_t p;

    parser_init(&p, text, len);
    for (int n_events = 1, end = 0; !end && rc == 0; n_events++) {
        yaml_event_t event;

        if (!yaml_parser_parse(&p, &event)) {
            rc = fail_parser(origin, &p, text, len, err);
            break;
        }
        rc = check_event(origin, &event, n_events, &depth, &n_documents, err);
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&p);
    return rc;
}

static int at_node(const struct walk *w, const yaml_node_t *n, struct err *err)
{
    return err_wrap(err, "%s:%zu:%zu", w->r->origin, n->start_mark.line + 1,
                    n->start_mark.column + 1);
}

static const char *node_kind(const yaml_node_t *n)
{
    return n->type == YAML_MAPPING_NODE ? "a mapping" : "a list";
}

static const char *node_text(const yaml_node_t *n) { return (const char *)n->data.scalar.value; }

static int node_is_quoted(const yaml_node_t *n)
{
    return n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
}

static int node_is_null(const yaml_node_t *n)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};

    for (size_t i = 0; n->type == YAML_SCALAR_NODE && !node_is_quoted(n) && i < ARRAY_LEN(nulls);
         i++)
        if (!strcmp(node_text(n), nulls[i]) && strlen(nulls[i]) == n->data.scalar.length)
            return 1;
    return 0;
}

static int check_tag(const struct walk *w, const yaml_node_t *n, struct err *err)
{
    const char *tag = (const char *)n->tag;
    const char *plain = n->type == YAML_SCALAR_NODE    ? YAML_STR_TAG
                        : n->type == YAML_MAPPING_NODE ? YAML_MAP_TAG
                                                       : YAML_SEQ_TAG;
    char shown[64];

    if (!tag || !strcmp(tag, plain))
        return 0;
    err_set(err, ERR_CONFIG, "tag %s: tags are not understood here; leave it out",
            show_text(tag, strlen(tag), shown));
    return at_node(w, n, err);
}

/* In a list of words or texts, items may be quoted, as JSON has them. */
static int may_be_quoted(const struct option *o)
{
    return o->type == OPT_SET || o->type == OPT_STRING;
}

/* The items of a list as one text, for option_parse(). */
static int join_items(struct walk *w, const struct option *o, const yaml_node_t *list,
                      struct buf *out, struct err *err)
{
    const size_t most = o->type == OPT_NUMBERS ? OPT_NUMBERS_BYTES
                        : o->type == OPT_REALS ? OPT_REALS_BYTES
                                               : 1024;

    for (yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top;
         i++) {
        const yaml_node_t *item = yaml_document_get_node(&w->doc, *i);
        const int is_misquoted = node_is_quoted(item) && !may_be_quoted(o);
        char seen[96];

        if (out->len > most)
            return option_fail(o, "longer", err);
        if (item->type != YAML_SCALAR_NODE)
            return option_fail(o, "a list of lists", err);
        if (is_misquoted || node_is_null(item) || strchr(node_text(item), ','))
            return option_fail(
                o, show_scalar(node_text(item), item->data.scalar.length, is_misquoted, seen), err);
        if (out->len)
            buf_append(out, ", ", 2);
        buf_append(out, item->data.scalar.value, item->data.scalar.length);
    }
    return 0;
}

/* Append a scalar in double quotes, or as it stands if it had none. */
static void write_scalar(const yaml_node_t *n, struct buf *out)
{
    const char *s = node_text(n);

    if (!node_is_quoted(n)) {
        buf_append(out, s, n->data.scalar.length);
        return;
    }
    buf_append(out, "\"", 1);
    for (size_t i = 0; i < n->data.scalar.length; i++)
        buf_printf(out, s[i] == '"' || s[i] == '\\' ? "\\%c" : "%c", s[i]);
    buf_append(out, "\"", 1);
}

/* Append the node in flow style.  An alias may lead in a circle, so depth and length are bounded.
 */
static void write_flow(struct walk *w, int index, int depth, struct buf *out)
{
    const yaml_node_t *n = yaml_document_get_node(&w->doc, index);

    if (out->len > OPT_TREE_BYTES || depth > MAX_DEPTH)
        return;
    if (out->len <= w->sought)
        w->culprit = n;
    if (n->type == YAML_SCALAR_NODE) {
        write_scalar(n, out);
    } else if (n->type == YAML_SEQUENCE_NODE) {
        buf_append(out, "[", 1);
        for (yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top;
             i++) {
            buf_printf(out, "%s", i > n->data.sequence.items.start ? ", " : "");
            write_flow(w, *i, depth + 1, out);
        }
        buf_append(out, "]", 1);
    } else {
        buf_append(out, "{", 1);
        for (yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top;
             p++) {
            buf_printf(out, "%s", p > n->data.mapping.pairs.start ? ", " : "");
            write_flow(w, p->key, depth + 1, out);
            buf_append(out, ": ", 2);
            write_flow(w, p->value, depth + 1, out);
        }
        buf_append(out, "}", 1);
    }
}

static int write_items(struct walk *w, const struct option *o, const yaml_node_t *list,
                       struct buf *out, struct err *err)
{
    const size_t most = o->type == OPT_TREE ? OPT_TREE_BYTES : OPT_TEXT_BYTES;

    w->sought = 0;
    write_flow(w, (int)(list - w->doc.nodes.start) + 1, 0, out);
    w->culprit = NULL;
    return out->len > most ? option_fail(o, "longer", err) : 0;
}

/* Find the node of the file from which the wrong part of a tree's text was written. */
static void find_culprit(struct walk *w, const struct option *o, const yaml_node_t *list,
                         const struct buf *text)
{
    struct buf again = {0};
    struct err err;

    if (o->tree((const char *)text->data, text->len, &w->sought, &err) < 0)
        write_flow(w, (int)(list - w->doc.nodes.start) + 1, 0, &again);
    buf_fini(&again);
}

static int yaml_read_list(struct walk *w, const struct option_ref *ref, const yaml_node_t *n,
                          struct given *value, struct err *err)
{
    struct buf text = {0};
    const int is_deep = ref->o->type == OPT_ITEMS || ref->o->type == OPT_TREE || value->is_map;
    int rc = is_deep ? write_items(w, ref->o, n, &text, err) : join_items(w, ref->o, n, &text, err);

    value->text = buf_cstr(&text);
    value->len = text.len;
    value->is_list = 1;
    if (rc == 0)
        rc = read_give(w->r, ref, value, NULL, err);
    if (rc < 0 && ref->o->type == OPT_TREE && text.len <= OPT_TREE_BYTES)
        find_culprit(w, ref->o, n, &text);
    buf_fini(&text);
    return rc;
}

/* A row with ref's key that takes a list, or a mapping; or ref itself.  Which row holds is known
 * later. */
static const struct option_ref *list_row(const struct walk *w, const struct option_ref *ref,
                                         int is_map)
{
    const struct option_list *l = w->r->list;

    for (size_t i = ref->first; i < l->n; i++)
        if (l->ref[i].first == ref->first &&
            (is_map ? (l->ref[i].o->flags & OPT_MAP) != 0 : option_takes_list(l->ref[i].o)))
            return &l->ref[i];
    return ref;
}

static int read_node(struct walk *w, const struct option_ref *ref, const yaml_node_t *n,
                     struct err *err)
{
    struct given value = {.from = FROM_FILE,
                          .line = (int)n->start_mark.line + 1,
                          .column = (int)n->start_mark.column + 1,
                          .is_map = n->type == YAML_MAPPING_NODE};

    if (node_is_null(n))
        return read_give_none(w->r, ref, &value, err);
    if (n->type != YAML_SCALAR_NODE)
        ref = list_row(w, ref, value.is_map);
    if ((n->type == YAML_SEQUENCE_NODE && option_takes_list(ref->o)) ||
        (n->type == YAML_MAPPING_NODE && ref->o->flags & OPT_MAP))
        return yaml_read_list(w, ref, n, &value, err);
    if (n->type != YAML_SCALAR_NODE)
        return option_fail(ref->o, node_kind(n), err);
    value.text = node_text(n);
    value.len = n->data.scalar.length;
    value.is_quoted = node_is_quoted(n);
    return read_give(w->r, ref, &value, w->r->base_dir, err);
}

static int fail_unknown(struct walk *w, const yaml_node_t *key, const char *path, struct err *err)
{
    char shown[64], group[64];
    const char *best = table_closest(w->r->list, path, group);

    show_text(path, strlen(path), shown);
    if (strchr(node_text(key), '.') && table_find(w->r->list, path))
        err_set(err, ERR_CONFIG, "unknown key %s; in a file, keys nest: train: {epochs: 1}", shown);
    else
        err_set(err, ERR_CONFIG, "unknown key %s; %s%s", shown,
                best ? "the closest known key is " : TABLE_NONE_CLOSE, best ? best : "");
    return at_node(w, key, err);
}

/* Fail if the mapping has the pair's key before the pair, too.  Only known keys come here, so that
 * the search stays short. */
static int yaml_check_twice(struct walk *w, const yaml_node_t *map, const yaml_node_pair_t *pair,
                            const char *path, struct err *err)
{
    const yaml_node_t *key = yaml_document_get_node(&w->doc, pair->key);

    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < pair; p++) {
        const yaml_node_t *other = yaml_document_get_node(&w->doc, p->key);

        if (strcmp(node_text(other), node_text(key)) != 0)
            continue;
        err_set(err, ERR_CONFIG, "%s is given twice, first in line %zu", path,
                other->start_mark.line + 1);
        return at_node(w, key, err);
    }
    return 0;
}

static int read_mapping(struct walk *w, const yaml_node_t *map, const char *prefix,
                        struct err *err);

/* The key of the group that the user probably meant by a value in place of the whole group: the
 * first one that takes it.  NULL: none does, and so with a list. */
static const char *meant_key(const struct walk *w, const char *group, const yaml_node_t *n)
{
    const size_t len = strlen(group);
    struct err ignored;

    for (size_t i = 0; n->type == YAML_SCALAR_NODE && i < w->r->list->n; i++) {
        const struct option *o = w->r->list->ref[i].o;

        if (!strncmp(o->key, group, len) && o->key[len] == '.' && !strchr(o->key + len + 1, '.') &&
            option_try(o, node_text(n), n->data.scalar.length, 0, &ignored) == 0)
            return o->key + len + 1;
    }
    return NULL;
}

static int read_group(struct walk *w, const char *path, const yaml_node_t *n, struct err *err)
{
    const char *meant;
    char shown[64];

    if (node_is_null(n))
        return 0;
    if (n->type == YAML_MAPPING_NODE)
        return read_mapping(w, n, path, err);
    meant = meant_key(w, path, n);
    if (n->type == YAML_SCALAR_NODE)
        show_text(node_text(n), n->data.scalar.length, shown);
    if (meant)
        err_set(err, ERR_CONFIG, "%s is %s, want a mapping such as {%s: %s}", path, shown, meant,
                node_text(n));
    else
        err_set(err, ERR_CONFIG, "%s is %s, want a mapping with keys such as %s", path,
                n->type == YAML_SCALAR_NODE ? shown : "a list",
                table_first_of(w->r->list, path)->o->key);
    return at_node(w, n, err);
}

static int yaml_read_pair(struct walk *w, const yaml_node_t *map, const yaml_node_pair_t *pair,
                          const char *prefix, struct err *err)
{
    const yaml_node_t *key = yaml_document_get_node(&w->doc, pair->key);
    const yaml_node_t *value = yaml_document_get_node(&w->doc, pair->value);
    const struct option_ref *ref = NULL;
    char path[128];
    int rc, n, word;

    if (key->type != YAML_SCALAR_NODE) {
        err_set(err, ERR_CONFIG, "a key is %s, want a word", node_kind(key));
        return at_node(w, key, err);
    }
    n = snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", node_text(key));
    word = n < (int)sizeof path && !strchr(node_text(key), '.') &&
           strlen(node_text(key)) == key->data.scalar.length;
    if (word)
        ref = table_find(w->r->list, path);
    if (!ref && !(word && table_first_of(w->r->list, path)))
        return fail_unknown(w, key, path, err);
    if ((rc = check_tag(w, key, err)) < 0 || (rc = check_tag(w, value, err)) < 0 ||
        (rc = yaml_check_twice(w, map, pair, path, err)) < 0)
        return rc;
    if (!ref && value->type == YAML_SCALAR_NODE && !node_is_null(value))
        ref = table_short_of(w->r->list, path);
    if (!ref)
        return read_group(w, path, value, err);
    w->culprit = NULL;
    if (read_node(w, ref, value, err) == 0)
        return 0;
    return at_node(w, w->culprit ? w->culprit : value, err);
}

static int read_mapping(struct walk *w, const yaml_node_t *map, const char *prefix, struct err *err)
{
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        int rc = yaml_read_pair(w, map, p, prefix, err);

        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_root(struct walk *w, struct err *err)
{
    const yaml_node_t *root = yaml_document_get_root_node(&w->doc);

    if (!root || node_is_null(root))
        return err_set(err, ERR_CONFIG, "%s: empty, want at least model.arch and data.format",
                       w->r->origin);
    if (root->type == YAML_MAPPING_NODE)
        return read_mapping(w, root, "", err);
    err_set(err, ERR_CONFIG, "a job is a mapping, such as model: {arch: lenet}; this is %s",
            root->type == YAML_SCALAR_NODE ? "a text" : "a list");
    return at_node(w, root, err);
}

int document_load(const char *origin, const char *text, size_t len, yaml_document_t *out,
                  struct err *err)
{
    size_t mark = len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
    yaml_parser_t p;
    int rc;

    if (len > READ_MAX_BYTES)
        return err_set(err, ERR_CONFIG, "%s: %zu bytes, want at most %d", origin, len,
                       READ_MAX_BYTES);
    text = len ? text + mark
               : ""; /* libyaml skips a byte order mark only where it guesses the encoding */
    len -= mark;
    rc = check_limits(origin, text, len, err);
    if (rc < 0)
        return rc;
    parser_init(&p, text, len);
    if (!yaml_parser_load(&p, out))
        rc = fail_parser(origin, &p, text, len, err);
    yaml_parser_delete(&p);
    return rc;
}

int read_give_list(struct reader *r, const struct option_ref *ref, const char *text,
                   struct err *err)
{
    struct walk w = {.r = r};
    struct given value = {.from = FROM_SET};
    const yaml_node_t *n;
    int rc = document_load(ref->o->key, text, strlen(text), &w.doc, err);

    if (rc < 0)
        return rc;
    n = yaml_document_get_root_node(&w.doc);
    rc = n->type == YAML_SEQUENCE_NODE ? yaml_read_list(&w, ref, n, &value, err)
                                       : option_fail(ref->o, node_kind(n), err);
    yaml_document_delete(&w.doc);
    return rc;
}

int read_yaml(struct reader *r, const char *text, size_t len, struct err *err)
{
    struct walk w = {.r = r};
    int rc = document_load(r->origin, text, len, &w.doc, err);

    if (rc < 0)
        return rc;
    rc = read_root(&w, err);
    yaml_document_delete(&w.doc);
    return rc;
}
