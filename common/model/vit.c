/* vit - vision transformers of three sizes, and of any size, with the names, layouts and initial
 * values of torchvision's VisionTransformer.
 *
 * conv_proj turns each patch of the image into a row, in the order of reading.  class_token comes
 * before the rows of each image, encoder.pos_embedding is added, and dropout follows.  Then the
 * blocks encoder.layers.encoder_layer_0 ...: x +
 * self_attention.out_proj(attention(in_proj(ln_1(x)))) and x + mlp.3(gelu(mlp.0(ln_2(x)))), with
 * dropout after out_proj, gelu and mlp.3; at the end encoder.ln, and heads.head of the class
 * token's row.  Norms have eps 1e-6, gelu is the exact one.
 *
 * The initial weights of the MLPs and of in_proj are Xavier's uniform ones.  Those of out_proj are
 * PyTorch's default for linear layers, those of conv_proj are from N(0, 1/fan_in), and the
 * positions from N(0, 0.02^2).  heads.head and class_token begin as 0.  Biases begin as 0, but the
 * MLPs' as N(0, 1e-12). torchvision cuts conv_proj's values off at -2 and 2, where none lies with
 * images. */
#include "model/vit.h"

#include "base/util.h"
#include "model/layer.h"
#include "model/rows.h"

#define AT(field) offsetof(struct vit_options, field)

#define NORM_EPS     1e-6F
#define MLP_BIAS_STD 1e-6F

#define ROWS(n_patch, n_width, n_depth, n_heads)                                           \
    ROW_COUNT("model.image", AT(image), "0", 0, 65536, "pixels",                           \
              "Side of the images, which the data must have; 0: whatever the data have."), \
        ROW_COUNT("model.patch", AT(patch), n_patch, 1, 4096, "pixels",                    \
                  "Side of a patch; the image's sides are multiples of it."),              \
        ROW_COUNT("model.width", AT(width), n_width, 1, 65536, "units",                    \
                  "Size of a patch's embedding, and of what the blocks hand on."),         \
        ROW_COUNT("model.depth", AT(depth), n_depth, 1, 1000, "blocks",                    \
                  "Blocks of attention and MLP."),                                         \
        ROW_HEADS(AT(heads), n_heads),                                                     \
        ROW_COUNT("model.mlp", AT(mlp), "0", 0, 262144, "units",                           \
                  "Hidden units of a block's MLP; 0: four times model.width."),            \
        ROW_PROBABILITY(                                                                   \
            "model.dropout", AT(dropout), "0",                                             \
            "Probability that an embedding, a hidden unit or a block's output is dropped " \
            "in training."),                                                               \
        ROW_DROP_PATH(AT(drop_path), "branches skip"), ROW_CLASSES(AT(classes))

static const char *vit_part(struct net *m, int64_t block, const char *name)
{
    return arena_printf(&m->g->arena, "encoder.layers.encoder_layer_%lld.%s", (long long)block,
                        name);
}

static void vit_attention(struct net *m, const struct vit_options *o, int64_t i)
{
    const struct layer_dense in = {.features = 3 * o->width,
                                   .weight.init = DENSE_XAVIER,
                                   .is_joint = 1},
                             out = {.features = o->width, .weight.init = DENSE_PYTORCH};

    layer_layer_norm(m, vit_part(m, i, "ln_1"), NORM_EPS);
    layer_dense(m, vit_part(m, i, "self_attention.in_proj"), &in);
    layer_attention(m, vit_part(m, i, "self_attention"), o->heads, 0, 0);
    layer_dense(m, vit_part(m, i, "self_attention.out_proj"), &out);
    layer_dropout(m, vit_part(m, i, "dropout"), (float)o->dropout);
    layer_drop_path(m, vit_part(m, i, "drop_path1"), layer_depth_drop(o->drop_path, i, o->depth));
}

