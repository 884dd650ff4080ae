/* dtype - the types of a tensor's elements: names, sizes, how they are written in files.
 *
 * Threads: pure. */
#ifndef TENSOR_DTYPE_H
#define TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* Each type's name here, its bytes, and its name in safetensors files and messages.  New types are
 * appended at the end, because the values of the enum travel in messages.  I16, I8 and BOOL are
 * those of buffers of imported networks; nothing computes with them. */
#define DTYPE_LIST(X)        \
    X(DTYPE_F32, 4, "F32")   \
    X(DTYPE_F64, 8, "F64")   \
    X(DTYPE_I32, 4, "I32")   \
    X(DTYPE_I64, 8, "I64")   \
    X(DTYPE_U8, 1, "U8")     \
    X(DTYPE_BF16, 2, "BF16") \
    X(DTYPE_F16, 2, "F16")   \
    X(DTYPE_I16, 2, "I16")   \
    X(DTYPE_I8, 1, "I8")     \
    X(DTYPE_BOOL, 1, "BOOL")

enum dtype {
#define X(name, n_bytes, text) name,
    DTYPE_LIST(X)
#undef X
        DTYPE_COUNT
};

size_t dtype_size(enum dtype d);       /* bytes of one element */
const char *dtype_name(enum dtype d);  /* "F32" */
int dtype_from_name(const char *text); /* an enum dtype, or -1 */

#endif
