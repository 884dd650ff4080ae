/* sgd - the options of stochastic gradient descent; op/sgd.c is its formula.
 *
 * Threads: constant. */
#ifndef OPTIM_SGD_H
#define OPTIM_SGD_H

#include "optim/optimizer.h"

struct sgd_options {
    double momentum;
    double dampening;
    double weight_decay;
    int nesterov;
};

#endif
