/* test_gradients - gradients of single operators equal central differences, on the naive backend.
 */
#include "../test.h"

#include <math.h>

#include "op/op.h"
#include "ref_backend.h"
#include "rig.h"
#include "slope.h"

/* A graph of single operators, with parameters in the place of a network's activations. */
struct tiny {
    struct graph *g;
    struct err err;
    int n_params;
};

static int param(struct tiny *t, struct shape shape)
{
    struct param_info info = {.init = PARAM_UNIFORM, .bound = 1};
    char name[16];

    snprintf(name, sizeof name, "p%d", t->n_params++);
    return graph_param(t->g, shape, info, name);
}

static int append(struct tiny *t, enum op op, const union node_attr *attr, const int *in, int n_in)
{
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NEW_OUT, NODE_NEW_OUT, NODE_NEW_OUT};
    char name[32];

    snprintf(name, sizeof name, "%s%d", op_get(op)->name, t->g->n_nodes);
    if (graph_node(t->g, op, attr, in, n_in, out, name, &t->err) < 0)
        fail_msg("%s", t->err.msg);
    return out[0];
}

static int conv(struct tiny *t, int groups, int stride, int pad, int dilation)
{
    union node_attr a = {
        .conv = {
            .stride = {stride, 1}, .pad = {pad, 1}, .dilation = {1, dilation}, .groups = groups}};
    int x = param(t, SHAPE(2, 6, 5, 4)), w = param(t, SHAPE(6, 4 / groups, 3, 2));

    return append(t, OP_conv2d, &a, (int[]){x, w, param(t, SHAPE(6))}, 3);
}

static int conv_plain(struct tiny *t) { return conv(t, 1, 1, 0, 1); }
static int conv_strided(struct tiny *t) { return conv(t, 1, 2, 1, 2); }
static int conv_grouped(struct tiny *t) { return conv(t, 2, 2, 1, 1); }

static int linear(struct tiny *t)
{
    int x = param(t, SHAPE(3, 5)), w = param(t, SHAPE(4, 5));

    return append(t, OP_linear, NULL, (int[]){x, w, param(t, SHAPE(4))}, 3);
}

static int activation(struct tiny *t, enum activation kind, struct shape shape)
{
    union node_attr a = {.act.kind = kind};
    int x = param(t, shape);

    return append(t, OP_activation, &a, &x, 1);
}

static int bias(struct tiny *t)
{
    int x = activation(t, ACT_TANH, SHAPE(3, 2, 5));

    return append(t, OP_bias, NULL, (int[]){x, param(t, SHAPE(5))}, 2);
}

static int relu(struct tiny *t) { return activation(t, ACT_RELU, SHAPE(4, 7)); }
static int tanh_(struct tiny *t) { return activation(t, ACT_TANH, SHAPE(4, 7)); }
static int sigmoid(struct tiny *t) { return activation(t, ACT_SIGMOID, SHAPE(4, 7)); }
static int gelu_tanh(struct tiny *t) { return activation(t, ACT_GELU_TANH, SHAPE(4, 7)); }
static int gelu(struct tiny *t) { return activation(t, ACT_GELU, SHAPE(4, 7)); }

static int pool(struct tiny *t, enum pooling kind, int pad, int count_pad)
{
    union node_attr a = {.pool = {.kind = kind,
                                  .kernel = {3, 2},
                                  .stride = {2, 1},
                                  .pad = {pad, pad},
                                  .count_pad = count_pad}};
    int x = param(t, SHAPE(2, 7, 5, 3));

    return append(t, OP_pool2d, &a, &x, 1);
}

static int pool_max(struct tiny *t) { return pool(t, POOL_MAX, 1, 0); }
static int pool_avg(struct tiny *t) { return pool(t, POOL_AVG, 1, 1); }
static int pool_avg_inside(struct tiny *t) { return pool(t, POOL_AVG, 1, 0); }

