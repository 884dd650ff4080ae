/* shares - sums the gradients of fixed shares of the global batch in one fixed tree.
 *
 * The global batch is always computed as the same micro-batches, whatever the number of ranks n.
 * A rank computes a contiguous range of them (data/sampler.h).  Each micro-batch is one leaf of the
 * tree of strategy/tree.h.  For each bucket:
 *
 *   1. A rank adds the gradients of its leaves as far as the tree allows.  A few partial sums
 *      remain, its pieces: one if its range is a node of the tree, else at most two for each level.
 *   2. After its last leaf the rank gives every other rank that rank's span of all pieces (one
 *      all-to-all for each piece).
 *   3. Each rank adds the pieces of all ranks for its own span, in the order of the same tree, and
 *      gives the result to all ranks (all-gather).
 *
 * A rank with p pieces sends (p + 1) (n-1)/n times the bytes of the bucket.  The plain all-reduce
 * sends as much as this with p = 1.  The control vector is part of the last bucket; it consists of
 * integers, whose sum is exact in any order.
 *
 * Batch norm's running statistics are summed like a bucket.  Each leaf computes the next running
 * statistics from the state's and from those of its own samples, as a rank without synchronised
 * batch norm does.  Those of the step are the mean over all leaves. */
#include "strategy/shares.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/sampler.h"
#include "strategy/exchange.h"
#include "strategy/tree.h"

/* An array of numbers that are summed together: a bucket, or the running statistics. */
struct range {
    int bucket; /* the exchange gets this number for the collectives of the range */
    float *x;   /* [n]: the numbers of the newest leaf; in the end the sum over all leaves */
    int64_t n;
    int is_mean;            /* 1: the sum is divided by the number of leaves */
    int64_t n_seen;         /* this rank's leaves of this step that have been added */
    float *pieces;          /* [n_room][n]; x itself for a rank with one leaf */
    float *taken;           /* [n_all][own span]: pieces of all ranks; NULL with one rank */
    struct coll_span *give; /* [most_pieces][size]: each rank's span of a piece */
    struct coll_span *take; /* [most_pieces][size]: places in `taken` of what a rank gives */
};

/* The work that follows when a node is pushed.  It is the same in every step of a formation. */
struct move {
    int at;     /* the place in the pile where the node is put */
    int n_sums; /* the additions that follow, as tree_push returns them */
};

struct shares {
    struct strategy base; /* first */
    int size, rank;
    int64_t n_leaves;          /* of all ranks */
    int64_t n_own;             /* this rank's */
    int n_pieces;              /* this rank's, after its last leaf */
    int most_pieces;           /* the largest n_pieces of any rank */
    int n_room;                /* the most nodes that this rank's pile holds at any time */
    int n_all;                 /* pieces of all ranks */
    int *first;                /* [size+1]: number of each rank's first piece */
    struct move *leaf, *piece; /* [n_own]: of this rank's leaves; [n_all]: of all pieces */
    struct range *range;       /* [n_ranges] */
    int n_ranges;
};

static struct shares *of(struct strategy *s) { return container_of(s, struct shares, base); }

/* ---- the tree ---- */

static struct span leaves_of(const struct shares *s, int rank)
{
    const int64_t each = s->base.at.accumulate;
    const struct span shares = span_part((struct span){0, s->base.at.n_shares}, s->size, rank);

    return (struct span){shares.first * each, shares.n * each};
}

/* Push all leaves of `rank` to the pile p, which is emptied first.  If move is not NULL, fill
 * move[number of leaves].  Returns the largest number of nodes that the pile held. */
static int push_leaves(const struct shares *s, int rank, struct tree_pile *p, struct move *move)
{
    const struct span own = leaves_of(s, rank);
    int most = 0;

    *p = (struct tree_pile){.n_leaves = s->n_leaves};
    for (int64_t i = 0; i < own.n; i++) {
        const int at = p->n;
        const int n_sums = tree_push(p, (struct tree_node){own.first + i, 0});

        most = (int)max_i64(most, p->n);
        if (move)
            move[i] = (struct move){at, n_sums};
    }
    return most;
}

/* Fill s->piece: push the pieces of all ranks, in rank order, until the root is left. */
static void push_pieces(struct shares *s)
{
    struct tree_pile all = {.n_leaves = s->n_leaves}, one;

    for (int r = 0; r < s->size; r++) {
        (void)push_leaves(s, r, &one, NULL);
        for (int i = 0; i < one.n; i++) {
            const int at = all.n;

            s->piece[s->first[r] + i] = (struct move){at, tree_push(&all, one.node[i])};
        }
    }
    ASSERT(all.n == 1);
}

