/* network - a foreign network as its exporter wrote it: tensors with names, and nodes in execution
 * order.  Readers of files make it (import/pt2.h), import/lower.h builds the graph from it.
 *
 * A value is what a node reads or writes: a tensor, or one integer (the symbolic sizes of an
 * export).  It is named by its index.  In-place operators stand as the file has them: a node whose
 * target ends in '_' changes its first argument, and its output is a value of its own.  Nested
 * graphs are inlined by the reader.
 *
 * Targets are PyTorch's names without their namespace: "conv2d.default", "add_.Tensor",
 * "sym_size.int", "_operator.mul".  Readers of other formats translate their operators to them.
 *
 * Life:    import_network_new -> a reader fills it -> import_network_free.  All strings and arrays
 *          live in its arena; it is not changed after a reader made it.
 * Threads: any may read. */
#ifndef IMPORT_NETWORK_H
#define IMPORT_NETWORK_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

enum {
    IMPORT_MAX_DIMS = 8,
    IMPORT_MAX_NODES = 200000,
    IMPORT_MAX_VALUES = 400000,
    IMPORT_MAX_TENSORS = 100000,
    IMPORT_NO_VALUE = -1,
};

/* Element types, by the names of messages. */
#define IMPORT_TYPE_LIST(X)   \
    X(IMPORT_F32, 4, "F32")   \
    X(IMPORT_F64, 8, "F64")   \
    X(IMPORT_F16, 2, "F16")   \
    X(IMPORT_BF16, 2, "BF16") \
    X(IMPORT_I64, 8, "I64")   \
    X(IMPORT_I32, 4, "I32")   \
    X(IMPORT_I16, 2, "I16")   \
    X(IMPORT_I8, 1, "I8")     \
    X(IMPORT_U8, 1, "U8")     \
    X(IMPORT_BOOL, 1, "BOOL")

enum import_type {
#define X(name, n_bytes, text) name,
    IMPORT_TYPE_LIST(X)
#undef X
        IMPORT_TYPE_COUNT
};

/* An integer of the file: a number, or the integer value `value` (a symbolic size). */
struct import_int {
    int64_t number; /* with a value: the number that it had when the network was exported */
    int value;      /* IMPORT_NO_VALUE: it is a plain number */
};

/* A value's type and shape at export.  An extent that is symbolic has the symbol's index; extents
 * without a symbol are constants of the export, which may still stand for the batch. */
struct import_value {
    const char *name; /* "relu_3" */
    int is_int;       /* 1: one integer; type and shape are not set */
    enum import_type type;
    int n_dims;
    int64_t dim[IMPORT_MAX_DIMS]; /* at export */
    int symbol[IMPORT_MAX_DIMS];  /* of the network's symbols; -1: none */
    int64_t hint;                 /* is_int: the number at export */
    int tensor;                   /* of the network's tensors; -1: made by a node, or an input */
};

enum import_arg_kind {
    IMPORT_NONE,   /* None, or what has no meaning here: device, layout, memory format */
    IMPORT_INT,    /* integer: one import_int in `ints` */
    IMPORT_INTS,   /* list of n integers */
    IMPORT_REAL,   /* number: one in `reals` */
    IMPORT_REALS,  /* list of n numbers */
    IMPORT_FLAG,   /* flag: one in `ints`, its number is 0 or 1 */
    IMPORT_FLAGS,  /* list of n flags */
    IMPORT_TEXT,   /* string: `text` */
    IMPORT_VALUE,  /* a tensor: one in `values` */
    IMPORT_VALUES, /* list of n tensors; IMPORT_NO_VALUE: None in the list */
    IMPORT_DTYPE,  /* an element type: the number of `ints` is an enum import_type */
};

struct import_arg {
    const char *name; /* "stride"; of the operator's schema */
    int is_keyword;   /* 1: by name in the file; 0: by place.  Defaults at the end are left out */
    enum import_arg_kind kind;
    int n;
    const struct import_int *ints;
    const double *reals;
    const int *values;
    const char *text;
};

