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
 * (optim/adamw.h).  Bagua reduces one gradient after the warm-up that it does not use.  Here no
 * gradient is left out.  A step that is not applied does not count as an update.
 *
 * All ranks decode the same bytes and so have the same m.  So replicas stay equal, and a lost rank
 * takes no state with it. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "program/sketch.h"
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
         "The number of updates of exact Adam at the beginning. After them the mean square of the "
         "gradient stays as it is, so it should have settled: with fewer than 1 / (1 - beta2) of "
         "them updates grow afterwards, and training may diverge."},
};

struct qadam {
    struct strategy base; /* first */
    struct strategy *coded;
    float beta1;
    struct program **blend; /* [n_buckets]: the bucket's gradients become x_r; NULL: it has none */
    void *arena;
};

static struct qadam *qadam_of(const struct strategy *s) { return (struct qadam *)s; }

static int qadam_new(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct qadam *q = xcalloc(1, sizeof *q);
    double number[NODE_MAX_NUMBERS] = {0};
    int rc;

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
    q->blend = xcalloc((size_t)site->layout->n_buckets, sizeof(struct program *));
    *out = &q->base;
    return 0;
}

/* ---- a formation ---- */

static void qadam_drop(struct qadam *q)
{
    for (int b = 0; b < q->base.at.layout->n_buckets; b++) {
        program_free(q->blend[b]);
        q->blend[b] = NULL;
    }
    backend_free(q->base.at.backend, q->arena);
    q->arena = NULL;
}

static void qadam_free(struct strategy *s)
{
    qadam_drop(qadam_of(s));
    coded_free(qadam_of(s)->coded);
    free(qadam_of(s)->blend);
    free(qadam_of(s));
}

/* exp_avg is the first slot of Adam and AdamW. */
static int make_blend(struct qadam *q, int bucket, struct err *err)
{
    const struct strategy_site *at = &q->base.at;
    const int64_t offset = at->layout->bucket[bucket].offset, n = cut_bucket(at->layout, bucket);
    const float fresh = 1.0f - q->beta1;
    struct sketch s;
    int x, mean;

    if (n == 0) /* of the control vector alone */
        return 0;
    s = sketch_begin(err);
    x = sketch_place(&s, DTYPE_F32, SHAPE(n), (float *)at->grad + offset, "x");
    mean = sketch_place(&s, DTYPE_F32, SHAPE(n), (float *)at->moment[0] + offset, "exp_avg");
    (void)sketch_scale(&s, x, coll_size(exchange_coll(at->exchange)), x);
    (void)sketch_scale(&s, x, (double)fresh, x);
    mean = sketch_scale(&s, mean, (double)q->beta1, NODE_NEW_OUT);
    (void)sketch_elementwise(&s, EW_ADD, x, mean, x);
    return sketch_end(&s, at->backend, NULL, &q->blend[bucket]);
}

static int qadam_form(struct strategy *s, int source, struct err *err)
{
    struct qadam *q = qadam_of(s);
    int rc = coded_form(q->coded, source, err);

    qadam_drop(q);
    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++)
        rc = make_blend(q, b, err);
    return rc < 0 ? rc
                  : sketch_bind(q->blend, s->at.layout->n_buckets, s->at.backend, &q->arena, err);
}

/* ---- a step ---- */

/* 1: the buckets of this step travel as means.  So these steps have a recording of their own. */
static int is_warm(const struct strategy *s)
{
    return s->n_updates >= ((const struct qadam_options *)s->at.options)->warmup_steps;
}

static int qadam_bucket_ready(struct strategy *s, int bucket, struct err *err)
{
    const struct bucket *b = &s->at.layout->bucket[bucket];

    if (!is_warm(s))
        return exchange_allreduce(s->at.exchange, bucket, (float *)s->at.grad + b->offset,
                                  b->length, DTYPE_F32, err);
    if (sketch_run(qadam_of(s)->blend[bucket], err) < 0)
        return err->code;
    return coded_encode(qadam_of(s)->coded, bucket, err);
}

static int qadam_before_update(struct strategy *s, struct err *err)
{
    return is_warm(s) ? coded_decode(qadam_of(s)->coded, err)
                      : exchange_wait_buckets(s->at.exchange, err);
}

const struct strategy_ops strategy_qadam = {
    .group = {.name = "qadam",
              .help =
                  "Bagua's: some steps of exact Adam, then its means travel as 8 bits a number, "
                  "for slow links",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct qadam_options)},
    .wants_float32 = 1,
    .means_from = &rows[0],
    .promises = COMPRESS_PROMISES,
    .new = qadam_new,
    .form = qadam_form,
    .variant = is_warm,
    .bucket_ready = qadam_bucket_ready,
    .before_update = qadam_before_update,
    .free = qadam_free,
};
