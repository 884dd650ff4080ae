/* qadam - Adam whose first moments travel as bytes instead of gradients (Bagua's algorithm of this
 * name; Tang and others 2021, "1-bit Adam: Communication Efficient Large-Scale Training with Adam's
 * Convergence Speed").
 *
 * The first warmup_steps updates are those of Adam, with gradients that are summed exactly.  After
 * them the second moment, exp_avg_sq, does not change any more.  With m the first moment, exp_avg,
 * which is equal on all ranks, and g_r the gradient of rank r's own samples:
 *
 *   x_r = beta1 * m + (1 - beta1) * g_r;  m = mean of x_r, through the codes of strategy bytegrad
 *
 * g_r is n times the rank's part of the gradient of the global batch, for n ranks, so the mean of
 * g_r over the ranks is the gradient of the global batch.
 *
 * The buckets then hold the new m, and the optimizer's operator makes its update from it
 * (op/adamw.c).  Bagua reduces one gradient after the warm-up that it does not use.  Here no
 * gradient is left out.  A step that is not applied does not count as an update.
 *
 * All ranks decode the same bytes and so have the same m.  So replicas stay equal, and a lost rank
 * takes no state with it. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "strategy/coded.h"
#include "strategy/compress.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"

struct qadam_options {
    int64_t warmup_steps;
};

#define AT(field) offsetof(struct qadam_options, field)

static const struct option rows[] = {
    {"strategy.warmup_steps", OPT_INT, AT(warmup_steps), "100", 1, 1e12, .unit = "steps",
     .help =
         "So many updates of exact Adam come first: until the mean square of the gradient, which "
         "then stays as it is, has settled. With too few of them training diverges: a weight "
         "whose gradients were zero, or tiny, until then gets huge updates."},
};

struct qadam {
    struct strategy base; /* first */
    struct strategy *coded;
    float beta1;
};

static struct qadam *of(const struct strategy *s) { return (struct qadam *)s; }

static int64_t means_from(const void *options)
{
    return ((const struct qadam_options *)options)->warmup_steps;
}

static int new (const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct qadam *q = xcalloc(1, sizeof *q);
    double number[NODE_MAX_NUMBERS] = {0};
    int rc;

    ASSERT(!backend_is_device(site->backend)); /* job_check_supported has seen to it */
    ASSERT(site->optimizer->kind->op == OP_adamw);
    site->optimizer->kind->numbers(site->optimizer->options, number);
    q->base.at = *site;
    q->beta1 = (float)number[ADAMW_ATTR_BETA1];
    rc = coded_new(site, &(struct coded_options){.kind = CODEC_MINMAX_UINT8, .averages = 1},
                   &q->coded);
    if (rc < 0) {
        free(q);
        return err->code;
    }
    *out = &q->base;
    return 0;
}

static void free_it(struct strategy *s)
{
    coded_free(of(s)->coded);
    free(of(s));
}

static int form(struct strategy *s, int source, struct err *err)
{
    return coded_form(of(s)->coded, source, err);
}

/* ---- a step ---- */

static int is_warm(const struct strategy *s)
{
    return s->at.scalars->n_updates >= means_from(s->at.options);
}

/* Replace the bucket's gradients by x_r.  exp_avg is the first slot of Adam and AdamW. */
static void blend(const struct strategy *s, int bucket)
{
    const struct bucket *b = &s->at.layout->bucket[bucket];
    const int64_t n = cut_bucket(s->at.layout, bucket);
    const float beta1 = of(s)->beta1, fresh = 1.0f - beta1;
    const float n_ranks = (float)coll_size(exchange_coll(s->at.exchange));
    const float *mean = (const float *)s->at.moment[0] + b->offset;
    float *x = (float *)s->at.grad + b->offset;

    for (int64_t i = 0; i < n; i++)
        x[i] = beta1 * mean[i] + fresh * (n_ranks * x[i]);
}

static int bucket_ready(struct strategy *s, int bucket, struct err *err)
{
    const struct bucket *b = &s->at.layout->bucket[bucket];

    if (!is_warm(s))
        return exchange_allreduce(s->at.exchange, bucket, (float *)s->at.grad + b->offset,
                                  b->length, DTYPE_F32, err);
    blend(s, bucket);
    return coded_encode(of(s)->coded, bucket, err);
}

static int before_update(struct strategy *s, struct err *err)
{
    int rc = 0;

    if (is_warm(s))
        return coded_decode(of(s)->coded, err);
    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++)
        rc = exchange_wait(s->at.exchange, b, err);
    return rc;
}

const struct strategy_ops strategy_qadam = {
    .group = {.name = "qadam",
              .help =
                  "Bagua's: some steps of exact Adam, then its means travel as 8 bits a number, "
                  "for slow links",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct qadam_options)},
    .is_for_cpus = 1,
    .wants_float32 = 1,
    .means_from = means_from,
    .promises = COMPRESS_PROMISES,
    .new = new,
    .form = form,
    .bucket_ready = bucket_ready,
    .before_update = before_update,
    .free = free_it,
};
