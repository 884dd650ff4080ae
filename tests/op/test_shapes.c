/* test_shapes - the shapes that each operator gives for its inputs, the inputs that it refuses, and
 * the messages that say why. */
#include "../test.h"

#include "base/buf.h"
#include "op/control.h"
#include "op/op.h"
#include "op/update.h"

/* A constant initializer of a struct shape.  The macro after it stands for no attributes. */
#define S(...)                                                              \
    {                                                                       \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), { __VA_ARGS__ } \
    }
#define NONE                 \
    {                        \
        .act.kind = ACT_NONE \
    }
#define MAX_POOL(k) .pool = {.kind = POOL_MAX, .kernel = {k, k}, .stride = {k, k}}

/* One call of graph_node.  in: shapes, absent if the first dimension is -1.  want: the outputs as
 * text, or the message of the error. */
static const struct shape_case {
    enum op op;
    union node_attr attr;
    struct shape in[NODE_MAX_IN];
    const char *want;
    const char *error;
} cases[] = {
    {OP_conv2d,
     {.conv = {{1, 1}, {2, 2}, {1, 1}, 1}},
     {S(4, 28, 28, 1), S(6, 1, 5, 5)},
     "[4,28,28,6]"},
    {OP_conv2d,
     {.conv = {{2, 3}, {1, 0}, {2, 1}, 1}},
     {S(4, 11, 13, 3), S(6, 3, 3, 2), S(6)},
     "[4,5,4,6]"},
    {OP_conv2d, {.conv = {{1, 1}, {0, 0}, {1, 1}, 2}}, {S(0, 5, 5, 4), S(6, 2, 1, 1)}, "[0,5,5,6]"},
    {OP_conv2d,
     {.conv = {{1, 1}, {0, 0}, {1, 1}, 2}},
     {S(1, 5, 5, 3), S(6, 2, 1, 1)},
     .error = "n (conv2d): filter [6,2,1,1] does not fit x [1,5,5,3] in 2 groups"},
    {OP_conv2d,
     {.conv = {{1, 1}, {0, 0}, {1, 1}, 2}},
     {S(1, 5, 5, 4), S(5, 2, 1, 1)},
     .error = "does not fit x [1,5,5,4] in 2 groups"},
    {OP_conv2d,
     {.conv = {{1, 1}, {0, 0}, {1, 1}, 1}},
     {S(1, 5, 5, 4), S(5, 4, 6, 1)},
     .error = "filter [5,4,6,1] with dilation 1 is larger than the image [1,5,5,4] with padding 0"},
    {OP_conv2d,
     {.conv = {{1, 1}, {-1, 0}, {1, 1}, 1}},
     {S(1, 5, 5, 1), S(5, 1, 1, 1)},
     .error = "padding -1 is negative"},
    {OP_conv2d,
     {.conv = {.groups = 1}},
     {S(1, 5, 5, 1), S(5, 1, 1, 1)},
     .error = "stride 0 and dilation 0 must be at least 1"},
    {OP_conv2d,
     {.conv = {{1, 1}, {0, 0}, {1, 1}, 1}},
     {S(1, 5, 5), S(5, 1, 1, 1)},
     .error = "x is [1,5,5], want 4 dimensions"},
    {OP_conv2d,
     {.conv = {{1, 1}, {0, 0}, {1, 1}, 1}},
     {S(1, 5, 5, 1), S(5, 1, 1, 1), S(4)},
     .error = "b is [4], want [5]"},
    {OP_conv2d,
     {.conv = {{1, 1}, {0, 0}, {1, 1}, 1}},
     {S(1, 5, 5, 1)},
     .error = "input 1 (w) is missing"},
    {OP_conv2d_grad_x,
     {.conv = {{2, 2}, {0, 0}, {1, 1}, 1, .in_image = {6, 5}}},
     {S(7, 3, 2, 2), S(4, 3, 2, 7)},
     "[4,6,5,3]"},
    {OP_conv2d_grad_x,
     {.conv = {{2, 2}, {0, 0}, {1, 1}, 1, .in_image = {8, 5}}},
     {S(7, 3, 2, 2), S(4, 3, 2, 7)},
     .error = "dy is [4,3,2,7], want [4,4,2,7]"},
    {OP_conv2d_grad_w,
     {.conv = {{1, 1}, {0, 0}, {1, 1}, 1, .kernel = {3, 2}}},
     {S(4, 6, 5, 3), S(4, 4, 4, 7)},
     "[7,3,3,2] [7]"},
    {OP_linear, NONE, {S(3, 8), S(5, 8), S(5)}, "[3,5] - -"},
    {OP_linear, {.linear.image = {2, 2, 2}}, {S(3, 2, 2, 2), S(5, 8)}, "[3,5] - -"},
    {OP_linear, {.linear.act = ACT_RELU}, {S(3, 8), S(129, 8)}, "[3,129] [3,8] -"},
    {OP_linear, {.linear.act = ACT_GELU_TANH}, {S(3, 8), S(5, 8)}, "[3,5] - [3,5]"},
    {OP_linear,
     {.linear.image = {2, 2, 2}},
     {S(3, 2, 1, 4), S(5, 8)},
     .error = "x is [3,2,1,4], want [3,2,2,2]"},
    {OP_linear, NONE, {S(3, 8), S(5, 7)}, .error = "w is [5,7], want [5,8]"},
    {OP_linear_grad_x, NONE, {S(5, 8), S(3, 5)}, "[3,8]"},
    {OP_linear_grad_x, {.linear.image = {2, 1, 4}}, {S(5, 8), S(3, 5)}, "[3,2,1,4]"},
    {OP_linear_grad_x,
     {.linear.image = {2, 1, 3}},
     {S(5, 8), S(3, 5)},
     .error = "w has 8 columns, but the image has 6 elements"},
    {OP_linear_grad_x, {.linear.act = ACT_GELU_TANH}, {S(5, 8), S(3, 5), S(-1), S(3, 8)}, "[3,8]"},
    {OP_linear_grad_x,
     {.linear.act = ACT_GELU_TANH},
     {S(5, 8), S(3, 5), S(-1), S(3, 5)},
     .error = "pre is [3,5], want [3,8]"},
    {OP_linear_grad_x,
     {.linear.act = ACT_RELU},
     {S(5, 8), S(3, 5), S(-1), S(3, 8)},
     .error = "a fused relu takes mask alone"},
    {OP_linear_grad_x,
     {.linear.act = ACT_TANH},
     {S(5, 8), S(3, 5)},
     .error = "a fused relu takes mask alone"},
    {OP_linear_grad_x,
     {.linear = {.act = ACT_GELU_TANH, .image = {2, 1, 4}}},
     {S(5, 8), S(3, 5), S(-1), S(3, 8)},
     .error = "nor with an image"},
    {OP_linear_grad_w, NONE, {S(3, 8), S(3, 5)}, "[5,8] [5]"},
    {OP_linear_grad_w, NONE, {S(3, 8), S(4, 5)}, .error = "dy is [4,5], want [3,5]"},
    {OP_rms_norm, NONE, {S(2, 3, 4), S(4)}, "[2,3,4] [6]"},
    {OP_rms_norm, NONE, {S(2, 3, 4)}, "[2,3,4] [6]"},
    {OP_rms_norm, NONE, {S(2, 3, 4), S(3)}, .error = "weight is [3], want [4]"},
    {OP_rms_norm_grad, NONE, {S(6, 4), S(6, 4), S(4), S(6)}, "[6,4] [4]"},
    {OP_rms_norm_grad, NONE, {S(6, 4), S(6, 4), S(4), S(5)}, .error = "rstd is [5], want [6]"},
    {OP_rotary, {.rotary.inner = 3}, {S(2, 5, 3, 4), S(5, 4), S(5, 4)}, "[2,5,3,4]"},
    {OP_rotary,
     {.rotary.inner = 3},
     {S(2, 5, 3, 4), S(5, 2), S(5, 2)},
     .error = "x has rows of 4 numbers and cos of 2, want one even number"},
    {OP_rotary,
     {.rotary.inner = 4},
     {S(2, 5, 3, 4), S(5, 4), S(5, 4)},
     .error = "x has 30 rows, want a multiple of 5 places of 4 rows"},
    {OP_rotary,
     {.rotary.inner = 3},
     {S(2, 5, 3, 4), S(5, 4), S(4, 4)},
     .error = "sin is [4,4], want [5,4]"},
    {OP_uniform, {.uniform = {.shape = S(3, 1, 1, 1)}}, {S(1)}, "[3,1,1,1]"},
    {OP_uniform,
     {.uniform = {.shape = S(3), .tag = 65536}},
     {S(1)},
     .error = "tag 65536 must be in [0, 65536)"},
    {OP_uniform, NONE, {S(1)}, .error = "no dimension for the samples"},
    {OP_rows_send, {.rows.all = 7}, {S(3, 2, 2), S(1)}, "[28]"},
    {OP_rows_send, {.rows.all = 2}, {S(3, 2), S(1)}, .error = "x has 3 rows, want at most the 2"},
    {OP_rows_send, {.rows.all = 7}, {S(3, 2), S(-1)}, .error = "x has 3 rows, want all 7"},
    {OP_cast, {.cast.to = DTYPE_I32}, {S(2, 3)}, "[2,3]"},
    {OP_cast, {.cast.to = DTYPE_I64}, {S(2, 3)}, .error = "from F32 to I64"},
    {OP_unpack, NONE, {S(2, 3)}, .error = "codes are F32, want BF16 or I8"},
    {OP_softmax,
     {.softmax = {.dim = 1, .log = 1, .safe = 1}},
     {S(2, 3)},
     .error = "the logarithm of a safe softmax is not defined"},
    {OP_pool2d, /* PyTorch: max_pool2d(zeros(1, 1, 6, 5), 3, 2, ceil_mode=True) */
     {.pool = {.kind = POOL_MAX, .kernel = {3, 3}, .stride = {2, 2}, .ceil_mode = 1}},
     {S(1, 6, 5, 1)},
     "[1,3,2,1] [1,3,2,1]"},
    {OP_pool2d, /* a fourth window would begin in the padding */
     {.pool =
          {.kind = POOL_MAX, .kernel = {2, 2}, .stride = {2, 2}, .pad = {1, 1}, .ceil_mode = 1}},
     {S(1, 5, 4, 1)},
     "[1,3,3,1] [1,3,3,1]"},
    {OP_pool2d,
     {.pool = {.kind = POOL_AVG, .kernel = {3, 3}, .stride = {2, 2}, .ceil_mode = 1}},
     {S(1, 6, 5, 1)},
     .error = "an average pool whose extents are rounded up"},
    {OP_bias, NONE, {S(2, 3, 4), S(4)}, "[2,3,4]"},
    {OP_bias, NONE, {S(2, 3, 4), S(3)}, .error = "b is [3], want [4]"},
    {OP_bias_grad, NONE, {S(2, 3, 4)}, "[4]"},
    {OP_activation, {.act.kind = ACT_RELU}, {S(2, 3)}, "[2,3]"},
    {OP_activation, NONE, {S(2, 3)}, .error = "activation 0 is none of"},
    {OP_activation_grad, {.act.kind = ACT_TANH}, {S(-1), S(2, 3), S(2, 3)}, "[2,3]"},
    {OP_activation_grad, {.act.kind = ACT_GELU}, {S(2, 3), S(-1), S(2, 3)}, "[2,3]"},
    {OP_activation_grad,
     {.act.kind = ACT_GELU},
     {S(-1), S(2, 3), S(2, 3)},
     .error = "silu's gradient takes x alone"},
    {OP_pool2d, {MAX_POOL(2)}, {S(4, 7, 6, 3)}, "[4,3,3,3] [4,3,3,3]"},
    {OP_pool2d, {.pool = {POOL_AVG, {7, 6}, {1, 1}}}, {S(4, 7, 6, 3)}, "[4,1,1,3] -"},
    {OP_pool2d,
     {.pool = {POOL_AVG, {3, 3}, {1, 1}, {2, 0}}},
     {S(4, 7, 6, 3)},
     .error = "from 0 to half the kernel, 3"},
    {OP_pool2d,
     {.pool = {POOL_AVG, {2, 2}, {1, 1}, {2, 0}}},
     {S(4, 7, 6, 3)},
     .error = "padding 2 must be from 0 to half the kernel, 2"},
    {OP_pool2d,
     {MAX_POOL(7)},
     {S(4, 7, 6, 3)},
     .error = "kernel 7x7 is larger than the image [4,7,6,3] with padding 0"},
    {OP_pool2d_grad,
     {.pool = {POOL_AVG, {2, 2}, {2, 2}, .in_image = {7, 6}}},
     {S(4, 3, 3, 5)},
     "[4,7,6,5]"},
    {OP_pool2d_grad,
     {.pool = {POOL_MAX, {2, 2}, {2, 2}, .in_image = {7, 6}}},
     {S(4, 3, 3, 5)},
     .error = "which belongs to a maximum pool"},
    {OP_pool2d_grad,
     {.pool = {POOL_AVG, {2, 2}, {2, 2}, .in_image = {7, 6}, .act = ACT_RELU}},
     {S(4, 3, 3, 5), S(-1), S(4, 7, 6, 5)},
     "[4,7,6,5]"},
    {OP_pool2d_grad,
     {.pool = {POOL_AVG, {2, 2}, {2, 2}, .in_image = {7, 6}, .act = ACT_GELU}},
     {S(4, 3, 3, 5), S(-1), S(4, 7, 6, 5)},
     .error = "a fused relu, tanh or sigmoid needs y_act"},
    {OP_batch_norm_stats, NONE, {S(4, 2, 2, 3), S(3)}, "[7]"},
    {OP_batch_norm_stats, NONE, {S(3), S(3)}, .error = "x has no rows"},
    {OP_batch_norm_infer, NONE, {S(4, 3), S(3), S(3), S(3), S(3)}, "[4,3]"},
    {OP_batch_norm_infer,
     NONE,
     {S(4, 3), S(3), S(3), S(4), S(3)},
     .error = "running_mean is [4], want [3]"},
    {OP_class_token, {.class_token.length = 3}, {S(4, 6), S(1, 1, 6), S(1, 3, 6)}, "[6,6]"},
    {OP_class_token,
     {.class_token.length = 4},
     {S(4, 6), S(1, 1, 6), S(1, 4, 6)},
     .error = "n (class_token): x has 4 rows, want a multiple of the 3 of one sample"},
    {OP_class_token,
     {.class_token.length = 3},
     {S(4, 6), S(1, 1, 6), S(1, 2, 6)},
     .error = "position is [1,2,6], want [1,3,6]"},
    {OP_class_token,
     {.class_token.length = 3},
     {S(4, 6), S(1, 1, 5), S(1, 3, 6)},
     .error = "token is [1,1,5], want [1,1,6]"},
    {OP_class_token_grad, {.class_token.length = 3}, {S(6, 5)}, "[4,5] [1,1,5] [1,3,5]"},
    {OP_class_token_grad,
     {.class_token.length = 4},
     {S(6, 5)},
     .error = "n (class_token_grad): dy has 6 rows, want a multiple of the 4 of one sample"},
    {OP_layer_norm, NONE, {S(4, 2, 3), S(3), S(3)}, "[4,2,3] [8] [8]"},
    {OP_layer_norm_grad, NONE, {S(4, 3), S(4, 3), S(3), S(4), S(4)}, "[4,3] [3] [3]"},
    {OP_add, NONE, {S(4, 3), S(4, 3)}, "[4,3]"},
    {OP_add, NONE, {S(4, 3), S(3, 4)}, .error = "b is [3,4], want [4,3]"},
    {OP_flatten, NONE, {S(4, 2, 3, 5)}, "[4,30]"},
    {OP_unflatten, {.flatten.image = {2, 3, 5}}, {S(4, 30)}, "[4,2,3,5]"},
    {OP_unflatten, {.flatten.image = {2, 3, 4}}, {S(4, 30)}, .error = "y is [4,30], want [4,24]"},
    {OP_reshape, {.reshape.shape = {2, {6, 5}}}, {S(3, 10)}, "[6,5]"},
    {OP_reshape,
     {.reshape.shape = {2, {6, 6}}},
     {S(3, 10)},
     .error = "x is [3,10], want as many elements as [6,6]"},
    {OP_dropout, {.dropout.p = 0.5F}, {S(3, 10), S(48)}, "[3,10]"},
    {OP_dropout, {.dropout.p = 1}, {S(3, 10), S(48)}, .error = "probability 1 must be in [0, 1)"},
    {OP_dropout, {.dropout = {0.5F, 65536}}, {S(3, 10), S(48)}, .error = "tag 65536 must be in"},
    {OP_dropout, {.dropout = {0.5F, 0, 3}}, {S(6, 10), S(48)}, "[6,10]"},
    {OP_dropout,
     {.dropout = {0.5F, 0, 3}},
     {S(4, 10), S(48)},
     .error = "x has 4 rows, want a multiple of the 3 of one sample"},
    {OP_grad_check, NONE, {S(100)}, "[2]"},
    {OP_control_pack, NONE, {S(4), S(48)}, "[32]"},
    {OP_check_sum, NONE, {S(7, 2)}, .error = "checks is F32, want F64"},
    {OP_grad_check, NONE, {S(10, 10)}, .error = "grad is [10,10], want 1 dimension"},
};

