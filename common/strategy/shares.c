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
 * batch norm does.  Those of the step are the mean over all leaves.
 *
 * Each addition is a small program, because a device's kernels work at fixed addresses.  All work
 * is the same in every step of a formation. */
#include "strategy/shares.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/sampler.h"
#include "program/sketch.h"
#include "strategy/exchange.h"
#include "strategy/tree.h"

/* The additions of a range, and the division that makes a mean.  NULL: there is none. */
struct additions {
    struct program **leaf;  /* [n_room]: piece i += x */
    struct program **fold;  /* [n_room]: piece i += piece i + 1 */
    struct program **taken; /* [n_all]: those that follow when piece i of all ranks is pushed */
    struct program *mean;
    void *arena;
};

/* An array of numbers that are summed together: a bucket, or the running statistics. */
struct range {
    int bucket; /* the exchange gets this number for the collectives of the range */
    float *x;   /* [n]: the numbers of the newest leaf; in the end the sum over all leaves */
    int64_t n;
    int64_t stride, own_stride; /* from a piece to the next one, in pieces and in taken */
    int is_mean;                /* 1: the sum is divided by the number of leaves */
    int64_t n_seen;             /* this rank's leaves of this step that have been added */
    float *pieces;              /* [n_room][stride]; x itself for a rank with one leaf */
    float *taken;               /* [n_all][own_stride]: pieces of all ranks; NULL with one rank */
    struct coll_span *give;     /* [most_pieces][size]: each rank's span of a piece */
    struct coll_span *take;     /* [most_pieces][size]: places in `taken` of what a rank gives */
    struct additions add;
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
    float *divisor; /* n_leaves, in the backend's memory */
};

/* Kernels want addresses that are multiples of 16 bytes. */
enum { ALIGN = 4 };

static struct shares *shares_of_strategy(struct strategy *s)
{
    return container_of(s, struct shares, base);
}

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

static void shares_plan(struct shares *s)
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

static void shares_drop_programs(struct program **p, int n)
{
    for (int i = 0; p && i < n; i++)
        program_free(p[i]);
    free(p);
}

static void drop_range(struct shares *s, struct range *r)
{
    shares_drop_programs(r->add.leaf, s->n_room);
    shares_drop_programs(r->add.fold, s->n_room);
    shares_drop_programs(r->add.taken, s->n_all);
    program_free(r->add.mean);
    backend_free(s->base.at.backend, r->add.arena);
    if (r->pieces != r->x)
        backend_free(s->base.at.backend, r->pieces);
    backend_free(s->base.at.backend, r->taken);
    free(r->give);
    free(r->take);
    *r = (struct range){0};
}

static void shares_drop(struct shares *s)
{
    for (int i = 0; i < s->n_ranges; i++)
        drop_range(s, &s->range[i]);
    free(s->range);
    free(s->first);
    free(s->leaf);
    free(s->piece);
    backend_free(s->base.at.backend, s->divisor);
    *s = (struct shares){.base = s->base};
}

static void shares_cut(const struct shares *s, struct range *r)
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
                r->take[i * s->size + k] =
                    (struct coll_span){(s->first[k] + i) * r->own_stride, n_own};
        }
}

/* ---- the additions ---- */

static int shares_place(struct sketch *s, float *x, int64_t n)
{
    return sketch_place(s, DTYPE_F32, SHAPE(n), x, "numbers");
}

static void shares_append(struct sketch *s, float *to, float *x, int64_t n)
{
    const int sum = shares_place(s, to, n);

    (void)sketch_elementwise(s, EW_ADD, sum, shares_place(s, x, n), sum);
}

/* to[n] += x[n] */
static int make_addition(struct shares *s, float *to, float *x, int64_t n, struct program **out,
                         struct err *err)
{
    struct sketch sketch = sketch_begin(err);

    shares_append(&sketch, to, x, n);
    return sketch_end(&sketch, s->base.at.backend, NULL, out);
}

/* The additions that follow when the i-th of all pieces is pushed.  pile [n_all]: the nodes that
 * are not added yet. */
static int make_taken(struct shares *s, struct range *r, int i, float **pile, struct err *err)
{
    const struct move m = s->piece[i];
    struct sketch sketch;

    pile[m.at] = r->taken + i * r->own_stride;
    if (m.n_sums == 0)
        return 0;
    sketch = sketch_begin(err);
    for (int k = 0; k < m.n_sums; k++)
        shares_append(&sketch, pile[m.at - k - 1], pile[m.at - k],
                      coll_span(r->n, s->size, s->rank).n);
    return sketch_end(&sketch, s->base.at.backend, NULL, &r->add.taken[i]);
}

/* The sum of this rank's span, once all partial sums are added. */
static float *shares_sum_of(const struct range *r) { return r->taken ? r->taken : r->pieces; }

