/* tree - computes which nodes of the tree of a sum are complete.
 *
 * A pile that begins at leaf 0 works like a binary counter: it holds at most one node for each
 * binary digit of the number of leaves pushed.  A pile that begins at another leaf holds at most
 * two nodes of each level.  TREE_MOST_NODES follows from this. */
#include "strategy/tree.h"

#include "base/util.h"

/* 1 if the newest node of the pile is a left half whose right half has no leaves.  Then it equals
 * the node of the next higher level. */
static int is_alone(const struct tree_pile *p)
{
    const struct tree_node *top = &p->node[p->n - 1];
    const int64_t width = (int64_t)1 << top->level;

    return width < p->n_leaves && top->at / width % 2 == 0 && top->at + width >= p->n_leaves;
}

/* 1 if the two newest nodes are the two halves of one node. */
static int is_pair(const struct tree_pile *p)
{
    const struct tree_node *right = &p->node[p->n - 1], *left = right - 1;
    const int64_t width = (int64_t)1 << right->level;

    return p->n > 1 && right->at / width % 2 == 1 && left->level == right->level &&
           left->at + width == right->at;
}

int tree_push(struct tree_pile *p, struct tree_node node)
{
    int n_sums = 0;

    ASSERT(p->n < TREE_MOST_NODES && p->n_leaves <= TREE_MOST_LEAVES);
    p->node[p->n++] = node;
    for (;;) {
        if (is_pair(p)) {
            p->n--;
            n_sums++;
        } else if (!is_alone(p)) {
            return n_sums;
        }
        p->node[p->n - 1].level++;
    }
}
