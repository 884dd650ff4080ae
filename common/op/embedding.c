/* embedding - rows of a table by token numbers, as torch.nn.Embedding, and the rows of their
 * positions.
 *
 * embedding       table [V,C], tokens I32 [..,T], position? [P,C], starts? I32 [..,T] -> y [R,C]
 *   R is the number of tokens; y[r] = table[tokens[r]], plus position[place(r)] if there are
 *   positions (T <= P).  A token outside [0,V), which readers refuse, counts as the nearest one
 *   inside.  place(r) is r % T; with starts, which only an embedding with positions has, it is
 *   r % T - starts[r], or the nearest of 0 .. r % T: the place in the token's document.
 *
 * embedding_grad  tokens, dy [R,C], starts? -> dtable? [V,C], dposition? [P,C]
 *   attr.embedding has V and P.  dtable[v] is the sum of dy[r] over the r whose token is v, in
 *   ascending order, and 0 if v is attr.embedding.padding - 1; dposition[t] is the sum over the r
 *   with place(r) = t.  Rows that no token names are 0. */
#include "op/infer.h"

static int64_t embedding_n_tokens(const struct shape *s) { return shape_elements(s); }

static int embedding_infer(const struct graph *g, const struct node *n,
                           struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *table, *tokens;
    int rc;

    if ((rc = op_want(g, n, EMBEDDING_TABLE, DTYPE_F32, 2, err)) < 0 ||
        (rc = op_want(g, n, EMBEDDING_TOKENS, DTYPE_I32, -1, err)) < 0 ||
        (rc = op_want(g, n, EMBEDDING_POSITION, DTYPE_F32, 2, err)) < 0)
        return rc;
    table = op_shape(g, n, EMBEDDING_TABLE);
    tokens = op_shape(g, n, EMBEDDING_TOKENS);
    if (table->dim[0] < 1)
        return op_fail(n, err, "its table has no rows");
    if (op_has(n, EMBEDDING_STARTS) && !op_has(n, EMBEDDING_POSITION))
        return op_fail(n, err, "it has starts, but no positions that begin there");
    if (op_has(n, EMBEDDING_POSITION)) {
        const struct shape *position = op_shape(g, n, EMBEDDING_POSITION);

        if (position->dim[0] < op_last_dim(tokens))
            return op_fail(n, err, "%lld positions for %lld tokens in a row",
                           (long long)position->dim[0], (long long)op_last_dim(tokens));
        rc = op_want_shape(g, n, EMBEDDING_POSITION, SHAPE(position->dim[0], table->dim[1]), err);
    }
    if (rc == 0)
        rc = op_want_starts(g, n, EMBEDDING_STARTS, embedding_n_tokens(tokens), op_last_dim(tokens),
                            err);
    op_out(out, EMBEDDING_Y, DTYPE_F32, SHAPE(embedding_n_tokens(tokens), table->dim[1]));
    return rc;
}

static int embedding_infer_grad(const struct graph *g, const struct node *n,
                                struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *dy, *tokens;
    int rc;

    if ((rc = op_want(g, n, EMBEDDING_GRAD_TOKENS, DTYPE_I32, -1, err)) < 0 ||
        (rc = op_want(g, n, EMBEDDING_GRAD_DY, DTYPE_F32, 2, err)) < 0)
        return rc;
    dy = op_shape(g, n, EMBEDDING_GRAD_DY);
    tokens = op_shape(g, n, EMBEDDING_GRAD_TOKENS);
    rc = op_want_shape(g, n, EMBEDDING_GRAD_DY, SHAPE(embedding_n_tokens(tokens), dy->dim[1]), err);
    if (rc == 0)
        rc = op_want_starts(g, n, EMBEDDING_GRAD_STARTS, embedding_n_tokens(tokens),
                            op_last_dim(tokens), err);
    op_out(out, EMBEDDING_GRAD_DTABLE, DTYPE_F32, SHAPE(n->attr.embedding.rows, dy->dim[1]));
    op_out(out, EMBEDDING_GRAD_DPOSITION, DTYPE_F32,
           SHAPE(n->attr.embedding.positions, dy->dim[1]));
    return rc;
}

static int embedding_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                              const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[EMBEDDING_GRAD_TOKENS] = n->in[EMBEDDING_TOKENS],
                      [EMBEDDING_GRAD_DY] = dout[EMBEDDING_Y],
                      [EMBEDDING_GRAD_STARTS] = n->in[EMBEDDING_STARTS]};
    const union node_attr attr = {
        .embedding = {.rows = op_shape(g, n, EMBEDDING_TABLE)->dim[0],
                      .positions = op_has(n, EMBEDDING_POSITION)
                                       ? op_shape(g, n, EMBEDDING_POSITION)->dim[0]
                                       : 0,
                      .padding = n->attr.embedding.padding}};
    int out[] = {[EMBEDDING_GRAD_DTABLE] = op_grad_wanted(g, n, want, EMBEDDING_TABLE),
                 [EMBEDDING_GRAD_DPOSITION] = op_grad_wanted(g, n, want, EMBEDDING_POSITION)};
    int rc = graph_node(g, OP_embedding_grad, &attr, in, 3, out, op_name(g, n, "grad"), err);

    din[EMBEDDING_TABLE] = out[EMBEDDING_GRAD_DTABLE];
    din[EMBEDDING_POSITION] = out[EMBEDDING_GRAD_DPOSITION];
    return rc;
}

const struct op_def op_embedding = {
    .infer = embedding_infer,
    .grad = embedding_backward,
    OP_SIGNATURE(embedding),
    .flags = OP_ROWS,
    .typed_in = 1u << EMBEDDING_TABLE | 1u << EMBEDDING_POSITION,
    .typed_out = 1u << EMBEDDING_Y,
};

const struct op_def op_embedding_grad = {
    .infer = embedding_infer_grad,
    OP_SIGNATURE(embedding_grad),
    .flags = OP_ROWS,
    .typed_in = 1u << EMBEDDING_GRAD_DY,
    .wide_out = 1u << EMBEDDING_GRAD_DTABLE | 1u << EMBEDDING_GRAD_DPOSITION,
};
