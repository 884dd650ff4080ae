/* optimizer - the registry of optimizers: what `optimizer.name` may be.
 *
 * An optimizer is one entry, `optimizer_NAME` in optim/NAME.c, and its word in optim/meson.build.
 * The entry brings its name, its help, its own keys of the job file with the struct that they fill,
 * the slots (optim/slot.h) that it keeps, and the operator that updates parameters and slots.
 * train/update.c makes the operator's node from this; it knows no optimizer by name.
 *
 * Threads: constant. */
#ifndef OPTIM_OPTIMIZER_H
#define OPTIM_OPTIMIZER_H

#include "config/option.h"
#include "op/op.h"
#include "optim/slot.h"

#include "optim/optimizer_list.h" /* generated: OPTIMIZER_LIST(X) with X(name) for each entry */

enum { OPTIMIZER_MAX_SLOTS = 8 };

struct optimizer {
    struct option_group group;
    enum op op; /* of its update (op/update.c) */
    /* The slots that it keeps with these options, in *out; returns how many.  Each is named as an
     * operand of the operator. */
    int (*slots)(const void *options, const struct slot_def *out[OPTIMIZER_MAX_SLOTS]);
    /* The numbers of the operator's node, by the operator's constants. */
    void (*numbers)(const void *options, double number[NODE_MAX_NUMBERS]);
    double (*weight_decay)(const void *options);
};

#define X(name) extern const struct optimizer optimizer_##name;
OPTIMIZER_LIST(X)
#undef X

extern const struct option_group *const optimizers[]; /* all of them; NULL at the end */

/* The section `optimizer` of a job. */
struct optimizer_options {
    const struct optimizer *kind;
    const void *options;        /* of kind: its own struct */
    double lr;                  /* before the schedule */
    int scale_lr_by_ranks;      /* Horovod's rule: the rate is lr * ranks */
    unsigned no_decay;          /* bits of optim/groups.h's kinds of parameters */
    struct option_items groups; /* of struct optimizer_group */
};

/* The slots that the job's optimizer keeps, in *out; returns how many. */
int optimizer_slots(const struct optimizer_options *o,
                    const struct slot_def *out[OPTIMIZER_MAX_SLOTS]);

#endif
