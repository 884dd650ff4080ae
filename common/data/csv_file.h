/* csv_file - records of a table in text, as RFC 4180 has them: cells between delimiters, in quotes
 * or not.
 *
 * Lines end with LF, CR LF or CR; a byte order mark of UTF-8 at the beginning and empty lines are
 * left out.  Blanks around a cell do not belong to it; those in quotes do.  A quoted cell may hold
 * delimiters, line ends, and quotes, each of which is written twice.
 *
 * Life:    csv_begin -> csv_next ... -> csv_end (fine after a failure, and on zeroes).
 * Threads: one at a time.
 * Errors:  ERR_CORRUPT, with the line. */
#ifndef DATA_CSV_FILE_H
#define DATA_CSV_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    CSV_END = 1, /* csv_next: there are no more records */
    CSV_MOST_COLUMNS = 65536,
};

struct csv_cell {
    const char *text; /* in the bytes that are read; inside quotes a quote is still written twice */
    size_t len;
};

struct csv_reader {
    const char *at, *end;
    char delimiter;
    int64_t next_line; /* from 1; of `at` */
    int64_t line;      /* at which the present record begins */
    struct csv_cell *cell;
    int n_cells, n_room;
};

/* The bytes are borrowed until csv_end. */
int csv_begin(struct csv_reader *r, const void *bytes, size_t n_bytes, char delimiter,
              struct err *err);
int csv_next(struct csv_reader *r, struct err *err);
void csv_end(struct csv_reader *r);

/* 1: the cell is a number, as in "-12.5e3"; *out is the nearest double.  No locale matters.  Words
 * such as inf or nan, hexadecimal numbers and decimal commas are none. */
int csv_number(const struct csv_cell *c, double *out);

/* 1: the cell is a number but for a comma in the place of its point. */
int csv_has_decimal_comma(const struct csv_cell *c);

/* 1: the word is meant as a number that csv_number does not take, as inf, nan or 0x1F. */
int csv_resembles_number(const char *word);

/* 1: the cell is a word that tools write for no value (NA, nan, null ...). */
int csv_is_usual_missing(const struct csv_cell *c);

#endif
