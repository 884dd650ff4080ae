/* rows - options that several architectures have.  Each macro is one row of a table of options
 * (config/option.h), for the field at `at` of the architecture's own struct.
 *
 * Threads: any; these are macros. */
#ifndef MODEL_ROWS_H
#define MODEL_ROWS_H

#include "config/option.h"

/* A whole number from `least` to `most`. */
#define ROW_COUNT(name, at, value, least, most, of, text)               \
    {                                                                   \
        name, OPT_INT, at, value, least, most, .unit = of, .help = text \
    }

/* A probability below 1. */
#define ROW_PROBABILITY(name, at, value, text)                            \
    {                                                                     \
        name, OPT_REAL, at, value, 0, 1, .flags = OPT_BELOW, .help = text \
    }

#define ROW_HEADS(at, value)                              \
    ROW_COUNT("model.heads", at, value, 1, 1000, "heads", \
              "Attention heads of a block; model.width is a multiple of it.")

/* skips: "branch skips" for blocks with one branch, else "branches skip". */
#define ROW_DROP_PATH(at, skips)                                                                 \
    ROW_PROBABILITY("model.drop_path", at, "0",                                                  \
                    "Stochastic depth: probability that the last block's " skips " a sample in " \
                    "training; it rises linearly from 0 at the first block.")

#define ROW_CLASSES(at)                                    \
    ROW_COUNT("model.classes", at, "0", 0, 1e6, "classes", \
              "Outputs of the network; 0: as many as the data have.")

#endif
