/* local - the followers that --local and --ranks start on this machine.
 *
 * They are a process group of their own, so Ctrl-C in a terminal reaches only the driver.  The
 * kernel kills them when the driver dies, however it dies.
 *
 * Life:    local_start -> (local_reap on SIGCHLD, local_restart) ... -> local_end.
 * Threads: main's (the kernel ties their life to the thread that started them). */
#ifndef DRIVER_LOCAL_H
#define DRIVER_LOCAL_H

#include "daemon/minder.h"
#include "driver/options.h"
#include "job/job.h"
#include "session/status.h"

enum { LOCAL_RESTARTS = 3, LOCAL_RESTARTS_MS = 60000, LOCAL_DOOM_MS = 2000 };

struct local {
    struct minder minder; /* a child's tag is its number: its first rank, or -1 for a spare */
    char *program, *host;
    int port, secret_fd;
    const struct options *options;
    int64_t restarted_ns[LOCAL_RESTARTS]; /* the latest ones */
    int n_restarts;
    int is_killed; /* 1: all children were sent SIGKILL */
};

/* With --local on GPUs, check that there is a GPU for each rank and spare.  Fails with ERR_ARG if
 * there are too few. */
int local_check_gpus(const struct options *o, const struct job *job, struct err *err);

/* Start the followers of this machine, which find the driver at host:port: with --local ranks
 * 1..n_ranks-1 and the spares, with --ranks N ranks 1..N-1.  secret_fd: a file with the secret,
 * which they inherit, and which must stay open until local_end; -1: none. */
int local_start(struct local *l, const struct options *o, int n_spares, const char *host, int port,
                int secret_fd, struct err *err);

/* Start a follower in place of child `number`, for any rank.  Fails with ERR_REFUSED if
 * LOCAL_RESTARTS followers were started so within LOCAL_RESTARTS_MS. */
int local_restart(struct local *l, int number, struct err *err);

/* Reap one follower that has ended, as minder_reap does; its tag is its *number. */
int local_reap(struct local *l, int *number, char text[64], int *status);

/* The rank of process `pid` was lost.  Returns 1 if the process is a child of this one; then call
 * local_kill_doomed after LOCAL_DOOM_MS.  Until then the child may end by itself; a frozen child
 * never would. */
int local_doom(struct local *l, pid_t pid);
void local_kill_doomed(struct local *l);

/* Kill all children, before training has begun, when they may still be looking for the driver. */
void local_kill(struct local *l);

/* The job is over, and the driver no longer listens.  Stop each child that is not one of the job's
 * ranks, such as a replacement that came late: nobody has told it of the end, and it may still be
 * looking for the driver. */
void local_dismiss(struct local *l, const struct status *last);

/* Wait for at most patience_ms until all children have ended by themselves; then kill the others.
 */
void local_end(struct local *l, int patience_ms);

#endif
