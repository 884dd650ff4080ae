/* operators - both lists are sorted by their micro-batches, and those of the same samples are
 * compared with each other.  They have mostly the same operators in the same order, so the search
 * for a tensor goes on where the last one was found. */
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

    o->n_lines++;
    if (!json_is_object(line)) {
        o->damaged = o->damaged ? o->damaged : o->n_lines;
        json_decref(line);
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

/* By micro-batch: the samples, and the number on the rank. */
static int batch_order(const struct listed *a, const struct listed *b)
{
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    if (a->samples != b->samples)
        return a->samples < b->samples ? -1 : 1;
    return (a->micro > b->micro) - (a->micro < b->micro);
}

static int listed_order(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    const int order = batch_order(x, y);

    return order ? order : (x->number > y->number) - (x->number < y->number);
}

int operators_read(const char *path, struct operators *out, struct err *err)
{
    int rc;

    if (access(path, F_OK) < 0)
        return err_sys(err, errno, "%s", path);
    rc = lines_each(path, operators_take, out, err);
    if (rc == 0 && out->damaged)
        return err_set(err, ERR_CORRUPT, "%s: line %lld is no object", path,
                       (long long)out->damaged);
    if (out->n > 0)
        qsort(out->listed, (size_t)out->n, sizeof *out->listed, listed_order);
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
    return a->is_given == b->is_given && !strcmp(a->node, b->node) && !strcmp(a->tensor, b->tensor);
}

/* The tensors of a micro-batch. */
struct batch_listed {
    const struct listed *listed;
    int64_t n;
};

/* The micro-batch that begins with this tensor. */
static struct batch_listed batch_at(const struct operators *o, int64_t from)
{
    struct batch_listed b = {&o->listed[from], 1};

    while (from + b.n < o->n && batch_order(b.listed, &b.listed[b.n]) == 0)
        b.n++;
    return b;
}

/* The tensor of `b` that is l's, searched from *at on; NULL: there is none. */
static const struct listed *batch_find(struct batch_listed b, const struct listed *l, int64_t *at)
{
    for (int64_t i = 0; i < b.n; i++) {
        const int64_t k = (*at + i) % b.n;

        if (listed_is_like(&b.listed[k], l)) {
            *at = k + 1;
            return &b.listed[k];
        }
    }
    return NULL;
}

static int comes_before(const struct listed *a, const struct listed *b)
{
    if (a->micro != b->micro)
        return a->micro < b->micro;
    return a->number != b->number ? a->number < b->number : a->first < b->first;
}

static void compare_batches(struct batch_listed a, struct batch_listed b,
                            struct operators_common *out)
{
    int64_t at = 0;

    out->batches++;
    for (int64_t i = 0; i < a.n; i++) {
        const struct listed *l = &a.listed[i], *m = batch_find(b, l, &at);

        if (!m)
            continue;
        out->tensors++;
        if (!strcmp(l->hash, m->hash) && !strcmp(l->type, m->type))
            continue;
        if (!out->first[0] || comes_before(l, out->first[0])) {
            out->first[0] = l;
            out->first[1] = m;
        }
    }
}

struct operators_common operators_compare(const struct operators *a, const struct operators *b)
{
    struct operators_common out = {.batches = 0};
    int64_t i = 0, k = 0;

    while (i < a->n && k < b->n) {
        const struct batch_listed x = batch_at(a, i), y = batch_at(b, k);
        const int order = batch_order(x.listed, y.listed);

        if (order == 0)
            compare_batches(x, y, &out);
        if (order <= 0)
            i += x.n;
        if (order >= 0)
            k += y.n;
    }
    return out;
}
