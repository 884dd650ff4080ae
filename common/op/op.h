/* op - the table of operators.
 *
 * One file per family: op/NAME.c says what shapes an operator takes and gives, and appends its
 * gradient as more nodes.  The kernels are backend/cpu/NAME.c (and backend/cuda/NAME.cu).  The list
 * below is generated from op/meson.build: a word there without a file, a definition, a kernel or a
 * test case fails the build or the test op/coverage.
 *
 * Exact semantics, the index of each input and output, and which may be absent (?), stand on top of
 * op/NAME.c; a kernel gets NULL for what is absent.
 *
 * Legend: N batch, H W image, C channels in, K channels out, R S filter, [..] shape; all F32 unless
 * said.  Reference for semantics: PyTorch's function of the same name, in logical order.
 *
 * Types: a node has one element type, F32, BF16 or F16, which is that of its activations, their
 * gradients, and the weights of conv2d, linear and bias (typed_in, typed_out).  Sums are float32 or
 * better, and results are rounded once, at the end.  Gradients of parameters are F32 or of the
 * node's type, as wanted (wide_out).  All else is F32 in any case: parameters of norms, statistics,
 * prob and diff of the losses, what the optimizer holds.
 *
 *   conv2d          x [N,H,W,C], w [K,C/groups,R,S], b? [K] -> y [N,H',W',K] (act fused)
 *   conv2d_grad_x   w, dy -> dx                          conv2d_grad_w  x, dy -> dw, db?
 *   linear          x [N,in] or [N,H,W,C] (fused flatten), w [out,in], b? [out] -> y [N,out]
 *   linear_grad_x   w, dy -> dx                          linear_grad_w  x, dy -> dw, db?
 *   bias            x [..,C], b [C] -> y                 bias_grad      dy -> db [C]
 *   activation      x -> y                               activation_grad  x?, y?, dy -> dx
 *   pool2d          x [N,H,W,C] -> y, which? (max: opaque I32, shape of y, for the gradient)
 *   pool2d_grad     dy, which?, y_act? -> dx
 *
 *   batch_norm_stats       x, running_mean -> sums F64 [2C+1]
 *   allreduce              v F64 -> v: in place over all ranks; run by the engine, no kernel
 *   batch_norm             x, sums, weight, bias, running_mean, running_var -> y, shadows of both
 *   batch_norm_infer       x, weight, bias, running_mean, running_var -> y
 *   batch_norm_grad_stats  x, dy, sums, running_mean -> gsums F64 [2C], dweight?, dbias? (local)
 *   batch_norm_grad        x, dy, sums, running_mean, gsums, weight -> dx
 *   layer_norm             x [..,C], weight, bias -> y, mean?, rstd? (one a row)
 *   layer_norm_grad        x, dy, weight, mean, rstd -> dx?, dweight?, dbias?
 *
 *   add             a, b -> y
 *   flatten         x [N,H,W,C] -> y [N,C*H*W] in C,H,W order (a transposition)
 *   unflatten       y -> x
 *   reshape         x -> y, same elements in the same order
 *   gather          tables [M,..], index I64 [N] -> their rows, [N,..] of each table
 *   dropout         x, scalars -> y = x * mask / (1-p); its gradient is dropout of dy
 *
 *   softmax_xent       logits [N,C], labels I32 [N], metrics -> prob? [N,C]; adds to metrics
 *   softmax_xent_grad  prob, labels, scalars, scaler? -> dlogits, times loss_scale
 *   softmax_xent_train logits, labels, metrics, scalars, scaler? -> dlogits: both, fused
 *   mse                y [N,C], labels, metrics -> diff? [N,C] to the one-hot label; the same
 *   mse_grad           diff, scalars, scaler? -> dy, times loss_scale
 *   cast               x -> y, the same numbers rounded to another type
 *
 *   control_pack    metrics, scalars -> control F32 [CONTROL_LEN] (op/control.h)
 *   grad_check      grad F32 [n] -> F64 [2]: sum of squares, 1 if any is not finite (fixed blocks)
 *   sgd             param, grad, momentum?, check, control, scalars, copy?, scaler? -> param,
 *                   momentum, copy (in place)
 *   commit          shadow, check, control, scalars -> state, if the step is applied
 *   loss_scale      scaler, check, control -> scaler (in place): the next step's
 *   seal            clean, results, check, control, scalars, metrics, waits, scaler? -> clean,
 *                   results (in place): for the host, and for the step queued behind (op/seal.h)
 *
 * Threads: the table is constant. */
