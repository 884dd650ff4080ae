#include "cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"
#include "op/control.h"
#include "op/scaler.h"
#include "tensor/half.h"

#define IN(f, ...)                                                            \
    {                                                                         \
        FILL_##f,                                                             \
        {                                                                     \
            .n = sizeof((int64_t[]){__VA_ARGS__}) / 8, .dim = { __VA_ARGS__ } \
        }                                                                     \
    }
#define ONLY(f)               \
    {                         \
        FILL_##f, { .n = -1 } \
    }
#define CONV(s0, s1, p0, p1, d0, d1, g, a) \
    {                                      \
        .conv = {                          \
            .stride = {s0, s1},            \
            .pad = {p0, p1},               \
            .dilation = {d0, d1},          \
            .groups = g,                   \
            .act = a                       \
        }                                  \
    }
#define POOL(k, k0, k1, s0, s1, p0, p1, count) \
    {                                          \
        .pool = {                              \
            .kind = POOL_##k,                  \
            .kernel = {k0, k1},                \
            .stride = {s0, s1},                \
            .pad = {p0, p1},                   \
            .count_pad = count                 \
        }                                      \
    }

/* A forward case with gradients, both tolerances as usual; and one without gradients. */
#define WITH_GRAD .tol = 1e-5, .grad_tol = 5e-3, .training = 1
#define FORWARD   .tol = 1e-5

