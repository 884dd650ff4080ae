#include "train/flip.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

int flip_check(const char *text, const struct layout *l, struct err *err)
{
    struct injection_list all = {.n = 0};
    int rc = text ? inject_parse(text, &all, err) : 0;

    for (int i = 0; i < all.n && rc == 0; i++)
        if (all.item[i].what == INJECTION_FLIP && all.item[i].amount >= l->n_buckets)
            rc = err_set(err, ERR_CONFIG, "--inject %s: there is no bucket %lld, this model has %d",
                         all.item[i].text, (long long)all.item[i].amount, l->n_buckets);
    return rc;
}

static const struct segment *segment_at(const struct layout *l, int64_t offset)
{
    const struct segment *s = l->param;

    for (int i = 1; i < l->n_params && l->param[i].offset <= offset; i++)
        s = &l->param[i];
    return s;
}

static int64_t largest(const float *x, int64_t n)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++)
        if (fabsf(x[i]) > fabsf(x[best]))
            best = i;
    return best;
}

static char *describe(const struct trainer *t, const struct injection *f, int64_t at, float before)
{
    const struct segment *s = segment_at(t->layout, at);

    return xasprintf("the sign bit of element %lld of %s's gradient, %g, flips %s bucket %lld of "
                     "step %lld is summed",
                     (long long)(at - s->offset), s->name, (double)before,
                     f->how == INJECTION_BUCKET ? "before" : "after", (long long)f->amount,
                     (long long)t->state->at.step);
}

static int flip(struct trainer *t, struct injection *f, float *host, struct err *err)
{
    const struct bucket *b = &t->layout->bucket[f->amount];
    int64_t n = min_i64(b->length, t->layout->n_trained - b->offset); /* no control vector */
    float *grad = t->buffers->grad + b->offset;
    int64_t i;
    float flipped;
    int rc = backend_copy_out(t->backend, host, grad, sizeof *host * (size_t)n, err);

    if (rc < 0)
        return rc;
    i = largest(host, n);
    flipped = -host[i];
    faults_happen(t->o.faults, f, describe(t, f, b->offset + i, host[i]));
    return backend_copy_in(t->backend, grad + i, &flipped, sizeof flipped, err);
}

int flip_if_due(struct trainer *t, enum injection_how how, int bucket, struct err *err)
{
    struct injection *f = faults_flip(t->o.faults, how, t->state->at.step, bucket);
    float *host = NULL;
    int rc;

    if (!f)
        return 0;
    rc = try_alloc((void **)&host, sizeof *host * (size_t)t->layout->bucket[bucket].length,
                   "a copy of a bucket", err);
    if (rc == 0)
        rc = flip(t, f, host, err);
    free(host);
    return rc < 0 ? err_wrap(err, "--inject %s", f->text) : 0;
}