static void plan(struct shares *s)
{
    struct tree_pile p;

    s->n_leaves = s->base.at.n_shares * s->base.at.accumulate;
    s->n_own = leaves_of(s, s->rank).n;
    s->first = xcalloc((size_t)s->size + 1, sizeof *s->first);
    s->leaf = xcalloc((size_t)s->n_own, sizeof *s->leaf);
    for (int r = 0; r < s->size; r++) {
        (void)push_leaves(s, r, &p, NULL);
        s->first[r + 1] = s->first[r] + p.n;
        s->most_pieces = (int)max_i64(s->most_pieces, p.n);
    }
    s->n_all = s->first[s->size];
    s->n_room = push_leaves(s, s->rank, &p, s->leaf);
    s->n_pieces = p.n;
    s->piece = xcalloc((size_t)s->n_all, sizeof *s->piece);
    push_pieces(s);
}

/* ---- a formation ---- */

static void drop_range(struct shares *s, struct range *r)
{
    if (r->pieces != r->x)
        backend_free(s->base.at.backend, r->pieces);
    backend_free(s->base.at.backend, r->taken);
    free(r->give);
    free(r->take);
    *r = (struct range){0};
}

static void drop(struct shares *s)
{
    for (int i = 0; i < s->n_ranges; i++)
        drop_range(s, &s->range[i]);
    free(s->range);
    free(s->first);
    free(s->leaf);
    free(s->piece);
    *s = (struct shares){.base = s->base};
}

static void cut(const struct shares *s, struct range *r)
{
    const int64_t n_own = coll_span(r->n, s->size, s->rank).n;
    const size_t n = (size_t)(s->most_pieces * s->size);

    r->give = xcalloc(n, sizeof *r->give);
    r->take = xcalloc(n, sizeof *r->take);
    for (int i = 0; i < s->most_pieces; i++)
        for (int k = 0; k < s->size; k++) {
            if (i < s->n_pieces)
                r->give[i * s->size + k] = coll_span(r->n, s->size, k);
            if (i < s->first[k + 1] - s->first[k])
                r->take[i * s->size + k] = (struct coll_span){(s->first[k] + i) * n_own, n_own};
        }
}

static int make_range(struct shares *s, struct range *r, struct err *err)
{
    static const char what[] = "sums of shares";
    const size_t own = sizeof(float) * (size_t)coll_span(r->n, s->size, s->rank).n;
    int rc = 0;

    cut(s, r);
    if (s->n_own == 1)
        r->pieces = r->x;
    else
        rc = backend_alloc(s->base.at.backend, sizeof(float) * (size_t)(s->n_room * r->n), what,
                           (void **)&r->pieces, err);
    if (rc == 0 && s->size > 1 && own > 0)
        rc = backend_alloc(s->base.at.backend, own * (size_t)s->n_all, what, (void **)&r->taken,
                           err);
    return rc;
}

static void name_ranges(struct shares *s)
{
    const struct strategy_site *at = &s->base.at;
    const struct layout *l = at->layout;

    s->range = xcalloc((size_t)l->n_buckets + 1, sizeof *s->range);
    for (int b = 0; b < l->n_buckets; b++)
        s->range[s->n_ranges++] = (struct range){.bucket = b,
                                                 .x = (float *)((char *)at->grad + l->bucket[b].at),
                                                 .n = l->bucket[b].length};
    if (l->n_state_total > 0)
        s->range[s->n_ranges++] = (struct range){
            .bucket = l->n_buckets - 1, .x = at->shadow, .n = l->n_state_total, .is_mean = 1};
}

static int form(struct strategy *strategy, int source, struct err *err)
{
    struct shares *s = of(strategy);
    int rc = 0;

    (void)source;
    drop(s);
    s->size = coll_size(exchange_coll(s->base.at.exchange));
    s->rank = coll_rank(exchange_coll(s->base.at.exchange));
    ASSERT(s->base.at.n_shares >= s->size);
    plan(s);
    name_ranges(s);
    for (int i = 0; i < s->n_ranges && rc == 0; i++)
        rc = make_range(s, &s->range[i], err);
    return rc;
}

static int new (const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct shares *s = xcalloc(1, sizeof *s);

    (void)err;
    s->base.at = *site;
    *out = &s->base;
    return 0;
}

static void free_it(struct strategy *s)
{
    drop(of(s));
    free(of(s));
}

/* ---- a step ---- */

static int begin(struct strategy *strategy, struct err *err)
{
    struct shares *s = of(strategy);

    (void)err;
    for (int i = 0; i < s->n_ranges; i++)
        s->range[i].n_seen = 0;
    return 0;
}

static void add(float *restrict to, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += x[i];
}

