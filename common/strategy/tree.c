/* tree - which nodes of the tree of a sum are complete.
 *
 * A pile that begins at leaf 0 holds one node for each binary digit of the number of leaves pushed.
 * One that begins elsewhere holds no more than two nodes of each level. */
#include "strategy/tree.h"

#include "base/util.h"

/* The newest node of the pile has no right neighbour of its level, so it is the node of the next
 * level, too. */
static int is_alone(const struct tree_pile *p)
{
    const struct tree_node *top = &p->node[p->n - 1];
    const int64_t width = (int64_t)1 << top->level;

    return width < p->n_leaves && top->at / width % 2 == 0 && top->at + width >= p->n_leaves;
}

/* The two newest nodes are the halves of one. */
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
