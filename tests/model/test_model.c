/* test_model - the architectures: names and shapes of their parameters, their graphs in training
 * and evaluation, the losses, and the messages for samples that do not fit. */
#include "../test.h"

#include <math.h>

#include "base/buf.h"
#include "base/util.h"
#include "count.h"
#include "model/gpt.h"
#include "model/layers.h"
#include "model/mlp.h"
#include "op/op.h"

static const struct sample_spec mnist = SAMPLE_IMAGES(28, 28, 1, 10);

static void expect_params(const struct model_options *o, const char *params, const char *states)
{
    struct buf seen = {0};
    struct graph *g;
    struct err err;

    for (int training = 0; training < 2; training++)
        for (int64_t batch = 0; batch < 3; batch += 2) {
            assert_int_equal(model_build(o, &mnist, batch, training, 1, &g, &err), 0);
            list(g, VALUE_PARAM, &seen);
            assert_string_equal(buf_cstr(&seen), params);
            list(g, VALUE_STATE, &seen);
            assert_string_equal(buf_cstr(&seen), states);
            assert_true(shape_equal(&g->value[g->logits].shape, &SHAPE(batch, 10)));
            assert_true(shape_equal(&g->value[g->input[0]].shape, &SHAPE(batch, 28, 28, 1)));
            assert_true(shape_equal(&g->value[g->input[1]].shape, &SHAPE(batch)));
            graph_free(g);
        }
    buf_fini(&seen);
}

static void parameters(void **state)
{
    struct model_options o = {.kind = &arch_lenet};
    struct mlp_options mlp = {.activation = ACT_RELU};

    (void)state;
    expect_params(&o,
                  "conv1.weight[20,1,3,3] conv1.bias[20] conv2.weight[50,20,5,5] conv2.bias[50] "
                  "fc1.weight[128,800] fc1.bias[128] fc2.weight[10,128] fc2.bias[10]",
                  "");
    o.kind = &arch_lenet5;
    expect_params(&o,
                  "conv1.weight[6,1,5,5] conv1.bias[6] conv2.weight[16,6,5,5] conv2.bias[16] "
                  "fc1.weight[120,400] fc1.bias[120] fc2.weight[84,120] fc2.bias[84] "
                  "fc3.weight[10,84] fc3.bias[10]",
                  "");
    o = (struct model_options){.kind = &arch_mlp, .options = &mlp};
    expect_params(&o, "fc1.weight[10,784] fc1.bias[10]", "");
    mlp.hidden = (struct option_ints){2, {64, 32}};
    mlp.dropout = 0.5;
    mlp.batch_norm = 1;
    expect_params(&o,
                  "fc1.weight[64,784] fc1.bias[64] bn1.weight[64] bn1.bias[64] fc2.weight[32,64] "
                  "fc2.bias[32] bn2.weight[32] bn2.bias[32] fc3.weight[10,32] fc3.bias[10]",
                  "bn1.running_mean[64] bn1.running_var[64] bn2.running_mean[32] "
                  "bn2.running_var[32]");
}

static void modes(void **state)
{
    const struct mlp_options mlp = {
        .hidden = {2, {8, 8}}, .activation = ACT_GELU, .dropout = 0.5, .batch_norm = 1};
    const struct model_options o = {.kind = &arch_mlp, .options = &mlp};
    struct graph *g;
    struct err err;

    (void)state;
    assert_int_equal(model_build(&o, &mnist, 4, 1, 1, &g, &err), 0);
    assert_int_equal(count(g, OP_dropout), 2);
    assert_int_equal(count(g, OP_batch_norm), 2);
    assert_int_equal(count(g, OP_allreduce), 2);
    for (int k = 0, tag = 0; k < g->n_nodes; k++) {
        if (g->node[k].op == OP_dropout)
            assert_int_equal(g->node[k].attr.dropout.tag, tag++);
        if (g->node[k].op == OP_activation)
            assert_int_equal(g->node[k].attr.act.kind, ACT_GELU);
    }
    graph_free(g);
    assert_int_equal(model_build(&o, &mnist, 4, 1, 0, &g, &err), 0);
    assert_int_equal(count(g, OP_allreduce), 0);
    graph_free(g);
    assert_int_equal(model_build(&o, &mnist, 4, 0, 1, &g, &err), 0);
    assert_int_equal(count(g, OP_dropout) + count(g, OP_batch_norm) + count(g, OP_allreduce), 0);
    assert_int_equal(count(g, OP_batch_norm_infer), 2);
    graph_free(g);
}