static void print_shapes(const struct graph *g, const int *out, int n, struct buf *to)
{
    char text[SHAPE_TEXT_LEN];

    for (int i = 0; i < n; i++)
        buf_printf(to, "%s%s", i ? " " : "",
                   out[i] == NO_VALUE ? "-" : shape_text(&g->value[out[i]].shape, text));
}

static void table(void **state)
{
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        struct graph *g = graph_new(4, 1);
        int in[NODE_MAX_IN], out[NODE_MAX_OUT] = {-1, -1, -1, -1}, n_in = 0, rc;
        struct buf seen = {0};
        struct err err;

        for (; n_in < NODE_MAX_IN && cases[c].in[n_in].n; n_in++)
            in[n_in] = cases[c].in[n_in].dim[0] < 0
                           ? NO_VALUE
                           : graph_value(g, VALUE_INPUT, DTYPE_F32, cases[c].in[n_in], "in");
        rc = graph_node(g, cases[c].op, &cases[c].attr, in, n_in, out, "n", &err);
        if (rc < 0) {
            buf_printf(&seen, "%s", err.msg);
            assert_int_equal(rc, ERR_CONFIG);
            assert_int_equal(g->n_nodes, 0);
        } else {
            print_shapes(g, out, op_get(cases[c].op)->n_out, &seen);
            assert_int_equal(graph_check_node(g, &g->node[0], &err), 0);
        }
        if (rc < 0 ? !cases[c].error || !strstr(buf_cstr(&seen), cases[c].error)
                   : !cases[c].want || strcmp(buf_cstr(&seen), cases[c].want))
            fail_msg("case %zu (%s): %s, want %s", c, op_get(cases[c].op)->name, buf_cstr(&seen),
                     cases[c].want ? cases[c].want : cases[c].error);
        buf_fini(&seen);
        graph_free(g);
    }
}

