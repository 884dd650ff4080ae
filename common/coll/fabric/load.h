/* coll/fabric/load - finds dptrain-fabric.so, and whether this machine has a network for it.
 *
 * Threads: any. */
#ifndef COLL_FABRIC_LOAD_H
#define COLL_FABRIC_LOAD_H

#include "coll/fabric/port.h"

/* Load the plugin, for good, from the folders of base/installed.h.  Fails with ERR_UNSUPPORTED: it
 * is not there, of another version, or libfabric.so.1 is missing. */
int fabric_load(const struct fabric_ops **out, struct err *err);

/* The provider of the fastest network whose devices are below `root` ("" on a real machine); NULL:
 * there is none.  Only files are looked at. */
const char *fabric_likely(const char *root);

#endif
