/* ref_backend - every operator, naively: what the real kernels are compared with.
 *
 * Each kernel is its formula written down (op/NAME.c), one loop per index, sums in double, results
 * rounded to float once at the end.  It is a whole backend, so programs run on it too.
 *
 * Life:    ref_open -> a backend like any other -> backend_close.
 * Threads: one. */
#ifndef TESTS_OP_REF_BACKEND_H
#define TESTS_OP_REF_BACKEND_H

#include "backend/backend.h"

/* fusions: bits 1 << enum fusion that can_fuse answers with yes. */
enum { REF_FUSE_NONE = 0, REF_FUSE_ALL = 63 };
int ref_open(unsigned fusions, struct backend **out);

/* Run one node at once.  in[], out[]: host memory, NULL where the node has none. */
void ref_run_node(const struct graph *g, const struct node *n, void *const *in, void *const *out);

#endif
