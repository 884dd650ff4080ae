/* compose_attention - attention from separate q, k and v, and what draws random numbers.
 *
 * Without a mask, and with T = S and D = E, attention is one OP_attention, of which no T x S matrix
 * is kept, unless dropout meets several windows of one sample.  Otherwise it is made of products, a
 * softmax and a dropout, in which the same elements are dropped. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "op/compose.h"

static const struct shape *attend_shape(const struct compose *c, int v)
{
    return &c->g->value[v].shape;
}

int compose_dropout(struct compose *c, int x, double p, int64_t tag, int64_t rows, int whole)
{
    const union node_attr attr = {
        .dropout = {.p = (float)p, .tag = tag, .rows = rows, .whole = whole}};

    if (c->rc < 0 || p == 0 || !c->g->training)
        return c->rc < 0 ? NO_VALUE : x;
    if (p >= 1)
        return compose_constants(c, EW_AFFINE, x, 0, 0);
    return compose_append(c, OP_dropout, &attr, (int[]){x, c->g->scalars}, 2);
}

int compose_uniform(struct compose *c, struct shape shape, int64_t tag)
{
    const union node_attr attr = {.uniform = {.shape = shape, .tag = tag}};

    return compose_append(c, OP_uniform, &attr, &c->g->scalars, 1);
}

int compose_bernoulli(struct compose *c, struct shape shape, double p, int64_t tag)
{
    return compose_elementwise(c, EW_LT, compose_uniform(c, shape, tag), compose_scalar(c, p));
}

/* The value that a node of this operator made v from; NO_VALUE if v was made otherwise. */
static int attend_before(const struct compose *c, int v, enum op op)
{
    const int k = v == NO_VALUE || c->g->value[v].is_detached ? -1 : c->g->value[v].producer;

    return k >= 0 && c->g->node[k].op == (int)op ? c->g->node[k].in[0] : NO_VALUE;
}

/* 1: the slice is the part of a matrix [..,3*width], or of [..,3,width], which lies alike. */
static int attend_is_part(const union node_attr *a, const struct shape *whole, int part,
                          int64_t width)
{
    const int last = whole->n - 1;
    const int64_t unit = a->slice.dim == last ? width : 1;

    if (a->slice.dim == last
            ? whole->dim[last] != 3 * width
            : a->slice.dim != last - 1 || whole->dim[last - 1] != 3 || whole->dim[last] != width)
        return 0;
    return a->slice.step == 1 && a->slice.start == part * unit &&
           a->slice.stop == (part + 1) * unit;
}

/* v [N,H,T,D] is a permuted view of the columns [part * H*D, (part + 1) * H*D) of a matrix with
 * 3*H*D columns: that matrix; else NO_VALUE. */
static int attend_matrix_of(const struct compose *c, int v, int part)
{
    const struct shape *s = attend_shape(c, v), *view, *whole;
    const int rows = attend_before(c, v, OP_permute), cut = attend_before(c, rows, OP_reshape);
    const int matrix = attend_before(c, cut, OP_slice);
    const int64_t width = s->dim[1] * s->dim[3];
    const union node_attr *a;

    if (matrix == NO_VALUE)
        return NO_VALUE;
    view = attend_shape(c, rows);
    whole = attend_shape(c, matrix);
    a = &c->g->node[c->g->value[cut].producer].attr;
    if (!shape_equal(view, &SHAPE(s->dim[0], s->dim[2], s->dim[1], s->dim[3])) ||
        c->g->node[c->g->value[v].producer].attr.permute.order[1] != 2 ||
        !attend_is_part(a, whole, part, width))
        return NO_VALUE;
    return matrix;
}

/* x [N,H,T,D] as rows [N*T,H*D]. */
static int attend_rows(struct compose *c, int x)
{
    const struct shape s = *attend_shape(c, x);
    const int y = compose_transpose(c, x, 1, 2);

    return compose_reshape(c, y, SHAPE(s.dim[0] * s.dim[2], s.dim[1] * s.dim[3]));
}

