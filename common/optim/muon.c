/* Muon for the matrices of hidden layers, and AdamW for all other parameters, as Keller Jordan's
 * MuonWithAuxAdam.  The updates' formulas are in op/muon.c and optim/adamw.h.
 *
 * A matrix is a weight of two dimensions or more.  That of a convolution is [out, in * kernel], as
 * in Jordan's code (torch.optim.Muon takes weights of two dimensions only).  Biases, norms and
 * embeddings are not matrices, nor are parameters that optimizer.adamw.match names.  The rate of
 * AdamW follows the schedule, too. */
#include <fnmatch.h>
#include <math.h>

#include "base/util.h"
#include "optim/optimizer.h"

enum adjust { ADJUST_ORIGINAL, ADJUST_MATCH_RMS_ADAMW, ADJUST_SPECTRAL_UNCLAMPED };

struct muon_options {
    double lr, momentum, weight_decay;
    int nesterov;
    int adjust; /* enum adjust */
    int64_t steps;
    struct option_reals coefficients;
    struct {
        const char *match; /* patterns, separated by ", "; NULL: none */
        double lr, eps, weight_decay;
        struct option_reals betas;
    } adamw;
};

#define AT(field) offsetof(struct muon_options, field)

static const char *const adjusts[] = {[ADJUST_ORIGINAL] = "original",
                                      [ADJUST_MATCH_RMS_ADAMW] = "match_rms_adamw",
                                      [ADJUST_SPECTRAL_UNCLAMPED] = "spectral_unclamped",
                                      NULL};

static const struct option rows[] = {
    OPTIMIZER_LR("0.02"),
    {"optimizer.momentum", OPT_REAL, AT(momentum), "0.95", 0, 1, .flags = OPT_BELOW,
     .help = "The part of the gradient's mean that goes on."},
    {"optimizer.nesterov", OPT_BOOL, AT(nesterov), "true",
     .help = "Nesterov's momentum: look ahead by one update."},
    {"optimizer.weight_decay", OPT_REAL, AT(weight_decay), "0.1", 0, 1e3,
     .help = "Each matrix shrinks by this times the learning rate, apart from its gradient."},
    {"optimizer.adjust_lr", OPT_CHOICE, AT(adjust), "original", .choices = adjusts,
     .help = "The factor of the rate for a matrix of A rows and B columns. original: the root of "
             "A/B, or 1 if that is more. match_rms_adamw: 0.2 times the root of the larger, so "
             "that a rate chosen for AdamW serves. spectral_unclamped: the root of A/B."},
    {"optimizer.ns_steps", OPT_INT, AT(steps), "5", 1, 99, .unit = "iterations",
     .help = "Newton-Schulz iterations, which make a matrix nearly orthogonal."},
    {"optimizer.ns_coefficients", OPT_REALS, AT(coefficients), "[3.4445, -4.775, 2.0315]", -100,
     100, .count = 3, .help = "The coefficients of these iterations."},
    {"optimizer.adamw.match", OPT_STRING, AT(adamw.match), NULL, .flags = OPT_MANY,
     .help = "Matrices that AdamW updates all the same, by patterns of their names, such as "
             "[\"fc.*\", \"lm_head.*\"]; * stands for any characters. Name the output layer here."},
    {"optimizer.adamw.lr", OPT_REAL, AT(adamw.lr), "3e-4", 0, 1e6, .flags = OPT_ABOVE,
     .help = "The learning rate of what AdamW updates: biases, norms, embeddings and matrices that "
             "match. The schedule changes it as it changes optimizer.lr."},
    {"optimizer.adamw.betas", OPT_REALS, AT(adamw.betas), "[0.9, 0.95]", 0, 1, .flags = OPT_BELOW,
     .count = 2, .help = "The same as with optimizer adamw."},
    {"optimizer.adamw.eps", OPT_REAL, AT(adamw.eps), "1e-10", 0, 1,
     .help = "The same as with optimizer adamw."},
    {"optimizer.adamw.weight_decay", OPT_REAL, AT(adamw.weight_decay), "0", 0, 1e3,
     .help = "The same as with optimizer adamw."},
};

/* ---- matrices ---- */

/* 1: one of the patterns matches. */
static int is_named(const char *patterns, const char *name)
{
    char pattern[OPT_TEXT_BYTES + 1];

    while (patterns) {
        patterns = option_next_item(patterns, pattern);
        if (fnmatch(pattern, name, 0) == 0)
            return 1;
    }
    return 0;
}

static int muon_takes(const void *options, const char *name, enum param_kind kind,
                      const struct shape *shape)
{
    const struct muon_options *o = options;

    return kind == PARAM_WEIGHT && shape->n >= 2 && shape_elements(shape) > 0 &&
           !is_named(o->adamw.match, name);
}

static double muon_ratio(enum adjust adjust, double n_rows, double n_columns)
{
    if (adjust == ADJUST_MATCH_RMS_ADAMW)
        return 0.2 * sqrt(fmax(n_rows, n_columns));
    return sqrt(adjust == ADJUST_ORIGINAL ? fmax(1, n_rows / n_columns) : n_rows / n_columns);
}

static void numbers_of_matrix(const void *options, int64_t n_rows, int64_t n_columns,
                              double number[NODE_MAX_NUMBERS])
{
    const struct muon_options *o = options;

    number[MUON_ATTR_MOMENTUM] = o->momentum;
    number[MUON_ATTR_NESTEROV] = o->nesterov;
    number[MUON_ATTR_ROWS] = (double)n_rows;
    number[MUON_ATTR_RATIO] = muon_ratio((enum adjust)o->adjust, (double)n_rows, (double)n_columns);
    number[MUON_ATTR_STEPS] = (double)o->steps;
    number[MUON_ATTR_A] = o->coefficients.v[0];
    number[MUON_ATTR_B] = o->coefficients.v[1];
    number[MUON_ATTR_C] = o->coefficients.v[2];
}

static const char *left_out(const void *options)
{
    return ((const struct muon_options *)options)->adamw.match;
}

static const struct optimizer_matrices matrices = {
    .op = OP_muon,
    .takes = muon_takes,
    .numbers = numbers_of_matrix,
    .left_out_key = "optimizer.adamw.match",
    .left_out = left_out,
    .other_lr = AT(adamw.lr),
    .other_decay = AT(adamw.weight_decay),
};

/* ---- the others ---- */

static void muon_numbers(const void *options, double number[NODE_MAX_NUMBERS])
{
    const struct muon_options *o = options;

    number[ADAMW_ATTR_BETA1] = o->adamw.betas.v[0];
    number[ADAMW_ATTR_BETA2] = o->adamw.betas.v[1];
    number[ADAMW_ATTR_EPS] = o->adamw.eps;
}

const struct optimizer optimizer_muon = {
    .group = {.name = "muon",
              .help = "momentum made orthogonal, for the matrices of hidden layers; AdamW for the "
                      "rest",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct muon_options)},
    .deepspeed = {"Muon"},
    .op = OP_adamw,
    .whole_tensors = 1,
    .slots = optimizer_two_moments,
    .numbers = muon_numbers,
    .lr = AT(lr),
    .weight_decay = AT(weight_decay),
    .matrices = &matrices,
};
