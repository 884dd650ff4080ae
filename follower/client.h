/* client - the life of a follower's process: find a driver, take part in its job, and find the next
 * driver.
 *
 *   dialing -> joined (a connection, a session, an engine) -> dialing ... or the end
 *
 * The protocol is in session/follower.h; this file connects it with sockets, timers and the engine.
 *
 * Life:    client_run does it all, and returns the process's exit status.
 * Threads: main's, which is the loop's from then on. */
#ifndef FOLLOWER_CLIENT_H
#define FOLLOWER_CLIENT_H

#include "follower/options.h"

int client_run(const struct options *o);

#endif