/* k or v [N,G,S,D] with every head as often as it is read: [N,H,S,D]. */
static int attend_repeat(struct compose *c, int x, int64_t heads)
{
    const struct shape s = *attend_shape(c, x);
    const int64_t times = heads / s.dim[1];

    if (times == 1)
        return x;
    x = compose_reshape(c, x, SHAPE(s.dim[0], s.dim[1], 1, s.dim[2], s.dim[3]));
    x = compose_expand(c, x, SHAPE(s.dim[0], s.dim[1], times, s.dim[2], s.dim[3]));
    return compose_reshape(c, x, SHAPE(s.dim[0], heads, s.dim[2], s.dim[3]));
}

/* The matrix [N*T,3*C] of q, k and v; `stretch` is the factor of q. */
static int attend_packed(struct compose *c, const struct compose_attention *a, double stretch)
{
    const struct shape s = *attend_shape(c, a->q);
    const int64_t rows = s.dim[0] * s.dim[2], width = s.dim[1] * s.dim[3];
    const int matrix = attend_matrix_of(c, a->q, 0);
    int q = a->q;

    if (matrix != NO_VALUE && stretch == 1 && attend_matrix_of(c, a->k, 1) == matrix &&
        attend_matrix_of(c, a->v, 2) == matrix)
        return compose_reshape(c, matrix, SHAPE(rows, 3 * width));
    if (stretch != 1)
        q = compose_constants(c, EW_AFFINE, q, (float)stretch, 0);
    q = attend_rows(c, q);
    return compose_concat(c,
                          (int[]){q, attend_rows(c, attend_repeat(c, a->k, s.dim[1])),
                                  attend_rows(c, attend_repeat(c, a->v, s.dim[1]))},
                          3, 1);
}

static int attend_whole(struct compose *c, const struct compose_attention *a, double scale,
                        double p)
{
    const struct shape s = *attend_shape(c, a->q);
    const double usual = 1 / sqrt((double)s.dim[3]);
    const union node_attr attr = {.attention = {.length = s.dim[2],
                                                .heads = s.dim[1],
                                                .causal = a->causal,
                                                .window = a->window,
                                                .p = (float)p,
                                                .tag = a->tag}};
    const double stretch = fabs(scale / usual - 1) < 1e-6 ? 1 : scale / usual;
    const int in[] = {[ATTENTION_QKV] = attend_packed(c, a, stretch),
                      [ATTENTION_SCALARS] = p > 0 ? c->g->scalars : NO_VALUE,
                      [ATTENTION_STARTS] = a->starts};
    int y = compose_append(c, OP_attention, &attr, in, 3);

    y = compose_reshape(c, y, SHAPE(s.dim[0], s.dim[2], s.dim[1], s.dim[3]));
    return compose_transpose(c, y, 1, 2);
}

/* 0 where row i sees column j <= i, else -infinity. */
static int attend_causal_mask(struct compose *c, int64_t rows, int64_t cols)
{
    float *mask;
    int v;

    if (!compose_has_room(c, rows, cols))
        return NO_VALUE;
    mask = xmalloc((size_t)(rows * cols) * sizeof *mask + 1);

    for (int64_t i = 0; i < rows * cols; i++)
        mask[i] = i % cols <= i / cols ? 0.0f : -INFINITY;
    v = compose_const(c, SHAPE(rows, cols), mask);
    free(mask);
    return v;
}

