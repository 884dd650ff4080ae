/* print - a foreign network for people: a line for each of its layers' operators.
 *
 * Threads: any. */
#ifndef IMPORT_PRINT_H
#define IMPORT_PRINT_H

#include "base/buf.h"
#include "import/network.h"

/* Append the network by layer: module, operator, shape of the output at export, parameters, and
 * operations for a sample, then the totals.  A multiplication and an addition are two operations;
 * an operator that is no product counts one for each element of its output.  Operators that compute
 * nothing are left out. */
void import_print(const struct import_network *n, struct buf *out);

#endif