static int make_mean(struct shares *s, struct range *r, struct err *err)
{
    struct sketch sketch = sketch_begin(err);
    const int sum = shares_place(&sketch, shares_sum_of(r), coll_span(r->n, s->size, s->rank).n);

    (void)sketch_elementwise(&sketch, EW_DIV, sum, shares_place(&sketch, s->divisor, 1), sum);
    return sketch_end(&sketch, s->base.at.backend, NULL, &r->add.mean);
}

static int bind_additions(struct shares *s, struct additions *a, struct err *err)
{
    const size_t size = sizeof(struct program *);
    const int n = 2 * s->n_room + s->n_all + 1;
    struct program **all = xcalloc((size_t)n, size);
    int rc;

    memcpy(all, a->leaf, (size_t)s->n_room * size);
    memcpy(all + s->n_room, a->fold, (size_t)s->n_room * size);
    memcpy(all + 2 * s->n_room, a->taken, (size_t)s->n_all * size);
    all[n - 1] = a->mean;
    rc = sketch_bind(all, n, s->base.at.backend, &a->arena, err);
    free(all);
    return rc;
}

static int make_additions(struct shares *s, struct range *r, struct err *err)
{
    const int64_t n_own = coll_span(r->n, s->size, s->rank).n;
    struct additions *a = &r->add;
    float *pile[TREE_MOST_NODES];
    int rc = 0;

    a->leaf = xcalloc((size_t)s->n_room, sizeof(struct program *));
    a->fold = xcalloc((size_t)s->n_room, sizeof(struct program *));
    a->taken = xcalloc((size_t)s->n_all, sizeof(struct program *));
    for (int i = 0; i < s->n_room && r->pieces != r->x && rc == 0; i++) {
        float *piece = r->pieces + i * r->stride;

        rc = make_addition(s, piece, r->x, r->n, &a->leaf[i], err);
        if (rc == 0 && i + 1 < s->n_room)
            rc = make_addition(s, piece, piece + r->stride, r->n, &a->fold[i], err);
    }
    for (int i = 0; i < s->n_all && r->taken && rc == 0; i++)
        rc = make_taken(s, r, i, pile, err);
    if (rc == 0 && r->is_mean && n_own > 0)
        rc = make_mean(s, r, err);
    return rc == 0 ? bind_additions(s, a, err) : rc;
}

static int make_divisor(struct shares *s, struct err *err)
{
    const float n = (float)s->n_leaves;
    struct backend *b = s->base.at.backend;
    const int rc = backend_alloc(b, sizeof n, "a number of shares", (void **)&s->divisor, err);

    return rc == 0 ? backend_copy_in(b, s->divisor, &n, sizeof n, err) : rc;
}

/* ---- a formation, again ---- */

