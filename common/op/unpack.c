/* unpack - numbers that are stored in fewer bits, as float32 or half precision: the weights of a
 * frozen base (program/base.h).
 *
 * unpack       codes [..], scales? [S] -> y [..]
 *   The codes are BF16, and y is their numbers; or they are I8, with a scale for each block
 *   (tensor/blocks.h), and y[i] = codes[i] * scales[i / BLOCKS_LEN], i in the order of memory.
 *
 * unpack_rows  codes [V,C], scales? [S], tokens I32 [..,T], position? [P,C] -> y [R,C]
 *   As embedding (op/embedding.c) of the table that unpack would make; no table is made.
 *
 * Neither has a gradient: what is stored so is not trained. */
#include "base/util.h"
#include "op/infer.h"
#include "tensor/blocks.h"

_Static_assert((int)UNPACK_CODES == (int)UNPACK_ROWS_CODES &&
                   (int)UNPACK_SCALES == (int)UNPACK_ROWS_SCALES,
               "unpack_check serves both");

static int unpack_check(const struct graph *g, const struct node *n, struct err *err)
{
    const struct value *codes = op_in(g, n, UNPACK_CODES);
    const int has_scales = codes->dtype == DTYPE_I8;

    if (!has_scales && codes->dtype != DTYPE_BF16)
        return op_fail(n, err, "codes are %s, want BF16 or I8", dtype_name(codes->dtype));
    if (op_has(n, UNPACK_SCALES) != has_scales)
        return op_fail(n, err, "codes are %s, which have %s scales", dtype_name(codes->dtype),
                       has_scales ? "" : "no");
    return op_want_shape(g, n, UNPACK_SCALES, SHAPE(blocks_of(shape_elements(&codes->shape))), err);
}

static int unpack_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    const int rc = unpack_check(g, n, err);

    op_out(out, UNPACK_Y, DTYPE_F32, *op_shape(g, n, UNPACK_CODES));
    return rc;
}

static int unpack_infer_rows(const struct graph *g, const struct node *n,
                             struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *codes = op_shape(g, n, UNPACK_ROWS_CODES);
    const struct shape *tokens = op_shape(g, n, UNPACK_ROWS_TOKENS);
    int rc = unpack_check(g, n, err);

    if (rc < 0 || (rc = op_want(g, n, UNPACK_ROWS_TOKENS, DTYPE_I32, -1, err)) < 0 ||
        (rc = op_want(g, n, UNPACK_ROWS_POSITION, DTYPE_F32, 2, err)) < 0)
        return rc;
    if (codes->n != 2 || codes->dim[0] < 1)
        return op_fail(n, err, "its table has no rows");
    if (op_has(n, UNPACK_ROWS_POSITION)) {
        const struct shape *position = op_shape(g, n, UNPACK_ROWS_POSITION);

        if (position->dim[0] < op_last_dim(tokens))
            return op_fail(n, err, "%lld positions for %lld tokens in a row",
                           (long long)position->dim[0], (long long)op_last_dim(tokens));
        rc = op_want_shape(g, n, UNPACK_ROWS_POSITION, SHAPE(position->dim[0], codes->dim[1]), err);
    }
    op_out(out, UNPACK_ROWS_Y, DTYPE_F32, SHAPE(shape_elements(tokens), codes->dim[1]));
    return rc;
}

const struct op_def op_unpack = {
    .infer = unpack_infer,
    OP_SIGNATURE(unpack),
    .typed_out = 1u << UNPACK_Y,
};

const struct op_def op_unpack_rows = {
    .infer = unpack_infer_rows,
    OP_SIGNATURE(unpack_rows),
    .flags = OP_ROWS,
    .typed_in = 1u << UNPACK_ROWS_POSITION,
    .typed_out = 1u << UNPACK_ROWS_Y,
};
