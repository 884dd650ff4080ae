/* csv_table - a table in text, read into memory: a number for each cell that is used.
 *
 * The training file makes the scheme: which columns are features and targets, which of them are
 * numbers and which are words, the numbers of the words, and the means that stand for missing
 * numbers.  It depends on the file's content alone, so it is the same on every rank.  Other files
 * are read by the scheme; their columns may have another order.
 *
 * Life:    csv_table_read -> use -> csv_table_fini (fine after a failure, and on zeroes).
 * Threads: any may read a table that was read.
 * Errors:  ERR_IO, ERR_CONFIG, ERR_CORRUPT; they begin with the path, and name line and column. */
#ifndef DATA_CSV_TABLE_H
#define DATA_CSV_TABLE_H

#include "base/buf.h"
#include "data/csv_missing.h"
#include "data/csv_words.h"
#include "data/image.h"
#include "data/targets.h"

#define CSV_DELIMITER_LIST(X) X(CSV_COMMA, "comma") X(CSV_SEMICOLON, "semicolon") X(CSV_TAB, "tab")
#define CSV_MISSING_LIST(X)   X(CSV_ERROR, "error") X(CSV_MEAN, "mean") X(CSV_DROP, "drop")
#define CSV_UNKNOWN_LIST(X)   X(CSV_REFUSED, "error") X(CSV_NONE, "none")

enum csv_delimiter { CSV_DELIMITER_LIST(WORD_VALUE) };
enum csv_missing { CSV_MISSING_LIST(WORD_VALUE) };
enum csv_unknown { CSV_UNKNOWN_LIST(WORD_VALUE) };

struct csv_options {
    const char *path, *train, *validation;
    const char *target, *drop, *categories; /* names of columns, separated by ", "; NULL: none */
    enum csv_delimiter delimiter;
    int header; /* the first line has the names of the columns */
    enum csv_missing missing;
    const char *missing_values; /* a list as of columns, CSV_EMPTY or CSV_USUAL; the latter may
                                   stand in the list */
    enum csv_unknown unknown;
    const char *scheme;         /* the hash that is wanted; NULL: any */
    struct image_options image; /* of which mean and std are used, by feature */
    struct targets_options targets;
};

enum csv_role { CSV_FEATURE, CSV_TARGET, CSV_DROPPED };
enum csv_kind { CSV_UNSEEN, CSV_NUMBER, CSV_WORD };

struct csv_column {
    const char *name;
    enum csv_role role;
    enum csv_kind kind;
    int is_given;                 /* the kind follows from the job, not from the first value */
    int64_t kind_line;            /* of the first value */
    struct csv_words words;       /* CSV_WORD */
    double mean;                  /* CSV_NUMBER */
    double least, most;           /* CSV_NUMBER */
    int64_t n_values;             /* that are not missing */
    int64_t n_missing, n_unknown; /* unknown: words that the scheme does not have */
    int64_t missing_line, unknown_line; /* of the first ones */
    int64_t n_named;                    /* missing values for which a word stands */
    const char *named;                  /* the first of these words; NULL: there is none */
    int cell;                           /* its number in a row of cells; -1: CSV_DROPPED */
    int64_t feature;                    /* CSV_FEATURE: the number of its first one */
    const struct csv_column *as; /* the scheme's column, which may be this one; NULL: it has none */
};

struct csv_table {
    struct arena arena;
    struct csv_column *column; /* [n_columns], in the file's order */
    int n_columns, n_cells, n_targets;
    int64_t n_features;
    double *cell; /* [n_rows, n_cells]: a number, NAN only while the file is read; or the number of
                     a word, -1 for none */
    int64_t n_rows, n_room;
    int64_t *number_in_file; /* [n_rows] of each row, from 0 on; NULL: none was left out */
    int lacks_targets;       /* a column of them is not there, or some values; their cells are 0 */
    int64_t n_unlabelled, unlabelled_line; /* rows without targets, the first one's line */
    int64_t n_dropped;                     /* rows with missing values, data.missing: drop */
    const char *unused; /* words of data.missing_values that no cell has; NULL: there are none */
    double *number;     /* room for one row */
};

enum {
    CSV_MOST_WORDS = 1024,    /* different ones in a column of features */
    CSV_MOST_CLASSES = 65536, /* different ones in the target */
    CSV_MOST_FEATURES = 65536,
};
#define CSV_MOST_BYTES (8LL << 30) /* of a file */

/* The rules of a job for its targets. */
struct csv_rules {
    int targets_are_numbers;   /* else one class */
    int targets_are_fractions; /* numbers from 0 to 1 */
    int may_lack_targets;      /* in a file that is read by a scheme, columns or values of them */
};

/* Read a file; scheme NULL: it makes its own. */
int csv_table_read(struct csv_table *t, const char *path, const struct csv_options *o,
                   const struct csv_rules *rules, const struct csv_table *scheme, struct err *err);
void csv_table_fini(struct csv_table *t);

/* Append what a user has to be told of the table: missing values, and so on; nothing if there is
 * nothing. */
void csv_table_tell(const struct csv_table *t, const char *path, const struct csv_options *o,
                    struct buf *out);

/* ---- data/csv_columns.c: the header ---- */

/* Make the columns from the present record of the reader.  With a scheme they are those that it
 * has, found by name. */
int csv_columns_make(struct csv_table *t, const struct csv_reader *r, const struct csv_options *o,
                     const struct csv_rules *rules, const struct csv_table *scheme,
                     struct err *err);

/* Take the next item of a list, which ends at a comma; 0: there is none. */
int csv_list_next(const char **list, struct csv_cell *item);

/* 1: the list has this name.  One with commas is found if it is the only one. */
int csv_list_has_name(const char *list, const char *name);

int csv_is(const struct csv_cell *c, const char *text); /* 1: the cell is this text */

/* A text of the file for messages, in quotes, cut when long. */
const char *csv_show(const struct csv_cell *c, char out[64]);

/* Check that a name or word of the file can stand in a line of text. */
int csv_check_text(const struct csv_cell *c, int64_t line, const char *what, struct err *err);

#endif