static void dtypes_are_checked(void **state)
{
    struct graph *g = graph_new(4, 1);
    int y = graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(4, 3), "y");
    int f = graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(4), "f");
    int short_labels = graph_value(g, VALUE_INPUT, DTYPE_I32, SHAPE(3), "short");
    struct err err;

    (void)state;
    for (int k = 0; k < 2; k++) {
        enum op op = k ? OP_pointwise_loss : OP_softmax_xent;

        assert_int_equal(graph_node(g, op, NULL, (int[]){y, f, g->metrics}, 3, NULL, "loss", &err),
                         ERR_CONFIG);
        assert_non_null(
            strstr(err.msg, k ? "targets [4] for outputs [4,3]" : "labels is F32, want I32"));
        assert_int_equal(
            graph_node(g, op, NULL, (int[]){y, short_labels, g->metrics}, 3, NULL, "loss", &err),
            ERR_CONFIG);
        assert_non_null(strstr(err.msg, "3 labels for 4 samples"));
    }
    graph_free(g);
}

static void rows_are_gathered(void **state)
{
    struct graph *g = graph_new(2, 1);
    int labels = graph_value(g, VALUE_INPUT, DTYPE_I32, SHAPE(7), "labels");
    int few = graph_value(g, VALUE_INPUT, DTYPE_I32, SHAPE(6), "few");
    int many = graph_value(g, VALUE_INPUT, DTYPE_I32, SHAPE(8), "many");
    int rows = graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(7, 2, 3), "rows");
    int index = graph_value(g, VALUE_INPUT, DTYPE_I64, SHAPE(4), "index");
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NEW_OUT, NODE_NEW_OUT, NODE_NEW_OUT};
    struct err err;

    (void)state;
    assert_int_equal(
        graph_node(g, OP_gather, NULL, (int[]){rows, index, labels}, 3, out, "n", &err), 0);
    assert_true(shape_equal(&g->value[out[0]].shape, &SHAPE(4, 2, 3)));
    assert_int_equal(g->value[out[1]].dtype, DTYPE_I32);
    assert_true(shape_equal(&g->value[out[1]].shape, &SHAPE(4)));
    assert_int_equal(graph_node(g, OP_gather, NULL, (int[]){rows, labels}, 2, NULL, "n", &err),
                     ERR_CONFIG);
    assert_non_null(strstr(err.msg, "index is I32, want I64"));
    assert_int_equal(graph_node(g, OP_gather, NULL, (int[]){index, index}, 2, NULL, "n", &err),
                     ERR_CONFIG);
    assert_non_null(strstr(err.msg, "table is I64, want F32"));
    assert_int_equal(graph_node(g, OP_gather, NULL, (int[]){rows, index, few}, 3, NULL, "n", &err),
                     ERR_CONFIG);
    assert_non_null(strstr(err.msg, "table1 has 6 rows, want 7, as many as table"));
    assert_int_equal(graph_node(g, OP_gather, NULL, (int[]){rows, index, many}, 3, NULL, "n", &err),
                     ERR_CONFIG);
    assert_int_equal(
        graph_node(g, OP_gather, NULL, (int[]){labels, index, rows}, 3, NULL, "n", &err), 0);
    assert_int_equal(
        graph_node(g, OP_gather, NULL, (int[]){rows, index, index}, 3, NULL, "n", &err),
        ERR_CONFIG);
    assert_non_null(strstr(err.msg, "table1 is I64, want F32"));
    graph_free(g);
}

