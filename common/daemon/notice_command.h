/* notice_command - a site's command that tells whether this machine is about to go away.
 *
 * `sh -c` runs it.  Status 0: the machine goes away, in as many seconds as the first word of its
 * output says, if that is a number.  Status 1: it stays.  Anything else is a failure, and so is a
 * run that takes too long.  Its standard error is the daemon's.  At the end of each run, and of the
 * daemon, its process group is killed, so nothing that it started outlives it; if the daemon is
 * killed, the shell is.
 *
 * Life:    a struct of zeros, but .text -> notice_command_ask ... -> notice_command_fini.
 * Threads: one, and the same for all calls (daemon/minder.h). */
#ifndef DAEMON_NOTICE_COMMAND_H
#define DAEMON_NOTICE_COMMAND_H

#include "base/err.h"
#include "daemon/minder.h"
#include "session/notice.h"

enum { NOTICE_COMMAND_LIMIT_MS = 30000 };

struct notice_command {
    const char *text; /* borrowed */
    int limit_ms;     /* the longest that a run may take */
    struct minder minder;
};

/* Run the command, unless stop_fd becomes readable meanwhile.  1: *out is the notice.  0: none.
 * ERR_IO: it failed; the message says how, and what is wanted. */
int notice_command_ask(struct notice_command *c, int stop_fd, struct notice *out, struct err *err);
void notice_command_fini(struct notice_command *c);

#endif
