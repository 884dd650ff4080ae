/* test_lora - adapters: the layers that get them, what is frozen, where their nodes stand, and the
 * messages for patterns that fit nothing. */
#include "../test.h"

#include "base/util.h"
#include "count.h"
#include "model/gpt.h"
#include "model/layers.h"
#include "model/lora.h"
#include "op/op.h"

static const struct sample_spec spec = {
    2,
    {{"x", SAMPLE_INPUT, DTYPE_F32, {1, {6}}, 0, DTYPE_F32, SAMPLE_AS_IS},
     {"y", SAMPLE_CLASS, DTYPE_I32, {0, {0}}, 3, DTYPE_I32, SAMPLE_AS_IS}}};

static const char list_of_three[] = "[linear: 4, relu, linear: 5, batch_norm, linear: 3]";

static int build(const char *layers, struct lora_options lora, int training, struct graph **g,
                 struct err *err)
{
    const struct layers_options own = {.layers = layers};
    const struct model_options o = {
        .kind = &arch_layers, .options = &own, .lora = lora, .loss = LOSS_CROSS_ENTROPY};

    return model_build(&o, &spec, 2, training, 0, g, err);
}

static void expect_params(const struct graph *g, int frozen, const char *want)
{
    struct buf seen = {0};

    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].role == VALUE_PARAM && g->value[v].info->frozen == frozen)
            buf_printf(&seen, "%s%s", seen.len ? " " : "", g->value[v].name);
    assert_string_equal(buf_cstr(&seen), want);
    buf_fini(&seen);
}

static void all_but_the_last(void **state)
{
    struct graph *g;
    struct err err;

    (void)state;
    assert_int_equal(
        build(list_of_three, (struct lora_options){.rank = 2, .alpha = 8}, 1, &g, &err), 0);
    expect_params(g, 0, "0.lora_A.weight 0.lora_B.weight 2.lora_A.weight 2.lora_B.weight");
    expect_params(g, 1, "0.weight 0.bias 2.weight 2.bias 3.weight 3.bias 4.weight 4.bias");
    assert_int_equal(count(g, OP_linear), 7);
    assert_int_equal(count(g, OP_dropout), 0);
    assert_int_equal(graph_find(g, "2.lora_A.weight")->shape.dim[0], 2);
    assert_int_equal(graph_find(g, "2.lora_A.weight")->shape.dim[1], 4);
    assert_int_equal(graph_find(g, "2.lora_B.weight")->shape.dim[0], 5);
    graph_free(g);
}

/* Every value is made before it is read, by the node that it names. */
static void nodes_in_order(void **state)
{
    struct graph *g;
    struct err err;

    (void)state;
    assert_int_equal(build(list_of_three,
                           (struct lora_options){.rank = 1, .alpha = 2, .dropout = 0.5}, 1, &g,
                           &err),
                     0);
    assert_int_equal(count(g, OP_dropout), 2);
    for (int i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->node[i].n_in; k++)
            if (g->node[i].in[k] != NO_VALUE)
                assert_true(g->value[g->node[i].in[k]].producer < i);
        for (int k = 0; k < g->node[i].n_out; k++)
            if (g->node[i].out[k] != NO_VALUE && g->value[g->node[i].out[k]].producer >= 0)
                assert_int_equal(g->value[g->node[i].out[k]].producer, i);
        assert_int_equal(graph_check_node(g, &g->node[i], &err), 0);
    }
    graph_free(g);
}

/* Every reader of a layer's output reads the sum: the layer's own output has one reader left. */
static void sum_is_read(void **state)
{
    struct graph *g;
    struct err err;
    int n_readers = 0, y = NO_VALUE;

    (void)state;
    assert_int_equal(build("[linear: 4, linear: {units: 3, bias: false}]",
                           (struct lora_options){.rank = 1, .alpha = 2, .match = "1"}, 1, &g, &err),
                     0);
    for (int i = 0; i < g->n_nodes; i++)
        if (g->node[i].op == OP_linear &&
            g->node[i].in[LINEAR_W] == (int)(graph_find(g, "1.weight") - g->value))
            y = g->node[i].out[LINEAR_Y];
    assert_int_not_equal(y, NO_VALUE);
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            n_readers += g->node[i].in[k] == y;
    assert_int_equal(n_readers, 1);
    assert_int_not_equal(g->logits, y);
    expect_params(g, 0, "1.lora_A.weight 1.lora_B.weight");
    graph_free(g);
}

