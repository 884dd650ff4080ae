/* builders_linear - products of matrices: linear layers, addmm and matmul.
 * Rows that a permute put in another order are multiplied before it, where that saves the copy. */
#include <string.h>

#include "base/util.h"
#include "import/lower_impl.h"

/* ---- linear layers ---- */

/* Rows in another order: a permute of dimensions before that of the features. */
struct turned_rows {
    int value;                 /* before the permute; NO_VALUE: there is none */
    int n;                     /* dimensions that the permute moves: the first ones */
    int order[SHAPE_MAX_DIMS]; /* of these n, and of one more */
    int64_t rows;              /* in each element of these n */
};

/* How x, whose last dimension has `width` features, was made. */
static struct turned_rows builders_turned_rows(const struct lower *l, int x, int64_t width)
{
    const struct graph *g = l->m->g;
    struct turned_rows r = {.value = NO_VALUE};
    int64_t inner = 1;
    const struct node *n = NULL;

    for (int v = x; g->value[v].producer >= 0 && !g->value[v].is_detached; v = n->in[0]) {
        n = &g->node[g->value[v].producer];
        if (n->op != OP_reshape)
            break;
    }
    if (!n || n->op != OP_permute || g->value[n->out[PERMUTE_Y]].is_detached)
        return r;
    r.n = g->value[n->in[PERMUTE_X]].shape.n;
    while (r.n > 0 && n->attr.permute.order[r.n - 1] == r.n - 1)
        inner *= g->value[n->in[PERMUTE_X]].shape.dim[--r.n];
    memcpy(r.order, n->attr.permute.order, (size_t)r.n * sizeof *r.order);
    r.order[r.n] = r.n;
    if (inner > 0 && inner % width == 0)
        r.value = n->in[PERMUTE_X];
    r.rows = inner / width;
    return r;
}

/* The rows of a layer's output in the order of those before r.value was permuted, as `shape`. */
static int builders_turn_rows(struct lower *l, const struct turned_rows *r, int rows,
                              struct shape shape)
{
    struct shape s;

    if (r->value == NO_VALUE || lower_failed(l))
        return compose_reshape(&l->c, rows, shape);
    s = l->m->g->value[r->value].shape;
    s.n = r->n + 1;
    s.dim[r->n] = r->rows * shape.dim[shape.n - 1];
    rows = compose_permute(&l->c, compose_reshape(&l->c, rows, s), r->order);
    return compose_reshape(&l->c, rows, shape);
}

/* x w^T + b, for rows of features; b may be NO_VALUE. */
static int builders_rows_of(struct lower *l, int x, int w, int b, int transposed)
{
    const union node_attr attr = {.linear.transposed = transposed};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NO_OUT, NODE_NO_OUT};

    if (lower_failed(l))
        return NO_VALUE;
    l->c.rc = graph_node(l->m->g, OP_linear, &attr, (int[]){x, w}, 2, out, l->c.name, l->c.err);
    if (lower_failed(l) || b == NO_VALUE)
        return out[0];
    x = out[0];
    out[0] = NODE_NEW_OUT;
    l->c.rc = graph_node(l->m->g, OP_bias, NULL, (int[]){x, b}, 2, out, l->c.name, l->c.err);
    return out[0];
}

/* y = x w^T + b over the last dimension; transposed: w is [in,out]. */
static struct lowered builders_linear_of(struct lower *l, struct lowered x, struct lowered w,
                                         struct lowered b, int transposed)
{
    struct turned_rows turned;
    struct shape s;
    int64_t width;
    int rows;

    lower_refuse_batch(l, &x, 1u << (x.n - 1), "sums over");
    lower_refuse_batch(l, &w, ~0u, "has weights with");
    x = lower_last(l, x, x.n - 1);
    w = lower_plain(l, w);
    if (b.kind != LOWERED_NONE)
        b = lower_plain(l, b);
    if (lower_failed(l))
        return x;
    s = l->m->g->value[x.value].shape;
    width = s.dim[s.n - 1];
    turned = builders_turned_rows(l, x.value, width);
    rows = compose_reshape(&l->c, turned.value == NO_VALUE ? x.value : turned.value,
                           SHAPE(shape_elements(&s) / max_i64(width, 1), width));
    rows =
        builders_rows_of(l, rows, w.value, b.kind == LOWERED_NONE ? NO_VALUE : b.value, transposed);
    if (lower_failed(l))
        return x;
    s.dim[s.n - 1] = l->m->g->value[rows].shape.dim[1];
    x.dim[x.n - 1] = extent_of(s.dim[s.n - 1]);
    return lower_unturned(l, lower_with(x, builders_turn_rows(l, &turned, rows, s)));
}

static void builders_linear(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "input", 0), w = lower_in(l, "weight", 1),
                   b = lower_in(l, "bias", 2);

    (void)kind;
    if (!lower_failed(l) && (x.n < 1 || w.n != 2))
        lower_fail(l, ERR_UNSUPPORTED, "its weight has %d dimensions, want 2", w.n);
    if (!lower_failed(l))
        lower_set(l, 0, builders_linear_of(l, x, w, b, 0));
}

/* 1: w is a matrix in the order of its dimensions, or turned; *transposed says as linear's w. */
static int builders_is_matrix(const struct lowered *w, int *transposed)
{
    *transposed = w->at[0] == 0;
    return w->kind == LOWERED_VALUE && w->n == 2 && !w->repeats && !w->dim[0].is_batch &&
           !w->dim[1].is_batch;
}

/* x w with w [in,out] as PyTorch has it. */
static struct lowered product_of(struct lower *l, struct lowered x, struct lowered w,
                                 struct lowered b)
{
    int transposed;

