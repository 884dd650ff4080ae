/* test_vision - the residual networks and the vision transformers: names, shapes and initial values
 * as torchvision has them, and the blocks that are dropped in training. */
#include "../test.h"

#include "base/util.h"
#include "count.h"
#include "model/resnet.h"
#include "model/vit.h"
#include "op/op.h"

/* Torchvision's numbers of parameters for 1000 classes, and the stem's effect on the image. */
static void residual_networks(void **state)
{
    static const struct {
        const struct model_arch *arch;
        int64_t n_elements;
        int n_params, n_convs, n_blocks;
    } nets[] = {
        {&arch_resnet18, 11689512, 62, 20, 8},     {&arch_resnet34, 21797672, 110, 36, 16},
        {&arch_resnet50, 25557032, 161, 53, 16},   {&arch_resnet101, 44549160, 314, 104, 33},
        {&arch_resnet152, 60192808, 467, 155, 50},
    };
    const struct sample_spec in = SAMPLE_IMAGES(64, 64, 3, 10);
    struct resnet_options own = {.classes = 1000};
    struct graph *g;
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(nets); i++) {
        const struct model_options o = {.kind = nets[i].arch, .options = &own};
        int64_t n_elements = 0;
        int n_params = 0;

        own.stem = i % 2 ? STEM_CIFAR : STEM_IMAGENET;
        assert_int_equal(model_build(&o, &in, 2, 1, 1, &g, &err), 0);
        for (int v = 0; v < g->n_values; v++)
            if (g->value[v].role == VALUE_PARAM) {
                n_params++;
                n_elements += shape_elements(&g->value[v].shape);
            }
        assert_int_equal(n_params, nets[i].n_params);
        assert_int_equal(count(g, OP_conv2d), nets[i].n_convs);
        /* the small stem's filters are 3x3 instead of 7x7 */
        assert_int_equal(n_elements, nets[i].n_elements - (own.stem ? 64 * 3 * (49 - 9) : 0));
        assert_int_equal(count(g, OP_pool2d), own.stem ? 1 : 2);
        assert_int_equal(count(g, OP_add), nets[i].n_blocks);
        graph_free(g);
    }
}

static void residual_names(void **state)
{
    static const struct {
        const char *name;
        struct shape shape;
    } params[] = {
        {"conv1.weight", {4, {64, 3, 7, 7}}},
        {"layer1.0.conv3.weight", {4, {256, 64, 1, 1}}},
        {"layer1.0.downsample.0.weight", {4, {256, 64, 1, 1}}},
        {"layer1.0.downsample.1.bias", {1, {256}}},
        {"layer2.0.conv2.weight", {4, {128, 128, 3, 3}}},
        {"layer4.2.bn3.running_var", {1, {2048}}},
        {"fc.weight", {2, {10, 2048}}},
        {"fc.bias", {1, {10}}},
    };
    const struct sample_spec in = SAMPLE_IMAGES(64, 64, 3, 10);
    struct resnet_options own = {.stem = STEM_IMAGENET};
    const struct model_options o = {.kind = &arch_resnet50, .options = &own};
    struct graph *g;
    struct err err;

    (void)state;
    assert_int_equal(model_build(&o, &in, 2, 0, 1, &g, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(params); i++) {
        const struct value *v = graph_find(g, params[i].name);

        if (!v || !shape_equal(&v->shape, &params[i].shape))
            fail_msg("%s is missing or has another shape", params[i].name);
    }
    assert_null(graph_find(g, "layer1.1.downsample.0.weight"));
    graph_free(g);
    own.classes = 9;
    assert_int_equal(model_build(&o, &in, 2, 0, 1, &g, &err), ERR_CONFIG);
    assert_non_null(strstr(
        err.msg, "model.classes is 9, but the data have 10; leave it out, or set it higher; labels "
                 "that are numbers belong in float32, and one that marks no class in "
                 "train.ignore_index"));
}

static void expect_shape(const struct graph *g, const char *name, struct shape shape)
{
    const struct value *v = graph_find(g, name);

    if (!v || !shape_equal(&v->shape, &shape))
        fail_msg("%s is missing or has another shape", name);
}

static int64_t n_elements(const struct graph *g)
{
    int64_t n = 0;

    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].role == VALUE_PARAM)
            n += shape_elements(&g->value[v].shape);
    return n;
}

/* The numbers of parameters of torchvision's vit_b_16 and of DeiT's two smaller sizes, for 1000
 * classes; names, shapes and initial values. */
