/* fuse_impl - what the files of fusion share.
 *
 * Threads: as the graph. */
#ifndef PROGRAM_FUSE_IMPL_H
#define PROGRAM_FUSE_IMPL_H

#include "base/arena.h"
#include "program/impl.h"

enum { GONE = -1 }; /* the op of a node whose work another one has taken over */

/* One node that reads a value. */
struct use {
    int node;
    struct use *next;
};

/* The graph while it is being rewritten.  A value's list names every node that reads it; a node
 * that is gone, or that reads another value by now, still stands in the list and does not count. */
struct fuser {
    struct graph *g;
    struct backend *b;
    struct use **use; /* [n_values] */
    int n_values;     /* before the rewriting; the rules never ask about a value made later */
    struct arena arena;
};

/* The number of operands that are v; 3 stands for more than 2. */
int fuse_n_uses(const struct fuser *f, int v);

/* A product with a large weight that is unpacked for it alone reads the codes: no node unpacks them
 * then. */
void fuse_unpack(struct fuser *f, struct node *n);

#endif
