/* recurrent - one layer of torch.nn.LSTM, GRU or RNN in one direction, behind the product with its
 * input: the part that goes from step to step.
 *
 * A sample has T = attr.recurrent.length rows, one for each time step.  H is the number of hidden
 * units, and G that of the gates: 4 for an LSTM, 3 for a GRU, 1 for an RNN.
 *
 * recurrent       gx [N*T,G*H], w [G*H,H], b? [G*H], h0? [N,H], c0? [N,H] -> y [N*T,H],
 *                 cell? [N*T,H], saved? [N*T,4*H]
 *   gx is x W_ih^T + b_ih of all steps, w and b are PyTorch's weight_hh and bias_hh.  At each step
 *   h and c are those of the step before, at the first one h0 and c0, or 0 where these are absent.
 *   The steps go from the first row of a sample to the last; with attr.recurrent.reverse from the
 *   last to the first.  With gh = h w^T + b, y is the new h:
 *     RECURRENT_LSTM  i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of the four parts of gx + gh;
 *                     cell = f*c + i*g;  y = o*tanh(cell)
 *     RECURRENT_GRU   r, z = sigmoid of the first two parts of gx + gh;
 *                     n = tanh(gx[2] + r*gh[2]);  y = (1 - z)*n + z*h
 *     RECURRENT_TANH, RECURRENT_RELU  y = tanh or relu of gx + gh
 *   c0 and cell, which are F32, are the LSTM's alone.  saved is for the gradient: i, f, g, o of an
 *   LSTM, and r, z, n, gh[2] of a GRU.
 *
 * recurrent_grad  w, y, cell?, saved?, h0?, c0?, dy?, dcell? -> dgx [N*T,G*H], dgh?, prev? [N*T,H],
 *                 dh0?, dc0? [N,H]
 *   prev is h before each step.  dgh is the gradient of gh where it is not dgx: a GRU's, whose
 *   third part is dgx's times r.  So dgh^T prev is the gradient of w, and the sum of dgh over its
 *   rows that of b: nodes of linear_grad_w. */
#include "op/infer.h"

static int64_t recurrent_gates(const struct node *n)
{
    return n->attr.recurrent.kind == RECURRENT_LSTM  ? 4
           : n->attr.recurrent.kind == RECURRENT_GRU ? 3
                                                     : 1;
}

static int recurrent_is_lstm(const struct node *n)
{
    return n->attr.recurrent.kind == RECURRENT_LSTM;
}

static int recurrent_saves(const struct node *n)
{
    return recurrent_is_lstm(n) || n->attr.recurrent.kind == RECURRENT_GRU;
}

/* Check the attributes and w; rows is the number of time steps of all samples. */
static int recurrent_check(const struct graph *g, const struct node *n, int w, int64_t rows,
                           struct err *err)
{
    const int64_t length = n->attr.recurrent.length;
    const struct shape *s;

    if (length < 1 || rows % length)
        return op_fail(n, err, "%lld rows, want a multiple of the %lld steps of one sample",
                       (long long)rows, (long long)length);
    if (op_want(g, n, w, DTYPE_F32, 2, err) < 0)
        return err->code;
    s = op_shape(g, n, w);
    return op_want_shape(g, n, w, SHAPE(recurrent_gates(n) * s->dim[1], s->dim[1]), err);
}

static int recurrent_infer(const struct graph *g, const struct node *n,
                           struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *gx;
    int64_t H, N;
    int rc = op_want(g, n, RECURRENT_GX, DTYPE_F32, 2, err);

    if (rc < 0)
        return rc;
    gx = op_shape(g, n, RECURRENT_GX);
    rc = recurrent_check(g, n, RECURRENT_W, gx->dim[0], err);
    if (rc < 0)
        return rc;
    H = op_shape(g, n, RECURRENT_W)->dim[1];
    N = gx->dim[0] / n->attr.recurrent.length;
    if ((rc = op_want_shape(g, n, RECURRENT_GX, SHAPE(gx->dim[0], recurrent_gates(n) * H), err)) <
            0 ||
        (rc = op_want_shape(g, n, RECURRENT_B, SHAPE(recurrent_gates(n) * H), err)) < 0 ||
        (rc = op_want_shape(g, n, RECURRENT_H0, SHAPE(N, H), err)) < 0 ||
        (rc = op_want_shape(g, n, RECURRENT_C0, SHAPE(N, H), err)) < 0)
        return rc;
    if (op_has(n, RECURRENT_C0) && !recurrent_is_lstm(n))
        return op_fail(n, err, "c0 is given, but an LSTM alone has cells");
    op_out(out, RECURRENT_Y, DTYPE_F32, SHAPE(gx->dim[0], H));
    if (recurrent_is_lstm(n))
        op_out(out, RECURRENT_CELL, DTYPE_F32, SHAPE(gx->dim[0], H));
    if (recurrent_saves(n))
        op_out(out, RECURRENT_SAVED, DTYPE_F32, SHAPE(gx->dim[0], 4 * H));
    return 0;
}

