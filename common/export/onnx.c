/* Protobuf's encoding: a message is a row of fields, each a tag (number * 8 + wire type) and a
 * varint, 4 bytes, or a length with so many bytes.  (protobuf.dev, "Encoding".)  A message within
 * another is made first, because its length comes before it.  protobuf-c, which reads such files
 * elsewhere, would want all weights in memory to write them. */
#include "export/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "export/new_file.h"

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* Numbers of the fields, by message: proto/onnx.proto. */
enum {
    MODEL_IR_VERSION = 1,
    MODEL_PRODUCER_NAME = 2,
    MODEL_PRODUCER_VERSION = 3,
    MODEL_GRAPH = 7,
    MODEL_OPSET_IMPORT = 8,
    MODEL_METADATA_PROPS = 14,
    OPSET_VERSION = 2,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    GRAPH_NODE = 1,
    GRAPH_NAME = 2,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_NAME = 3,
    NODE_OP_TYPE = 4,
    NODE_ATTRIBUTE = 5,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_F = 2,
    ATTRIBUTE_I = 3,
    ATTRIBUTE_S = 4,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_STRINGS = 9,
    ATTRIBUTE_TYPE = 20,
    TENSOR_DIMS = 1,
    TENSOR_DATA_TYPE = 2,
    TENSOR_NAME = 8,
    TENSOR_RAW_DATA = 9,
    TENSOR_EXTERNAL_DATA = 13,
    TENSOR_DATA_LOCATION = 14,
    VALUE_NAME = 1,
    VALUE_TYPE = 2,
    TYPE_TENSOR = 1,
    TYPE_ELEM = 1,
    TYPE_SHAPE = 2,
    SHAPE_DIM = 1,
    DIM_VALUE = 1,
    DIM_PARAM = 2,
};

/* AttributeProto.AttributeType; TensorProto.DataLocation. */
enum {
    TYPE_OF_FLOAT = 1,
    TYPE_OF_INT = 2,
    TYPE_OF_TEXT = 3,
    TYPE_OF_INTS = 7,
    TYPE_OF_TEXTS = 8,
    LOCATION_EXTERNAL = 1
};

/* Readers map pages of the second file, where a tensor begins at one. */
enum { DATA_ALIGN = 4096, COPY_BYTES = 1 << 20 };

void onnx_init(struct onnx *o, const struct st_file *weights)
{
    *o = (struct onnx){.weights = weights};
}

void onnx_fini(struct onnx *o)
{
    arena_fini(&o->arena);
    buf_fini(&o->nodes);
    buf_fini(&o->inputs);
    buf_fini(&o->outputs);
    buf_fini(&o->metadata);
    buf_fini(&o->attributes);
    free(o->tensor);
}

/* ---- the encoding ---- */

static void wire_varint(struct buf *b, uint64_t v)
{
    uint8_t byte;

    do {
        byte = (uint8_t)(v & 0x7f) | (uint8_t)(v > 0x7f ? 0x80 : 0);
        buf_append(b, &byte, 1);
        v >>= 7;
    } while (v);
}

static void wire_tag(struct buf *b, int field, int wire)
{
    wire_varint(b, (uint64_t)field << 3 | (uint64_t)wire);
}

static void wire_number(struct buf *b, int field, int64_t v)
{
    wire_tag(b, field, WIRE_VARINT);
    wire_varint(b, (uint64_t)v);
}

static void wire_bytes(struct buf *b, int field, const void *data, size_t n)
{
    wire_tag(b, field, WIRE_BYTES);
    wire_varint(b, n);
    buf_append(b, data, n);
}

static void wire_text(struct buf *b, int field, const char *text)
{
    wire_bytes(b, field, text, strlen(text));
}

/* Append the message and empty it. */
static void wire_message(struct buf *b, int field, struct buf *message)
{
    wire_bytes(b, field, message->data, message->len);
    buf_fini(message);
    buf_init(message);
}

