/* ref_backend - a naive kernel for every operator, to compare the real kernels with.
 *
 * Each kernel is the formula in op/NAME.c written down: one loop per index, sums in double, results
 * rounded to float once at the end.  It is a whole backend, so that programs run on it, too.
 *
 * Life:    ref_open -> a backend like any other -> backend_close.
 * Threads: one. */
#ifndef TESTS_OP_REF_BACKEND_H
#define TESTS_OP_REF_BACKEND_H

#include "backend/backend.h"

/* fusions: bit 1 << f is set for each enum fusion f that can_fuse accepts.  REF_FUSE_ALL leaves out
 * FUSE_ADDS: these kernels overwrite their outputs. */
enum { REF_FUSE_NONE = 0, REF_FUSE_ALL = 255 };
int ref_open(unsigned fusions, struct backend **out);

/* Run one node at once.  in[], out[]: host memory, NULL where the node has none. */
void ref_run_node(const struct graph *g, const struct node *n, void *const *in, void *const *out);

#endif
