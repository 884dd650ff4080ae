/* coll/tcp - ranks as processes (or threads) that exchange messages over TCP.
 *
 * A coll is made in two phases.  So addresses and the key can travel through the control plane, and
 * no store or rendezvous server is needed:
 *
 *   coll_tcp_prepare    opens this rank's one listening port
 *   coll_tcp_endpoint   this rank's address, port and random bytes as a blob, to send to the driver
 *   (the driver gathers the blobs of all ranks and sends the whole table to every rank)
 *   coll_tcp_connect    connects; from then on collectives work
 *
 * A blob does not depend on compiler or library (coll/endpoint.h).  The data do: ranks must share
 * byte order and IEEE floats.
 *
 * Trust: the key of a formation is a hash of its table of blobs, whose random bytes are new in each
 *        prepare.  Only the control plane carries them, so keep blobs out of logs.  Each connection
 *        begins with a mutual proof of that key (coll/proof.h).  A connection that does not prove
 *        the key is closed and counted (coll_stats.n_strangers).  It takes no rank's place, and its
 *        bytes reach only a check of fixed size.
 *        Encrypted links carry TLS 1.3 inside (coll/cipher.h).  Plain links are proven, too.
 *        Over a fabric each message is authenticated, plain or not (coll/fabric/fabric.h).
 * Links:   the higher rank of a pair connects to the lower one, so rank 0's address matters most.
 *        Up to MESH_ALL_PAIRS ranks (coll/mesh.h), every pair connects in coll_tcp_connect.
 *        Beyond, only neighbours in a ring and in a tree do; other pairs connect at first use.
 *
 * Life:    prepare -> endpoint -> connect -> as coll.h says.  coll_abort and coll_free work at
 *          every point, also from another thread inside a connect (abort only).
 * Threads: as coll.h. */
#ifndef COLL_TCP_H
#define COLL_TCP_H

#include "base/buf.h"
#include "coll/coll.h"

enum {
    COLL_TCP_MAX_RANKS = 4096,
    COLL_IP_LEN = 46, /* the text of an IPv4 or IPv6 address, with NUL */
};

enum coll_encrypt {
    COLL_ENCRYPT_OFF,
    COLL_ENCRYPT_ON,
    COLL_ENCRYPT_REMOTE, /* unless every rank's address is loopback */
};

struct coll_tcp_options {
    int rank, size;
    const char *bind;   /* the address to listen on and to advertise ("10.0.0.3"), or NULL */
    const char *iface;  /* the network interface whose address that is ("eth0"), or NULL; with
                           neither of the two: loopback */
    int64_t timeout_ms; /* collectives without progress for this time fail with ERR_TIMEOUT; 0:
                           never, because slow steps are legal, and the control plane calls
                           coll_abort if a rank is lost */
    enum coll_encrypt encrypt; /* the same on all ranks; a difference fails the connect */
    int share_memory;   /* use shared memory with ranks of the same machine that have this set, too;
                            not used if `encrypt` is COLL_ENCRYPT_ON */
    const char *fabric; /* the links' bytes go by TCP ("tcp" or NULL); over this provider of
                           libfabric; or "auto": over the one that all ranks offer, else by TCP */
};

/* Open the listening port and put the coll, not yet connected, in *out.
 * Fails with ERR_ARG (rank, size > COLL_TCP_MAX_RANKS), ERR_IO (address, interface, port),
 * ERR_UNSUPPORTED (the provider is missing). */
int coll_tcp_prepare(const struct coll_tcp_options *o, struct coll **out, struct err *err);

/* Append this rank's blob to *out.  Callable any time after prepare. */
void coll_tcp_endpoint(struct coll *c, struct buf *out);

/* Connect to all ranks that this one needs.  blobs[r], of lens[r] bytes, is rank r's blob.  All
 * ranks must be given the same bytes.  The bytes come from other processes and are checked here.
 * Call it once per coll.  Gives up after deadline_ms. Fails with ERR_PROTO (a blob: whose, what; a
 * rank that wants another encryption, or lacks the provider), ERR_PEER (cannot connect: rank,
 * address, why), ERR_TIMEOUT (the ranks still missing and their addresses), ERR_CANCELED. */
int coll_tcp_connect(struct coll *c, const void *const *blobs, const size_t *lens,
                     int64_t deadline_ms, struct err *err);

/* While coll_tcp_connect waits: a rank with which the link is missing; else -1.  Any thread. */
int coll_tcp_unlinked(struct coll *c);

/* Once connected: the bytes of the longest message.  It follows from the smallest window of all
 * ranks, so it is the same on all ranks. */
size_t coll_tcp_piece(struct coll *c);

/* Once connected: "plain", "TLS by OpenSSL", "TLS by the kernel" or, over a fabric, "AES-128-GCM by
 * OpenSSL".  Constant text. */
const char *coll_tcp_protection(struct coll *c);
int coll_tcp_is_encrypted(struct coll *c);

/* Once connected: whether large sums go along the chain of ranks (coll/mesh.h). */
int coll_tcp_is_chained(struct coll *c);

/* Once connected: the provider of the fabric, until coll_free; NULL: there is none. */
const char *coll_tcp_fabric(struct coll *c);

/* Once connected: the number of ranks with which this rank shares memory. */
int coll_tcp_n_shared(struct coll *c);

#endif
