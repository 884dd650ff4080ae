/* coll/sparse - collectives among so many ranks that links between all pairs would cost too much.
 * coll/mesh.c calls these.
 *
 * The links are those of a ring, in rank order, and of the tree of coll/layout.h, which crosses
 * from host to host as seldom as it can.  The data that a rank gathers there are contiguous, by
 * place.
 *
 *   all-reduce  Small: the x of all ranks are gathered up the tree, rank 0 sums them in rank order,
 *               whatever their places, and the sum goes down the tree.  Large: piece by piece, x
 *               goes along the chain 0 -> 1 -> ... -> n-1, where each rank adds its own, and the
 *               sums go back.  No rank sends more than twice the bytes of x.
 *   all-gather  Small: up and down the tree.  Large: round the ring.
 *
 * Threads: as coll/mesh.h.
 * Errors:  as coll/mesh.h. */
#ifndef COLL_SPARSE_H
#define COLL_SPARSE_H

#include "coll/mesh.h"

/* 1: ranks a and b are neighbours in the ring or in the tree. */
int sparse_is_near(const struct layout *l, int a, int b);
size_t sparse_land_bytes(const struct mesh *m);

int sparse_allreduce(struct mesh *m, const struct coll_job *job, struct err *err);

/* The all-reduce along the chain, of any number of bytes above 0. */
int sparse_chain(struct mesh *m, const struct coll_job *job, struct err *err);

int sparse_allgather_spans(struct mesh *m, const struct coll_job *job, struct err *err);

/* The broadcast from rank 0 down the tree, for x of sparse_is_small bytes. */
int sparse_is_small(size_t n_bytes);
int sparse_broadcast(struct mesh *m, struct coll_part x, struct err *err);

#endif