static void losses(void **state)
{
    const struct mlp_options mlp = {.activation = ACT_RELU};
    struct model_options o = {.kind = &arch_mlp, .options = &mlp};
    struct graph *g;
    struct err err;

    (void)state;
    o.label_smoothing = 0.25;
    assert_int_equal(model_build(&o, &mnist, 4, 1, 0, &g, &err), 0);
    assert_int_equal(g->node[g->n_nodes - 1].op, OP_softmax_xent);
    assert_true(g->node[g->n_nodes - 1].attr.loss.label_smoothing == 0.25F);
    graph_free(g);
    assert_int_equal(model_build(&o, &mnist, 4, 0, 0, &g, &err), 0);
    assert_true(g->node[g->n_nodes - 1].attr.loss.label_smoothing == 0); /* in validation */
    graph_free(g);
    o.loss = LOSS_MSE;
    assert_int_equal(model_build(&o, &mnist, 4, 1, 0, &g, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "train.label_smoothing is 0.25"));
    o.label_smoothing = 0;
    assert_int_equal(model_build(&o, &mnist, 4, 1, 0, &g, &err), 0);
    assert_int_equal(g->node[g->n_nodes - 1].op, OP_pointwise_loss);
    assert_int_equal(g->node[g->n_nodes - 1].attr.loss.pointwise, POINTWISE_SQUARED);
    graph_free(g);
    o.loss = LOSS_L1;
    assert_int_equal(model_build(&o, &mnist, 4, 1, 0, &g, &err), 0);
    assert_int_equal(g->node[g->n_nodes - 1].attr.loss.pointwise, POINTWISE_ABSOLUTE);
    graph_free(g);
    o.loss = LOSS_BCE;
    assert_int_equal(model_build(&o, &mnist, 4, 0, 0, &g, &err), 0);
    assert_int_equal(g->node[g->n_nodes - 1].attr.loss.pointwise, POINTWISE_LOGISTIC);
    graph_free(g);
}

/* A loss with a weight is one operator, whose factor it is in training alone. */
static void weight_of_one_loss(void **state)
{
    static const char *const text[] = {"{name: cross_entropy, weight: 0.25}",
                                       "{name: mse, weight: 0.25}"};
    const struct mlp_options mlp = {.activation = ACT_RELU};
    struct model_options o = {.kind = &arch_mlp, .options = &mlp};

    (void)state;
    for (int i = 0; i < 4; i++) {
        const int training = i % 2;
        struct graph *g;
        struct err err;

        o.losses = text[i / 2];
        assert_int_equal(model_build(&o, &mnist, 4, training, 0, &g, &err), 0);
        assert_int_equal(g->node[g->n_nodes - 1].op, i / 2 ? OP_pointwise_loss : OP_softmax_xent);
        assert_int_equal(g->node[g->n_nodes - 1].attr.loss.part, LOSS_IS_WHOLE);
        assert_true(loss_factor(&g->node[g->n_nodes - 1].attr) == (training ? 0.25F : 1));
        assert_int_equal(count(g, OP_softmax_xent) + count(g, OP_pointwise_loss), 1);
        graph_free(g);
    }
}

/* Multiplied by a power of two, and by nothing else; then float32's precision, as far as it is not
 * below 2^-30. */
