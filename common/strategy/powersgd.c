/* powersgd - allreduce with compress powersgd: a matrix of gradients travels as two matrices of few
 * columns (Vogels and others 2019, "PowerSGD: Practical Low-Rank Gradient Compression for
 * Distributed Optimization", algorithms 1 and 2).
 *
 * A parameter [K, ..] is taken as a matrix of K rows.  r is the number of columns (strategy.rank),
 * g the rank's gradient, q the Q of the step before, which is equal on all ranks.  For each matrix:
 *
 *   M = g + error;  P = M q;  P is summed over all ranks, and its columns are made orthonormal;
 *   Q = M^T P;  Q is summed over all ranks;  the gradient of the update is P Q^T
 *   error' = M - P Q^T / size;  q' = Q
 *
 * Each bucket needs two all-reduces.  The first sums P, and the parameters that are not compressed.
 * The second sums Q.  Vectors are not compressed, nor are matrices for which this would not halve
 * the bytes: 2 r (rows + columns) > rows * columns.
 *
 * Each rank computes the orthonormal columns of P, and P Q^T, for itself, and all ranks must get
 * the same bits.  So these are made of element-wise operations and of sums in a fixed order.  The
 * bits of matrix products may differ between machines.  Such products only make the terms of the
 * sums over ranks.
 *
 * Each rank has its own errors.  Those of a lost rank are lost, and a rank that joins or resumes
 * begins with zeros.  q starts with fixed numbers in each formation.  A step that is not applied
 * leaves errors and q unchanged.  One rank alone sends nothing, and keeps its gradients as they
 * are.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "program/sketch.h"
#include "strategy/compress.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"

enum { PROJECT, REPROJECT, RESTORE, COMMIT, N_PROGRAMS };

/* A parameter: a matrix that is compressed, or numbers that travel as they are. */
struct part {
    int64_t offset, n;  /* in the flat space */
    int64_t rows, cols; /* rows 0: it is not compressed */
    int64_t p_at, q_at; /* in the bucket's arrays of P and Q */
    float *with_error;  /* [rows, cols]: M, and then the error that is left */
    struct program *program[N_PROGRAMS];
};

struct power_bucket {
    int first, end;        /* its parts */
    int64_t n_p, n_q;      /* elements */
    float *p, *q, *q_kept; /* [n_p]: all P, and what is not compressed; [n_q], [n_q] */
};

struct power {
    struct strategy base; /* first */
    int64_t r;            /* columns */
    int size;             /* of the formation */
    struct part *part;    /* [n_parts]: the trained parameters */
    int n_parts;
    struct power_bucket *bucket; /* [n_buckets] */
    void *arena;
};

static struct power *powersgd_of(struct strategy *s) { return container_of(s, struct power, base); }

static float *powersgd_grad_of(const struct power *w, const struct part *k)
{
    return (float *)w->base.at.grad + k->offset;
}

/* ---- the programs of a matrix ----
 *
 * P and Q are stored by columns: [r, rows] and [r, cols]. */

static int powersgd_place(struct sketch *s, struct shape shape, float *at)
{
    return sketch_place(s, DTYPE_F32, shape, at, "powersgd");
}

/* Column c of P, or of Q, as a vector. */
static int place_column(struct sketch *s, float *columns, int64_t n, int64_t c)
{
    return powersgd_place(s, SHAPE(n), columns + c * n);
}

static void add_matmul(struct sketch *s, int a, int b, int b_is_transposed, int y)
{
    const union node_attr attr = {.matmul.transpose_b = b_is_transposed};

    sketch_node(s, OP_matmul, &attr, (int[]){a, b}, 2, (int[]){y}, "matmul");
}

/* The dot product of two vectors, [1].  The sum is made in double, in a fixed order. */
static int add_dot(struct sketch *s, int a, int b)
{
    const union node_attr attr = {.reduce = {.kind = REDUCE_SUM, .axes = 1, .keep = 1}};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    const int product = sketch_elementwise(s, EW_MUL, a, b, NODE_NEW_OUT);

    sketch_node(s, OP_reduce, &attr, &product, 1, out, "sum");
    return out[0];
}

static int make_project(struct power *w, const struct power_bucket *b, struct part *k,
                        struct err *err)
{
    struct sketch s = sketch_begin(err);
    const struct shape matrix = SHAPE(k->rows, k->cols);
    const int m = powersgd_place(&s, matrix, k->with_error);
    const int q = powersgd_place(&s, SHAPE(w->r, k->cols), b->q_kept + k->q_at);
    const int p = powersgd_place(&s, SHAPE(w->r, k->rows), b->p + k->p_at);

