/* adasum - gradients are combined pair by pair, by their directions (Horovod's Adasum; Maleki and
 * others 2021, "Scaling Distributed Training with Adaptive Summation").
 *
 * op/adasum.h has the formula for two gradients of one tensor.  The dot products are of the whole
 * tensor, in double.  So equal gradients give their mean, and orthogonal ones their sum.  Ranks 0
 * and 1, 2 and 3 ... are the first pairs.  Their results form pairs again, and so on.  The last of
 * an odd number passes to the next level unchanged, so any number of ranks can take part.  Horovod
 * wants a power of two, for which the pairs are the same.
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
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/adasum.h"
#include "program/sketch.h"
#include "strategy/compress.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"

enum { MOST_LEVELS = 31 };

struct adasum_bucket {
    int64_t n;             /* elements of the bucket, without the control vector */
    struct coll_span own;  /* this rank's span of the bucket */
    int64_t at;            /* where the span begins in a row */
    struct coll_span *cut; /* [size]: the bucket's spans */
    struct coll_span *row; /* [size]: the places in `rows` of this span of each rank's gradients */
};

/* The pairs at one distance. */
struct level {
    int64_t n_dots;
    struct program *dots, *combine; /* NULL: this rank's spans are empty */
};

struct adasum {
    struct strategy base;         /* first */
    int size, rank;               /* of the formation; size 0: none yet */
    struct adasum_bucket *bucket; /* [n_buckets] */
    int n_tensors;                /* trained ones */
    int64_t n_own;                /* elements of this rank's spans of all buckets */
    /* [size, n_own]: row r is rank r's gradients, of which this rank has its spans.  The tree
     * leaves the result in row 0. */
    float *rows;
    int64_t *ends; /* [n_tensors]: of each tensor, in a row */
    double *dots;  /* [pairs of the first level, n_tensors, ADASUM_N_DOTS] */
    struct level level[MOST_LEVELS];
    int n_levels;
    void *arena;
};

static struct adasum *adasum_of(const struct strategy *s) { return (struct adasum *)s; }

/* ---- a formation ---- */

static void adasum_drop(struct adasum *a)
{
    struct backend *b = a->base.at.backend;

    for (int i = 0; i < a->base.at.layout->n_buckets; i++) {
        free(a->bucket[i].cut);
        free(a->bucket[i].row);
        a->bucket[i] = (struct adasum_bucket){0};
    }
    for (int k = 0; k < a->n_levels; k++) {
        program_free(a->level[k].dots);
        program_free(a->level[k].combine);
        a->level[k] = (struct level){0};
    }
    a->n_levels = 0;
    backend_free(b, a->arena);
    backend_free(b, a->rows);
    backend_free(b, a->ends);
    backend_free(b, a->dots);
    a->arena = a->rows = NULL;
    a->ends = NULL;
    a->dots = NULL;
}

static void adasum_make_bucket(struct adasum *a, int b)
{
    const struct layout *l = a->base.at.layout;
    struct adasum_bucket *k = &a->bucket[b];

    k->n = cut_bucket(l, b);
    k->own = coll_span(k->n, a->size, a->rank);
    k->at = cut_before(l, b, a->size, a->rank);
    k->cut = xcalloc((size_t)a->size, sizeof *k->cut);
    k->row = xcalloc((size_t)a->size, sizeof *k->row);
    for (int r = 0; r < a->size; r++) {
        k->cut[r] = coll_span(k->n, a->size, r);
        k->row[r] = (struct coll_span){r * a->n_own + k->at, k->own.n};
    }
}

static int count_tensors(const struct layout *l)
{
    int n = 0;

    while (n < l->n_params && !l->param[n].info.frozen)
        n++;
    return n;
}

/* The end of tensor i in a row.  Padding counts as the start of the tensor behind it, which does no
 * harm, because it is zero. */
