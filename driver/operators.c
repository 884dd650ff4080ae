/* operators - two lists are mostly of the same operators in the same order, so the search for a
 * tensor in the other list goes on where the last one was found. */
#include "driver/operators.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "report/lines.h"

static const char *listed_text(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));

    return text ? text : "";
}

static int64_t listed_number(const json_t *line, const char *key)
{
    return json_integer_value(json_object_get(line, key));
}

/* The shape becomes a text, in its place. */
static const char *listed_shape(json_t *line)
{
    char *text = json_dumps(json_object_get(line, "shape"), JSON_COMPACT | JSON_ENCODE_ANY);

    json_object_set_new(line, "shape", json_string(text ? text : ""));
    free(text);
    return listed_text(line, "shape");
}

static void operators_take(void *arg, const char *text, size_t n)
{
    struct operators *o = arg;
    json_t *line = json_loadb(text, n, 0, NULL);
    struct listed *l;

    if (!line) {
        o->is_damaged = 1;
        return;
    }
    o->listed = xrealloc(o->listed, (size_t)(o->n + 1) * sizeof *o->listed);
    l = &o->listed[o->n++];
    *l = (struct listed){.first = listed_number(line, "first"),
                         .samples = listed_number(line, "samples"),
                         .micro = listed_number(line, "micro"),
                         .number = listed_number(line, "number"),
                         .is_given = json_is_true(json_object_get(line, "given")),
                         .node = listed_text(line, "operator"),
                         .kind = listed_text(line, "kind"),
                         .tensor = listed_text(line, "tensor"),
                         .type = listed_text(line, "type"),
                         .shape = listed_shape(line),
                         .hash = listed_text(line, "hash"),
                         .line = line};
}

int operators_read(const char *path, struct operators *out, struct err *err)
{
    int rc = 0;

    if (access(path, F_OK) < 0)
        return err_sys(err, errno, "%s", path);
    rc = lines_each(path, operators_take, out, err);
    if (rc == 0 && out->is_damaged)
        return err_set(err, ERR_CORRUPT, "%s: line %lld is no object", path, (long long)out->n + 1);
    return rc;
}

void operators_fini(struct operators *o)
{
    for (int64_t i = 0; i < o->n; i++)
        json_decref(o->listed[i].line);
    free(o->listed);
    *o = (struct operators){NULL};
}

static int listed_is_like(const struct listed *a, const struct listed *b)
{
    return a->first == b->first && a->samples == b->samples && a->micro == b->micro &&
           a->is_given == b->is_given && !strcmp(a->node, b->node) && !strcmp(a->tensor, b->tensor);
}

/* The tensor in `o` that is `l`'s, searched from *at on; NULL: there is none. */
static const struct listed *operators_find(const struct operators *o, const struct listed *l,
                                           int64_t *at)
{
    for (int64_t i = 0; i < o->n; i++) {
        const int64_t k = (*at + i) % o->n;

        if (listed_is_like(&o->listed[k], l)) {
            *at = k + 1;
            return &o->listed[k];
        }
    }
    return NULL;
}

int operators_differ(const struct operators *a, const struct operators *b, int64_t *n_common,
                     const struct listed *out[2])
{
    int64_t at = 0;

    *n_common = 0;
    out[0] = out[1] = NULL;
    for (int64_t i = 0; i < a->n; i++) {
        const struct listed *l = &a->listed[i], *m = operators_find(b, l, &at);

        if (!m)
            continue;
        ++*n_common;
        if (!strcmp(l->hash, m->hash) && !strcmp(l->type, m->type))
            continue;
        if (!out[0] || l->number < out[0]->number) {
            out[0] = l;
            out[1] = m;
        }
    }
    return out[0] != NULL;
}