/* ---- parts of the model ---- */

/* Begin an attribute; end_attribute puts it into the node. */
static struct buf begin_attribute(const char *name, int type)
{
    struct buf b = {0};

    wire_text(&b, ATTRIBUTE_NAME, name);
    wire_number(&b, ATTRIBUTE_TYPE, type);
    return b;
}

static void end_attribute(struct onnx *o, struct buf *b)
{
    wire_message(&o->attributes, NODE_ATTRIBUTE, b);
}

void onnx_attr_int(struct onnx *o, const char *name, int64_t v)
{
    struct buf b = begin_attribute(name, TYPE_OF_INT);

    wire_number(&b, ATTRIBUTE_I, v);
    end_attribute(o, &b);
}

void onnx_attr_ints(struct onnx *o, const char *name, const int64_t *v, int n)
{
    struct buf b = begin_attribute(name, TYPE_OF_INTS);

    for (int i = 0; i < n; i++)
        wire_number(&b, ATTRIBUTE_INTS, v[i]);
    end_attribute(o, &b);
}

void onnx_attr_float(struct onnx *o, const char *name, float v)
{
    struct buf b = begin_attribute(name, TYPE_OF_FLOAT);

    wire_tag(&b, ATTRIBUTE_F, WIRE_FIXED32);
    buf_append(&b, &v, sizeof v); /* little-endian, as all machines here */
    end_attribute(o, &b);
}

void onnx_attr_text(struct onnx *o, const char *name, const char *v)
{
    struct buf b = begin_attribute(name, TYPE_OF_TEXT);

    wire_text(&b, ATTRIBUTE_S, v);
    end_attribute(o, &b);
}

void onnx_attr_texts(struct onnx *o, const char *name, const char *v)
{
    struct buf b = begin_attribute(name, TYPE_OF_TEXTS);

    wire_text(&b, ATTRIBUTE_STRINGS, v);
    end_attribute(o, &b);
}

void onnx_node(struct onnx *o, const char *op, const char *const *in, int n_in,
               const char *const *out, int n_out)
{
    struct buf b = {0};

    for (int i = 0; i < n_in; i++)
        wire_text(&b, NODE_INPUT, in[i] ? in[i] : "");
    for (int i = 0; i < n_out; i++)
        wire_text(&b, NODE_OUTPUT, out[i]);
    wire_text(&b, NODE_NAME, out[0]);
    wire_text(&b, NODE_OP_TYPE, op);
    buf_append(&b, o->attributes.data, o->attributes.len);
    buf_clear(&o->attributes);
    wire_message(&o->nodes, GRAPH_NODE, &b);
    o->n_nodes++;
}

/* A message ValueInfoProto. */
static void put_port(struct buf *to, int field, const char *name, enum onnx_type type,
                     const struct onnx_dim *dim, int n)
{
    struct buf port = {0}, tensor = {0}, of_type = {0}, shape = {0}, one = {0};
    char text[40];

    for (int d = 0; d < n; d++) {
        snprintf(text, sizeof text, dim[d].batches == 1 ? "batch" : "%lld*batch",
                 (long long)dim[d].batches);
        if (dim[d].batches)
            wire_text(&one, DIM_PARAM, text);
        else
            wire_number(&one, DIM_VALUE, dim[d].number);
        wire_message(&shape, SHAPE_DIM, &one);
    }
    wire_number(&tensor, TYPE_ELEM, type);
    wire_message(&tensor, TYPE_SHAPE, &shape);
    wire_message(&of_type, TYPE_TENSOR, &tensor);
    wire_text(&port, VALUE_NAME, name);
    wire_message(&port, VALUE_TYPE, &of_type);
    wire_message(to, field, &port);
}

void onnx_input(struct onnx *o, const char *name, enum onnx_type type, const struct onnx_dim *dim,
                int n)
{
    put_port(&o->inputs, GRAPH_INPUT, name, type, dim, n);
}

