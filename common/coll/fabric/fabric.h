/* coll/fabric - the links of one rank over a fabric: a network that libfabric drives.
 *
 * The ranks connect and prove the formation's key by TCP, as they do without a fabric
 * (coll/links.h).  Then the bytes of a link go as messages of the fabric, and its socket only shows
 * when the peer is gone.  The addresses on the fabric are part of the endpoints (coll/endpoint.h).
 *
 * Every message is authenticated, and encrypted if the formation's links are (coll/fabric/seal.h).
 * A message that does not prove the key is dropped and counted as a stranger.
 *
 * A rank that has sent all its bytes may go on to compute, and then makes no progress for them.  So
 * it flushes its links (coll/link.h) at the end of each collective.
 *
 * Life:    fabric_new -> fabric_describe -> fabric_meet for every other rank -> fabric_begin ->
 *          link_over_fabric ... -> the links are freed -> fabric_free.
 * Threads: one; after fabric_begin one for each channel.  link_over_fabric and fabric_n_strangers
 *          from any.
 * Errors:  of links as coll/link.h says; else as coll/fabric/port.h. */
#ifndef COLL_FABRIC_FABRIC_H
#define COLL_FABRIC_FABRIC_H

#include "coll/endpoint.h"
#include "coll/link.h"
#include "coll/proof.h"

struct fabric; /* opaque */

/* Open this rank's ports.  provider: its name; "auto": the one of this machine's fastest network,
 * and *out is NULL if there is none or it cannot be used.  ip: this rank's address.
 * Fails with ERR_UNSUPPORTED (the plugin, libfabric or the provider is missing), ERR_DEVICE. */
int fabric_new(const char *provider, const char *ip, int rank, int size, struct fabric **out,
               struct err *err);
void fabric_free(struct fabric *f); /* NULL is fine */

/* This rank's part of its endpoint. */
void fabric_describe(const struct fabric *f, struct endpoint_fabric *out);

/* Take the addresses of rank r.  Fails with ERR_PROTO. */
int fabric_meet(struct fabric *f, int r, const struct endpoint_fabric *e, struct err *err);

/* From now on messages are received.  hides: they are encrypted. */
int fabric_begin(struct fabric *f, const uint8_t key[PROOF_KEY], int hides, struct err *err);

const char *fabric_name(const struct fabric *f); /* the provider's */
int64_t fabric_n_strangers(const struct fabric *f);

/* The form of a link whose bytes go to rank r over the fabric: see coll/link_impl.h. */
struct link *link_over_fabric(struct fabric *f, enum coll_channel ch, int r);

#endif
