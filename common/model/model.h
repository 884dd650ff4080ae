/* model - the network of a job, as a graph.
 *
 * Names of parameters follow PyTorch's modules ("conv1.weight", "fc1.bias"), so that a checkpoint
 * is a state dict.  Each architecture is one file and one row of the table in model.c.
 *
 *   lenet   d2l's variant: conv 20@3x3, ReLU, average pool 2, conv 50@5x5, ReLU, average pool 2,
 *           linear 800-128, ReLU, linear 128-classes (for 28x28x1)
 *   lenet5  conv 6@5x5 pad 2, tanh, average pool 2, conv 16@5x5, tanh, average pool 2,
 *           linear 400-120, tanh, linear 120-84, tanh, linear 84-classes (for 28x28x1)
 *   mlp     flatten, then for each hidden size linear (batch norm?) activation (dropout?), linear
 *
 * Names: lenet conv1 conv2 fc1 fc2; lenet5 conv1 conv2 fc1 fc2 fc3; mlp fc1 fc2 ... and bn1 ...;
 * each with .weight and .bias, bn also with the states .running_mean and .running_var. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/err.h"
#include "config/job.h"
#include "ir/graph.h"

/* What the data look like. */
struct model_input {
    int64_t image[3]; /* H, W, C of a sample */
    int64_t n_classes;
};

/* The forward graph with its loss for `batch` samples (0 is legal).  job: its model and train
 * sections.  sync: 1 if batch norm's statistics are to be taken over all ranks.
 * Fails with ERR_CONFIG when the samples do not fit the architecture: says which layer and why. */
int model_build(const struct job *job, const struct model_input *in, int64_t batch, int training,
                int sync, struct graph **out, struct err *err);

#endif
