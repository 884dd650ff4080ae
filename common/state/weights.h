/* weights - initial weights from a safetensors file, or several, as model.init asks for.
 *
 * The file's tensors are found by the parameters' names.  An architecture may say which other names
 * other programs use, and which other tensors they write (struct model_file).
 *
 * Life:    weights_open -> weights_has ..., weights_take -> weights_close.
 * Threads: as state.h. */
#ifndef STATE_WEIGHTS_H
#define STATE_WEIGHTS_H

#include "state/state.h"

struct weights; /* a file, compared with the model; opaque */

/* Open the file that the job's model.init names, and compare it with the parameters and running
 * statistics of `s`, which is borrowed.  Changes nothing in the state.
 *
 * File and model differ if only one of them has a tensor, or if a tensor has another shape.
 * Before that, config.json beside the file is compared with the job (job/pretrained.h).
 * With model.init.missing: error such a difference is an error that lists all of them.  With draw
 * s->warn is called with them, and the caller gives initial values to what the file lacks.
 * Fails in any case if a tensor has any other type than the model's (but for bfloat16 and float16,
 * which become float32), or if the file has none of the model's tensors. */
int weights_open(struct state *s, const struct job *job, struct weights **out, struct err *err);
/* The same for the base alone (state_take_base); the file's other tensors may be any. */
int weights_open_base(struct state *s, const struct job *job, struct weights **out,
                      struct err *err);
void weights_close(struct weights *w); /* NULL is fine */

/* 1: the file has the i-th tensor of the state's slot of this number. */
int weights_has(const struct weights *w, int slot, int i);

/* Take all tensors that the file has to the state. */
int weights_take(struct weights *w, struct err *err);

#endif
