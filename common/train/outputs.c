/* outputs - fills in what judges read of a trainer (judge/outputs.h).  The names of the classes are
 * there before (classes.c). */
#include <string.h>

#include "train/trainer_impl.h"

void trainer_open_outputs(struct trainer *t)
{
    t->outputs.job = t->job;
    t->outputs.spec = t->spec;
    t->outputs.set = t->valid_set;
    t->outputs.step = &t->step;
    t->outputs.warn = trainer_warn;
    t->outputs.arg = t;
}

void trainer_note_outputs(struct trainer *t, const struct graph *g)
{
    const struct shape *s = &g->value[g->logits].shape;
    const int from = s->dim[0] == 1; /* a dimension of the batch, or one that the sample's rows
                                        share with it */

    t->outputs.row = (struct shape){.n = s->n - from};
    memcpy(t->outputs.row.dim, s->dim + from, sizeof *s->dim * (size_t)t->outputs.row.n);
}
