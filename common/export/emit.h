/* emit - the state of an export, and what the operators' functions are made of.
 *
 * Each operator has a function (table in emit.c), which reads its inputs by emit_in, appends nodes
 * by emit_op, and sets its outputs by emit_put.  After a failure these do nothing and give harmless
 * names, so a function is a plain list of calls.
 *
 * Batch: the graph was built for two numbers of samples.  An extent that differs is a multiple of
 * the batch, and the model has no number for it.
 *
 * Images: our graph has [N,..,C], ONNX [N,C,..].  A value is a tensor of the model in one form or
 * in both; an operator takes its inputs in the form that it wants, and a Transpose is made where a
 * value lacks the form.  So images stay [N,C,H,W] from layer to layer.
 *
 * Types: whole numbers are INT64, real ones FLOAT.  Truth is FLOAT 0 or 1, as in our graph.
 *
 * Threads: one at a time. */
#ifndef EXPORT_EMIT_H
#define EXPORT_EMIT_H

#include "export/onnx.h"
#include "op/op.h"

enum form {
    FORM_PLAIN, /* the dimensions as in our graph */
    FORM_FIRST, /* three or more, the last of which is the second one here: channels */
    FORM_COUNT
};

struct emitted {
    const char *name[FORM_COUNT]; /* NULL: not in this form */
    enum form made;               /* the form that it had first */
    enum onnx_type type;
    int has_bias; /* 1: of a bias node, which its producer has taken in */
    int is_given; /* 1: the user's input, or a view of it */
};

struct emit {
    struct onnx *o;
    const struct graph *g, *other; /* for some samples, and for one more */
    const struct node *node;       /* being emitted */
    struct emitted *value;         /* of the graph's values */
    int *uses;                     /* [values]: how many operands and outputs it is */
    const char *samples;           /* their input's name */
    const char *batch;             /* INT64 [1]; NULL: not made yet */
    int n_made;                    /* tensors, for their names */
    int rc;                        /* 0, or the first failure */
    struct err *err;
};

typedef void emit_function(struct emit *e, const struct node *n);

emit_function emit_activation, emit_add, emit_bias, emit_elementwise, emit_reduce, emit_matmul,
    emit_softmax, emit_cast, emit_integers;
emit_function emit_reshape, emit_permute, emit_slice, emit_slice_grad, emit_expand, emit_concat,
    emit_flatten, emit_unflatten;
emit_function emit_conv2d, emit_conv2d_grad_x, emit_pool2d, emit_linear;
emit_function emit_batch_norm, emit_layer_norm, emit_rms_norm, emit_group_norm, emit_rotary;
emit_function emit_attention, emit_embedding, emit_class_token, emit_recurrent;

/* "node conv1 (conv2d): ..."  Sets e->rc. */
void emit_fail(struct emit *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- nodes ---- */

/* Attributes of the next node.  Get its inputs first: that may make a node, too. */
void emit_int(struct emit *e, const char *name, int64_t v);
void emit_ints(struct emit *e, const char *name, const int64_t *v, int n);
void emit_float(struct emit *e, const char *name, double v);

/* Append a node; the name of its output. */
const char *emit_op(struct emit *e, const char *op, const char *const *in, int n_in);
/* The same with several outputs, whose names out[n_out] gets. */
void emit_outputs(struct emit *e, const char *op, const char *const *in, int n_in, const char **out,
                  int n_out);
const char *emit_1(struct emit *e, const char *op, const char *a);
const char *emit_2(struct emit *e, const char *op, const char *a, const char *b);
const char *emit_3(struct emit *e, const char *op, const char *a, const char *b, const char *c);

const char *emit_number(struct emit *e, double v);                              /* a FLOAT [] */
const char *emit_list(struct emit *e, const int64_t *v, int n);                 /* INT64 [n] */
const char *emit_floats(struct emit *e, const float *v, const struct shape *s); /* FLOAT */

/* `x` + v and x * v, and x where that changes nothing. */
const char *emit_plus(struct emit *e, const char *x, double v);
const char *emit_times(struct emit *e, const char *x, double v);
const char *emit_cast_to(struct emit *e, const char *x, enum onnx_type to);

/* x in another shape; an extent of -1 is what is left. */
const char *emit_to_shape(struct emit *e, const char *x, const int64_t *dim, int n);
/* x with its dimensions in this order; x where that changes nothing. */
const char *emit_order(struct emit *e, const char *x, const int64_t *order, int n);
const char *emit_batch(struct emit *e); /* the number of samples, INT64 [1] */

/* ---- values ---- */

const struct shape *emit_shape(const struct emit *e, int value); /* for the lesser batch */
/* How much extent d grows by with a sample; 0: it does not. */
int64_t emit_growth(const struct emit *e, int value, int d);
/* The value's extents, -1 for one that grows; fails if more than one does. */
void emit_extents(struct emit *e, int value, int64_t *dim);

const char *emit_get(struct emit *e, int value, enum form form);
/* Input i of the node in its plain form; NULL: it is absent. */
const char *emit_in(struct emit *e, int i);
const char *emit_in_form(struct emit *e, int i, enum form form);
/* The form in which input i was made. */
enum form emit_made(const struct emit *e, int i);
/* Dimension d of a value of n dimensions, in this form. */
int emit_at(enum form form, int d, int n);
/* The input as it is broadcast against values of n dimensions in this form. */
const char *emit_spread(struct emit *e, int i, int n, enum form form);

/* The bias that the next node adds to the node's output, which nothing else reads: the caller takes
 * it in, and that node then is none.  NULL: there is none. */
const char *emit_bias_behind(struct emit *e);

/* The linear node that makes the input of a recurrent one; NULL: another node does. */
const struct node *emit_product_of(const struct graph *g, const struct node *n);

/* Output 0 of the node. */
void emit_put(struct emit *e, const char *name, enum form form);

/* The graph's values `outputs` and all that they need become nodes of e->o; e->value has their
 * names.  Fails with ERR_UNSUPPORTED, which names each operator that ONNX lacks with its count. */
int emit_graph(struct emit *e, const int *outputs, int n);

#endif
