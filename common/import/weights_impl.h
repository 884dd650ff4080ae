/* weights_impl - elements of a view, gathered from the bytes of its storage.
 *
 * Threads: pure. */
#ifndef IMPORT_WEIGHTS_IMPL_H
#define IMPORT_WEIGHTS_IMPL_H

#include "import/network.h"

/* Copy elements [first, first + n) of t, in row-major order, from its storage, whose bytes have
 * been checked to hold all of them. */
void weights_gather(const void *storage, const struct import_tensor *t, int64_t first, int64_t n,
                    void *to);

#endif
