/* What all sources of options share: defaults, --set, paths, places. */
#include "config/read.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

void reader_init(struct reader *r, struct job *job, const char *origin, const char *base_dir)
{
    *r = (struct reader){.job = job, .origin = origin, .base_dir = base_dir};
    r->from = xcalloc(n_config_options, sizeof *r->from);
}

void reader_fini(struct reader *r) { free(r->from); }

int read_locate(const struct reader *r, const struct option *o, struct err *err)
{
    const struct source *from = &r->from[o - config_options];

    if (from->kind == FROM_FILE)
        return err_wrap(err, "%s:%d:%d", r->origin, from->line, from->column);
    return err_wrap(err, "%s", from->kind == FROM_SET ? "--set" : r->origin);
}

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

static int read_path(struct job *job, const struct option *o, const char *text, size_t len,
                     const char *base_dir, struct err *err)
{
    struct buf path = {0};
    char shown[64];
    int rc;

    if (*text != '/' && (!base_dir || *base_dir != '/'))
        return err_set(err, ERR_CONFIG, "%s is %s, want an absolute path", o->key,
                       show_text(text, len, shown));
    if (*text != '/')
        append_path(&path, base_dir, strlen(base_dir));
    append_path(&path, text, len);
    if (path.len == 0)
        buf_append(&path, "/", 1);
    rc = option_parse(o, job, buf_cstr(&path), path.len, 1, err);
    buf_fini(&path);
    return rc;
}

int read_value(struct job *job, const struct option *o, const char *text, size_t len, int quoted,
               const char *base_dir, struct err *err)
{
    if (o->type == OPT_PATH && len > 0)
        return read_path(job, o, text, len, base_dir, err);
    return option_parse(o, job, text, len, quoted, err);
}

void read_defaults(struct reader *r)
{
    for (size_t i = 0; i < n_config_options; i++) {
        const struct option *o = &config_options[i];
        struct err err;

        if (o->def)
            ASSERT(option_parse(o, r->job, o->def, strlen(o->def), 0, &err) == 0);
    }
}

static int set_option(struct reader *r, const struct option *o, const char *value, struct err *err)
{
    struct source *from = &r->from[o - config_options];
    char *cwd;
    int rc;

    if (!*value && option_may_be_none(o)) {
        *(const char **)option_field(o, r->job) = NULL;
        from->kind = FROM_DEFAULT;
        return 0;
    }
    cwd = o->type == OPT_PATH && *value != '/' ? getcwd(NULL, 0) : NULL;
    rc = read_value(r->job, o, value, strlen(value), 0, cwd, err);

    free(cwd);
    if (rc < 0)
        return err_wrap(err, "--set");
    from->kind = FROM_SET;
    return 0;
}

int read_set(struct reader *r, const char *assignment, struct err *err)
{
    const char *equals = strchr(assignment, '=');
    size_t len = equals ? (size_t)(equals - assignment) : strlen(assignment);
    char key[64], group[64], shown[64];
    const struct option *o;

    if (!equals || len == 0)
        return err_set(err, ERR_CONFIG, "--set is %s, want key=value, such as train.epochs=1",
                       show_text(assignment, strlen(assignment), shown));
    snprintf(key, sizeof key, "%.*s", (int)min_i64((int64_t)len, 63), assignment);
    o = len < sizeof key ? option_find(key) : NULL;
    if (o)
        return set_option(r, o, equals + 1, err);
    if (option_first(key))
        return err_set(err, ERR_CONFIG,
                       "--set: %s is a group of keys, want one of them, such as %s", key,
                       option_first(key)->key);
    return err_set(err, ERR_CONFIG, "--set: unknown key %s; the closest known key is %s",
                   show_text(assignment, len, shown), option_closest(key, group));
}