static int recurrent_want_saved(const struct graph *g, const struct node *n, int64_t rows,
                                int64_t H, struct err *err)
{
    const int64_t N = rows / n->attr.recurrent.length;
    int rc;

    if ((rc = op_want_shape(g, n, RECURRENT_GRAD_Y, SHAPE(rows, H), err)) < 0 ||
        (rc = op_want_shape(g, n, RECURRENT_GRAD_CELL, SHAPE(rows, H), err)) < 0 ||
        (rc = op_want_shape(g, n, RECURRENT_GRAD_SAVED, SHAPE(rows, 4 * H), err)) < 0 ||
        (rc = op_want_shape(g, n, RECURRENT_GRAD_H0, SHAPE(N, H), err)) < 0 ||
        (rc = op_want_shape(g, n, RECURRENT_GRAD_C0, SHAPE(N, H), err)) < 0 ||
        (rc = op_want_shape(g, n, RECURRENT_GRAD_DY, SHAPE(rows, H), err)) < 0 ||
        (rc = op_want_shape(g, n, RECURRENT_GRAD_DCELL, SHAPE(rows, H), err)) < 0)
        return rc;
    if (op_has(n, RECURRENT_GRAD_CELL) != recurrent_is_lstm(n) ||
        op_has(n, RECURRENT_GRAD_SAVED) != recurrent_saves(n) ||
        (!recurrent_is_lstm(n) &&
         (op_has(n, RECURRENT_GRAD_C0) || op_has(n, RECURRENT_GRAD_DCELL))))
        return op_fail(n, err,
                       "want cell and saved of an LSTM, saved of a GRU, and neither of an RNN");
    if (!op_has(n, RECURRENT_GRAD_DY) && !op_has(n, RECURRENT_GRAD_DCELL))
        return op_fail(n, err, "neither dy nor dcell is given");
    return 0;
}

static int recurrent_infer_grad(const struct graph *g, const struct node *n,
                                struct value out[NODE_MAX_OUT], struct err *err)
{
    int64_t rows, H, N;
    int rc = op_want(g, n, RECURRENT_GRAD_Y, DTYPE_F32, 2, err);

    if (rc < 0)
        return rc;
    rows = op_shape(g, n, RECURRENT_GRAD_Y)->dim[0];
    rc = recurrent_check(g, n, RECURRENT_GRAD_W, rows, err);
    if (rc < 0)
        return rc;
    H = op_shape(g, n, RECURRENT_GRAD_W)->dim[1];
    N = rows / n->attr.recurrent.length;
    rc = recurrent_want_saved(g, n, rows, H, err);
    if (rc < 0)
        return rc;
    op_out(out, RECURRENT_GRAD_DGX, DTYPE_F32, SHAPE(rows, recurrent_gates(n) * H));
    if (n->attr.recurrent.kind == RECURRENT_GRU)
        op_out(out, RECURRENT_GRAD_DGH, DTYPE_F32, SHAPE(rows, recurrent_gates(n) * H));
    op_out(out, RECURRENT_GRAD_PREV, DTYPE_F32, SHAPE(rows, H));
    if (op_has(n, RECURRENT_GRAD_H0))
        op_out(out, RECURRENT_GRAD_DH0, DTYPE_F32, SHAPE(N, H));
    if (op_has(n, RECURRENT_GRAD_C0))
        op_out(out, RECURRENT_GRAD_DC0, DTYPE_F32, SHAPE(N, H));
    return 0;
}

