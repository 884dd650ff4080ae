/* mlp - a multilayer perceptron: the samples flattened, then for each hidden size a linear layer,
 * batch norm (if asked for), the activation and dropout (if asked for), and a last linear layer.
 *
 * Names: fc1, bn1, act1, dropout1, fc2 ... */
#include "model/mlp.h"

#include "base/util.h"
#include "model/layer.h"

#define AT(field) offsetof(struct mlp_options, field)

static const struct option rows[] = {
    {"model.hidden", OPT_INTS, AT(hidden), "[128]", 1, 65536, .unit = "units",
     .also = "hidden_sizes", .help = "Sizes of the hidden layers, up to 16 of them; [] for none."},
    {"model.activation", OPT_CHOICE, AT(activation), "relu", .choices = activation_names,
     .first = ACT_NONE + 1,
     .help = "The activation that follows each hidden layer; lenet has relu, lenet5 tanh. "
             "gelu_tanh approximates gelu, as GPT-2 has it, and is the one that GPUs compute "
             "within the matrix product."},
    {"model.dropout", OPT_REAL, AT(dropout), "0", 0, 1, .flags = OPT_BELOW,
     .help = "Probability that an activation of a hidden layer is dropped in training."},
    {"model.batch_norm", OPT_BOOL, AT(batch_norm), "false",
     .help = "Normalize over the batch after each hidden layer."},
};

static const char *mlp_numbered(struct net *m, const char *name, int i)
{
    return arena_printf(&m->g->arena, "%s%d", name, i + 1);
}

static void mlp_build(struct net *m, const void *options)
{
    const struct mlp_options *o = options;

    layer_input(m);
    layer_flatten(m, "flatten");
    for (int i = 0; i < o->hidden.n; i++) {
        layer_linear(m, mlp_numbered(m, "fc", i), o->hidden.v[i]);
        if (o->batch_norm)
            layer_batch_norm(m, mlp_numbered(m, "bn", i));
        layer_activation(m, mlp_numbered(m, "act", i), o->activation);
        layer_dropout(m, mlp_numbered(m, "dropout", i), (float)o->dropout);
    }
    layer_linear(m, mlp_numbered(m, "fc", o->hidden.n), net_n_outputs(m));
}

const struct model_arch arch_mlp = {
    .group = {.name = "mlp",
              .help = "a multilayer perceptron",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct mlp_options)},
    .build = mlp_build,
};
