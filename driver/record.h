/* record - what a run leaves behind and shows: the run directory with job.yaml and events.jsonl,
 * the live line or one line per epoch, and the closing table.
 *
 * Life:    record_open -> record_event ... -> record_end -> record_close.
 * Threads: main's. */
#ifndef DRIVER_RECORD_H
#define DRIVER_RECORD_H

#include "driver/options.h"
#include "job/job.h"
#include "report/events.h"
#include "report/run_dir.h"
#include "report/table.h"

struct record {
    const struct options *options;
    const struct job *job;
    struct run_dir dir;
    struct events *events;
    struct table table;
    int is_live;      /* standard error is a terminal */
    char *checkpoint; /* path of the newest one, or NULL */
    double seconds;   /* of the whole run, once done */
};

/* Claim the run directory and write job.yaml.  With --resume, refuse a job that differs in what
 * must not.  ERR_CONFIG, ERR_REFUSED, ERR_IO. */
int record_open(struct record *r, const struct options *o, const struct job *job, struct err *err);
void record_event(struct record *r, const struct session_event *ev);

/* What the ranks last did, in a file of its own. */
void record_incident(struct record *r, const struct incident *i);

/* The table, when the job finished; how to go on, when it failed after a checkpoint.  `argv`: for
 * the command to show. */
void record_end(struct record *r, int status, int argc, char **argv);

/* A run that ended with STATUS_USAGE never was one: its folder goes. */
void record_close(struct record *r, int status);

/* A run that goes on must be the same job in what made its numbers: the run in `dir` against `job`.
 * ERR_CONFIG names what differs. */
int record_check_resume(const char *dir, const struct job *job, struct err *err);

/* runs/NAME, or --run-dir; the caller frees it. */
char *record_path(const struct options *o, const struct job *job);

#endif
