/* matrix - the confusion matrix of a validation, as a picture and as a table.
 *
 * The picture has a row for each class and a column for each prediction.  A cell's colour is the
 * part of its row, from white (none) to dark blue (all), which the colour-blind can tell apart and
 * which prints in grey.  Cells that are large enough have the part in percent.  Beyond
 * MATRIX_MOST_NAMES classes the axes have numbers.
 *
 * Life:    matrix_read -> matrix_png, matrix_csv -> matrix_fini.
 * Threads: any; no state. */
#ifndef SEE_MATRIX_H
#define SEE_MATRIX_H

#include <stdint.h>

#include "base/buf.h"

enum { MATRIX_MOST = 100, MATRIX_MOST_NAMES = 30 };

struct matrix {
    int n;
    char **name;    /* [n] */
    int64_t *count; /* [n, n] by class, then by prediction */
};

/* From what a validation told (judge/judge.h), as JSON or NULL.  0: it has no matrix. */
int matrix_read(const char *figures, struct matrix *out);
void matrix_fini(struct matrix *m); /* of a zeroed one, too */

/* Append the file of a picture.  0: there is no memory for it, and nothing was appended. */
int matrix_png(const struct matrix *m, int64_t step, struct buf *out, int *width, int *height);

/* Append the counts as comma-separated values: a row for each class; the first has the names of
 * the predictions. */
void matrix_csv(const struct matrix *m, struct buf *out);

#endif
