/* adasum - gradients are combined pair by pair, by their directions (Horovod's Adasum; Maleki and
 * others 2021, "Scaling Distributed Training with Adaptive Summation").
 *
 * Two gradients a and b of one tensor are combined to
 *
 *   (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b;   a factor is 1 if its a.a or b.b is 0
 *
 * The dot products are of the whole tensor, in double.  So equal gradients give their mean, and
 * orthogonal ones their sum.  Ranks 0 and 1, 2 and 3 ... are the first pairs.  Their results form
 * pairs again, and so on.  The last of an odd number passes to the next level unchanged, so any
 * number of ranks can take part.  Horovod wants a power of two, for which the pairs are the same.
 *
 * A rank's gradient is the mean over its own samples, because its loss is divided by its part of
 * the step's samples.  The optimizer then updates by the combined gradient, as with
 * hvd.allreduce(op=hvd.Adasum).  Horovod's DistributedOptimizer combines the changes that each
 * rank's own optimizer would make; for SGD without momentum that is the same.
 *
 * Each bucket is cut into a span for each rank (coll_span).
 *   1. As soon as a bucket is ready, rank j gets span j of all ranks' gradients (all-to-all).
 *   2. For each level of pairs, each rank computes the dot products of its spans.  The sums of
 *      these over all ranks are the dot products of whole tensors, so all ranks compute the same
 *      factors.  Each rank then combines its spans.
 *   3. All ranks get all spans (all-gather), and so the same bytes.
 * A rank sends 2 (n-1)/n of the gradients, as in an all-reduce, and takes part in an all-reduce of
 * 24 bytes for each tensor of each pair. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "strategy/compress.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"

enum { DOT_AB, DOT_AA, DOT_BB, N_DOTS };

struct adasum_bucket {
    int64_t n;             /* elements of the bucket, without the control vector */
    struct coll_span own;  /* this rank's span of the bucket */
    float *taken;          /* [size, own.n]: rows to be combined; at first one from each rank */
    struct coll_span *cut; /* [size]: the bucket's spans */
    struct coll_span *row; /* [size]: the rows of `taken` */
};

struct adasum {
    struct strategy base;         /* first */
    int size, rank;               /* of the formation; size 0: none yet */
    struct adasum_bucket *bucket; /* [n_buckets] */
    double *dots;                 /* [pairs of the first level, n_params, N_DOTS] */
};

static struct adasum *of(const struct strategy *s) { return (struct adasum *)s; }

/* ---- a formation ---- */

static void drop(struct adasum *a)
{
    for (int b = 0; b < a->base.at.layout->n_buckets; b++) {
        backend_free(a->base.at.backend, a->bucket[b].taken);
        free(a->bucket[b].cut);
        free(a->bucket[b].row);
        a->bucket[b] = (struct adasum_bucket){0};
    }
    free(a->dots);
    a->dots = NULL;
}

static int make_bucket(struct adasum *a, int b, struct err *err)
{
    struct adasum_bucket *k = &a->bucket[b];

    k->n = cut_bucket(a->base.at.layout, b);
    k->own = coll_span(k->n, a->size, a->rank);
    k->cut = xcalloc((size_t)a->size, sizeof *k->cut);
    k->row = xcalloc((size_t)a->size, sizeof *k->row);
    for (int r = 0; r < a->size; r++) {
        k->cut[r] = coll_span(k->n, a->size, r);
        k->row[r] = (struct coll_span){r * k->own.n, k->own.n};
    }
    if (k->own.n == 0)
        return 0;
    return compress_zeroed(a->base.at.backend, sizeof(float) * (size_t)(a->size * k->own.n),
                           "gradients of all ranks", (void **)&k->taken, err);
}

static int form(struct strategy *s, int source, struct err *err)
{
    struct adasum *a = of(s);
    struct coll *coll = exchange_coll(s->at.exchange);
    int rc = 0;

    (void)source;
    drop(a);
    a->size = coll_size(coll);
    a->rank = coll_rank(coll);
    a->dots = xcalloc((size_t)(a->size / 2 * s->at.layout->n_params + 1) * N_DOTS, sizeof *a->dots);
    for (int b = 0; b < s->at.layout->n_buckets && rc == 0 && a->size > 1; b++)
        rc = make_bucket(a, b, err);
    return rc;
}

static int new (const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct adasum *a = xcalloc(1, sizeof *a);

    (void)err;
    ASSERT(!backend_is_device(site->backend)); /* job_check_supported has seen to it */
    a->base.at = *site;
    a->bucket = xcalloc((size_t)site->layout->n_buckets, sizeof *a->bucket);
    *out = &a->base;
    return 0;
}

static void free_it(struct strategy *s)
{
    drop(of(s));
    free(of(s)->bucket);
    free(of(s));
}

/* ---- a level of the tree ---- */

/* The part of tensor i that lies in this rank's span of the bucket, in elements of a row; n may be
 * 0 or less.  Padding belongs to no tensor. */
static struct coll_span part_of(const struct adasum *a, int b, int i)
{
    const struct layout *l = a->base.at.layout;
    const int64_t start = l->bucket[b].offset + a->bucket[b].own.at;
    const int64_t from = max_i64(l->param[i].offset - start, 0);
    const int64_t to = min_i64(l->param[i].offset + l->param[i].length - start, a->bucket[b].own.n);

    return (struct coll_span){from, to - from};
}

static double *dots_of(struct adasum *a, int pair, int i)
{
    return a->dots + ((int64_t)pair * a->base.at.layout->n_params + i) * N_DOTS;
}

