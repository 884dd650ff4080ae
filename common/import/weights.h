/* weights - the elements of a network's tensors, read from the file that it came from.
 *
 * Life:    import_weights_open -> import_weights_read ... -> import_weights_close (NULL is fine).
 * Threads: one at a time.
 * Errors:  those of pt2_read; ERR_CONFIG also if the file has no such tensor, or one of another
 *          shape or type: the file is another one now. */
#ifndef IMPORT_WEIGHTS_H
#define IMPORT_WEIGHTS_H

#include "import/network.h"

struct import_weights; /* opaque */

int import_weights_open(const char *path, struct import_weights **out, struct err *err);
void import_weights_close(struct import_weights *w);

/* Read elements [first, first + n) of the tensor, counted in row-major order, into `to`: dense, of
 * the tensor's type, little-endian.  t may be of a network that was unpacked: the file's tensor of
 * its name is read. */
int import_weights_read(struct import_weights *w, const struct import_tensor *t, int64_t first,
                        int64_t n, void *to, struct err *err);

#endif
