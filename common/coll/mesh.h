/* coll/mesh - the collectives of one channel, over messages between ranks.
 *
 * A transport sends messages; those of a link arrive in order.  It promises that MESH_WINDOW
 * pieces, of at most `piece` bytes each, can be on their way on each link without the receiver
 * reading: a send blocks only beyond that.  So ranks that all send before they receive cannot block
 * each other for ever, as long as each of them is at most that far ahead.  Where the order of
 * sending and receiving cannot become a circle anyway, one message may be longer: coll/sparse.c's
 * tree sends up to 1 MiB at once.
 *
 * All sums are in rank order, ((x0 + x1) + x2) + ..., each element on one rank, or on every rank in
 * the same order: all ranks get the same bits, the same as coll/local's, whatever the algorithm.
 *
 * Up to MESH_ALL_PAIRS ranks, every two have a link:
 *
 *   all-reduce      of two ranks, or of small x: every rank sends x to all others and sums all of
 *                   them itself; one round.  Else a reduce-scatter and an all-gather, slice by
 *                   slice: two rounds, and no rank sends more than 2 * (size-1)/size * bytes.
 *                   Where ranks share hosts, large x goes along coll/sparse.h's chain instead: a
 *                   host then sends at most 2 * bytes to other hosts, however many ranks it has.
 *   reduce-scatter  rank j gets every rank's j-th span, and sums them.
 *   all-gather      every rank sends its span to every other rank.
 *   all-to-all      every rank sends a part to every other; in an exchange most parts are empty.
 *   broadcast       down a chain of ranks, piece by piece.
 *
 * More ranks have links with their neighbours in a ring and in a tree (coll/sparse.h), and with
 * those ranks with which an all-to-all or an exchange has asked for one. */
#ifndef COLL_MESH_H
#define COLL_MESH_H

#include "coll/impl.h"

enum {
    MESH_WINDOW = 8,
    MESH_PIECE_MAX = 64 << 10,
    /* Ranks; of more, coll/sparse.h's ring and tree are connected.  Measured with all ranks on two
     * cores, where every message costs time of the same cores: a sum of 1 KiB takes 0.06 ms by all
     * pairs and 0.07 ms by the tree at 4 ranks, 0.3 and 0.15 ms at 8, 0.9 and 0.2 ms at 16, 6 and
     * 0.5 ms at 32.  Ranks on machines of their own gain from all pairs for longer, as these take
     * two rounds whatever the number of ranks. */
    MESH_ALL_PAIRS = 8,
};

struct mesh {
    int rank, size;
    int is_chained; /* 1: the ranks of each host follow one another, and some host has several */
    size_t piece;   /* bytes, a multiple of 64 */
    uint8_t *land;  /* mesh_land_bytes: what is not received in place */
    /* Begin to make the link with rank r, if there is none. */
    void (*want)(struct mesh *m, int r);
    /* n_bytes may be more than a piece; then it may block until the receiver reads. */
    int (*send)(struct mesh *m, int to, const void *data, size_t n_bytes, struct err *err);
    int (*recv)(struct mesh *m, int from, void *to, size_t n_bytes, struct err *err);
};

/* 1: ranks a and b of `size` surely need a link. */
int mesh_is_near(int size, int a, int b);

/* How much memory m->land wants, when the other members are set. */
size_t mesh_land_bytes(const struct mesh *m);

/* Run one collective to its end, blocking. */
int mesh_run(struct mesh *m, const struct coll_job *job, struct err *err);

#endif
