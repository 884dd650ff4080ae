/* groups - settings of single parameters.
 *
 * Threads: pure. */
#ifndef OPTIM_GROUPS_H
#define OPTIM_GROUPS_H

#include "optim/optimizer.h"

struct settings {
    double lr_scale; /* times the learning rate */
    double decay;    /* weight decay */
};

static inline struct settings settings_of(const struct optimizer_options *o, const char *name,
                                          int kind)
{
    (void)name, (void)kind;
    return (struct settings){.lr_scale = 1, .decay = o->kind->weight_decay(o->options)};
}
#endif
