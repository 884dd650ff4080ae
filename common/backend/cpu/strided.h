/* strided - copies between a dense array and places that lie apart (op/strided.h).
 *
 * Elements have `size` bytes, and are copied as they are.
 *
 * Threads: pure. */
#ifndef BACKEND_CPU_STRIDED_H
#define BACKEND_CPU_STRIDED_H

#include "op/strided.h"

/* to[0 .. n) = the elements from .. from + n of s in x. */
void strided_gather(const struct strided *s, const void *x, size_t size, int64_t from, int64_t n,
                    void *to);

/* The elements from .. from + n of s in y = x[0 .. n). */
void strided_scatter(const struct strided *s, void *y, size_t size, int64_t from, int64_t n,
                     const void *x);

#endif
