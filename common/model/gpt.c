/* gpt - GPT-2's networks of four sizes, and of any size, with the names, layouts and initial values
 * of Hugging Face's GPT2LMHeadModel.
 *
 * The embedding transformer.wte plus that of the position, transformer.wpe, and dropout.  Then the
 * blocks transformer.h.0 ...: x + c_proj(attention(c_attn(ln_1(x)))), all of attn, and
 * x + c_proj(gelu(c_fc(ln_2(x)))), both of mlp, with dropout after each c_proj and of the
 * attention's weights; at the end transformer.ln_f and the head lm_head, whose weight is that of
 * wte unless model.tied is false.  The weights of c_attn, c_fc and c_proj are [in,out].
 *
 * Weights begin as N(0, 0.02^2), those of c_proj, which end on the residual path, with
 * 0.02 / sqrt(2 * layers); biases begin as 0. */
#include "model/gpt.h"

#include <math.h>

#include "base/util.h"
#include "model/layer.h"
#include "model/rows.h"

#define AT(field) offsetof(struct gpt_options, field)

#define NORM_EPS 1e-5F
#define STD      0.02

#define ROWS(n_layers, n_heads, n_width, n_context, n_vocab, p)                             \
    ROW_COUNT("model.layers", AT(layers), n_layers, 1, 1000, "blocks",                      \
              "Blocks of attention and MLP."),                                              \
        ROW_HEADS(AT(heads), n_heads),                                                      \
        ROW_COUNT("model.width", AT(width), n_width, 1, 65536, "units",                     \
                  "Size of an embedding, and of what the blocks hand on."),                 \
        ROW_COUNT("model.context", AT(context), n_context, 1, 1 << 20, "tokens",            \
                  "Tokens of a sample, and positions that the model knows."),               \
        ROW_COUNT("model.vocab", AT(vocab), n_vocab, 0, 1 << 24, "tokens",                  \
                  "Different tokens; 0: as many as the data have."),                        \
        ROW_PROBABILITY(                                                                    \
            "model.dropout", AT(dropout), p,                                                \
            "Probability that an embedding, a weight of the attention or a block's output " \
            "is dropped in training."),                                                     \
    {                                                                                       \
        "model.tied", OPT_BOOL, AT(tied), "true",                                           \
            .help = "The head's weight is the embedding's: one parameter for both."         \
    }

static const char *gpt_part(struct net *m, int64_t block, const char *name)
{
    return arena_printf(&m->g->arena, "transformer.h.%lld.%s", (long long)block, name);
}

static void gpt_dense(struct net *m, const char *name, int64_t features, double std)
{
    layer_dense(
        m, name,
        &(struct layer_dense){.features = features, .weight.std = (float)std, .transposed = 1});
}

static void gpt_block(struct net *m, const struct gpt_options *o, int64_t i)
{
    const double residual = STD / sqrt(2 * (double)o->layers);
    const float p = (float)o->dropout;
    int x = m->h;

    layer_begin_block(m);
    layer_layer_norm(m, gpt_part(m, i, "ln_1"), NORM_EPS);
    gpt_dense(m, gpt_part(m, i, "attn.c_attn"), 3 * o->width, STD);
    layer_attention(m, gpt_part(m, i, "attn"), o->heads, 1, p);
    gpt_dense(m, gpt_part(m, i, "attn.c_proj"), o->width, residual);
    layer_dropout(m, gpt_part(m, i, "attn.resid_dropout"), p);
    layer_add(m, gpt_part(m, i, "add1"), x);
    x = m->h;
    layer_layer_norm(m, gpt_part(m, i, "ln_2"), NORM_EPS);
    gpt_dense(m, gpt_part(m, i, "mlp.c_fc"), 4 * o->width, STD);
    layer_activation(m, gpt_part(m, i, "mlp.act"), ACT_GELU_TANH);
    gpt_dense(m, gpt_part(m, i, "mlp.c_proj"), o->width, residual);
    layer_dropout(m, gpt_part(m, i, "mlp.dropout"), p);
    layer_add(m, gpt_part(m, i, "add2"), x);
    layer_end_block(m);
}

