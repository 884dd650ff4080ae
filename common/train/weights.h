/* weights - initial weights from a safetensors file, as model.init asks for.
 *
 * The file's tensors are found by the parameters' names.  An architecture may say which other names
 * other programs use, and which other tensors they write (struct model_file).
 *
 * Threads: as state.h. */
#ifndef TRAIN_WEIGHTS_H
#define TRAIN_WEIGHTS_H

#include "train/state.h"

/* Take parameters and running statistics from the file that the job's model.init names.  They must
 * have their initial values already.
 *
 * File and model differ if only one of them has a tensor, or if a tensor has another shape.
 * model.init.missing then decides.  Either that is an error that lists the differences, and nothing
 * was taken.  Or s->warn is called with the differences, and those parameters keep their initial
 * values.  bfloat16 and float16 become float32.  Fails in any case if a tensor has any other type
 * than the model's, or if the file has none of the model's tensors. */
int weights_load(struct state *s, const struct job *job, struct err *err);

#endif