static int64_t adasum_end_of(const struct adasum *a, int i)
{
    const struct layout *l = a->base.at.layout;
    const int64_t end = l->param[i].offset + l->param[i].length;
    int b = 0;

    while (end > l->bucket[b].offset + a->bucket[b].n)
        b++;
    return a->bucket[b].at +
           max_i64(0, min_i64(end - l->bucket[b].offset - a->bucket[b].own.at, a->bucket[b].own.n));
}

static int copy_ends(struct adasum *a, struct err *err)
{
    int64_t *ends = xcalloc((size_t)a->n_tensors, sizeof *ends);
    int rc;

    for (int i = 0; i < a->n_tensors; i++)
        ends[i] = adasum_end_of(a, i);
    rc = backend_copy_in(a->base.at.backend, a->ends, ends, sizeof *ends * (size_t)a->n_tensors,
                         err);
    free(ends);
    return rc;
}

static int adasum_make_memory(struct adasum *a, struct err *err)
{
    struct backend *b = a->base.at.backend;
    const size_t n_rows = (size_t)max_i64(1, a->size * a->n_own);
    const size_t n_dots = (size_t)(a->size / 2 * a->n_tensors) * ADASUM_N_DOTS;

    if (compress_zeroed(b, sizeof *a->rows * n_rows, "gradients of all ranks", (void **)&a->rows,
                        err) < 0 ||
        compress_zeroed(b, sizeof *a->ends * (size_t)a->n_tensors, "ends of tensors",
                        (void **)&a->ends, err) < 0 ||
        compress_zeroed(b, sizeof *a->dots * n_dots, "dot products", (void **)&a->dots, err) < 0)
        return err->code;
    return copy_ends(a, err);
}

/* Make the program of one operator, over the pairs at this distance. */
static int make_program(struct adasum *a, enum op op, int64_t stride, struct program **out,
                        struct err *err)
{
    const union node_attr attr = {.number = {[ADASUM_DOTS_ATTR_STRIDE] = (double)stride}};
    struct sketch s = sketch_begin(err);
    const struct shape shape = SHAPE(adasum_pairs(a->size, stride), a->n_tensors, ADASUM_N_DOTS);
    const int rows = sketch_place(&s, DTYPE_F32, SHAPE(a->size, a->n_own), a->rows, "rows");
    const int ends = sketch_place(&s, DTYPE_I64, SHAPE(a->n_tensors), a->ends, "ends");
    const int dots = sketch_place(&s, DTYPE_F64, shape, a->dots, "dots");

    if (op == OP_adasum_dots)
        sketch_node(&s, op, &attr, (int[]){rows, ends}, 2, (int[]){dots}, "dots");
    else
        sketch_node(&s, op, &attr, (int[]){rows, ends, dots}, 3, (int[]){rows}, "combine");
    return sketch_end(&s, a->base.at.backend, NULL, out);
}

static int make_levels(struct adasum *a, struct err *err)
{
    struct program *all[2 * MOST_LEVELS];
    int rc = 0;

    for (int64_t stride = 1; stride < a->size && rc == 0; stride *= 2) {
        struct level *k = &a->level[a->n_levels++];

        k->n_dots = adasum_pairs(a->size, stride) * a->n_tensors * ADASUM_N_DOTS;
        if (a->n_own == 0)
            continue;
        rc = make_program(a, OP_adasum_dots, stride, &k->dots, err);
        if (rc == 0)
            rc = make_program(a, OP_adasum_combine, stride, &k->combine, err);
    }
    for (int k = 0; k < a->n_levels; k++) {
        all[2 * k] = a->level[k].dots;
        all[2 * k + 1] = a->level[k].combine;
    }
    return rc == 0 ? sketch_bind(all, 2 * a->n_levels, a->base.at.backend, &a->arena, err) : rc;
}

static int adasum_form(struct strategy *s, int source, struct err *err)
{
    struct adasum *a = adasum_of(s);
    struct coll *coll = exchange_coll(s->at.exchange);

    (void)source;
    adasum_drop(a);
    a->size = coll_size(coll);
    a->rank = coll_rank(coll);
    a->n_tensors = count_tensors(s->at.layout);
    if (a->size == 1 || a->n_tensors == 0)
        return 0;
    a->n_own = cut_shard(s->at.layout, a->size, a->rank);
    for (int b = 0; b < s->at.layout->n_buckets; b++)
        adasum_make_bucket(a, b);
    return adasum_make_memory(a, err) < 0 ? err->code : make_levels(a, err);
}