static void gpt_build(struct net *m, const void *options)
{
    const struct gpt_options *o = options;
    const struct layer_embedding embedding = {.table = "transformer.wte",
                                              .position = "transformer.wpe",
                                              .vocab = o->vocab,
                                              .positions = o->context,
                                              .width = o->width,
                                              .std = (float)STD};
    int table;

    net_check_heads(m, o->width, o->heads);
    table = layer_embedding(m, "transformer.embedding", &embedding);
    layer_dropout(m, "transformer.drop", (float)o->dropout);
    for (int64_t i = 0; i < o->layers; i++)
        gpt_block(m, o, i);
    layer_layer_norm(m, "transformer.ln_f", NORM_EPS);
    layer_head(m, "lm_head", o->tied ? table : NO_VALUE, o->vocab ? o->vocab : net_n_outputs(m),
               (float)STD);
}

/* The files of Hugging Face's hub have no prefix, masks beside the parameters, and may have the
 * tied weight twice. */
static const char *const masks[] = {".attn.bias", ".attn.masked_bias", NULL};
/* Other names of one formula. */
static const char *const gelus[] = {"gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast",
                                    "gelu_accurate", NULL};

/* GPT2Config.  The size of an MLP (n_inner) is seen by its tensors. */
static const struct config_row config_rows[] = {
    {"n_layer", "num_hidden_layers", "model.layers", "12", CONFIG_SHAPE, 0, NULL},
    {"n_head", "num_attention_heads", "model.heads", "12", CONFIG_NUMBERS, 0, NULL},
    {"n_embd", "hidden_size", "model.width", "768", CONFIG_SHAPE, 0, NULL},
    {"n_positions", "max_position_embeddings", "model.context", "1024", CONFIG_SHAPE, 0, NULL},
    {"vocab_size", NULL, "model.vocab", "50257", CONFIG_SHAPE, 1, NULL},
    {"tie_word_embeddings", NULL, "model.tied", "true", CONFIG_SHAPE, 0, NULL},
    {"resid_pdrop", NULL, "model.dropout", "0.1", CONFIG_TRAINING, 0, NULL},
    {"embd_pdrop", NULL, "model.dropout", "0.1", CONFIG_TRAINING, 0, NULL},
    {"attn_pdrop", NULL, "model.dropout", "0.1", CONFIG_TRAINING, 0, NULL},
    {"activation_function", NULL, NULL, "gelu_new", CONFIG_NUMBERS, 0, gelus},
    {"layer_norm_epsilon", NULL, NULL, "1e-05", CONFIG_NUMBERS, 0, NULL},
    {"scale_attn_weights", NULL, NULL, "true", CONFIG_NUMBERS, 0, NULL},
    {"scale_attn_by_inverse_layer_idx", NULL, NULL, "false", CONFIG_NUMBERS, 0, NULL},
    {"add_cross_attention", NULL, NULL, "false", CONFIG_NUMBERS, 0, NULL},
};
static const struct model_config config = {"gpt2", "GPT2LMHeadModel", config_rows,
                                           ARRAY_LEN(config_rows)};

static const struct model_file file = {"transformer.", masks, "lm_head.weight",
                                       "transformer.wte.weight", &config};

/* any: 1: of any size, which config.json may say. */
#define GPT(arch, any, text, ...)                                   \
    static const struct option rows_##arch[] = {ROWS(__VA_ARGS__)}; \
    const struct model_arch arch_##arch = {                         \
        .group = {.name = #arch,                                    \
                  .help = text,                                     \
                  .option = rows_##arch,                            \
                  .n_options = ARRAY_LEN(rows_##arch),              \
                  .size = sizeof(struct gpt_options)},              \
        .build = gpt_build,                                         \
        .file = &file,                                              \
        .takes_config = any,                                        \
        .packs = 1,                                                 \
    };

GPT(gpt, 1, "GPT-2's network in any size; by default a small one", "4", "4", "128", "64", "0", "0")
GPT(gpt2, 0, "GPT-2, 124 million parameters", "12", "12", "768", "1024", "50257", "0.1")
GPT(gpt2_medium, 0, "GPT-2, 355 million parameters", "24", "16", "1024", "1024", "50257", "0.1")
GPT(gpt2_large, 0, "GPT-2, 774 million parameters", "36", "20", "1280", "1024", "50257", "0.1")
GPT(gpt2_xl, 0, "GPT-2, 1,558 million parameters", "48", "25", "1600", "1024", "50257", "0.1")
