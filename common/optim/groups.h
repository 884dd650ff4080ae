/* groups - settings of single parameters: optimizer.no_decay by kind, optimizer.groups by name.
 *
 * A group's `match` is a pattern of the shell's kind: * stands for any characters, ? for one, [..]
 * for one of several.  Where several groups match a parameter, its lr_scale and weight_decay are
 * those of the last group that gives them, and it is frozen if any of the groups says so.  A
 * group's weight_decay holds whatever no_decay says of the parameter's kind.
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
extern const char *const optimizer_kinds[];           /* what no_decay may list; NULL at the end */

struct settings {    /* of one parameter */
    double lr_scale; /* times the learning rate */
    double decay;    /* weight decay */
    int frozen;      /* not trained */
};

struct settings groups_settings(const struct optimizer_options *o, const char *name,
                                enum param_kind kind, const struct shape *shape);

/* Mark the graph's frozen parameters, before program_differentiate.  Fails if a group, or
 * a pattern of what the optimizer's matrices leave out, matches no parameter, or if no parameter is
 * left to train. */
int groups_freeze(const struct optimizer_options *o, struct graph *g, struct err *err);

#endif
