/* optimizer - the registry of optimizers, the values of `optimizer.name`.
 *
 * To add an optimizer whose update is one formula for each element: a rule in op/meson.build, and
 * optim/NAME.h with the formula (op/rule.h) and `optimizer_NAME`.  For another: an operator, a word
 * in optim/meson.build, and `optimizer_NAME` in optim/NAME.c.  This entry has the name, the help,
 * and the optimizer's own keys of the job file with the struct that they fill.  It also names the
 * slots (optim/slot.h) that the optimizer keeps, and the operator that updates parameters and
 * slots.  step/update.c makes the operator's node from the entry; it knows no optimizer by name.
 *
 * Threads: any; all of it is constant. */
#ifndef OPTIM_OPTIMIZER_H
#define OPTIM_OPTIMIZER_H

#include "config/option.h"
#include "op/op.h"
#include "optim/slot.h"

#include "optim/optimizer_list.h" /* generated: OPTIMIZER_LIST(X) with X(name) for each entry */

enum { OPTIMIZER_MAX_SLOTS = 8 };

/* For an optimizer that updates some parameters as matrices, by a second operator (muon).  Each
 * matrix has a node of its own, whose operands are those of this parameter alone.  The optimizer's
 * `op` updates all other parameters. */
struct optimizer_matrices {
    enum op op;
    /* 1: the parameter is one of these matrices, [dim[0], all other dimensions]. */
    int (*takes)(const void *options, const char *name, enum param_kind kind,
                 const struct shape *shape);
    /* Fill the attributes of the operator's node for a matrix of this size. */
    void (*numbers)(const void *options, int64_t rows, int64_t columns,
                    double number[NODE_MAX_NUMBERS]);
    /* A key of the job file, for messages, and its value: patterns of names, separated by ", ", of
     * matrices that are not to be taken.  NULL: there are none. */
    const char *left_out_key;
    const char *(*left_out)(const void *options);
    /* Where the options have the learning rate and the weight decay of all other parameters. */
    size_t other_lr, other_decay;
};

/* A key whose default is another one where the job comes from a DeepSpeed configuration. */
struct optimizer_default {
    const char *key, *text;
    int is_list;
};

struct optimizer {
    struct option_group group;
    /* For deepspeed/: the values of DeepSpeed's optimizer.type that are this optimizer, and the
     * defaults that differ there.  NULL stands at the end of both. */
    const char *deepspeed[4];
    struct optimizer_default deepspeed_default[4];
    enum op op; /* the operator of the update (op/update.c) */
    /* 1: the update of an element depends on its whole tensor (LAMB's norms), so a strategy cannot
     * give parts of a tensor to several ranks.  0: it depends only on the element and on the norm
     * of the whole gradient. */
    int whole_tensors;
    /* Write the slots that the optimizer keeps with these options to out[].  Returns how many. Each
     * slot has the name of an operand of the operator. */
    int (*slots)(const void *options, const struct slot_def *out[OPTIMIZER_MAX_SLOTS]);
    /* Fill the attributes of the operator's node, by the operator's constants. */
    void (*numbers)(const void *options, double number[NODE_MAX_NUMBERS]);
    size_t lr, weight_decay;                   /* where the options have these doubles */
    const struct optimizer_matrices *matrices; /* NULL: all parameters are treated alike */
};

/* For `slots`: exp_avg (Lion), or exp_avg and exp_avg_sq (Adam, LAMB and Muon), with the names of
 * PyTorch's state except for the dot.  For a matrix of Muon exp_avg is the momentum, PyTorch's
 * momentum_buffer. */
int optimizer_one_moment(const void *options, const struct slot_def *out[OPTIMIZER_MAX_SLOTS]);
int optimizer_two_moments(const void *options, const struct slot_def *out[OPTIMIZER_MAX_SLOTS]);

#define X(name) extern const struct optimizer optimizer_##name;
OPTIMIZER_LIST(X)
#undef X

extern const struct option_group *const optimizers[]; /* all of them; NULL at the end */

/* The section `optimizer` of a job. */
struct optimizer_options {
    const struct optimizer *kind;
    const void *options;        /* of kind: its own struct */
    int scale_lr_by_ranks;      /* 1: Horovod's rule: the peak rate is lr * ranks */
    unsigned no_decay;          /* bits of optim/groups.h's kinds of parameters */
    struct option_items groups; /* of struct optimizer_group */
};

/* The row of the learning rate, with the default that suits this optimizer.  The options have it as
 * `double lr`; AT() is that of the file. */
#define OPTIMIZER_LR(default_lr)                              \
    {                                                         \
        "optimizer.lr", OPT_REAL, AT(lr), default_lr, 0, 1e6, \
            .flags = OPT_ABOVE, .also = "learning_rate",      \
            .help = "Learning rate, before the schedule."     \
    }

double optimizer_lr(
    const struct optimizer_options *o); /* the peak rate, which the schedule varies */
double optimizer_decay(const struct optimizer_options *o);

/* One of the options, a double, at one of the places above. */
double optimizer_number(const struct optimizer_options *o, size_t at);

/* 1: the job's optimizer updates the parameter as a matrix, by its matrices' operator. */
int optimizer_takes_matrix(const struct optimizer_options *o, const char *name,
                           enum param_kind kind, const struct shape *shape);

/* Write the slots that the job's optimizer keeps to out[].  Returns how many. */
int optimizer_slots(const struct optimizer_options *o,
                    const struct slot_def *out[OPTIMIZER_MAX_SLOTS]);

#endif
