/* attention - multi-head self-attention, as torch.nn.functional.scaled_dot_product_attention for
 * each head.
 *
 * attention       qkv [N*T,3*C], scalars?, starts? I32 [N,T] -> y [N*T,C], lse? F32 [N*T,heads]
 *   A sample has T = attr.attention.length rows.  A row holds q, k and v, C numbers each, and head
 *   h has the D = C/heads of each that begin at h*D.  For each sample n, head h and row i
 *     s[i,j] = sum over d of q[i,d]*k[j,d] / sqrt(D), for the j that row i sees
 *     p[i,j] = softmax of s[i,j] over j;  lse[i,h] = log of the sum over j of e^s[i,j]
 *     y[i,d] = sum over j of m[i,j]*p[i,j]*v[j,d]
 *   A row sees all j < T; if causal, those with first(i) <= j <= i.  first(i) is 0; with starts,
 *   which only causal attention has, it is starts[n,i], or the nearest of 0 .. i: the first row of
 *   the document that row i is of.  With attr.attention.window > 0, which only causal attention
 *   has, it is at least i - window + 1.
 *   m is 1 without dropout.  With attr.attention.p > 0, which needs the scalars, m[i,j] is 0 or
 *   1/(1-p), drawn as in op/dropout.c for the element e = (((scalars.first_position + n)*heads +
 *   h)*T + i)*T + j of the global batch, with attr.attention.tag.  So it does not depend on the
 *   number of ranks.
 *
 * attention_grad  qkv, y, dy, lse, scalars?, starts? -> dqkv [N*T,3*C]
 *   p is computed again from qkv and lse, so that no T x T matrix is kept.  With
 *     dp[i,j] = m[i,j] * sum over d of dy[i,d]*v[j,d]
 *     ds[i,j] = p[i,j] * (dp[i,j] - sum over k of p[i,k]*dp[i,k]) / sqrt(D)
 *   (whose inner sum equals the sum over d of dy[i,d]*y[i,d]: a kernel takes either)
 *   the gradients are dq[i] = sum over j of ds[i,j]*k[j], dk[j] = sum over i of ds[i,j]*q[i] and
 *   dv[j] = sum over i of m[i,j]*p[i,j]*dy[i]. */
#include "op/infer.h"

/* starts: the operand's number. */
static int attention_check_seen(const struct graph *g, const struct node *n, int starts,
                                struct err *err)
{
    if (n->attr.attention.window < 0 ||
        (!n->attr.attention.causal && (op_has(n, starts) || n->attr.attention.window > 0)))
        return op_fail(n, err, "a window of %lld, or starts, want none where it is not causal",
                       (long long)n->attr.attention.window);
    return op_want_starts(g, n, starts, op_shape(g, n, ATTENTION_QKV)->dim[0],
                          n->attr.attention.length, err);
}

static int attention_check_attr(const struct graph *g, const struct node *n, int scalars,
                                struct err *err)
{
    const struct shape *qkv = op_shape(g, n, ATTENTION_QKV);
    const int64_t length = n->attr.attention.length, heads = n->attr.attention.heads;
    const float p = n->attr.attention.p;

    if (length < 1 || qkv->dim[0] % length)
        return op_fail(n, err, "qkv has %lld rows, want a multiple of the %lld of one sample",
                       (long long)qkv->dim[0], (long long)length);
    if (heads < 1 || qkv->dim[1] % (3 * heads))
        return op_fail(n, err, "qkv has %lld columns, want a multiple of 3 * %lld heads",
                       (long long)qkv->dim[1], (long long)heads);
    if (!(p >= 0 && p < 1) || (p > 0) != op_has(n, scalars))
        return op_fail(n, err, "probability %g must be in [0, 1), with scalars if it is not 0",
                       (double)p);
    if (n->attr.attention.tag < 0 || n->attr.attention.tag >= 65536)
        return op_fail(n, err, "tag %lld must be in [0, 65536)", (long long)n->attr.attention.tag);
    return 0;
}

static int attention_infer(const struct graph *g, const struct node *n,
                           struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *qkv;
    int rc;

    if ((rc = op_want(g, n, ATTENTION_QKV, DTYPE_F32, 2, err)) < 0 ||
        (rc = attention_check_attr(g, n, ATTENTION_SCALARS, err)) < 0 ||
        (rc = attention_check_seen(g, n, ATTENTION_STARTS, err)) < 0)
        return rc;
    qkv = op_shape(g, n, ATTENTION_QKV);
    op_out(out, ATTENTION_Y, DTYPE_F32, SHAPE(qkv->dim[0], qkv->dim[1] / 3));
    op_out(out, ATTENTION_LSE, DTYPE_F32, SHAPE(qkv->dim[0], n->attr.attention.heads));
    return 0;
}

static int attention_infer_grad(const struct graph *g, const struct node *n,
                                struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *qkv;
    int rc;

    if ((rc = op_want(g, n, ATTENTION_GRAD_QKV, DTYPE_F32, 2, err)) < 0 ||
        (rc = attention_check_attr(g, n, ATTENTION_GRAD_SCALARS, err)) < 0 ||
        (rc = attention_check_seen(g, n, ATTENTION_GRAD_STARTS, err)) < 0)
        return rc;
    qkv = op_shape(g, n, ATTENTION_GRAD_QKV);
    if ((rc = op_want_shape(g, n, ATTENTION_GRAD_Y, SHAPE(qkv->dim[0], qkv->dim[1] / 3), err)) <
            0 ||
        (rc = op_want_shape(g, n, ATTENTION_GRAD_DY, SHAPE(qkv->dim[0], qkv->dim[1] / 3), err)) <
            0 ||
        (rc = op_want_shape(g, n, ATTENTION_GRAD_LSE, SHAPE(qkv->dim[0], n->attr.attention.heads),
                            err)) < 0)
        return rc;
    op_out(out, ATTENTION_GRAD_DQKV, DTYPE_F32, *qkv);
    return 0;
}

static int attention_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                              const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[ATTENTION_GRAD_QKV] = n->in[ATTENTION_QKV],
                      [ATTENTION_GRAD_Y] = n->out[ATTENTION_Y],
                      [ATTENTION_GRAD_DY] = dout[ATTENTION_Y],
                      [ATTENTION_GRAD_LSE] = n->out[ATTENTION_LSE],
                      [ATTENTION_GRAD_SCALARS] = n->in[ATTENTION_SCALARS],
                      [ATTENTION_GRAD_STARTS] = n->in[ATTENTION_STARTS]};

    (void)want;
    din[ATTENTION_QKV] = op_grad_out(g, n->in[ATTENTION_QKV]);
    return graph_node(g, OP_attention_grad, &n->attr, in, 6, &din[ATTENTION_QKV],
                      op_name(g, n, "grad"), err);
}

const struct op_def op_attention = {
    .infer = attention_infer,
    .grad = attention_backward,
    OP_SIGNATURE(attention),
    .flags = OP_ROWS,
    .typed_in = 1u << ATTENTION_QKV,
    .typed_out = 1u << ATTENTION_Y,
};

const struct op_def op_attention_grad = {
    .infer = attention_infer_grad,
    OP_SIGNATURE(attention_grad),
    .flags = OP_ROWS,
    .typed_in = 1u << ATTENTION_GRAD_QKV | 1u << ATTENTION_GRAD_Y | 1u << ATTENTION_GRAD_DY,
    .typed_out = 1u << ATTENTION_GRAD_DQKV,
};