const struct op_case op_cases[] = {
    /* convolution: LeNet's two, odd sizes, every attribute, every fused form */
    {"conv_lenet1",
     OP_conv2d,
     CONV(1, 1, 0, 0, 1, 1, 1, ACT_NONE),
     {IN(NORMAL, 3, 28, 28, 1), IN(NORMAL, 20, 1, 3, 3), IN(NORMAL, 20)},
     WITH_GRAD},
    {"conv_lenet2",
     OP_conv2d,
     CONV(1, 1, 0, 0, 1, 1, 1, ACT_NONE),
     {IN(NORMAL, 2, 13, 13, 20), IN(NORMAL, 50, 20, 5, 5), IN(NORMAL, 50)},
     WITH_GRAD},
    {"conv_no_bias",
     OP_conv2d,
     CONV(1, 1, 1, 1, 1, 1, 1, ACT_NONE),
     {IN(NORMAL, 2, 7, 5, 3), IN(NORMAL, 7, 3, 3, 3)},
     WITH_GRAD},
    {"conv_stride_pad",
     OP_conv2d,
     CONV(2, 3, 1, 2, 1, 1, 1, ACT_NONE),
     {IN(NORMAL, 3, 9, 11, 5), IN(NORMAL, 17, 5, 3, 4), IN(NORMAL, 17)},
     WITH_GRAD},
    {"conv_dilation",
     OP_conv2d,
     CONV(1, 1, 2, 1, 2, 3, 1, ACT_NONE),
     {IN(NORMAL, 2, 9, 11, 4), IN(NORMAL, 6, 4, 3, 3), IN(NORMAL, 6)},
     WITH_GRAD},
    {"conv_groups",
     OP_conv2d,
     CONV(1, 2, 1, 0, 1, 1, 3, ACT_NONE),
     {IN(NORMAL, 2, 6, 7, 6), IN(NORMAL, 9, 2, 3, 2), IN(NORMAL, 9)},
     WITH_GRAD},
    {"conv_depthwise",
     OP_conv2d,
     CONV(1, 1, 1, 1, 1, 1, 19, ACT_NONE),
     {IN(NORMAL, 2, 5, 6, 19), IN(NORMAL, 19, 1, 3, 3), IN(NORMAL, 19)},
     WITH_GRAD},
    {"conv_groups_dilation",
     OP_conv2d,
     CONV(2, 1, 2, 2, 2, 2, 2, ACT_NONE),
     {IN(NORMAL, 2, 8, 7, 32), IN(NORMAL, 32, 16, 3, 3), IN(NORMAL, 32)},
     WITH_GRAD},
    {"conv_1x1",
     OP_conv2d,
     CONV(1, 1, 0, 0, 1, 1, 1, ACT_NONE),
     {IN(NORMAL, 3, 5, 4, 33), IN(NORMAL, 10, 33, 1, 1), IN(NORMAL, 10)},
     WITH_GRAD},
    {"conv_whole_image",
     OP_conv2d,
     CONV(1, 1, 0, 0, 1, 1, 1, ACT_NONE),
     {IN(NORMAL, 5, 4, 5, 3), IN(NORMAL, 11, 3, 4, 5), IN(NORMAL, 11)},
     WITH_GRAD},
    {"conv_one_pixel",
     OP_conv2d,
     CONV(1, 1, 0, 0, 1, 1, 1, ACT_NONE),
     {IN(NORMAL, 1, 1, 1, 1), IN(NORMAL, 1, 1, 1, 1), IN(NORMAL, 1)},
     WITH_GRAD},
    {"conv_wide",
     OP_conv2d,
     CONV(1, 1, 1, 1, 1, 1, 1, ACT_NONE),
     {IN(NORMAL, 2, 6, 6, 64), IN(NORMAL, 64, 64, 3, 3), IN(NORMAL, 64)},
     WITH_GRAD},
    {"conv_empty",
     OP_conv2d,
     CONV(1, 1, 0, 0, 1, 1, 1, ACT_NONE),
     {IN(NORMAL, 0, 8, 8, 3), IN(NORMAL, 4, 3, 3, 3), IN(NORMAL, 4)},
     .training = 1},
    {"conv_relu",
     OP_conv2d,
     CONV(1, 1, 0, 0, 1, 1, 1, ACT_RELU),
     {IN(NORMAL, 3, 13, 13, 20), IN(NORMAL, 50, 20, 5, 5), IN(NORMAL, 50)},
     FORWARD},
    {"conv_relu_1",
     OP_conv2d,
     CONV(1, 1, 0, 0, 1, 1, 1, ACT_RELU),
     {IN(NORMAL, 3, 28, 28, 1), IN(NORMAL, 20, 1, 3, 3), IN(NORMAL, 20)},
     FORWARD},
    {"conv_relu_no_bias",
     OP_conv2d,
     CONV(1, 1, 1, 0, 1, 1, 1, ACT_RELU),
     {IN(NORMAL, 2, 6, 5, 3), IN(NORMAL, 5, 3, 3, 2)},
     FORWARD},
    {"conv_tanh",
     OP_conv2d,
     CONV(1, 1, 1, 1, 1, 1, 1, ACT_TANH),
     {IN(NORMAL, 2, 6, 5, 3), IN(NORMAL, 5, 3, 3, 3), IN(NORMAL, 5)},
     FORWARD},
    {"conv_sigmoid",
     OP_conv2d,
     CONV(2, 1, 1, 1, 1, 1, 1, ACT_SIGMOID),
     {IN(NORMAL, 2, 6, 5, 3), IN(NORMAL, 5, 3, 3, 3), IN(NORMAL, 5)},
     FORWARD},
    {"conv_gelu",
     OP_conv2d,
     CONV(1, 1, 1, 1, 1, 2, 1, ACT_GELU),
     {IN(NORMAL, 2, 6, 7, 3), IN(NORMAL, 5, 3, 3, 3), IN(NORMAL, 5)},
     FORWARD},
    {"conv_depthwise_relu",
     OP_conv2d,
     CONV(1, 1, 1, 1, 1, 1, 5, ACT_RELU),
     {IN(NORMAL, 2, 6, 7, 5), IN(NORMAL, 10, 1, 3, 3), IN(NORMAL, 10)},
     FORWARD},

    /* linear */
    {"linear", OP_linear, {{{0}}}, {IN(NORMAL, 5, 7), IN(NORMAL, 3, 7), IN(NORMAL, 3)}, WITH_GRAD},
    {"linear_lenet",
     OP_linear,
     {{{0}}},
     {IN(NORMAL, 6, 128), IN(NORMAL, 10, 128), IN(NORMAL, 10)},
     WITH_GRAD},
    {"linear_no_bias", OP_linear, {{{0}}}, {IN(NORMAL, 4, 33), IN(NORMAL, 17, 33)}, WITH_GRAD},
    {"linear_one",
     OP_linear,
     {{{0}}},
     {IN(NORMAL, 1, 1), IN(NORMAL, 1, 1), IN(NORMAL, 1)},
     WITH_GRAD},
    {"linear_flatten",
     OP_linear,
     {.linear.image = {4, 4, 50}},
     {IN(NORMAL, 3, 4, 4, 50), IN(NORMAL, 16, 800), IN(NORMAL, 16)},
     WITH_GRAD},
    {"linear_flatten_odd",
     OP_linear,
     {.linear.image = {3, 5, 7}},
     {IN(NORMAL, 2, 3, 5, 7), IN(NORMAL, 13, 105), IN(NORMAL, 13)},
     WITH_GRAD},
    {"linear_flatten_row",
     OP_linear,
     {.linear.image = {1, 1, 9}},
     {IN(NORMAL, 3, 1, 1, 9), IN(NORMAL, 4, 9)},
     WITH_GRAD},
    {"linear_empty",
     OP_linear,
     {.linear.image = {3, 5, 7}},
     {IN(NORMAL, 0, 3, 5, 7), IN(NORMAL, 13, 105), IN(NORMAL, 13)},
     .training = 1},
    {"linear_relu",
     OP_linear,
     {.linear = {.act = ACT_RELU, .image = {4, 4, 50}}},
     {IN(NORMAL, 8, 4, 4, 50), IN(NORMAL, 128, 800), IN(NORMAL, 128)},
     FORWARD},
    {"linear_relu_no_bias",
     OP_linear,
     {.linear.act = ACT_RELU},
     {IN(NORMAL, 5, 7), IN(NORMAL, 9, 7)},
     FORWARD},
    {"linear_tanh",
     OP_linear,
     {.linear.act = ACT_TANH},
     {IN(NORMAL, 5, 7), IN(NORMAL, 9, 7), IN(NORMAL, 9)},
     FORWARD},
    {"linear_sigmoid",
     OP_linear,
     {.linear.act = ACT_SIGMOID},
     {IN(NORMAL, 5, 7), IN(NORMAL, 9, 7), IN(NORMAL, 9)},
     FORWARD},
    {"linear_gelu",
     OP_linear,
     {.linear.act = ACT_GELU},
     {IN(NORMAL, 5, 7), IN(NORMAL, 9, 7), IN(NORMAL, 9)},
     FORWARD},

    {"bias", OP_bias, {{{0}}}, {IN(NORMAL, 3, 5, 7), IN(NORMAL, 7)}, WITH_GRAD},
    {"bias_rows", OP_bias, {{{0}}}, {IN(NORMAL, 601, 3), IN(NORMAL, 3)}, WITH_GRAD},
    {"bias_one", OP_bias, {{{0}}}, {IN(NORMAL, 4, 1), IN(NORMAL, 1)}, WITH_GRAD},
    {"bias_empty", OP_bias, {{{0}}}, {IN(NORMAL, 0, 5), IN(NORMAL, 5)}, .training = 1},

    {"relu", OP_activation, {.act.kind = ACT_RELU}, {IN(SPACED, 3, 5, 7)}, WITH_GRAD},
    {"tanh", OP_activation, {.act.kind = ACT_TANH}, {IN(NORMAL, 3, 5, 7)}, WITH_GRAD},
    {"sigmoid", OP_activation, {.act.kind = ACT_SIGMOID}, {IN(NORMAL, 1, 33)}, WITH_GRAD},
    {"gelu", OP_activation, {.act.kind = ACT_GELU}, {IN(NORMAL, 65)}, WITH_GRAD},
    {"relu_empty", OP_activation, {.act.kind = ACT_RELU}, {IN(SPACED, 0, 7)}, .training = 1},

    {"max", OP_pool2d, POOL(MAX, 2, 2, 2, 2, 0, 0, 1), {IN(SPACED, 2, 8, 6, 5)}, WITH_GRAD},
    {"max_overlap", OP_pool2d, POOL(MAX, 3, 3, 2, 1, 1, 1, 1), {IN(SPACED, 2, 7, 5, 3)}, WITH_GRAD},
    {"max_odd", OP_pool2d, POOL(MAX, 2, 3, 2, 2, 0, 1, 1), {IN(SPACED, 1, 7, 9, 17)}, WITH_GRAD},
    {"max_relu",
     OP_pool2d,
     POOL(MAX, 2, 2, 2, 2, 0, 0, 1),
     {IN(SPACED, 3, 8, 8, 20)},
     .grad_act = ACT_RELU,
     .tol = 1e-5,
     .training = 1},
    {"max_inference",
     OP_pool2d,
     POOL(MAX, 2, 2, 2, 2, 0, 0, 1),
     {IN(SPACED, 2, 8, 6, 5)},
     .no_out = 1},
    {"max_empty",
     OP_pool2d,
     POOL(MAX, 2, 2, 2, 2, 0, 0, 1),
     {IN(SPACED, 0, 8, 6, 5)},
     .training = 1},
    {"avg", OP_pool2d, POOL(AVG, 2, 2, 2, 2, 0, 0, 1), {IN(NORMAL, 2, 8, 6, 5)}, WITH_GRAD},
    {"avg_lenet",
     OP_pool2d,
     POOL(AVG, 2, 2, 2, 2, 0, 0, 1),
     {IN(NORMAL, 3, 26, 26, 20)},
     .grad_act = ACT_RELU,
     .tol = 1e-5,
     .training = 1},
    {"avg_lenet2",
     OP_pool2d,
     POOL(AVG, 2, 2, 2, 2, 0, 0, 1),
     {IN(NORMAL, 3, 9, 9, 50)},
     .grad_act = ACT_RELU,
     .tol = 1e-5,
     .training = 1},
    {"avg_tanh",
     OP_pool2d,
     POOL(AVG, 2, 2, 2, 2, 0, 0, 1),
     {IN(UNIT, 2, 6, 6, 5)},
     .grad_act = ACT_TANH,
     .tol = 1e-5,
     .training = 1},
    {"avg_sigmoid",
     OP_pool2d,
     POOL(AVG, 3, 2, 1, 2, 1, 1, 0),
     {IN(UNIT, 2, 6, 6, 5)},
     .grad_act = ACT_SIGMOID,
     .tol = 1e-5,
     .training = 1},
    {"avg_count_pad",
     OP_pool2d,
     POOL(AVG, 3, 3, 2, 1, 1, 1, 1),
     {IN(NORMAL, 2, 7, 5, 3)},
     WITH_GRAD},
    {"avg_skip_pad",
     OP_pool2d,
     POOL(AVG, 3, 3, 2, 1, 1, 1, 0),
     {IN(NORMAL, 2, 7, 5, 3)},
     WITH_GRAD},
    {"avg_global", OP_pool2d, POOL(AVG, 7, 5, 1, 1, 0, 0, 1), {IN(NORMAL, 3, 7, 5, 33)}, WITH_GRAD},
    {"avg_left_over",
     OP_pool2d,
     POOL(AVG, 2, 2, 3, 3, 0, 0, 1),
     {IN(NORMAL, 2, 9, 7, 4)},
     WITH_GRAD},
    {"avg_empty",
     OP_pool2d,
     POOL(AVG, 2, 2, 2, 2, 0, 0, 1),
     {IN(NORMAL, 0, 8, 6, 5)},
     .training = 1},

    {"batch_norm",
     OP_batch_norm,
     {.norm = {.eps = 1e-5f, .momentum = 0.1f}},
     {IN(NORMAL, 4, 3, 5, 7), ONLY(SUMS), IN(NORMAL, 7), IN(NORMAL, 7), IN(NORMAL, 7),
      IN(POSITIVE, 7)},
     WITH_GRAD},
    {"batch_norm_sync",
     OP_batch_norm,
     {.norm = {.eps = 1e-3f, .momentum = 0.3f, .sync = 1}},
     {IN(NORMAL, 33, 17), ONLY(SUMS), IN(NORMAL, 17), IN(NORMAL, 17), IN(NORMAL, 17),
      IN(POSITIVE, 17)},
     WITH_GRAD},
    {"batch_norm_one_row",
     OP_batch_norm,
     {.norm = {.eps = 1e-5f, .momentum = 0.1f}},
     {IN(NORMAL, 1, 5), ONLY(SUMS), IN(NORMAL, 5), IN(NORMAL, 5), IN(NORMAL, 5), IN(POSITIVE, 5)},
     .tol = 1e-4},
    {"batch_norm_empty",
     OP_batch_norm,
     {.norm = {.eps = 1e-5f, .momentum = 0.1f}},
     {IN(NORMAL, 0, 5), ONLY(SUMS), IN(NORMAL, 5), IN(NORMAL, 5), IN(NORMAL, 5), IN(POSITIVE, 5)},
     .tol = 1e-6,
     .training = 1},
    {"batch_norm_infer",
     OP_batch_norm_infer,
     {.norm = {.eps = 1e-5f}},
     {IN(NORMAL, 4, 3, 5, 7), IN(NORMAL, 7), IN(NORMAL, 7), IN(NORMAL, 7), IN(POSITIVE, 7)},
     FORWARD},

    {"layer_norm",
     OP_layer_norm,
     {.norm.eps = 1e-5f},
     {IN(NORMAL, 3, 5, 33), IN(NORMAL, 33), IN(NORMAL, 33)},
     WITH_GRAD},
    {"layer_norm_short",
     OP_layer_norm,
     {.norm.eps = 1e-3f},
     {IN(NORMAL, 9, 3), IN(NORMAL, 3), IN(NORMAL, 3)},
     WITH_GRAD},
    {"layer_norm_inference",
     OP_layer_norm,
     {.norm.eps = 1e-5f},
     {IN(NORMAL, 9, 16), IN(NORMAL, 16), IN(NORMAL, 16)},
     .tol = 1e-5,
     .no_out = 1},
    {"layer_norm_empty",
     OP_layer_norm,
     {.norm.eps = 1e-5f},
     {IN(NORMAL, 0, 16), IN(NORMAL, 16), IN(NORMAL, 16)},
     .training = 1},

    {"add", OP_add, {{{0}}}, {IN(NORMAL, 3, 5, 7), IN(NORMAL, 3, 5, 7)}, WITH_GRAD},
    {"add_empty", OP_add, {{{0}}}, {IN(NORMAL, 0, 5), IN(NORMAL, 0, 5)}, .training = 1},
    {"flatten", OP_flatten, {{{0}}}, {IN(NORMAL, 3, 4, 5, 7)}, .grad_tol = 5e-3, .training = 1},
    {"flatten_empty", OP_flatten, {{{0}}}, {IN(NORMAL, 0, 4, 5, 7)}, .training = 1},
    {"unflatten",
     OP_unflatten,
     {.flatten.image = {5, 2, 33}},
     {IN(NORMAL, 2, 330)},
     .grad_tol = 5e-3,
     .training = 1},
    {"dropout",
     OP_dropout,
     {.dropout = {.p = 0.3f, .tag = 7}},
     {IN(NORMAL, 5, 3, 7), ONLY(SCALARS)},
     .tol = 1e-7,
     .grad_tol = 5e-3,
     .training = 1},
    {"dropout_none",
     OP_dropout,
     {.dropout = {.p = 0.0f, .tag = 65535}},
     {IN(NORMAL, 3, 4), ONLY(SCALARS)},
     .training = 1},
    {"dropout_empty",
     OP_dropout,
     {.dropout = {.p = 0.5f}},
     {IN(NORMAL, 0, 4), ONLY(SCALARS)},
     .training = 1},

    {"softmax_xent",
     OP_softmax_xent,
     {{{0}}},
     {IN(NORMAL, 7, 10), ONLY(LABELS), ONLY(METRICS)},
     WITH_GRAD},
    {"softmax_xent_smooth",
     OP_softmax_xent,
     {.loss.label_smoothing = 0.1f},
     {IN(NORMAL, 33, 3), ONLY(LABELS), ONLY(METRICS)},
     WITH_GRAD},
    {"softmax_xent_evaluation",
     OP_softmax_xent,
     {{{0}}},
     {IN(NORMAL, 7, 10), ONLY(LABELS), ONLY(METRICS)},
     .tol = 1e-6,
     .no_out = 1},
    {"softmax_xent_infinite",
     OP_softmax_xent,
     {{{0}}},
     {IN(INFINITE, 7, 10), ONLY(LABELS), ONLY(METRICS)},
     .tol = 1e-6,
     .no_out = 1},
    {"softmax_xent_empty",
     OP_softmax_xent,
     {{{0}}},
     {IN(NORMAL, 0, 10), ONLY(LABELS), ONLY(METRICS)},
     .training = 1},
    {"softmax_xent_stray",
     OP_softmax_xent,
     {.loss.label_smoothing = 0.1f},
     {IN(NORMAL, 7, 10), ONLY(STRAY), ONLY(METRICS)},
     .tol = 1e-6,
     .no_out = 1},
    {"softmax_xent_long", /* more than a block's threads keep */
     OP_softmax_xent,
     {.loss.label_smoothing = 0.1f},
     {IN(NORMAL, 3, 2501), ONLY(LABELS), ONLY(METRICS)},
     .tol = 1e-5,
     .training = 1},
    {"softmax_xent_train",
     OP_softmax_xent_train,
     {{{0}}},
     {IN(NORMAL, 33, 10), ONLY(LABELS), ONLY(METRICS), ONLY(SCALARS)},
     .tol = 1e-5},
    {"softmax_xent_train_scaled",
     OP_softmax_xent_train,
     {.loss.label_smoothing = 0.1f},
     {IN(NORMAL, 7, 67), ONLY(LABELS), ONLY(METRICS), ONLY(SCALARS), IN(SCALER, SCALER_LEN)},
     .tol = 1e-5},
    {"softmax_xent_train_long",
     OP_softmax_xent_train,
     {.loss.label_smoothing = 0.1f},
     {IN(NORMAL, 3, 2501), ONLY(LABELS), ONLY(METRICS), ONLY(SCALARS)},
     .tol = 1e-5},
    {"softmax_xent_train_one",
     OP_softmax_xent_train,
     {{{0}}},
     {IN(NORMAL, 5, 1), ONLY(LABELS), ONLY(METRICS), ONLY(SCALARS)},
     .tol = 1e-5},
    {"softmax_xent_train_infinite",
     OP_softmax_xent_train,
     {{{0}}},
     {IN(INFINITE, 7, 10), ONLY(LABELS), ONLY(METRICS), ONLY(SCALARS)},
     .tol = 1e-5},
    {"softmax_xent_train_stray",
     OP_softmax_xent_train,
     {{{0}}},
     {IN(NORMAL, 7, 10), ONLY(STRAY), ONLY(METRICS), ONLY(SCALARS)},
     .tol = 1e-5},
    {"softmax_xent_train_empty",
     OP_softmax_xent_train,
     {{{0}}},
     {IN(NORMAL, 0, 10), ONLY(LABELS), ONLY(METRICS), ONLY(SCALARS)}},
    {"mse", OP_mse, {{{0}}}, {IN(NORMAL, 5, 7), ONLY(LABELS), ONLY(METRICS)}, WITH_GRAD},
    {"mse_evaluation",
     OP_mse,
     {{{0}}},
     {IN(NORMAL, 5, 7), ONLY(LABELS), ONLY(METRICS)},
     .tol = 1e-6,
     .no_out = 1},

    {"gather", OP_gather, {{{0}}}, {IN(NORMAL, 9, 5, 3), IN(INDEX, 14)}},
    {"gather_words", OP_gather, {{{0}}}, {IN(NORMAL, 300), IN(INDEX, 700)}},
    {"gather_none", OP_gather, {{{0}}}, {IN(NORMAL, 9, 5), IN(INDEX, 0)}},
    {"control_pack", OP_control_pack, {{{0}}}, {ONLY(METRICS), ONLY(SCALARS)}},
    {"grad_check", OP_grad_check, {{{0}}}, {IN(NORMAL, 9001)}, .tol = 1e-12},
    {"grad_check_short", OP_grad_check, {{{0}}}, {IN(NORMAL, 3)}, .tol = 1e-12},
    {"grad_check_infinite", OP_grad_check, {{{0}}}, {IN(INFINITE, 4099)}, .tol = 1e-12},
    {"sgd",
     OP_sgd,
     {{{0}}},
     {IN(NORMAL, 37), IN(NORMAL, 37), ONLY(NONE), ONLY(CHECK), IN(CONTROL, CONTROL_LEN),
      ONLY(SCALARS)},
     .tol = 2e-7},
    {"sgd_decay",
     OP_sgd,
     {.sgd.weight_decay = 0.01f},
     {IN(NORMAL, 64), IN(NORMAL, 64), ONLY(NONE), ONLY(CHECK), IN(CONTROL, CONTROL_LEN),
      ONLY(SCALARS)},
     .tol = 2e-7},
    {"sgd_momentum",
     OP_sgd,
     {.sgd = {.momentum = 0.9f, .dampening = 0.1f, .weight_decay = 0.01f}},
     {IN(NORMAL, 19), IN(NORMAL, 19), IN(NORMAL, 19), ONLY(CHECK), IN(CONTROL, CONTROL_LEN),
      ONLY(SCALARS)},
     .tol = 2e-7},
    {"sgd_nesterov",
     OP_sgd,
     {.sgd = {.momentum = 0.9f, .nesterov = 1}},
     {IN(NORMAL, 19), IN(NORMAL, 19), IN(NORMAL, 19), ONLY(CHECK), IN(CONTROL, CONTROL_LEN),
      ONLY(SCALARS)},
     .tol = 2e-7},
    {"sgd_refused",
     OP_sgd,
     {.sgd.momentum = 0.9f},
     {IN(NORMAL, 19), IN(NORMAL, 19), IN(NORMAL, 19), ONLY(BAD), IN(CONTROL, CONTROL_LEN),
      ONLY(SCALARS)}},
    {"sgd_lost",
     OP_sgd,
     {{{0}}},
     {IN(NORMAL, 19), IN(NORMAL, 19), ONLY(NONE), ONLY(CHECK), IN(LOST, CONTROL_LEN),
      ONLY(SCALARS)}},
    {"sgd_copy",
     OP_sgd,
     {.sgd.momentum = 0.9f},
     {IN(NORMAL, 37), IN(NORMAL, 37), IN(NORMAL, 37), ONLY(CHECK), IN(CONTROL, CONTROL_LEN),
      ONLY(SCALARS), IN(NORMAL, 37), IN(SCALER, SCALER_LEN)},
     .tol = 2e-7},
    {"sgd_copy_refused",
     OP_sgd,
     {{{0}}},
     {IN(NORMAL, 37), IN(NORMAL, 37), ONLY(NONE), ONLY(BAD), IN(CONTROL, CONTROL_LEN),
      ONLY(SCALARS), IN(NORMAL, 37), IN(SCALER, SCALER_LEN)}},
    {"loss_scale_good",
     OP_loss_scale,
     {.scale = {.min = 1, .window = 1000, .hysteresis = 2}},
     {IN(SCALER, SCALER_LEN), ONLY(CHECK), IN(CONTROL, CONTROL_LEN)}},
    {"loss_scale_doubles",
     OP_loss_scale,
     {.scale = {.min = 1, .window = 2, .hysteresis = 2}},
     {IN(SCALER, SCALER_LEN), ONLY(CHECK), IN(CONTROL, CONTROL_LEN)}},
    {"loss_scale_halves",
     OP_loss_scale,
     {.scale = {.min = 1, .window = 2, .hysteresis = 2}},
     {IN(SCALER, SCALER_LEN), ONLY(BAD), IN(CONTROL, CONTROL_LEN)}},
    {"loss_scale_stuck",
     OP_loss_scale,
     {.scale = {.min = 1, .window = 2, .hysteresis = 2}},
     {IN(LOWEST, SCALER_LEN), ONLY(BAD), IN(CONTROL, CONTROL_LEN)}},
    {"loss_scale_lost",
     OP_loss_scale,
     {.scale = {.min = 1, .window = 2, .hysteresis = 2}},
     {IN(SCALER, SCALER_LEN), ONLY(BAD), IN(LOST, CONTROL_LEN)}},
    {"cast_bf16", OP_cast, {.cast.to = DTYPE_BF16}, {IN(INFINITE, 5, 7)}},
    {"cast_f16", OP_cast, {.cast.to = DTYPE_F16}, {IN(INFINITE, 5, 7)}},
    {"cast_f32", OP_cast, {.cast.to = DTYPE_F32}, {IN(NORMAL, 300)}},
    {"widen_bf16", OP_cast, {.cast.to = DTYPE_F32}, {IN(BF16, 5, 7)}},
    {"widen_f16", OP_cast, {.cast.to = DTYPE_F32}, {IN(F16, 601)}},
    {"recast_f16", OP_cast, {.cast.to = DTYPE_F16}, {IN(BF16, 33)}},
    {"cast_empty", OP_cast, {.cast.to = DTYPE_BF16}, {IN(NORMAL, 0, 3)}},
    {"commit",
     OP_commit,
     {{{0}}},
     {IN(NORMAL, 19), ONLY(CHECK), IN(CONTROL, CONTROL_LEN), ONLY(SCALARS)}},
    {"commit_refused",
     OP_commit,
     {{{0}}},
     {IN(NORMAL, 19), ONLY(BAD), IN(CONTROL, CONTROL_LEN), ONLY(SCALARS)}},
    {"commit_lost",
     OP_commit,
     {{{0}}},
     {IN(NORMAL, 19), ONLY(CHECK), IN(LOST, CONTROL_LEN), ONLY(SCALARS)}},
};

