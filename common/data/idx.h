/* idx - the IDX format of MNIST's files: a big-endian header and one dense array of bytes, or of
 * 32-bit integers (the labels of QMNIST).
 *
 *      0  0x00 0x00         magic
 *      2  0x08 or 0x0c      element type: unsigned bytes, or big-endian signed 32-bit integers
 *      3  D                 number of dimensions
 *      4  D x uint32        extents, outermost first
 *   4+4D  product elements  the array; nothing may follow
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

enum idx_type { IDX_U8 = 0x08, IDX_I32 = 0x0c };

/* The files that a reader takes: of this type, with min_dims to max_dims dimensions. */
struct idx_want {
    enum idx_type type;
    int min_dims, max_dims;
};

struct idx {
    enum idx_type type;
    int n_dims;
    int64_t dim[IDX_MAX_DIMS]; /* each >= 1 */
    int64_t n_bytes;           /* product of dim, times the bytes of an element */
    uint8_t *data;             /* owned; the elements as in the file */
};

int idx_read(struct idx *out, const char *path, const struct idx_want *want, struct err *err);

/* The same from memory (bytes borrowed during the call); for tests and the fuzzer. */
int idx_parse(struct idx *out, const uint8_t *bytes, size_t n_bytes, const struct idx_want *want,
              struct err *err);

int64_t idx_element_bytes(const struct idx *x);
int32_t idx_int(const struct idx *x, int64_t i); /* element i of an IDX_I32 file */

void idx_fini(struct idx *x);

#endif