/* A function that visits rows a and b of one tensor's part, n elements each. */
typedef void visit_fn(const float *a, const float *b, int64_t n, double dots[N_DOTS], float *to);

static void add_dots(const float *a, const float *b, int64_t n, double dots[N_DOTS], float *to)
{
    double ab = 0, aa = 0, bb = 0;

    (void)to;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    dots[DOT_AB] += ab;
    dots[DOT_AA] += aa;
    dots[DOT_BB] += bb;
}

/* A gradient's factor in the formula at the top.  A NaN in the dot products makes it NaN. */
static double factor(double ab, double squares)
{
    return squares < sqrt(DBL_MIN) ? 1 : 1 - ab / (2 * squares);
}

/* to = the combination of a and b by their dot products.  `to` may equal a. */
static void combine(const float *a, const float *b, int64_t n, double dots[N_DOTS], float *to)
{
    const double of_a = factor(dots[DOT_AB], dots[DOT_AA]);
    const double of_b = factor(dots[DOT_AB], dots[DOT_BB]);

    for (int64_t i = 0; i < n; i++)
        to[i] = (float)(of_a * (double)a[i] + of_b * (double)b[i]);
}

/* Visit all tensors of all pairs among the first m rows.  The result of a pair goes to the row of
 * the pair's number, which no later pair reads. */
static void visit_pairs(struct adasum *a, int m, visit_fn *visit)
{
    const struct layout *l = a->base.at.layout;

    for (int pair = 0; pair < m / 2; pair++)
        for (int b = 0; b < l->n_buckets; b++)
            for (int i = 0; i < l->n_params && !l->param[i].info.frozen; i++) {
                const struct coll_span part = part_of(a, b, i);
                const int64_t n = a->bucket[b].own.n;

                if (part.n > 0) {
                    float *row = a->bucket[b].taken + part.at;

                    visit(row + 2 * pair * n, row + (2 * pair + 1) * n, part.n, dots_of(a, pair, i),
                          row + pair * n);
                }
            }
}

static void pass_up(struct adasum *a, int from, int to)
{
    for (int b = 0; b < a->base.at.layout->n_buckets; b++) {
        const struct adasum_bucket *k = &a->bucket[b];

        if (k->own.n > 0)
            memmove(k->taken + to * k->own.n, k->taken + from * k->own.n,
                    sizeof(float) * (size_t)k->own.n);
    }
}

/* Combine the m rows of this level in pairs; (m + 1) / 2 rows are left. */
static int run_level(struct adasum *a, int m, struct err *err)
{
    const struct layout *l = a->base.at.layout;
    const int64_t n = (int64_t)(m / 2) * l->n_params * N_DOTS;
    int rc;

    memset(a->dots, 0, sizeof *a->dots * (size_t)n);
    visit_pairs(a, m, add_dots);
    rc = exchange_allreduce(a->base.at.exchange, l->n_buckets - 1, a->dots, n, DTYPE_F64, err);
    if (rc == 0)
        rc = exchange_wait(a->base.at.exchange, l->n_buckets - 1, err);
    if (rc < 0)
        return rc;
    visit_pairs(a, m, combine);
    if (m % 2)
        pass_up(a, m - 1, m / 2);
    return 0;
}

/* ---- a step ---- */

static float *grad_of(const struct strategy *s, int b)
{
    return (float *)s->at.grad + s->at.layout->bucket[b].offset;
}

static int give_spans(struct strategy *s, int b, struct err *err)
{
    const struct adasum_bucket *k = &of(s)->bucket[b];

    if (k->n > 0 &&
        exchange_all_to_all(s->at.exchange, b, (struct coll_parts){grad_of(s, b), k->cut},
                            (struct coll_parts){k->taken, k->row}, k->n, DTYPE_F32, err) < 0)
        return err->code;
    return compress_sum_control(s, b, err);
}

static int wait_for_all(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++)
        rc = exchange_wait(s->at.exchange, b, err);
    return rc;
}

static int gather(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++) {
        const struct adasum_bucket *k = &of(s)->bucket[b];

        if (k->own.n > 0)
            memcpy(grad_of(s, b) + k->own.at, k->taken, sizeof(float) * (size_t)k->own.n);
        if (k->n > 0)
            rc = exchange_allgather_spans(s->at.exchange, b, grad_of(s, b), k->n, DTYPE_F32, err);
    }
    return rc == 0 ? wait_for_all(s, err) : rc;
}

static int before_update(struct strategy *s, struct err *err)
{
    int rc = wait_for_all(s, err);

    for (int m = of(s)->size; m > 1 && rc == 0; m = (m + 1) / 2)
        rc = run_level(of(s), m, err);
    return rc == 0 && of(s)->size > 1 ? gather(s, err) : rc;
}

/* Makes the rank's gradient the mean over its own samples.  The gradient of a rank without samples
 * is zero, and leaves the gradient with which it is combined unchanged. */
static double loss_factor(const struct strategy *s, int64_t step, double part)
{
    (void)s;
    (void)step;
    return part > 0 ? 1 / part : 1;
}

const struct strategy_ops strategy_adasum = {
    .group = {.name = "adasum",
              .help = "Horovod's Adasum: gradients that agree are averaged, others are added: for "
                      "batches that grow with the ranks at an unchanged rate (CPUs)"},
    .is_for_cpus = 1,
    .wants_float32 = 1,
    .promises = COMPRESS_PROMISES,
    .new = new,
    .form = form,
    .loss_factor = loss_factor,
    .bucket_ready = give_spans,
    .before_update = before_update,
    .free = free_it,
};
