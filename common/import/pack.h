/* pack - a network as bytes, without its weights: what a driver hands to its followers, and what a
 * run directory keeps.  Constants are part of it.
 *
 * The bytes are a header, and a message of proto/network.proto compressed by zlib.  Equal networks
 * give equal bytes.
 *
 * Threads: any. */
#ifndef IMPORT_PACK_H
#define IMPORT_PACK_H

#include "base/buf.h"
#include "import/network.h"

enum { IMPORT_PACK_MAX = 512 << 20 }; /* bytes of a network's message; more are refused */

/* Append the network to `out`.  Fails with ERR_CONFIG (larger than IMPORT_PACK_MAX), ERR_NOMEM. */
int import_pack(const struct import_network *n, struct buf *out, struct err *err);

/* The bytes may come from a stranger: they are refused, or *out passes import_network_check.  Fails
 * with ERR_CORRUPT, ERR_NOMEM. */
int import_unpack(const void *data, size_t len, struct import_network **out, struct err *err);

#endif
