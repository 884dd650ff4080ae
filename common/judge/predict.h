/* predict - the logits of every sample of the validation set, gathered on rank 0, which judges them
 * (judge/judge.h).  With --predict it writes them as an array of NumPy (ckpt/rows_file.h) in the
 * order of the set, and beside it a table of the predictions (judge/table.h).
 *
 * Each rank validates a contiguous part of the set, in batches.  After each batch all ranks gather
 * their rows in pieces of equal size, and rank 0 writes each rank's rows to their places in the
 * file.  So each row is written once, whatever the number of ranks.  No rank ever holds more than
 * its own batch and one piece from each rank.  A validation that is repeated after a loss writes
 * the file anew.
 *
 * Life:    predict_open on rank 0 -> { predict_begin -> predict_batch ... -> predict_end } on all
 *          ranks, for each validation -> predict_free.
 * Threads: the engine's. */
#ifndef JUDGE_PREDICT_H
#define JUDGE_PREDICT_H

#include "ckpt/rows_file.h"
#include "judge/outputs.h"

/* Check that neither `path` nor its table exists, and that the logits of one sample are not too
 * many, and make what the rows are written to.  Fails with ERR_CONFIG. */
int predict_open(const struct outputs *o, const char *path, struct rows_file **out,
                 struct err *err);

struct predict; /* one validation's gathering; opaque */

/* writes 0: the rows are only judged; *out is NULL if they cannot be.  Else rank 0 writes them to
 * `file`, which other ranks do not have. */
int predict_begin(const struct outputs *o, int writes, struct rows_file *file, struct predict **out,
                  struct err *err);
/* Hand over the logits of the batch that the program has just computed. */
int predict_batch(struct predict *p, struct program *program, struct err *err);
/* Take part in a round in which this rank has no rows. */
int predict_idle(struct predict *p, struct err *err);
/* Take part until every rank has handed over its rows; rank 0's file is whole then. */
int predict_end(struct predict *p, struct err *err);
/* On rank 0, after predict_end: what is told beside loss and accuracy (judge/judge.h), and the path
 * of the table as `predictions`: an object of JSON, for free().  NULL: there is nothing. */
char *predict_figures(const struct predict *p);
void predict_free(struct predict *p); /* NULL is fine */

/* Samples whose outputs are not finite. */
struct predict_bad {
    int64_t n, first; /* first: the lowest of them */
    int64_t *last;    /* [n_ranks] the last that each rank had, plus 1 */
};

/* Count those of n elements x of this rank's samples, of n_outputs each, from element `at` of all
 * samples on.  A rank's elements come in order; those of one sample may come in several calls, with
 * other ranks' between them. */
void predict_note_bad(struct predict_bad *bad, int rank, int64_t n_outputs, int64_t at,
                      const float *x, int64_t n);

#endif
