/* agent - dpfollower --ranks N: starts one process for each rank of this machine, and restarts
 * those that fail.
 *
 * Each child is a dpfollower with its own GPU, CPUs and threads (daemon/places.h).  A child that
 * was killed or failed is started again alone, after a pause that grows from 1 s to 60 s; not with
 * --once.  A child that was refused (exit status 3), found its command line, job or data wrong (2),
 * or was stopped or drained (4) is not started again, nor one that SIGINT, SIGTERM or SIGHUP killed
 * before it caught signals.
 *
 * With --relay the agent connects with drivers in its children's place (net/gateway.h).
 *
 * Signals: the first SIGINT, SIGTERM or SIGHUP is passed on to the children, and the second one
 * kills them.  SIGUSR1 is always passed on.  If the agent dies, the kernel sends its children
 * SIGTERM.
 *
 * Threads: main's. */
#ifndef FOLLOWER_AGENT_H
#define FOLLOWER_AGENT_H

#include "follower/options.h"

/* Returns when all children have ended for good.  Returns the exit status of the first child that
 * ended with 1, 2 or 3; else 4 if a child ended with 4; else 0. */
int agent_run(const struct options *o);

#endif
