/* builders_layers - the layers with parameters but for norms, and pools: convolutions, linear
 * layers, embeddings. */
#include <string.h>

#include "base/util.h"
#include "import/lower_impl.h"

/* ---- convolutions and pools ---- */

static void window_of(struct lower *l, int stride_at, int pad_at, struct compose_window *w)
{
    int pad[2];

    lower_pair(l, "stride", stride_at, 1, w->stride);
    lower_pair(l, "padding", pad_at, 0, pad);
    for (int i = 0; i < 2; i++)
        w->pad[i][0] = w->pad[i][1] = pad[i];
}

/* padding "same" or "valid": the odd element of "same" stands behind. */
static void pad_by_name(struct lower *l, const struct shape *w, struct compose_window *win)
{
    const struct import_arg *a = lower_arg(l, "padding", 4);
    const int is_same = a && a->text && !strcmp(a->text, "same");

    if (!is_same && a && a->text && strcmp(a->text, "valid") != 0)
        lower_fail(l, ERR_UNSUPPORTED, "padding is \"%s\", want same or valid", a->text);
    for (int i = 0; i < 2; i++) {
        const int64_t sum = is_same ? win->dilation[i] * (w->dim[2 + i] - 1) : 0;

        win->pad[i][0] = sum / 2;
        win->pad[i][1] = sum - sum / 2;
    }
}

/* 1: x is [N,C,H,W], and samples differ in N alone. */
static int layers_is_image(struct lower *l, const struct lowered *x)
{
    if (x->n != 4)
        lower_fail(l, ERR_UNSUPPORTED, "its input has %d dimensions, want images [N,C,H,W]", x->n);
    lower_refuse_batch(l, x, 0xe, "combines");
    return !lower_failed(l);
}

/* kind 1: padding is a word. */
static void builders_conv2d(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "input", 0), w = lower_in(l, "weight", 1),
                   b = lower_in(l, "bias", 2);
    struct compose_window win = {.groups = (int)lower_int(l, "groups", 6, 1)};
    const struct extent n = x.dim[0];

    if (lower_failed(l))
        return;
    if (!layers_is_image(l, &x))
        return;
    window_of(l, 3, 4, &win);
    lower_pair(l, "dilation", 5, 1, win.dilation);
    lower_refuse_batch(l, &w, ~0u, "has weights with");
    x = lower_channels_last(l, x);
    w = lower_plain(l, w);
    if (kind && !lower_failed(l))
        pad_by_name(l, &l->m->g->value[w.value].shape, &win);
    if (b.kind != LOWERED_NONE)
        b = lower_plain(l, b);
    if (lower_failed(l))
        return;
    lower_set(l, 0,
              lower_image_value(l,
                                compose_conv2d(&l->c, x.value, w.value,
                                               b.kind == LOWERED_NONE ? NO_VALUE : b.value, &win),
                                n));
}

/* Pools take images alone; max_pool2d also has indices, which nobody may read. */
enum { POOL_IS_MAX, POOL_IS_AVG };

static void builders_pool(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0);
    struct compose_window win = {.groups = 1, .dilation = {1, 1}};
    const struct extent n = x.dim[0];
    int pad[2], y;

    if (lower_failed(l))
        return;
    if (!layers_is_image(l, &x))
        return;
    lower_pair(l, "kernel_size", 1, 1, win.kernel);
    memcpy(win.stride, win.kernel, sizeof win.stride);
    if (lower_arg(l, "stride", 2) && lower_arg(l, "stride", 2)->n > 0)
        lower_pair(l, "stride", 2, 1, win.stride);
    lower_pair(l, "padding", 3, 0, pad);
    for (int i = 0; i < 2; i++)
        win.pad[i][0] = win.pad[i][1] = pad[i];
    if (kind == POOL_IS_MAX)
        lower_pair(l, "dilation", 4, 1, win.dilation);
    win.ceil_mode = (int)lower_int(l, "ceil_mode", kind == POOL_IS_MAX ? 5 : 4, 0);
    win.count_pad = (int)lower_int(l, "count_include_pad", 5, 1);
    win.divisor = kind == POOL_IS_AVG ? lower_int(l, "divisor_override", 6, 0) : 0;
    x = lower_channels_last(l, x);
    if (lower_failed(l))
        return;
    y = kind == POOL_IS_MAX ? compose_max_pool(&l->c, x.value, &win)
                            : compose_avg_pool(&l->c, x.value, &win);
    lower_set(l, 0, lower_image_value(l, y, n));
}

/* The operator of decomposed exports, for any number of dimensions. */
static void builders_convolution(struct lower *l, int kind)
{
    if (lower_int(l, "transposed", 6, 0))
        lower_conv_transposed(l, 1);
    else if (lower_in(l, "input", 0).n == 3)
        lower_conv1d(l, kind);
    else
        builders_conv2d(l, kind);
}

