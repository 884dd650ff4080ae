/* adasum - combines gradients pair by pair (strategy/adasum.c; Maleki and others 2021, "Scaling
 * Distributed Training with Adaptive Summation").
 *
 * R rows, N elements of a row, T tensors, P pairs (op/adasum.h says which rows are pairs)
 *
 * adasum_dots     rows [R,N], ends I64 [T] -> dots F64 [P,T,3]
 *   The products a.b, a.a and b.b of each tensor of each pair, in double.  Tensor t is the elements
 *   from ends[t-1] (0 for the first tensor) to ends[t] of a row; ends[] never decreases.
 * adasum_combine  rows [R,N], ends I64 [T], dots F64 [P,T,3] -> rows [R,N], in place
 *   Row a of each pair becomes the combination of a and b, by the formula of op/adasum.h in double,
 *   rounded once.  Elements that belong to no tensor do not change.
 *   attr.number: stride
 *
 * The dot products are added in an order that each backend chooses by the shapes. */
#include "op/adasum.h"

#include "op/infer.h"

/* Check rows and ends, which both operators have first, and give the shape of the dot products. */
static int adasum_check(const struct graph *g, const struct node *n, struct shape *dots,
                        struct err *err)
{
    const double stride = n->attr.number[ADASUM_DOTS_ATTR_STRIDE];
    int64_t n_pairs = 0;
    int rc;

    if ((rc = op_want(g, n, ADASUM_DOTS_ROWS, DTYPE_F32, 2, err)) < 0 ||
        (rc = op_want(g, n, ADASUM_DOTS_ENDS, DTYPE_I64, 1, err)) < 0)
        return rc;
    if (stride >= 1)
        n_pairs = adasum_pairs(op_shape(g, n, ADASUM_DOTS_ROWS)->dim[0], (int64_t)stride);
    if (n_pairs < 1)
        return op_fail(n, err, "%lld rows have no pair at a distance of %g",
                       (long long)op_shape(g, n, ADASUM_DOTS_ROWS)->dim[0], stride);
    *dots = SHAPE(n_pairs, op_shape(g, n, ADASUM_DOTS_ENDS)->dim[0], ADASUM_N_DOTS);
    return 0;
}

static int infer_dots(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    struct shape dots;
    int rc = adasum_check(g, n, &dots, err);

    if (rc == 0)
        op_out(out, ADASUM_DOTS_DOTS, DTYPE_F64, dots);
    return rc;
}

static int infer_combine(const struct graph *g, const struct node *n,
                         struct value out[NODE_MAX_OUT], struct err *err)
{
    struct shape dots;
    char seen[SHAPE_TEXT_LEN], wanted[SHAPE_TEXT_LEN];
    int rc = adasum_check(g, n, &dots, err);

    if (rc == 0)
        rc = op_want(g, n, ADASUM_COMBINE_DOTS, DTYPE_F64, 3, err);
    if (rc < 0)
        return rc;
    if (!shape_equal(op_shape(g, n, ADASUM_COMBINE_DOTS), &dots))
        return op_fail(n, err, "dots is %s, want %s",
                       shape_text(op_shape(g, n, ADASUM_COMBINE_DOTS), seen),
                       shape_text(&dots, wanted));
    op_out(out, ADASUM_COMBINE_NEW_ROWS, DTYPE_F32, *op_shape(g, n, ADASUM_COMBINE_ROWS));
    return 0;
}

const struct op_def op_adasum_dots = {.infer = infer_dots, OP_SIGNATURE(adasum_dots)};
const struct op_def op_adasum_combine = {.infer = infer_combine, OP_SIGNATURE(adasum_combine)};