static void vit_mlp(struct net *m, const struct vit_options *o, int64_t i)
{
    struct layer_dense dense = {.features = o->mlp ? o->mlp : 4 * o->width,
                                .weight.init = DENSE_XAVIER,
                                .bias.std = MLP_BIAS_STD};

    layer_layer_norm(m, vit_part(m, i, "ln_2"), NORM_EPS);
    layer_dense(m, vit_part(m, i, "mlp.0"), &dense);
    layer_activation(m, vit_part(m, i, "mlp.1"), ACT_GELU);
    layer_dropout(m, vit_part(m, i, "mlp.2"), (float)o->dropout);
    dense.features = o->width;
    layer_dense(m, vit_part(m, i, "mlp.3"), &dense);
    layer_dropout(m, vit_part(m, i, "mlp.4"), (float)o->dropout);
    layer_drop_path(m, vit_part(m, i, "drop_path2"), layer_depth_drop(o->drop_path, i, o->depth));
}

static void vit_block(struct net *m, const struct vit_options *o, int64_t i)
{
    int x = m->h;

    layer_begin_block(m);
    vit_attention(m, o, i);
    layer_add(m, vit_part(m, i, "add1"), x);
    x = m->h;
    vit_mlp(m, o, i);
    layer_add(m, vit_part(m, i, "add2"), x);
    layer_end_block(m);
}

/* The images must be cut into patches without a rest, and the rows into heads. */
static void vit_check(struct net *m, const struct vit_options *o)
{
    const struct shape *s;

    net_check_heads(m, o->width, o->heads);
    if (m->rc < 0)
        return;
    s = &m->g->value[m->h].shape;
    if (s->n == 4 && o->image && (s->dim[1] != o->image || s->dim[2] != o->image))
        m->rc = err_set(m->err, ERR_CONFIG,
                        "model.image is %lld, but the data's are %lldx%lld; leave it out, or give "
                        "images of that size",
                        (long long)o->image, (long long)s->dim[1], (long long)s->dim[2]);
    else if (s->n == 4 && (s->dim[1] % o->patch || s->dim[2] % o->patch))
        m->rc = err_set(m->err, ERR_CONFIG,
                        "images of %lldx%lld pixels, want multiples of model.patch, %lld",
                        (long long)s->dim[1], (long long)s->dim[2], (long long)o->patch);
}

static void vit_build(struct net *m, const void *options)
{
    const struct vit_options *o = options;
    const int patch = (int)o->patch;
    const struct layer_conv patches = {.channels = o->width,
                                       .kernel = {patch, patch},
                                       .stride = {patch, patch},
                                       .init = CONV_LECUN};

    layer_input(m);
    vit_check(m, o);
    layer_conv(m, "conv_proj", &patches);
    layer_pixels(m, "patches");
    layer_class_token(m, "encoder.embedding", "class_token", "encoder.pos_embedding");
    layer_dropout(m, "encoder.dropout", (float)o->dropout);
    for (int64_t i = 0; i < o->depth; i++)
        vit_block(m, o, i);
    layer_layer_norm(m, "encoder.ln", NORM_EPS);
    layer_first_row(m, "encoder.first");
    layer_dense(m, "heads.head", &(struct layer_dense){.features = net_classes(m, o->classes)});
}

#define VIT(arch, text, ...)                                        \
    static const struct option rows_##arch[] = {ROWS(__VA_ARGS__)}; \
    const struct model_arch arch_##arch = {                         \
        .group = {.name = #arch,                                    \
                  .help = text,                                     \
                  .option = rows_##arch,                            \
                  .n_options = ARRAY_LEN(rows_##arch),              \
                  .size = sizeof(struct vit_options)},              \
        .build = vit_build,                                         \
    };

VIT(vit, "A vision transformer of any size; by default one for small images", "4", "128", "6", "4")
VIT(vit_tiny, "The tiny vision transformer, 5.7 million parameters", "16", "192", "12", "3")
VIT(vit_small, "The small vision transformer, 22 million parameters", "16", "384", "12", "6")
VIT(vit_base, "The base vision transformer, 86 million parameters", "16", "768", "12", "12")