/* The scores [N,H,T,S] behind the masks. */
static int attend_masked(struct compose *c, const struct compose_attention *a, int scores)
{
    const struct shape s = *attend_shape(c, scores);

    if (a->mask != NO_VALUE && a->is_bool)
        scores = compose_where(c, a->mask, scores, compose_scalar(c, -INFINITY));
    else if (a->mask != NO_VALUE)
        scores = compose_elementwise(c, EW_ADD, scores, a->mask);
    if (a->causal)
        scores = compose_elementwise(c, EW_ADD, scores, attend_causal_mask(c, s.dim[2], s.dim[3]));
    if (c->rc == 0 && !shape_equal(attend_shape(c, scores), &s))
        c->rc = err_set(c->err, ERR_CONFIG, "%s (attention): the mask is wider than the scores",
                        c->name);
    return scores;
}

/* Heads of q that read one head of k and v are a dimension of their own: [N,G,H/G,T,D] and
 * [N,G,1,S,D]. */
static int attend_parts(struct compose *c, const struct compose_attention *a, double scale,
                        double p)
{
    const struct shape q = *attend_shape(c, a->q), k = *attend_shape(c, a->k),
                       v = *attend_shape(c, a->v);
    const int64_t N = q.dim[0], H = q.dim[1], T = q.dim[2], G = k.dim[1], S = k.dim[2];
    const union node_attr attr = {.softmax = {.dim = 3, .safe = 1}};
    int y = compose_constants(c, EW_AFFINE, a->q, (float)scale, 0);

    y = compose_reshape(c, y, SHAPE(N, G, H / G, T, q.dim[3]));
    y = compose_matmul(c, y, compose_reshape(c, a->k, SHAPE(N, G, 1, S, q.dim[3])), 0, 1);
    y = attend_masked(c, a, compose_reshape(c, y, SHAPE(N, H, T, S)));
    y = compose_append(c, OP_softmax, &attr, &y, 1);
    y = compose_dropout(c, y, p, a->tag, a->rows, 0);
    y = compose_reshape(c, y, SHAPE(N, G, H / G, T, S));
    y = compose_matmul(c, y, compose_reshape(c, a->v, SHAPE(N, G, 1, S, v.dim[3])), 0, 0);
    return compose_reshape(c, y, SHAPE(N, H, T, v.dim[3]));
}

int compose_attention(struct compose *c, const struct compose_attention *a)
{
    const struct shape *q, *k, *v;
    char text[3][SHAPE_TEXT_LEN];
    double scale, p;

    if (c->rc < 0)
        return NO_VALUE;
    q = attend_shape(c, a->q);
    k = attend_shape(c, a->k);
    v = attend_shape(c, a->v);
    if (q->n != 4 || k->n != 4 || v->n != 4 || k->dim[0] != q->dim[0] || v->dim[0] != q->dim[0] ||
        k->dim[1] < 1 || q->dim[1] % k->dim[1] || v->dim[1] != k->dim[1] ||
        v->dim[2] != k->dim[2] || k->dim[3] != q->dim[3]) {
        c->rc = err_set(c->err, ERR_CONFIG,
                        "%s (attention): q %s, k %s and v %s do not fit, want [N,H,T,D], [N,G,S,D] "
                        "and [N,G,S,E] with H a multiple of G",
                        c->name, shape_text(q, text[0]), shape_text(k, text[1]),
                        shape_text(v, text[2]));
        return NO_VALUE;
    }
    scale = a->scale != 0 ? a->scale : 1 / sqrt((double)q->dim[3]);
    p = c->g->training ? a->p : 0;
    if (a->mask == NO_VALUE && p < 1 && (p == 0 || a->rows <= 1) && k->dim[2] == q->dim[2] &&
        v->dim[3] == q->dim[3])
        return attend_whole(c, a, scale, p);
    if (a->starts != NO_VALUE || a->window > 0) {
        c->rc = err_set(c->err, ERR_UNSUPPORTED,
                        "%s (attention): it cannot keep packed documents apart: it has a mask, or "
                        "q %s, k %s and v %s of different lengths or widths",
                        c->name, shape_text(q, text[0]), shape_text(k, text[1]),
                        shape_text(v, text[2]));
        return NO_VALUE;
    }
    return attend_parts(c, a, scale, p);
}
