/* op - the table of operators.
 *
 * One file per family: op/NAME.c says what shapes an operator takes and gives, and appends its
 * gradient as more nodes.  The kernels are backend/cpu/NAME.c (and backend/cuda/NAME.cu).  The list
 * below is generated from op/meson.build: a word there without a file, a definition, a kernel or a
 * test case fails the build or the test op/coverage.
 *
 * op/meson.build gives each operator its signature: the names of its inputs and outputs, their
 * order, and which may be absent (a kernel then gets NULL).  Shapes and exact semantics stand on
 * top of op/NAME.c, in the same words: "x [N,C], w [K,C], b? [K] -> y [N,K]".
 *
 * Legend: N batch, H W image, C channels in, K channels out, R S filter, [..] any shape; all F32
 * unless said.  Reference for semantics: PyTorch's function of the same name, in logical order.
 *
 * Types: a node has one element type, F32, BF16 or F16, which is that of its activations, their
 * gradients, and the weights of conv2d, linear and bias (typed_in, typed_out).  Sums are float32 or
 * better, and results are rounded once, at the end.  Gradients of parameters are F32 or of the
 * node's type, as wanted (wide_out).  Everything else is F32 in any case: parameters of norms,
 * statistics, prob and diff of the losses, the optimizer's own state.
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
    OP_INPLACE = 1, /* out[0] may share the memory of in[inplace_in] when that dies here */
    OP_ALIAS = 2,   /* out[0] is in[0] under another shape: no kernel, no memory */
    OP_ENGINE = 4,  /* run by the engine between kernels (a collective): no kernel */
    OP_ROWS = 8,    /* with batch 0 not run at all; outputs that are not empty are then zeroed */
    OP_EFFECT = 16, /* writes an input (metrics): kept although nobody uses its outputs */
    OP_LOSS = 32,   /* differentiation starts here */
};

struct op_def {
    /* Given by OP_SIGNATURE(name), from op/meson.build. */
    const char *name;
    int n_in, n_out; /* at most; optional ones included */
    const char *in_name[NODE_MAX_IN], *out_name[NODE_MAX_OUT];
    unsigned optional_in, optional_out; /* bit i: in[i], out[i] may be NO_VALUE */
    int update[NODE_MAX_OUT];           /* 1 + i: this output is in[i], overwritten; 0: it is not */

    /* The rest is said by op/NAME.c. */
    unsigned flags;
    int inplace_in; /* OP_INPLACE only */
    /* Bit i: in[i], out[i] has the node's element type; an output that may also be F32. */
    unsigned typed_in, typed_out, wide_out;
    unsigned wide_in; /* an input that may be F32 or the node's type */

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
