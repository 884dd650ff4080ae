/* heed - a daemon heeds the notices that cluster.notice of its job asks for.
 *
 * Life:    a struct of zeros -> heed_begin -> heed_end, for each job.
 * Threads: the loop's. */
#ifndef DAEMON_HEED_H
#define DAEMON_HEED_H

#include "daemon/daemon.h"
#include "daemon/notices.h"

struct heed {
    struct notices *notices; /* NULL: nothing is asked */
    struct daemon *daemon;
    int has_begun;
};

/* From now on a notice reaches the daemon's machine (daemon_notice).  from: cluster.notice, copied.
 * is_own 0: the job is of a driver that has not proven that it knows the secret, so its command is
 * not run.  A failure is logged.  Once it has begun, a further call does nothing. */
void heed_begin(struct heed *h, struct daemon *d, const char *from, int is_own);
void heed_end(struct heed *h);

#endif