static int batch_norm(struct tiny *t)
{
    union node_attr a = {.norm = {.eps = 1e-5F, .momentum = 0.1F, .sync = 1}};
    int x = activation(t, ACT_TANH, SHAPE(3, 2, 2, 3)), weight = param(t, SHAPE(3));
    int b = param(t, SHAPE(3));
    int m = graph_state(t->g, SHAPE(3), 0, "m"), v = graph_state(t->g, SHAPE(3), 1, "v");
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, graph_shadow_of(t->g, m), graph_shadow_of(t->g, v)};
    int sums = append(t, OP_batch_norm_stats, &a, (int[]){x, m}, 2);

    sums = append(t, OP_allreduce, NULL, &sums, 1);
    assert_int_equal(graph_node(t->g, OP_batch_norm, &a, (int[]){x, sums, weight, b, m, v}, 6, out,
                                "bn", &t->err),
                     0);
    return out[0];
}

static int layer_norm(struct tiny *t)
{
    union node_attr a = {.norm = {.eps = 1e-5F}};
    int x = param(t, SHAPE(2, 3, 5)), weight = param(t, SHAPE(5));

    return append(t, OP_layer_norm, &a, (int[]){x, weight, param(t, SHAPE(5))}, 3);
}

/* b has three users; a goes through two adds. */
static int add(struct tiny *t)
{
    union node_attr act = {.act.kind = ACT_TANH};
    int a = activation(t, ACT_TANH, SHAPE(3, 4)), b = activation(t, ACT_TANH, SHAPE(3, 4));
    int c, d;

    c = append(t, OP_add, NULL, (int[]){a, b}, 2);
    d = append(t, OP_activation, &act, &b, 1);
    c = append(t, OP_add, NULL, (int[]){c, d}, 2);
    return append(t, OP_add, NULL, (int[]){c, b}, 2);
}

/* Two nodes share one weight. */
static int tied(struct tiny *t)
{
    union node_attr act = {.act.kind = ACT_TANH};
    int x = param(t, SHAPE(3, 4)), w = param(t, SHAPE(4, 4));

    x = append(t, OP_linear, NULL, (int[]){x, w}, 2);
    x = append(t, OP_activation, &act, &x, 1);
    return append(t, OP_linear, NULL, (int[]){x, w}, 2);
}

/* Two nodes share one weight, which one of them reads through a view. */
static int tied_through_view(struct tiny *t)
{
    union node_attr act = {.act.kind = ACT_TANH}, view = {.reshape.shape = SHAPE(2, 8)};
    int x = param(t, SHAPE(3, 4)), w = param(t, SHAPE(4, 4)), y;

    x = append(t, OP_linear, NULL, (int[]){x, w}, 2);
    x = append(t, OP_activation, &act, &x, 1);
    w = append(t, OP_reshape, &view, &w, 1);
    y = append(t, OP_concat, &(union node_attr){.concat.dim = 1}, (int[]){x, x}, 2);
    return append(t, OP_linear, NULL, (int[]){y, w}, 2);
}

/* The token table is the output layer's weight, too, as in GPT-2. */
static int tied_embedding(struct tiny *t)
{
    int tokens = graph_value(t->g, VALUE_INPUT, DTYPE_I32, SHAPE(3, 2), "tokens");
    int table = param(t, SHAPE(5, 4)), x = append(t, OP_embedding, NULL, (int[]){table, tokens}, 2);

    return append(t, OP_linear, NULL, (int[]){x, table}, 2);
}

/* One of the two nodes that share a weight has no influence on the loss. */
static int tied_to_dead(struct tiny *t)
{
    int x = param(t, SHAPE(3, 4)), w = param(t, SHAPE(4, 4));

    (void)append(t, OP_linear, NULL, (int[]){x, w}, 2);
    return append(t, OP_linear, NULL, (int[]){x, w}, 2);
}

