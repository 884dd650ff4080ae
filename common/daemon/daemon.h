/* daemon - the process around a session machine, in both dpdriver and dpfollower.
 *
 * It holds one loop; an engine, made when the machine's first command comes, whose reports arrive
 * through an inbox; a timer for the machine's deadline; and signals.  A daemon feeds its machine
 * like this:
 *
 *     int64_t now = daemon_enter(d);           the time; a tick that is due comes first, so that
 *     driver_message(driver, now, conn, m);    a stall of this process is not held against peers
 *     daemon_leave(d);                         does the actions that follow
 *
 * From daemon_init to daemon_close log lines are written by a thread, so that a terminal that is
 * stopped, or a collector that does not read, does not stop the loop.
 *
 * Life:    daemon_init -> daemon_attach (a machine) ... daemon_detach -> daemon_close.
 * Threads: the loop's. */
#ifndef DAEMON_DAEMON_H
#define DAEMON_DAEMON_H

#include <uv.h>

#include "base/host.h"
#include "base/log.h"
#include "daemon/args.h"
#include "daemon/pulse.h"
#include "daemon/sampler.h"
#include "daemon/trust.h"
#include "net/addr.h"
#include "net/inbox.h"
#include "session/action.h"
#include "session/notice.h"
#include "train/engine.h"

/* A session machine's calls (session/driver.h, session/follower.h). */
struct daemon_machine {
    void (*report)(void *m, int64_t now_ns, struct report *r);
    void (*progress)(void *m, int64_t now_ns, const struct progress *p);
    void (*stop)(void *m, int64_t now_ns, const char *why);
    void (*notice)(void *m, int64_t now_ns, const struct notice *n);
    void (*tick)(void *m, int64_t now_ns);
    int64_t (*deadline)(const void *m);
    int (*next)(void *m, struct action *out);
    void (*describe)(const void *m, int64_t now_ns, struct buf *out); /* lines, by SIGUSR1 */
    /* Every few seconds: its first line is the service manager's.  Cheap. */
    void (*summary)(const void *m, int64_t now_ns, struct buf *out);
    void (*ring)(void *m, int64_t now_ns, const struct collective *c, int n);
};

/* The calls that differ between the two daemons; made from daemon_leave, one after another. */
struct daemon_hooks {
    void (*send)(void *arg, int64_t conn, struct frame *f); /* takes f */
    void (*trust)(void *arg, int64_t conn);
    void (*close)(void *arg, int64_t conn);
    /* A follower's, a standby's: find a driver, then follower_connected or standby_connected.
     * is_again, other: as in ACTION_SEEK. */
    void (*seek)(void *arg, int is_again, const char *other);
    void (*cut)(void *arg); /* break off every connection, and tell the machine so */
    void (*event)(void *arg, const struct session_event *ev);
    void (*incident)(void *arg, const struct incident *i); /* a driver's */
    const char *(*device)(void *arg);                      /* for the engine to be made */
    void (*finished)(void *arg, const struct action *end); /* detach in this call or later */
    void (*idle_stop)(void *arg, const char *signal); /* a signal while no machine is attached */
};

enum { DAEMON_SIGNALS = 3 };

struct daemon {
    uv_loop_t loop;
    const struct daemon_hooks *hooks;
    void *arg;
    const struct daemon_machine *calls;
    void *machine; /* NULL: none attached */
    int is_finished;
    struct engine_options engine_options; /* .device is asked for when the engine is made */
    struct engine *engine;
    struct inbox inbox;
    uv_timer_t tick;
    uv_idle_t more;   /* while actions wait for the next turn of the loop, */
    int n_more_turns; /* and for so many turns already */
    struct sampler *sampler;
    struct pulse pulse; /* pulse_start when the daemon is ready for others */
    uv_signal_t signal[DAEMON_SIGNALS];
    int n_signals;
    uv_poll_t state_signal; /* SIGUSR1 */
    int state_fd, has_state_signal;
    /* An injected drop, until the machine is detached or seeks its peer. */
    int is_deaf, is_mute;
    int n_stops;         /* signals to stop that came so far */
    char missed[16];     /* the name of one that came when the machine had just finished; or "" */
    int ignores_notices; /* 1: cluster.notice is none */
    int ignores_second_stop; /* a second signal may be the first one's copy */
    struct writer *terminal; /* of the log lines */
    struct writer *disk;     /* the caller's, or NULL; flushed before this process kills itself */
};

int daemon_init(struct daemon *d, const struct daemon_hooks *hooks, void *arg,
                const struct engine_options *engine, struct err *err);
