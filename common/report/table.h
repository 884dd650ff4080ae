/* table - the closing table of a run, for people: one row per epoch.
 *
 * Life:    zeroed -> table_add ... -> table_print.
 * Threads: one at a time. */
#ifndef REPORT_TABLE_H
#define REPORT_TABLE_H

#include <stdio.h>

#include "session/action.h"

enum { TABLE_MAX_ROWS = 30 }; /* the last so many epochs are shown; events.jsonl has all */

struct table {
    struct session_epoch row[TABLE_MAX_ROWS]; /* a ring: row[(n_rows - 1) % TABLE_MAX_ROWS] last */
    int64_t n_rows;                           /* added so far */
};

void table_add(struct table *t, const struct session_epoch *f);

/* The figures of the last row added, or NULL. */
const struct session_epoch *table_last(const struct table *t);

struct table_end {
    double seconds;               /* the whole run */
    struct account_times account; /* where the time went; all 0: not known */
    double cost;                  /* 0: not known */
    struct energy_sums energy;    /* what it took */
    const char *no_energy;        /* what of it is not known, and why; NULL: all is known */
    const char *model_path;       /* of the saved model; NULL: none was saved */
    const char *next;             /* command to try next; NULL: none */
    const char *plot;             /* lines that stand behind the rows; NULL: none */
};

/* Rows, plot, accuracy, path of the model, next command. */
void table_print(const struct table *t, const struct table_end *end, FILE *f);

/* The sentence about a rank that waited for data for this part of the time, 0 to 1: "waiting for
 * data 34 % of the time on rank 1: set data.workers higher".  The advice follows the cause (enum
 * wait_cause).  Empty if the part is less than a tenth. */
void table_data_wait_text(double part, int cause, int rank, char *out, size_t cap);

/* Where the time went, with the causes that took at least a hundredth: "94.1 % of the time; start
 * 3.2 %, checkpoint 1.4 %".  Empty if it is not known. */
void table_goodput_text(const struct account_times *t, char *out, size_t cap);

/* The energy of a run: "12.3 kJ: 10.1 kJ of packages, 2.2 kJ of GPUs; not known: GPUs of 1 of 2
 * ranks".  Empty if nothing is said. */
void table_energy_text(const struct energy_sums *s, const char *missing, char *out, size_t cap);

/* One epoch as one line, for logs: "epoch 3: training loss 0.0531, ..." */
void table_epoch_text(const struct session_epoch *f, int64_t n_epochs, char *out, size_t cap);

#endif
