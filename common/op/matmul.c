/* matmul - products of matrices, many at once.
 *
 * matmul  a [..,M,K], b [..,K,N] -> y [..,M,N] = a b
 *   attr.matmul.transpose_a: a is [..,K,M];  transpose_b: b is [..,N,K].  The dimensions before the
 *   last two are broadcast as PyTorch does it: aligned at the last one; an extent of 1, or a
 * missing one, is repeated. */
#include "op/compose.h"
#include "op/infer.h"

/* Rows and columns of the matrices of x after attr's transposition. */
static int64_t matmul_rows_of(const struct shape *x, int transposed)
{
    return x->dim[x->n - (transposed ? 1 : 2)];
}

static int64_t cols_of(const struct shape *x, int transposed)
{
    return x->dim[x->n - (transposed ? 2 : 1)];
}

static int matmul_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    const struct shape *a, *b;
    char text[2][SHAPE_TEXT_LEN];
    struct shape y;
    int rc = op_want(g, n, MATMUL_A, DTYPE_F32, -1, err), fits, n_batch;

    if (rc < 0 || (rc = op_want(g, n, MATMUL_B, DTYPE_F32, -1, err)) < 0)
        return rc;
    a = op_shape(g, n, MATMUL_A);
    b = op_shape(g, n, MATMUL_B);
    fits = a->n >= 2 && b->n >= 2 &&
           cols_of(a, n->attr.matmul.transpose_a) == matmul_rows_of(b, n->attr.matmul.transpose_b);
    y = a->n > b->n ? *a : *b;
    n_batch = y.n - 2;
    for (int d = 1; fits && d <= n_batch; d++) { /* from the last one */
        const int64_t in_a = d <= a->n - 2 ? a->dim[a->n - 2 - d] : 1;
        const int64_t in_b = d <= b->n - 2 ? b->dim[b->n - 2 - d] : 1;

        fits = in_a == in_b || in_a == 1 || in_b == 1;
        y.dim[n_batch - d] = in_a == 1 ? in_b : in_a;
    }
    if (!fits)
        return op_fail(n, err, "no product of %s%s and %s%s", shape_text(a, text[0]),
                       n->attr.matmul.transpose_a ? " transposed" : "", shape_text(b, text[1]),
                       n->attr.matmul.transpose_b ? " transposed" : "");
    y.dim[y.n - 2] = matmul_rows_of(a, n->attr.matmul.transpose_a);
    y.dim[y.n - 1] = cols_of(b, n->attr.matmul.transpose_b);
    op_out(out, MATMUL_Y, DTYPE_F32, y);
    return 0;
}

static int matmul_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                           const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    struct compose c = {.g = g, .name = op_name(g, n, "grad"), .err = err};
    const int ta = n->attr.matmul.transpose_a, tb = n->attr.matmul.transpose_b;
    const int a = n->in[MATMUL_A], b = n->in[MATMUL_B], dy = dout[MATMUL_Y];
    /* The shapes are copies: new nodes move the graph's values. */
    const struct shape of_a = *op_shape(g, n, MATMUL_A), of_b = *op_shape(g, n, MATMUL_B);

    /* da = dy b^T, db = a^T dy, and the transpose of these for a transposed operand. */
    if (want[MATMUL_A])
        din[MATMUL_A] = compose_sum_to(
            &c, ta ? compose_matmul(&c, b, dy, tb, 1) : compose_matmul(&c, dy, b, 0, !tb), of_a);
    if (want[MATMUL_B])
        din[MATMUL_B] = compose_sum_to(
            &c, tb ? compose_matmul(&c, dy, a, 1, ta) : compose_matmul(&c, a, dy, !ta, 0), of_b);
    return c.rc;
}

const struct op_def op_matmul = {
    .infer = matmul_infer,
    .grad = matmul_backward,
    OP_SIGNATURE(matmul),
    .flags = OP_ROWS,
    .typed_in = 1u << MATMUL_A | 1u << MATMUL_B,
    .typed_out = 1u << MATMUL_Y,
};