struct import_node {
    const char *target; /* "conv2d.default" */
    const char *module; /* "layer1.0.conv1": the innermost module of nn_module_stack; "" if none */
    const char *name;   /* of the node in the file, or of its first output; for messages */
    int n_args, n_out;
    const struct import_arg *arg;
    const int *out;  /* values; IMPORT_NO_VALUE: an output that is None */
    int no_gradient; /* 1: stands in a no_grad block */
};

enum import_role {
    IMPORT_PARAMETER,
    IMPORT_BUFFER,
    IMPORT_CONSTANT, /* not part of the state dict: lifted numbers, buffers that are not persistent
                      */
};

/* A parameter, buffer or constant, and where the file has its elements.  Elements are those of a
 * storage from `offset` on, by `stride`, both counted in elements. */
struct import_tensor {
    const char *name; /* in the state dict: "layer1.0.conv1.weight" */
    enum import_role role;
    int requires_grad;
    enum import_type type;
    int n_dims;
    int64_t dim[IMPORT_MAX_DIMS], stride[IMPORT_MAX_DIMS], offset;
    int same_as;       /* tied: the tensor of a smaller index with the same elements; -1: none */
    const char *bytes; /* its elements, dense and row-major, little-endian, in the arena: of a
                          CONSTANT, and of a BUFFER other than a batch norm's; or NULL */
    int is_even;       /* 1: a PARAMETER whose elements are all `even` in the file */
    double even;
    size_t file_at, file_bytes; /* of its storage in the file; not in a network that was unpacked */
};

/* A size that the export left open, or one that follows from such a size. */
struct import_symbol {
    const char *name;    /* "s77", "2*s77+1" */
    int64_t hint;        /* at export */
    int64_t min, max;    /* max INT64_MAX: none */
    int of;              /* the symbol of a smaller index that it follows from; -1: it is free */
    int64_t scale, plus; /* it is scale * `of` + plus; a free one has 1 and 0 */
};

struct import_port {
    const char *name; /* of the input, or of the output: "input_ids", "logits"; "" if unnamed */
    int value;
};

struct import_network {
    struct arena arena;
    const char *path;   /* of the file, for messages */
    const char *writer; /* "torch 2.15.0" */
    const char *doubt;  /* about what the exporter did, as a sentence; NULL: none, or unpacked */
    int is_eval;        /* 1: exported in evaluation mode, as far as its nodes tell */
    const char *config; /* of a folder: the config.json of checkpoints; NULL: of another file */
    double init_std;    /* of a folder: that of weights which model.init: random draws; or 0 */
    int packs;          /* 1: causal attention alone joins the places of a sample, and positions are
                         * relative, or found by import/recognise.c: packed documents can be kept
                         * apart (data.pack) */

    struct import_value *value;
    struct import_node *node;
    struct import_tensor *tensor;
    struct import_symbol *symbol;
    struct import_port *input, *output; /* users' inputs and outputs alone */
    int n_values, n_nodes, n_tensors, n_symbols, n_inputs, n_outputs;
};

struct import_network *import_network_new(const char *path);
void import_network_free(struct import_network *n); /* NULL is fine */

size_t import_type_size(enum import_type t);
const char *import_type_name(enum import_type t);

/* Check what all readers promise: indices are in range, shapes and counts within bounds, and each
 * value is made once, before any node reads it.  Fails with ERR_CORRUPT. */
int import_network_check(const struct import_network *n, struct err *err);

int64_t import_tensor_elements(const struct import_tensor *t); /* of a tensor that was checked */

/* The argument of this name, or the one at this place if it was given by place; NULL if the file
 * leaves it out. */
const struct import_arg *import_arg_find(const struct import_node *n, const char *name, int place);

/* The ends of a slice of n elements as PyTorch and Python take them: negative ones count from the
 * back, and afterwards 0 <= *start <= *stop <= n. */
void import_slice_ends(int64_t n, int64_t *start, int64_t *stop);

#endif
