/* coll/shm - memory that two ranks of one machine share: a ring of bytes for each direction.
 *
 * The rank that makes the memory is its first side and hands the descriptor to the other rank, the
 * second side, which attaches.  Each side writes one ring and reads the other, so a ring has one
 * writer and one reader, and needs no lock.  A side that must wait sleeps on a futex in the memory.
 *
 * Trust:   the other side could write anything into the memory.  So impossible positions are
 *          refused, and the memory cannot shrink, because its descriptor is sealed.
 * Life:    shm_new, or shm_attach -> shm_send, shm_recv, shm_wait_to_send ... -> shm_free.
 * Threads: one at a time; but shm_close from any, except during shm_free. */
#ifndef COLL_SHM_H
#define COLL_SHM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct shm; /* opaque */

/* The bytes that a ring holds: MESH_WINDOW pieces (coll/mesh.h). */
enum { SHM_RING = 512 << 10 };

/* Make the memory.  *fd is its descriptor, which the caller closes.  Fails with ERR_NOMEM, ERR_IO.
 */
int shm_new(struct shm **out, int *fd, struct err *err);

/* Attach the memory of the other rank.  The caller keeps fd.  Fails with ERR_PROTO (fd is no such
 * memory), ERR_NOMEM, ERR_IO. */
int shm_attach(int fd, struct shm **out, struct err *err);

/* Copy as many bytes as there is room for (send), or as have come (recv), up to n_bytes.  Returns
 * how many; -1: the other side has written impossible positions. */
ssize_t shm_send(struct shm *s, const void *data, size_t n_bytes);
ssize_t shm_recv(struct shm *s, void *to, size_t n_bytes);

/* 1: n_bytes, at most a whole ring, can be sent, or received. */
int shm_has_room(const struct shm *s, size_t n_bytes);
int shm_has_bytes(const struct shm *s, size_t n_bytes);

/* Sleep until n_bytes (at most a whole ring) can be sent, or received.  Also returns when one side
 * has called shm_close, or after timeout_ns; and it may return earlier. */
void shm_wait_to_send(struct shm *s, size_t n_bytes, int64_t timeout_ns);
void shm_wait_to_recv(struct shm *s, size_t n_bytes, int64_t timeout_ns);

/* Mark the end for both sides, and wake them.  Bytes that were sent can still be received. */
void shm_close(struct shm *s);
int shm_is_closed(const struct shm *s);

void shm_free(struct shm *s); /* NULL is fine; the other side keeps what it has attached */

#endif
