/* lenet - the variant of the d2l book, and lenet5, LeCun's with tanh and average pooling. */
#include "model/layer.h"

void model_lenet(struct net *m)
{
    layer_conv2d(m, "conv1", 20, 3, 0);
    layer_activation(m, "relu1", ACT_RELU);
    layer_pool(m, "pool1", POOL_AVG, 2, 2);
    layer_conv2d(m, "conv2", 50, 5, 0);
    layer_activation(m, "relu2", ACT_RELU);
    layer_pool(m, "pool2", POOL_AVG, 2, 2);
    layer_flatten(m, "flatten");
    layer_linear(m, "fc1", 128);
    layer_activation(m, "relu3", ACT_RELU);
    layer_linear(m, "fc2", m->in->n_classes);
}

void model_lenet5(struct net *m)
{
    layer_conv2d(m, "conv1", 6, 5, 2);
    layer_activation(m, "tanh1", ACT_TANH);
    layer_pool(m, "pool1", POOL_AVG, 2, 2);
    layer_conv2d(m, "conv2", 16, 5, 0);
    layer_activation(m, "tanh2", ACT_TANH);
    layer_pool(m, "pool2", POOL_AVG, 2, 2);
    layer_flatten(m, "flatten");
    layer_linear(m, "fc1", 120);
    layer_activation(m, "tanh3", ACT_TANH);
    layer_linear(m, "fc2", 84);
    layer_activation(m, "tanh4", ACT_TANH);
    layer_linear(m, "fc3", m->in->n_classes);
}