#ifndef OP_OP_H
#define OP_OP_H

#include "base/err.h"
#include "ir/graph.h"

#include "op/op_list.h" /* generated: OP_LIST(X) with X(name) for each operator */

enum op {
#define X(name) OP_##name,
    OP_LIST(X)
#undef X
        OP_COUNT
};

enum {
    OP_INPLACE = 1, /* out[0] may share the memory of in[inplace_in] when that dies here */
    OP_ALIAS = 2,   /* out[0] is in[0] under another shape: no kernel, no memory */
    OP_ENGINE = 4,  /* run by the engine between kernels (a collective): no kernel */
    OP_ROWS = 8,    /* with batch 0 not run at all; outputs that are not empty are then zeroed */
    OP_EFFECT = 16, /* writes an input (metrics): kept although nobody uses its outputs */
    OP_LOSS = 32,   /* differentiation starts here */
};

struct op_def {
    const char *name;
    int n_in, n_out; /* at most; optional ones included */
    unsigned flags;
    unsigned optional_in, optional_out; /* bit i: in[i], out[i] may be NO_VALUE */
    int inplace_in;                     /* OP_INPLACE only */
    int update[NODE_MAX_OUT];           /* 1 + i: this output is in[i], overwritten; 0: it is not */
    /* Bit i: in[i], out[i] has the node's element type; an output that may also be F32. */
    unsigned typed_in, typed_out, wide_out;
    unsigned wide_in; /* an input that may be F32 or the node's type */
    const char *in_name[NODE_MAX_IN], *out_name[NODE_MAX_OUT];

    /* Check the inputs and say dtype and shape of the outputs (op_out); outputs left alone do not
     * exist with these attributes. */
    int (*infer)(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err);

    /* Append the nodes that give the gradient.  n is a copy.  dout[i]: gradient of out[i] or
     * NO_VALUE.  want[i]: whether in[i]'s gradient is needed; set din[i] (left NO_VALUE: zero; may
     * be dout[0] itself).  The gradient of in[i] is written to op_grad_out(g, n->in[i]).
     * NULL: not differentiable (gradient and step operators). */
    int (*grad)(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err);
};

const struct op_def *op_get(int op); /* an enum op */

/* The node's element type: of its first input that has it, else of its output; F32 if none does. */
enum dtype op_type(const struct graph *g, const struct node *n);

/* Append a node; its op's infer gives shapes and dtypes of the outputs, which become new
 * VALUE_TEMPs named NAME.out (.out1 ...), unless out[] names a value already (>= 0; shape and dtype
 * are then checked) or refuses one (NODE_NO_OUT).  out NULL: all new.  An output that updates an
 * input has that input's id.  out[] (room for NODE_MAX_OUT or the op's n_out) holds the ids
 * afterwards, NO_VALUE for absent ones.  attr NULL: all zero.
 * Fails with ERR_CONFIG when shapes do not fit: which node, seen, wanted. */
enum { NODE_NEW_OUT = -1, NODE_NO_OUT = -2 };
int graph_node(struct graph *g, enum op op, const union node_attr *attr, const int *in, int n_in,
               int *out, const char *name, struct err *err);

/* Whether a node, after a rewrite, still has the inputs and output shapes its op wants. */
int graph_check_node(const struct graph *g, const struct node *n, struct err *err);

/* One line, with shapes: for program_print. */
struct buf;
void node_print(const struct graph *g, const struct node *n, struct buf *out);

#define X(name) extern const struct op_def op_##name;
OP_LIST(X)
#undef X

#endif
