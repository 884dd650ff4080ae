/* tree - the order in which the parts of a sum are added: one binary tree, fixed by their number.
 *
 * Leaves are numbered from 0.  The node (level, at), where at is a multiple of 2^level, is the sum
 * of the leaves from `at` up to at + 2^level, or up to the last leaf.  It is the sum of two nodes
 * of the level below it; where the second one has no leaves, it is the first one.  The root is the
 * lowest node that has all leaves.  Floating-point sums depend on the order of addition, and here
 * that follows from the number of leaves alone: not from who adds, nor from when.
 *
 * A pile holds neighbouring nodes, from left to right, that are not yet parts of a larger complete
 * node.  A rank pushes its contiguous leaves one after another, and is left with nodes that other
 * ranks' leaves complete.  The nodes of all ranks, pushed in the same way, become the root.
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

/* Put a node on the pile, on the right of the others.  Returns how many sums are complete now: the
 * new node is added to the one before it, that sum to the one before that, and so on. */
int tree_push(struct tree_pile *p, struct tree_node node);

#endif
