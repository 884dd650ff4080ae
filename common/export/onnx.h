/* onnx - a model in the format of ONNX, written part by part.
 *
 * The format is a message of protobuf, ModelProto in proto/onnx.proto.  Only the weights are large,
 * and these go from the checkpoint to the file piece by piece.  ONNX allows no file above 2 GiB:
 * where the weights have more than ONNX_MOST_INLINE bytes, they go to a second file,
 * FILE.onnx.data, which must stay beside the first.
 *
 * Operators are those of opset 17, the first that has LayerNormalization, and the file is of IR
 * version 8, which belongs to that opset: onnxruntime reads both from 1.12 on.
 *
 * Life:    onnx_init -> onnx_input, onnx_tensor, onnx_node ... -> onnx_write -> onnx_fini.
 * Threads: one at a time.
 * Errors:  ERR_IO with the path; ERR_CONFIG: another file is there. */
#ifndef EXPORT_ONNX_H
#define EXPORT_ONNX_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "ckpt/safetensors.h"
#include "tensor/shape.h"

#define ONNX_MOST_INLINE ((int64_t)1 << 30)

enum { ONNX_OPSET = 17, ONNX_IR = 8, ONNX_LEAST_ASIDE = 1024 };

/* TensorProto.DataType. */
enum onnx_type { ONNX_FLOAT = 1, ONNX_INT32 = 6, ONNX_INT64 = 7, ONNX_BOOL = 9 };

/* An extent of an input or output: a number, or a multiple of the number of samples. */
struct onnx_dim {
    int64_t number; /* 0 with `batches` */
    int64_t batches;
};

struct onnx_tensor {
    const char *name;
    enum onnx_type type;
    struct shape shape;
    size_t n_bytes;
    const void *data;             /* NULL: in the checkpoint */
    const struct st_tensor *from; /* of `weights` */
    int64_t at;                   /* in the second file; -1: in the first one */
};

struct onnx {
    struct arena arena; /* strings and contents */
    const struct st_file *weights;
    struct buf nodes, inputs, outputs, metadata; /* fields of their messages, ready to be written */
    struct buf attributes;                       /* of the next node */
    struct onnx_tensor *tensor;
    int n_tensors, cap_tensors, n_nodes;
};

void onnx_init(struct onnx *o, const struct st_file *weights); /* borrowed */
void onnx_fini(struct onnx *o);

/* Attributes of the node that the next call of onnx_node appends. */
void onnx_attr_int(struct onnx *o, const char *name, int64_t v);
void onnx_attr_ints(struct onnx *o, const char *name, const int64_t *v, int n);
void onnx_attr_float(struct onnx *o, const char *name, float v);

void onnx_attr_text(struct onnx *o, const char *name, const char *v);
void onnx_attr_texts(struct onnx *o, const char *name, const char *v); /* a list of one */

/* Append a node.  An input that is NULL is absent. */
void onnx_node(struct onnx *o, const char *op, const char *const *in, int n_in,
               const char *const *out, int n_out);

/* An input or output of the graph. */
void onnx_input(struct onnx *o, const char *name, enum onnx_type type, const struct onnx_dim *dim,
                int n);
void onnx_output(struct onnx *o, const char *name, const struct onnx_dim *dim, int n);

void onnx_metadata(struct onnx *o, const char *key, const char *value);

/* Append a tensor, whose name and content the model keeps. */
void onnx_add_tensor(struct onnx *o, const struct onnx_tensor *t);

/* Write the model to the new file `path`; its second file, if it needs one, is PATH.data.
 * most_inline: ONNX_MOST_INLINE but in tests.  Both are there whole or not at all. */
int onnx_write(struct onnx *o, const char *path, int64_t most_inline, struct err *err);

#endif
