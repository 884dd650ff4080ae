/* notice_signal - tells the SIGUSR1 by which Slurm announces the end of a job (--signal=USR1@N)
 * from one that asks a daemon for its state.
 *
 * Slurm's comes from slurmstepd, in a job.  A process that minds others passes it on to them with a
 * value, as they would not know it by its sender.
 *
 * Threads: any. */
#ifndef DAEMON_NOTICE_SIGNAL_H
#define DAEMON_NOTICE_SIGNAL_H

#include <sys/signalfd.h>

#include "session/notice.h"

enum { NOTICE_SIGNAL_VALUE = 0x6e6f74 }; /* passed on with SIGUSR1, by sigqueue */

/* 1: it announces the end, and *out is the notice. */
int notice_signal_read(const struct signalfd_siginfo *info, struct notice *out);

#endif