static int adasum_new(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct adasum *a = xcalloc(1, sizeof *a);

    (void)err;
    a->base.at = *site;
    a->bucket = xcalloc((size_t)site->layout->n_buckets, sizeof *a->bucket);
    *out = &a->base;
    return 0;
}

static void adasum_free(struct strategy *s)
{
    adasum_drop(adasum_of(s));
    free(adasum_of(s)->bucket);
    free(adasum_of(s));
}

/* ---- a step ---- */

static float *adasum_grad_of(const struct strategy *s, int b)
{
    return (float *)s->at.grad + s->at.layout->bucket[b].offset;
}

static int give_spans(struct strategy *s, int b, struct err *err)
{
    const struct adasum_bucket *k = &adasum_of(s)->bucket[b];
    const int64_t most = k->n > 0 ? k->cut[0].n : 0; /* without elements nothing is cut */
    const struct coll_parts from = {adasum_grad_of(s, b), k->cut, most},
                            to = {adasum_of(s)->rows, k->row, most};

    if (k->n > 0 && exchange_all_to_all(s->at.exchange, b, from, to, k->n, DTYPE_F32, err) < 0)
        return err->code;
    return compress_sum_control(s, b, err);
}

/* Combine the pairs of a level. */
static int run_level(struct adasum *a, const struct level *k, struct err *err)
{
    const int last = a->base.at.layout->n_buckets - 1;
    struct exchange *x = a->base.at.exchange;
    int rc = k->dots ? sketch_run(k->dots, err)
                     : backend_zero(a->base.at.backend, a->dots,
                                    sizeof *a->dots * (size_t)k->n_dots, err);

    if (rc < 0 || exchange_allreduce(x, last, a->dots, k->n_dots, DTYPE_F64, err) < 0 ||
        exchange_wait(x, last, err) < 0)
        return err->code;
    return sketch_run(k->combine, err);
}

static int adasum_gather(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++) {
        const struct adasum_bucket *k = &adasum_of(s)->bucket[b];

        if (k->own.n > 0)
            rc = backend_copy(s->at.backend, adasum_grad_of(s, b) + k->own.at,
                              adasum_of(s)->rows + k->at, sizeof(float) * (size_t)k->own.n, err);
        if (rc == 0 && k->n > 0)
            rc = exchange_allgather_spans(s->at.exchange, b, adasum_grad_of(s, b), k->n, DTYPE_F32,
                                          err);
    }
    return rc == 0 ? exchange_wait_buckets(s->at.exchange, err) : rc;
}

static int adasum_before_update(struct strategy *s, struct err *err)
{
    int rc = exchange_wait_buckets(s->at.exchange, err);

    for (int k = 0; k < adasum_of(s)->n_levels && rc == 0; k++)
        rc = run_level(adasum_of(s), &adasum_of(s)->level[k], err);
    return rc == 0 && adasum_of(s)->size > 1 ? adasum_gather(s, err) : rc;
}

/* Makes the rank's gradient the mean over its own samples.  The gradient of a rank without samples
 * is zero, and leaves the gradient with which it is combined unchanged. */
static double adasum_loss_factor(const struct strategy *s, int64_t step, double part)
{
    (void)s;
    (void)step;
    return part > 0 ? 1 / part : 1;
}

const struct strategy_ops strategy_adasum = {
    .group = {.name = "adasum",
              .help = "Horovod's Adasum: gradients that agree are averaged, others are added: for "
                      "batches that grow with the ranks at an unchanged rate"},
    .wants_float32 = 1,
    .promises = COMPRESS_PROMISES,
    .new = adasum_new,
    .form = adasum_form,
    .loss_factor = adasum_loss_factor,
    .bucket_ready = give_spans,
    .before_update = adasum_before_update,
    .free = adasum_free,
};
