/* onnx_impl - what the translation of ONNX's operators is made of.
 *
 * A row's function reads the node by onnx_in, onnx_int and their like, names the arguments of a
 * node of PyTorch by onnx_put_value and its like, and makes it by onnx_make.  A node whose tensors
 * are all constants is computed at once and is not part of the network.  After a failure all
 * functions do nothing and give harmless values.
 *
 * Threads: one at a time, for each struct. */
#ifndef IMPORT_ONNX_IMPL_H
#define IMPORT_ONNX_IMPL_H

#include <jansson.h>

#include "import/fold.h"
#include "import/onnx.h"
#include "onnx.pb-c.h"

#define ONNX_MAX_ELEMENTS ((int64_t)1 << 40) /* of a tensor */

enum { ONNX_MAX_ARGS = 12, ONNX_FIRST_OPSET = 13, ONNX_LAST_OPSET = 24 };

struct onnx_file {
    char *path;
    Onnx__ModelProto *model;
    json_t *initializers; /* name -> index */
};

/* The facts about a value beside its type and shape. */
struct onnx_known {
    const Onnx__TensorProto *init; /* NULL: a node or the user makes it */
    int is_constant;               /* init's elements are no parameter */
    int stands_for;                /* the value that nodes read in its place, or IMPORT_NO_VALUE */
};

struct onnx {
    const struct onnx_file *file;
    struct import_network *net;
    struct err *err;
    int rc;
    int64_t batch; /* in the place of one without a number */
    int has_batch; /* 1: there is one */
    int opset;
    const Onnx__NodeProto *node; /* being translated */
    const char *module;
    json_t *names;            /* of the file, to values */
    json_t *unmade;           /* names of outputs that their node does not give, to its operator */
    json_t *sequences;        /* names of lists of values, to arrays of them */
    json_t *buffers;          /* initializers that PyTorch's exporter calls buffers, '.' as '_' */
    struct onnx_known *known; /* [values] */
    struct fold_host fold;    /* value[values]: the constants */
    struct arena memory;      /* of this reading alone */
    int room_values, room_nodes, room_tensors;
    int64_t content_bytes; /* of constants that were read */
    struct import_arg arg[ONNX_MAX_ARGS];
    int n_args, n_made; /* n_made: values of this node */
};

struct onnx_op {
    const char *name; /* of the default domain */
    void (*make)(struct onnx *o, const struct onnx_op *op);
    const char *target; /* of PyTorch, where the function serves several */
    int least;          /* inputs that it must have */
    int since;          /* opset of its first form that is read; 0: all have it */
};

/* The table, ended by a name of NULL, in parts. */
extern const struct onnx_op onnx_math[], onnx_layers[], onnx_norms[], onnx_attention[],
    onnx_choose[], onnx_recurrent[], onnx_resize[], onnx_products[], onnx_views[], onnx_sizes[];
/* All of them, ended by NULL. */
extern const struct onnx_op *const onnx_tables[];

