/* compose_product - norms, and products that are named by letters.
 *
 * A product by letters is a permutation and a reshape of each operand, one matmul of
 * [batch,rows,inner] and [batch,inner,cols], and the way back. */
#include <math.h>
#include <string.h>

#include "op/compose.h"

static const struct shape *product_shape(const struct compose *c, int v)
{
    return &c->g->value[v].shape;
}

int compose_norm(struct compose *c, int x, double p, unsigned axes, int keep)
{
    if (c->rc == 0 && p != 1 && p != 2 && !(isinf(p) && p > 0))
        c->rc = err_set(c->err, ERR_UNSUPPORTED, "%s: a norm of order %g, want 1, 2 or infinity",
                        c->name, p);
    if (p != 2) {
        x = compose_constants(c, EW_ABS, x, 0, 0);
        return compose_reduce(c, p == 1 ? REDUCE_SUM : REDUCE_MAX, x, axes, keep);
    }
    x = compose_reduce(c, REDUCE_SUM, compose_constants(c, EW_SQUARE, x, 0, 0), axes, keep);
    return compose_constants(c, EW_ROOT, x, 0, 0);
}

/* The largest element goes out of the exponent, and comes back behind the logarithm.  It has no
 * gradient, since its parts would cancel. */
int compose_logsumexp(struct compose *c, int x, unsigned axes, int keep)
{
    const int zero = compose_scalar(c, 0);
    int most = compose_reduce(c, REDUCE_MAX, x, axes, 1), sum, is_some, y;

    if (c->rc < 0)
        return NO_VALUE;
    sum = compose_elementwise(c, EW_LT, compose_constants(c, EW_ABS, most, 0, 0),
                              compose_scalar(c, INFINITY));
    most = compose_where(c, sum, most, zero);
    if (c->rc < 0)
        return NO_VALUE;
    c->g->value[most].is_detached = 1;
    y = compose_constants(c, EW_EXP, compose_elementwise(c, EW_SUB, x, most), 0, 0);
    sum = compose_reduce(c, REDUCE_SUM, y, axes, 1);
    is_some = compose_elementwise(c, EW_GT, sum, zero);
    y = compose_constants(c, EW_LOG, compose_where(c, is_some, sum, compose_scalar(c, 1)), 0, 0);
    y = compose_elementwise(c, EW_ADD, y, most);
    y = compose_where(c, is_some, y, compose_scalar(c, -INFINITY));
    return keep ? y : compose_reduce(c, REDUCE_SUM, y, axes, 0);
}

int compose_rms_norm(struct compose *c, int x, int weight, double eps, int one_plus)
{
    const union node_attr attr = {.norm = {.eps = (float)eps, .one_plus = one_plus}};

    return compose_append(c, OP_rms_norm, &attr, (int[]){x, weight}, 2);
}

/* ---- einsum ---- */

enum { LETTERS = 128 };

struct letters {
    char letter[SHAPE_MAX_DIMS + 1];
    int n;
};

struct einsum {
    struct letters in[2], out;
    int64_t extent[LETTERS]; /* of each letter; -1: none has it */
};

static int einsum_has(const struct letters *l, char letter)
{
    return memchr(l->letter, letter, (size_t)l->n) != NULL;
}

static int einsum_fail(struct compose *c, const char *text)
{
    if (c->rc == 0)
        c->rc =
            err_set(c->err, ERR_UNSUPPORTED,
                    "%s: einsum \"%s\", want two operands with different letters each, '->' and "
                    "a result of their letters, as in \"bij,bjk->bik\"",
                    c->name, text);
    return c->rc;
}

/* Cut the text into the letters of the operands and of the result. */
static int einsum_read(struct compose *c, const char *text, struct einsum *e)
{
    struct letters *to = &e->in[0];
    int n_arrows = 0;

    *e = (struct einsum){0};
    for (const char *t = text; *t; t++) {
        if (*t == ' ')
            continue;
        if (*t == ',' && to == &e->in[0]) {
            to = &e->in[1];
        } else if (*t == '-' && t[1] == '>' && to == &e->in[1]) {
            to = &e->out;
            n_arrows++;
            t++;
        } else if (((*t >= 'a' && *t <= 'z') || (*t >= 'A' && *t <= 'Z')) &&
                   to->n < SHAPE_MAX_DIMS && !einsum_has(to, *t)) {
            to->letter[to->n++] = *t;
        } else {
            return einsum_fail(c, text);
        }
    }
    return n_arrows == 1 ? 0 : einsum_fail(c, text);
}

