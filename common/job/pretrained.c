/* pretrained - a row of the architecture's table for each key of config.json.
 *
 * A key that config.json lacks, or that is null there, has transformers' default.  Values are
 * compared as texts of a job file, numbers by their values. */
#include "job/pretrained.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "import/arch.h"

enum { NONE = 1, MOST_BYTES = 1 << 20, VALUE = 64 };

struct config {
    char *path;
    json_t *root;
};

static void config_close(struct config *c)
{
    json_decref(c->root);
    free(c->path);
}

/* The path of config.json in the folder `weights`, or beside this file; for free(). */
static char *config_path(const char *weights)
{
    const char *slash = strrchr(weights, '/');
    struct stat st;

    if (stat(weights, &st) == 0 && S_ISDIR(st.st_mode))
        return xasprintf("%s/config.json", weights);
    return xasprintf("%.*sconfig.json", slash ? (int)(slash - weights) + 1 : 0, weights);
}

/* NONE: there is no such file. */
static int config_open(const char *weights, struct config *c, struct err *err)
{
    char *path = config_path(weights);
    json_error_t why = {0};
    char at[32] = "";
    struct stat st;

    *c = (struct config){.path = path};
    if (stat(path, &st) < 0) {
        config_close(c);
        return NONE;
    }
    if (S_ISREG(st.st_mode) && st.st_size <= MOST_BYTES)
        c->root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(c->root))
        return 0;
    if (S_ISREG(st.st_mode) && st.st_size <= MOST_BYTES && !c->root)
        snprintf(at, sizeof at, ":%d:%d", why.line, why.column);
    err_set(err, ERR_CONFIG,
            "%s%s: %s; want the JSON of transformers' config.json, or no such file beside the "
            "weights",
            path, at,
            !S_ISREG(st.st_mode)      ? "no regular file"
            : st.st_size > MOST_BYTES ? "more than a megabyte"
            : c->root                 ? "no JSON object"
                                      : why.text);
    config_close(c);
    return err->code;
}

/* Its model_type, or NULL. */
static const char *pretrained_type_of(const struct config *c)
{
    return json_string_value(json_object_get(c->root, "model_type"));
}

/* The value of a row's key; NULL: it has transformers' default. */
static const json_t *seen_of(const struct config *c, const struct config_row *row)
{
    const json_t *v = json_object_get(c->root, row->name);

    if (!v && row->also)
        v = json_object_get(c->root, row->also);
    return json_is_null(v) ? NULL : v;
}

