/* coll/fabric/load - finds dptrain-fabric.so, and whether this machine has a network for it.
 *
 * Threads: any; but fabric_set_limit is called by main alone, before there are others. */
#ifndef COLL_FABRIC_LOAD_H
#define COLL_FABRIC_LOAD_H

#include "coll/fabric/port.h"

/* Load the plugin, for good, from the folders of base/installed.h.  Fails with ERR_UNSUPPORTED: it
 * is not there, of another version, or libfabric.so.1 is missing. */
int fabric_load(const struct fabric_ops **out, struct err *err);

/* The provider of the fastest network whose devices are below `root` ("" on a real machine); NULL:
 * there is none.  Only files are looked at. */
const char *fabric_likely(const char *root);

/* Let the provider tcp;ofi_rxm send each message of ours as one, and not ask the receiver for it
 * first (FI_OFI_RXM_EAGER_LIMIT, FI_OFI_RXM_BUFFER_SIZE): a large sum takes 0.6 of the time.
 * Ofi_rxm connects only ranks with the same limit, and reads it once in a process.  A limit that
 * the user has set stays.  So does ofi_rxm's own one where verbs;ofi_rxm is likely: its buffers
 * would be larger, too. */
void fabric_set_limit(const char *root);

#endif