static void vision_transformers(void **state)
{
    static const struct {
        const struct model_arch *arch;
        int64_t width, heads, n_elements;
    } nets[] = {{&arch_vit_tiny, 192, 3, 5717416},
                {&arch_vit_small, 384, 6, 22050664},
                {&arch_vit_base, 768, 12, 86567656}};
    const struct sample_spec in = SAMPLE_IMAGES(224, 224, 3, 10);
    struct graph *g;
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(nets); i++) {
        const struct vit_options own = {.image = 224,
                                        .patch = 16,
                                        .width = nets[i].width,
                                        .depth = 12,
                                        .heads = nets[i].heads,
                                        .dropout = 0.1,
                                        .classes = 1000};
        const struct model_options o = {.kind = nets[i].arch, .options = &own};
        const int64_t c = own.width;

        assert_int_equal(model_build(&o, &in, 2, 1, 1, &g, &err), 0);
        assert_int_equal(n_elements(g), nets[i].n_elements);
        assert_int_equal(count(g, OP_dropout), 1 + 3 * 12);
        expect_shape(g, "class_token", SHAPE(1, 1, c));
        expect_shape(g, "conv_proj.weight", SHAPE(c, 3, 16, 16));
        expect_shape(g, "encoder.pos_embedding", SHAPE(1, 197, c));
        expect_shape(g, "encoder.layers.encoder_layer_0.ln_1.weight", SHAPE(c));
        expect_shape(g, "encoder.layers.encoder_layer_11.self_attention.in_proj_weight",
                     SHAPE(3 * c, c));
        expect_shape(g, "encoder.layers.encoder_layer_11.self_attention.in_proj_bias",
                     SHAPE(3 * c));
        expect_shape(g, "encoder.layers.encoder_layer_11.self_attention.out_proj.bias", SHAPE(c));
        expect_shape(g, "encoder.layers.encoder_layer_11.mlp.0.weight", SHAPE(4 * c, c));
        expect_shape(g, "encoder.layers.encoder_layer_11.mlp.3.weight", SHAPE(c, 4 * c));
        expect_shape(g, "encoder.ln.bias", SHAPE(c));
        expect_shape(g, "heads.head.weight", SHAPE(1000, c));
        assert_true(shape_equal(&g->value[g->logits].shape, &SHAPE(2, 1000)));
        graph_free(g);
    }
}

/* Probability of block i of `depth` in a network built with drop_path 0.3; drops: how often it
 * stands in the block. */
static void expect_drops(const struct model_options *o, const struct sample_spec *in, int depth,
                         int drops)
{
    struct graph *g;
    struct err err;
    int n = drops; /* the first block has none, because its probability is 0 */

    assert_int_equal(model_build(o, in, 2, 1, 1, &g, &err), 0);
    for (int k = 0; k < g->n_nodes; k++) {
        const struct node *node = &g->node[k];

        if (node->op != OP_dropout)
            continue;
        assert_true(node->attr.dropout.whole);
        assert_int_equal(node->attr.dropout.tag, n - drops);
        assert_float_equal(node->attr.dropout.p, 0.3 * (n / drops) / (depth - 1), 1e-6);
        n++;
    }
    assert_int_equal(n, drops * depth);
    graph_free(g);
    assert_int_equal(model_build(o, in, 2, 0, 1, &g, &err), 0);
    assert_int_equal(count(g, OP_dropout), 0); /* in evaluation nothing is dropped */
    graph_free(g);
}

static void stochastic_depth(void **state)
{
    const struct sample_spec in = SAMPLE_IMAGES(32, 32, 3, 10);
    const struct resnet_options resnet = {.stem = STEM_CIFAR, .drop_path = 0.3};
    const struct vit_options vit = {
        .patch = 8, .width = 16, .depth = 4, .heads = 2, .drop_path = 0.3};

    (void)state;
    expect_drops(&(struct model_options){.kind = &arch_resnet18, .options = &resnet}, &in, 8, 1);
    expect_drops(&(struct model_options){.kind = &arch_resnet50, .options = &resnet}, &in, 16, 1);
    expect_drops(&(struct model_options){.kind = &arch_vit, .options = &vit}, &in, 4, 2);
}

