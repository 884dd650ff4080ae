/* mlp - a multilayer perceptron: fc1, bn1?, activation, dropout?, fc2 ... and the last fc. */
#include "model/layer.h"

static const enum activation activations[] = {
    [ACTIVATION_RELU] = ACT_RELU,           [ACTIVATION_TANH] = ACT_TANH,
    [ACTIVATION_SIGMOID] = ACT_SIGMOID,     [ACTIVATION_GELU] = ACT_GELU,
    [ACTIVATION_GELU_TANH] = ACT_GELU_TANH,
};

static const char *numbered(struct net *m, const char *name, int i)
{
    return arena_printf(&m->g->arena, "%s%d", name, i + 1);
}

void model_mlp(struct net *m)
{
    const struct job_model *j = &m->job->model;

    layer_flatten(m, "flatten");
    for (int i = 0; i < j->n_hidden; i++) {
        layer_linear(m, numbered(m, "fc", i), j->hidden[i]);
        if (j->batch_norm)
            layer_batch_norm(m, numbered(m, "bn", i));
        layer_activation(m, numbered(m, "act", i), activations[j->activation]);
        layer_dropout(m, numbered(m, "dropout", i), (float)j->dropout);
    }
    layer_linear(m, numbered(m, "fc", j->n_hidden), m->in->n_classes);
}
