/* What follows from the table in the other direction: job.yaml, comparing two jobs, help, docs. */
#include "config/option.h"

#include <string.h>

#include "base/util.h"

/* Length of the groups that `a` and `b` share, dots included: "model.init." is 11. */
static size_t shared_groups(const char *a, const char *b)
{
    size_t shared = 0;

    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '.')
            shared = i + 1;
    return shared;
}

/* The lines that open o's groups where `before`'s did not, then "key: ", indented. */
static void write_key(const char *key, const char *before, struct buf *out)
{
    size_t at = shared_groups(key, before);
    int depth = 0;

    for (size_t i = 0; i < at; i++)
        depth += key[i] == '.';
    for (;; depth++) {
        const char *dot = strchr(key + at, '.');

        buf_printf(out, "%*s%.*s:", 2 * depth, "", (int)(dot ? dot - key - (int)at : 64), key + at);
        if (!dot)
            break;
        buf_printf(out, "\n");
        at = (size_t)(dot - key) + 1;
    }
    buf_printf(out, " ");
}

void job_write(const struct job *job, struct buf *out)
{
    const char *before = "";

    for (size_t i = 0; i < n_config_options; i++) {
        const struct option *o = &config_options[i];

        if (!option_applies(o, job))
            continue;
        write_key(o->key, before, out);
        option_format(o, job, out);
        buf_printf(out, "\n");
        before = o->key;
    }
}

/* Does every option that shares o's first group have OPT_RESUME? */
static int group_may_change(const struct option *o)
{
    size_t len = strcspn(o->key, ".") + 1;

    for (size_t i = 0; i < n_config_options; i++)
        if (strncmp(config_options[i].key, o->key, len) == 0 &&
            !(config_options[i].flags & OPT_RESUME))
            return 0;
    return 1;
}

/* Append what a resumed run may change: "train.epochs, train.max_steps, checkpoint.*". */
static void list_resumable(struct buf *out)
{
    const char *before = "";

    for (size_t i = 0; i < n_config_options; i++) {
        const struct option *o = &config_options[i];
        int whole = group_may_change(o);

        if (!(o->flags & OPT_RESUME) || (whole && shared_groups(o->key, before)))
            continue;
        buf_printf(out, "%s%.*s%s", *before ? ", " : "", whole ? (int)strcspn(o->key, ".") : 64,
                   o->key, whole ? ".*" : "");
        before = o->key;
    }
}

static int fail_resume(const struct option *o, struct buf *before, struct buf *after,
                       struct err *err)
{
    struct buf allowed = {0};
    int rc;

    list_resumable(&allowed);
    rc = err_set(err, ERR_REFUSED, "%s was %s and is now %s; a resumed run may only change %s",
                 o->key, buf_cstr(before), buf_cstr(after), buf_cstr(&allowed));
    buf_fini(&allowed);
    return rc;
}

int job_compare_for_resume(const struct job *old, const struct job *now, struct err *err)
{
    struct buf before = {0}, after = {0};
    int rc = 0;

    for (size_t i = 0; i < n_config_options && rc == 0; i++) {
        const struct option *o = &config_options[i];

        if (o->flags & OPT_RESUME || !option_applies(o, old) || !option_applies(o, now))
            continue;
        buf_clear(&before);
        buf_clear(&after);
        option_format(o, old, &before);
        option_format(o, now, &after);
        if (strcmp(buf_cstr(&before), buf_cstr(&after)) != 0)
            rc = fail_resume(o, &before, &after, err);
    }
    buf_fini(&before);
    buf_fini(&after);
    return rc;
}
