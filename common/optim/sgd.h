/* sgd - the options of stochastic gradient descent, with PyTorch's meanings.  op/sgd.c has the
 * formula.
 *
 * Threads: any; all of it is constant. */
#ifndef OPTIM_SGD_H
#define OPTIM_SGD_H

#include "optim/optimizer.h"

struct sgd_options {
    double lr;
    double momentum;
    double dampening;
    double weight_decay;
    int nesterov;
};

#endif