const int n_op_cases = ARRAY_LEN(op_cases);

/* The value of in[i], made here unless the graph has it. */
static int make_input(const struct op_case *c, struct graph *g, int i, const int *in)
{
    char name[16] = {'i', 'n', (char)('0' + i)};
    struct err err;
    int out;

    switch (c->in[i].fill) {
    case FILL_NONE:
        return NO_VALUE;
    case FILL_METRICS:
        return g->metrics;
    case FILL_SCALARS:
        return g->scalars;
    case FILL_CHECK:
    case FILL_BAD:
        return graph_value(g, VALUE_INPUT, DTYPE_F64, SHAPE(2), name);
    case FILL_LABELS:
    case FILL_STRAY:
        return graph_value(g, VALUE_INPUT, DTYPE_I32, SHAPE(c->in[0].shape.dim[0]), name);
    case FILL_INDEX:
        return graph_value(g, VALUE_INPUT, DTYPE_I64, c->in[i].shape, name);
    case FILL_SUMS:
        out = NODE_NEW_OUT;
        if (graph_node(g, OP_batch_norm_stats, &c->attr, (int[]){in[0], in[4]}, 2, &out, "stats",
                       &err) < 0)
            abort();
        return out;
    case FILL_BF16:
        return graph_value(g, VALUE_INPUT, DTYPE_BF16, c->in[i].shape, name);
    case FILL_F16:
        return graph_value(g, VALUE_INPUT, DTYPE_F16, c->in[i].shape, name);
    default:
        return graph_value(g, VALUE_INPUT, DTYPE_F32, c->in[i].shape, name);
    }
}

