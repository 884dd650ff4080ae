/* From the job back to text, row by row: writing job.yaml, and comparing two jobs before a run is
 * resumed. */
#include "job/table.h"

#include <string.h>

#include "import/arch.h"

/* The length of the groups that `a` and `b` share, dots included: "model.init." is 11. */
static size_t shared_groups(const char *a, const char *b)
{
    size_t shared = 0;

    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '.')
            shared = i + 1;
    return shared;
}

/* Append the lines that open the groups of `key` which `before` did not open, then "key: ",
 * indented. */
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

/* 1: model.import says it already. */
static int is_implied(const struct option *o, const struct job *job)
{
    return !strcmp(o->key, "model.arch") && job->model.kind == &arch_import;
}

void job_write(const struct job *job, struct buf *out)
{
    const char *before = "";
    struct option_list list;

    table_init(&list, &job_table);
    for (size_t i = 0; i < list.n; i++) {
        const struct option_ref *ref = &list.ref[i];

        if (!table_hold(&list, ref, job) || is_implied(ref->o, job))
            continue;
        write_key(ref->o->key, before, out);
        option_format(ref->o, table_field(ref, job), out);
        buf_printf(out, "\n");
        before = ref->o->key;
    }
    table_fini(&list);
}

static void write_each(const struct job *job, int may_change,
                       void (*see)(void *arg, const char *key, const char *value), void *arg)
{
    struct option_list list;
    struct buf value = {0};

    table_init(&list, &job_table);
    for (size_t i = 0; i < list.n; i++) {
        const struct option_ref *ref = &list.ref[i];

        if (!table_hold(&list, ref, job) || is_implied(ref->o, job) ||
            (!may_change && table_may_change(ref)))
            continue;
        buf_clear(&value);
        option_format(ref->o, table_field(ref, job), &value);
        see(arg, ref->o->key, buf_cstr(&value));
    }
    buf_fini(&value);
    table_fini(&list);
}

void job_each(const struct job *job, void (*see)(void *arg, const char *key, const char *value),
              void *arg)
{
    write_each(job, 1, see, arg);
}

void job_each_fixed(const struct job *job,
                    void (*see)(void *arg, const char *key, const char *value), void *arg)
{
    write_each(job, 0, see, arg);
}

static int is_default(const struct option *o, struct buf *value)
{
    return o->def && o->type != OPT_ENTRY && !strcmp(option_default_text(o), buf_cstr(value));
}

void job_write_section(const struct job *job, const char *section, struct buf *out)
{
    const size_t len = strlen(section);
    const char *before = "{";
    struct option_list list;
    struct buf value = {0};

    table_init(&list, &job_table);
    for (size_t i = 0; i < list.n; i++) {
        const struct option *o = list.ref[i].o;

        if (strncmp(o->key, section, len) != 0 || o->key[len] != '.' ||
            !table_hold(&list, &list.ref[i], job))
            continue;
        buf_clear(&value);
        option_format(o, table_field(&list.ref[i], job), &value);
        if (is_default(o, &value))
            continue;
        buf_printf(out, "%s%s: %s", before, o->key + len + 1, buf_cstr(&value));
        before = ", ";
    }
    buf_printf(out, *before == '{' ? "{}" : "}");
    buf_fini(&value);
    table_fini(&list);
}

/* May a resumed run change every option that shares o's first group? */
static int group_may_change(const struct option_list *l, const struct option *o)
{
    size_t len = strcspn(o->key, ".") + 1;

    for (size_t i = 0; i < l->n; i++)
        if (!strncmp(l->ref[i].o->key, o->key, len) && !table_may_change(&l->ref[i]))
            return 0;
    return 1;
}

/* Append what a resumed run may change: "train.epochs, train.max_steps, checkpoint.*". */
static void list_resumable(const struct option_list *l, struct buf *out)
{
    const char *before = "";

    for (size_t i = 0; i < l->n; i++) {
        const struct option *o = l->ref[i].o;
        int whole = group_may_change(l, o);

        if (!table_may_change(&l->ref[i]) || l->ref[i].first != i ||
            (whole && shared_groups(o->key, before)))
            continue;
        buf_printf(out, "%s%.*s%s", *before ? ", " : "", whole ? (int)strcspn(o->key, ".") : 64,
                   o->key, whole ? ".*" : "");
        before = o->key;
    }
}

static int fail_resume(const struct option_list *l, const struct option *o, struct buf *before,
                       struct buf *after, struct err *err)
{
    struct buf allowed = {0};
    int rc;

    list_resumable(l, &allowed);
    rc = err_set(err, ERR_REFUSED, "%s was %s and is now %s; a resumed run may only change %s",
                 o->key, buf_cstr(before), buf_cstr(after), buf_cstr(&allowed));
    buf_fini(&allowed);
    return rc;
}

/* Compare one key.  The two jobs may have it from different entries, each with a row of its own. */
static int write_compare(const struct option_list *l, size_t i, const struct job *old,
                         const struct job *now, struct err *err)
{
    const struct option_ref *then = table_holding(l, &l->ref[i], old);
    const struct option_ref *later = table_holding(l, &l->ref[i], now);
    struct buf before = {0}, after = {0};
    int rc = 0;

    if (!then || !later || table_may_change(then))
        return 0;
    option_format(then->o, table_field(then, old), &before);
    option_format(later->o, table_field(later, now), &after);
    if (strcmp(buf_cstr(&before), buf_cstr(&after)) != 0)
        rc = fail_resume(l, then->o, &before, &after, err);
    buf_fini(&before);
    buf_fini(&after);
    return rc;
}

int job_compare_for_resume(const struct job *old, const struct job *now, struct err *err)
{
    struct option_list list;
    int rc = 0;

    table_init(&list, &job_table);
    for (size_t i = 0; i < list.n && rc == 0; i++)
        if (list.ref[i].first == i)
            rc = write_compare(&list, i, old, now, err);
    table_fini(&list);
    return rc;
}