static void class_weights(void **state)
{
    static const double given[10] = {3, 0, 1, 0.1, 0.75, 1e-5, 2, 0.5, 1, 1};
    const struct mlp_options mlp = {.activation = ACT_RELU};
    struct model_options o = {
        .kind = &arch_mlp, .options = &mlp, .class_weights = {ARRAY_LEN(given), given}};

    (void)state;
    for (int training = 0; training < 2; training++) {
        const union node_attr *attr;
        struct graph *g;
        struct err err;
        double sum = 0;

        assert_int_equal(model_build(&o, &mnist, 4, training, 0, &g, &err), 0);
        attr = &g->node[g->n_nodes - 1].attr;
        assert_int_equal(attr->loss.counts_top5, !training);
        for (int i = 0; i < 10; i++) {
            const double w = (double)attr->loss.class_weight[i], units = w * WEIGHT_UNITS;

            assert_true(units == floor(units) &&
                        fabs(w - given[i] / 4) <= 0x1p-27 * given[i] + 0x1p-31);
            sum += w;
        }
        assert_true(attr->loss.class_weight[0] == 0.75F && attr->loss.class_weight[1] == 0);
        assert_true(attr->loss.class_weight[3] == 0.1F / 4);
        assert_true(attr->loss.class_weight_sum == sum);
        graph_free(g);
        o.class_weights.n = 9;
        assert_int_equal(model_build(&o, &mnist, 4, training, 0, &g, &err), ERR_CONFIG);
        assert_non_null(
            strstr(err.msg, "train.class_weights has 9 numbers, want 10, one for each"));
        o.class_weights.n = 10;
    }
}

static void samples_that_do_not_fit(void **state)
{
    static const struct {
        const struct model_arch *arch;
        int64_t image[3];
        const char *text;
    } cases[] = {
        {&arch_lenet,
         {2, 9, 1},
         "model lenet for samples of x [2,9,1], labels of 10 classes: conv1 (conv2d): filter"},
        {&arch_lenet,
         {8, 28, 1},
         "conv2 (conv2d): filter [50,20,5,5] with dilation 1 is larger than the image [4,3,13,20] "
         "with padding 0"},
        {&arch_lenet5, {10, 12, 3}, "pool2 (pool2d): kernel 2x2 is larger"},
    };
    struct graph *g;
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct model_options o = {.kind = cases[i].arch};
        const int64_t *image = cases[i].image;
        struct sample_spec in = SAMPLE_IMAGES(image[0], image[1], image[2], 10);

        assert_int_equal(model_build(&o, &in, 4, 1, 0, &g, &err), ERR_CONFIG);
        if (!strstr(err.msg, cases[i].text))
            fail_msg("\"%s\" does not hold \"%s\"", err.msg, cases[i].text);
    }
}

/* An mlp takes rows of numbers; a sample that a network or a loss cannot take is refused, and the
 * message says why. */
