/* half - allreduce with compress float16 or bfloat16: buckets are rounded, summed in that type, and
 * widened again (Horovod's Compression.fp16).
 *
 * Between CPUs the sum is rounded to the type after each rank that is added, in rank order
 * (coll/coll.h).  A number that is too large for float16 becomes infinite.  The update then treats
 * the step like any other whose gradient is not finite.
 *
 * Numbers are divided by gradient_predivide_factor before they are rounded, and multiplied by it
 * after they were summed.  Gradients here are already divided by the global batch, so they are
 * small.  A factor below 1 keeps them from vanishing in float16.
 *
 * The control vector is summed apart, in float32. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "program/sketch.h"
#include "strategy/compress.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"

struct half_bucket {
    int64_t n;
    void *narrow;                  /* [n], of struct half's dtype: the rounded gradients */
    struct program *round, *widen; /* NULL: the bucket has no gradients */
};

struct half {
    struct strategy base; /* first */
    enum dtype dtype;
    double factor;
    struct half_bucket *bucket; /* [n_buckets] */
    void *arena;
};

static struct half *half_of(struct strategy *s) { return container_of(s, struct half, base); }

static float *half_grad_of(const struct half *h, int b)
{
    return (float *)h->base.at.grad + h->base.at.layout->bucket[b].offset;
}

/* Make the program: narrow = grad / factor, rounded. */
static int half_make_round(struct half *h, struct half_bucket *k, float *grad, struct err *err)
{
    struct sketch s = sketch_begin(err);
    const union node_attr cast = {.cast.to = h->dtype};
    const int narrow = sketch_place(&s, h->dtype, SHAPE(k->n), k->narrow, "narrow");
    int x = sketch_place(&s, DTYPE_F32, SHAPE(k->n), grad, "grad");

    if (h->factor != 1)
        x = sketch_scale(&s, x, 1 / h->factor, NODE_NEW_OUT);
    sketch_node(&s, OP_cast, &cast, &x, 1, (int[]){narrow}, "cast");
    return sketch_end(&s, h->base.at.backend, NULL, &k->round);
}

/* Make the program: grad = narrow * factor. */
static int make_widen(struct half *h, struct half_bucket *k, float *grad, struct err *err)
{
    struct sketch s = sketch_begin(err);
    const union node_attr cast = {.cast.to = DTYPE_F32};
    const int narrow = sketch_place(&s, h->dtype, SHAPE(k->n), k->narrow, "narrow");
    const int wide = sketch_place(&s, DTYPE_F32, SHAPE(k->n), grad, "grad");

    sketch_node(&s, OP_cast, &cast, &narrow, 1, (int[]){wide}, "cast");
    if (h->factor != 1)
        (void)sketch_scale(&s, wide, h->factor, wide);
    return sketch_end(&s, h->base.at.backend, NULL, &k->widen);
}

static int half_make_bucket(struct half *h, int b, struct err *err)
{
    struct half_bucket *k = &h->bucket[b];
    int rc;

    k->n = cut_bucket(h->base.at.layout, b);
    if (k->n == 0)
        return 0;
    rc = backend_alloc(h->base.at.backend, (size_t)k->n * dtype_size(h->dtype), "rounded gradients",
                       &k->narrow, err);
    if (rc == 0)
        rc = half_make_round(h, k, half_grad_of(h, b), err);
    if (rc == 0)
        rc = make_widen(h, k, half_grad_of(h, b), err);
    return rc;
}

static void half_free(struct strategy *s)
{
    struct half *h = half_of(s);

    for (int b = 0; b < s->at.layout->n_buckets; b++) {
        program_free(h->bucket[b].round);
        program_free(h->bucket[b].widen);
        backend_free(s->at.backend, h->bucket[b].narrow);
    }
    backend_free(s->at.backend, h->arena);
    free(h->bucket);
    free(h);
}

static int new_half(const struct strategy_site *site, enum dtype dtype, struct strategy **out,
                    struct err *err)
{
    struct half *h = xcalloc(1, sizeof *h);
    int n = site->layout->n_buckets, rc = 0;
    struct program **all = xcalloc((size_t)n * 2 + 1, sizeof(struct program *));

    h->base.at = *site;
    h->dtype = dtype;
    h->factor = ((const struct compress_options *)site->options)->predivide;
    h->bucket = xcalloc((size_t)n, sizeof *h->bucket);
    for (int b = 0; b < n && rc == 0; b++)
        rc = half_make_bucket(h, b, err);
    for (int b = 0; b < n; b++) {
        all[2 * b] = h->bucket[b].round;
        all[2 * b + 1] = h->bucket[b].widen;
    }
    if (rc == 0)
        rc = sketch_bind(all, 2 * n, site->backend, &h->arena, err);
    free(all);
    if (rc < 0) {
        half_free(&h->base);
        return rc;
    }
    *out = &h->base;
    return 0;
}

static int new_float16(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    return new_half(site, DTYPE_F16, out, err);
}

static int new_bfloat16(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    return new_half(site, DTYPE_BF16, out, err);
}

static int half_sum(struct strategy *s, int bucket, struct err *err)
{
    struct half *h = half_of(s);
    const struct half_bucket *k = &h->bucket[bucket];

    if (k->n > 0 &&
        (sketch_run(k->round, err) < 0 ||
         exchange_allreduce(s->at.exchange, bucket, k->narrow, k->n, h->dtype, err) < 0))
        return err->code;
    return compress_sum_control(s, bucket, err);
}

static int half_widen(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++) {
        rc = exchange_wait(s->at.exchange, b, err);
        if (rc == 0)
            rc = sketch_run(half_of(s)->bucket[b].widen, err);
    }
    return rc;
}

#define HALF(make)                                                                              \
    {                                                                                           \
        .group.name = "allreduce", .wants_float32 = 1,                                          \
        .promises = {.replicas_are_equal = 1,                                                   \
                     .collectives_are_equal = 1,                                                \
                     .sum_is_linear = 1,                                                        \
                     .state_rests = 1,                                                          \
                     .buckets_may_change = 1,                                                   \
                     .recovery = STRATEGY_NEEDS_ONE_RANK},                                      \
        .new = (make), .bucket_ready = half_sum, .before_update = half_widen, .free = half_free \
    }

const struct strategy_ops compress_float16 = HALF(new_float16);
const struct strategy_ops compress_bfloat16 = HALF(new_bfloat16);
