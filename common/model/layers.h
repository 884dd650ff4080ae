/* layers - the options of a network that the job file lists layer by layer.
 *
 * Threads: constant. */
#ifndef MODEL_LAYERS_H
#define MODEL_LAYERS_H

#include "model/model.h"

struct layers_options {
    const char *layers; /* the list, in YAML's flow style */
};

#endif
