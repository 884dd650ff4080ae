/* safetensors - the file format that Python's `safetensors` package reads and writes.
 *
 * 8 bytes little-endian: length H of the header; H bytes of JSON: name -> {dtype, shape,
 * data_offsets: [begin, end)} (and "__metadata__": text -> text); then the data, offsets counted
 * from its start.  (Format: the README of the safetensors project, section "Format".)
 *
 * Life:    st_write is one call.  st_open -> st_find, st_at, st_read ... -> st_close.
 * Threads: a file that is open may be read from any.
 * Errors:  ERR_CORRUPT says what was seen and wanted, and at which offset, and stands for a
 *          bad sector, too; ERR_IO; ERR_NOMEM. */
#ifndef CKPT_SAFETENSORS_H
#define CKPT_SAFETENSORS_H

#include <stddef.h>

#include "base/err.h"
#include "base/hash.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

struct st_tensor {
    const char *name;
    enum dtype dtype;
    struct shape shape;
    const void *data; /* little-endian elements, row-major; NULL in a file opened: st_read */
};

enum { ST_MAX_HEADER = 100 << 20 }; /* bytes; the limit of the Python package as well */

/* Write `n` tensors to the new file `path` and fsync it; `hash` is that of the whole file.
 * Data is written in the order given, each tensor aligned to 8 bytes.  Fails with ERR_IO (disk
 * full: how much was wanted); a part of the file may then exist.
 *
 * class_names: a text of the metadata, by this name; NULL: there is none. */
int st_write(const char *path, const struct st_tensor *tensor, int n, const char *class_names,
             struct hash128 *hash, struct err *err);

/* The bytes of a file before the data of these tensors: the length of the header, and the header.
 * For free(). */
char *st_head(const struct st_tensor *tensor, int n, const char *class_names, size_t *len);
size_t st_bytes(const struct st_tensor *t); /* of its data */

struct st_file;

/* Open a file and check all of its header: offsets inside the file, sizes that match dtype and
 * shape, no overlap, no name twice. */
int st_open(const char *path, struct st_file **out, struct err *err);
/* The same for bytes in memory, borrowed until st_close; `origin` names them in messages. */
int st_parse(const void *data, size_t n_bytes, const char *origin, struct st_file **out,
             struct err *err);
void st_close(struct st_file *f); /* NULL is fine */

int st_count(const struct st_file *f);
const struct st_tensor *st_at(const struct st_file *f, int i);
const struct st_tensor *st_find(const struct st_file *f, const char *name); /* or NULL */
int st_has(const struct st_file *f, const struct st_tensor *t); /* 1: t is a tensor of f */

/* Read n_bytes of the tensor's data, from byte `from` on. */
int st_read(const struct st_file *f, const struct st_tensor *t, size_t from, void *out,
            size_t n_bytes, struct err *err);

/* The hash of the whole file, which is read for it. */
int st_hash(const struct st_file *f, struct hash128 *out, struct err *err);

#endif