static void samples_of_other_kinds(void **state)
{
    static const struct sample_spec
        rows = {2,
                {{"row", SAMPLE_INPUT, DTYPE_F32, {1, {6}}, 0, DTYPE_F32, SAMPLE_AS_IS},
                 {"class", SAMPLE_CLASS, DTYPE_I32, {0, {0}}, 3, DTYPE_I32, SAMPLE_AS_IS}}},
        tokens = {2,
                  {{"text", SAMPLE_INPUT, DTYPE_I32, {1, {6}}, 9, DTYPE_I32, SAMPLE_AS_IS},
                   {"next", SAMPLE_CLASS, DTYPE_I32, {1, {6}}, 9, DTYPE_I32, SAMPLE_AS_IS}}};
    static const struct mlp_options none = {.activation = ACT_RELU};
    const struct model_options o = {.kind = &arch_mlp, .options = &none};
    struct model_options squared = o;
    struct sample_spec real = rows, many = rows;
    struct graph *g;
    struct err err;

    (void)state;
    assert_int_equal(model_build(&o, &rows, 4, 1, 0, &g, &err), 0);
    assert_string_equal(g->value[g->input[0]].name, "row");
    assert_true(shape_equal(&g->value[g->input[0]].shape, &SHAPE(4, 6)));
    assert_true(shape_equal(&g->value[g->logits].shape, &SHAPE(4, 3)));
    graph_free(g);
    assert_int_equal(model_build(&o, &tokens, 4, 1, 0, &g, &err), ERR_CONFIG);
    assert_string_equal(err.msg, "model mlp for samples of text [6] of 9 tokens, next [6] of 9 "
                                 "classes: input \"text\" is tokens, want real numbers");
    real.field[1] =
        (struct sample_field){"y", SAMPLE_REAL, DTYPE_F32, {1, {2}}, 0, DTYPE_F32, SAMPLE_AS_IS};
    assert_int_equal(model_build(&o, &real, 4, 1, 0, &g, &err), ERR_CONFIG);
    assert_string_equal(err.msg,
                        "model mlp for samples of row [6], y [2] of real numbers: model.loss "
                        "cross_entropy needs one class label a sample; the target is y [2] of real "
                        "numbers; store classes as whole numbers, such as int64, or set model.loss "
                        "mse, l1 or bce");
    squared.loss = LOSS_MSE;
    assert_int_equal(model_build(&squared, &real, 4, 1, 0, &g, &err), 0);
    assert_true(shape_equal(&g->value[g->logits].shape, &SHAPE(4, 2)));
    graph_free(g);
    many.n_fields = 3;
    many.field[2] = many.field[0];
    assert_int_equal(model_build(&o, &many, 4, 1, 0, &g, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "samples have 2 inputs, want one"));
}

/* Lists of layers for samples that are neither rows nor images, and for targets that are numbers.
 */
