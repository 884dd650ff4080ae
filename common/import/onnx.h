/* onnx - reads networks in ONNX's format (.onnx), opset 13 to 24.
 *
 * Each operator of the file becomes nodes with PyTorch's targets (import/network.h), by the table
 * ONNX_OPS.  Nodes of constants and shapes alone are computed while reading.  A batch without
 * a number gets one.  Float initializers that nodes read are parameters under the file's names;
 * those that batch norms update, and those that PyTorch's exporter calls buffers, are buffers.
 *
 * Threads: any.
 * Errors:  ERR_IO (missing, unreadable), ERR_CONFIG (another kind of file), ERR_UNSUPPORTED (an
 *          operator or a form of it that is missing), ERR_CORRUPT (damaged), ERR_NOMEM. */
#ifndef IMPORT_ONNX_H
#define IMPORT_ONNX_H

#include "import/network.h"

struct onnx_file; /* opaque: a file in memory, without what lies in files beside it */

int onnx_is_name(const char *path); /* 1: the name ends in .onnx */
int onnx_open(const char *path, struct onnx_file **out, struct err *err);
/* The same of bytes; `path` is for messages and the place of files beside it. */
int onnx_open_bytes(const void *bytes, size_t len, const char *path, struct onnx_file **out,
                    struct err *err);
void onnx_close(struct onnx_file *f); /* NULL is fine */

int onnx_parse(const struct onnx_file *f, struct import_network **out, struct err *err);
int onnx_read(const char *path, struct import_network **out, struct err *err);

/* Elements [first, first + n) of the initializer that is called `name`. */
int onnx_read_tensor(const struct onnx_file *f, const char *name, int64_t first, int64_t n,
                     void *to, struct err *err);

#endif