/* Give a built node its types, as program_set_precision does to a whole graph. */
static void set_types(struct graph *g, const struct node *n, struct case_types t)
{
    const struct op_def *def = op_get(n->op);

    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != NO_VALUE && def->typed_in >> i & 1)
            g->value[n->in[i]].dtype = t.type;
        else if (n->in[i] != NO_VALUE && def->wide_in >> i & 1)
            g->value[n->in[i]].dtype = op_type(g, n) == DTYPE_F32 ? DTYPE_F32 : t.grad;
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != NO_VALUE && def->typed_out >> i & 1)
            g->value[n->out[i]].dtype = t.type;
        else if (n->out[i] != NO_VALUE && def->wide_out >> i & 1)
            g->value[n->out[i]].dtype = t.grad;
}

static void set_all_types(const struct op_case *c, struct graph *g, struct case_types t)
{
    struct err err;

    for (int k = 0; k < g->n_nodes; k++)
        set_types(g, &g->node[k], t);
    for (int k = 0; k < g->n_nodes; k++)
        if (graph_check_node(g, &g->node[k], &err) < 0) {
            fprintf(stderr, "%s in %s: %s\n", c->name, dtype_name(t.type), err.msg);
            abort();
        }
}

int case_is_typed(const struct op_case *c)
{
    const struct op_def *def = op_get(c->op);
    int typed = def->typed_out != 0 && c->op != OP_sgd;

    for (int i = 0; i < def->n_in; i++)
        typed |= c->in[i].fill != FILL_NONE && def->typed_in >> i & 1;
    return typed;
}