static void listed_layers_for_other_samples(void **state)
{
    static const struct sample_spec sequences = {
        2,
        {{"x", SAMPLE_INPUT, DTYPE_F32, {2, {4, 5}}, 0, DTYPE_F32, SAMPLE_AS_IS},
         {"y", SAMPLE_REAL, DTYPE_F32, {1, {2}}, 0, DTYPE_F32, SAMPLE_AS_IS}}};
    static const struct {
        const char *layers, *message; /* NULL: the samples fit */
    } cases[] = {
        {"[relu, flatten, batch_norm, group_norm: {groups: 4}, linear: {units: 2}]", NULL},
        {"[batch_norm, flatten, linear: {units: 2}]", NULL},
        {"[relu, group_norm: {groups: 5}, flatten, linear: {units: 2}]",
         "1: its input is [4,4,5], want rows [N,C] or images [N,H,W,C]; flatten it before"},
        {"[layer_norm, rms_norm, flatten, linear: {units: 2}]", NULL},
        {"[lstm: {units: 3, layers: 2, dropout: 0.5}, gru: {units: 4, return: last}, "
         "linear: {units: 2}]",
         NULL},
        {"[gru: {units: 3}, flatten, linear: {units: 2}]", NULL},
        {"[gru: {units: 3, return: last}, lstm: {units: 3}, linear: {units: 2}]",
         "1: its input is [4,3], want [N,T,C]: C numbers for each of T time steps"},
        {"[flatten, linear: {units: 3}]", "gives [4,3], want [N,2]: end with flatten and linear"},
        {"[flatten, linear: {units: 1}]", "gives [4,1], want [N,2]: end with flatten and linear"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct layers_options own = {cases[i].layers};
        const struct model_options o = {.kind = &arch_layers, .options = &own, .loss = LOSS_MSE};
        struct graph *g;
        struct err err = {0};
        const int rc = model_build(&o, &sequences, 4, 1, 0, &g, &err);

        assert_int_equal(rc, cases[i].message ? ERR_CONFIG : 0);
        if (rc == 0)
            graph_free(g);
        else if (!strstr(err.msg, cases[i].message))
            fail_msg("%s: %s", cases[i].layers, err.msg);
    }
}

/* The parameters of recurrent layers have PyTorch's names and order. */
static void recurrent_layers(void **state)
{
    const struct sample_spec sequences = {
        2,
        {{"x", SAMPLE_INPUT, DTYPE_F32, {2, {4, 5}}, 0, DTYPE_F32, SAMPLE_AS_IS},
         {"y", SAMPLE_REAL, DTYPE_F32, {1, {2}}, 0, DTYPE_F32, SAMPLE_AS_IS}}};
    const struct layers_options own = {
        "[gru: {units: 3, bidirectional: true}, lstm: {units: 2, layers: 2, return: last}]"};
    const struct model_options o = {.kind = &arch_layers, .options = &own, .loss = LOSS_MSE};
    struct buf seen = {0};
    struct graph *g;
    struct err err;

    (void)state;
    for (int64_t batch = 0; batch < 3; batch += 2) {
        assert_int_equal(model_build(&o, &sequences, batch, 1, 0, &g, &err), 0);
        list(g, VALUE_PARAM, &seen);
        assert_string_equal(
            buf_cstr(&seen),
            "0.weight_ih_l0[9,5] 0.weight_hh_l0[9,3] 0.bias_ih_l0[9] 0.bias_hh_l0[9] "
            "0.weight_ih_l0_reverse[9,5] 0.weight_hh_l0_reverse[9,3] 0.bias_ih_l0_reverse[9] "
            "0.bias_hh_l0_reverse[9] 1.weight_ih_l0[8,6] 1.weight_hh_l0[8,2] 1.bias_ih_l0[8] "
            "1.bias_hh_l0[8] 1.weight_ih_l1[8,2] 1.weight_hh_l1[8,2] 1.bias_ih_l1[8] "
            "1.bias_hh_l1[8]");
        graph_free(g);
    }
    buf_fini(&seen);
}

/* The parameters are named as torch.nn.Sequential names them; every kind of layer is there. */
static void listed_layers(void **state)
{
    const struct layers_options own = {
        "[conv: {channels: 4, kernel: 3, padding: 1, bias: false}, batch_norm, relu, "
        "max_pool: {kernel: 3, stride: 2, padding: 1}, "
        "residual: [conv: {channels: 8, kernel: 3, padding: 1, groups: 2}, tanh], "
        "global_avg_pool, flatten, dropout, linear: {units: 12, bias: false}, gelu, "
        "linear: {units: 10}]"};
    struct layers_options with_shortcut = {
        "[{residual: [conv: {channels: 4, kernel: 3, stride: 2, padding: 1}, batch_norm], "
        "shortcut: [conv: {channels: 4, kernel: 1, stride: 2}]}, avg_pool: {kernel: 2}, flatten, "
        "linear: {units: 10}]"};
    struct model_options o = {.kind = &arch_layers, .options = &own};
    struct graph *g;
    struct err err;

    (void)state;
    assert_int_equal(model_build(&o, &mnist, 4, 1, 1, &g, &err), ERR_CONFIG); /* 4 and 8 channels */
    assert_non_null(strstr(err.msg, "model.layers: 4: the residual's layers give [4,14,14,8]"));
    o.options = &with_shortcut;
    expect_params(&o,
                  "0.0.weight[4,1,3,3] 0.0.bias[4] 0.1.weight[4] 0.1.bias[4] "
                  "0.shortcut.0.weight[4,1,1,1] 0.shortcut.0.bias[4] 3.weight[10,196] 3.bias[10]",
                  "0.1.running_mean[4] 0.1.running_var[4]");
    with_shortcut.layers = "[conv: {channels: 4, kernel: 3, padding: 1, bias: false}, batch_norm, "
                           "relu, max_pool: {kernel: 3, stride: 2, padding: 1}, residual: [conv: "
                           "{channels: 4, kernel: 3, padding: 1, groups: 2}, tanh], "
                           "global_avg_pool, flatten, dropout, linear: {units: 12, bias: false}, "
                           "gelu, linear: {units: 10}]";
    expect_params(&o,
                  "0.weight[4,1,3,3] 1.weight[4] 1.bias[4] 4.0.weight[4,2,3,3] 4.0.bias[4] "
                  "8.weight[12,4] 10.weight[10,12] 10.bias[10]",
                  "1.running_mean[4] 1.running_var[4]");
    with_shortcut.layers =
        "[conv_transpose: {channels: 6, kernel: 3, stride: 2, padding: 1, "
        "output_padding: 1}, group_norm: {groups: 3}, conv_transpose: "
        "{channels: 4, kernel: 2, groups: 2, bias: false}, instance_norm, "
        "adaptive_avg_pool: {size: 3}, flatten, layer_norm, linear: {units: 10}]";
    expect_params(&o,
                  "0.weight[1,6,3,3] 0.bias[6] 1.weight[6] 1.bias[6] 2.weight[6,2,2,2] "
                  "6.weight[36] 6.bias[36] 7.weight[10,36] 7.bias[10]",
                  "");
}

/* Lists that the samples do not fit, and the layers that the messages name. */
static void listed_layers_that_do_not_fit(void **state)
{
    static const struct {
        const char *layers, *message;
    } bad[] = {
        {"[linear: {units: 10}]", "0: its input is [4,28,28,1], want [N,C]; flatten it before"},
        {"[flatten, conv: {channels: 2, kernel: 1}]", "1: its input is [4,784], want images"},
        {"[flatten, global_avg_pool]", "1: its input is [4,784], want images"},
        {"[flatten, linear: {units: 9}]",
         "gives [4,9], want [N,10]: end with flatten and linear: {units: 10}; labels that are "
         "numbers belong in float32, and one that marks no class in train.ignore_index"},
        {"[batch_norm, relu]", "gives [4,28,28,1], want [N,10]"},
        {"[conv: {channels: 2, kernel: 1, groups: 2}]",
         "0: its input has 1 channels and its output 2, want multiples of groups, 2, for both"},
        {"[conv: {channels: 2, kernel: 1}, conv: {channels: 3, kernel: 1, groups: 2}]",
         "1: its input has 2 channels and its output 3, want multiples of groups, 2, for both"},
        {"[conv: {channels: 2, kernel: 15, dilation: 2, padding: 0}]",
         "0 (conv2d): filter [2,1,15,15] with dilation 2 is larger than the image [4,28,28,1] with "
         "padding 0"},
        {"[max_pool: {kernel: 31, padding: 1}]",
         "0 (pool2d): kernel 31x31 is larger than the image [4,28,28,1] with padding 1"},
        {"[group_norm: {groups: 2}]", "0: 1 channels are no multiple of 2 groups"},
        {"[layer_norm]",
         "0: its input is [4,28,28,1], want rows [N,C] or sequences [N,T,C]; flatten it before, or "
         "normalise images by group_norm: {groups: 1}"},
        {"[lstm: {units: 3}]", "0: its input is [4,28,28,1], want [N,T,C]"},
        {"[flatten, instance_norm]", "1: its input is [4,784], want images"},
        {"[adaptive_avg_pool: {size: 3}]", "whose size is a multiple of 3"},
        {"[conv_transpose: {channels: 3, kernel: 2, groups: 2}]", "want multiples of groups, 2"},
        {"[conv_transpose: {channels: 3, kernel: 2, stride: 2, output_padding: 2}]",
         "output_padding is 2, want less than the stride, 2"},
        {"[conv_transpose: {channels: 3, kernel: 1, dilation: 2, output_padding: 1}]",
         "output_padding is 1, want less than the stride, 1"},
        {"[conv_transpose: {channels: 3, kernel: 1, padding: 14}]",
         "0: padding 14 leaves 0x0 pixels of its input [4,28,28,1], want at least 1x1"},
        {"[global_avg_pool, instance_norm]", "1: instance_norm makes 0 of images of 1x1 pixels"},
        {"[flatten, relu]", "no layer of model.layers has weights"},
        {"[relu, {residual: [relu, residual: [conv: {channels: 2, kernel: 3}]]}]",
         "model.layers: 1.1: the residual's layers give [4,26,26,2], but its input is [4,28,28,1]; "
         "set shortcut: [layers] beside residual, whose layers give the input that shape"},
        {"[{residual: [conv: {channels: 2, kernel: 3}], shortcut: [conv: {channels: 2, kernel: "
         "1}]}]",
         "model.layers: 0: the residual's layers give [4,26,26,2], but its shortcut gives "
         "[4,28,28,2]; both must give the same shape"},
        {"[max_pool: {kernel: 3, padding: 2}]", "0 (pool2d): padding 2 must be from 0 to half"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const struct layers_options own = {bad[i].layers};
        const struct model_options o = {.kind = &arch_layers, .options = &own};
        struct graph *g;
        struct err err;

        assert_int_equal(model_build(&o, &mnist, 4, 1, 1, &g, &err), ERR_CONFIG);
        if (!strstr(err.msg, bad[i].message))
            fail_msg("%s: %s", bad[i].layers, err.msg);
    }
}

/* Of packed documents a GPT reads where each begins, in each attention and for its positions; other
 * networks, and one without causal attention, would mix documents. */
static void packed_documents(void **state)
{
    static const struct gpt_options small = {.layers = 2, .heads = 1, .width = 8, .context = 6};
    static const struct layers_options list = {"[embedding: {width: 8}, linear: {units: 9}]"};
    struct sample_spec packed = SAMPLE_SEQUENCES(6, 9), plain = packed;
    struct model_options o = {.kind = &arch_gpt, .options = &small};
    struct graph *g;
    struct err err;

    (void)state;
    packed.field[packed.n_fields++] = (struct sample_field)SAMPLE_STARTS_FIELD(6);
    for (int is_packed = 0; is_packed < 2; is_packed++) {
        int n = 0;

        assert_int_equal(model_build(&o, is_packed ? &packed : &plain, 4, 1, 0, &g, &err), 0);
        for (int k = 0; k < g->n_nodes; k++) {
            const struct node *at = &g->node[k];

            if (at->op == OP_attention || at->op == OP_embedding) {
                assert_int_equal(
                    at->in[at->op == OP_attention ? ATTENTION_STARTS : EMBEDDING_STARTS],
                    is_packed ? g->input[2] : NO_VALUE);
                n++;
            }
        }
        assert_int_equal(n, 3);
        graph_free(g);
    }
    o = (struct model_options){.kind = &arch_layers, .options = &list};
    assert_int_equal(model_build(&o, &plain, 4, 1, 0, &g, &err), 0);
    graph_free(g);
    assert_int_equal(model_build(&o, &packed, 4, 1, 0, &g, &err), ERR_CONFIG);
    assert_string_equal(err.msg,
                        "model layers for samples of tokens [6] of 9 tokens, targets [6] of 9 "
                        "classes, starts [6] of documents: it cannot keep packed documents apart; "
                        "set data.pack false, or take model.arch gpt or gpt2, or a folder of "
                        "transformers' (model.import)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listed_layers),
        cmocka_unit_test(recurrent_layers),
        cmocka_unit_test(listed_layers_for_other_samples),
        cmocka_unit_test(listed_layers_that_do_not_fit),
        cmocka_unit_test(parameters),
        cmocka_unit_test(modes),
        cmocka_unit_test(losses),
        cmocka_unit_test(weight_of_one_loss),
        cmocka_unit_test(class_weights),
        cmocka_unit_test(samples_that_do_not_fit),
        cmocka_unit_test(samples_of_other_kinds),
        cmocka_unit_test(packed_documents),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
