/* history - the course of a run, as its files metrics.csv and events.jsonl tell it: numbers over
 * steps, and what happened at which step.
 *
 * A line holds HISTORY_MOST points at most, however long the run was: when it is full, each two
 * neighbours become one.  Of metrics.csv beyond 16 MiB, some 300,000 rows, only each second, third
 * ... row is taken, so that reading takes no long time.  A run that went on from an older step has
 * lost the points beyond it, as metrics.csv has.
 *
 * Life:    history_read -> history_fini.
 * Threads: any; a history belongs to one.
 * Errors:  ERR_IO.  A file that is not there is a run without it.  A line of a file that cannot be
 *          read, such as one that is being written, is passed over. */
#ifndef SEE_HISTORY_H
#define SEE_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { HISTORY_MOST = 2048 };

enum history_of {
    HISTORY_TRAIN_LOSS, /* rows of metrics.csv; without any, the means of the epochs */
    HISTORY_VALIDATION_LOSS,
    HISTORY_TRAIN_ACCURACY, /* 0 to 1 */
    HISTORY_VALIDATION_ACCURACY,
    HISTORY_LEARNING_RATE,
    HISTORY_GRAD_NORM,
    HISTORY_SPEED, /* samples per second */
    HISTORY_COUNT
};

/* The mean of n neighbouring numbers, with their range.  Numbers that are not finite count in
 * n_missing alone. */
struct history_point {
    int64_t step; /* of the last one */
    double mean, least, most;
    int64_t n, n_missing;
};

struct history_line {
    struct history_point *point; /* steps rise */
    int n;
    int64_t n_each; /* numbers of a full point */
};

enum history_mark_kind {
    HISTORY_LOST,       /* a rank; the step is the one that the others went on from */
    HISTORY_RECOVERED,  /* the first step after a loss is done */
    HISTORY_CHECKPOINT, /* saved */
    HISTORY_RESUMED,    /* a driver was started again on the run */
    HISTORY_LEADER,     /* another driver leads from here on */
    HISTORY_MARK_COUNT
};

struct history_mark {
    enum history_mark_kind kind;
    int64_t step;  /* -1: not known yet; it stands at the last step then */
    char text[96]; /* "rank 2 lost", UTF-8 */
};

struct history {
    struct history_line line[HISTORY_COUNT];
    struct history_mark *mark;   /* in the order of the file */
    int n_marks, n_settled;      /* those before n_settled have a step */
    int64_t last_step, n_epochs; /* seen; 0: none */
    int is_done;                 /* the run has ended as it should */
};

int history_read(const char *run_dir, struct history *out, struct err *err);
void history_fini(struct history *h);

/* A history that goes on while the run trains (see/live.h).  Zeros are an empty one. */
struct history_live {
    struct history events, rows; /* what events.jsonl and metrics.csv tell */
};

/* Begin with what the run directory has. */
int history_live_read(const char *run_dir, struct history_live *out, struct err *err);
void history_live_fini(struct history_live *h);

/* Add a line as events_hear gets it (report/events.h). */
void history_hear(struct history_live *h, const char *line, size_t n);

/* The history so far.  It borrows all of `h`, until `h` is changed. */
struct history history_now(const struct history_live *h);

/* The step at which a mark of the history stands, the last one at most. */
int64_t history_mark_step(const struct history *h, const struct history_mark *mark);

/* Add a number to the end of a line. */
void history_add(struct history_line *line, int64_t step, double v);

/* The range of the means of a line, or 0 if it has no finite one. */
int history_range(const struct history_line *line, double *least, double *most);

#endif
