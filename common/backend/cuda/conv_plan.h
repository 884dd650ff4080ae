/* conv_plan - the cuDNN plan of a convolution or of one of its gradients.
 *
 * This is apart from conv2d.c so that tests/cudnn can build, without a GPU, the same plans that
 * kernels run.  Activations are NHWC.  A plan's filter is K,R,S,C in memory, while parameters are
 * K,C,R,S: conv2d.c reorders them.
 *
 * Threads: one per device. */
#ifndef BACKEND_CUDA_CONV_PLAN_H
#define BACKEND_CUDA_CONV_PLAN_H

#include "backend/cuda/cudnn.h"
#include "ir/graph.h"
#include "op/op.h"

struct conv_shape {
    enum dtype dtype;  /* of all tensors; sums are float32 */
    struct shape x, y; /* [N,H,W,C], [N,H',W',K] */
    int64_t filter[4]; /* K, C/groups, R, S */
    struct cudnn_window window;
};

/* The operator of each pass, and its operands as cuda_value_at numbers them; by enum cudnn_pass. */
struct conv_operands {
    enum op op;
    int x, w, y, b;
};

extern const struct conv_operands conv_operands[];

/* The shape of a conv2d, conv2d_grad_x or conv2d_grad_w node; returns the node's pass. */
enum cudnn_pass conv_shape_of(const struct graph *g, const struct node *n, struct conv_shape *out);

/* CONV_ADDED is for the gradient of w, to which the plan adds; the others are for the forward pass.
 */
enum conv_tail { CONV_ALONE, CONV_BIAS, CONV_BIAS_RELU, CONV_ADDED };

/* The order of a pack's pointers: x, w, y (or their gradients), and the bias if there is a tail. */
enum { CONV_X, CONV_W, CONV_Y, CONV_B, CONV_MAX_TENSORS = 6 };

/* *out belongs to the device.  Fails with ERR_UNSUPPORTED if no engine fits the rules, or if a tail
 * is wanted and the engine found is the slow one that computes any graph (note STRICT_NAN_PROP). */
int conv_plan(struct cudnn_device *d, const struct cudnn_rules *rules, enum cudnn_pass pass,
              enum conv_tail tail, const struct conv_shape *s, const struct cudnn_plan **out,
              struct err *err);

#endif
