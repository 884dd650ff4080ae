/* lenet - the d2l book's variant of LeNet: convolution 20@3x3, ReLU, average pool 2, convolution
 * 50@5x5, ReLU, average pool 2, linear 800-128, ReLU, linear 128-classes (for 28x28x1).
 *
 * Names: conv1, conv2, fc1, fc2. */
#include "model/layer.h"

static void lenet_build(struct net *m, const void *options)
{
    (void)options;
    layer_input(m);
    layer_conv2d(m, "conv1", 20, 3, 0);
    layer_activation(m, "relu1", ACT_RELU);
    layer_pool(m, "pool1", POOL_AVG, 2, 2, 0);
    layer_conv2d(m, "conv2", 50, 5, 0);
    layer_activation(m, "relu2", ACT_RELU);
    layer_pool(m, "pool2", POOL_AVG, 2, 2, 0);
    layer_flatten(m, "flatten");
    layer_linear(m, "fc1", 128);
    layer_activation(m, "relu3", ACT_RELU);
    layer_linear(m, "fc2", net_n_outputs(m));
}

const struct model_arch arch_lenet = {
    .group = {.name = "lenet", .help = "the d2l book's variant, with average pooling"},
    .build = lenet_build,
};