/* "FILE: node conv1 (Conv): ..."  Sets o->rc. */
void onnx_fail(struct onnx *o, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int onnx_failed(const struct onnx *o);

/* ---- onnx_doubt.c ---- */

/* An entry of the node's metadata; "": it has none. */
const char *onnx_file_metadata(const Onnx__NodeProto *n, const char *key);
/* Fails if the exporter says that it folded batch norms. */
void onnx_refuse_folded(struct onnx *o);
void onnx_doubt(const struct onnx_file *f, struct import_network *n); /* sets n->doubt */

/* ---- onnx_tensor.c ---- */

int onnx_type(int32_t data_type); /* an enum import_type; -1: none that is read here */
/* Type, shape and number of elements of t; fails with a message that begins with t's name. */
int onnx_tensor_shape(const Onnx__TensorProto *t, struct import_value *v, int64_t *n,
                      struct err *err);
/* Elements [first, first + n) of t, which lies in the file at path or beside it. */
int onnx_tensor_read(const char *path, const Onnx__TensorProto *t, int64_t first, int64_t n,
                     void *to, struct err *err);

/* ---- onnx_make.c ---- */

const struct import_value *onnx_value(const struct onnx *o, int v);
int onnx_value_new(struct onnx *o, const char *name, enum import_type type, int n_dims,
                   const int64_t *dim);
int onnx_in(struct onnx *o, int i); /* IMPORT_NO_VALUE: it is left out */
void onnx_out(struct onnx *o, int i, int v);

void onnx_put_value(struct onnx *o, const char *name, int v); /* IMPORT_NO_VALUE: None */
void onnx_put_values(struct onnx *o, const char *name, const int *v, int n);
/* A constant of one element becomes a number, where x has as many dimensions. */
void onnx_put_number_or_value(struct onnx *o, const char *name, int v, int x);
void onnx_put_int(struct onnx *o, const char *name, int64_t v);
void onnx_put_flag(struct onnx *o, const char *name, int v);
void onnx_put_ints(struct onnx *o, const char *name, const int64_t *v, int n);
void onnx_put_real(struct onnx *o, const char *name, double v);
void onnx_put_text(struct onnx *o, const char *name, const char *text);
void onnx_put_type(struct onnx *o, const char *name, enum import_type type);
/* The node with the arguments put before; its output. */
int onnx_make(struct onnx *o, const char *target, enum import_type type, int n_dims,
              const int64_t *dim);
int onnx_make_like(struct onnx *o, const char *target, int x);
/* Several outputs along dimension `dim` of x, of the extents part[n]. */
void onnx_make_parts(struct onnx *o, const char *target, int x, int dim, const int64_t *part, int n,
                     int *out);
/* n outputs of three dimensions each. */
void onnx_make_several(struct onnx *o, const char *target, enum import_type type, int n,
                       const int64_t (*dim)[3], int *out);

/* Count n elements that are made for a constant towards the limit of all; < 0: they are too many.
 * It comes before memory is taken for them. */
int onnx_count(struct onnx *o, int64_t n, enum import_type type);

/* Constants that the reader needs. */
const struct host_tensor *onnx_host(struct onnx *o, int v); /* NULL: it is none */
int onnx_host_ints(struct onnx *o, int v, const char *what, int64_t *to, int most);
int onnx_constant(struct onnx *o, enum import_type type, int n_dims, const int64_t *dim,
                  const void *elements);
/* The initializer becomes a buffer; fails if it is a parameter already. */
void onnx_buffer(struct onnx *o, int v);

/* ---- attributes ---- */

const Onnx__AttributeProto *onnx_attr(const struct onnx *o, const char *name);
int64_t onnx_int(const struct onnx *o, const char *name, int64_t def);
double onnx_real(const struct onnx *o, const char *name, double def);
const char *onnx_text(struct onnx *o, const char *name, const char *def);
int onnx_ints(struct onnx *o, const char *name, int64_t *to, int most); /* their number, or -1 */
/* The integers of the attribute, or of input i; their number, or -1. */
int onnx_ints_of(struct onnx *o, const char *name, int i, int64_t *to, int most);
int onnx_axis(struct onnx *o, int64_t axis, int n); /* a dimension of n */
/* The bits of the dimensions (attribute `axes` or input i); all if there are none. */
unsigned onnx_axes(struct onnx *o, int i, int n, int *is_given);

/* ---- shapes ---- */

/* The shape in which a and b meet; returns its dimensions. */
int onnx_meet(struct onnx *o, int a, int b, int64_t *dim);
int onnx_reshape(struct onnx *o, int x, const int64_t *dim, int n);
int onnx_expand(struct onnx *o, int x, const int64_t *dim, int n);
int onnx_permute(struct onnx *o, int x, const int64_t *order);
int onnx_slice(struct onnx *o, int x, int dim, int64_t start, int64_t stop, int64_t step);
int onnx_binary(struct onnx *o, const char *target, int a, int b);

/* ---- onnx_parts.c ---- */

int onnx_affine(struct onnx *o, int x, double a, double b); /* a x + b */
int onnx_cast(struct onnx *o, int x, enum import_type to);
int onnx_unary(struct onnx *o, const char *target, int x);
/* A target with arguments self and other, of two values. */
int onnx_pair(struct onnx *o, const char *target, int a, int b);
/* A reduction over the dimensions whose bits are set; "norm1" and "norm2" are those of vectors. */
int onnx_reduce(struct onnx *o, const char *target, int x, unsigned dims, int keep);
/* The constant from, from + step, ... of n numbers; type is I64 or F32. */
int onnx_vector(struct onnx *o, int64_t n, int64_t from, int64_t step, enum import_type type);
/* The elements of x along dim that the constant vector `index` names. */
int onnx_pick(struct onnx *o, int x, int dim, int index);
/* x with copies of its elements around it: modes reflect, edge and wrap (onnx_ops_resize.c). */
int onnx_pad_by_copies(struct onnx *o, int x, int d, const int64_t pad[2], const char *mode);
int onnx_flip(struct onnx *o, int x, int dim);               /* in the opposite order along dim */
int onnx_join(struct onnx *o, int dim, const int *x, int n); /* one behind another */
int onnx_matmul(struct onnx *o, int a, int b); /* of as many dimensions, that fit each other */

#endif
