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

/* Of an optimizer that updates some parameters, as matrices, by an operator of their own: each of
 * them is a node, whose operands are this parameter's alone.  All others are updated by the
 * optimizer's `op`. */
struct optimizer_matrices {
    enum op op;
    /* 1: the parameter is one of these matrices, [dim[0], all other dimensions]. */
    int (*takes)(const void *options, const char *name, enum param_kind kind,
                 const struct shape *shape);
    /* The numbers of the operator's node, for a matrix of so many rows and columns. */
    void (*numbers)(const void *options, int64_t rows, int64_t columns,
                    double number[NODE_MAX_NUMBERS]);
    /* A key of the job file, and its value: patterns of names, separated by ", ", of matrices that
     * are not taken all the same.  NULL: there are none. */
    const char *left_out_key;
    const char *(*left_out)(const void *options);
    /* The learning rate and the weight decay of all others. */
    double (*other_lr)(const void *options);
    double (*other_decay)(const void *options);
};

struct optimizer {
    struct option_group group;
    enum op op; /* of its update (op/update.c) */
    /* 1: the update of an element depends on the whole tensor that it is part of (LAMB's norms), so
     * a strategy cannot give parts of a tensor to several ranks.  0: it depends on the element and
     * on the norm of the whole gradient alone. */
    int whole_tensors;
    /* The slots that it keeps with these options, in *out; returns how many.  Each is named as an
     * operand of the operator. */
    int (*slots)(const void *options, const struct slot_def *out[OPTIMIZER_MAX_SLOTS]);
    /* The numbers of the operator's node, by the operator's constants. */
    void (*numbers)(const void *options, double number[NODE_MAX_NUMBERS]);
    double (*weight_decay)(const void *options);
    const struct optimizer_matrices *matrices; /* NULL: all parameters are treated alike */
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

/* 1: the job's optimizer updates the parameter as a matrix, by its matrices' operator. */
int optimizer_takes_matrix(const struct optimizer_options *o, const char *name,
                           enum param_kind kind, const struct shape *shape);

/* Copy the first of the patterns, which ", " separates, to `pattern`.  Returns the others, or NULL
 * if there are none. */
const char *optimizer_next_pattern(const char *patterns, char pattern[OPT_TEXT_BYTES + 1]);

/* The slots that the job's optimizer keeps, in *out; returns how many. */
int optimizer_slots(const struct optimizer_options *o,
                    const struct slot_def *out[OPTIMIZER_MAX_SLOTS]);

#endif