/* Gradients of the case's node, from a dy for each F32 output that can carry one. */
static void append_grad(const struct op_case *c, struct graph *g, int din[NODE_MAX_IN])
{
    const struct node n = g->node[g->n_forward - 1];
    const struct op_def *def = op_get(n.op);
    int dout[NODE_MAX_OUT], want[NODE_MAX_IN] = {0};
    struct err err;

    for (int i = 0; i < NODE_MAX_OUT; i++)
        dout[i] = NO_VALUE;
    if (!(def->flags & OP_LOSS))
        dout[0] = graph_value(g, VALUE_INPUT, DTYPE_F32, g->value[n.out[0]].shape, "dy");
    for (int i = 0; i < NODE_MAX_IN; i++) {
        want[i] = i < n.n_in && n.in[i] != NO_VALUE && g->value[n.in[i]].dtype == DTYPE_F32 &&
                  g->value[n.in[i]].role == VALUE_INPUT && !(n.op == OP_batch_norm && i > 3);
    }
    if (def->grad(g, &n, dout, want, din, &err) < 0) {
        fprintf(stderr, "%s: %s\n", c->name, err.msg);
        abort();
    }
    for (int i = 0; i < NODE_MAX_IN; i++)
        din[i] = want[i] && din[i] >= 0 ? din[i] : NO_VALUE;
    if (c->grad_act != ACT_NONE) {
        struct node *last = &g->node[g->n_nodes - 1];

        last->attr.pool.act = c->grad_act;
        last->in[2] = n.in[0];
        last->n_in = 3;
        if (graph_check_node(g, last, &err) < 0)
            abort();
    }
}

