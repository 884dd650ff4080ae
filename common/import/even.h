/* even - parameters that are one number throughout in the file (see network.h, is_even).
 *
 * Threads: one at a time for each network, before others read it.
 * Errors:  none: a parameter that cannot be read is not even. */
#ifndef IMPORT_EVEN_H
#define IMPORT_EVEN_H

#include "import/network.h"

/* Elements [first, first + n) of t, in row-major order, into `to`: dense, of t's type. */
typedef int even_reader(void *from, const struct import_tensor *t, int64_t first, int64_t n,
                        void *to, struct err *err);

/* Sets is_even and `even` of the parameters. */
void import_find_even(struct import_network *n, even_reader *read, void *from);

#endif
