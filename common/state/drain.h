/* drain - waits for a device whose work may hang in a collective.
 *
 * Threads: the engine's. */
#ifndef STATE_DRAIN_H
#define STATE_DRAIN_H

#include "backend/backend.h"
#include "coll/coll.h"

/* Wait until all that the backend has queued is done, or until the coll (NULL: none) fails.  Polls
 * both.  Returns at once if b queues nothing. */
int drain_device(struct coll *c, struct backend *b, struct err *err);

#endif
