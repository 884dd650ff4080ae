/* coll/fabric/rail - bytes in order between this rank and others on one channel, as messages of one
 * port.
 *
 * A message has a head and a mark (coll/fabric/seal.h), and then at most RAIL_PIECE bytes.  A
 * sender has at most MESH_WINDOW messages that the receiver has not read.  Each head tells how many
 * messages of the other direction have been read; if none travels, a credit does: a message without
 * bytes, whose numbers are of another row.
 *
 * Memory:  for each rank with which messages were exchanged: room for RAIL_ROOM messages, 768 KiB;
 *          and as much again, and for twice a window, for the rail.  It is taken from blocks of
 *          4 MiB, in huge pages if the system has them.
 * Life:    rail_new -> rail_add for every other rank -> rail_begin -> rail_send, rail_recv ... ->
 *          rail_free.
 * Threads: one at a time; but rail_n_strangers from any. */
#ifndef COLL_FABRIC_RAIL_H
#define COLL_FABRIC_RAIL_H

#include "coll/fabric/port.h"
#include "coll/fabric/seal.h"
#include "coll/mesh.h"

enum {
    RAIL_PIECE = MESH_PIECE_MAX,
    RAIL_CREDITS = 4, /* at most three are under way: a credit goes after half a window */
    RAIL_ROOM = MESH_WINDOW + RAIL_CREDITS,
};

/* The rails of a rank share these, which they borrow. */
struct rail_terms {
    const struct fabric_ops *ops;
    int rank, size, hides;
    uint8_t key[PROOF_KEY];
    EVP_PKEY *own;
    uint8_t (*half)[SEAL_PUBLIC]; /* [size]: the ranks' public halves */
};

struct rail; /* opaque */

int rail_new(const struct rail_terms *terms, const char *provider, const char *ip,
             enum coll_channel ch, struct rail **out, struct err *err);
void rail_free(struct rail *l); /* NULL is fine */

struct fabric_port *rail_port(const struct rail *l);
int rail_add(struct rail *l, int r, const void *address, size_t len, struct err *err);
int rail_begin(struct rail *l, struct err *err); /* the terms are complete */
int64_t rail_n_strangers(struct rail *l);

/* Go on without waiting.  How many bytes were taken from `data`, or put to `to`: 0 if none can be
 * now.  Fail with ERR_PEER (the fabric cannot reach rank r), ERR_DEVICE, ERR_NOMEM. */
int64_t rail_send(struct rail *l, int r, const void *data, size_t n_bytes, struct err *err);
int64_t rail_recv(struct rail *l, int r, void *to, size_t n_bytes, struct err *err);

/* The messages to rank r that the port has not sent yet. */
int rail_n_sending(const struct rail *l, int r);

/* 1: a message to rank r was lost on the fabric, so no further one can arrive in order. */
int rail_has_failed(const struct rail *l, int r);

/* Make progress: how many messages ended or came. */
int rail_poll(struct rail *l, struct err *err);

/* Sleep until poll has something to do, `fd` (-1: none) has ended, or timeout_ms are over. */
void rail_sleep(struct rail *l, int fd, int timeout_ms);

#endif
