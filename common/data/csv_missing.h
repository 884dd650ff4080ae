/* csv_missing - the cells of a table that have no value: those that are empty, and those with a
 * word of data.missing_values.
 *
 * Life:    csv_missing_init -> csv_missing_has ... -> csv_missing_tell -> csv_missing_fini.
 * Threads: one at a time. */
#ifndef DATA_CSV_MISSING_H
#define DATA_CSV_MISSING_H

#include "base/buf.h"
#include "data/csv_file.h"

#define CSV_USUAL "usual" /* data.missing_values: what csv_is_usual_missing knows */
#define CSV_EMPTY "empty" /* ... none; a cell that is empty has no value in any case */

struct csv_missing_words {
    int has_usual;
    int has_numbers;  /* some words are numbers */
    const char *list; /* NULL: there are no words but the usual ones */
    int64_t n_whole;  /* cells that are the whole list, which has commas */
    struct csv_missing_word {
        struct csv_cell text;
        int is_number;
        double number;
        int64_t n; /* cells */
    } * word;
    int n_words;
};

/* The list is borrowed until csv_missing_fini. */
void csv_missing_init(struct csv_missing_words *m, const char *list);

/* 1: the cell has no value.  by_value: a word that is a number stands for all forms of it, such as
 * -999 for -999.0. */
int csv_missing_has(struct csv_missing_words *m, const struct csv_cell *cell, int by_value);

/* Append the words of the list that no cell had; nothing if there are none. */
void csv_missing_tell(const struct csv_missing_words *m, struct buf *out);

void csv_missing_fini(struct csv_missing_words *m);

#endif
