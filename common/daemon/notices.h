/* notices - hears that this machine is about to go away, as cluster.notice says.
 *
 * A thread of its own asks every few seconds until a notice has come.  It asks a command of the
 * job's (daemon/notice_command.h), or the cloud's metadata service (daemon/metadata.h).  Meanwhile
 * it hears whether systemd shuts the machine down (daemon/inhibitor.h).  A source that fails is
 * told of in the log, each failure once, and asked again.
 *
 * Life:    notices_new -> (heard) -> notices_free, and the loop runs until the handle is closed.
 * Threads: the loop's, which also calls `heard`; it has one more.
 * Errors:  notices_new: ERR_IO, ERR_UNSUPPORTED. */
#ifndef DAEMON_NOTICES_H
#define DAEMON_NOTICES_H

#include <uv.h>

#include "base/err.h"
#include "session/notice.h"

struct notices; /* opaque */

enum { NOTICES_EACH_MS = 5000 };

struct notices_options {
    const char *from; /* cluster.notice: "auto", "none" or a command; copied */
    int each_ms;      /* 0: NOTICES_EACH_MS */
    int limit_ms;     /* 0: NOTICE_COMMAND_LIMIT_MS */
    void (*heard)(void *arg, const struct notice *n); /* at most once */
    void *arg;
};

/* *out is NULL where nothing is to be asked. */
int notices_new(uv_loop_t *loop, const struct notices_options *o, struct notices **out,
                struct err *err);

/* NULL is fine.  A command that runs is killed. */
void notices_free(struct notices *n);

#endif