    (void)sketch_elementwise(&s, EW_ADD, powersgd_place(&s, matrix, powersgd_grad_of(w, k)),
                             powersgd_place(&s, matrix, (float *)w->base.at.slot[0] + k->offset),
                             m);
    add_matmul(&s, q, m, 1, p);
    return sketch_end(&s, w->base.at.backend, NULL, &k->program[PROJECT]);
}

/* The norm by which a column is divided, at least `least`, so that a column of zeros stays zero. */
static int add_norm(struct sketch *s, int column)
{
    static const float least = 1e-19f; /* the square is still a number in float32 */
    const union node_attr clip = {.elementwise = {.kind = EW_CLIP, .p = least, .q = INFINITY}};
    const union node_attr root = {.elementwise = {.kind = EW_SQRT}};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT}, in[] = {add_dot(s, column, column), NO_VALUE, NO_VALUE};

    sketch_node(s, OP_elementwise, &root, in, 3, out, "norm");
    in[0] = out[0];
    out[0] = NODE_NEW_OUT;
    sketch_node(s, OP_elementwise, &clip, in, 3, out, "norm");
    return out[0];
}

/* Gram-Schmidt: each column loses its parts along those before it, one by one, and is divided by
 * its norm. */
static void add_orthonormalize(struct sketch *s, const int *column, int64_t r)
{
    for (int64_t c = 0; c < r; c++) {
        for (int64_t j = 0; j < c; j++) {
            const int along = sketch_elementwise(s, EW_MUL, column[j],
                                                 add_dot(s, column[c], column[j]), NODE_NEW_OUT);

            (void)sketch_elementwise(s, EW_SUB, column[c], along, column[c]);
        }
        (void)sketch_elementwise(s, EW_DIV, column[c], add_norm(s, column[c]), column[c]);
    }
}

static int make_reproject(struct power *w, const struct power_bucket *b, struct part *k,
                          struct err *err)
{
    struct sketch s = sketch_begin(err);
    int column[COMPRESS_MAX_RANK];

    for (int64_t c = 0; c < w->r; c++)
        column[c] = place_column(&s, b->p + k->p_at, k->rows, c);
    add_orthonormalize(&s, column, w->r);
    add_matmul(&s, powersgd_place(&s, SHAPE(w->r, k->rows), b->p + k->p_at),
               powersgd_place(&s, SHAPE(k->rows, k->cols), k->with_error), 0,
               powersgd_place(&s, SHAPE(w->r, k->cols), b->q + k->q_at));
    return sketch_end(&s, w->base.at.backend, NULL, &k->program[REPROJECT]);
}

/* The next q is Q.  But a column of Q that is zero, as after a gradient of zeros, would stay zero
 * for ever.  So the column of the present q is kept for the next step instead. */
static void add_next_q(struct sketch *s, const struct power_bucket *b, const struct part *k,
                       int64_t c)
{
    const union node_attr where = {.elementwise = {.kind = EW_WHERE}};
    const int q = place_column(s, b->q + k->q_at, k->cols, c);
    const int in[] = {q, place_column(s, b->q_kept + k->q_at, k->cols, c), add_dot(s, q, q)};

    sketch_node(s, OP_elementwise, &where, in, 3, (int[]){q}, "next_q");
}

static int make_restore(struct power *w, const struct power_bucket *b, struct part *k,
                        struct err *err)
{
    struct sketch s = sketch_begin(err);
    const int grad = powersgd_place(&s, SHAPE(k->rows, k->cols), powersgd_grad_of(w, k));
    const int m = powersgd_place(&s, SHAPE(k->rows, k->cols), k->with_error);

    for (int64_t c = 0; c < w->r; c++) {
        const int p = powersgd_place(&s, SHAPE(k->rows, 1), b->p + k->p_at + c * k->rows);
        const int q = powersgd_place(&s, SHAPE(1, k->cols), b->q + k->q_at + c * k->cols);
        const int y = sketch_elementwise(&s, EW_MUL, p, q, c == 0 ? grad : NODE_NEW_OUT);

        if (c > 0)
            (void)sketch_elementwise(&s, EW_ADD, grad, y, grad);
    }
    (void)sketch_elementwise(&s, EW_SUB, m, sketch_scale(&s, grad, 1.0 / w->size, NODE_NEW_OUT), m);
    for (int64_t c = 0; c < w->r; c++)
        add_next_q(&s, b, k, c);
    return sketch_end(&s, w->base.at.backend, NULL, &k->program[RESTORE]);
}

static int powersgd_make_commit(struct power *w, const struct power_bucket *b, struct part *k,
                                struct err *err)
{
    struct sketch s = sketch_begin(err);