struct graph *case_build(const struct op_case *c, struct case_types t, int din[NODE_MAX_IN])
{
    const struct op_def *def = op_get(c->op);
    struct graph *g = graph_new(c->in[0].shape.dim[0], 1);
    int in[NODE_MAX_IN], out[NODE_MAX_OUT];
    struct err err;

    for (int pass = 0; pass < 2; pass++) /* sums are made from other inputs */
        for (int i = 0; i < def->n_in; i++)
            if ((c->in[i].fill == FILL_SUMS) == pass)
                in[i] = make_input(c, g, i, in);
    for (int i = 0; i < NODE_MAX_OUT; i++)
        out[i] = c->no_out && def->optional_out & 1u << i ? NODE_NO_OUT : NODE_NEW_OUT;
    if (c->op == OP_commit)
        out[0] = graph_value(g, VALUE_STATE, DTYPE_F32, c->in[0].shape, "state");
    if (graph_node(g, c->op, &c->attr, in, def->n_in, out, c->name, &err) < 0) {
        fprintf(stderr, "%s: %s\n", c->name, err.msg);
        abort();
    }
    g->n_forward = g->n_nodes;
    for (int i = 0; i < NODE_MAX_IN; i++)
        din[i] = NO_VALUE;
    if (c->training && def->grad)
        append_grad(c, g, din);
    if (case_is_typed(c))
        set_all_types(c, g, t);
    return g;
}

