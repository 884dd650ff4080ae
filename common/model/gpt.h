/* gpt - the options of GPT-2's networks.
 *
 * Threads: constant. */
#ifndef MODEL_GPT_H
#define MODEL_GPT_H

#include "model/model.h"

struct gpt_options {
    int64_t layers, heads, width; /* 0: those of the named size */
    int64_t context;              /* positions; 0: the length of a sample, GPT-2's own have 1024 */
    int64_t vocab;                /* 0: as many tokens as the data have */
    double dropout;               /* probability, [0, 1) */
    int tied;                     /* the head's weight is the embedding's */
};

#endif
