/* flip - finds the element whose sign is to be inverted, announces the fault, and inverts the sign,
 * in host memory or on a device. */
#include "step/flip.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "optim/optimizer.h"
#include "state/shards.h"
#include "step/step_impl.h"
#include "strategy/cut.h"
#include "tensor/half.h"

/* The buckets that hold gradients.  The control vector may be a bucket of its own, the last. */
static int n_buckets(const struct layout *l)
{
    return l->n_buckets - (l->bucket[l->n_buckets - 1].offset >= l->n_trained);
}

int flip_check(const char *text, const struct layout *l, struct err *err)
{
    struct injection_list all = {.n = 0};
    int rc = text ? inject_parse(text, &all, err) : 0;

    for (int i = 0; i < all.n && rc == 0; i++)
        if (inject_is_of_bucket(&all.item[i]) && all.item[i].amount >= n_buckets(l))
            rc = err_set(err, ERR_CONFIG, "--inject %s: there is no bucket %lld, this model has %d",
                         all.item[i].text, (long long)all.item[i].amount, n_buckets(l));
    return rc;
}

void flip_warn_missing(struct stepper *t)
{
    const int64_t step = t->queued->step;
    const int n = n_buckets(t->layout);
    struct injection *f;

    while ((f = faults_of_no_bucket(t->faults, step, n))) {
        char *text =
            xasprintf("--inject %s cannot happen: train.bucket_bytes: auto has cut the "
                      "gradients anew, and step %lld has no bucket %lld; it has %d "
                      "bucket%s, numbered from 0",
                      f->text, (long long)step, (long long)f->amount, n, n == 1 ? "" : "s");

        f->is_spent = 1;
        t->hooks.warn(t->hooks.arg, step, text);
        free(text);
    }
}

static const struct segment *segment_at(const struct layout *l, int64_t offset)
{
    const struct segment *s = l->param;

    for (int i = 1; i < l->n_params && l->param[i].offset <= offset; i++)
        s = &l->param[i];
    return s;
}

static int64_t flip_largest(const void *x, enum dtype type, int64_t n)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++)
        if (fabsf(real_get(x, type, i)) > fabsf(real_get(x, type, best)))
            best = i;
    return best;
}

static char *flip_describe(const struct stepper *t, const struct injection *f, const char *of,
                           int64_t at, float before)
{
    const struct segment *s = segment_at(t->layout, at);
    const int is_gradient = f->how == INJECTION_BUCKET || f->how == INJECTION_REDUCED;

    if (!is_gradient)
        return xasprintf("the sign bit of element %lld of %s%s, %g, flips after the update of step "
                         "%lld",
                         (long long)(at - s->offset), s->name, of, (double)before,
                         (long long)t->queued->step);
    return xasprintf("the sign bit of element %lld of %s%s, %g, flips %s bucket %lld of "
                     "step %lld is summed",
                     (long long)(at - s->offset), s->name, of, (double)before,
                     f->how == INJECTION_BUCKET ? "before" : "after", (long long)f->amount,
                     (long long)t->queued->step);
}

/* Elements [at, at + n) of a bucket. */
struct part {
    char *x;
    int64_t at, n;
    enum dtype dtype;
    const char *of; /* what they are of a parameter, with the name before it */
};

/* The bucket's gradients, without the control vector.  If state is divided and the gradients are
 * reduced, this is only the rank's own span, because the rank has no other sums. */
static struct part find_gradients(const struct stepper *t, const struct injection *f)
{
    const struct layout *l = t->layout;
    const int bucket = (int)f->amount;
    struct part p = {t->buffers->bucket[bucket], 0, cut_bucket(l, bucket), l->bucket[bucket].dtype,
                     "'s gradient"};

    if (f->how == INJECTION_REDUCED) {
        const struct step_sums own = step_find_sums(t, bucket, SHARD_OWN);

        p.x = own.x;
        p.at = own.span.at;
        p.n = own.span.n;
    }
    return p;
}

static int step_flip(struct stepper *t, struct injection *f, struct part p, char *host,
                     struct err *err)
{
    const struct bucket *b = &t->layout->bucket[f->amount];
    const size_t size = dtype_size(p.dtype);
    int64_t i;
    float before;
    int rc = backend_copy_out(t->backend, host, p.x, size * (size_t)p.n, err);

    if (rc < 0 || p.n == 0)
        return rc;
    i = flip_largest(host, p.dtype, p.n);
    before = real_get(host, p.dtype, i);
    faults_happen(t->faults, f, flip_describe(t, f, p.of, b->offset + p.at + i, before));
    real_put(host, p.dtype, i, -before);
    return backend_copy_in(t->backend, p.x + size * (size_t)i, host + size * (size_t)i, size, err);
}

