/* owner - RUN/owner names the one driver that may write in a run directory.
 *
 * report/run_dir locks a run directory with flock.  Some network file systems have no locks, and a
 * driver that was frozen keeps its lock while another one takes over.  So each driver also writes
 * its name into the file `owner` when it claims the directory, and looks there before it renames
 * anything into place or adds a line.  The driver that claimed last is the owner; an earlier one
 * finds another's name and writes nothing more.  Between the look and the rename lies a moment in
 * which a claim goes unseen; the file is read anew for each look.  A file that a driver
 * writes before it looks has the driver's id in its name, so that two drivers never write to one
 * file.
 *
 * RUN/owner: {"id": random, "run": random, "term": N, "host": name, "pid": N, "pid_space": N,
 * "boot": id, "started": ticks}.  The id alone tells owners apart; the rest is for messages, and to
 * find out whether an owner on this machine still lives.  `run` is made by the first claim and
 * stays: by it followers know the run whose state they keep.  `term` rises with each driver that
 * leads the run.
 *
 * Threads: any.
 * Errors:  ERR_IO, ERR_CORRUPT; each names the file. */
#ifndef CKPT_OWNER_H
#define CKPT_OWNER_H

#include <stdint.h>

#include "base/err.h"
#include "base/host.h"

enum { OWNER_ID = 33 };

struct owner {
    char id[OWNER_ID];  /* random, of one process */
    char run[OWNER_ID]; /* random, of the run; "": written by an older version */
    int64_t term;
    char host[HOST_NAME], boot[HOST_BOOT];
    int64_t pid, pid_space, started; /* as base/host.h has them */
};

enum { OWNER_NONE = 1 }; /* an outcome: no driver has claimed the directory */

/* Write this process into `dir`/owner, whoever stands there.  The run stays. */
int owner_claim(const char *dir, int64_t term, struct err *err);

/* The same, for the run of that name: a standby goes on with it, perhaps in a folder of its own. */
int owner_claim_for(const char *dir, const char *run, int64_t term, struct err *err);

/* 0 or OWNER_NONE. */
int owner_read(const char *dir, struct owner *out, struct err *err);

/* 0: this process owns `dir`, or no process does.  ERR_REFUSED: another one owns it; the text names
 * it. */
int owner_check(const char *dir, struct err *err);

/* 1: another process owns `dir`.  0: it does not, or that cannot be read. */
int owner_is_other(const char *dir);

/* The id of this process, claimed or not. */
const char *owner_own_id(void);

int owner_is_self(const struct owner *o);

/* 1: the owner is a process of this machine that lives; 0: it is of this machine, and has ended;
 * -1: it is of another machine or container, of which nothing is known here. */
int owner_lives(const struct owner *o);

#endif
