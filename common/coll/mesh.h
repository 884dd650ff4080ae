/* coll/mesh - the collectives, over messages between every two ranks.
 *
 * Every message is at most `piece` bytes, and of each link at most MESH_WINDOW pieces are on their
 * way at once: the transport promises that so much can be sent without the receiver reading, so
 * ranks that all send before they receive cannot block each other for ever.
 *
 * All sums are in rank order, ((x0 + x1) + x2) + ..., each element at one place or everywhere
 * alike: all ranks get the same bits, the same as coll/local's, whatever the algorithm.
 *
 *   exchange   everyone sends x to everyone and sums all itself: one round, for two ranks (it moves
 *              no more than any other way) and for small x.
 *   scatter    rank j gets everyone's j-th part, sums it and sends it to all: two rounds, and no
 *              rank sends more than 2 * (size-1)/size * bytes.
 *   broadcast  down a chain of ranks, piece by piece.
 *   allgather  everyone to everyone. */
#ifndef COLL_MESH_H
#define COLL_MESH_H

#include "coll/impl.h"

enum {
    MESH_WINDOW = 8,
    MESH_PIECE_MAX = 64 << 10,
};

struct mesh {
    int rank, size;
    size_t piece;   /* bytes, a multiple of 64 */
    uint8_t *land0; /* a message of rank 0 is received here, */
    uint8_t *land;  /* one of any other rank here; each holds a piece */
    int (*send)(struct mesh *m, int to, const void *data, size_t n_bytes, struct err *err);
    int (*recv)(struct mesh *m, int from, struct err *err); /* the next message of that rank */
};

int mesh_run(struct mesh *m, const struct coll_job *job, struct err *err);

#endif
