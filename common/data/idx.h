/* idx - the IDX format of MNIST's files: a big-endian header and one dense array of bytes.
 *
 *      0  0x00 0x00         magic
 *      2  0x08              element type: unsigned byte, the only one accepted
 *      3  D                 number of dimensions
 *      4  D x uint32        extents, outermost first
 *   4+4D  product bytes     the array; nothing may follow
 *
 * A file may be compressed by gzip, whatever its name; it is decompressed straight into place.
 * Before memory is allocated, the extents are checked against the size of the file.
 *
 * Life:    idx_read or idx_parse -> use -> idx_fini (fine after a failure, and on zeroes).
 * Threads: any; no state.
 * Errors:  ERR_IO, ERR_CORRUPT, ERR_NOMEM; offsets are those in the decompressed file, except for
 *          damage of the compression itself, where the message says so. */
#ifndef DATA_IDX_H
#define DATA_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { IDX_MAX_DIMS = 4 };

struct idx {
    int n_dims;
    int64_t dim[IDX_MAX_DIMS]; /* each >= 1 */
    int64_t n_bytes;           /* product of dim */
    uint8_t *data;             /* owned */
};

/* Read a file that has `min_dims` to `max_dims` dimensions. */
int idx_read(struct idx *out, const char *path, int min_dims, int max_dims, struct err *err);

/* The same from memory (bytes borrowed during the call); for tests and the fuzzer. */
int idx_parse(struct idx *out, const uint8_t *bytes, size_t n_bytes, int min_dims, int max_dims,
              struct err *err);

void idx_fini(struct idx *x);

#endif