/* Push the newest leaf's numbers to the pieces.  If an addition follows, the numbers are added
 * straight to the piece before, without a copy. */
static void take_leaf(const struct shares *s, struct range *r)
{
    const struct move m = s->leaf[r->n_seen];
    float *top = r->pieces + m.at * r->n;

    if (m.n_sums > 0)
        add(top - r->n, r->x, r->n);
    else if (top != r->x)
        memcpy(top, r->x, sizeof *top * (size_t)r->n);
    for (int i = 1; i < m.n_sums; i++)
        add(top - (i + 1) * r->n, top - i * r->n, r->n);
}

/* This rank's pieces are complete: start to give each rank its span of them.  All ranks start
 * most_pieces collectives; a rank with fewer pieces gives nothing in the last ones. */
static int give_pieces(struct shares *s, struct range *r, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < s->most_pieces && rc == 0; i++)
        rc = exchange_all_to_all(s->base.at.exchange, r->bucket,
                                 (struct coll_parts){r->pieces + (i < s->n_pieces ? i : 0) * r->n,
                                                     r->give + i * s->size},
                                 (struct coll_parts){r->taken, r->take + i * s->size}, r->n,
                                 DTYPE_F32, err);
    return rc;
}

static int take(struct shares *s, struct range *r, struct err *err)
{
    ASSERT(r->n_seen < s->n_own);
    take_leaf(s, r);
    return ++r->n_seen == s->n_own && s->size > 1 ? give_pieces(s, r, err) : 0;
}

/* The running statistics of a leaf are ready when its last bucket is. */
static int bucket_ready(struct strategy *strategy, int bucket, struct err *err)
{
    struct shares *s = of(strategy);
    int rc = 0;

    for (int i = 0; i < s->n_ranges && rc == 0; i++)
        if (s->range[i].bucket == bucket)
            rc = take(s, &s->range[i], err);
    return rc;
}

/* Add the pieces of all ranks, n numbers of this rank's span each, in place.  The first n numbers
 * then are the sum. */
static void add_pieces(const struct shares *s, float *pieces, int64_t n)
{
    float *pile[TREE_MOST_NODES];

    for (int i = 0; i < s->n_all; i++) {
        const struct move m = s->piece[i];

        pile[m.at] = pieces + i * n;
        for (int k = 0; k < m.n_sums; k++)
            add(pile[m.at - k - 1], pile[m.at - k], n);
    }
}

static void keep_sum(const struct shares *s, const struct range *r, const float *sum,
                     struct coll_span own)
{
    float *x = r->x + own.at;

    if (sum != x)
        memcpy(x, sum, sizeof *x * (size_t)own.n);
    for (int64_t i = 0; i < own.n && r->is_mean; i++)
        x[i] /= (float)s->n_leaves;
}

static int sum_span(struct shares *s, const struct range *r, struct err *err)
{
    const struct coll_span own = coll_span(r->n, s->size, s->rank);
    int rc = 0;

    if (s->size > 1)
        rc = exchange_wait(s->base.at.exchange, r->bucket, err);
    if (rc == 0 && s->size > 1 && own.n > 0)
        add_pieces(s, r->taken, own.n);
    if (rc == 0 && own.n > 0)
        keep_sum(s, r, s->size > 1 ? r->taken : r->pieces, own);
    return rc;
}

/* For before_update.  All ranks start the same collectives in the same order.  The running
 * statistics share the number of the last bucket, and exchange_wait waits for the newest collective
 * of a number, before which all earlier ones have ended. */
static int finish(struct strategy *strategy, struct err *err)
{
    struct shares *s = of(strategy);
    struct exchange *x = s->base.at.exchange;
    int rc = 0;

    for (int i = 0; i < s->n_ranges && rc == 0; i++) {
        const struct range *r = &s->range[i];

        rc = sum_span(s, r, err);
        if (rc == 0 && s->size > 1)
            rc = exchange_allgather_spans(x, r->bucket, r->x, r->n, DTYPE_F32, err);
    }
    for (int i = 0; i < s->n_ranges && rc == 0 && s->size > 1; i++)
        rc = exchange_wait(x, s->range[i].bucket, err);
    return rc;
}

const struct strategy_ops shares_allreduce = {
    .group.name = "allreduce",
    .is_for_cpus = 1,
    .wants_float32 = 1,
    .promises = {.replicas_are_equal = 1,
                 .collectives_are_equal = 1,
                 .sum_is_linear = 1,
                 .recovery = STRATEGY_NEEDS_ONE_RANK},
    .new = new,
    .form = form,
    .step_begin = begin,
    .bucket_ready = bucket_ready,
    .before_update = finish,
    .free = free_it,
};
