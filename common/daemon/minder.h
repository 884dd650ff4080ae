/* minder - starts daemons on this machine and minds them: dpdriver its followers (--local,
 * --ranks), dpfollower --ranks one process for each rank.
 *
 * The children are a process group of their own, so Ctrl-C in a terminal reaches the minder alone.
 * The kernel sends them a signal when the minder dies, however it dies.  They write to the minder's
 * standard error.  A child learns by its environment who minds it, and how the log names it until
 * it has a rank.
 *
 * Life:    a struct of zeros -> minder_start ..., minder_reap on SIGCHLD ... -> minder_end.
 * Threads: main's, as the kernel ties the children's lives to the thread that started them. */
#ifndef DAEMON_MINDER_H
#define DAEMON_MINDER_H

#include <sys/types.h>

#include "daemon/daemon.h"
#include "daemon/places.h"

enum minder_kind { MINDER_NONE, MINDER_DRIVER, MINDER_AGENT, MINDER_SSH /* dpdriver --hosts */ };

/* This process's own minder. */
struct minder_role {
    enum minder_kind kind;
    int number; /* the log names this process by it until it has a rank; 0: the log does not */
};

struct minder_role minder_role(void);

/* The lane that this process has inherited from its minder as standard input, which is /dev/null
 * from here on.  0: there is none.  Call it once. */
int minder_take_lane(void);

/* ---- a child's command line ---- */

enum { MINDER_MAX_ARGS = 40 + 2 * TLS_MAX_SECRETS, MINDER_NUMBER = 24 };

/* The texts are borrowed, except those that are kept here.  It must not be moved. */
struct minder_command {
    const char *argv[MINDER_MAX_ARGS]; /* NULL at the end; argv[0] is the program's path */
    int n;
    char rank[MINDER_NUMBER], threads[MINDER_NUMBER], wait[MINDER_NUMBER], secret[SECRET_PATH];
};

/* Append an option, and its value unless that is NULL. */
void minder_add(struct minder_command *c, const char *option, const char *value);

struct minder_follower {
    const char *program, *device;
    const char *root; /* NULL: the follower takes it from its environment, as this process did */
    int rank;         /* -1: any */
    int n_threads;    /* 0: --threads is left out */
    int secret_fd;    /* a secret that the child inherits, or -1 */
};

/* Append what every rank is given, and of `o` the network, the secrets and the form of the log. */
void minder_add_follower(struct minder_command *c, const struct daemon_options *o,
                         const struct minder_follower *f);

/* The path of dpfollower as seen from this program: beside it, in the build tree or in libexec; the
 * caller frees it.  ERR_CONFIG: it is not there. */
int minder_find_follower(char **out, struct err *err);

/* ---- children ---- */

struct minder_child {
    pid_t pid; /* 0: ended and reaped */
    int tag;   /* the caller's */
    int is_doomed;
};

struct minder {
    struct minder_child *child; /* [cap]; n in use */
    int n, cap;
    pid_t group;
};

/* Of the minder's descriptors a child inherits standard error, and those whose path is an argument
 * of its command (--secret-file /dev/fd/3). */
struct minder_order {
    const struct minder_command *command;
    struct minder_role role;   /* the child's */
    const struct place *place; /* the CPUs that it is bound to; NULL: it keeps this process's */
    int death_signal;          /* what the child gets when the minder dies */
    int input_fd;              /* its standard input; 0: /dev/null */
    int lane;                  /* its standard input is this way to a relay (net/lane.h); 0: not */
    int output_fd;             /* its standard output; 0: /dev/null */
};

int minder_start(struct minder *m, const struct minder_order *o, int tag, struct err *err);

/* Reap one child that has ended.  Returns its *tag, *text ("exited with status 2") and *status, and
 * 1 if it exited, 2 if a signal killed it.  0: none has ended.  Call it until it returns 0.
 *
 * *status is its exit status; for a signal, the status of a child that has handled the same signal:
 * STATUS_STOPPED after SIGINT, SIGTERM and SIGHUP, which kill a child that does not catch them yet.
 * It is STATUS_FAILED after other signals. */
int minder_reap(struct minder *m, int *tag, char text[64], int *status);

int minder_n_running(const struct minder *m);

/* Send a signal to all children that have not ended. */
void minder_signal(const struct minder *m, int signal);

/* The same, with a value (sigqueue). */
void minder_signal_with(const struct minder *m, int signal, int value);

/* Wait for at most patience_ms until all children have ended by themselves, and reap them. */
void minder_wait(struct minder *m, int patience_ms);

/* The same, and then kill the others,
 * with a warning unless is_quiet. */
void minder_end(struct minder *m, int patience_ms, int is_quiet);

#endif