/* An output may be new, an existing value, refused, or an updated input. */
static void outputs(void **state)
{
    struct graph *g = graph_new(4, 1);
    struct param_info info = {.init = PARAM_UNIFORM};
    int x = graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(4, 6), "x");
    int dy = graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(4, 3), "dy");
    int sums = graph_value(g, VALUE_INPUT, DTYPE_F64, SHAPE(5), "sums");
    int w = graph_param(g, SHAPE(3, 6), info, "w"), wrong = graph_param(g, SHAPE(6, 3), info, "u");
    int out[NODE_MAX_OUT] = {graph_grad_of(g, w), NODE_NO_OUT};
    struct buf text = {0};
    struct err err;

    (void)state;
    assert_int_equal(graph_node(g, OP_linear_grad_w, NULL, (int[]){x, dy}, 2, out, "gw", &err), 0);
    assert_int_equal(out[0], graph_grad_of(g, w));
    assert_int_equal(out[1], NO_VALUE);
    assert_int_equal(g->value[out[0]].producer, 0);

    out[0] = graph_grad_of(g, wrong);
    assert_int_equal(graph_node(g, OP_linear_grad_w, NULL, (int[]){x, dy}, 2, out, "gw", &err),
                     ERR_CONFIG);
    assert_non_null(
        strstr(err.msg, "output dw goes to u.grad, which is F32 [6,3], want F32 [3,6]"));

    out[0] = NODE_NO_OUT;
    assert_int_equal(graph_node(g, OP_linear_grad_w, NULL, (int[]){x, dy}, 2, out, "gw", &err),
                     ERR_CONFIG);
    assert_non_null(strstr(err.msg, "output dw is not optional"));

    out[0] = NODE_NEW_OUT;
    assert_int_equal(graph_node(g, OP_allreduce, NULL, &sums, 1, out, "sync", &err), 0);
    assert_int_equal(out[0], sums);
    assert_int_equal(g->value[sums].producer, -1);

    for (int i = 0; i < g->n_nodes; i++)
        node_print(g, &g->node[i], &text);
    assert_string_equal(buf_cstr(&text),
                        "gw (linear_grad_w): x [4,6], dy [4,3] -> w.grad [3,6], -\n"
                        "sync (allreduce): sums [5] -> sums [5]\n");
    buf_fini(&text);
    graph_free(g);
}