static void builders_adaptive_pool(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0);
    const struct extent n = x.dim[0];
    int size[2], y;

    if (lower_failed(l))
        return;
    if (!layers_is_image(l, &x))
        return;
    lower_pair(l, "output_size", 1, 1, size);
    x = lower_channels_last(l, x);
    if (lower_failed(l))
        return;
    y = kind == POOL_IS_AVG ? compose_adaptive_avg_pool(&l->c, x.value, size[0], size[1])
                            : compose_adaptive_max_pool(&l->c, x.value, size[0], size[1]);
    lower_set(l, 0, lower_image_value(l, y, n));
}

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

static void builders_addmm(struct lower *l, int kind)
{
    struct lowered b = lower_in(l, "self", 0), x = lower_in(l, "mat1", 1),
                   w = lower_in(l, "mat2", 2), y;
    int transposed;

    (void)kind;
    if (!lower_have_ranks(l, &x, 2, &w, 2))
        return;
    if (lower_real(l, "beta", 3, 1) != 1 || lower_real(l, "alpha", 4, 1) != 1) {
        lower_fail(l, ERR_UNSUPPORTED, "beta or alpha is not 1");
        return;
    }
    if (b.n == 1 && builders_is_matrix(&w, &transposed)) {
        lower_set(l, 0, product_of(l, x, w, b));
        return;
    }
    lower_refuse_batch(l, &x, 2, "sums over");
    lower_refuse_batch(l, &w, 1, "sums over");
    x = lower_plain(l, x);
    w = lower_plain(l, w);
    if (lower_failed(l))
        return;
    y = x;
    y.dim[1] = w.dim[1];
    lower_set(
        l, 0,
        lower_binary(l, EW_ADD, lower_with(y, compose_matmul(&l->c, x.value, w.value, 0, 0)), b));
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

/* kind 1: mm and bmm. */
static void builders_matmul(struct lower *l, int kind)
{
    struct lowered a = lower_in(l, "self", 0), b = lower_in(l, kind ? "mat2" : "other", 1);
    const int is_row = a.n == 1, is_column = b.n == 1;
    const int rank = !kind ? 0 : !strcmp(l->node->target, "mm.default") ? 2 : 3;
    struct lowered y;
    int transposed;

    if (!lower_have_ranks(l, &a, rank, &b, rank))
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

static void builders_embedding(struct lower *l, int kind)
{
    struct lowered table = lower_plain(l, lower_in(l, "weight", 0)),
                   index = lower_in(l, "indices", 1);
    static const int plain[SHAPE_MAX_DIMS] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct lowered y;

    (void)kind;
    if (lower_failed(l))
        return;
    lower_check_index(l, &index, extent_exported(l, table.dim[0]));
    index = lower_index_value(l, index);
    index = lower_arrange(l, index, plain); /* where it repeats, the rows do */
    if (lower_failed(l))
        return;
    if (index.n + 1 > SHAPE_MAX_DIMS || table.n != 2)
        lower_fail(l, ERR_UNSUPPORTED, "its table has %d dimensions, want 2", table.n);
    if (lower_int(l, "scale_grad_by_freq", 3, 0))
        lower_fail(l, ERR_UNSUPPORTED,
                   "scale_grad_by_freq divides gradients by the counts in a batch, which a rank "
                   "does not know; want an embedding without it");
    if (lower_int(l, "sparse", 4, 0))
        lower_fail(
            l, ERR_UNSUPPORTED,
            "sparse gradients leave rows that a step does not read as they are, momentum and "
            "all; want an embedding with sparse=False");
    lower_refuse_batch(l, &table, ~0u, "has a table with");
    if (lower_failed(l))
        return;
    y = index;
    y.dim[y.n] = table.dim[1];
    y.at[y.n] = y.n;
    y.n++;
    lower_set(l, 0,
              lower_with(y, compose_lookup(&l->c, table.value, index.value,
                                           lower_int(l, "padding_idx", 2, -1))));
}

const struct import_builder import_layers[] = {
    {"conv2d.default", builders_conv2d, 0},
    {"conv2d.padding", builders_conv2d, 1},
    {"convolution.default", builders_convolution, 0},
    {"max_pool2d_with_indices.default", builders_pool, POOL_IS_MAX},
    {"_adaptive_avg_pool2d.default", builders_adaptive_pool, POOL_IS_AVG},
    {"max_pool2d.default", builders_pool, POOL_IS_MAX},
    {"avg_pool2d.default", builders_pool, POOL_IS_AVG},
    {"adaptive_avg_pool2d.default", builders_adaptive_pool, POOL_IS_AVG},
    {"adaptive_max_pool2d.default", builders_adaptive_pool, POOL_IS_MAX},
    {"linear.default", builders_linear, 0},
    {"addmm.default", builders_addmm, 0},
    {"matmul.default", builders_matmul, 0},
    {"mm.default", builders_matmul, 1},
    {"bmm.default", builders_matmul, 1},
    {"embedding.default", builders_embedding, 0},
    {0},
};
