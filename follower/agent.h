/* agent - dpfollower --ranks N: one process for each rank of this machine, started and minded here.
 *
 * Each child is a dpfollower with its own GPU, CPUs and threads (daemon/places.h).  One that was
 * killed or failed is started again alone, after a pause that grows from 1 s to 60 s; not with
 * --once.  One that was refused (exit status 3), found its command line, job or data wrong (2), or
 * was stopped or drained (4) is not.  The first SIGINT, SIGTERM or SIGHUP is passed on, and the
 * second one kills; SIGUSR1 is passed on always.  If the agent dies, its children are stopped by
 * SIGTERM.
 *
 * Threads: main's. */
#ifndef FOLLOWER_AGENT_H
#define FOLLOWER_AGENT_H

#include "follower/options.h"

/* Returns when all children have ended for good: the exit status of the first one that ended with
 * 1, 2 or 3; else 4 if one ended with that; else 0. */
int agent_run(const struct options *o);

#endif