/* That value, as a job file would write it. */
static const char *pretrained_value_of(const struct config *c, const struct config_row *row,
                                       char out[VALUE])
{
    const json_t *v = seen_of(c, row);

    if (!v)
        snprintf(out, VALUE, "%s", row->def);
    else if (json_is_boolean(v))
        snprintf(out, VALUE, "%s", json_is_true(v) ? "true" : "false");
    else if (json_is_integer(v))
        snprintf(out, VALUE, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        snprintf(out, VALUE, "%.9g", json_real_value(v));
    else
        snprintf(out, VALUE, "%s",
                 json_is_string(v) ? json_string_value(v) : "a list or an object");
    text_clean(out);
    return out;
}

static int is_number(const char *text, double *v)
{
    char *end;

    *v = strtod(text, &end);
    return end != text && !*end;
}

/* "4" is no number, and "false" is true to transformers. */
static int check_type(const struct config *c, const struct config_row *row, struct err *err)
{
    const json_t *v = seen_of(c, row);
    const int is_flag = !strcmp(row->def, "true") || !strcmp(row->def, "false");
    char value[VALUE];
    double number;

    if (!json_is_string(v) || (!is_flag && !is_number(row->def, &number)))
        return 0;
    return err_set(err, ERR_CONFIG, "%s: %s is the text \"%s\", want %s without quotes, such as %s",
                   c->path, row->name, pretrained_value_of(c, row, value),
                   is_flag ? "true or false" : "a number", row->def);
}

/* 1: `seen`, a value in config.json, means what `want` does. */
static int pretrained_means(const struct config_row *row, const char *seen, const char *want)
{
    double a, b;

    for (int i = 0; row->alike && row->alike[i]; i++)
        if (!strcmp(row->alike[i], seen))
            return 1;
    if (is_number(seen, &a) && is_number(want, &b))
        return fabs(a - b) <= 1e-7 * fabs(b);
    return !strcmp(seen, want);
}

static const struct model_config *pretrained_config_of(const struct model_arch *arch)
{
    return arch && arch->file ? arch->file->config : NULL;
}

/* ---- filling in ---- */

static struct given *pretrained_given_of(const struct reader *r, const char *key)
{
    const struct option_ref *ref = table_find(r->list, key);

    ASSERT(ref);
    return &r->given[ref->first];
}

static int is_left_out(const struct reader *r, const char *key)
{
    const struct given *g = pretrained_given_of(r, key);

    return g->from == FROM_DEFAULT && !g->text;
}

static const struct model_arch *arch_named(const char *name)
{
    for (int i = 0; model_archs[i]; i++)
        if (!strcmp(model_archs[i]->name, name))
            return container_of(model_archs[i], struct model_arch, group);
    return NULL;
}

static const struct model_arch *arch_of_type(const char *type)
{
    for (int i = 0; model_archs[i]; i++) {
        const struct model_arch *arch = container_of(model_archs[i], struct model_arch, group);

        if (arch->takes_config && !strcmp(pretrained_config_of(arch)->type, type))
            return arch;
    }
    return NULL;
}

static const struct option *pretrained_option_of(const struct model_arch *arch, const char *key)
{
    const struct option *o = arch->group.option;

    while (strcmp(o->key, key) != 0)
        o++; /* config rows have keys of the architecture */
    return o;
}

/* 1: the data are a text by bytes or characters, which has its own vocabulary: its numbers mean
 * other words than those of the weights. */
static int has_own_vocab(const struct reader *r)
{
    const struct given *format = pretrained_given_of(r, "data.format"),
                       *tokenizer = pretrained_given_of(r, "data.tokenizer");

    return format->text && !strcmp(format->text, "text") &&
           !(tokenizer->text && *tokenizer->text == '/');
}

/* 1: the row says the value of a key that the job leaves out. */
static int is_wanted(const struct reader *r, const struct config_row *row)
{
    return row->key && is_left_out(r, row->key) &&
           !(!strcmp(row->key, "model.vocab") && has_own_vocab(r));
}

static int pretrained_give(struct reader *r, const char *key, const char *value, int is_default,
                           struct buf *told, struct err *err)
{
    buf_printf(told, "%s%s: %s%s", told->len ? ", " : "", key, value,
               is_default ? " (transformers' default)" : "");
    return read_give(r, table_find(r->list, key),
                     &(struct given){.text = value, .len = strlen(value)}, NULL, err);
}

static int fill_rows(struct reader *r, const struct config *c, const struct model_arch *arch,
                     struct buf *told, struct err *err)
{
    const struct model_config *m = pretrained_config_of(arch);
    char value[VALUE];
    int rc = 0;

    for (int i = 0; i < m->n_rows && rc == 0; i++) {
        const struct config_row *row = &m->row[i];

        if (!is_wanted(r, row))
            continue;
        if (check_type(c, row, err) < 0)
            return err->code;
        pretrained_value_of(c, row, value);
        rc = option_try(pretrained_option_of(arch, row->key), value, strlen(value), 0, err);
        if (rc < 0)
            return err_wrap(err, "%s: %s", c->path, row->name);
        rc = pretrained_give(r, row->key, value, !seen_of(c, row), told, err);
    }
    return rc;
}

/* The path of the weights, at which nobody finds model.arch. */
static int no_arch(const char *path, const char *why, struct err *err)
{
    struct buf types = {0};

    for (int i = 0; model_archs[i]; i++) {
        const struct model_arch *arch = container_of(model_archs[i], struct model_arch, group);

        if (arch->takes_config)
            buf_printf(&types, "%s\"%s\"", types.len ? " or " : "",
                       pretrained_config_of(arch)->type);
    }
    err_set(err, ERR_CONFIG,
            "model.arch is missing, and model.init.path: %s does not tell it: %s; give model.arch "
            "(\"dpdriver --help-job\" lists them), or the folder of weights with transformers' "
            "config.json of model_type %s",
            path, why, buf_cstr(&types));
    buf_fini(&types);
    return err->code;
}

/* There is no config.json for the job that has no model.arch. */
static int no_config(const char *path, struct err *err)
{
    char *config = config_path(path), *why;
    struct stat st;
    int rc;

    if (stat(path, &st) < 0)
        why = xstrdup(strerror(errno));
    else
        why = xasprintf("there is no %s", config);
    rc = no_arch(path, why, err);
    free(why);
    free(config);
    return rc;
}

/* config.json is no description of a network that is chosen by it. */
static int no_such_type(const char *path, const struct config *c, struct err *err)
{
    const char *type = pretrained_type_of(c);
    char *why = type ? xasprintf("%s has model_type \"%.40s\"", c->path, type)
                     : xasprintf("%s has no model_type", c->path);
    int rc;

    text_clean(why);
    rc = no_arch(path, why, err);
    free(why);
    return rc;
}

static int fill_from(struct reader *r, const char *path, const struct config *c,
                     const struct model_arch *arch, struct err *err)
{
    const char *type = pretrained_type_of(c);
    struct buf told = {0};
    int rc = 0;

    if (!arch) {
        arch = type ? arch_of_type(type) : NULL;
        if (!arch)
            return no_such_type(path, c, err);
        rc = pretrained_give(r, "model.arch", arch->group.name, 0, &told, err);
    }
    if (rc == 0 && type && !strcmp(pretrained_config_of(arch)->type, type))
        rc = fill_rows(r, c, arch, &told, err);
    if (rc == 0 && told.len)
        log_info("model.init: %s says what the job leaves out: %s", c->path, buf_cstr(&told));
    buf_fini(&told);
    return rc;
}

/* 1: the job leaves out something that a config.json could say. */
static int has_gaps(const struct reader *r, const struct model_arch *arch)
{
    const struct model_config *m = pretrained_config_of(arch);

    for (int i = 0; arch && i < m->n_rows; i++)
        if (is_wanted(r, &m->row[i]))
            return 1;
    return !arch;
}

/* 1: the path names config.json itself. */
static int is_config(const char *path)
{
    const char *slash = strrchr(path, '/');
    struct stat st;

    return !strcmp(slash ? slash + 1 : path, "config.json") &&
           !(stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

int pretrained_fill(struct reader *r, struct err *err)
{
    const struct given *init = pretrained_given_of(r, "model.init.name"),
                       *path = pretrained_given_of(r, "model.init.path"),
                       *name = pretrained_given_of(r, "model.arch");
    const struct model_arch *arch = name->text ? arch_named(name->text) : NULL;
    struct config c;
    int rc;

    if (!init->text || strcmp(init->text, "file") != 0 || !path->text || path->is_none)
        return 0;
    if (is_config(path->text))
        return err_set(err, ERR_CONFIG,
                       "model.init.path: %s describes weights and holds none; give the folder, "
                       "model.safetensors or model.safetensors.index.json",
                       path->text);
    if ((name->text && !(arch && arch->takes_config)) || !has_gaps(r, arch))
        return 0;
    rc = config_open(path->text, &c, err);
    if (rc == NONE)
        rc = arch ? 0 : no_config(path->text, err);
    else if (rc == 0) {
        rc = fill_from(r, path->text, &c, arch, err);
        config_close(&c);
    }
    return rc < 0 ? err_wrap(err, "model.init") : 0;
}

/* ---- comparing ---- */

/* The job's value of a row's key; what transformers must have, where the job has no key for it. */
static const char *job_value(const struct job *job, const struct config_row *row, char out[VALUE])
{
    struct buf text = {0};
    const struct option *o;

    if (!row->key)
        return row->def;
    o = pretrained_option_of(job->model.kind, row->key);
    option_format(o, (const char *)job->model.options + o->offset, &text);
    snprintf(out, VALUE, "%s", buf_cstr(&text));
    buf_fini(&text);
    return out;
}

/* A vocabulary of 0 is that of the data, which the shapes of tensors tell. */
static int is_open(const struct config_row *row, const char *value)
{
    return row->key && row->kind == CONFIG_SHAPE && !strcmp(value, "0");
}

struct differences {
    struct buf refused, told;
    int n;
};

static void compare_row(const struct job *job, const struct config *c, const struct config_row *row,
                        struct differences *d)
{
    char value[VALUE], room[VALUE];
    const char *seen = pretrained_value_of(c, row, value), *want = job_value(job, row, room);
    const int draws = job->model.init.missing == MISSING_DRAW;

    if (pretrained_means(row, seen, want) || is_open(row, want) ||
        (row->kind == CONFIG_SHAPE && draws))
        return; /* of shapes that differ, draw lists the tensors */
    if (row->kind == CONFIG_TRAINING) {
        buf_printf(&d->told, "%s%s is %s, %s is %s", d->told.len ? "; " : "", row->name, seen,
                   row->key, want);
        return;
    }
    d->n++;
    buf_printf(&d->refused, "%s%s is %s, ", d->refused.len ? "; " : "", row->name, seen);
    if (row->key)
        buf_printf(&d->refused, "%s is %s (want %s: %s)", row->key, want, row->key, seen);
    else
        buf_printf(&d->refused,
                   "this network has %s alone (without config.json beside them, the weights are "
                   "taken nevertheless)",
                   want);
}

static int compare_rows(const struct job *job, const struct config *c,
                        void (*warn)(void *arg, const char *text), void *arg, struct err *err)
{
    const struct model_config *m = pretrained_config_of(job->model.kind);
    struct differences d = {0};
    int rc = 0;

    for (int i = 0; i < m->n_rows; i++)
        if (check_type(c, &m->row[i], err) < 0)
            return err->code;
    for (int i = 0; i < m->n_rows; i++)
        compare_row(job, c, &m->row[i], &d);
    if (d.n)
        rc = err_set(err, ERR_CONFIG, "%s: %d difference%s from the job: %s", c->path, d.n,
                     d.n > 1 ? "s" : "", buf_cstr(&d.refused));
    else if (d.told.len && warn) {
        char *text =
            xasprintf("model.init: %s: %s; training goes by the job", c->path, buf_cstr(&d.told));

        warn(arg, text);
        free(text);
    }
    buf_fini(&d.refused);
    buf_fini(&d.told);
    return rc;
}

int pretrained_check(const struct job *job, void (*warn)(void *arg, const char *text), void *arg,
                     struct err *err)
{
    const struct model_config *m = pretrained_config_of(job->model.kind);
    struct config c;
    const char *type;
    int rc;

    if (!m)
        return 0;
    rc = config_open(job->model.init.path, &c, err);
    if (rc != 0)
        return rc == NONE ? 0 : rc;
    type = pretrained_type_of(&c);
    if (type && !strcmp(type, m->type))
        rc = compare_rows(job, &c, warn, arg, err);
    else if (type)
        rc = err_set(err, ERR_CONFIG,
                     "%s: model_type is \"%.40s\", want \"%s\", which model.arch: %s is in "
                     "transformers; dptrain has no other of its networks of text",
                     c.path, type, m->type, job->model.kind->group.name);
    else if (warn) {
        char *text = xasprintf("model.init: %s has no model_type, so it is not transformers', and "
                               "is not compared with the job",
                               c.path);

        warn(arg, text);
        free(text);
    }
    config_close(&c);
    return rc;
}

void pretrained_defaults(const struct job *job, struct buf *out)
{
    const struct model_config *m = pretrained_config_of(job->model.kind);
    struct config c;
    struct err err;
    int n = 0;

    if (!job->model.kind->takes_config || config_open(job->model.init.path, &c, &err) != 0)
        return;
    for (int i = 0; i < m->n_rows; i++) {
        const struct config_row *row = &m->row[i];
        char room[VALUE];

        if (row->key && row->kind != CONFIG_TRAINING && !seen_of(&c, row) &&
            !strcmp(job_value(job, row, room), row->def))
            buf_printf(out, "%s%s", n++ ? ", " : "", row->name);
    }
    config_close(&c);
}

/* ---- writing ---- */

static json_t *json_of(const char *value)
{
    double v;

    if (!strcmp(value, "true") || !strcmp(value, "false"))
        return json_boolean(*value == 't');
    if (!is_number(value, &v))
        return json_string(value);
    return v == floor(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_real(v);
}

/* transformers' default tokens for begin and end are those of its own vocabulary. */
static void add_tokens(json_t *root)
{
    json_object_set_new(root, "bos_token_id", json_null());
    json_object_set_new(root, "eos_token_id", json_null());
}

void pretrained_write(const struct job *job, int64_t n_classes, struct buf *out)
{
    const struct model_config *m = pretrained_config_of(job->model.kind);
    const struct import_options *import = import_options_of(&job->model);
    json_t *root;
    char *text;

    if (import && import->network && import->network->config)
        buf_printf(out, "%s\n", import->network->config);
    if (!m)
        return;
    root = json_pack("{s:[s], s:s}", "architectures", m->class_name, "model_type", m->type);
    for (int i = 0; i < m->n_rows; i++) {
        const struct config_row *row = &m->row[i];
        char room[VALUE], number[VALUE];
        const char *value = job_value(job, row, room);

        if (is_open(row, value)) {
            snprintf(number, sizeof number, "%lld", (long long)n_classes);
            value = number;
        }
        json_object_set_new(root, row->name, json_of(value));
        if (row->is_vocabulary && strcmp(value, row->def) != 0)
            add_tokens(root);
    }
    text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    json_decref(root);
    ASSERT(text);
    buf_printf(out, "%s\n", text);
    free(text);
}
