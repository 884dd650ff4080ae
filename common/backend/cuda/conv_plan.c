/* conv_plan - a convolution node as a cuDNN graph: its tensors, its window, its fused tail, and
 * its name in messages. */
#include "backend/cuda/conv_plan.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/util.h"

const struct conv_operands conv_operands[] = {
    [CUDNN_PASS_FORWARD] = {OP_conv2d, CONV2D_X, CONV2D_W, CUDA_OUT + CONV2D_Y, CONV2D_B},
    [CUDNN_PASS_GRAD_X] = {OP_conv2d_grad_x, CUDA_OUT + CONV2D_GRAD_X_DX, CONV2D_GRAD_X_W,
                           CONV2D_GRAD_X_DY, CUDA_NONE},
    [CUDNN_PASS_GRAD_W] = {OP_conv2d_grad_w, CONV2D_GRAD_W_X, CUDA_OUT + CONV2D_GRAD_W_DW,
                           CONV2D_GRAD_W_DY, CUDA_OUT + CONV2D_GRAD_W_DB},
};

static const struct shape *cuda_conv_plan_shape_of(const struct graph *g, const struct node *n,
                                                   int operand)
{
    return &g->value[cuda_value_at(n, operand)].shape;
}

enum cudnn_pass conv_shape_of(const struct graph *g, const struct node *n, struct conv_shape *out)
{
    int pass = 0;

    while ((int)conv_operands[pass].op != n->op)
        ASSERT(++pass < (int)ARRAY_LEN(conv_operands));
    out->dtype = op_type(g, n);
    out->x = *cuda_conv_plan_shape_of(g, n, conv_operands[pass].x);
    memcpy(out->filter, cuda_conv_plan_shape_of(g, n, conv_operands[pass].w)->dim,
           sizeof out->filter);
    out->y = *cuda_conv_plan_shape_of(g, n, conv_operands[pass].y);
    for (int i = 0; i < 2; i++) {
        out->window.stride[i] = n->attr.conv.stride[i];
        out->window.pad[i] = n->attr.conv.pad[i];
        out->window.dilation[i] = n->attr.conv.dilation[i];
    }
    return (enum cudnn_pass)pass;
}

static const char *cuda_conv_plan_describe(enum cudnn_pass pass, enum conv_tail tail,
                                           const struct conv_shape *s, char *out, size_t room)
{
    static const char *const pass_name[] = {"conv2d", "conv2d_grad_x", "conv2d_grad_w"};
    static const char *const tail_name[] = {"", " + bias", " + bias + relu", " + what is there"};
    const struct cudnn_window *v = &s->window;
    char x[SHAPE_TEXT_LEN];

    snprintf(out, room,
             "%s%s of %s x %s, filter [%lld,%lld,%lld,%lld], stride %lldx%lld, pad %lldx%lld",
             pass_name[pass], tail_name[tail], dtype_name(s->dtype), shape_text(&s->x, x),
             (long long)s->filter[0], (long long)s->filter[1], (long long)s->filter[2],
             (long long)s->filter[3], (long long)v->stride[0], (long long)v->stride[1],
             (long long)v->pad[0], (long long)v->pad[1]);
    return out;
}

/* Convolution, + b, relu: each writes an inner tensor, but the last one writes y. */
static void cuda_conv_plan_add_tail(struct cudnn_graph *g, enum conv_tail tail,
                                    const struct conv_shape *s, int y)
{
    const int b = cudnn_channels(g, s->dtype, s->filter[0]), sums = cudnn_inner(g, &s->y);
    const int biased = tail == CONV_BIAS_RELU ? cudnn_inner(g, &s->y) : y;

    cudnn_convolve(g, CUDNN_PASS_FORWARD, &s->window, CONV_X, CONV_W, sums, 0);
    cudnn_apply(g, CUDNN_POINTWISE_ADD, sums, b, biased);
    if (tail == CONV_BIAS_RELU)
        cudnn_apply(g, CUDNN_POINTWISE_RELU_FWD, biased, -1, y);
}

int conv_plan(struct cudnn_device *d, const struct cudnn_rules *rules, enum cudnn_pass pass,
              enum conv_tail tail, const struct conv_shape *s, const struct cudnn_plan **out,
              struct err *err)
{
    char what[256];
    struct cudnn_graph *g =
        cudnn_graph_new(d, cuda_conv_plan_describe(pass, tail, s, what, sizeof what));
    const int x = cudnn_image(g, s->dtype, &s->x), w = cudnn_filter(g, s->dtype, s->filter);
    const int y = cudnn_image(g, s->dtype, &s->y);
    int rc;

    ASSERT(x == CONV_X && w == CONV_W && y == CONV_Y);
    ASSERT(tail == CONV_ALONE || (pass == CUDNN_PASS_GRAD_W) == (tail == CONV_ADDED));
    if (tail == CONV_ALONE || tail == CONV_ADDED)
        cudnn_convolve(g, pass, &s->window, x, w, y, tail == CONV_ADDED);
    else
        cuda_conv_plan_add_tail(g, tail, s, y);
    rc = cudnn_plan_for(g, rules, out, err);
    if (rc == 0 && tail != CONV_ALONE && (*out)->of_last_resort)
        rc = err_set(err, ERR_UNSUPPORTED, "%s: only by the engine that computes any graph", what);
    return rc;
}
