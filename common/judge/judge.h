/* judge - what an evaluation tells beside loss and accuracy: the confusion matrix and each class'
 * precision and recall; of several labels for each sample the same for each label; of numbers R2
 * and the mean absolute error.
 *
 * Rank 0 has the rows of all ranks (judge/predict.h), and reads their targets from the validation
 * set.  Or each rank counts its own part, and the counts are added up (judge/confusion.h).  Each
 * sample is judged once, so the figures do not depend on the number of ranks.
 *
 * The formulas are those of scikit-learn: confusion_matrix, precision_recall_fscore_support with
 * average=None, r2_score and mean_absolute_error.  A precision without predictions, and a recall
 * without samples, are undefined here, where scikit-learn says 0.
 *
 * Life:    judge_new -> judge_rows ... | judge_count ..., judge_sum -> judge_tell -> judge_free.
 * Threads: the engine's.
 * Errors:  those of reading the targets, and of a collective. */
#ifndef JUDGE_JUDGE_H
#define JUDGE_JUDGE_H

#include <jansson.h>

#include "judge/outputs.h"

enum {
    JUDGE_MOST_MATRIX = 1024,   /* classes of a model whose confusions are counted */
    JUDGE_MOST_SHOWN = 100,     /* ... of one whose whole matrix is told */
    JUDGE_MOST_PAIRS = 20,      /* of the others: so many of the largest confusions */
    JUDGE_MOST_CLASSES = 65536, /* a model of more classes is not judged */
};

struct judge; /* opaque */

/* 1: the model's outputs can be judged.  That of the next token cannot: a vocabulary has no
 * confusion matrix that anyone could read. */
int judge_can(const struct outputs *o, int64_t n_outputs);

/* 1: its confusions may be told as a whole matrix.  Those of a network that computes its loss, or
 * compares samples, may not: its outputs are no logits. */
int judge_has_matrix(const struct outputs *o);

/* 1: judge_has_matrix, and that many outputs can be counted. */
int judge_can_count(const struct outputs *o, int64_t n_outputs);

/* n_outputs: of one sample. */
struct judge *judge_new(const struct outputs *o, int64_t n_outputs);
void judge_free(struct judge *j); /* NULL is fine */

/* The number of the largest of x [n]; of equal ones the first. */
int64_t judge_largest(const float *x, int64_t n);

/* Judge the rows x [n, n_outputs] of the samples first, first + 1 ... */
int judge_rows(struct judge *j, int64_t first, int64_t n, const float *x, struct err *err);

/* Count n samples of this rank's part, of a model with a matrix: their rows, and their targets. */
void judge_count(struct judge *j, const float *rows, const int32_t *targets, int64_t n);
/* From what each rank has counted make the counts of all ranks together, on all ranks. */
int judge_sum(struct judge *j, struct err *err);

/* Add the figures to an object: `classes` (or `labels`) and `confusion` (or `confusions`), or
 * `outputs`, `r2` and `mean_absolute_error`. */
void judge_tell(const struct judge *j, json_t *to);

#endif
