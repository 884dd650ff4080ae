/* confusion - counts a validation's predictions by class while a job trains, for TensorBoard: the
 * confusion matrix of all ranks (judge/judge.h).
 *
 * Each rank counts its own batches, where their logits and targets are at hand, and the counts are
 * added up at the end.
 *
 * Life:    confusion_begin -> confusion_batch ... -> confusion_end -> confusion_free.
 * Threads: the engine's.
 * Errors:  ERR_NOMEM, and those of the device and of collectives. */
#ifndef JUDGE_CONFUSION_H
#define JUDGE_CONFUSION_H

#include "judge/outputs.h"

struct confusion; /* opaque */

/* *out is NULL if there is no matrix: report.tensorboard is off, or the model is not one of up to
 * JUDGE_MOST_SHOWN classes.  All ranks say the same. */
int confusion_begin(const struct outputs *o, struct confusion **out, struct err *err);

/* Count the batch that the program has just computed. */
int confusion_batch(struct confusion *c, struct program *program, struct err *err);

/* Add up the counts of all ranks.  *figures: as judge_tell's, as JSON, for free(). */
int confusion_end(struct confusion *c, char **figures, struct err *err);
void confusion_free(struct confusion *c); /* NULL is fine */

#endif
