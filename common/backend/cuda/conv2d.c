/* conv2d - a convolution and its gradients: a cuDNN plan, with the filter reordered before or
 * after it.
 *
 * forward  w [K,C,R*S] -> scratch [K,R*S,C]; the plan; bias and activation in one pass over y,
 *          unless the plan has them
 * grad_x   w as in forward; the plan
 * grad_w   the plan writes scratch [K,R*S,C] -> dw [K,C,R*S]; db: the sums of dy over its rows
 *
 * With one channel, or a 1x1 filter, both orders are the same and nothing is reordered.  In BF16
 * and F16 cuDNN has no dw in F32: if F32 is wanted, the plan writes dw in the layers' type to the
 * scratch, and a pass widens it.  The pass that brings dw to its place adds there if the node adds
 * (node.adds).  Where no such pass is needed the plan adds by itself (beta = 1), or, if no engine
 * can, one is made for that.
 *
 * Only plans that keep the rules of cudnn.h are used.  None of this has run on a GPU yet.
 * tests/cudnn builds the plans for a described H200, and runs this file with a stand-in for cuDNN
 * and our passes on tests/cudasim.
 * op/conv2d.c has the formulas; the twin is cpu/conv2d.c. */
#include <cuda_runtime_api.h>

#include <stdlib.h>

#include "backend/cuda/conv_plan.h"
#include "backend/cuda/dnn.h"
#include "backend/cuda/passes.h"
#include "base/alloc.h"
#include "base/util.h"

/* ---- the kernel ---- */

struct conv {
    struct kernel k;
    struct cuda *cuda;
    struct dnn *dnn;
    struct conv_shape s;
    enum cudnn_pass pass;
    const struct cudnn_plan *plan;
    struct cudnn_pack *pack;   /* NULL before bind */
    enum conv_tail tail;       /* bias and activation that the plan does */
    enum activation act;       /* the activation that a pass does after the plan */
    int has_bias, reorders;    /* a bias (or its gradient) exists; w is not in K,R,S,C order */
    int widens;                /* dw is F32, but the plan's is not */
    int adds_w, adds_b;        /* grad_w adds to dw, to db (node.adds) */
    int passes_w;              /* w is in the scratch for the plan */
    size_t at_filter, at_sums; /* offsets in the scratch; the plan's workspace is at 0 */
    struct passes_array w, y, bias, filter; /* tensors or their gradients, as the pass says */
    void *sums;
};

static int64_t cuda_conv2d_taps(const struct conv *c) { return c->s.filter[2] * c->s.filter[3]; }

static int64_t cuda_conv2d_rows(const struct conv *c)
{
    return c->s.y.dim[0] * c->s.y.dim[1] * c->s.y.dim[2];
}

static int64_t filter_elements(const struct conv *c)
{
    return c->s.filter[0] * c->s.filter[1] * cuda_conv2d_taps(c);
}

static void conv_free(struct kernel *k)
{
    struct conv *c = container_of(k, struct conv, k);

    cudnn_pack_free(c->pack);
    free(c);
}

/* Finds the plan's x, w, y and b among a node's inputs and outputs. */
static void cuda_conv2d_operands(const struct conv *c, void *const *in, void *const *out,
                                 void *ptr[CONV_MAX_TENSORS])
{
    const struct conv_operands *at = &conv_operands[c->pass];

    ptr[CONV_X] = cuda_address_at(in, out, at->x);
    ptr[CONV_W] = cuda_address_at(in, out, at->w);
    ptr[CONV_Y] = cuda_address_at(in, out, at->y);
    ptr[CONV_B] = c->has_bias ? cuda_address_at(in, out, at->b) : NULL;
}

static int conv_bind(struct kernel *k, void *const *in, void *const *out, void *scratch,
                     struct err *err)
{
    struct conv *c = container_of(k, struct conv, k);
    void *ptr[CONV_MAX_TENSORS] = {NULL};

    cuda_conv2d_operands(c, in, out, ptr);
    c->w.at = ptr[CONV_W];
    c->y.at = ptr[CONV_Y];
    c->bias.at = ptr[CONV_B];
    c->filter.at = (char *)scratch + c->at_filter;
    c->sums = (char *)scratch + c->at_sums;
    if (c->passes_w)
        ptr[CONV_W] = c->filter.at;
    cudnn_pack_free(c->pack);
    c->pack = NULL;
    return cudnn_pack_new(c->plan, ptr, scratch, &c->pack, err);
}

static void cuda_conv2d_before(const struct conv *c)
{
    if (c->reorders && c->pass != CUDNN_PASS_GRAD_W)
        passes_transpose(c->cuda, c->w, c->filter, c->s.filter[0], c->s.filter[1],
                         cuda_conv2d_taps(c), 0);
}

