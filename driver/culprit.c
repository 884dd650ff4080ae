/* culprit - has the step computed again on both sides, and compares the hashes of their operators'
 * tensors.  The numbers of the first tensor that differs come from computing it once more, so that
 * only that one needs room.  If there is no such tensor, the summed gradients are compared,
 * parameter by parameter. */
#include "driver/culprit.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "driver/gap.h"
#include "driver/operators.h"

enum { SIDES = 2 };

struct search {
    const struct culprit *c;
    int64_t step;
    char *name[SIDES];        /* of the folders */
    struct st_file *f[SIDES]; /* what the sides have written */
};

static char *search_path(const struct search *s, int side, const char *file)
{
    return xasprintf("%s/%s/%s-%08lld.safetensors", s->c->again->folder, s->name[side], file,
                     (long long)s->step);
}

/* Compute the step on a side, in a folder that has `word` in its name. */
static int search_compute(struct search *s, int side, const char *word, const char *const *sets,
                          struct err *err)
{
    s->name[side] = xasprintf("%s-%s-%d", s->c->mark, word, side + 1);
    return s->c->compute(s->c->arg, side, s->name[side], s->step, sets, err);
}

static int search_read(const struct search *s, int side, struct operators *out, struct err *err)
{
    char *path = xasprintf("%s/%s/operators-%08lld.jsonl", s->c->again->folder, s->name[side],
                           (long long)s->step);
    const int rc = operators_read(path, out, err);

    free(path);
    return rc;
}

static int search_open(struct search *s, const char *file, struct err *err)
{
    int rc = 0;

    for (int k = 0; k < SIDES && rc == 0; k++) {
        char *path = search_path(s, k, file);

        rc = st_open(path, &s->f[k], err);
        free(path);
    }
    return rc;
}

/* Forget what was computed, so that something else can be. */
static void search_clear(struct search *s)
{
    for (int k = 0; k < SIDES; k++) {
        st_close(s->f[k]);
        if (s->name[k])
            again_drop(s->c->again, s->name[k]);
        free(s->name[k]);
        s->f[k] = NULL;
        s->name[k] = NULL;
    }
}

/* ---- gradients ---- */

/* The files have their parameters in the order in which the backward pass gets to them. */
static int compare_gradients(const struct search *s, struct buf *out, struct err *err)
{
    const struct st_tensor *first = NULL;
    struct gap gap = {.n = 0}, one;
    int n = 0, rc = 0;

    for (int i = 0; i < st_count(s->f[0]) && rc == 0; i++) {
        const struct st_tensor *t = st_at(s->f[0], i);

        rc = gap_measure(s->f[0], s->f[1], t->name, &one, err);
        if (rc < 0 || one.n_other == 0)
            continue;
        n++;
        if (!first) {
            first = t;
            gap = one;
        }
    }
    if (rc < 0)
        return rc;
    if (!first) {
        buf_printf(out, "all summed gradients of step %lld are the same, so the update differs",
                   (long long)s->step);
        return 0;
    }
    buf_printf(out, "in step %lld the summed gradient of %s is the first that differs: ",
               (long long)s->step, first->name);
    gap_put(out, first, &gap);
    buf_printf(out, "; %d of %d parameters' gradients differ", n, st_count(s->f[0]));
    return 0;
}

/* ---- operators ---- */

/* Append by how much the tensor differs, of which both sides tell the numbers. */
static int search_gap(struct search *s, const struct listed *const of[SIDES], struct buf *out,
                      struct err *err)
{
    char *step = xasprintf("report.operators=%lld", (long long)s->step);
    char *first = xasprintf("%lld", (long long)of[0]->first);
    struct gap gap;
    int rc = 0;

    for (int k = 0; k < SIDES && rc == 0; k++) {
        char *tensor = xasprintf("report.tensor=%lld", (long long)of[k]->number);
        const char *const sets[] = {step, tensor, NULL};

        rc = search_compute(s, k, "tensor", sets, err);
        free(tensor);
    }
    if (rc == 0)
        rc = search_open(s, "tensor", err);
    if (rc == 0)
        rc = gap_measure(s->f[0], s->f[1], first, &gap, err);
    if (rc == 0 && gap.n_other > 0)
        gap_put(out, st_find(s->f[0], first), &gap);
    else if (rc == 0)
        buf_printf(out, "by less than float32 tells");
    search_clear(s);
    free(first);
    free(step);
    return rc;
}

static int tell_operator(struct search *s, const struct listed *const of[SIDES], struct buf *out,
                         struct err *err)
{
    const struct listed *a = of[0], *b = of[1];

    buf_printf(out, "in step %lld, samples %lld to %lld of its batch, the first ",
               (long long)s->step, (long long)a->first, (long long)(a->first + a->samples - 1));
    if (a->is_given)
        buf_printf(out, "tensor that differs is %s, which no operator made and %s (%s) reads: ",
                   a->tensor, a->node, a->kind);
    else
        buf_printf(out, "operator whose output differs is %s (%s), %s: ", a->node, a->kind,
                   a->tensor);
    if (strcmp(a->type, b->type) != 0)
        buf_printf(out, "%s and %s, ", a->type, b->type);
    if (!strcmp(a->shape, b->shape))
        return search_gap(s, of, out, err);
    buf_printf(out, "%s and %s", a->shape, b->shape);
    return 0;
}

/* Returns 1 if there is a tensor that differs, else 0. */
static int search_operators(struct search *s, struct buf *out, struct err *err)
{
    char *set = xasprintf("report.operators=%lld", (long long)s->step);
    const char *const sets[] = {set, NULL};
    struct operators_common common = {.batches = 0};
    struct operators list[SIDES] = {{NULL}};
    int rc = 0;

    for (int k = 0; k < SIDES && rc == 0; k++) {
        rc = search_compute(s, k, "operators", sets, err);
        if (rc == 0)
            rc = search_read(s, k, &list[k], err);
    }
    search_clear(s);
    if (rc == 0)
        common = operators_compare(&list[0], &list[1]);
    if (rc == 0 && common.first[0]) {
        rc = tell_operator(s, common.first, out, err);
        rc = rc < 0 ? rc : 1;
    } else if (rc == 0 && common.batches == 0)
        buf_printf(out, "no operator had the same samples in both, as with another number of ranks "
                        "without strategy.shards; ");
    else if (rc == 0 && common.tensors == 0)
        buf_printf(out, "no operator is in both networks; ");
    else if (rc == 0)
        buf_printf(out, "all operators' tensors are the same; ");
    for (int k = 0; k < SIDES; k++)
        operators_fini(&list[k]);
    free(set);
    return rc;
}

/* ---- both ---- */

static int search_gradients(struct search *s, struct buf *out, struct err *err)
{
    char *set = xasprintf("report.gradients=%lld", (long long)s->step);
    const char *const sets[] = {set, NULL};
    int rc = 0;

    for (int k = 0; k < SIDES && rc == 0; k++)
        rc = search_compute(s, k, "gradients", sets, err);
    if (rc == 0)
        rc = search_open(s, "gradients", err);
    if (rc == 0)
        rc = compare_gradients(s, out, err);
    search_clear(s);
    free(set);
    return rc;
}

int culprit_find(const struct culprit *c, int64_t step, struct buf *out, struct err *err)
{
    struct search s = {.c = c, .step = step};
    const int rc = search_operators(&s, out, err);

    if (rc == 0)
        return search_gradients(&s, out, err);
    return rc < 0 ? rc : 0;
}