void onnx_output(struct onnx *o, const char *name, const struct onnx_dim *dim, int n)
{
    put_port(&o->outputs, GRAPH_OUTPUT, name, ONNX_FLOAT, dim, n);
}

/* A message StringStringEntryProto. */
static void put_entry(struct buf *to, int field, const char *key, const char *value)
{
    struct buf b = {0};

    wire_text(&b, ENTRY_KEY, key);
    wire_text(&b, ENTRY_VALUE, value);
    wire_message(to, field, &b);
}

void onnx_metadata(struct onnx *o, const char *key, const char *value)
{
    put_entry(&o->metadata, MODEL_METADATA_PROPS, key, value);
}

void onnx_add_tensor(struct onnx *o, const struct onnx_tensor *t)
{
    if (o->n_tensors == o->cap_tensors) {
        o->cap_tensors = o->cap_tensors ? 2 * o->cap_tensors : 64;
        o->tensor = xrealloc(o->tensor, sizeof *o->tensor * (size_t)o->cap_tensors);
    }
    o->tensor[o->n_tensors] = *t;
    o->tensor[o->n_tensors++].at = -1;
}

/* ---- writing ---- */

static int put_content(const struct onnx *o, const struct onnx_tensor *t, struct new_file *f,
                       struct err *err)
{
    char *piece;
    int rc = 0;

    if (t->data)
        return new_file_put(f, t->data, t->n_bytes, err);
    piece = xmalloc(COPY_BYTES);
    for (size_t at = 0; at < t->n_bytes && rc == 0; at += COPY_BYTES) {
        const size_t n = (size_t)min_i64(COPY_BYTES, (int64_t)(t->n_bytes - at));

        rc = st_read(o->weights, t->from, at, piece, n, err);
        if (rc == 0)
            rc = new_file_put(f, piece, n, err);
    }
    free(piece);
    return rc;
}

/* Give the large tensors their places in the second file. */
static int64_t place_second(struct onnx *o)
{
    int64_t at = 0;

    for (int i = 0; i < o->n_tensors; i++)
        if (o->tensor[i].n_bytes >= ONNX_LEAST_ASIDE) {
            at = round_up_i64(at, DATA_ALIGN);
            o->tensor[i].at = at;
            at += (int64_t)o->tensor[i].n_bytes;
        }
    return at;
}

static int write_second(struct onnx *o, struct new_file *f, struct err *err)
{
    static const char zeros[DATA_ALIGN];
    int64_t at = 0;
    int rc = 0;

    for (int i = 0; i < o->n_tensors && rc == 0; i++) {
        const struct onnx_tensor *t = &o->tensor[i];

        if (t->at < 0)
            continue;
        rc = new_file_put(f, zeros, (size_t)(t->at - at), err);
        if (rc == 0)
            rc = put_content(o, t, f, err);
        at = t->at + (int64_t)t->n_bytes;
    }
    return rc;
}

/* A TensorProto without its content. */
static void put_tensor_head(struct buf *b, const struct onnx_tensor *t, const char *second)
{
    char text[24];

    for (int d = 0; d < t->shape.n; d++)
        wire_number(b, TENSOR_DIMS, t->shape.dim[d]);
    wire_number(b, TENSOR_DATA_TYPE, t->type);
    wire_text(b, TENSOR_NAME, t->name);
    if (t->at < 0) { /* the content follows */
        wire_tag(b, TENSOR_RAW_DATA, WIRE_BYTES);
        wire_varint(b, t->n_bytes);
        return;
    }
    put_entry(b, TENSOR_EXTERNAL_DATA, "location", second);
    snprintf(text, sizeof text, "%lld", (long long)t->at);
    put_entry(b, TENSOR_EXTERNAL_DATA, "offset", text);
    snprintf(text, sizeof text, "%zu", t->n_bytes);
    put_entry(b, TENSOR_EXTERNAL_DATA, "length", text);
    wire_number(b, TENSOR_DATA_LOCATION, LOCATION_EXTERNAL);
}

