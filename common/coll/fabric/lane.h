/* coll/fabric/lane - bytes in order between this rank and others on one channel, as messages of one
 * port.
 *
 * A message has a head and a mark (coll/fabric/seal.h), and then at most LANE_PIECE bytes.  A
 * sender has at most MESH_WINDOW messages that the receiver has not read.  Each head tells how many
 * messages of the other direction have been read; if none travels, a credit does: a message without
 * bytes, whose numbers are of another row.
 *
 * Memory:  for each rank with which messages were exchanged: room for LANE_ROOM messages, 768 KiB;
 *          and as much again, and for twice a window, for the lane.
 * Life:    lane_new -> lane_add for every other rank -> lane_begin -> lane_send, lane_recv ... ->
 *          lane_free.
 * Threads: one at a time; but lane_n_strangers from any. */
#ifndef COLL_FABRIC_LANE_H
#define COLL_FABRIC_LANE_H

#include "coll/fabric/port.h"
#include "coll/fabric/seal.h"
#include "coll/mesh.h"

enum {
    LANE_PIECE = MESH_PIECE_MAX,
    LANE_CREDITS = 4, /* at most three are under way: a credit goes after half a window */
    LANE_ROOM = MESH_WINDOW + LANE_CREDITS,
};

/* The lanes of a rank share these, which they borrow. */
struct lane_terms {
    const struct fabric_ops *ops;
    int rank, size, hides;
    uint8_t key[PROOF_KEY];
    EVP_PKEY *own;
    uint8_t (*half)[SEAL_PUBLIC]; /* [size]: the ranks' public halves */
};

struct lane; /* opaque */

int lane_new(const struct lane_terms *terms, const char *provider, const char *ip,
             enum coll_channel ch, struct lane **out, struct err *err);
void lane_free(struct lane *l); /* NULL is fine */

struct fabric_port *lane_port(const struct lane *l);
int lane_add(struct lane *l, int r, const void *address, size_t len, struct err *err);
int lane_begin(struct lane *l, struct err *err); /* the terms are complete */
int64_t lane_n_strangers(struct lane *l);

/* Go on without waiting.  How many bytes were taken from `data`, or put to `to`: 0 if none can be
 * now.  Fail with ERR_PEER (the fabric cannot reach rank r), ERR_DEVICE, ERR_NOMEM. */
int64_t lane_send(struct lane *l, int r, const void *data, size_t n_bytes, struct err *err);
int64_t lane_recv(struct lane *l, int r, void *to, size_t n_bytes, struct err *err);

/* The messages to rank r that the port has not sent yet. */
int lane_n_sending(const struct lane *l, int r);

/* 1: a message to rank r was lost on the fabric, so no further one can arrive in order. */
int lane_has_failed(const struct lane *l, int r);

/* Make progress: how many messages ended or came. */
int lane_poll(struct lane *l, struct err *err);

/* Sleep until poll has something to do, `fd` (-1: none) has ended, or timeout_ms are over. */
void lane_sleep(struct lane *l, int fd, int timeout_ms);

#endif
