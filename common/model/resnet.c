/* resnet - torchvision's residual networks of 18 to 152 layers, with its names, layouts and initial
 * values.
 *
 * The stem is conv1 64@7x7 with stride 2, bn1, relu and a max pool 3x3 with stride 2; for small
 * images (stem: cifar) conv1 64@3x3, bn1 and relu.  Four groups of blocks follow: layer1 to layer4,
 * of 64, 128, 256 and 512 channels; the first block of layer2 to layer4 has stride 2.  At the end
 * the average over the image, and fc.
 *
 * A basic block (18, 34) is conv1 3x3, bn1, relu, conv2 3x3, bn2.  A bottleneck block (50 and more)
 * is conv1 1x1, bn1, relu, conv2 3x3, bn2, relu, conv3 1x1 to four times the channels, bn3.  The
 * block's input is added, and a relu follows.  With drop_path, which torchvision's
 * networks do not have, the block's branch is left out for some samples.
 * Where the shapes differ the input first goes through downsample.0, a convolution 1x1, and
 * downsample.1, a batch norm. */
#include "model/resnet.h"

#include "base/util.h"
#include "model/layer.h"
#include "model/rows.h"

#define AT(field) offsetof(struct resnet_options, field)

static const char *const stems[] = {STEM_LIST(WORD_NAME) NULL};

static const struct option rows[] = {
    {"model.stem", OPT_CHOICE, AT(stem), "imagenet", .choices = stems,
     .help = "The first layers: imagenet halves the image twice (7x7 with stride 2, and a max "
             "pool); cifar, for images of about 32 pixels, does not (3x3 with stride 1)."},
    ROW_DROP_PATH(AT(drop_path), "branch skips"),
    ROW_CLASSES(AT(classes)),
};

struct plan {
    int n_blocks[4];
    int is_bottleneck;
};

static const char *resnet_part(struct net *m, const char *block, const char *name, int i)
{
    return arena_printf(&m->g->arena, "%s.%s%d", block, name, i);
}

/* Convolution i of a block and its batch norm, without the activation. */
static void conv_norm(struct net *m, const char *block, int i, int64_t channels, int kernel,
                      int stride)
{
    const struct layer_conv conv = {.channels = channels,
                                    .kernel = {kernel, kernel},
                                    .stride = {stride, stride},
                                    .pad = {kernel / 2, kernel / 2},
                                    .no_bias = 1,
                                    .init = CONV_KAIMING};

    layer_conv(m, resnet_part(m, block, "conv", i), &conv);
    layer_batch_norm(m, resnet_part(m, block, "bn", i));
}

/* The block's input x, in the shape of the block's output; h stays what it is. */
static int resnet_shortcut(struct net *m, const char *block, int x, int64_t channels, int stride)
{
    const struct layer_conv conv = {.channels = channels,
                                    .kernel = {1, 1},
                                    .stride = {stride, stride},
                                    .no_bias = 1,
                                    .init = CONV_KAIMING};
    const int h = m->h;
    int short_x;

    if (m->rc < 0 || (stride == 1 && m->g->value[x].shape.dim[3] == channels))
        return x;
    m->h = x;
    layer_conv(m, resnet_part(m, block, "downsample.", 0), &conv);
    layer_batch_norm(m, resnet_part(m, block, "downsample.", 1));
    short_x = m->h;
    m->h = h;
    return short_x;
}

static void resnet_block(struct net *m, const char *name, int is_bottleneck, int64_t width,
                         int stride, float drop)
{
    const int64_t channels = is_bottleneck ? 4 * width : width;
    const int x = m->h;

    layer_begin_block(m);
    if (is_bottleneck) {
        conv_norm(m, name, 1, width, 1, 1);
        layer_activation(m, resnet_part(m, name, "relu", 1), ACT_RELU);
        conv_norm(m, name, 2, width, 3, stride);
        layer_activation(m, resnet_part(m, name, "relu", 2), ACT_RELU);
        conv_norm(m, name, 3, channels, 1, 1);
    } else {
        conv_norm(m, name, 1, width, 3, stride);
        layer_activation(m, resnet_part(m, name, "relu", 1), ACT_RELU);
        conv_norm(m, name, 2, width, 3, 1);
    }
    layer_drop_path(m, resnet_part(m, name, "drop_path", 1), drop);
    layer_add(m, resnet_part(m, name, "add", 1), resnet_shortcut(m, name, x, channels, stride));
    layer_activation(m, resnet_part(m, name, "relu", 3), ACT_RELU);
    layer_end_block(m);
}

static void build_stem(struct net *m, enum stem stem)
{
    const int is_small = stem == STEM_CIFAR, kernel = is_small ? 3 : 7;
    const int stride = is_small ? 1 : 2, pad = is_small ? 1 : 3;
    const struct layer_conv conv = {.channels = 64,
                                    .kernel = {kernel, kernel},
                                    .stride = {stride, stride},
                                    .pad = {pad, pad},
                                    .no_bias = 1,
                                    .init = CONV_KAIMING};

    layer_input(m);
    layer_conv(m, "conv1", &conv);
    layer_batch_norm(m, "bn1");
    layer_activation(m, "relu", ACT_RELU);
    if (!is_small)
        layer_pool(m, "maxpool", POOL_MAX, 3, 2, 1);
}

static void resnet_build(struct net *m, const struct resnet_options *o, struct plan plan)
{
    int n_blocks = 0, n = 0;

    build_stem(m, o->stem);
    for (int i = 0; i < 4; i++)
        n_blocks += plan.n_blocks[i];
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < plan.n_blocks[i]; k++, n++)
            resnet_block(m, arena_printf(&m->g->arena, "layer%d.%d", i + 1, k), plan.is_bottleneck,
                         64 << i, i > 0 && k == 0 ? 2 : 1,
                         layer_depth_drop(o->drop_path, n, n_blocks));
    layer_global_avg_pool(m, "avgpool");
    layer_flatten(m, "flatten");
    layer_linear(m, "fc", net_classes(m, o->classes));
}

#define RESNET(depth, bottleneck, n1, n2, n3, n4)                                \
    static void build_##depth(struct net *m, const void *options)                \
    {                                                                            \
        resnet_build(m, options, (struct plan){{n1, n2, n3, n4}, bottleneck});   \
    }                                                                            \
    const struct model_arch arch_resnet##depth = {                               \
        .group = {.name = "resnet" #depth,                                       \
                  .help = "torchvision's residual network of " #depth " layers", \
                  .option = rows,                                                \
                  .n_options = ARRAY_LEN(rows),                                  \
                  .size = sizeof(struct resnet_options)},                        \
        .build = build_##depth,                                                  \
    };

RESNET(18, 0, 2, 2, 2, 2)
RESNET(34, 0, 3, 4, 6, 3)
RESNET(50, 1, 3, 4, 6, 3)
RESNET(101, 1, 3, 4, 23, 3)
RESNET(152, 1, 3, 8, 36, 3)
