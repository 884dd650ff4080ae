/* adding - a kernel that adds outputs to what their memory holds (node.adds), made of one that
 * overwrites them: it computes into the scratch, and the backend's kernel of OP_add does the rest.
 *
 * This is for kernels that cannot add by themselves (FUSE_ADDS).
 * Threads: as the backend's kernels. */
#ifndef BACKEND_ADDING_H
#define BACKEND_ADDING_H

#include "backend/backend.h"

int adding_new(struct backend *b, const struct graph *g, const struct node *n, struct kernel **out,
               struct err *err);

#endif
