/* npy_file - NumPy's format .npy (numpy.lib.format): an array that is mapped, and the header of one
 * that is written.  No other module knows the format; ckpt/rows_file.h puts the rows in their
 * place.
 *
 *      0  0x93 "NUMPY"      magic
 *      6  major, minor      1.0: the header's length has 2 bytes; 2.0 and 3.0: 4 bytes
 *      8  length            little-endian, of the header
 *         header            {'descr': '<f4', 'fortran_order': False, 'shape': (60, 28, 28), }
 *         the array         row by row, little-endian
 *
 * Life:    npy_open -> use -> npy_close (fine after a failure, and on zeroes).
 * Threads: any may read.
 * Errors:  ERR_IO, ERR_CORRUPT, ERR_ARG; they begin with the path. */
#ifndef DATA_NPY_FILE_H
#define DATA_NPY_FILE_H

#include "data/mapped.h"
#include "tensor/shape.h"

#define NPY_MAGIC "\x93NUMPY"

/* The element types that are read: a name of ours, NumPy's, C's, whether they are whole numbers,
 * and what makes a float of one. */
#define NPY_LIST(X)                              \
    X(NPY_U8, "|u1", uint8_t, 1, (float))        \
    X(NPY_I8, "|i1", int8_t, 1, (float))         \
    X(NPY_BOOL, "|b1", uint8_t, 1, (float))      \
    X(NPY_I16, "<i2", int16_t, 1, (float))       \
    X(NPY_U16, "<u2", uint16_t, 1, (float))      \
    X(NPY_I32, "<i4", int32_t, 1, (float))       \
    X(NPY_U32, "<u4", uint32_t, 1, (float))      \
    X(NPY_I64, "<i8", int64_t, 1, (float))       \
    X(NPY_U64, "<u8", uint64_t, 1, (float))      \
    X(NPY_F16, "<f2", uint16_t, 0, f16_to_float) \
    X(NPY_F32, "<f4", float, 0, (float))         \
    X(NPY_F64, "<f8", double, 0, (float))

enum npy_type {
#define X(name, descr, type, is_whole, to_float) name,
    NPY_LIST(X)
#undef X
        NPY_N_TYPES
};

struct npy {
    struct mapped file;
    enum npy_type type;
    struct shape shape;  /* 1 dimension at least, each extent >= 1 */
    const uint8_t *data; /* in `file`; of any alignment */
    int64_t offset;      /* of data in the file */
};

int npy_open(struct npy *out, const char *path, struct err *err);
/* The same of a->file, which is mapped; a failure leaves it open, and does not name it. */
int npy_parse(struct npy *a, struct err *err);
void npy_close(struct npy *a);

/* Append all that stands before the elements of an array [n_rows, row...]. */
struct buf;
void npy_write_header(struct buf *b, enum npy_type type, int64_t n_rows, const struct shape *row);

size_t npy_size(enum npy_type t); /* bytes of one element */
const char *npy_type_name(enum npy_type t);
int npy_is_whole(enum npy_type t);

/* Elements of one row: the product of all extents but the first. */
int64_t npy_row(const struct npy *a);

/* Read the elements [first, first + n), in row order, as the file stores them. */
int npy_read(const struct npy *a, int64_t first, int64_t n, void *to, struct err *err);

/* n elements as they are, rounded to float, or to double, or whole; `from` is as the file stores
 * them. */
void npy_reals(const struct npy *a, const void *from, int64_t n, float *to);
void npy_doubles(const struct npy *a, const void *from, int64_t n, double *to);
void npy_wholes(const struct npy *a, const void *from, int64_t n, int64_t *to); /* npy_is_whole */
/* 1: v, of npy_wholes, stands for a number above INT64_MAX. */
int npy_is_huge(const struct npy *a, int64_t v);
/* Put the number that v, of npy_wholes, stands for. */
enum { NPY_WHOLE_TEXT = 24 };
const char *npy_whole_text(const struct npy *a, int64_t v, char out[NPY_WHOLE_TEXT]);

/* The address of element i; only while the data set is opened (data/mapped.h). */
const uint8_t *npy_element(const struct npy *a, int64_t i);

#endif
