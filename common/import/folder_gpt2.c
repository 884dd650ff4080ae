/* folder_gpt2 - GPT-2 by its config.json: learnt positions, layer norms before attention and MLP,
 * and products whose weights are [in,out], as transformers' Conv1D has them. */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "import/folder_json.h"

static const struct folder_row gpt2_rows[] = {
    {"vocab_size", ROW_COUNT, FOLDER_AT(vocab), 1, 1, 1 << 24, 0},
    {"n_embd", ROW_COUNT, FOLDER_AT(width), 1, 1, 1 << 20, 0},
    {"n_inner", ROW_COUNT, FOLDER_AT(inner), 0, 1, 1 << 22, 0},
    {"n_layer", ROW_COUNT, FOLDER_AT(layers), 1, 1, FOLDER_MOST_LAYERS, 0},
    {"n_head", ROW_COUNT, FOLDER_AT(heads), 1, 1, 65536, 0},
    {"n_positions", ROW_COUNT, FOLDER_AT(positions), 1, 1, 1 << 24, 0},
    {"layer_norm_epsilon", ROW_REAL, FOLDER_AT(eps), 0, 0, 1, 0},
    {"initializer_range", ROW_REAL, FOLDER_AT(std), 0, 1e-9, 1, 0},
    {"attn_pdrop", ROW_REAL, FOLDER_AT(dropout), 0, 0, 1, 0},
    {"resid_pdrop", ROW_REAL, FOLDER_AT(drop_results), 0, 0, 1, 0},
    {"embd_pdrop", ROW_REAL, FOLDER_AT(drop_rows), 0, 0, 1, 0},
    {"tie_word_embeddings", ROW_FLAG, FOLDER_AT(tied), 0, 0, 1, 0},
    {"scale_attn_by_inverse_layer_idx", ROW_FLAG, FOLDER_AT(scales_by_layer), 0, 0, 1, 0},
};

static void gpt2_begin(struct folder_config *c)
{
    c->eps = 1e-5;
    c->dropout = c->drop_results = c->drop_rows = 0.1;
}

static int gpt2_finish(const struct config_read *r)
{
    /* other names of one formula */
    static const char *const gelus[] = {"gelu_new",  "gelu_pytorch_tanh", "gelu_python_tanh",
                                        "gelu_fast", "gelu_accurate",     NULL};
    struct folder_config *c = r->c;
    const json_t *act = folder_key(r, "activation_function");

    if (act && (!json_is_string(act) || !folder_is_in(gelus, json_string_value(act))))
        return config_bad(r, ERR_UNSUPPORTED, "activation_function is %.40s, want gelu_new",
                          json_is_string(act) ? json_string_value(act) : "no text");
    if (folder_only(r, "scale_attn_weights", 1) < 0 || folder_only(r, "add_cross_attention", 0) < 0)
        return r->err->code;
    if (c->width % c->heads != 0)
        return config_bad(r, ERR_CONFIG, "n_embd is %lld, want a multiple of n_head, %lld",
                          (long long)c->width, (long long)c->heads);
    c->head_dim = c->width / c->heads;
    c->inner = c->inner ? c->inner : 4 * c->width;
    return 0;
}

/* The layer `name` of the module `of`: x weight + bias. */
static int gpt2_dense(struct folder_make *m, const char *of, const char *name, int x, int64_t out)
{
    const struct import_value *v = &m->n->value[x];
    int weight, bias;

    folder_module(m, "%s.%s", of, name);
    weight = folder_param(m, "weight", v->dim[v->n_dims - 1], out);
    bias = folder_param(m, "bias", out, 0);
    return folder_both(m, "add.Tensor", folder_product(m, x, weight), bias);
}

static int gpt2_norm(struct folder_make *m, const char *of, const char *name, int x, double eps)
{
    folder_module(m, "%s.%s", of, name);
    return folder_layer_norm(m, x, eps);
}

static int gpt2_attention(struct folder_make *m, const struct folder_config *c, int layer, int x)
{
    const char *of = arena_printf(&m->n->arena, "transformer.h.%d.attn", layer);
    const double scale = 1 / sqrt((double)c->head_dim);
    const int all = gpt2_dense(m, of, "c_attn", x, 3 * c->width);
    int qkv[3], y;

    folder_module(m, "%s", of);
    for (int i = 0; i < 3; i++)
        qkv[i] = folder_turn(
            m, folder_heads(m, folder_slice(m, all, i * c->width, (i + 1) * c->width), c->heads));
    y = folder_attend(m, qkv, IMPORT_NO_VALUE, c->dropout,
                      c->scales_by_layer ? scale / (layer + 1) : scale);
    y = gpt2_dense(m, of, "c_proj", folder_join(m, folder_turn(m, y)), c->width);
    return folder_dropout(m, y, c->drop_results);
}

static int gpt2_layer(struct folder_make *m, const struct folder_config *c, int layer, int x)
{
    const char *of = arena_printf(&m->n->arena, "transformer.h.%d", layer),
               *mlp = arena_printf(&m->n->arena, "%s.mlp", of);
    int y = gpt2_attention(m, c, layer, gpt2_norm(m, of, "ln_1", x, c->eps));

    folder_module(m, "%s", of);
    x = folder_both(m, "add.Tensor", x, y);
    y = gpt2_dense(m, mlp, "c_fc", gpt2_norm(m, of, "ln_2", x, c->eps), c->inner);
    y = gpt2_dense(m, mlp, "c_proj", folder_gelu_tanh(m, y), c->width);
    y = folder_dropout(m, y, c->drop_results);
    folder_module(m, "%s", of);
    return folder_both(m, "add.Tensor", x, y);
}

static void gpt2_make(struct import_network *n, const struct folder_config *c)
{
    struct folder_make m = {0};
    int x, place, table;

    folder_make_begin(&m, n, c->layers);
    x = folder_input(&m, "input_ids", c->context);
    place = folder_numbers(&m, "positions", c->context);
    folder_module(&m, "transformer.wte");
    table = folder_param(&m, "weight", c->vocab, c->width);
    x = folder_embed(&m, table, x, -1);
    folder_module(&m, "transformer.wpe");
    place = folder_embed(&m, folder_param(&m, "weight", c->positions, c->width), place, -1);
    x = folder_both(&m, "add.Tensor", x, place);
    x = folder_dropout(&m, x, c->drop_rows);
    for (int i = 0; i < c->layers; i++)
        x = gpt2_layer(&m, c, i, x);
    x = gpt2_norm(&m, "transformer", "ln_f", x, c->eps);
    folder_module(&m, "lm_head");
    if (!c->tied)
        table = folder_param(&m, "weight", c->vocab, c->width);
    x = folder_linear(&m, x, table, IMPORT_NO_VALUE);
    n->output = arena_alloc(&n->arena, sizeof *n->output);
    n->output[n->n_outputs++] = (struct import_port){"logits", x};
}

const struct folder_form folder_gpt2 = {.row = gpt2_rows,
                                        .n_rows = ARRAY_LEN(gpt2_rows),
                                        .begin = gpt2_begin,
                                        .finish = gpt2_finish,
                                        .make = gpt2_make};
