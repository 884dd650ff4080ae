/* folder_vit - ViT for classes of pictures by its config.json: patches and a row for the class,
 * learnt positions, layer norms before attention and MLP.
 *
 * The names are those of files, which are version 4's in version 5 of transformers, too. */
#include "base/util.h"
#include "import/folder_json.h"

enum { VIT_MOST_SIDE = 4096 };

static const struct folder_row vit_rows[] = {
    {"hidden_size", ROW_COUNT, FOLDER_AT(width), 1, 1, 1 << 20, 0},
    {"intermediate_size", ROW_COUNT, FOLDER_AT(inner), 1, 1, 1 << 22, 0},
    {"num_hidden_layers", ROW_COUNT, FOLDER_AT(layers), 1, 1, FOLDER_MOST_LAYERS, 0},
    {"num_attention_heads", ROW_COUNT, FOLDER_AT(heads), 1, 1, 65536, 0},
    {"image_size", ROW_COUNT, FOLDER_AT(side), 1, 1, VIT_MOST_SIDE, 0},
    {"patch_size", ROW_COUNT, FOLDER_AT(patch), 1, 1, VIT_MOST_SIDE, 0},
    {"num_channels", ROW_COUNT, FOLDER_AT(channels), 0, 1, 65536, 0},
    {"layer_norm_eps", ROW_REAL, FOLDER_AT(eps), 0, 0, 1, 0},
    {"initializer_range", ROW_REAL, FOLDER_AT(std), 0, 1e-9, 1, 0},
    {"attention_probs_dropout_prob", ROW_REAL, FOLDER_AT(dropout), 0, 0, 1, 0},
    {"hidden_dropout_prob", ROW_REAL, FOLDER_AT(drop_results), 0, 0, 1, 0},
    {"qkv_bias", ROW_FLAG, FOLDER_AT(attention_bias), 0, 0, 1, 0},
};

static void vit_begin(struct folder_config *c)
{
    c->eps = 1e-12;
    c->channels = 3;
    c->attention_bias = 1;
}

static int vit_finish(const struct config_read *r)
{
    struct folder_config *c = r->c;

    if (folder_finish_classes(r) < 0)
        return r->err->code;
    if (c->patch > c->side)
        return config_bad(r, ERR_CONFIG, "patch_size is %lld, want at most image_size, %lld",
                          (long long)c->patch, (long long)c->side);
    c->positions = (c->side / c->patch) * (c->side / c->patch) + 1;
    return 0;
}

static int vit_norm(struct folder_make *m, const char *of, const char *name, int x, double eps)
{
    folder_module(m, "%s.%s", of, name);
    return folder_layer_norm(m, x, eps);
}

static int vit_attend(struct folder_make *m, const struct folder_config *c, const char *of, int x)
{
    static const char *const name[] = {".attention.attention.query", ".attention.attention.key",
                                       ".attention.attention.value"};
    int qkv[3], y;

    for (int i = 0; i < 3; i++)
        qkv[i] = folder_turn(
            m, folder_heads(m, folder_dense(m, of, name[i], x, c->width, c->attention_bias),
                            c->heads));
    y = folder_attend(m, qkv, FOLDER_SEES_ALL, c->dropout, 0);
    y = folder_dense(m, of, ".attention.output.dense", folder_join(m, folder_turn(m, y)), c->width,
                     1);
    return folder_dropout(m, y, c->drop_results);
}

static int vit_layer(struct folder_make *m, const struct folder_config *c, int layer, int x)
{
    const char *of = arena_printf(&m->n->arena, "vit.encoder.layer.%d", layer);
    int y = vit_attend(m, c, of, vit_norm(m, of, "layernorm_before", x, c->eps));

    folder_module(m, "%s", of);
    x = folder_both(m, "add.Tensor", x, y);
    y = vit_norm(m, of, "layernorm_after", x, c->eps);
    y = folder_one(m, "gelu.default", folder_dense(m, of, ".intermediate.dense", y, c->inner, 1));
    y = folder_dense(m, of, ".output.dense", y, c->width, 1);
    y = folder_dropout(m, y, c->drop_results);
    folder_module(m, "%s", of);
    return folder_both(m, "add.Tensor", x, y);
}

/* Rows of the class and of the patches, with their positions. */
static int vit_embed(struct folder_make *m, const struct folder_config *c)
{
    int x = folder_pixels(m, "pixel_values", c->channels, c->side), weight, bias;

    folder_module(m, "vit.embeddings.patch_embeddings.projection");
    weight =
        folder_param_of(m, "weight", 4, (int64_t[]){c->width, c->channels, c->patch, c->patch});
    bias = folder_param(m, "bias", c->width, 0);
    x = folder_patches(m, x, weight, bias);
    folder_module(m, "vit.embeddings");
    x = folder_put_before(m, folder_param_of(m, "cls_token", 3, (int64_t[]){1, 1, c->width}), x);
    x = folder_both(
        m, "add.Tensor", x,
        folder_param_of(m, "position_embeddings", 3, (int64_t[]){1, c->positions, c->width}));
    return folder_dropout(m, x, c->drop_results);
}

static void vit_make(struct import_network *n, const struct folder_config *c)
{
    struct folder_make m = {0};
    int x;

    folder_make_begin(&m, n, c->layers);
    x = vit_embed(&m, c);
    for (int i = 0; i < c->layers; i++)
        x = vit_layer(&m, c, i, x);
    x = folder_first(&m, vit_norm(&m, "vit", "layernorm", x, c->eps));
    x = folder_dense(&m, "", "classifier", x, c->classes, 1);
    n->output = arena_alloc(&n->arena, sizeof *n->output);
    n->output[n->n_outputs++] = (struct import_port){"logits", x};
}

const struct folder_form folder_vit = {.is_of_pictures = 1,
                                       .row = vit_rows,
                                       .n_rows = ARRAY_LEN(vit_rows),
                                       .begin = vit_begin,
                                       .finish = vit_finish,
                                       .make = vit_make};
