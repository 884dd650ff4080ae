/* coll/gloo_leaf - Gloo's TCP transport behind a C interface: a link to every other rank.
 *
 * Of Gloo we use device, pairs and bound buffers, in synchronous mode: the thread that calls
 * send and recv does the reading and writing itself.  Gloo's own all-reduces work asynchronously,
 * with a hand-over to its event thread for each message; coll/gloo.c has the figures.
 *
 * Messages: a send puts the whole message into the socket and returns; it blocks only if more than
 * the window is unread.  The messages of a link arrive in order, at most `piece` bytes each.
 *
 * Life:    new -> connect -> open -> send, recv ... -> free.
 * Threads: one at a time, but gloo_leaf_interrupt from any at any time (not beside free).
 * C++:     exceptions end here; nothing of Gloo is visible outside. */
#ifndef COLL_GLOO_LEAF_H
#define COLL_GLOO_LEAF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"

struct gloo_leaf;

/* Listen at `bind` (its port is not looked at), on one port for each higher rank.
 * timeout_ms: a send or recv without progress for so long fails; 0: never. */
int gloo_leaf_new(int rank, int size, const struct sockaddr_storage *bind, int64_t timeout_ms,
                  struct gloo_leaf **out, struct err *err);

uint16_t gloo_leaf_port(const struct gloo_leaf *l, int peer); /* where `peer` connects to; or 0 */
uint32_t gloo_leaf_window(const struct gloo_leaf *l);         /* bytes a link holds unread */

/* Connect to each lower rank r at addrs[r], and wait until the higher ones have connected to us.
 * Fails with ERR_PEER, ERR_TIMEOUT (both name ranks and addresses), ERR_CANCELED. */
int gloo_leaf_connect(struct gloo_leaf *l, const struct sockaddr_storage *addrs,
                      int64_t deadline_ms, struct err *err);

/* Messages of rank 0 land in land[0..piece), all others' in land[piece..2*piece). */
int gloo_leaf_open(struct gloo_leaf *l, void *land, size_t piece, struct err *err);

/* Set the timeout of sends and receives from now on. */
void gloo_leaf_set_timeout(struct gloo_leaf *l, int64_t timeout_ms);

/* Send or receive one message.  Fail with ERR_PEER (names the rank that left, and others that are
 * gone), ERR_TIMEOUT, ERR_CANCELED. */
int gloo_leaf_send(struct gloo_leaf *l, int to, const void *data, size_t n_bytes, struct err *err);
int gloo_leaf_recv(struct gloo_leaf *l, int from, struct err *err);

/* Shut every socket down: whatever blocks in connect, send or recv fails, here and at the peers. */
void gloo_leaf_interrupt(struct gloo_leaf *l);

void gloo_leaf_free(struct gloo_leaf *l);

/* Tests: do Gloo's headers, as compiled here, describe the library that is loaded?  Compares the
 * size of what the library allocates with ours.  ERR_DEVICE if not. */
int gloo_leaf_check_abi(struct err *err);

#ifdef __cplusplus
}
#endif
#endif