/* The gradients of w and b, from prev and the gradient of gh. */
static int recurrent_backward_w(struct graph *g, const struct node *n, int prev, int dgh,
                                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const union node_attr attr = {.linear = {.act = ACT_NONE}};
    const int in[] = {[LINEAR_GRAD_W_X] = prev, [LINEAR_GRAD_W_DY] = dgh};
    int out[] = {[LINEAR_GRAD_W_DW] = NODE_NEW_OUT, [LINEAR_GRAD_W_DB] = NODE_NO_OUT};
    int rc;

    if (!want[RECURRENT_W]) {
        if (!want[RECURRENT_B])
            return 0;
        din[RECURRENT_B] = op_grad_out(g, n->in[RECURRENT_B]);
        return graph_node(g, OP_bias_grad, NULL, &dgh, 1, &din[RECURRENT_B],
                          op_name(g, n, "grad_b"), err);
    }
    out[LINEAR_GRAD_W_DW] = op_grad_out(g, n->in[RECURRENT_W]);
    if (op_has(n, RECURRENT_B))
        out[LINEAR_GRAD_W_DB] = op_grad_wanted(g, n, want, RECURRENT_B);
    rc = graph_node(g, OP_linear_grad_w, &attr, in, 2, out, op_name(g, n, "grad_w"), err);
    din[RECURRENT_W] = out[LINEAR_GRAD_W_DW];
    din[RECURRENT_B] = out[LINEAR_GRAD_W_DB];
    return rc;
}

static int recurrent_in(const struct node *n, int i) { return op_has(n, i) ? n->in[i] : NO_VALUE; }

static int recurrent_out(const struct node *n, int i)
{
    return i < n->n_out ? n->out[i] : NO_VALUE;
}

/* dgx is read by the node behind it, so it never goes to a parameter's VALUE_GRAD. */
static int recurrent_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                              const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int is_gru = n->attr.recurrent.kind == RECURRENT_GRU;
    const int of_w = want[RECURRENT_W] || want[RECURRENT_B];
    const int in[] = {
        [RECURRENT_GRAD_W] = n->in[RECURRENT_W],
        [RECURRENT_GRAD_Y] = n->out[RECURRENT_Y],
        [RECURRENT_GRAD_CELL] = recurrent_out(n, RECURRENT_CELL),
        [RECURRENT_GRAD_SAVED] = recurrent_out(n, RECURRENT_SAVED),
        [RECURRENT_GRAD_H0] = recurrent_in(n, RECURRENT_H0),
        [RECURRENT_GRAD_C0] = recurrent_in(n, RECURRENT_C0),
        [RECURRENT_GRAD_DY] = dout[RECURRENT_Y],
        [RECURRENT_GRAD_DCELL] = dout[RECURRENT_CELL],
    };
    int out[] = {
        [RECURRENT_GRAD_DGX] = NODE_NEW_OUT,
        [RECURRENT_GRAD_DGH] = is_gru && of_w ? NODE_NEW_OUT : NODE_NO_OUT,
        [RECURRENT_GRAD_PREV] = want[RECURRENT_W] ? NODE_NEW_OUT : NODE_NO_OUT,
        [RECURRENT_GRAD_DH0] =
            want[RECURRENT_H0] ? op_grad_out(g, n->in[RECURRENT_H0]) : NODE_NO_OUT,
        [RECURRENT_GRAD_DC0] =
            want[RECURRENT_C0] ? op_grad_out(g, n->in[RECURRENT_C0]) : NODE_NO_OUT,
    };
    int rc = graph_node(g, OP_recurrent_grad, &n->attr, in, 8, out, op_name(g, n, "grad"), err);

    din[RECURRENT_GX] = out[RECURRENT_GRAD_DGX];
    din[RECURRENT_H0] = out[RECURRENT_GRAD_DH0];
    din[RECURRENT_C0] = out[RECURRENT_GRAD_DC0];
    if (rc == 0)
        rc = recurrent_backward_w(g, n, out[RECURRENT_GRAD_PREV],
                                  out[is_gru ? RECURRENT_GRAD_DGH : RECURRENT_GRAD_DGX], want, din,
                                  err);
    return rc;
}

const struct op_def op_recurrent = {
    .infer = recurrent_infer,
    .grad = recurrent_backward,
    OP_SIGNATURE(recurrent),
    .flags = OP_ROWS,
    .typed_in = 1u << RECURRENT_GX | 1u << RECURRENT_W | 1u << RECURRENT_B | 1u << RECURRENT_H0,
    .typed_out = 1u << RECURRENT_Y | 1u << RECURRENT_SAVED,
};

const struct op_def op_recurrent_grad = {
    .infer = recurrent_infer_grad,
    OP_SIGNATURE(recurrent_grad),
    .flags = OP_ROWS,
    .typed_in = 1u << RECURRENT_GRAD_W | 1u << RECURRENT_GRAD_Y | 1u << RECURRENT_GRAD_SAVED |
                1u << RECURRENT_GRAD_H0 | 1u << RECURRENT_GRAD_DY,
    .typed_out = 1u << RECURRENT_GRAD_DGX | 1u << RECURRENT_GRAD_DGH | 1u << RECURRENT_GRAD_PREV |
                 1u << RECURRENT_GRAD_DH0,
};