static void evaluation_drops_nothing(void **state)
{
    struct graph *g;
    struct err err;

    (void)state;
    assert_int_equal(build(list_of_three,
                           (struct lora_options){.rank = 1, .alpha = 2, .dropout = 0.5}, 0, &g,
                           &err),
                     0);
    assert_int_equal(count(g, OP_dropout), 0);
    graph_free(g);
}

static void patterns(void **state)
{
    static const struct {
        const char *match, *trained; /* or a message */
        int fails;
    } cases[] = {
        {"0, 4", "0.lora_A.weight 0.lora_B.weight 4.lora_A.weight 4.lora_B.weight", 0},
        {"[24]", "2.lora_A.weight 2.lora_B.weight 4.lora_A.weight 4.lora_B.weight", 0},
        {"0, q_proj",
         "model.lora.match: \"q_proj\" fits no layer that may have adapters; they are 0, 2, 4", 1},
        {"3", "\"3\" fits no layer that may have adapters", 1}, /* a batch norm */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct lora_options o = {.rank = 2, .alpha = 8, .match = cases[i].match};
        struct graph *g;
        struct err err;
        const int rc = build(list_of_three, o, 1, &g, &err);

        assert_int_equal(rc, cases[i].fails ? ERR_CONFIG : 0);
        if (cases[i].fails)
            assert_non_null(strstr(err.msg, cases[i].trained));
        else
            expect_params(g, 0, cases[i].trained);
        if (!cases[i].fails)
            graph_free(g);
    }
}

static const struct sample_spec images = SAMPLE_IMAGES(8, 8, 3, 5), text = SAMPLE_SEQUENCES(4, 11);

static int build_images(const char *layers, struct lora_options lora, struct graph **g,
                        struct err *err)
{
    const struct layers_options own = {.layers = layers};
    const struct model_options o = {
        .kind = &arch_layers, .options = &own, .lora = lora, .loss = LOSS_CROSS_ENTROPY};

    return model_build(&o, &images, 2, 1, 0, g, err);
}

static void expect_shape(const struct graph *g, const char *name, struct shape want)
{
    const struct value *v = graph_find(g, name);

    assert_non_null(v);
    assert_true(shape_equal(&v->shape, &want));
}

/* A has the layer's kernel and all channels, B has the layer's groups.  Dilation has no adapters,
 * and without patterns convolutions have none. */
static void convolutions(void **state)
{
    static const char layers[] =
        "[conv: {channels: 6, kernel: [3, 2], stride: 2}, conv: {channels: "
        "4, kernel: 1, groups: 2}, conv: {channels: 4, kernel: 2, "
        "dilation: 2, padding: 1}, flatten, linear: 7, linear: 5]";
    struct graph *g;
    struct err err;

    (void)state;
    assert_int_equal(build_images(layers,
                                  (struct lora_options){.rank = 4, .alpha = 8, .match = "0, 1"}, &g,
                                  &err),
                     0);
    expect_params(g, 0, "0.lora_A.weight 0.lora_B.weight 1.lora_A.weight 1.lora_B.weight");
    expect_shape(g, "0.lora_A.weight", SHAPE(4, 3, 3, 2));
    expect_shape(g, "0.lora_B.weight", SHAPE(6, 4, 1, 1));
    expect_shape(g, "1.lora_A.weight", SHAPE(4, 6, 1, 1));
    expect_shape(g, "1.lora_B.weight", SHAPE(4, 2, 1, 1));
    graph_free(g);
    assert_int_equal(build_images(layers, (struct lora_options){.rank = 4, .alpha = 8}, &g, &err),
                     0);
    expect_params(g, 0, "4.lora_A.weight 4.lora_B.weight");
    graph_free(g);
    assert_int_equal(
        build_images(layers, (struct lora_options){.rank = 4, .alpha = 8, .match = "2"}, &g, &err),
        ERR_CONFIG);
    assert_non_null(strstr(err.msg, "they are 0, 1, 4, 5"));
    assert_int_equal(
        build_images(layers, (struct lora_options){.rank = 3, .alpha = 8, .match = "1"}, &g, &err),
        ERR_CONFIG);
    assert_non_null(strstr(err.msg, "\"1\" is a convolution of 2 groups, want a model.lora.rank"));
}

