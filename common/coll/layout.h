/* coll/layout - which ranks share a host, and the tree of ranks that follows from it.
 *
 * A place is a rank's position when the ranks stand host by host: first the host of rank 0, then
 * that of the lowest rank that is elsewhere, and so on; those of a host in rank order.  So rank 0
 * has place 0.
 *
 * The tree crosses from host to host as seldom as a tree can: the first rank of each host is its
 * leader.  The other ranks of a host make a binomial tree below it, and the leaders make one of
 * their own.  A parent has a lower place than its children, and the subtree of a place is the
 * contiguous run of places that begins with it.
 *
 * Threads: none of its own; what layout_init has made is only read.
 * Errors:  none. */
#ifndef COLL_LAYOUT_H
#define COLL_LAYOUT_H

struct layout {
    int size;
    int *order;   /* [size]: the rank at each place */
    int *place;   /* [size]: the place of each rank */
    int *parent;  /* [size]: of each place, a place; -1: place 0 has none */
    int *n_below; /* [size]: the places of each place's subtree, itself included */
};

enum { LAYOUT_CHILDREN = 62 }; /* a place has fewer: twice the bits of a rank's number */

/* host[r] is the number of rank r's host: 0 for rank 0, and one more for each new host, in rank
 * order. */
void layout_init(struct layout *l, int size, const int *host);
void layout_fini(struct layout *l); /* zeros are fine */

/* The children of a place, in rising order.  Returns how many. */
int layout_children(const struct layout *l, int place, int child[LAYOUT_CHILDREN]);

/* 1: one of the ranks a and b is the other's parent. */
int layout_is_kin(const struct layout *l, int a, int b);

#endif
