/* op - the table of operators: for each its operands, its shapes and its gradient.
 *
 * Each family of operators has one file.  op/NAME.c checks the shapes of the inputs, gives those of
 * the outputs, and appends the gradient as more nodes.  The kernels are in backend/cpu/NAME.c and
 * backend/cuda/NAME.cu.  Optimizers that are rules have one file for all of this (op/rule.h).  The
 * list is generated from op/meson.build: a word there without a file, a definition, a kernel or a
 * test case fails the build or the test op/coverage.
 *
 * op/meson.build gives each operator its signature: the names of its inputs and outputs, their
 * order, and which of them may be absent (a kernel then gets NULL).  Shapes and exact semantics
 * stand at the top of op/NAME.c, by the same names: "x [N,C], w [K,C], b? [K] -> y [N,K]".
 *
 * Legend: N batch; H, W image; C input channels; K output channels; R, S filter; [..] any shape.
 * Operands are F32 where no other type is named.  The semantics are those of PyTorch's function of
 * the same name, with dimensions in their logical order.
 *
 * Types: a node has one element type, F32, BF16 or F16.  It is the type of the node's activations,
 * of their gradients, and of the weights of conv2d, linear and bias (typed_in, typed_out).  Sums
 * are made in float32 or wider, and results are rounded once, at the end.  Gradients of parameters
 * are F32 or of the node's type, as the graph wants them (wide_out).  Parameters of norms,
 * statistics, prob and diff of the losses and the optimizer's slots are F32 whatever the node's
 * type.
 *
 * Sums: any node may add a new output of real type to what the output's memory holds, instead of
 * overwriting it (node.adds).  Gradients of parameters are added up in this way, in the order of
 * the nodes.  An operator's own text says what it writes without that.
 *
 * Threads: the table is constant. */
#ifndef OP_OP_H
#define OP_OP_H

#include "base/err.h"
#include "ir/graph.h"

#include "op/op_list.h" /* generated: OP_LIST(X), X(name) for each operator; operands' numbers */

enum op {
#define X(name) OP_##name,
    OP_LIST(X)
#undef X
        OP_COUNT
};

enum {
    OP_INPLACE = 1, /* out[0] may share in[inplace_in]'s memory if no later node reads that input */
    OP_ALIAS = 2,   /* out[0] is in[0] under another shape: no kernel, no memory */
    OP_ENGINE = 4,  /* run by the engine between kernels (a collective): no kernel */
    OP_ROWS = 8,    /* does not run with batch 0: outputs that are not empty are then zeroed */
    OP_EFFECT = 16, /* writes an input (metrics): kept although no node uses its outputs */
    OP_LOSS = 32,   /* differentiation starts here */
    OP_CHEAP = 64,  /* takes a few operations an element, so it may run twice to save memory */
};

struct op_def {
    /* Given by OP_SIGNATURE(name), from op/meson.build. */
    const char *name;
    int n_in, n_out; /* optional operands included */
    const char *in_name[NODE_MAX_IN], *out_name[NODE_MAX_OUT];
    unsigned optional_in, optional_out; /* bit i: in[i], out[i] may be NO_VALUE */
    int update[NODE_MAX_OUT]; /* 1 + i: this output is in[i], overwritten; 0: a new value */

    /* op/NAME.c gives the other members. */
    unsigned flags;
    int inplace_in; /* OP_INPLACE only */
    /* Bit i of typed_*: in[i], out[i] has the node's element type.  Bit i of wide_*: in[i], out[i]
     * has either that type or F32. */
    unsigned typed_in, typed_out, wide_out;
    unsigned wide_in;

    /* Check the inputs and describe dtype and shape of the outputs (op_out).  An output that is not
     * described does not exist with these attributes. */
    int (*infer)(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err);

    /* Append the nodes that compute the gradient.  n is a copy, because g->node may move.
     *   dout[i]  the gradient of out[i], or NO_VALUE
     *   want[i]  1: the gradient of in[i] is needed
     *   din[i]   set to the value that holds in[i]'s gradient; NO_VALUE, as it comes, means zero.
     *            It may be dout[0] itself; a new one is written to op_grad_out(g, n->in[i]).
     * NULL: the operator is not differentiable (gradients, the operators of the update). */
    int (*grad)(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err);
};

const struct op_def *op_get(int op); /* an enum op */

/* The node's element type: that of its first typed input, else of its first typed output, else of
 * its first wide input; F32 if the node has none of these. */
enum dtype op_type(const struct graph *g, const struct node *n);

/* Append a node.  The operator's infer gives shapes and dtypes of the outputs.
 *   attr  NULL: all zero
 *   out   room for the operator's n_out; NULL: every output is new.  Before the call out[i] says
 *         where output i goes: NODE_NEW_OUT makes a VALUE_TEMP named NAME.out (.out1 ...),
 *         NODE_NO_OUT refuses an optional output, an id >= 0 names an existing value, whose shape
 *         and dtype are then checked.  After the call out[i] is the id, NO_VALUE if there is none.
 *         An output that updates an input always has that input's id.
 * Fails with ERR_CONFIG if shapes or types do not fit; the message names the node, the value seen
 * and the value wanted. */
enum { NODE_NEW_OUT = -1, NODE_NO_OUT = -2 };
int graph_node(struct graph *g, enum op op, const union node_attr *attr, const int *in, int n_in,
               int *out, const char *name, struct err *err);

/* Check that a node still has the operands, types and shapes that its operator wants, after a
 * rewrite.  Fails with ERR_CONFIG as graph_node does. */
int graph_check_node(const struct graph *g, const struct node *n, struct err *err);

/* Append the node as one line of text with its operands' shapes, for program_print. */
struct buf;
void node_print(const struct graph *g, const struct node *n, struct buf *out);

#define X(name) extern const struct op_def op_##name;
OP_LIST(X)
#undef X

#endif
