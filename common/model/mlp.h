/* mlp - the options of the multilayer perceptron.
 *
 * Threads: constant. */
#ifndef MODEL_MLP_H
#define MODEL_MLP_H

#include "model/model.h"

struct mlp_options {
    struct option_ints hidden; /* sizes of the hidden layers; none: the model is linear */
    enum activation activation;
    double dropout; /* probability, [0, 1) */
    int batch_norm;
};

#endif