    if (builders_is_matrix(&w, &transposed) && !transposed) {
        w.at[0] = 0; /* the graph value is [out,in], which linear takes as it is */
        w.at[1] = 1;
    }
    return builders_linear_of(l, x, w, b, transposed);
}

/* The matrices of x: its last two dimensions last in the graph value, in either order; the others
 * in their own. */
static struct lowered matrices_of(struct lower *l, struct lowered x, int *transposed)
{
    int at[SHAPE_MAX_DIMS];

    x = lower_real_value(l, x);
    if (lower_failed(l))
        return x;
    *transposed = x.at[x.n - 1] < x.at[x.n - 2];
    for (int d = 0; d < x.n; d++)
        at[d] = d;
    if (*transposed) {
        at[x.n - 1] = x.n - 2;
        at[x.n - 2] = x.n - 1;
    }
    x = lower_arrange(l, x, at);
    if (x.repeats >> (x.n - 2))
        x = lower_spread(l, x);
    return x;
}

static struct lowered matmul_of(struct lower *l, struct lowered a, struct lowered b)
{
    int turn_a = 0, turn_b = 0;
    struct lowered y = {0};

    lower_refuse_batch(l, &a, 1u << (a.n - 1), "sums over");
    lower_refuse_batch(l, &b, 1u << (b.n - 2), "sums over");
    a = lower_rank(l, a, b.n);
    b = lower_rank(l, b, a.n);
    a = matrices_of(l, a, &turn_a);
    b = matrices_of(l, b, &turn_b);
    if (lower_failed(l))
        return a;
    y = a;
    for (int d = 0; d < a.n; d++) {
        const int thin = d < a.n - 2 && ((a.repeats >> d & 1) || extent_is_one(a.dim[d]));

        if (thin && !(extent_is_one(b.dim[d]) && (a.repeats >> d & 1)))
            y.dim[d] = b.dim[d];
        y.at[d] = d;
    }
    y.repeats = a.repeats & b.repeats;
    y.dim[a.n - 1] = b.dim[a.n - 1];
    return lower_with(y, compose_matmul(&l->c, a.value, b.value, turn_a, turn_b));
}

/* y = beta self + alpha x w, for matrices (addmm) or, with kind 3, for stacks of them (baddbmm). */
static void builders_addmm(struct lower *l, int kind)
{
    const double beta = lower_real(l, "beta", 3, 1), alpha = lower_real(l, "alpha", 4, 1);
    struct lowered b = lower_in(l, "self", 0), x = lower_in(l, kind == 3 ? "batch1" : "mat1", 1),
                   w = lower_in(l, kind == 3 ? "batch2" : "mat2", 2);
    int transposed;

    if (!lower_have_ranks(l, &x, kind, &w, kind))
        return;
    if (b.n == 1 && alpha == 1 && beta == 1 && builders_is_matrix(&w, &transposed)) {
        lower_set(l, 0, product_of(l, x, w, b));
        return;
    }
    x = builders_is_matrix(&w, &transposed) ? product_of(l, x, w, (struct lowered){0})
                                            : matmul_of(l, x, w);
    if (alpha != 1 && !lower_failed(l))
        x = lower_with(x, compose_constants(&l->c, EW_AFFINE, x.value, (float)alpha, 0));
    if (beta != 1)
        b = lower_real_value(l, b);
    if (beta != 1 && !lower_failed(l))
        b = lower_with(b, compose_constants(&l->c, EW_AFFINE, b.value, (float)beta, 0));
    if (!lower_failed(l)) /* with a beta of 0 PyTorch does not read it */
        lower_set(l, 0, beta == 0 ? x : lower_binary(l, EW_ADD, x, b));
}

enum { MATMUL_ANY, MATMUL_MATRICES, MATMUL_VECTOR, MATMUL_DOT };

/* matmul, and products of matrices (mm, bmm), of a matrix and a vector, and of two vectors. */
static void builders_matmul(struct lower *l, int kind)
{
    static const char *const other[] = {"other", "mat2", "vec", "tensor"};
    struct lowered a = lower_in(l, "self", 0), b = lower_in(l, other[kind], 1);
    const int is_row = a.n == 1, is_column = b.n == 1;
    const int rank = kind == MATMUL_ANY                        ? 0
                     : kind == MATMUL_DOT                      ? 1
                     : !strcmp(l->node->target, "bmm.default") ? 3
                                                               : 2;
    struct lowered y;
    int transposed;

    if (!lower_have_ranks(l, &a, rank, &b, kind == MATMUL_VECTOR ? 1 : rank))
        return;
    b = lower_real_value(l, b);
    if (!lower_failed(l) && a.n >= 2 && builders_is_matrix(&b, &transposed)) {
        lower_set(l, 0, product_of(l, a, b, (struct lowered){0}));
        return;
    }
    if (is_row)
        a = lower_unsqueeze(l, a, 0);
    if (is_column)
        b = lower_unsqueeze(l, b, 1);
    if (lower_failed(l))
        return;
    y = matmul_of(l, a, b);
    if (is_row || is_column)
        y = lower_squeeze(l, y, (is_row ? 1u << (y.n - 2) : 0) | (is_column ? 1u << (y.n - 1) : 0));
    lower_set(l, 0, y);
}

const struct import_builder import_linear[] = {
    {"linear.default", builders_linear, 0},
    {"addmm.default", builders_addmm, 2},
    {"baddbmm.default", builders_addmm, 3},
    {"matmul.default", builders_matmul, MATMUL_ANY},
    {"mm.default", builders_matmul, MATMUL_MATRICES},
    {"bmm.default", builders_matmul, MATMUL_MATRICES},
    {"mv.default", builders_matmul, MATMUL_VECTOR},
    {"dot.default", builders_matmul, MATMUL_DOT},
    {0},
};