size_t case_bytes(const struct graph *g, int value)
{
    return (size_t)shape_elements(&g->value[value].shape) * dtype_size(g->value[value].dtype);
}

static float number(enum fill fill, struct rng_stream *s, int64_t i, int64_t n)
{
    switch (fill) {
    case FILL_SPACED: /* 7919 is a prime that no case's size has as a factor */
        return ((float)(i * 7919 % n) - (float)n / 2 + 0.25f) * (n < 400 ? 0.05f : 0.01f);
    case FILL_POSITIVE:
        return (float)(0.1 + 1.9 * rng_next_unit(s));
    case FILL_UNIT:
        return (float)(0.05 + 0.9 * rng_next_unit(s));
    case FILL_CONTROL:
        return i == CONTROL_NONFINITE ? 0.0f : 3.0f;
    case FILL_LOST:
        return i == CONTROL_NONFINITE ? 1.0f : 3.0f;
    case FILL_INFINITE:
        return i == n / 2 ? (float)INFINITY : (float)rng_next_normal(s);
    case FILL_SCALER:
    case FILL_LOWEST:
        return i == SCALER_SCALE        ? fill == FILL_SCALER ? 4.0f : 1.0f
               : i == SCALER_GOOD       ? 2.0f
               : i == SCALER_HYSTERESIS ? 1.0f
                                        : 0.0f;
    default:
        return (float)rng_next_normal(s);
    }
}

