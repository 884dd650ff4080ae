/* solo - a step in which only the control vector is summed, and sums of parameters.
 *
 * No operator only looks for gradients that are not finite.  Instead operator commit, which copies
 * unless a gradient is not finite, copies the rank's CONTROL_NONFINITE over a number 1. */
#include "strategy/solo.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "coll/device.h"
#include "op/control.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"

static struct solo *solo_of(const struct strategy *s) { return (struct solo *)s; }

/* ---- memory and programs ---- */

static int place_control(struct sketch *s, float *control)
{
    return sketch_place(s, DTYPE_F32, SHAPE(CONTROL_LEN), control, "control");
}

/* Append: kept = next, if `check` and `control` say that a step is applied. */
static void solo_add_commit(struct sketch *s, const struct solo *o, int next, double *check,
                            float *control, int kept)
{
    const int in[] = {[COMMIT_SHADOW] = next,
                      [COMMIT_CHECK] = sketch_place(s, DTYPE_F64, SHAPE(2), check, "check"),
                      [COMMIT_CONTROL] = place_control(s, control),
                      [COMMIT_SCALARS] =
                          sketch_place(s, DTYPE_U8, SHAPE(sizeof(struct step_scalars)),
                                       (void *)o->base.at.scalars, "scalars")};
    int out[] = {kept};

    sketch_node(s, OP_commit, NULL, in, 4, out, "commit");
}

/* Make the program that finds gradients that are not finite: it checks the gradients, and if all
 * are finite, it copies this rank's CONTROL_NONFINITE to the flag, which is 1 before. */
static int make_watch(struct solo *o, struct err *err)
{
    const struct strategy_site *at = &o->base.at;
    struct solo_words *w = o->words;
    struct sketch s = sketch_begin(err);
    const int grad =
        sketch_place(&s, at->layout->grad_dtype, SHAPE(at->layout->n_trained), at->grad, "grad");
    int check[] = {sketch_place(&s, DTYPE_F64, SHAPE(2), w->check, "check")};

    sketch_node(&s, OP_grad_check, NULL, &grad, 1, check, "check");
    solo_add_commit(
        &s, o, sketch_place(&s, DTYPE_F32, SHAPE(1), at->control + CONTROL_NONFINITE, "nonfinite"),
        w->check, w->zeros, sketch_place(&s, DTYPE_F32, SHAPE(1), w->flag, "flag"));
    return sketch_end(&s, at->backend, NULL, &o->watch);
}

typedef void add_take_fn(struct sketch *s, const struct strategy *o, int64_t at, int64_t n);

static int make_takes(struct solo *o, add_take_fn *add_take, struct err *err)
{
    const struct layout *l = o->base.at.layout;
    int rc = 0;

    for (int b = 0; b < l->n_buckets && rc == 0; b++) {
        struct sketch s;

        if (cut_bucket(l, b) == 0) /* of the control vector alone */
            continue;
        s = sketch_begin(err);
        add_take(&s, &o->base, l->bucket[b].offset, cut_bucket(l, b));
        rc = sketch_end(&s, o->base.at.backend, NULL, &o->take[b]);
    }
    return rc;
}

/* All programs run one after another, so they share their scratch. */
static int solo_bind_all(struct solo *o, struct err *err)
{
    const int n = o->base.at.layout->n_buckets;
    struct program **all = xcalloc((size_t)n + 1, sizeof(struct program *));
    int rc;

    all[0] = o->watch;
    memcpy(all + 1, o->take, (size_t)n * sizeof(struct program *));
    rc = sketch_bind(all, n + 1, o->base.at.backend, &o->arena, err);
    free(all);
    return rc;
}

static int solo_make_memory(struct solo *o, add_take_fn *add_take, struct err *err)
{
    const struct solo_words words = {.one = {1}};
    struct backend *b = o->base.at.backend;
    int rc = backend_alloc(b, sizeof words, "words of a strategy", (void **)&o->words, err);

    o->take = xcalloc((size_t)o->base.at.layout->n_buckets, sizeof(struct program *));
    if (rc == 0)
        rc = backend_copy_in(b, o->words, &words, sizeof words, err);
    if (rc == 0)
        rc = make_watch(o, err);
    if (rc == 0 && add_take)
        rc = make_takes(o, add_take, err);
    return rc == 0 ? solo_bind_all(o, err) : rc;
}

int solo_new(const struct strategy_site *site, size_t size, add_take_fn *add_take,
             struct solo **out, struct err *err)
{
    const size_t n_bytes = sizeof(float) * (size_t)site->layout->n_trained;
    struct solo *o = xcalloc(1, size);
    int rc;

    ASSERT(size >= sizeof *o && site->param && site->control);
    o->base.at = *site;
    rc = backend_alloc(site->backend, n_bytes, "parameters that are exchanged", (void **)&o->aside,
                       err);
    if (rc == 0)
        rc = solo_make_memory(o, add_take, err);
    if (rc < 0)
        solo_free(&o->base);
    else
        *out = o;
    return rc;
}

