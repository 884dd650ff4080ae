/* coll/fabric/handlers - what this process does at each signal, kept while a library is loaded.
 *
 * libpsm_infinipath and libpsm2, which Debian's libfabric.so.1 loads for any provider, take
 * SIGTERM, SIGINT and the signals of a crash, and end the process at them.  A daemon would then
 * neither stop in order nor leave at a notice.
 *
 * Life:    handlers_keep -> load -> handlers_restore.
 * Threads: one at a time; no other may change a handler meanwhile. */
#ifndef COLL_FABRIC_HANDLERS_H
#define COLL_FABRIC_HANDLERS_H

#include <signal.h>

enum { HANDLERS_END = 32 }; /* signals from here on are real-time ones, a library's to use */

struct handlers {
    struct sigaction was[HANDLERS_END]; /* by the signal's number */
};

void handlers_keep(struct handlers *h);

/* Undo what has changed since handlers_keep. */
void handlers_restore(const struct handlers *h);

#endif