/* sgd's outputs are its inputs; without a momentum input there is no momentum output. */
static void sgd_updates_in_place(void **state)
{
    struct graph *g = graph_new(1, 1);
    int f[3], in[NODE_MAX_IN], out[NODE_MAX_OUT];
    union node_attr attr = {.number = {[SGD_ATTR_MOMENTUM] = 0.9}};
    struct err err;

    (void)state;
    for (int i = 0; i < 3; i++)
        f[i] = graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(10), "v");
    in[SGD_PARAM] = f[0];
    in[SGD_GRAD] = f[1];
    in[SGD_CHECK] = graph_value(g, VALUE_INPUT, DTYPE_F64, SHAPE(2), "check");
    in[SGD_CONTROL] = graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(CONTROL_LEN), "control");
    in[SGD_SCALARS] = g->scalars;
    in[SGD_SEGMENTS] = graph_value(g, VALUE_INPUT, DTYPE_F64, SHAPE(2, SEGMENT_COLUMNS), "rows");
    in[SGD_COPY] = in[SGD_SCALER] = in[SGD_KEPT] = NO_VALUE;
    in[SGD_MOMENTUM] = f[2];
    for (int i = 0; i < NODE_MAX_OUT; i++)
        out[i] = NODE_NEW_OUT;
    assert_int_equal(graph_node(g, OP_sgd, &attr, in, SGD_MOMENTUM + 1, out, "sgd", &err), 0);
    assert_int_equal(out[SGD_NEW_PARAM], f[0]);
    assert_int_equal(out[SGD_NEW_MOMENTUM], f[2]);
    assert_int_equal(out[SGD_NEW_COPY], NO_VALUE);
    in[SGD_MOMENTUM] = NO_VALUE;
    assert_int_equal(graph_node(g, OP_sgd, &attr, in, SGD_MOMENTUM + 1, NULL, "sgd", &err),
                     ERR_CONFIG);
    assert_non_null(strstr(err.msg, "momentum 0.9 needs a momentum buffer"));
    attr.number[SGD_ATTR_MOMENTUM] = 0;
    assert_int_equal(graph_node(g, OP_sgd, &attr, in, SGD_MOMENTUM + 1, out, "sgd", &err), 0);
    assert_int_equal(out[SGD_NEW_MOMENTUM], NO_VALUE);
    in[SGD_SEGMENTS] = graph_value(g, VALUE_INPUT, DTYPE_F64, SHAPE(3, 2), "rows");
    assert_int_equal(graph_node(g, OP_sgd, &attr, in, SGD_MOMENTUM + 1, out, "sgd", &err),
                     ERR_CONFIG);
    assert_non_null(strstr(err.msg, "segments have 2 columns, want 4"));
    graph_free(g);
}

