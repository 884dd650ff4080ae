/* local - the followers that --local and --ranks start on this machine.
 *
 * They are a process group of their own, so that Ctrl-C in a terminal reaches the driver alone, and
 * the kernel kills them when the driver dies, however it dies.
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
    struct minder minder; /* a child's tag is its number: its first rank, or -1 of a spare */
    char *program, *host;
    int port, secret_fd;
    const struct options *options;
    int64_t restarted_ns[LOCAL_RESTARTS]; /* the latest ones */
    int n_restarts;
    int is_killed; /* all children were sent SIGKILL */
};

/* With --local on GPUs each rank and spare has one of its own: ERR_ARG if there are too few. */
int local_check_gpus(const struct options *o, const struct job *job, struct err *err);

/* Start the followers of this machine, which find the driver at host:port: with --local ranks
 * 1..n_ranks-1 and the spares, with --ranks N ranks 1..N-1.  secret_fd: the
 * secret that they inherit, which stays open until local_end; -1: none. */
int local_start(struct local *l, const struct options *o, int n_spares, const char *host, int port,
                int secret_fd, struct err *err);

/* Start one more in the place of child `number`, for any rank.  ERR_REFUSED: LOCAL_RESTARTS were
 * started within LOCAL_RESTARTS_MS. */
int local_restart(struct local *l, int number, struct err *err);

/* Reap one follower that has ended: returns > 0, its *number, *text ("exited with status 2") and
 * *status (its exit status, or 1 for a signal).  0: none has ended.  Call it until it returns 0. */
int local_reap(struct local *l, int *number, char text[64], int *status);

/* The rank of process `pid` was lost.  Returns 1 if it is one of our children: then call
 * local_kill_doomed after LOCAL_DOOM_MS.  Until then it may end by itself; a frozen one never
 * would. */
int local_doom(struct local *l, pid_t pid);
void local_kill_doomed(struct local *l);

/* Training has not begun: kill all children, which may still be looking for the driver. */
void local_kill(struct local *l);

/* The job is over, and its driver listens no more.  A child that is none of the job's ranks has not
 * been told, and may still be looking for the driver, such as a replacement that came late.  Stop
 * it. */
void local_dismiss(struct local *l, const struct status *last);

/* Wait for at most patience_ms until all children have ended by themselves; then kill the others.
 */
void local_end(struct local *l, int patience_ms);

#endif
