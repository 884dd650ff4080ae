/* coll/sparse - collectives among so many ranks that not every two can have a link.
 *
 * Links are those of a ring and of a binomial tree.  Rank r's parent in the tree is r without its
 * lowest 1 bit, so the subtree of r is a run of ranks that begins at r, and what they gather is
 * contiguous.
 *
 *   all-reduce  small: x of all ranks is gathered up the tree side by side, rank 0 sums in rank
 *               order, and the sum goes down the tree.  Large: down the chain 0 -> 1 -> ... -> n-1,
 *               where each rank adds its own, and the sums back, piece by piece.  No rank sends
 *               more than twice the bytes of x.
 *   all-gather  small: up and down the tree.  Large: round the ring.
 *
 * Threads and errors: as coll/mesh.h. */
#ifndef COLL_SPARSE_H
#define COLL_SPARSE_H

#include "coll/mesh.h"

int sparse_is_near(int size, int a, int b);
size_t sparse_land_bytes(const struct mesh *m);

int sparse_allreduce(struct mesh *m, const struct coll_job *job, struct err *err);

/* The all-reduce along the chain, of any size but 0. */
int sparse_chain(struct mesh *m, const struct coll_job *job, struct err *err);

int sparse_allgather_spans(struct mesh *m, const struct coll_job *job, struct err *err);

/* From rank 0, of few bytes. */
int sparse_is_small(size_t n_bytes);
int sparse_broadcast(struct mesh *m, struct coll_part x, struct err *err);

#endif
