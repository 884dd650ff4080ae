/* Everything that all sources of options share: values are collected and checked, paths are made
 * absolute, places are kept for messages, and in the end the job is filled in. */
#include "config/read.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

void reader_init(struct reader *r, const struct option_list *list, void *job, struct arena *arena)
{
    *r = (struct reader){.list = list, .job = job, .arena = arena};
    r->given = xcalloc(list->n, sizeof *r->given);
}

void reader_fini(struct reader *r) { free(r->given); }

static int read_locate_node(const struct reader *r, const struct given *g, struct err *err)
{
    if (g->from == FROM_FILE)
        return err_wrap(err, "%s:%d:%d", r->origin, g->line, g->column);
    return err_wrap(err, "%s", g->from == FROM_SET ? "--set" : r->origin);
}

int read_locate(const struct reader *r, struct err *err)
{
    const struct option_ref *ref;
    char key[64];

    snprintf(key, sizeof key, "%.*s", (int)strcspn(err->msg, " "), err->msg);
    ref = table_find(r->list, key);
    ASSERT(ref);
    return read_locate_node(r, &r->given[ref->first], err);
}

/* ---- values ---- */

/* Append `path` without "." components and doubled slashes ("..", which may cross links, stays). */
static void append_path(struct buf *out, const char *path, size_t len)
{
    const char *end = path + len;

    while (path < end) {
        const char *slash = memchr(path, '/', (size_t)(end - path));
        const char *stop = slash ? slash : end;
        size_t n = (size_t)(stop - path);

        if (n > 0 && !(n == 1 && *path == '.')) {
            buf_append(out, "/", 1);
            buf_append(out, path, n);
        }
        path = slash ? slash + 1 : end;
    }
}

static int make_absolute(const struct option *o, const char *text, size_t len, const char *base_dir,
                         struct buf *out, struct err *err)
{
    char shown[64];

    if (*text != '/' && (!base_dir || *base_dir != '/'))
        return err_set(err, ERR_CONFIG, "%s is %s, want an absolute path", o->key,
                       show_text(text, len, shown));
    if (*text != '/')
        append_path(out, base_dir, strlen(base_dir));
    append_path(out, text, len);
    if (out->len == 0)
        buf_append(out, "/", 1);
    return 0;
}

/* The text of a path becomes the absolute path, which `room` holds.  A word of the option's stays
 * as it is; a file of this name is ./WORD. */
static int read_resolve(const struct option *o, const char **text, size_t *len,
                        const char *base_dir, struct buf *room, struct err *err)
{
    if (o->type != OPT_PATH || *len == 0 || option_is_word(o, *text, *len))
        return 0;
    if (make_absolute(o, *text, *len, base_dir, room, err) < 0)
        return err->code;
    *text = buf_cstr(room);
    *len = room->len;
    return 0;
}

/* 1: several entries have rows with this key.  Which of them holds in the job is known only once
 * all has been read, and its range is the one that counts (fill_row). */
static int has_several_rows(const struct reader *r, const struct option_ref *ref)
{
    for (size_t i = ref->first + 1; i < r->list->n; i++)
        if (r->list->ref[i].first == ref->first)
            return 1;
    return 0;
}

int read_give(struct reader *r, const struct option_ref *ref, const struct given *value,
              const char *base_dir, struct err *err)
{
    const char *text = value->text;
    size_t len = value->len;
    const int is_tree = ref->o->type == OPT_TREE && value->is_list; /* errors name a place in it */
    struct buf path = {0};
    int rc;

    if (ref->o->flags & OPT_NONE && !value->is_quoted && len == 4 && !memcmp(text, "none", 4))
        return read_give_none(r, ref, value, err);
    rc = read_resolve(ref->o, &text, &len, base_dir, &path, err);
    if (rc == 0 && (is_tree || !has_several_rows(r, ref)))
        rc = option_try(ref->o, text, len, value->is_quoted, err);
    if (rc == 0) {
        struct given *to = &r->given[ref->first];
        char *copy = arena_alloc(r->arena, len + 1);

        memcpy(copy, text, len);
        copy[len] = 0;
        *to = *value;
        to->text = copy;
        to->len = len;
    }
    buf_fini(&path);
    return rc;
}

int read_give_none(struct reader *r, const struct option_ref *ref, const struct given *value,
                   struct err *err)
{
    struct given *to = &r->given[ref->first];

