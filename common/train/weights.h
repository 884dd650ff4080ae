/* weights - the initial weights that a safetensors file has, by model.init.
 *
 * The file's tensors are found by the parameters' names; an architecture may say how else other
 * programs name them, and what else they write (struct model_file).
 *
 * Threads: as state.h. */
#ifndef TRAIN_WEIGHTS_H
#define TRAIN_WEIGHTS_H

#include "train/state.h"

/* Take parameters and statistics from the file of job's model.init, which s has given their initial
 * values before.  Where file and model differ (a tensor that only one of them has, or another
 * shape), model.init.missing decides: it is an error that lists the differences, and nothing was
 * taken; or s->warn is told of them, and those parameters keep their initial values.
 * Fails in any case if a tensor's type is not the model's, or if the file has no tensor of the
 * model's. */
int weights_load(struct state *s, const struct job *job, struct err *err);

#endif