void solo_free(struct strategy *s)
{
    struct solo *o = solo_of(s);

    program_free(o->watch);
    for (int b = 0; o->take && b < s->at.layout->n_buckets; b++)
        program_free(o->take[b]);
    free(o->take);
    backend_free(s->at.backend, o->arena);
    backend_free(s->at.backend, o->words);
    backend_free(s->at.backend, o->aside);
    free(o);
}

int solo_form(struct strategy *s, int source, struct err *err)
{
    const float n = (float)solo_n_ranks(s);

    ASSERT(source >= 0 && source < solo_n_ranks(s));
    return backend_copy_in(s->at.backend, solo_of(s)->words->n_ranks, &n, sizeof n, err);
}

int solo_n_ranks(const struct strategy *s) { return coll_size(exchange_coll(s->at.exchange)); }

/* ---- a step ---- */

static int copy_float(struct strategy *s, float *to, const float *from, struct err *err)
{
    return backend_copy(s->at.backend, to, from, sizeof *to, err);
}

/* With the last bucket all gradients of this rank are complete. */
int solo_bucket_ready(struct strategy *s, int bucket, struct err *err)
{
    struct solo_words *w = solo_of(s)->words;
    float *nonfinite = s->at.control + CONTROL_NONFINITE;

    ASSERT(bucket >= 0 && bucket < s->at.layout->n_buckets);
    if (bucket < s->at.layout->n_buckets - 1)
        return 0;
    if (copy_float(s, w->flag, w->one, err) < 0 || sketch_run(solo_of(s)->watch, err) < 0 ||
        copy_float(s, nonfinite, w->flag, err) < 0)
        return err->code;
    return exchange_sum_control(s->at.exchange, s->at.control, err);
}

int solo_before_update(struct strategy *s, struct err *err)
{
    return exchange_wait_control(s->at.exchange, err);
}

double solo_loss_factor(const struct strategy *s, int64_t step, double part)
{
    (void)step;
    (void)part;
    return solo_n_ranks(s);
}

/* ---- sums of parameters ---- */

int solo_sum_aside(struct strategy *s, struct err *err)
{
    const struct layout *l = s->at.layout;
    int rc = backend_copy(s->at.backend, solo_of(s)->aside, s->at.param,
                          sizeof(float) * (size_t)l->n_trained, err);

    for (int b = 0; b < l->n_buckets && rc == 0; b++)
        rc = exchange_allreduce(s->at.exchange, b, solo_of(s)->aside + l->bucket[b].offset,
                                cut_bucket(l, b), DTYPE_F32, err);
    return rc;
}

int solo_note_standing(struct strategy *s, struct err *err)
{
    return copy_float(s, solo_of(s)->words->standing + CONTROL_VOID, s->at.control + CONTROL_VOID,
                      err);
}

int solo_latch_standing(struct strategy *s, struct err *err)
{
    struct coll *c = exchange_coll(s->at.exchange);
    int rc = solo_note_standing(s, err);

    return rc == 0 && coll_is_device(c)
               ? coll_device_latch(c, solo_of(s)->words->standing + CONTROL_VOID, err)
               : rc;
}

int solo_exchange(struct strategy *s, struct err *err)
{
    if (solo_sum_aside(s, err) < 0 || exchange_wait_buckets(s->at.exchange, err) < 0)
        return err->code;
    return solo_latch_standing(s, err);
}

int solo_take(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++)
        rc = sketch_run(solo_of(s)->take[b], err);
    return rc;
}

void solo_add_keep(struct sketch *s, const struct strategy *o, int64_t n, int next, float *kept)
{
    struct solo_words *w = solo_of(o)->words;

    solo_add_commit(s, solo_of(o), next, w->fine, w->standing,
                    sketch_place(s, DTYPE_F32, SHAPE(n), kept, "kept"));
}

int solo_place_aside(struct sketch *s, const struct strategy *o, int64_t at, int64_t n)
{
    return sketch_place(s, DTYPE_F32, SHAPE(n), solo_of(o)->aside + at, "aside");
}

/* Append: out = x / the number of ranks. */
static int solo_add_div(struct sketch *s, const struct strategy *o, int x, int out)
{
    return sketch_elementwise(
        s, EW_DIV, x, sketch_place(s, DTYPE_F32, SHAPE(1), solo_of(o)->words->n_ranks, "n_ranks"),
        out);
}

int solo_add_mean(struct sketch *s, const struct strategy *o, int64_t at, int64_t n)
{
    const int x = solo_place_aside(s, o, at, n);

    return solo_add_div(s, o, x, x);
}

void solo_add_take_mean(struct sketch *s, const struct strategy *o, int64_t at, int64_t n)
{
    float *param = o->at.param + at;

    if (backend_is_apart(o->at.backend))
        solo_add_keep(s, o, n, solo_add_mean(s, o, at, n), param);
    else
        solo_add_div(s, o, solo_place_aside(s, o, at, n),
                     sketch_place(s, DTYPE_F32, SHAPE(n), param, "mean"));
}
