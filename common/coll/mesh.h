/* coll/mesh - the algorithms of collectives on one channel, over messages between ranks.
 *
 * coll/tcp.c calls these with a transport, the functions `send` and `recv` of struct mesh. Messages
 * of a link arrive in order.  The transport promises that a link holds MESH_WINDOW pieces, of at
 * most `piece` bytes each, that the receiver has not read: a send blocks only beyond that.  So
 * ranks that all send before they receive cannot block each other for ever, as long as none is
 * further ahead than that.  Where sends and receives cannot form a circle anyway, a message may be
 * longer: the tree of coll/sparse.c sends up to 1 MiB at once.
 *
 * All sums are in rank order, ((x0 + x1) + x2) + ...  Each element is summed on one rank, or on
 * every rank in this order.  So all ranks get the same bits with every algorithm, and the same as
 * those of tests/coll/local.c.
 *
 * Up to MESH_ALL_PAIRS ranks, every two have a link:
 *
 *   all-reduce      With two ranks, or a small x: every rank sends x to all others and sums all of
 *                   them itself, in one round.  Otherwise: a reduce-scatter and an all-gather,
 *                   slice by slice, in two rounds; no rank sends more than 2 * (size-1)/size *
 *                   bytes.  If hosts have several ranks each, a large x goes along the chain of
 *                   coll/sparse.h instead; a host then sends at most 2 * bytes to other hosts,
 *                   however many ranks it has.
 *   reduce-scatter  rank j gets every rank's j-th span, and sums them.
 *   all-gather      every rank sends its span to every other rank.
 *   all-to-all      every rank sends a part to every other; in an exchange most parts are empty.
 *                   Small parts among more ranks go from rank to rank (coll/relay.h).
 *   broadcast       down a chain of ranks, piece by piece.
 *
 * More ranks have links with their neighbours in a ring and in a tree (coll/sparse.h), and with
 * those ranks with which an all-to-all or an exchange has asked for one.
 *
 * Threads: one mesh belongs to one channel, whose collectives run one after another.
 * Errors:  those of `send` and `recv`. */
#ifndef COLL_MESH_H
#define COLL_MESH_H

#include "coll/impl.h"
#include "coll/layout.h"

enum {
    MESH_WINDOW = 8,
    MESH_PIECE_MAX = 64 << 10,
    /* The largest number of ranks with links between all pairs.  With more ranks, only the ring and
     * the tree of coll/sparse.h are connected.  Measured with all ranks on two cores, where every
     * message costs time of the same cores, for a sum of 1 KiB by all pairs and by the tree: 0.06
     * and 0.07 ms with 4 ranks, 0.3 and 0.15 ms with 8, 0.9 and 0.2 ms with 16, 6 and 0.5 ms with
     * 32.  If each rank has a machine of its own, all pairs should pay for more ranks than here,
     * because they take two rounds whatever the number of ranks. */
    MESH_ALL_PAIRS = 8,
};

struct mesh {
    int rank, size;
    int is_chained; /* 1: the ranks of each host follow one another, and some host has several */
    const struct layout *layout; /* the same on all ranks */
    int place;                   /* of this rank in it */
    size_t piece;                /* bytes, a multiple of 64 */
    uint8_t *land; /* [mesh_land_bytes]: room for data that is not received in place */
    /* Start to make the link with rank r, if there is none. */
    void (*want)(struct mesh *m, int r);
    /* n_bytes may be more than a piece; then it may block until the receiver reads. */
    int (*send)(struct mesh *m, int to, const void *data, size_t n_bytes, struct err *err);
    int (*recv)(struct mesh *m, int from, void *to, size_t n_bytes, struct err *err);
};

/* 1: ranks a and b need a link for every collective, so it is made at once. */
int mesh_is_near(const struct layout *l, int a, int b);

/* The size of m->land in bytes.  All other members of m must be set. */
size_t mesh_land_bytes(const struct mesh *m);

/* 1: this is a small all-reduce, whose one round mesh_begin can begin. */
int mesh_can_begin(const struct mesh *m, const struct coll_job *job);

/* Send x to all other ranks, which then need nothing more from this one.  mesh_run, with
 * job->has_begun, only receives and sums. */
int mesh_begin(struct mesh *m, const struct coll_job *job, struct err *err);

/* Run one collective to its end, blocking. */
int mesh_run(struct mesh *m, const struct coll_job *job, struct err *err);

#endif