    compress_add_commit(&s, &w->base.at, k->n, k->with_error,
                        (float *)w->base.at.slot[0] + k->offset);
    compress_add_commit(&s, &w->base.at, k->cols * w->r, b->q + k->q_at, b->q_kept + k->q_at);
    return sketch_end(&s, w->base.at.backend, NULL, &k->program[COMMIT]);
}

/* ---- a formation ---- */

static void powersgd_drop(struct power *w)
{
    struct backend *b = w->base.at.backend;

    for (int i = 0; i < w->n_parts; i++) {
        for (int k = 0; k < N_PROGRAMS; k++)
            program_free(w->part[i].program[k]);
        backend_free(b, w->part[i].with_error);
    }
    for (int i = 0; i < w->base.at.layout->n_buckets; i++) {
        backend_free(b, w->bucket[i].p);
        backend_free(b, w->bucket[i].q);
        backend_free(b, w->bucket[i].q_kept);
    }
    backend_free(b, w->arena);
    w->arena = NULL;
    free(w->part);
    w->part = NULL;
    w->n_parts = 0;
    memset(w->bucket, 0, sizeof *w->bucket * (size_t)w->base.at.layout->n_buckets);
}

static struct part powersgd_part_of(const struct power *w, const struct segment *s)
{
    struct part k = {.offset = s->offset, .n = s->length};
    const int64_t rows = s->shape.n > 1 ? s->shape.dim[0] : 0;
    const int64_t cols = rows > 0 ? s->length / rows : 0;

    if (rows >= w->r && cols >= w->r && 2 * w->r * (rows + cols) <= rows * cols) {
        k.rows = rows;
        k.cols = cols;
    }
    return k;
}

/* Give each part of bucket b its place in the bucket's arrays. */
static void place_parts(struct power *w, int b)
{
    const struct layout *l = w->base.at.layout;
    struct power_bucket *to = &w->bucket[b];
    const int64_t end = l->bucket[b].offset + cut_bucket(l, b);

    to->first = w->n_parts;
    while (w->n_parts < l->n_params && !l->param[w->n_parts].info.frozen &&
           l->param[w->n_parts].offset < end) {
        struct part *k = &w->part[w->n_parts];

        *k = powersgd_part_of(w, &l->param[w->n_parts++]);
        k->p_at = to->n_p;
        k->q_at = to->n_q;
        to->n_p += k->rows ? k->rows * w->r : k->n;
        to->n_q += k->cols * w->r;
    }
    to->end = w->n_parts;
}

/* Fill q_kept with fixed numbers, spread evenly over [-1, 1). */
static int fill_q(struct power *w, struct power_bucket *b, struct err *err)
{
    float *q = xcalloc((size_t)b->n_q, sizeof *q);
    int rc;

    for (int64_t i = 0; i < b->n_q; i++)
        q[i] = (float)((uint32_t)(i + 1) * 2654435761u >> 8) / 8388608.0f - 1.0f;
    rc = backend_copy_in(w->base.at.backend, b->q_kept, q, sizeof *q * (size_t)b->n_q, err);
    free(q);
    return rc;
}

static int powersgd_make_memory(struct power *w, struct power_bucket *b, struct err *err)
{
    struct backend *be = w->base.at.backend;
    int rc = 0;

    if (b->n_p > 0)
        rc = compress_zeroed(be, sizeof(float) * (size_t)b->n_p, "P", (void **)&b->p, err);
    if (rc == 0 && b->n_q > 0)
        rc = compress_zeroed(be, sizeof(float) * (size_t)b->n_q, "Q", (void **)&b->q, err);
    if (rc == 0 && b->n_q > 0)
        rc = compress_zeroed(be, sizeof(float) * (size_t)b->n_q, "Q", (void **)&b->q_kept, err);
    return rc == 0 && b->n_q > 0 ? fill_q(w, b, err) : rc;
}

static int powersgd_make_part(struct power *w, const struct power_bucket *b, struct part *k,
                              struct err *err)
{
    if (k->rows == 0)
        return 0;
    if (compress_zeroed(w->base.at.backend, sizeof(float) * (size_t)k->n, "gradients with errors",
                        (void **)&k->with_error, err) < 0 ||
        make_project(w, b, k, err) < 0 || make_reproject(w, b, k, err) < 0 ||
        make_restore(w, b, k, err) < 0)
        return err->code;
    return powersgd_make_commit(w, b, k, err);
}

static int powersgd_bind_all(struct power *w, struct err *err)
{
    struct program **all = xcalloc((size_t)w->n_parts * N_PROGRAMS + 1, sizeof(struct program *));
    int n = 0, rc;

    for (int i = 0; i < w->n_parts; i++)
        for (int k = 0; k < N_PROGRAMS; k++)
            all[n++] = w->part[i].program[k];
    rc = sketch_bind(all, n, w->base.at.backend, &w->arena, err);
    free(all);
    return rc;
}