    if (!option_may_be_none(ref->o) && !has_several_rows(r, ref))
        return option_fail(ref->o, "empty", err);
    *to = *value;
    to->text = "";
    to->len = 0;
    to->is_none = 1;
    return 0;
}

int read_field(const struct option_ref *ref, void *job, struct arena *arena, const char *text,
               size_t len, const char *base_dir, struct err *err)
{
    struct buf path = {0};
    int rc = read_resolve(ref->o, &text, &len, base_dir, &path, err);

    if (rc == 0)
        rc = option_parse(ref->o, table_field(ref, job), arena, text, len, 0, err);
    buf_fini(&path);
    return rc;
}

/* ---- --set ---- */

/* A list in brackets is one for a key that takes texts, too: the row that takes it, or NULL. */
static const struct option_ref *row_of_texts(const struct reader *r, const struct option_ref *ref,
                                             const char *text)
{
    const size_t len = strlen(text);

    for (size_t i = ref->first; i < r->list->n && len >= 2; i++)
        if (r->list->ref[i].first == ref->first && r->list->ref[i].o->flags & OPT_MANY)
            return text[0] == '[' && text[len - 1] == ']' ? &r->list->ref[i] : NULL;
    return NULL;
}

static int set_option(struct reader *r, const struct option_ref *ref, const char *text,
                      struct err *err)
{
    const struct option_ref *texts = row_of_texts(r, ref, text);
    const struct given value = {.from = FROM_SET, .text = text, .len = strlen(text)};
    char *cwd;
    int rc;

    if (!*text && option_may_be_none(ref->o))
        return read_give_none(r, ref, &value, err);
    cwd = ref->o->type == OPT_PATH && *text != '/' ? getcwd(NULL, 0) : NULL;
    rc = texts ? read_give_list(r, texts, text, err) : read_give(r, ref, &value, cwd, err);
    free(cwd);
    return rc < 0 ? err_wrap(err, "--set") : 0;
}

int read_set(struct reader *r, const char *assignment, struct err *err)
{
    const char *equals = strchr(assignment, '=');
    size_t len = equals ? (size_t)(equals - assignment) : strlen(assignment);
    char key[64], group[64], shown[64];
    const struct option_ref *ref;
    const char *best;

    if (!equals || len == 0)
        return err_set(err, ERR_CONFIG, "--set is %s, want key=value, such as train.epochs=1",
                       show_text(assignment, strlen(assignment), shown));
    snprintf(key, sizeof key, "%.*s", (int)min_i64((int64_t)len, 63), assignment);
    ref = len < sizeof key ? table_find(r->list, key) : NULL;
    if (!ref && len < sizeof key)
        ref = table_short_of(r->list, key);
    if (ref)
        return set_option(r, ref, equals + 1, err);
    ref = table_first_of(r->list, key);
    if (ref)
        return err_set(err, ERR_CONFIG,
                       "--set: %s is a group of keys, want one of them, such as %s", key,
                       ref->o->key);
    best = table_closest(r->list, key, group);
    return err_set(err, ERR_CONFIG, "--set: unknown key %s; %s%s",
                   show_text(assignment, len, shown),
                   best ? "the closest known key is " : TABLE_NONE_CLOSE, best ? best : "");
}

/* ---- filling in ---- */

static const struct given *read_given_of(const struct reader *r, const struct option_ref *ref)
{
    return &r->given[ref->first];
}

static int read_choose(struct reader *r, const struct option_ref *ref, const char *text, size_t len)
{
    table_choose(ref, r->job, option_entry(ref->o->registry, text, len), r->arena);
    return 0;
}

static int fail_none(const struct reader *r, const struct option *o, const struct given *g,
                     struct err *err)
{
    option_fail(o, "empty", err);
    return read_locate_node(r, g, err);
}

