/* groups - the settings of each parameter: optimizer.no_decay chooses by kind, optimizer.groups by
 * name.  step/update.c asks for them.
 *
 * A group's `match` is a pattern as in a shell: * stands for any characters, ? for one, [..] for
 * one of several.  If several groups match a parameter, its lr_scale and its weight_decay come from
 * the last group that gives them, and it is frozen if any of the groups says so.  A group's
 * weight_decay takes precedence over no_decay.
 *
 * Threads: pure.
 * Errors:  ERR_CONFIG, naming the parameters. */
#ifndef OPTIM_GROUPS_H
#define OPTIM_GROUPS_H

#include "ir/graph.h"
#include "optim/optimizer.h"

struct optimizer_group { /* an item of optimizer.groups */
    const char *match;
    double lr_scale, weight_decay; /* NAN: not given */
    int frozen;
};

extern const struct option_item optimizer_group_item; /* the keys of a group */
extern const char *const optimizer_kinds[];           /* the words of no_decay; NULL at the end */

struct settings {    /* of one parameter */
    double lr_scale; /* times the learning rate */
    double decay;    /* weight decay */
    int frozen;      /* not trained */
};

struct settings groups_settings(const struct optimizer_options *o, const char *name,
                                enum param_kind kind, const struct shape *shape);

/* Mark the graph's frozen parameters.  Call it before program_differentiate.  Fails if a group
 * matches no parameter, if a pattern of matrices to leave out (optimizer_matrices.left_out) matches
 * none, or if no parameter is left to train. */
int groups_freeze(const struct optimizer_options *o, struct graph *g, struct err *err);

#endif
