/* rows_file - a NumPy array of float32 that is written row by row, in any order, and is there whole
 * or not at all.
 *
 * The rows go to a file aside, PATH.ID.new (ID: ckpt/owner.h), whose room is taken at once, so that
 * a full disk is told before anything is computed.  rows_file_end puts it in its place.
 *
 * Life:    rows_file_new -> { rows_file_begin -> rows_file_put ... -> rows_file_end }
 *          -> rows_file_free.
 *          A begin after an end, or in place of one, begins the same file anew.
 * Threads: one at a time.
 * Errors:  ERR_IO names the path; ERR_CONFIG: another file is there. */
#ifndef CKPT_ROWS_FILE_H
#define CKPT_ROWS_FILE_H

#include "base/err.h"
#include "tensor/shape.h"

struct rows_file; /* opaque */

/* Fails with ERR_CONFIG if there is something at `path`, or if no file can be made there. */
int rows_file_new(const char *path, struct rows_file **out, struct err *err);
void rows_file_free(struct rows_file *f); /* removes what is unfinished; NULL is fine */

/* An array of shape [n_rows, row...]; all its elements are 0. */
int rows_file_begin(struct rows_file *f, int64_t n_rows, const struct shape *row, struct err *err);

/* Write n elements from the element `at` of the array on, counted over all rows. */
int rows_file_put(struct rows_file *f, int64_t at, const float *x, int64_t n, struct err *err);

/* Read back n elements from the element `at` on, between begin and end. */
int rows_file_get(const struct rows_file *f, int64_t at, float *x, int64_t n, struct err *err);

/* The path of rows_file_new. */
const char *rows_file_path(const struct rows_file *f);

/* The file is on disk, and at its path, when this returns. */
int rows_file_end(struct rows_file *f, struct err *err);

#endif
