/* folder_bert - BERT for classes of texts by its config.json: tables of tokens, places and types,
 * layer norms behind attention and MLP, and a pooler.
 *
 * Places with the token pad_token_id are padding, which no place attends to: the attention_mask of
 * transformers' tokenizers says the same.  All tokens are of type 0. */
#include <string.h>

#include "base/util.h"
#include "import/folder_json.h"

static const struct folder_row bert_rows[] = {
    {"vocab_size", ROW_COUNT, FOLDER_AT(vocab), 1, 1, 1 << 24, 0},
    {"hidden_size", ROW_COUNT, FOLDER_AT(width), 1, 1, 1 << 20, 0},
    {"intermediate_size", ROW_COUNT, FOLDER_AT(inner), 1, 1, 1 << 22, 0},
    {"num_hidden_layers", ROW_COUNT, FOLDER_AT(layers), 1, 1, FOLDER_MOST_LAYERS, 0},
    {"num_attention_heads", ROW_COUNT, FOLDER_AT(heads), 1, 1, 65536, 0},
    {"max_position_embeddings", ROW_COUNT, FOLDER_AT(positions), 1, 1, 1 << 24, 0},
    {"type_vocab_size", ROW_COUNT, FOLDER_AT(types), 0, 1, 1 << 20, 0},
    {"layer_norm_eps", ROW_REAL, FOLDER_AT(eps), 0, 0, 1, 0},
    {"initializer_range", ROW_REAL, FOLDER_AT(std), 0, 1e-9, 1, 0},
    {"attention_probs_dropout_prob", ROW_REAL, FOLDER_AT(dropout), 0, 0, 1, 0},
    {"hidden_dropout_prob", ROW_REAL, FOLDER_AT(drop_results), 0, 0, 1, 0},
    {"classifier_dropout", ROW_REAL, FOLDER_AT(drop_head), 0, 0, 1, 0},
};

static void bert_begin(struct folder_config *c)
{
    c->eps = 1e-12;
    c->types = 2;
    c->dropout = c->drop_results = 0.1;
    c->drop_head = -1;
}

static int bert_finish(const struct config_read *r)
{
    struct folder_config *c = r->c;
    const json_t *kind = folder_key(r, "position_embedding_type");

    if (kind && (!json_is_string(kind) || strcmp(json_string_value(kind), "absolute") != 0))
        return config_bad(r, ERR_UNSUPPORTED, "position_embedding_type is %.40s, want absolute",
                          json_is_string(kind) ? json_string_value(kind) : "no text");
    if (folder_only(r, "is_decoder", 0) < 0 || folder_only(r, "add_cross_attention", 0) < 0)
        return r->err->code;
    if (folder_padding(r) < 0)
        return r->err->code;
    c->drop_head = c->drop_head < 0 ? c->drop_results : c->drop_head;
    return folder_finish_classes(r);
}

static int bert_norm(struct folder_make *m, const struct folder_config *c, const char *of, int x)
{
    folder_module(m, "%s.LayerNorm", of);
    return folder_layer_norm(m, x, c->eps);
}

/* norm(dropout(dense(y)) + x) of the module `of`. */
static int bert_output(struct folder_make *m, const struct folder_config *c, const char *of, int y,
                       int x)
{
    y = folder_dropout(m, folder_dense(m, of, ".dense", y, c->width, 1), c->drop_results);
    folder_module(m, "%s", of);
    return bert_norm(m, c, of, folder_both(m, "add.Tensor", y, x));
}

static int bert_layer(struct folder_make *m, const struct folder_config *c, const char *of,
                      int mask, int x)
{
    static const char *const name[] = {".attention.self.query", ".attention.self.key",
                                       ".attention.self.value"};
    struct arena *a = &m->n->arena;
    int qkv[3], y;

    for (int i = 0; i < 3; i++)
        qkv[i] =
            folder_turn(m, folder_heads(m, folder_dense(m, of, name[i], x, c->width, 1), c->heads));
    y = folder_join(m, folder_turn(m, folder_attend(m, qkv, mask, c->dropout, 0)));
    x = bert_output(m, c, arena_printf(a, "%s.attention.output", of), y, x);
    y = folder_one(m, "gelu.default", folder_dense(m, of, ".intermediate.dense", x, c->inner, 1));
    return bert_output(m, c, arena_printf(a, "%s.output", of), y, x);
}

/* The rows `tokens` of a table of the embedding. */
static int bert_rows_of(struct folder_make *m, const struct folder_config *c, const char *name,
                        int64_t n, int tokens)
{
    const int is_of_words = !strcmp(name, "word_embeddings");

    folder_module(m, "bert.embeddings.%s", name);
    return folder_embed(m, folder_param(m, "weight", n, c->width), tokens,
                        is_of_words ? c->padding : -1);
}

static void bert_make(struct import_network *n, const struct folder_config *c)
{
    struct folder_make m = {0};
    int x, ids, mask = FOLDER_SEES_ALL, place, type;

    folder_make_begin(&m, n, c->layers);
    ids = folder_input(&m, "input_ids", c->context);
    place = folder_numbers(&m, "positions", c->context);
    type = folder_numbers(&m, "token_type", 1);
    if (c->padding >= 0)
        mask = folder_is_no_padding(&m, ids, c->padding);
    x = bert_rows_of(&m, c, "word_embeddings", c->vocab, ids);
    place = bert_rows_of(&m, c, "position_embeddings", c->positions, place);
    x = folder_both(&m, "add.Tensor", x, place);
    type = bert_rows_of(&m, c, "token_type_embeddings", c->types, type);
    x = bert_norm(&m, c, "bert.embeddings", folder_both(&m, "add.Tensor", x, type));
    x = folder_dropout(&m, x, c->drop_results);
    for (int i = 0; i < c->layers; i++)
        x = bert_layer(&m, c, arena_printf(&n->arena, "bert.encoder.layer.%d", i), mask, x);
    x = folder_dense(&m, "bert", ".pooler.dense", folder_first(&m, x), c->width, 1);
    x = folder_dropout(&m, folder_one(&m, "tanh.default", x), c->drop_head);
    x = folder_dense(&m, "", "classifier", x, c->classes, 1);
    n->output = arena_alloc(&n->arena, sizeof *n->output);
    n->output[n->n_outputs++] = (struct import_port){"logits", x};
}

const struct folder_form folder_bert = {.row = bert_rows,
                                        .n_rows = ARRAY_LEN(bert_rows),
                                        .begin = bert_begin,
                                        .finish = bert_finish,
                                        .make = bert_make};
