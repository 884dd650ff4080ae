/* tree - the order in which the terms of a sum are added: a binary tree, fixed by their number.
 *
 * Floating-point sums depend on the order of addition.  Here the order follows from the number of
 * terms alone.  It does not matter which rank adds, or when.  strategy/shares.c sums gradients so.
 *
 * The terms are the leaves, numbered from 0.  The node (level, at), where `at` is a multiple of
 * 2^level, is the sum of the leaves [at, at + 2^level), or up to the last leaf if there are fewer.
 * A node is the sum of two nodes of the next lower level; if the second of these has no leaves, the
 * node equals the first.  The root is the node of the lowest level that has all leaves.
 *
 * A pile is a stack of neighbouring nodes, from left to right, that are not yet parts of a larger
 * complete node.  A rank pushes its leaves, which are contiguous, one after another.  Its pile then
 * holds a few nodes, which need the leaves of other ranks to grow.  If the nodes of all ranks are
 * pushed to one pile in the same way, one node is left: the root.
 *
 * Threads: pure. */
#ifndef STRATEGY_TREE_H
#define STRATEGY_TREE_H

#include <stdint.h>

enum { TREE_MOST_LEAVES = 65536, TREE_MOST_NODES = 2 * 16 + 2 /* in a pile */ };

struct tree_node {
    int64_t at; /* its first leaf */
    int level;  /* 0: a leaf */
};

struct tree_pile {
    int64_t n_leaves; /* of the tree */
    int n;
    struct tree_node node[TREE_MOST_NODES];
};

/* Push a node, the right neighbour of the newest one.  Returns the number of additions that the
 * caller is to make: the new node to the node before it, that sum to the node before that, and so
 * on.  The pile then holds the result in place of the nodes that were added. */
int tree_push(struct tree_pile *p, struct tree_node node);

#endif
