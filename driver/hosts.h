/* hosts - the followers that --hosts starts on other machines, through ssh.
 *
 * A line of the file names a machine and its number of ranks, as for mpirun and DeepSpeed: "node2
 * slots=4".  Without slots the machine has one rank.  # begins a comment.
 *
 * On each machine one dpfollower --ranks runs, under a shell that reads ssh's standard input.  The
 * first line is the secret.  The shell writes it to a file that only its owner can read, so the
 * secret is never on a command line.  Standard input ends when this process ends, and then the
 * shell stops the follower.  The follower's standard error goes to that of this process.
 *
 * A machine whose ssh has failed may come back, such as one that was started anew: hosts_retry
 * tries it again after 1 s, later after up to 60 s.
 *
 * Life:    hosts_read -> hosts_start -> (hosts_reap on SIGCHLD -> hosts_retry -> hosts_start_due)
 *          ... -> hosts_end; free(line).
 * Threads: main's. */
#ifndef DRIVER_HOSTS_H
#define DRIVER_HOSTS_H

#include "daemon/minder.h"

struct options;

enum { HOSTS_MAX = 1024, HOSTS_NAME = 256 };

struct hosts_line {
    char name[HOSTS_NAME]; /* for ssh: HOST or USER@HOST */
    int slots;
    int input;                  /* the writing end of ssh's standard input; -1: closed */
    int64_t started_ns, due_ns; /* due_ns: when ssh is started again; 0: it is not */
    int pause_s;
};

struct hosts {
    struct hosts_line *line; /* [n]; n is 0 without --hosts */
    int n;
    struct minder minder; /* of the ssh processes; a child's tag is its line */
    const struct options *options;
    int starts_again;              /* as hosts_start was told */
    char root[ADDR_MAX_HOST + 16]; /* this driver, as its followers find it */
    char *ssh, *program;           /* ssh's path, and dpfollower's */
};

/* ERR_IO, ERR_CONFIG with file and line. */
int hosts_read(const char *path, struct hosts *out, struct err *err);
int hosts_n_ranks(const struct hosts *h);

/* Start the followers of all machines, which find the driver at `port` of this machine.  The
 * options are borrowed.
 *
 * starts_again  1: a machine starts a rank that fails again, as long as another one is there */
int hosts_start(struct hosts *h, const struct options *o, int port, int starts_again,
                struct err *err);

/* Reap one ssh that has ended: returns > 0 and sets *number, its line, and text and *status as
 * minder_reap does. */
int hosts_reap(struct hosts *h, int *number, char text[64], int *status);

/* The ssh of a line is to be started again: in how many seconds hosts_start_due will do it. */
int hosts_retry(struct hosts *h, int number);

/* Start those that are due; a failure is logged, and tried again.  Returns how many are left. */
int hosts_start_due(struct hosts *h);

/* Wait for at most patience_ms until all have ended, then stop those that still run. */
void hosts_end(struct hosts *h, int patience_ms);

#endif
