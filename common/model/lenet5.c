/* lenet5 - LeCun's LeNet of 1998: convolution 6@5x5 with padding 2, tanh, average pool 2,
 * convolution 16@5x5, tanh, average pool 2, linear 400-120, tanh, linear 120-84, tanh, linear
 * 84-classes (for 28x28x1).
 *
 * Names: conv1, conv2, fc1, fc2, fc3. */
#include "model/layer.h"

static void lenet5_build(struct net *m, const void *options)
{
    (void)options;
    layer_input(m);
    layer_conv2d(m, "conv1", 6, 5, 2);
    layer_activation(m, "tanh1", ACT_TANH);
    layer_pool(m, "pool1", POOL_AVG, 2, 2, 0);
    layer_conv2d(m, "conv2", 16, 5, 0);
    layer_activation(m, "tanh2", ACT_TANH);
    layer_pool(m, "pool2", POOL_AVG, 2, 2, 0);
    layer_flatten(m, "flatten");
    layer_linear(m, "fc1", 120);
    layer_activation(m, "tanh3", ACT_TANH);
    layer_linear(m, "fc2", 84);
    layer_activation(m, "tanh4", ACT_TANH);
    layer_linear(m, "fc3", net_n_outputs(m));
}

const struct model_arch arch_lenet5 = {
    .group = {.name = "lenet5", .help = "LeCun's of 1998"},
    .build = lenet5_build,
};
