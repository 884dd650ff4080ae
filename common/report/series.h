/* series - a file of a run directory with a row for each of some steps: metrics.csv, hashes.csv.
 *
 * The file has a header, then rows.  Those that are added together are written by one write(2).
 * Steps only rise: a run that goes on from an older step loses the rows beyond that step, and a row
 * that the file has already is not written again.
 *
 * The file is opened, cut and written by the writer's tasks, so that a disk that hangs holds up no
 * other thread.
 *
 * Life:    series_new -> series_go_on -> series_add ... -> series_free, when the writer has done
 *          all.  series_read -> series_table_fini.
 * Threads: one at a time; series_put_number and tables: any.
 * Errors:  rows that cannot be written are left out, and the log says so once.  Nothing is written
 *          while another driver owns the run directory (ckpt/owner.h).  series_read returns codes.
 */
#ifndef REPORT_SERIES_H
#define REPORT_SERIES_H

#include <stdint.h>

#include "base/buf.h"
#include "base/writer.h"

struct series; /* opaque */

struct series_kind {
    const char *name;   /* of the file */
    const char *header; /* its first line, with the line's end */
    size_t row_bytes;   /* of a row's struct, whose first member is its step, int64_t */
    void (*put)(struct buf *out, const void *row); /* append the row as a line */
};

/* The file of this kind of the run in `run_dir`; nothing is opened yet.  kind: borrowed.
 * writer: NULL: each call writes itself. */
struct series *series_new(const char *run_dir, const struct series_kind *kind,
                          struct writer *writer);
void series_free(struct series *c); /* NULL is fine */

/* The run goes on from `step`: a torn last line and all rows beyond `step` are cut. */
void series_go_on(struct series *c, int64_t step);

/* row: n structs, one after another. */
void series_add(struct series *c, const void *row, int n);

/* The rows of such a file, as texts. */
struct series_table {
    char *text;         /* the file, with a zero after each field */
    const char **field; /* [n_rows * n_columns]; in `text` */
    int64_t n_rows;
    int n_columns; /* those of the header; the first is the step, which rises */
};

enum { SERIES_NONE = 1 };

/* Read the file of this kind of the run in `run_dir`; series_table_fini frees *out.  A torn last
 * line is left out, since a driver may be writing it.  SERIES_NONE: there is no such file, and *out
 * is empty.  Fails with ERR_IO, ERR_NOMEM, and with ERR_CORRUPT, which names the line. */
int series_read(const char *run_dir, const struct series_kind *kind, struct series_table *out,
                struct err *err);
void series_table_fini(struct series_table *t);
int64_t series_step(const struct series_table *t, int64_t row);
const char *series_field(const struct series_table *t, int64_t row, int column);
/* The first row whose step is `step` or more; n_rows if there is none. */
int64_t series_find(const struct series_table *t, int64_t step);

/* Append a number and the character after it.  %.9g tells any two float32 apart.  A sum of losses
 * that was too large to be kept is "inf", as numpy and pandas read and write it; a number that is
 * undefined or not known is "nan". */
void series_put_number(struct buf *out, double v, char after);

#endif