static void cuda_conv2d_behind(const struct conv *c)
{
    const int64_t k = c->s.filter[0];
    const void *bias = c->tail == CONV_ALONE ? c->bias.at : NULL;

    if (c->pass == CUDNN_PASS_FORWARD && (bias || c->act != ACT_NONE))
        passes_bias_act(c->cuda, c->y, bias, c->act, cuda_conv2d_rows(c), k);
    if (c->pass != CUDNN_PASS_GRAD_W)
        return;
    if (c->reorders)
        passes_transpose(c->cuda, c->filter, c->w, k, cuda_conv2d_taps(c), c->s.filter[1],
                         c->adds_w);
    else if (c->passes_w)
        passes_give(c->cuda, c->filter, c->w, filter_elements(c), c->adds_w);
    if (c->bias.at)
        passes_column_sums(c->cuda, c->y, c->bias, cuda_conv2d_rows(c), k, c->adds_b, c->sums);
}

static int conv_run(struct kernel *k, struct err *err)
{
    const struct conv *c = container_of(k, struct conv, k);
    int rc;

    cuda_conv2d_before(c);
    rc = cudnn_pack_run(c->dnn->device, c->pack, err);
    if (rc < 0)
        return rc;
    cuda_conv2d_behind(c);
    return passes_check("launch around a convolution", err);
}

static const struct kernel_ops conv_ops = {
    .bind = conv_bind,
    .run = conv_run,
    .free = conv_free,
};

/* Takes a plan with bias, or bias and relu, or one that adds, if the node wants that and such a
 * plan exists; else a plan of the convolution alone. */
static int cuda_conv2d_choose(struct conv *c, struct err *err)
{
    const struct cudnn_rules rules = dnn_rules(c->cuda);
    const int relu = c->act == ACT_RELU;
    struct err none;

    if (c->pass == CUDNN_PASS_FORWARD && c->has_bias && (c->act == ACT_NONE || relu)) {
        c->tail = relu ? CONV_BIAS_RELU : CONV_BIAS;
        if (conv_plan(c->dnn->device, &rules, c->pass, c->tail, &c->s, &c->plan, &none) == 0) {
            c->act = ACT_NONE;
            return 0;
        }
        c->tail = CONV_ALONE;
    }
    if (c->adds_w && !c->passes_w &&
        conv_plan(c->dnn->device, &rules, c->pass, CONV_ADDED, &c->s, &c->plan, &none) == 0)
        return 0;
    c->passes_w |= c->adds_w;
    return conv_plan(c->dnn->device, &rules, c->pass, CONV_ALONE, &c->s, &c->plan, err);
}

static void cuda_conv2d_lay_out(struct conv *c)
{
    const int64_t elements = c->passes_w ? filter_elements(c) : 0;
    const int sums = c->has_bias && c->pass == CUDNN_PASS_GRAD_W;

    c->at_filter = dnn_piece(c->plan->workspace);
    c->at_sums = c->at_filter + dnn_piece((size_t)elements * dtype_size(c->s.dtype));
    c->k.scratch_bytes =
        c->at_sums +
        (sums ? dnn_piece(passes_column_sums_scratch(cuda_conv2d_rows(c), c->s.filter[0])) : 0);
}

static int cuda_conv2d_make(struct cuda *b, const struct graph *g, const struct node *n,
                            struct kernel **out, struct err *err)
{
    struct conv *c;
    void *mem;
    int rc = try_alloc(&mem, sizeof *c, "a kernel", err);

    if (rc < 0)
        return rc;
    c = mem;
    c->k.ops = &conv_ops;
    c->cuda = b;
    c->pass = conv_shape_of(g, n, &c->s);
    c->act = n->attr.conv.act;
    c->has_bias = cuda_value_at(n, conv_operands[c->pass].b) != NO_VALUE;
    c->reorders = c->s.filter[1] > 1 && cuda_conv2d_taps(c) > 1;
    c->w.type = c->y.type = c->bias.type = c->filter.type = c->s.dtype;
    if (c->pass == CUDNN_PASS_GRAD_W) {
        c->w.type = g->value[n->out[CONV2D_GRAD_W_DW]].dtype;
        c->widens = c->w.type != c->s.dtype;
        c->adds_w = n->adds >> CONV2D_GRAD_W_DW & 1;
        c->adds_b = n->adds >> CONV2D_GRAD_W_DB & 1;
        if (c->has_bias)
            c->bias.type = g->value[n->out[CONV2D_GRAD_W_DB]].dtype;
    }
    c->passes_w = c->reorders || c->widens;
    if (n->op == OP_conv2d && cuda_has_in(n, CONV2D_ADD))
        rc = err_set(err, ERR_UNSUPPORTED, "a convolution with a fused sum has no plan");
    if (rc < 0 || (rc = dnn_of(b, &c->dnn, err)) < 0 || (rc = cuda_conv2d_choose(c, err)) < 0) {
        free(c);
        return rc;
    }
    cuda_conv2d_lay_out(c);
    *out = &c->k;
    return 0;
}

int cuda_make_conv2d(struct cuda *b, const struct graph *g, const struct node *n,
                     struct kernel **out, struct err *err)
{
    return cuda_conv2d_make(b, g, n, out, err);
}

int cuda_make_conv2d_grad_x(struct cuda *b, const struct graph *g, const struct node *n,
                            struct kernel **out, struct err *err)
{
    return cuda_conv2d_make(b, g, n, out, err);
}

int cuda_make_conv2d_grad_w(struct cuda *b, const struct graph *g, const struct node *n,
                            struct kernel **out, struct err *err)
{
    return cuda_conv2d_make(b, g, n, out, err);
}
