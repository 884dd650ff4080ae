/* group_norm - normalisation of groups of channels within a sample, as torch.nn.GroupNorm; channels
 * are the last dimension.  With as many groups as channels it is torch.nn.InstanceNorm2d.
 *
 * group_norm       x [N,..,C], weight? [C], bias? [C] -> y, mean? [N,G], rstd? [N,G]
 *   G = attr.group_norm.groups; group k has the channels k*C/G to (k+1)*C/G - 1.  mean and the
 *   (biased) variance var are those of a sample's group;  rstd = 1/sqrt(var + attr.group_norm.eps);
 *   y = (x - mean) * rstd * weight + bias; an absent weight is 1, an absent bias 0.
 * group_norm_grad  x, dy, weight?, mean, rstd -> dx?, dweight? [C], dbias? [C]
 *   xhat = (x - mean)*rstd, d = dy*weight;  dx = rstd * (d - avg(d) - xhat * avg(d*xhat)) with
 *   averages over the sample's group;  dweight = sum of dy*xhat and dbias = sum of dy, over samples
 *   and pixels. */
#include "op/infer.h"

/* Check x [N,..,C] and the number of groups. */
static int group_norm_check(const struct graph *g, const struct node *n, int x, struct err *err)
{
    const int64_t groups = n->attr.group_norm.groups;
    int rc = op_want(g, n, x, DTYPE_F32, -1, err);

    if (rc < 0)
        return rc;
    if (op_shape(g, n, x)->n < 2 || groups < 1 || op_last_dim(op_shape(g, n, x)) % groups)
        return op_fail(n, err, "%lld groups do not divide %lld channels", (long long)groups,
                       (long long)op_last_dim(op_shape(g, n, x)));
    return 0;
}

static struct shape group_norm_statistics(const struct graph *g, const struct node *n, int x)
{
    return SHAPE(op_shape(g, n, x)->dim[0], n->attr.group_norm.groups);
}

static int group_norm_infer(const struct graph *g, const struct node *n,
                            struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *x;
    int rc = group_norm_check(g, n, GROUP_NORM_X, err);

    if (rc < 0)
        return rc;
    x = op_shape(g, n, GROUP_NORM_X);
    if ((rc = op_want_shape(g, n, GROUP_NORM_WEIGHT, SHAPE(op_last_dim(x)), err)) < 0 ||
        (rc = op_want_shape(g, n, GROUP_NORM_BIAS, SHAPE(op_last_dim(x)), err)) < 0)
        return rc;
    op_out(out, GROUP_NORM_Y, DTYPE_F32, *x);
    op_out(out, GROUP_NORM_MEAN, DTYPE_F32, group_norm_statistics(g, n, GROUP_NORM_X));
    op_out(out, GROUP_NORM_RSTD, DTYPE_F32, group_norm_statistics(g, n, GROUP_NORM_X));
    return 0;
}

static int group_norm_infer_grad(const struct graph *g, const struct node *n,
                                 struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *x;
    struct shape groups;
    int rc = group_norm_check(g, n, GROUP_NORM_GRAD_X, err);

    if (rc < 0)
        return rc;
    x = op_shape(g, n, GROUP_NORM_GRAD_X);
    groups = group_norm_statistics(g, n, GROUP_NORM_GRAD_X);
    if ((rc = op_want_shape(g, n, GROUP_NORM_GRAD_DY, *x, err)) < 0 ||
        (rc = op_want_shape(g, n, GROUP_NORM_GRAD_WEIGHT, SHAPE(op_last_dim(x)), err)) < 0 ||
        (rc = op_want_shape(g, n, GROUP_NORM_GRAD_MEAN, groups, err)) < 0 ||
        (rc = op_want_shape(g, n, GROUP_NORM_GRAD_RSTD, groups, err)) < 0)
        return rc;
    op_out(out, GROUP_NORM_GRAD_DX, DTYPE_F32, *x);
    op_out(out, GROUP_NORM_GRAD_DWEIGHT, DTYPE_F32, SHAPE(op_last_dim(x)));
    op_out(out, GROUP_NORM_GRAD_DBIAS, DTYPE_F32, SHAPE(op_last_dim(x)));
    return 0;
}

static int group_norm_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                               const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[GROUP_NORM_GRAD_X] = n->in[GROUP_NORM_X],
                      [GROUP_NORM_GRAD_DY] = dout[GROUP_NORM_Y],
                      [GROUP_NORM_GRAD_WEIGHT] = n->in[GROUP_NORM_WEIGHT],
                      [GROUP_NORM_GRAD_MEAN] = n->out[GROUP_NORM_MEAN],
                      [GROUP_NORM_GRAD_RSTD] = n->out[GROUP_NORM_RSTD]};
    int out[] = {[GROUP_NORM_GRAD_DX] = op_grad_wanted(g, n, want, GROUP_NORM_X),
                 [GROUP_NORM_GRAD_DWEIGHT] = op_grad_wanted(g, n, want, GROUP_NORM_WEIGHT),
                 [GROUP_NORM_GRAD_DBIAS] = op_grad_wanted(g, n, want, GROUP_NORM_BIAS)};
    int rc = graph_node(g, OP_group_norm_grad, &n->attr, in, 5, out, op_name(g, n, "grad"), err);

    din[GROUP_NORM_X] = out[GROUP_NORM_GRAD_DX];
    din[GROUP_NORM_WEIGHT] = out[GROUP_NORM_GRAD_DWEIGHT];
    din[GROUP_NORM_BIAS] = out[GROUP_NORM_GRAD_DBIAS];
    return rc;
}

const struct op_def op_group_norm = {
    .infer = group_norm_infer,
    .grad = group_norm_backward,
    OP_SIGNATURE(group_norm),
    .flags = OP_ROWS | OP_CHEAP,
    .typed_in = 1u << GROUP_NORM_X,
    .typed_out = 1u << GROUP_NORM_Y,
};

const struct op_def op_group_norm_grad = {
    .infer = group_norm_infer_grad,
    OP_SIGNATURE(group_norm_grad),
    .flags = OP_ROWS,
    .typed_in = 1u << GROUP_NORM_GRAD_X | 1u << GROUP_NORM_GRAD_DY,
    .typed_out = 1u << GROUP_NORM_GRAD_DX,
    .wide_out = 1u << GROUP_NORM_GRAD_DWEIGHT | 1u << GROUP_NORM_GRAD_DBIAS,
};
