/* The settings as a job file, in the order of --help-job.  The comment of a key is the help of the
 * row that holds with the job's choices. */
#include "driver/init_write.h"

#include <string.h>

#include "job/table.h"

enum { MOST_COLUMNS = 92 };

/* Append the text as comment lines, indented. */
static void write_comment(const char *text, int indent, struct buf *out)
{
    size_t column = 0;

    while (*text) {
        const size_t n = strcspn(text, " ");

        if (column > 0 && column + 1 + n > MOST_COLUMNS) {
            buf_printf(out, "\n");
            column = 0;
        }
        if (column == 0) {
            buf_printf(out, "%*s#", indent, "");
            column = (size_t)indent + 1;
        }
        buf_printf(out, " %.*s", (int)n, text);
        column += 1 + n;
        text += n + strspn(text + n, " ");
    }
    buf_printf(out, "\n");
}

/* The help of the row that holds, and of the entry that is chosen. */
static void write_help(const struct option_list *list, const struct option_ref *ref,
                       const struct job *job, int indent, struct buf *out)
{
    const struct option_ref *holds = table_holding(list, ref, job);
    const struct option *o = holds ? holds->o : ref->o;
    struct buf text = {0};

    buf_printf(&text, "%s", o->help ? o->help : "");
    if (o->type == OPT_ENTRY && table_chosen(ref, job))
        buf_printf(&text, " %s: %s.", table_chosen(ref, job)->name, table_chosen(ref, job)->help);
    if (text.len > 0)
        write_comment(buf_cstr(&text), indent, out);
    buf_fini(&text);
}

/* A group of keys that begin alike, "data.augment.": those that are set stand together. */
struct init_group {
    const struct init_job *j;
    const struct job *job;
    const struct option_list *list;
    const char *prefix;
    size_t len;
    int depth;
};

/* 1: this row is the first one of its key, which is set, and is of the group. */
static int write_belongs(const struct init_group *g, size_t i)
{
    const struct option_ref *ref = &g->list->ref[i];

    return ref->first == i && !strncmp(ref->o->key, g->prefix, g->len) &&
           init_value(g->j, ref->o->key) != NULL;
}

/* 1: an earlier key of the group begins with the same `len` bytes, so the inner group is written.
 */
static int write_is_done(const struct init_group *g, size_t end, size_t len)
{
    for (size_t i = 0; i < end; i++)
        if (write_belongs(g, i) && !strncmp(g->list->ref[i].o->key, g->list->ref[end].o->key, len))
            return 1;
    return 0;
}

static void write_group(const struct init_group *g, struct buf *out)
{
    const int indent = 2 * g->depth;

    for (size_t i = 0; i < g->list->n; i++) {
        const struct option_ref *ref = &g->list->ref[i];
        const char *key = ref->o->key, *dot;
        struct init_group inner = *g;

        if (!write_belongs(g, i))
            continue;
        dot = strchr(key + g->len, '.');
        inner.prefix = key;
        inner.len = dot ? (size_t)(dot - key) + 1 : 0;
        inner.depth++;
        if (dot && write_is_done(g, i, inner.len))
            continue;
        if (g->job && g->depth == 0)
            buf_printf(out, "\n");
        if (dot) {
            buf_printf(out, "%*s%.*s:\n", indent, "", (int)(inner.len - g->len - 1), key + g->len);
            write_group(&inner, out);
            continue;
        }
        if (g->job)
            write_help(g->list, ref, g->job, indent, out);
        buf_printf(out, "%*s%s: %s\n", indent, "", key + g->len, init_value(g->j, key));
    }
}

void init_write(const struct init_job *j, const struct job *job, struct buf *out)
{
    struct option_list list;

    table_init(&list, &job_table);
    write_group(&(struct init_group){.j = j, .job = job, .list = &list, .prefix = ""}, out);
    table_fini(&list);
}