/* An embedding whose weight is the head's, too, has the adapters; the head has none. */
static void embeddings(void **state)
{
    static const struct gpt_options own = {
        .layers = 1, .heads = 1, .width = 8, .context = 4, .tied = 1};
    const struct model_options o = {
        .kind = &arch_gpt, .options = &own, .lora = {.rank = 2, .alpha = 8, .match = "*.wte"}};
    struct graph *g;
    struct err err;

    (void)state;
    assert_int_equal(model_build(&o, &text, 2, 1, 0, &g, &err), 0);
    expect_params(g, 0, "transformer.wte.lora_embedding_A transformer.wte.lora_embedding_B");
    expect_shape(g, "transformer.wte.lora_embedding_A", SHAPE(2, 11));
    expect_shape(g, "transformer.wte.lora_embedding_B", SHAPE(8, 2));
    assert_int_equal(count(g, OP_embedding), 2);
    graph_free(g);
}

/* Two linear layers of one weight [out,in], of which the second reads it the other way. */
static struct graph *both_directions(int64_t in, int64_t out)
{
    const union node_attr turned = {.linear.transposed = 1};
    struct graph *g = graph_new(2, 1);
    const int x = graph_input(g, DTYPE_F32, SHAPE(2, in), "x"),
              w = graph_param(g, SHAPE(out, in), (struct param_info){0}, "both.weight");
    int y[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NO_OUT, NODE_NO_OUT};
    int z[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NO_OUT, NODE_NO_OUT};
    struct err err;

    assert_int_equal(graph_node(g, OP_linear, NULL, (int[]){x, w}, 2, y, "there", &err), 0);
    assert_int_equal(graph_node(g, OP_linear, &turned, (int[]){y[0], w}, 2, z, "back", &err), 0);
    return g;
}

static void a_weight_in_both_directions(void **state)
{
    const struct lora_options o = {.rank = 2, .alpha = 8, .match = "both"};

    (void)state;
    for (int64_t out = 6; out <= 7; out++) { /* where the weight is square, shapes tell nothing */
        struct graph *g = both_directions(6, out);
        struct err err;

        assert_int_equal(lora_apply(&o, &(struct lora_place){.logits = g->logits}, g, &err),
                         ERR_CONFIG);
        assert_non_null(strstr(err.msg, "\"both\" has a weight that is read in both directions"));
        graph_free(g);
    }
}

static void nothing_is_left(void **state)
{
    const struct lora_options o = {.rank = 2, .alpha = 8};
    struct graph *g;
    struct err err;

    (void)state;
    assert_int_equal(build("[linear: 3]", o, 1, &g, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "no linear layer is left but the one that makes the logits"));
}

static void scales(void **state)
{
    (void)state;
    assert_true(lora_scale(&(struct lora_options){.rank = 4, .alpha = 16}) == 4);
    assert_true(lora_scale(&(struct lora_options){.rank = 4, .alpha = 16, .rslora = 1}) == 8);
    assert_int_equal(lora_layer_length("a.b.lora_A.weight"), 3);
    assert_int_equal(lora_layer_length("a.b.lora_B.weight"), 0);
    assert_int_equal(lora_layer_length("a.lora_embedding_A"), 1);
    assert_true(lora_is_name("a.lora_embedding_B") && lora_is_name("a.lora_embedding_A"));
    assert_true(lora_is_name("a.lora_B.weight") && !lora_is_name("a.weight"));
    assert_false(lora_is_name(".lora_A.weight"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_but_the_last),
        cmocka_unit_test(nodes_in_order),
        cmocka_unit_test(sum_is_read),
        cmocka_unit_test(evaluation_drops_nothing),
        cmocka_unit_test(patterns),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(embeddings),
        cmocka_unit_test(a_weight_in_both_directions),
        cmocka_unit_test(scales),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