void daemon_attach(struct daemon *d, const struct daemon_machine *calls, void *machine);

/* If a signal to stop came after the machine before had finished and before it was detached, stop
 * the machine that is attached now.  A standby that becomes the driver has two machines. */
void daemon_stop_if_missed(struct daemon *d);

/* This computer is about to go away: tell the machine.  Without one it is as a signal to stop. */
void daemon_notice(struct daemon *d, const struct notice *n);

/* Forget the machine, and free its engine.  is_engine_stuck: the engine's thread will not end.  It
 * is left alone then, and the process must end by _exit, as daemon_close does. */
void daemon_detach(struct daemon *d, int is_engine_stuck);

/* 1: incoming messages are to be dropped unread. */
int daemon_is_deaf(const struct daemon *d);

int64_t daemon_enter(struct daemon *d);
void daemon_leave(struct daemon *d);

/* Write what is queued, log lines and the disk's, as far as they take it within seconds. */
void daemon_flush(struct daemon *d);

/* Close all that daemon_init opened, and run the loop until every handle is closed, the caller's,
 * too: the caller must have begun to close its own.  Returns `status`, which is settled: from here
 * on SIGINT, SIGTERM and SIGHUP are ignored.  If the engine or the lookup of a host's name does not
 * end, the process ends here, with that status. */
int daemon_close(struct daemon *d, int status);

/* ---- the process ---- */

/* The first call in main.  From here on SIGUSR1 is blocked, in all threads, so that it cannot end
 * the process; daemon_init makes it ask for the state.  Other signals that the program which
 * started this one had blocked are not blocked any more.  If standard input, output or error is
 * closed, open /dev/null in its place; otherwise the first socket or file that is opened would take
 * it. */
void daemon_open_standard(void);

/* Call this before anything is opened.  Some libraries read the environment when they are loaded.
 * If a variable that they need is missing, set it and execute this program once more.  Returns the
 * time when main began (clock_mono_ns); the second execution does not change it. */
int64_t daemon_process_setup(char **argv);

/* Log that SIGINT is ignored, if it is so from the start and standard error is no terminal: a
 * script's shell starts "command &" so.  what: "the job", which SIGTERM stops. */
void daemon_tell_ignored(const char *what);

struct daemon_host {
    char name[HOST_NAME];
    char id[HOST_BOOT]; /* equal for all processes of this machine: the boot id */
};

void daemon_host(struct daemon_host *out);

/* ---- options that both daemons have ---- */

struct daemon_options {
    const char *device;
    int64_t local_rank; /* a launcher's number of this process on its machine; -1: none */
    int64_t n_threads;  /* 0: cores of this host divided by its ranks */
    const char *iface;  /* NULL: none given */
    struct arg_list secret_files;
    int insecure;
    int test_shared_gpu; /* daemon/shared_gpu.h */
    int log_format;      /* enum log_format */
    const char *ranks;   /* daemon/places.h reads it; NULL: not given */
    int bind;            /* enum daemon_bind */
    int help, version;
};

enum daemon_bind { BIND_AUTO, BIND_NONE };

/* The uses of a process that take these options (struct arg, `of`).  A daemon's own uses are lower
 * bits. */
enum {
    DAEMON_AS_RANK = 1u << 29,  /* it is a rank of a job, or can become one */
    DAEMON_AS_RANKS = 1u << 30, /* it can start the other ranks of this machine, too */
};

extern const struct arg daemon_args[];
extern const size_t n_daemon_args;

/* Check the form of --device, --ranks and --secret-file, and turn --iface into its address ("": it
 * was not given).  ERR_ARG, ERR_UNSUPPORTED. */
int daemon_check_options(const struct daemon_options *o, char advertise[ADDR_TEXT],
                         struct err *err);

/* Set NCCL's environment by --test-shared-gpu and --iface, whose address is `advertise`.  Call it
 * in main, before any thread starts: daemon/shared_gpu.h, daemon/network.h. */
void daemon_set_nccl(const struct daemon_options *o, const char *advertise);

/* Call this once it is known that this process computes on a GPU: warn if NCCL will not use
 * --iface. */
void daemon_check_nccl(const struct daemon_options *o);

/* At the end of a command that prints: `status`, or STATUS_FAILED if standard output did not take
 * all of it. */
int daemon_end_output(int status);

/* The exit status for a failure before training: STATUS_USAGE if the user can mend it. */
int daemon_status_of(const struct err *err);

#endif