/* Two parameters have one gradient, and a third is its own sum. */
static int add_params(struct tiny *t)
{
    int a = param(t, SHAPE(3, 4)), b = param(t, SHAPE(3, 4)), c = param(t, SHAPE(3, 4));
    int sum = append(t, OP_add, NULL, (int[]){a, b}, 2);

    return append(t, OP_add, NULL, (int[]){sum, append(t, OP_add, NULL, (int[]){c, c}, 2)}, 2);
}

static int flatten(struct tiny *t)
{
    int x = param(t, SHAPE(2, 3, 2, 4)), w;

    x = append(t, OP_flatten, NULL, (int[]){x}, 1);
    w = param(t, SHAPE(3, 24));
    return append(t, OP_linear, NULL, (int[]){x, w}, 2);
}

static int reshape(struct tiny *t)
{
    union node_attr a = {.reshape.shape = SHAPE(4, 6)};
    int x = activation(t, ACT_TANH, SHAPE(2, 3, 4));

    x = append(t, OP_reshape, &a, &x, 1);
    return append(t, OP_linear, NULL, (int[]){x, param(t, SHAPE(2, 6))}, 2);
}

static int dropout(struct tiny *t)
{
    union node_attr a = {.dropout = {.p = 0.4F, .tag = 2}};
    int x = param(t, SHAPE(4, 6));

    return append(t, OP_dropout, &a, (int[]){x, t->g->scalars}, 2);
}

static const struct {
    const char *name;
    int (*build)(struct tiny *t);
} ops[] = {
    {"conv2d", conv_plain},
    {"conv2d strided, padded, dilated", conv_strided},
    {"conv2d grouped", conv_grouped},
    {"linear", linear},
    {"bias", bias},
    {"relu", relu},
    {"tanh", tanh_},
    {"sigmoid", sigmoid},
    {"gelu", gelu},
    {"gelu_tanh", gelu_tanh},
    {"max pool", pool_max},
    {"average pool", pool_avg},
    {"average pool, padding not counted", pool_avg_inside},
    {"batch_norm", batch_norm},
    {"layer_norm", layer_norm},
    {"add", add},
    {"tied", tied},
    {"tied through a view", tied_through_view},
    {"tied embedding", tied_embedding},
    {"tied to a dead use", tied_to_dead},
    {"sums of parameters", add_params},
    {"flatten", flatten},
    {"reshape", reshape},
    {"dropout", dropout},
};

/* Append a loss of y, reshaped to [N, all other elements]; it has no parameters. */
static void append_loss(struct tiny *t, int y, enum op loss, float smoothing)
{
    const struct shape s = t->g->value[y].shape;
    union node_attr shape = {.reshape.shape = SHAPE(s.dim[0], shape_elements(&s) / s.dim[0])};
    union node_attr attr = {.loss.label_smoothing = smoothing};
    int labels;

    t->g->batch = s.dim[0];
    graph_input(t->g, DTYPE_F32, SHAPE(s.dim[0], 1), "x");
    labels = graph_input(t->g, DTYPE_I32, SHAPE(s.dim[0]), "labels");
    y = append(t, OP_reshape, &shape, &y, 1);
    t->g->logits = y;
    append(t, loss, &attr, (int[]){y, labels, t->g->metrics}, 3);
}

/* Set parameters to distinct values, none near 0, so that no kink of relu or of the maximum lies
 * within a difference. */
static void spread(struct rig *r)
{
    for (int i = 0; i < r->layout->n_params; i++) {
        const struct segment *s = &r->layout->param[i];
        float *p = rig_param(r, s->name, NULL);
        int64_t step = 37;

        while (s->length % step == 0)
            step--;
        for (int64_t e = 0; e < s->length; e++)
            p[e] = ((float)(e * step % s->length) + 0.5F) / (float)s->length * 2 - 1;
    }
}

