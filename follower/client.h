/* client - a follower's life: find the driver, take part in its job, and again.
 *
 *   dialing -> joined (a connection, a session, an engine) -> dialing ... or the end
 *
 * Life: client_run does it all, and returns the process's exit status. */
#ifndef FOLLOWER_CLIENT_H
#define FOLLOWER_CLIENT_H

#include "follower/options.h"

int client_run(const struct options *o);

#endif