/* How the value is to be filled: as the input of the case's node that it is, else normal. */
static enum fill fill_of(const struct op_case *c, const struct graph *g, int value)
{
    const struct node *n = &g->node[g->n_forward - 1];

    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] == value)
            return c->in[i].fill;
    return FILL_NORMAL;
}

void case_fill(const struct op_case *c, const struct graph *g, int value, void *to)
{
    static const struct step_scalars scalars = {.seed = 0x1234567890abcdef,
                                                .step = 77,
                                                .first_position = 5,
                                                .loss_scale = 0.125f,
                                                .rate = 0.1f,
                                                .clip_norm = 1.5f,
                                                .requests = 7};
    const enum fill fill = fill_of(c, g, value);
    const int64_t n = shape_elements(&g->value[value].shape);
    struct rng_stream s;

    rng_stream_init(&s, 42, RNG_TEST, (uint64_t)value);
    if (value == g->scalars)
        memcpy(to, &scalars, sizeof scalars);
    else if (value == g->metrics)
        memcpy(to, (const double[METRIC_COUNT]){1.5, 2, 3, 0}, sizeof(double[METRIC_COUNT]));
    else if (g->value[value].dtype == DTYPE_F64)
        memcpy(to, (const double[2]){9.0, fill == FILL_BAD}, sizeof(double[2]));
    else if (g->value[value].dtype == DTYPE_I32)
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)to)[i] = fill == FILL_STRAY && (i == 0 || i == n - 1)
                                     ? i ? (int32_t)c->in[0].shape.dim[1] : -1
                                     : (int32_t)rng_next_below(&s, (uint64_t)c->in[0].shape.dim[1]);
    else if (g->value[value].dtype == DTYPE_I64)
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)to)[i] = (int64_t)rng_next_below(&s, (uint64_t)c->in[0].shape.dim[0]);
    else
        for (int64_t i = 0; i < n; i++)
            real_put(to, g->value[value].dtype, i, number(fill, &s, i, n));
}
