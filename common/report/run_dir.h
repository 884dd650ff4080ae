/* run_dir - the folder of one run, which belongs to one driver.
 *
 * A folder holds a run once it has events.jsonl, job.yaml or checkpoints.  To claim it, a driver
 * creates events.jsonl with O_EXCL, locks it (flock) for as long as it lives, and writes its name
 * into the file `owner` (ckpt/owner.h).  Of two drivers that want the same folder one gets it, also
 * when both resume.  Where the file system has no locks, a driver is refused while the owner lives
 * on this machine; an owner on another machine, which may live, is told of in a warning, and writes
 * nothing more from then on.  So a start that will be refused, such as one with other data, must be
 * refused before (run_dir_request.check).
 *
 * A run that has trained has the folder checkpoints/, from its first formation on: its ranks may
 * hold state that no checkpoint has yet.  A run that ended without a checkpoint loses the folder
 * again, and a start that was given up before it trained leaves nothing.  A driver from which
 * another one has taken the folder removes nothing there.
 *
 * Threads: one at a time for each folder.
 * Errors:  ERR_CONFIG (taken, not a folder), ERR_IO. */
#ifndef REPORT_RUN_DIR_H
#define REPORT_RUN_DIR_H

#include <stddef.h>

#include "base/err.h"
#include "ckpt/owner.h"

struct run_dir_request {
    const char *path; /* runs/NAME, or the value of --run-dir */
    int is_explicit;  /* from --run-dir: refuse, rather than take another name */
    int resume;       /* --resume: go on with the run that is there, if there is one */
    /* NULL, or checks that the run in `dir` can be gone on with.  It is called before a claim that
     * would take the folder from a driver on another machine, which may be at work. */
    int (*check)(void *arg, const char *dir, struct err *err);
    void *arg; /* of check */
    /* A standby takes a run over: its name, and the term to lead with.  A driver that is frozen,
     * and holds the lock, keeps nobody out.  NULL: no standby asks. */
    const char *run;
    int64_t term;
};

struct run_dir {
    char *path;         /* of the folder; parents are made */
    char *events;       /* path of its events.jsonl */
    int events_fd;      /* opened for appending, locked; the code that takes it sets this to -1 */
    int wants_lock;     /* a standby claimed it, and another driver holds the lock of events_fd */
    int resumed;        /* there was a run, and --resume */
    char run[OWNER_ID]; /* the run's random name */
    int64_t term;       /* of this driver: higher than that of any that claimed the folder before */
    int n_made;         /* folders of path, from its end, that were not there before */
    int renamed;        /* runs/NAME was taken: this is NAME-2, NAME-3 ... */
};

/* With resume, and no --run-dir, the last of NAME, NAME-2, NAME-3 ... that has trained is taken; if
 * none has, the last.  With resume and nothing to resume the run starts at step 0 (resumed is 0).
 * Without resume the number after the last one is taken.  A torn last line of events.jsonl is
 * cut. */
int run_dir_claim(const struct run_dir_request *q, struct run_dir *out, struct err *err);

/* Return what run_dir_claim would return, without claiming anything (--check). */
int run_dir_check(const struct run_dir_request *q, struct err *err);

int run_dir_holds_run(const char *path);
int run_dir_has_trained(const char *path);

void run_dir_begin_training(const struct run_dir *d); /* the run has trained from here on */
void run_dir_end_training(const struct run_dir *d);   /* no rank holds state any more */

/* The folder that --resume goes on with, whether it holds a run or not; for free(). */
char *run_dir_to_resume(const struct run_dir_request *q);

/* Cut the last line of a file of lines if it has no end, as a driver leaves it that was killed
 * while it wrote: the next line begins a new one.  `path` is for messages. */
int run_dir_cut_torn_line(int fd, const char *path, struct err *err);

/* Make `path` hold `len` bytes of `data`, all of them or none: they are written aside and renamed.
 * Errors name `path`. */
int run_dir_replace(const char *path, const void *data, size_t len, struct err *err);

/* The run ended before it began.  If this claim made it, remove its files again, and those of the
 * folders that it made which are empty then.  Call it before run_dir_fini. */
void run_dir_discard(const struct run_dir *d);

void run_dir_fini(struct run_dir *d);

/* The folder among NAME, NAME-2, NAME-3 ... that the run q->run is in, for free(); NULL: it is in
 * none of them. */
char *run_dir_find(const struct run_dir_request *q);

#endif
