/* targets - the scale of targets that are real numbers: networks learn (y - mean) / std, and what
 * they predict is turned back.
 *
 * A format of such targets embeds struct targets_options in its own options, its rows by
 * TARGETS_ROWS, and calls targets_prepare when it has opened the data; gathering does the rest
 * (data/dataset.c).
 *
 * Threads: any. */
#ifndef DATA_TARGETS_H
#define DATA_TARGETS_H

#include "data/image.h"

struct targets_options {
    enum normalize normalize;
    struct option_reals mean, std; /* by place of the target's last axis; none: 0, and 1 */
};

#define MOST_REAL  1e30 /* a float holds it, and its inverse */
#define LEAST_REAL 1e-30

#define TARGETS_ROWS(type, member)                                                              \
    {"data.targets.normalize",                                                                  \
     OPT_CHOICE,                                                                                \
     offsetof(type, member.normalize),                                                          \
     "given",                                                                                   \
     .choices = normalize_names,                                                                \
     .flags = OPT_SHORT,                                                                        \
     .help = "auto, for which data.targets: auto is short: targets that are real numbers are "  \
             "learnt by mean and std of the training set's, one for each output. The driver "   \
             "measures them, and job.yaml has them. --predict writes the data's own units; "    \
             "losses are of the learnt numbers."},                                              \
        {"data.targets.mean",                                                                   \
         OPT_REALS,                                                                             \
         offsetof(type, member.mean),                                                           \
         "[]",                                                                                  \
         -MOST_REAL,                                                                            \
         MOST_REAL,                                                                             \
         .only = "data.targets.normalize",                                                      \
         .only_values = 1u << NORMALIZE_GIVEN,                                                  \
         .help = "These numbers are subtracted from the targets, one for each output."},        \
    {                                                                                           \
        "data.targets.std", OPT_REALS, offsetof(type, member.std), "[]", LEAST_REAL, MOST_REAL, \
            .only = "data.targets.normalize", .only_values = 1u << NORMALIZE_GIVEN,             \
            .help = "The targets are then divided by these numbers."                            \
    }

/* Give a data set what the options say.  Fails with ERR_CONFIG if its targets are no real numbers,
 * or have to be from 0 to 1, and the options want them changed; or if the numbers are not as many
 * as the outputs. */
int targets_prepare(struct dataset *ds, const struct targets_options *o,
                    const struct dataset_request *request, struct err *err);

/* Turn n targets as they are stored, from the first output on, into those that are learnt. */
void targets_scale(const struct dataset *ds, float *y, int64_t n);

/* The learnt number y of output k in the data's units: of more digits than a float has, where the
 * mean is large. */
double targets_undone(const struct dataset *ds, int64_t k, float y);

/* Turn n learnt numbers back into the data's units; y[0] is number `first` of the outputs of
 * samples in a row. */
void targets_undo(const struct dataset *ds, int64_t first, float *y, int64_t n);

#endif
