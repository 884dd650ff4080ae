/* coll/gloo - ranks as processes (or threads), over TCP, with Gloo.
 *
 * A coll is made in two phases, so that addresses can travel through the control plane, and
 * neither a store nor a rendezvous server is needed:
 *
 *   coll_gloo_prepare    opens a listening port for each other rank and channel
 *   coll_gloo_endpoint   this rank's addresses as a blob, to send to the driver
 *   (the driver gathers the blobs of all ranks, replaces addresses where it must, sends them all)
 *   coll_gloo_connect    connects to everyone; from then on collectives work
 *
 * A blob is ours, not Gloo's: rank, size, one IP address, one port per peer and channel,
 * big-endian (coll/endpoint.h); so it does not depend on compiler or library.  The data do: ranks
 * must share byte order and IEEE floats, and size_t, which Gloo's headers in the stream use.
 *
 * The higher rank of a pair connects to the lower one, which is why rank 0's address matters most.
 * Ports are neither authenticated nor encrypted: the first peer to connect to a port is greeted.
 * Unless that peer knows this coll's blob, the connect fails with ERR_PROTO.
 *
 * Life:    prepare -> endpoint -> connect -> as coll.h says.  coll_abort and coll_free work at
 *          every point, also from another thread inside a connect (abort only).
 * Threads: as coll.h. */
#ifndef COLL_GLOO_H
#define COLL_GLOO_H

#include "base/buf.h"
#include "coll/coll.h"

enum {
    COLL_GLOO_MAX_RANKS = 256, /* each pair costs every rank two ports and four descriptors */
    COLL_IP_LEN = 46,          /* the text of an IPv4 or IPv6 address, with NUL */
};

/* Open the listening ports of `rank` of `size` and put the coll, not yet connected, in *out.
 *
 * bind   the address to listen on and to advertise ("10.0.0.3"), or NULL.
 * iface  the network interface whose address that is ("eth0"), or NULL.  Both NULL: loopback.
 * timeout_ms  collectives without progress for so long fail with ERR_TIMEOUT; 0: never (slow steps
 *        are legal; the control plane knows better, and calls coll_abort).
 *
 * Fails with ERR_ARG (rank, size > COLL_GLOO_MAX_RANKS), ERR_IO (address, interface, ports). */
int coll_gloo_prepare(int rank, int size, const char *bind, const char *iface, int64_t timeout_ms,
                      struct coll **out, struct err *err);

/* Append this rank's blob to *out (40 + 4 * size bytes).  Callable any time after prepare. */
void coll_gloo_endpoint(struct coll *c, struct buf *out);

/* Connect to all ranks, where blobs[r], of lens[r] bytes, is rank r's.  They are foreign bytes and
 * are checked here; this rank's own blob is not looked at.  Once per coll.
 * Gives up after deadline_ms from now.
 * Fails with ERR_PROTO (a blob: whose, what), ERR_PEER (cannot connect: rank, address, why),
 * ERR_TIMEOUT (the ranks still missing and their addresses), ERR_CANCELED. */
int coll_gloo_connect(struct coll *c, const void *const *blobs, const size_t *lens,
                      int64_t deadline_ms, struct err *err);

/* Once connected: bytes of the longest message.  It follows from the smallest window of all ranks,
 * so all ranks agree on it. */
size_t coll_gloo_piece(struct coll *c);

#endif