static void check_op(int i, enum op loss, float smoothing, unsigned fusions)
{
    struct tiny t = {.g = graph_new(1, 1)};
    struct rig r;

    append_loss(&t, ops[i].build(&t), loss, smoothing);
    if (program_differentiate(t.g, &t.err) < 0)
        fail_msg("%s: %s", ops[i].name, t.err.msg);
    rig_open(&r, fusions, t.g, NULL);
    rig_init(&r, 11);
    spread(&r);
    check_all(&r, 20, 2e-3, 4e-3, ops[i].name);
    rig_close(&r);
}

static void every_operator(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        check_op((int)i, OP_pointwise_loss, 0, REF_FUSE_NONE);
        check_op((int)i, OP_pointwise_loss, 0, REF_FUSE_ALL);
        check_op((int)i, OP_softmax_xent, 0.1F, REF_FUSE_ALL);
    }
}

static struct graph *differentiated(int i, int at_once)
{
    struct tiny t = {.g = graph_new(1, 1)};

    append_loss(&t, ops[i].build(&t), OP_pointwise_loss, 0);
    t.g->grads_at_once = at_once;
    if (program_differentiate(t.g, &t.err) < 0)
        fail_msg("%s: %s", ops[i].name, t.err.msg);
    return t.g;
}

/* Run once, with the parameters of check_op. */
static void run_spread(struct rig *r)
{
    rig_init(r, 11);
    spread(r);
    rig_run(r);
}

/* A program that accumulates adds the gradients of each run to those of the runs before. */
static void runs_add_up(void **state)
{
    (void)state;
    for (int i = 0; i < (int)ARRAY_LEN(ops); i++) {
        struct graph *g = differentiated(i, 0);
        struct rig once, twice;

        program_accumulate(g);
        rig_open(&once, REF_FUSE_ALL, differentiated(i, 0), NULL);
        rig_open(&twice, REF_FUSE_ALL, g, NULL);
        memset(twice.spaces.grad, 0, (size_t)twice.layout->n_grad * sizeof(float));
        run_spread(&once);
        run_spread(&twice);
        rig_run(&twice);
        for (int p = 0; p < once.layout->n_params; p++) {
            const struct segment *s = &once.layout->param[p];
            const float *a = rig_grad(&once, s->name), *b = rig_grad(&twice, s->name);

            for (int64_t e = 0; e < s->length; e++)
                if (fabsf(2 * a[e] - b[e]) > 1e-5F * (1 + fabsf(a[e])))
                    fail_msg("%s: %s[%lld] is %g, and %g after two runs", ops[i].name, s->name,
                             (long long)e, (double)a[e], (double)b[e]);
        }
        rig_close(&once);
        rig_close(&twice);
    }
}

/* Where gradients must be written at once, they are the same numbers. */
static void written_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < (int)ARRAY_LEN(ops); i++) {
        struct rig r[2];

        for (int k = 0; k < 2; k++) {
            rig_open(&r[k], REF_FUSE_ALL, differentiated(i, k), NULL);
            run_spread(&r[k]);
        }
        for (int p = 0; p < r[0].layout->n_params; p++) {
            const struct segment *s = &r[0].layout->param[p];

            assert_memory_equal(rig_grad(&r[0], s->name), rig_grad(&r[1], s->name),
                                (size_t)s->length * sizeof(float));
        }
        for (int p = 0; p < r[1].graph->n_nodes; p++)
            for (int o = 0; o < r[1].graph->node[p].n_out; o++) {
                const int v = r[1].graph->node[p].out[o];

                assert_false(v != NO_VALUE && r[1].graph->value[v].role == VALUE_GRAD &&
                             r[1].graph->node[p].adds >> o & 1);
            }
        rig_close(&r[0]);
        rig_close(&r[1]);
    }
}

