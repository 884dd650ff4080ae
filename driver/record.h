/* record - the traces of a run on disk and terminal: the run directory with job.yaml and
 * events.jsonl, the live line or one line per epoch, and the closing table.
 *
 * Life:    record_open -> record_event ... -> record_end -> record_await ... -> record_close.
 * Threads: main's. */
#ifndef DRIVER_RECORD_H
#define DRIVER_RECORD_H

#include "driver/options.h"
#include "job/job.h"
#include "net/signing.h"
#include "report/audit.h"
#include "report/events.h"
#include "report/run_dir.h"
#include "report/series.h"
#include "report/table.h"
#include "see/board.h"
#include "see/rates.h"
#include "session/standby.h"

struct record {
    const struct options *options;
    const struct job *job;
    struct run_dir dir;
    struct writer *disk; /* borrowed; it does all writing from the claim on */
    struct events *events;
    struct audit *audit;
    struct series *metrics; /* NULL: report.every_steps is 0 */
    struct series *hashes;  /* NULL: checkpoint.hashes is 0 */
    struct board *board;    /* NULL: report.tensorboard is false */
    struct exec *exec;      /* NULL: report.exec is not set */
    struct drawing *drawing;
    struct traces *traces;
    struct metrics_row *row; /* [n_rows] that wait for another event (driver/record_rows.c) */
    int n_rows, row_room;
    struct hashes_row *hash_row; /* [n_hash_rows] likewise */
    int n_hash_rows, hash_row_room;
    struct rates *rates; /* of a range test; NULL: the job trains */
    struct table table;
    int is_live;                   /* 1: standard error is a terminal, which shows a live line */
    int has_trained, is_done;      /* 1: the ranks have formed; the job has ended well */
    int n_ranks;                   /* of the newest formation; 0: none yet */
    char *checkpoint;              /* path of the newest one, or NULL */
    double seconds;                /* of the whole run, once done */
    struct account_times account;  /* where the time went, once done */
    double cost;                   /* of the run; 0: not known */
    struct energy_sums energy;     /* what it took, once done */
    char *no_energy;               /* what of that is not known, and why; or NULL */
    int64_t step, steps_per_epoch; /* steps done, known at the end; from the data */
    struct hash128 data;           /* its fingerprint */
    int64_t checkpoint_step;       /* of the newest one; 0: none */
    struct signing_key *key;       /* signs record.json; NULL: nobody does */
    int is_stopped_early;          /* train.early_stop ended the run: more epochs change nothing */
    int has_diverged;              /* numbers that are not finite ended the run */
    int is_of_input;               /* samples or a setting made them, so that no rate mends it */
};

/* Claim the run directory and write job.yaml (for a resumed run that happens at EVENT_START).  With
 * --resume, refuse a job that differs in keys that must not change.  From then on the thread of
 * `disk` writes, so only record_end and record_close wait for the disk.
 *
 * legacy: NULL, unless this is a standby that leads now.  It goes on in the run's directory if that
 * is the one asked for, else in a new one.  Fails with ERR_CONFIG, ERR_REFUSED, ERR_IO. */
int record_open(struct record *r, const struct options *o, const struct job *job,
                const struct legacy *legacy, struct writer *disk, struct err *err);
void record_event(struct record *r, const struct session_event *ev);

/* Rows of short steps come together.  They wait for the next event of another kind, or until
 * record_hand_rows is called, so that the disk's thread wakes once for all of them. */
void record_hold_row(struct record *r, const struct metrics_row *row);
void record_hold_hashes(struct record *r, const struct hashes_row *row);
void record_hand_rows(struct record *r);

/* Write the last collectives of all ranks to a file of its own, under incidents/. */
void record_incident(struct record *r, const struct incident *i);

/* Write record.json, and its signature (report/attest.h), of a run that has trained; all other
 * files are written.  A failure is a warning. */
void record_attest(struct record *r);
/* A run that goes on has neither, until it ends again.  On the disk's thread. */
void record_unattest(const struct record *r);

/* Another process owns the run directory: why, for driver_deposed. */
const char *record_why_deposed(const struct record *r);

/* Show the closing table if the job finished, or how to go on if it failed after a checkpoint.
 * Waits at most DISK_PATIENCE_MS for the disk. */
void record_end(struct record *r, int status);

/* Wait for the command of report.exec, which may take its time: 1: it has ended, or there is none.
 * 0: not within this time. */
int record_await(struct record *r, int ms);

/* The user does not want to wait so long.  is_urgent: not at all. */
void record_hasten(struct record *r, int is_urgent);

/* Close everything, after `disk` has done all its work.  Remove the folder of a run that was
 * stopped before it trained, or that ended with STATUS_USAGE.  After a failure the folder stays,
 * because its events have the reason. */
void record_close(struct record *r, int status);

/* Compare the job of the run in `dir` with `job`, which is to go on with the run.  Fails with
 * ERR_CONFIG, naming the first different key on which the run's numbers depend; and if the run's
 * events tell of a checkpoint, but the folder of checkpoints has none. */
int record_check_resume(const char *dir, const struct job *job, struct err *err);

/* runs/NAME, or --run-dir; the caller frees it. */
char *record_path(const struct options *o, const struct job *job);

/* The folder of the run with which --resume goes on, if there is one; the caller frees it. */
char *record_run(const struct options *o, const struct job *job);

#endif