/* The initial values of torchvision's VisionTransformer. */
static void vision_transformer_inits(void **state)
{
    static const struct {
        const char *name;
        struct param_info info;
    } inits[] = {
        {"conv_proj.weight", {PARAM_NORMAL, 0.14433757F, PARAM_WEIGHT, 0}}, /* sqrt(1/48) */
        {"conv_proj.bias", {PARAM_CONST, 0, PARAM_BIAS, 0}},
        {"class_token", {PARAM_CONST, 0, PARAM_EMBEDDING, 0}},
        {"encoder.pos_embedding", {PARAM_NORMAL, 0.02F, PARAM_EMBEDDING, 0}},
        {"encoder.layers.encoder_layer_0.self_attention.in_proj_weight",
         {PARAM_UNIFORM, 0.306186218F, PARAM_WEIGHT, 0}}, /* sqrt(6/(16 + 48)) */
        {"encoder.layers.encoder_layer_0.self_attention.in_proj_bias",
         {PARAM_CONST, 0, PARAM_BIAS, 0}},
        {"encoder.layers.encoder_layer_0.self_attention.out_proj.weight",
         {PARAM_UNIFORM, 0.25F, PARAM_WEIGHT, 0}}, /* 1/sqrt(16) */
        {"encoder.layers.encoder_layer_0.self_attention.out_proj.bias",
         {PARAM_CONST, 0, PARAM_BIAS, 0}},
        {"encoder.layers.encoder_layer_0.mlp.0.weight",
         {PARAM_UNIFORM, 0.408248290F, PARAM_WEIGHT, 0}}, /* sqrt(6/(16 + 20)) */
        {"encoder.layers.encoder_layer_0.mlp.3.bias", {PARAM_NORMAL, 1e-6F, PARAM_BIAS, 0}},
        {"encoder.ln.weight", {PARAM_CONST, 1, PARAM_NORM, 0}},
        {"heads.head.weight", {PARAM_CONST, 0, PARAM_WEIGHT, 0}},
        {"heads.head.bias", {PARAM_CONST, 0, PARAM_BIAS, 0}},
    };
    const struct sample_spec in = SAMPLE_IMAGES(8, 12, 3, 10);
    struct sample_spec rows = in;
    struct vit_options own = {.patch = 4, .width = 16, .depth = 1, .heads = 2, .mlp = 20};
    const struct model_options o = {.kind = &arch_vit, .options = &own};
    struct graph *g;
    struct err err;

    (void)state;
    assert_int_equal(model_build(&o, &in, 0, 1, 1, &g, &err), 0); /* no samples: a batch of 0 */
    for (size_t i = 0; i < ARRAY_LEN(inits); i++) {
        const struct value *v = graph_find(g, inits[i].name);

        assert_non_null(v);
        assert_int_equal(v->info->init, inits[i].info.init);
        assert_int_equal(v->info->kind, inits[i].info.kind);
        assert_float_equal(v->info->bound, inits[i].info.bound, 1e-8F);
    }
    for (int k = 0; k < g->n_nodes; k++) {
        const struct node *n = &g->node[k];

        if (n->op == OP_layer_norm)
            assert_true(n->attr.norm.eps == 1e-6F);
        if (n->op == OP_attention)
            assert_true(!n->attr.attention.causal && n->attr.attention.p == 0);
        if (n->op == OP_activation)
            assert_int_equal(n->attr.act.kind, ACT_GELU);
    }
    expect_shape(g, "heads.head.weight", SHAPE(10, 16));
    expect_shape(g, "encoder.pos_embedding", SHAPE(1, 7, 16));
    assert_int_equal(count(g, OP_dropout), 0);
    graph_free(g);
    /* One row of each image is judged: a target for each of its 7 rows is refused. */
    rows.field[1].shape = SHAPE(7);
    assert_int_equal(model_build(&o, &rows, 2, 1, 1, &g, &err), ERR_CONFIG);
    assert_non_null(
        strstr(err.msg, "model.loss cross_entropy needs one class label a sample; the target is"));
    own.patch = 5;
    assert_int_equal(model_build(&o, &in, 2, 1, 1, &g, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "images of 8x12 pixels, want multiples of model.patch, 5"));
    own.patch = 4, own.heads = 3;
    assert_int_equal(model_build(&o, &in, 2, 1, 1, &g, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "model.width is 16, want a multiple of model.heads, 3"));
    own.heads = 2, own.image = 8;
    assert_int_equal(model_build(&o, &in, 2, 1, 1, &g, &err), ERR_CONFIG);
    assert_non_null(strstr(
        err.msg,
        "model.image is 8, but the data's are 8x12; leave it out, or give images of that size"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residual_networks),        cmocka_unit_test(residual_names),
        cmocka_unit_test(vision_transformers),      cmocka_unit_test(stochastic_depth),
        cmocka_unit_test(vision_transformer_inits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