static int flip_part(struct stepper *t, struct injection *f, struct part p, struct err *err)
{
    char *host = NULL;
    int rc = try_alloc((void **)&host, sizeof(float) * (size_t)t->layout->bucket[f->amount].length,
                       "a copy of a bucket", err);

    if (rc == 0)
        rc = step_flip(t, f, p, host, err);
    free(host);
    return rc < 0 ? err_wrap(err, "--inject %s", f->text) : 0;
}

int flip_if_due(void *stepper, int bucket, int is_reduced, struct err *err)
{
    struct stepper *t = stepper;
    struct injection *f = faults_of_bucket(t->faults, INJECTION_FLIP,
                                           is_reduced ? INJECTION_REDUCED : INJECTION_BUCKET,
                                           t->queued->step, bucket);

    return f ? flip_part(t, f, find_gradients(t, f), err) : 0;
}

/* The k-th slot is divided: this rank's own span of the bucket. */
static void find_span(const struct stepper *t, int k, int bucket, struct part *p)
{
    const struct shard_set *set = &t->state->shards->now;
    const struct coll_span own = cut_span(t->layout, bucket, set->size, set->rank);

    p->x =
        (char *)set->data[k][SHARD_OWN] + shard_offset(t->state, k, set->size, set->rank, bucket);
    p->at = own.at;
    p->n = own.n;
}

/* The bucket's part of the parameters, or of the optimizer's first slot; of divided state this
 * rank's own.  .x NULL: there is none. */
static struct part find_state(const struct stepper *t, const struct injection *f)
{
    const struct slot_def *moment[OPTIMIZER_MAX_SLOTS];
    const int n_moments = optimizer_slots(&t->job->optimizer, moment), bucket = (int)f->amount;
    const int is_param = f->how == INJECTION_PARAM;
    const struct slot_def *def = is_param ? &slot_parameters : n_moments > 0 ? moment[0] : NULL;
    struct part p = {
        .n = cut_bucket(t->layout, bucket), .dtype = DTYPE_F32, .of = def ? def->suffix : ""};

    if (!def || def->dtype != DTYPE_F32)
        return p;
    p.x = state_data(t->state, def);
    if (p.x)
        p.x += sizeof(float) * (size_t)t->layout->bucket[bucket].offset;
    for (int k = 0; k < t->state->n_slots; k++)
        if (t->state->slot[k].def == def && t->state->slot[k].is_divided)
            find_span(t, k, bucket, &p);
    return p;
}

int flip_state(struct stepper *t, struct err *err)
{
    static const enum injection_how hows[] = {INJECTION_PARAM, INJECTION_SLOT};

    for (int i = 0; faults_n(t->faults) && i < (int)ARRAY_LEN(hows); i++)
        for (int b = 0; b < n_buckets(t->layout); b++) {
            struct injection *f =
                faults_of_bucket(t->faults, INJECTION_FLIP, hows[i], t->queued->step, b);
            struct part p;

            if (!f)
                continue;
            p = find_state(t, f);
            if (!p.x)
                return err_set(err, ERR_CONFIG,
                               "--inject %s: there is no such state, the optimizer keeps none",
                               f->text);
            /* Parameters that are on their way to this rank would undo the fault. */
            if (t->layout->awaits_params && reducer_gathered(t->reducer, b, err) < 0)
                return err->code;
            if (flip_part(t, f, p, err) < 0)
                return err->code;
        }
    return 0;
}

int flip_batch(struct stepper *t, const struct program *p, struct err *err)
{
    struct injection *f =
        faults_of_bucket(t->faults, INJECTION_FLIP, INJECTION_BATCH, t->queued->step, 0);
    char *at = program_input(p, 0), byte;

    if (!f || program_batch(p) == 0)
        return 0;
    if (backend_copy_out(t->backend, &byte, at, 1, err) < 0)
        return err->code;
    faults_happen(t->faults, f,
                  xasprintf("a bit of the first byte of field %s flips in the first sample of step "
                            "%lld",
                            t->spec->field[0].name, (long long)t->queued->step));
    byte = (char)(byte ^ 1);
    return backend_copy_in(t->backend, at, &byte, 1, err);
}

int skip_if_due(void *stepper, int bucket)
{
    struct stepper *t = stepper;
    struct injection *f =
        faults_of_bucket(t->faults, INJECTION_SKIP, INJECTION_BUCKET, t->queued->step, bucket);

    if (!f)
        return 0;
    faults_happen(t->faults, f,
                  xasprintf("the all-reduce of bucket %d of step %lld is left out", bucket,
                            (long long)t->queued->step));
    return 1;
}
