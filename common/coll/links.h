/* coll/links - all links of one rank: a listening socket, and a thread that connects and accepts.
 * coll/tcp.c uses it.  Ranks of one machine connect by names (coll/samehost.h), and share memory.
 *
 * The higher rank of a pair dials the lower one, once it calls links_want or links_get for it.  All
 * proofs (coll/shake.h) proceed at the same time on the one thread, so a slow or hostile connection
 * holds up no other.  A connection becomes a rank's link only when its proof is complete.
 *
 * Strangers: connections that have not proven the key are bounded in number, in all and for each
 *          source (endpoint_is_same_source), and in time.  A new one replaces the oldest.  A dialer
 *          whose connection was closed because of that dials again.
 * Life:    links_new -> links_begin -> links_want, links_get ... -> links_free.
 * Threads: any, except links_new and links_free: one, and no other call at the same time.
 * Errors:  a failure to connect with one rank is final, and is what every links_get then returns.
 */
#ifndef COLL_LINKS_H
#define COLL_LINKS_H

#include "coll/cipher.h"
#include "coll/endpoint.h"
#include "coll/link.h"
#include "coll/proof.h"
#include "coll/samehost.h"

struct links; /* opaque */

/* Listen at `at`, on a port that the kernel chooses, and for ranks of this machine at `name` (NULL:
 * do not).  timeout_ms: of the links' calls.
 * Fails with ERR_IO. */
int links_new(int rank, int size, const struct endpoint_addr *at, const struct samehost_name *name,
              int64_t timeout_ms, struct links **out, struct err *err);

uint16_t links_port(const struct links *l);

/* From now on connect.  peers[r] is rank r's address, and names[r] its name on its machine (names
 * NULL: connect by addresses only).  Takes both arrays, [size], from malloc.
 * cipher: for encrypted links, borrowed until links_free; NULL: links are plain.
 * fabric: over which the links' bytes go, except those in shared memory; borrowed, has begun; NULL:
 * they go by TCP.
 * From here on strangers are counted, including those that came earlier. */
void links_begin(struct links *l, const uint8_t key[PROOF_KEY], const struct cipher *cipher,
                 struct fabric *fabric, struct endpoint_addr *peers, struct samehost_name *names);

/* Start to make a link with rank r, if there is none.  If r is the higher rank of the two, it
 * dials, so this rank can only wait until r calls links_want, too. */
void links_want(struct links *l, enum coll_channel ch, int r);

/* Ask for the link, and wait for it until the time until_ns (INT64_MAX: for ever).
 * Fails with ERR_PEER (rank, address, why), ERR_PROTO (the rank wants another mode), ERR_TIMEOUT,
 * ERR_CANCELED (links_interrupt), ERR_NOMEM (no more open files), ERR_IO. */
int links_get(struct links *l, enum coll_channel ch, int r, int64_t until_ns, struct link **out,
              struct err *err);

/* Name a rank that has not connected: "3 (10.0.0.7:4000)", "5 (did not connect to us)". */
void links_name(struct links *l, int r, char out[ENDPOINT_TEXT + 40]);

/* List the ranks, but not `except`, whose links are broken: "; also gone: rank 2, 5", or "". */
void links_list_gone(struct links *l, int except, char *out, size_t len);

/* Stop making connections, and make all links fail, here and at the peers. */
void links_interrupt(struct links *l);

int links_are_kernel(struct links *l); /* 1: the kernel encrypts */

/* The number of ranks with which this rank shares memory. */
int links_n_shared(struct links *l);

int64_t links_n_strangers(struct links *l);

void links_free(struct links *l); /* NULL is fine */

#endif