static size_t content_here(const struct onnx_tensor *t) { return t->at < 0 ? t->n_bytes : 0; }

/* Write all tensors, or with f NULL only count their bytes. */
static int put_tensors(const struct onnx *o, const char *second, struct new_file *f, size_t *n,
                       struct err *err)
{
    struct buf head = {0}, tag = {0};
    int rc = 0;

    *n = 0;
    for (int i = 0; i < o->n_tensors && rc == 0; i++) {
        const struct onnx_tensor *t = &o->tensor[i];

        buf_clear(&head);
        buf_clear(&tag);
        put_tensor_head(&head, t, second);
        wire_tag(&tag, GRAPH_INITIALIZER, WIRE_BYTES);
        wire_varint(&tag, head.len + content_here(t));
        *n += tag.len + head.len + content_here(t);
        if (f)
            rc = new_file_put(f, tag.data, tag.len, err);
        if (f && rc == 0)
            rc = new_file_put(f, head.data, head.len, err);
        if (f && rc == 0 && t->at < 0)
            rc = put_content(o, t, f, err);
    }
    buf_fini(&head);
    buf_fini(&tag);
    return rc;
}

/* The model up to the tensors; the rest of the graph has n_tensors bytes. */
static void put_head(const struct onnx *o, size_t n_tensors, struct buf *b)
{
    struct buf opset = {0}, graph = {0};

    wire_number(b, MODEL_IR_VERSION, ONNX_IR);
    wire_text(b, MODEL_PRODUCER_NAME, "dptrain");
    wire_text(b, MODEL_PRODUCER_VERSION, DPTRAIN_VERSION);
    wire_number(&opset, OPSET_VERSION, ONNX_OPSET);
    wire_message(b, MODEL_OPSET_IMPORT, &opset);
    buf_append(b, o->metadata.data, o->metadata.len);
    wire_text(&graph, GRAPH_NAME, "network");
    buf_append(&graph, o->inputs.data, o->inputs.len);
    buf_append(&graph, o->outputs.data, o->outputs.len);
    buf_append(&graph, o->nodes.data, o->nodes.len);
    wire_tag(b, MODEL_GRAPH, WIRE_BYTES);
    wire_varint(b, graph.len + n_tensors);
    buf_append(b, graph.data, graph.len);
    buf_fini(&graph);
}

static int write_model(const struct onnx *o, const char *second, struct new_file *f,
                       struct err *err)
{
    struct buf head = {0};
    size_t n = 0;
    int rc = put_tensors(o, second, NULL, &n, err);

    put_head(o, n, &head);
    if (rc == 0)
        rc = new_file_put(f, head.data, head.len, err);
    if (rc == 0)
        rc = put_tensors(o, second, f, &n, err);
    buf_fini(&head);
    return rc;
}

int onnx_write(struct onnx *o, const char *path, int64_t most_inline, struct err *err)
{
    char *second = xasprintf("%s.data", path);
    struct new_file model, data;
    int64_t n = 0;
    int has_second, rc = new_file_begin(&model, path, err);

    for (int i = 0; i < o->n_tensors; i++)
        n += (int64_t)o->tensor[i].n_bytes;
    has_second = n > most_inline && place_second(o) > 0;
    new_file_init(&data);
    if (rc == 0 && has_second)
        rc = new_file_begin(&data, second, err);
    if (rc == 0 && has_second)
        rc = write_second(o, &data, err);
    if (rc == 0)
        rc = write_model(o, strrchr(second, '/') ? strrchr(second, '/') + 1 : second, &model, err);
    if (rc == 0 && has_second)
        rc = new_file_end(&data, err);
    if (rc == 0)
        rc = new_file_end(&model, err);
    if (rc < 0 && has_second)
        new_file_take_back(&data);
    new_file_drop(&model);
    new_file_drop(&data);
    free(second);
    return rc;
}