/* A segment ends before the element that its end names. */
static void elements_have_their_row(void **state)
{
    static const double rows[][SEGMENT_COLUMNS] = {{3, 1, 0}, {4, 1, 0}, {5, 1, 0}, {9, 1, 0}};
    static const int want[9] = {0, 0, 0, 1, 2, 3, 3, 3, 3};

    (void)state;
    for (int i = 0; i < 9; i++)
        assert_int_equal(update_row(rows[0], ARRAY_LEN(rows), i), want[i]);
    assert_int_equal(update_row(rows[3], 1, 8), 0);
}

/* Every operator's definition is complete: other rooms rely on it. */
static void definitions(void **state)
{
    (void)state;
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_def *d = op_get(op);

        for (int other = 0; other < op; other++)
            assert_string_not_equal(d->name, op_get(other)->name);
        assert_true(d->n_in >= 1 && d->n_in <= NODE_MAX_IN);
        assert_true(d->n_out >= 1 && d->n_out <= NODE_MAX_OUT);
        assert_non_null(d->infer);
        for (int i = 0; i < NODE_MAX_IN; i++)
            assert_true((d->in_name[i] != NULL) == (i < d->n_in));
        for (int i = 0; i < NODE_MAX_OUT; i++) {
            assert_true((d->out_name[i] != NULL) == (i < d->n_out));
            assert_true(d->update[i] <= d->n_in);
        }
        assert_true(d->inplace_in < d->n_in);
        assert_true(!(d->flags & OP_LOSS) || (d->flags & OP_EFFECT));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),
        cmocka_unit_test(dtypes_are_checked),
        cmocka_unit_test(outputs),
        cmocka_unit_test(sgd_updates_in_place),
        cmocka_unit_test(elements_have_their_row),
        cmocka_unit_test(definitions),
        cmocka_unit_test(rows_are_gathered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
