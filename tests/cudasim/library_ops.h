/* library_ops - tells which operators a library computes on a GPU.
 *
 * The simulator has no source for them; library_ops.c stands in. */
#ifndef TESTS_CUDASIM_LIBRARY_OPS_H
#define TESTS_CUDASIM_LIBRARY_OPS_H

int is_library_op(int op); /* an enum op */

#endif