/* Set the row's field from the value that was given, or else from the default. */
static int read_fill_row(struct reader *r, const struct option_ref *ref, struct err *err)
{
    const struct option *o = ref->o;
    const struct given *g = read_given_of(r, ref);
    const int is_given = g->text && table_hold(r->list, ref, r->job);
    const char *text = is_given ? g->text : o->def;
    const size_t len = is_given ? g->len : o->def ? strlen(o->def) : 0;
    void *field = table_field(ref, r->job);
    int rc;

    if (!field || !text)
        return 0;
    if (is_given && g->is_none)
        return option_may_be_none(o) ? 0 : fail_none(r, o, g, err);
    if (o->type == OPT_ENTRY)
        return read_choose(r, ref, text, len);
    if (is_given && g->is_map && !(o->flags & OPT_MAP))
        rc = option_fail(o, "a mapping", err);
    else if (is_given && g->is_list && !option_takes_list(o))
        rc = option_fail(o, "a list", err);
    else
        rc = option_parse(o, field, r->arena, text, len, is_given && g->is_quoted, err);
    if (rc == 0)
        return 0;
    ASSERT(is_given); /* a default is always possible */
    return read_locate_node(r, g, err);
}

/* Of the rows with ref's key, that of an entry which the job has chosen; ref if there is none. */
static const struct option_ref *row_of_job(const struct reader *r, const struct option_ref *ref)
{
    for (size_t i = ref->first; i < r->list->n; i++)
        if (r->list->ref[i].first == ref->first && table_field(&r->list->ref[i], r->job))
            return &r->list->ref[i];
    return ref;
}

/* The row whose value decides whether `ref` holds; its field is the job's, if the job has it. */
static const struct option_ref *selector_of(const struct reader *r, const struct option_ref *ref)
{
    return row_of_job(r, table_find(r->list, table_selector(ref)));
}

/* Of ref, its selector, the selector of that and so on: the first one whose own selector holds in
 * the job.  strategy.outer_lr wants an outer, which wants strategy.name local_sgd: if the name is
 * another, outer is what the job lacks. */
static const struct option_ref *first_unused(const struct reader *r, const struct option_ref *ref)
{
    while (!table_holding(r->list, selector_of(r, ref), r->job))
        ref = selector_of(r, ref);
    return ref;
}

static int fail_unused(const struct reader *r, const struct option_ref *ref, struct err *err)
{
    const struct option_ref *unused = first_unused(r, row_of_job(r, ref));
    const struct option_ref *selector = selector_of(r, unused);
    struct buf text = {0};

    buf_printf(&text, "%s applies only if %s is ", ref->o->key, selector->o->key);
    table_when(r->list, unused, 0, &text);
    buf_printf(&text, "; it is ");
    option_format(selector->o, table_field(selector, r->job), &text);
    err_set(err, ERR_CONFIG, "%s", buf_cstr(&text));
    buf_fini(&text);
    return read_locate_node(r, read_given_of(r, ref), err);
}

static int fail_missing(const struct reader *r, const struct option *o, struct err *err)
{
    struct buf want = {0};
    int rc;

    option_want(o, &want);
    rc = err_set(err, ERR_CONFIG, "%s: %s is missing, want %s", r->origin, o->key, buf_cstr(&want));
    buf_fini(&want);
    return rc;
}

/* Is a key missing, or given although the job's choices do not have it?  Where an override changed
 * a choice, the keys in the file that only the other choice has are dropped instead. */
static int check_presence(const struct reader *r, const struct option_ref *ref, struct err *err)
{
    const struct option_ref *holds = table_holding(r->list, ref, r->job);
    const struct given *g = read_given_of(r, ref);

    if (holds)
        return holds->o->flags & OPT_REQUIRED && (!g->text || g->is_none)
                   ? fail_missing(r, holds->o, err)
                   : 0;
    if (g->from == FROM_DEFAULT || g->is_none ||
        (g->from == FROM_FILE &&
         read_given_of(r, selector_of(r, first_unused(r, ref)))->from == FROM_SET))
        return 0;
    return fail_unused(r, ref, err);
}

static int check_entry(const struct reader *r, const struct option_ref *ref, struct err *err)
{
    const struct option_group *g = table_chosen(ref, r->job);

    if (g->check && g->check(table_chosen_options(ref, r->job), err) < 0)
        return read_locate(r, err);
    return 0;
}

int read_finish(struct reader *r, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < r->list->n && rc == 0; i++)
        rc = read_fill_row(r, &r->list->ref[i], err);
    for (size_t i = 0; i < r->list->n && rc == 0; i++)
        if (r->list->ref[i].first == i)
            rc = check_presence(r, &r->list->ref[i], err);
    for (size_t i = 0; i < r->list->n && rc == 0; i++)
        if (r->list->ref[i].o->type == OPT_ENTRY)
            rc = check_entry(r, &r->list->ref[i], err);
    return rc;
}