static int make_range(struct shares *s, struct range *r, struct err *err)
{
    static const char what[] = "sums of shares";
    size_t own;
    int rc = 0;

    r->stride = round_up_i64(r->n, ALIGN);
    r->own_stride = round_up_i64(coll_span(r->n, s->size, s->rank).n, ALIGN);
    own = sizeof(float) * (size_t)r->own_stride;
    shares_cut(s, r);
    if (s->n_own == 1)
        r->pieces = r->x;
    else
        rc = backend_alloc(s->base.at.backend, sizeof(float) * (size_t)(s->n_room * r->stride),
                           what, (void **)&r->pieces, err);
    if (rc == 0 && s->size > 1 && own > 0)
        rc = backend_alloc(s->base.at.backend, own * (size_t)s->n_all, what, (void **)&r->taken,
                           err);
    return rc == 0 ? make_additions(s, r, err) : rc;
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

static int shares_form(struct strategy *strategy, int source, struct err *err)
{
    struct shares *s = shares_of_strategy(strategy);
    int rc = 0;

    (void)source;
    shares_drop(s);
    s->size = coll_size(exchange_coll(s->base.at.exchange));
    s->rank = coll_rank(exchange_coll(s->base.at.exchange));
    ASSERT(s->base.at.n_shares >= s->size);
    shares_plan(s);
    name_ranges(s);
    rc = make_divisor(s, err);
    for (int i = 0; i < s->n_ranges && rc == 0; i++)
        rc = make_range(s, &s->range[i], err);
    return rc;
}

static int shares_new(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct shares *s = xcalloc(1, sizeof *s);

    (void)err;
    s->base.at = *site;
    *out = &s->base;
    return 0;
}

static void shares_free(struct strategy *s)
{
    shares_drop(shares_of_strategy(s));
    free(shares_of_strategy(s));
}

/* ---- a step ---- */

/* Push the newest leaf's numbers to the pieces.  If an addition follows, the numbers are added
 * straight to the piece before, without a copy. */
static int take_leaf(const struct shares *s, struct range *r, struct err *err)
{
    const struct move m = s->leaf[r->n_seen];
    float *top = r->pieces + m.at * r->stride;
    int rc = 0;

    if (m.n_sums == 0)
        return top == r->x
                   ? 0
                   : backend_copy(s->base.at.backend, top, r->x, sizeof *top * (size_t)r->n, err);
    rc = sketch_run(r->add.leaf[m.at - 1], err);
    for (int i = 1; i < m.n_sums && rc == 0; i++)
        rc = sketch_run(r->add.fold[m.at - i - 1], err);
    return rc;
}

/* This rank's pieces are complete: start to give each rank its span of them.  All ranks start
 * most_pieces collectives; a rank with fewer pieces gives nothing in the last ones. */
static int give_pieces(struct shares *s, struct range *r, struct err *err)
{
    const int64_t most = coll_span(r->n, s->size, 0).n;
    int rc = 0;

    for (int i = 0; i < s->most_pieces && rc == 0; i++)
        rc = exchange_all_to_all(
            s->base.at.exchange, r->bucket,
            (struct coll_parts){r->pieces + (i < s->n_pieces ? i : 0) * r->stride,
                                r->give + i * s->size, most},
            (struct coll_parts){r->taken, r->take + i * s->size, most}, r->n, DTYPE_F32, err);
    return rc;
}

static int shares_take(struct shares *s, struct range *r, struct err *err)
{
    ASSERT(r->n_seen < s->n_own);
    if (take_leaf(s, r, err) < 0)
        return err->code;
    if (++r->n_seen < s->n_own)
        return 0;
    r->n_seen = 0; /* the next leaf is the next step's */
    return s->size > 1 ? give_pieces(s, r, err) : 0;
}

/* The running statistics of a leaf are ready when its last bucket is. */
static int shares_bucket_ready(struct strategy *strategy, int bucket, struct err *err)
{
    struct shares *s = shares_of_strategy(strategy);
    int rc = 0;

    for (int i = 0; i < s->n_ranges && rc == 0; i++)
        if (s->range[i].bucket == bucket)
            rc = shares_take(s, &s->range[i], err);
    return rc;
}

static void shares_forget(struct strategy *strategy)
{
    struct shares *s = shares_of_strategy(strategy);

    for (int i = 0; i < s->n_ranges; i++)
        s->range[i].n_seen = 0;
}

/* Add the pieces of all ranks, of this rank's span, in place.  The first piece then is the sum. */
static int shares_add_pieces(const struct shares *s, const struct range *r, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < s->n_all && rc == 0; i++)
        rc = sketch_run(r->add.taken[i], err);
    return rc;
}

/* Divide the sum if the range is a mean, and copy it to its place. */
static int keep_sum(const struct shares *s, const struct range *r, struct coll_span own,
                    struct err *err)
{
    float *x = r->x + own.at, *sum = shares_sum_of(r);

    if (sketch_run(r->add.mean, err) < 0)
        return err->code;
    return sum == x ? 0 : backend_copy(s->base.at.backend, x, sum, sizeof *x * (size_t)own.n, err);
}

static int sum_span(struct shares *s, const struct range *r, struct err *err)
{
    const struct coll_span own = coll_span(r->n, s->size, s->rank);
    int rc = 0;

    if (s->size > 1)
        rc = exchange_wait(s->base.at.exchange, r->bucket, err);
    if (rc == 0 && s->size > 1 && own.n > 0)
        rc = shares_add_pieces(s, r, err);
    return rc == 0 && own.n > 0 ? keep_sum(s, r, own, err) : rc;
}

/* For before_update.  All ranks start the same collectives in the same order.  The running
 * statistics share the number of the last bucket, and exchange_wait waits for the newest collective
 * of a number, before which all earlier ones have ended. */
static int shares_finish(struct strategy *strategy, struct err *err)
{
    struct shares *s = shares_of_strategy(strategy);
    struct exchange *x = s->base.at.exchange;
    int rc = 0;

    for (int i = 0; i < s->n_ranges && rc == 0; i++) {
        const struct range *r = &s->range[i];

        ASSERT(r->n_seen == 0); /* all of this step's leaves came */
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
    .wants_float32 = 1,
    .promises = {.replicas_are_equal = 1,
                 .collectives_are_equal = 1,
                 .sum_is_linear = 1,
                 .state_rests = 1,
                 .recovery = STRATEGY_NEEDS_ONE_RANK},
    .new = shares_new,
    .form = shares_form,
    .bucket_ready = shares_bucket_ready,
    .forget = shares_forget,
    .before_update = shares_finish,
    .free = shares_free,
};