static int einsum_measure(struct compose *c, const char *text, struct einsum *e, const int x[2])
{
    for (int i = 0; i < LETTERS; i++)
        e->extent[i] = -1;
    for (int k = 0; k < 2; k++) {
        const struct shape *s = product_shape(c, x[k]);

        if (s->n != e->in[k].n)
            return einsum_fail(c, text);
        for (int d = 0; d < s->n; d++) {
            int64_t *extent = &e->extent[(int)e->in[k].letter[d]];

            if (*extent >= 0 && *extent != s->dim[d])
                return einsum_fail(c, text);
            *extent = s->dim[d];
        }
    }
    for (int d = 0; d < e->out.n; d++)
        if (e->extent[(int)e->out.letter[d]] < 0)
            return einsum_fail(c, text);
    return 0;
}

/* Sum what operand k alone has, and the result has not. */
static int einsum_sum_alone(struct compose *c, struct einsum *e, int k, int x)
{
    struct letters left = {0};
    unsigned axes = 0;

    for (int d = 0; d < e->in[k].n; d++)
        if (einsum_has(&e->in[1 - k], e->in[k].letter[d]) ||
            einsum_has(&e->out, e->in[k].letter[d]))
            left.letter[left.n++] = e->in[k].letter[d];
        else
            axes |= 1u << d;
    e->in[k] = left;
    return axes ? compose_reduce(c, REDUCE_SUM, x, axes, 0) : x;
}

/* The letters of operand k that are in the other one (`shared`) and in the result (`kept`), or not;
 * added to *order.  Returns the product of their extents. */
static int64_t einsum_take(const struct einsum *e, int k, int shared, int kept,
                           struct letters *order)
{
    int64_t n = 1;

    for (int d = 0; d < e->in[0].n + e->in[1].n; d++) {
        /* what both have comes in the order of the first operand */
        const struct letters *from = shared ? &e->in[0] : &e->in[k];
        const char letter = d < from->n ? from->letter[d] : 0;

        if (!letter || !einsum_has(&e->in[k], letter) ||
            einsum_has(&e->in[1 - k], letter) != shared || einsum_has(&e->out, letter) != kept)
            continue;
        order->letter[order->n++] = letter;
        n *= e->extent[(int)letter];
    }
    return n;
}

/* x with dimensions `from` in the order of `to`. */
static int einsum_permute(struct compose *c, int x, const struct letters *from,
                          const struct letters *to)
{
    int order[SHAPE_MAX_DIMS] = {0}, moves = 0;

    for (int d = 0; d < to->n; d++) {
        order[d] = (int)((const char *)memchr(from->letter, to->letter[d], (size_t)from->n) -
                         from->letter);
        moves |= order[d] != d;
    }
    return moves ? compose_permute(c, x, order) : x;
}

int compose_einsum(struct compose *c, const char *text, int a, int b)
{
    struct letters first = {0}, second = {0}, result = {0};
    int64_t batch, inner, rows, cols;
    struct shape s = {0};
    struct einsum e;
    int y;

    if (c->rc < 0 || einsum_read(c, text, &e) < 0 ||
        einsum_measure(c, text, &e, (const int[]){a, b}) < 0)
        return NO_VALUE;
    a = einsum_sum_alone(c, &e, 0, a);
    b = einsum_sum_alone(c, &e, 1, b);
    batch = einsum_take(&e, 0, 1, 1, &first);
    rows = einsum_take(&e, 0, 0, 1, &first);
    result = first;
    inner = einsum_take(&e, 0, 1, 0, &first);
    einsum_take(&e, 1, 1, 1, &second);
    einsum_take(&e, 1, 1, 0, &second);
    cols = einsum_take(&e, 1, 0, 1, &second);
    einsum_take(&e, 1, 0, 1, &result);
    a = compose_reshape(c, einsum_permute(c, a, &e.in[0], &first), SHAPE(batch, rows, inner));
    b = compose_reshape(c, einsum_permute(c, b, &e.in[1], &second), SHAPE(batch, inner, cols));
    y = compose_matmul(c, a, b, 0, 0);
    for (int d = 0; d < result.n; d++)
        s.dim[s.n++] = e.extent[(int)result.letter[d]];
    return einsum_permute(c, compose_reshape(c, y, s), &result, &e.out);
}