static int powersgd_form(struct strategy *s, int source, struct err *err)
{
    struct power *w = powersgd_of(s);
    int rc = 0;

    (void)source;
    powersgd_drop(w);
    w->size = coll_size(exchange_coll(s->at.exchange));
    w->part = xcalloc((size_t)s->at.layout->n_params + 1, sizeof *w->part);
    for (int b = 0; b < s->at.layout->n_buckets && w->size > 1 && rc == 0; b++) {
        place_parts(w, b);
        rc = powersgd_make_memory(w, &w->bucket[b], err);
        for (int i = w->bucket[b].first; i < w->bucket[b].end && rc == 0; i++)
            rc = powersgd_make_part(w, &w->bucket[b], &w->part[i], err);
    }
    return rc < 0 ? rc : powersgd_bind_all(w, err);
}

static void powersgd_free(struct strategy *s)
{
    powersgd_drop(powersgd_of(s));
    free(powersgd_of(s)->bucket);
    free(powersgd_of(s));
}

static int powersgd_new(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct power *w = xcalloc(1, sizeof *w);

    (void)err;
    w->base.at = *site;
    w->r = ((const struct compress_options *)site->options)->rank;
    w->bucket = xcalloc((size_t)site->layout->n_buckets, sizeof *w->bucket);
    *out = &w->base;
    return 0;
}

/* ---- a step ---- */

/* Run one program (PROJECT, REPROJECT ...) of each matrix in bucket b. */
static int powersgd_run(struct power *w, int b, int program, struct err *err)
{
    int rc = 0;

    for (int i = w->bucket[b].first; i < w->bucket[b].end && rc == 0; i++)
        rc = sketch_run(w->part[i].program[program], err);
    return rc;
}

/* Copy the gradients that are not compressed to the bucket's array P, or back from there. */
static int copy_plain(struct power *w, int b, int is_back, struct err *err)
{
    int rc = 0;

    for (int i = w->bucket[b].first; i < w->bucket[b].end && rc == 0; i++) {
        const struct part *k = &w->part[i];
        float *packed = w->bucket[b].p + k->p_at, *grad = powersgd_grad_of(w, k);

        if (k->rows == 0)
            rc = backend_copy(w->base.at.backend, is_back ? grad : packed, is_back ? packed : grad,
                              sizeof *grad * (size_t)k->n, err);
    }
    return rc;
}

static int powersgd_project(struct strategy *s, int bucket, struct err *err)
{
    struct power *w = powersgd_of(s);
    const struct power_bucket *b = &w->bucket[bucket];

    if (b->n_p > 0 &&
        (powersgd_run(w, bucket, PROJECT, err) < 0 || copy_plain(w, bucket, 0, err) < 0 ||
         exchange_allreduce(s->at.exchange, bucket, b->p, b->n_p, DTYPE_F32, err) < 0))
        return err->code;
    return compress_sum_control(s, bucket, err);
}

static int powersgd_reproject(struct strategy *s, int b, struct err *err)
{
    struct power *w = powersgd_of(s);

    if (exchange_wait(s->at.exchange, b, err) < 0 || powersgd_run(w, b, REPROJECT, err) < 0)
        return err->code;
    return w->bucket[b].n_q == 0 ? 0
                                 : exchange_allreduce(s->at.exchange, b, w->bucket[b].q,
                                                      w->bucket[b].n_q, DTYPE_F32, err);
}

static int powersgd_restore(struct strategy *s, struct err *err)
{
    struct power *w = powersgd_of(s);
    const int n = s->at.layout->n_buckets;
    int rc = 0;

    for (int b = 0; b < n && rc == 0; b++)
        rc = powersgd_reproject(s, b, err);
    for (int b = 0; b < n && rc == 0; b++) {
        rc = exchange_wait(s->at.exchange, b, err);
        if (rc == 0)
            rc = powersgd_run(w, b, RESTORE, err);
        if (rc == 0)
            rc = copy_plain(w, b, 1, err);
    }
    return rc;
}

static int powersgd_commit(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++)
        rc = powersgd_run(powersgd_of(s), b, COMMIT, err);
    return rc;
}

static const struct slot_def *const slots[] = {&compress_error};

const struct strategy_ops compress_powersgd = {
    .group.name = "allreduce",
    .wants_float32 = 1,
    .promises = COMPRESS_PROMISES,
    .slot = slots,
    .n_slots = 1,
    .new = powersgd_new,
    .form = powersgd_form,
    .bucket_ready = powersgd_project,
    .before_update = powersgd_restore,
    .after_update = powersgd_commit,
    .free = powersgd_free,
};