/* Check that no node of the backward part makes a temporary as large as p, or a copy. */
static void check_temporaries(const struct rig *r, const struct value *p)
{
    for (int k = r->graph->n_forward; k < r->graph->n_nodes; k++)
        for (int i = 0; i < r->graph->node[k].n_out; i++) {
            const int v = r->graph->node[k].out[i];

            assert_int_not_equal(r->graph->node[k].op, OP_cast);
            assert_false(v != NO_VALUE && r->graph->value[v].role == VALUE_TEMP &&
                         shape_elements(&r->graph->value[v].shape) == shape_elements(&p->shape));
        }
}

/* Gradients of tied parameters, and of parameters behind views, are made in their place. */
static void no_temporaries(void **state)
{
    static const char *const names[] = {"tied", "tied through a view", "tied embedding"};

    (void)state;
    for (int i = 0; i < (int)ARRAY_LEN(ops); i++) {
        struct rig r;
        int is_named = 0;

        for (size_t k = 0; k < ARRAY_LEN(names); k++)
            is_named |= strcmp(names[k], ops[i].name) == 0;
        if (!is_named)
            continue;
        rig_open(&r, REF_FUSE_ALL, differentiated(i, 0), NULL);
        for (int v = 0; v < r.graph->n_values; v++)
            if (r.graph->value[v].role == VALUE_PARAM && r.graph->value[v].n_uses > 1)
                check_temporaries(&r, &r.graph->value[v]);
        rig_close(&r);
    }
}

static void frozen_parameter_gets_none(void **state)
{
    struct tiny t = {.g = graph_new(1, 1)};
    struct param_info info = {.init = PARAM_UNIFORM, .bound = 1, .frozen = 1};
    int x = param(&t, SHAPE(3, 5)), w = graph_param(t.g, SHAPE(4, 5), info, "frozen");
    struct rig r;

    (void)state;
    append_loss(&t, append(&t, OP_linear, NULL, (int[]){x, w}, 2), OP_pointwise_loss, 0);
    assert_int_equal(program_differentiate(t.g, &t.err), 0);
    for (int k = 0; k < t.g->n_nodes; k++)
        assert_true(t.g->node[k].op != OP_linear_grad_w);
    rig_open(&r, REF_FUSE_ALL, t.g, NULL);
    assert_int_equal(r.layout->n_trained, 16);
    assert_int_equal(r.layout->n_total, 16 + 32);
    rig_init(&r, 1);
    check_all(&r, 15, 2e-3, 4e-3, "beside a frozen one");
    rig_close(&r);
}

/* A frozen weight does not keep the bias of its node from being trained, nor the other way round.
 */
static void frozen_weight_beside_trained_bias(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct tiny t = {.g = graph_new(1, 1)};
        struct param_info info = {.init = PARAM_UNIFORM, .bound = 1};
        const int conv = i & 1, weight_is_frozen = i >> 1;
        union node_attr attr = {.conv = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1}};
        int in[3] = {conv ? param(&t, SHAPE(2, 3, 3, 5)) : param(&t, SHAPE(3, 5))}, y;
        struct rig r;

        info.frozen = weight_is_frozen;
        in[1] = graph_param(t.g, conv ? SHAPE(4, 5, 2, 2) : SHAPE(4, 5), info, "weight");
        info.frozen = !weight_is_frozen;
        in[2] = graph_param(t.g, SHAPE(4), info, "bias");
        y = append(&t, conv ? OP_conv2d : OP_linear, conv ? &attr : NULL, in, 3);
        append_loss(&t, y, OP_pointwise_loss, 0);
        assert_int_equal(program_differentiate(t.g, &t.err), 0);
        rig_open(&r, REF_FUSE_ALL, t.g, NULL);
        rig_init(&r, 1);
        check_all(&r, 15, 2e-3, 4e-3, "a frozen weight or bias");
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_weight_beside_trained_bias),
        cmocka_unit_test(every_operator),
        cmocka_unit_test(runs_add_up),
        cmocka_unit_test(written_at_once),
        cmocka_unit_test(no_temporaries),
        cmocka_unit_test(frozen_parameter_gets_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
