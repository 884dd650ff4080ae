/* coll/links - all links of one rank: a listening socket, and a thread that connects and accepts.
 * Ranks of one machine connect by names (coll/samehost.h), and share memory.
 *
 * The higher rank of a pair dials the lower one, when either links_want asks for it.  All proofs
 * (coll/shake.h) proceed side by side on the one thread, so that a slow or hostile connection holds
 * up no other.  A link takes a rank's place only when its proof is complete.
 *
 * Strangers: connections that have not proven the key are bounded in number, also for each source
 *          (endpoint_is_same_source), and in time; the oldest gives way.  A dialer whose connection
 *          was closed meanwhile dials again.
 * Life:    links_new -> links_begin -> links_want, links_get ... -> links_free.
 * Threads: any, but for links_new and links_free.
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

/* From now on connect, where peers[r] is rank r's address, and names[r] its name on its machine
 * (NULL: connect by addresses only).  Takes both, [size], from malloc.
 * Borrows the cipher of encrypted links until links_free; NULL: plain.
 * Strangers are counted from here on, too, those that came earlier included. */
void links_begin(struct links *l, const uint8_t key[PROOF_KEY], const struct cipher *cipher,
                 struct endpoint_addr *peers, struct samehost_name *names);

/* Make a link with rank r, if there is none.  The lower rank of the two can only wait for the other
 * rank to call this. */
void links_want(struct links *l, enum coll_channel ch, int r);

/* Want the link, and wait for it until the time until_ns (INT64_MAX: for ever).
 * Fails with ERR_PEER (rank, address, why), ERR_PROTO (the rank wants another mode), ERR_TIMEOUT,
 * ERR_CANCELED (links_interrupt), ERR_NOMEM (no more open files), ERR_IO. */
int links_get(struct links *l, enum coll_channel ch, int r, int64_t until_ns, struct link **out,
              struct err *err);

/* How to name a rank that has not connected: "3 (10.0.0.7:4000)", "5 (did not connect to us)". */
void links_name(struct links *l, int r, char out[ENDPOINT_TEXT + 40]);

/* List the ranks, but not `except`, whose links are broken: "; also gone: rank 2, 5", or "". */
void links_list_gone(struct links *l, int except, char *out, size_t len);

/* End: no connection is made any more, and all links fail, here and at the peers. */
void links_interrupt(struct links *l);

bool links_are_kernel(struct links *l); /* the kernel encrypts */

/* With how many ranks this rank shares memory. */
int links_n_shared(struct links *l);

int64_t links_n_strangers(struct links *l);

void links_free(struct links *l); /* NULL is fine */

#endif
