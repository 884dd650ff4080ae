/* folder_config - config.json of transformers: a row for each key that counts, and a list of those
 * that change no number of the network.
 *
 * Versions 5 and 4 of transformers differ in the rotary positions (rope_parameters; rope_theta and
 * rope_scaling) and in the name of the weights' type (dtype; torch_dtype). */
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/folder_json.h"

static const struct folder_row folder_rows[] = {
    {"vocab_size", ROW_COUNT, FOLDER_AT(vocab), 1, 1, 1 << 24},
    {"hidden_size", ROW_COUNT, FOLDER_AT(width), 1, 1, 1 << 20},
    {"intermediate_size", ROW_COUNT, FOLDER_AT(inner), 1, 1, 1 << 22},
    {"num_hidden_layers", ROW_COUNT, FOLDER_AT(layers), 1, 1, FOLDER_MOST_LAYERS},
    {"num_attention_heads", ROW_COUNT, FOLDER_AT(heads), 1, 1, 65536},
    {"num_key_value_heads", ROW_COUNT, FOLDER_AT(groups), 0, 1, 65536},
    {"head_dim", ROW_COUNT, FOLDER_AT(head_dim), 0, 2, FOLDER_MOST_HEAD},
    {"max_position_embeddings", ROW_COUNT, FOLDER_AT(positions), 1, 1, 1 << 30},
    {"rms_norm_eps", ROW_REAL, FOLDER_AT(eps), 1, 0, 1},
    {"initializer_range", ROW_REAL, FOLDER_AT(std), 0, 1e-9, 1},
    {"attention_dropout", ROW_REAL, FOLDER_AT(dropout), 0, 0, 1},
    {"query_pre_attn_scalar", ROW_REAL, FOLDER_AT(query_scalar), 0, 1e-3, 1e6, 1},
    {"final_logit_softcapping", ROW_REAL, FOLDER_AT(cap), 0, 1e-3, 1e6, 1},
    {"tie_word_embeddings", ROW_FLAG, FOLDER_AT(tied), 0, 0, 1},
    {"attention_bias", ROW_FLAG, FOLDER_AT(attention_bias), 0, 0, 1},
    {"mlp_bias", ROW_FLAG, FOLDER_AT(mlp_bias), 0, 0, 1},
};

/* Keys that are read elsewhere in this file. */
static const char *const folder_read_keys[] = {"model_type",
                                               "hidden_act",
                                               "rope_parameters",
                                               "rope_scaling",
                                               "rope_theta",
                                               "sliding_window",
                                               "use_sliding_window",
                                               "max_window_layers",
                                               "layer_types",
                                               "no_rope_layers",
                                               "no_rope_layer_interval",
                                               "pad_token_id",
                                               "resid_pdrop",
                                               "embd_pdrop",
                                               "partial_rotary_factor",
                                               "is_encoder_decoder",
                                               "pretraining_tp",
                                               "rope_interleaved",
                                               "use_mrope",
                                               NULL};

/* Keys that change no number of the network. */
static const char *const folder_harmless[] = {"_name_or_path",
                                              "architectures",
                                              "attn_implementation",
                                              "_attn_implementation",
                                              "auto_map",
                                              "bos_token_id",
                                              "chunk_size_feed_forward",
                                              "dtype",
                                              "eos_token_id",
                                              "finetuning_task",
                                              "id2label",
                                              "is_llama_config",
                                              "label2id",
                                              "original_max_position_embeddings",
                                              "output_attentions",
                                              "output_hidden_states",
                                              "problem_type",
                                              "quantization_config", /* refused elsewhere */
                                              "return_dict",
                                              "task_specific_params",
                                              "tokenizer_class",
                                              "torch_dtype",
                                              "transformers_version",
                                              "transformers.js_config",
                                              "use_cache",
                                              NULL};

int folder_config_named(const struct config_read *r, int rc)
{
    (void)rc;
    return err_wrap(r->err, "%s/config.json", r->c->path);
}

const json_t *folder_key(const struct config_read *r, const char *key)
{
    const json_t *v = json_object_get(r->root, key);

    return json_is_null(v) ? NULL : v;
}

int folder_is_in(const char *const *list, const char *key)
{
    for (; *list; list++)
        if (!strcmp(*list, key))
            return 1;
    return 0;
}

static int config_is_row(const struct folder_row *rows, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (!rows[i].is_of_few && !strcmp(rows[i].key, key))
            return 1;
    return 0;
}

/* 1: all families know the key, or this one does. */
static int config_knows(const struct config_read *r, const char *key)
{
    const struct folder_family *f = r->c->family;

    if (folder_is_in(folder_harmless, key) || (f->keys && folder_is_in(f->keys, key)))
        return 1;
    return f->form ? config_is_row(f->form->row, f->form->n_rows, key)
                   : folder_is_in(folder_read_keys, key) ||
                         config_is_row(folder_rows, ARRAY_LEN(folder_rows), key);
}

static int config_refuse_unknown(const struct config_read *r)
{
    const char *key;
    json_t *v;

    json_object_foreach(r->root, key, v)
    {
        if (!json_is_null(v) && !config_knows(r, key))
            return config_bad(r, ERR_UNSUPPORTED,
                              "key %.60s is not known, and it could change what the network "
                              "computes; want a network without it (remove the key if it changes "
                              "nothing), or export the network with torch.export.save",
                              key);
    }
    return 0;
}

static const char *config_type(const json_t *v)
{
    return json_is_string(v)    ? "a text"
           : json_is_real(v)    ? "a number with a fraction"
           : json_is_integer(v) ? "a number"
           : json_is_boolean(v) ? "true or false"
           : json_is_array(v)   ? "a list"
                                : "an object";
}

/* The number of a key, whole if it counts something. */
static int config_number(const struct config_read *r, const char *key, const json_t *v,
                         enum row_kind kind, double *to)
{
    static const char *const want[] = {"a whole number", "a number", "true or false"};
    const int fits = kind == ROW_FLAG    ? json_is_boolean(v)
                     : kind == ROW_COUNT ? json_is_integer(v)
                                         : json_is_number(v);

    if (!fits)
        return config_bad(r, ERR_CONFIG, "%s is %s, want %s", key, config_type(v), want[kind]);
    *to = kind == ROW_FLAG ? json_is_true(v) : json_number_value(v);
    return 0;
}

static int config_row(const struct config_read *r, const struct folder_row *row)
{
    char *at = (char *)r->c + row->at;
    const json_t *v = folder_key(r, row->key);
    double number = 0;

    if (!v)
        return row->is_needed
                   ? config_bad(r, ERR_CONFIG,
                                "it has no %s, which the network needs; want the config.json that "
                                "transformers wrote beside the weights",
                                row->key)
                   : 0;
    if (config_number(r, row->key, v, row->kind, &number) < 0)
        return r->err->code;
    if (!(number >= row->least && number <= row->most))
        return config_bad(r, ERR_CONFIG, "%s is %.15g, want %.15g to %.15g", row->key, number,
                          row->least, row->most);
    if (row->kind == ROW_COUNT)
        *(int64_t *)(void *)at = (int64_t)number;
    else if (row->kind == ROW_FLAG)
        *(int *)(void *)at = number != 0;
    else
        *(double *)(void *)at = number;
    return 0;
}

int folder_only(const struct config_read *r, const char *key, double value)
{
    const json_t *v = folder_key(r, key);
    const double seen = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);

    if (!v || ((json_is_number(v) || json_is_boolean(v)) && seen == value))
        return 0;
    return config_bad(r, ERR_UNSUPPORTED, "%s is another one than %g, which alone is supported",
                      key, value);
}

static int config_refuse_quantized(const struct config_read *r)
{
    return folder_key(r, "quantization_config")
               ? config_bad(r, ERR_UNSUPPORTED,
                            "quantization_config: the weights are quantized; want the original "
                            "ones, in float32, bfloat16 or float16")
               : 0;
}

static int config_refuse_values(const struct config_read *r)
{
    const struct folder_family *family = r->c->family;
    const char *const key = family->has_gelu ? "hidden_activation" : "hidden_act",
                      *const want = family->has_gelu ? "gelu_pytorch_tanh" : "silu";
    const json_t *act = folder_key(r, key);

    if (act && (!json_is_string(act) || strcmp(json_string_value(act), want) != 0))
        return config_bad(r, ERR_UNSUPPORTED, "%s is %.40s, want %s", key,
                          json_is_string(act) ? json_string_value(act) : "no text", want);
    if (folder_key(r, "attn_logit_softcapping"))
        return config_bad(r, ERR_UNSUPPORTED,
                          "attn_logit_softcapping: transformers computes no such caps for %s; want "
                          "null",
                          family->type);
    if (folder_only(r, "resid_pdrop", 0) < 0 || folder_only(r, "embd_pdrop", 0) < 0 ||
        folder_only(r, "partial_rotary_factor", 1) < 0 ||
        folder_only(r, "is_encoder_decoder", 0) < 0 || folder_only(r, "rope_interleaved", 0) < 0 ||
        folder_only(r, "use_mrope", 0) < 0 || folder_only(r, "use_bidirectional_attention", 0) < 0)
        return r->err->code;
    return 0;
}

/* ---- layers ---- */

static int config_window(const struct config_read *r)
{
    const json_t *v = folder_key(r, "sliding_window"), *use = folder_key(r, "use_sliding_window");
    struct folder_config *c = r->c;
    const enum folder_window kind = c->family->window;
    const int is_missing = !json_object_get(r->root, "sliding_window") && c->family->span > 0;
    double number = (double)c->family->span;

    c->window = INT64_MAX;
    if (kind == WINDOW_PATTERN && !v && !is_missing)
        return config_bad(r, ERR_CONFIG, "sliding_window is null, want a number");
    if (kind == WINDOW_NONE || (!v && !is_missing) || (kind == WINDOW_TYPES && !json_is_true(use)))
        return kind == WINDOW_NONE && json_is_true(use)
                   ? config_bad(r, ERR_UNSUPPORTED,
                                "use_sliding_window is true, which is not supported for %s",
                                c->family->type)
                   : 0;
    if (v && config_number(r, "sliding_window", v, ROW_COUNT, &number) < 0)
        return r->err->code;
    if (number < 1)
        return config_bad(r, ERR_CONFIG, "sliding_window is %g, want 1 or more", number);
    c->window = (int64_t)number;
    return 0;
}

/* The element of a list of one for each layer. */
static int config_list(const struct config_read *r, const char *key, const json_t **list)
{
    *list = folder_key(r, key);
    if (*list && (!json_is_array(*list) || json_array_size(*list) != (size_t)r->c->layers))
        return config_bad(r, ERR_CONFIG, "%s is no list of %lld elements, one a layer", key,
                          (long long)r->c->layers);
    return 0;
}

/* Each so many layers one does not slide; 0: the key has no such number. */
static int config_pattern(const struct config_read *r)
{
    const json_t *v = folder_key(r, "sliding_window_pattern");
    const json_int_t every = v ? json_integer_value(v) : 6;

    return every > 0 && every <= FOLDER_MOST_LAYERS ? (int)every : 0;
}

/* 1: layer i slides.  < 0: its type is unknown. */
static int config_slides(const struct config_read *r, const json_t *types, int i)
{
    const json_t *first = folder_key(r, "max_window_layers");
    const char *type = types ? json_string_value(json_array_get(types, (size_t)i)) : NULL;
    const int slides = type && !strcmp(type, "sliding_attention");

    if (types && !slides && (!type || strcmp(type, "full_attention") != 0))
        return config_bad(r, ERR_UNSUPPORTED,
                          "layer_types: layer %d is %.40s, want full_attention or "
                          "sliding_attention",
                          i, type ? type : "no text");
    if (r->c->window == INT64_MAX || r->c->family->window == WINDOW_ALL)
        return r->c->window < INT64_MAX;
    if (!types && r->c->family->window == WINDOW_PATTERN)
        return (i + 1) % config_pattern(r) != 0;
    return types ? slides : i >= (first ? (int)json_integer_value(first) : 28);
}

static int config_layers(const struct config_read *r)
{
    const json_t *types, *turns, *every = folder_key(r, "no_rope_layer_interval");
    const json_int_t interval = every ? json_integer_value(every) : 4;
    int slides;

    if (config_list(r, "layer_types", &types) < 0 || config_list(r, "no_rope_layers", &turns) < 0)
        return r->err->code;
    if (interval < 1)
        return config_bad(r, ERR_CONFIG, "no_rope_layer_interval is no number of 1 or more");
    if (!config_pattern(r))
        return config_bad(r, ERR_CONFIG, "sliding_window_pattern is no number of 1 to %d",
                          FOLDER_MOST_LAYERS);
    for (int i = 0; i < r->c->layers; i++) {
        struct folder_layer *l = &r->c->layer[i];

        l->has_rope = !r->c->family->skips_rope ? 1
                      : turns ? json_integer_value(json_array_get(turns, (size_t)i)) != 0
                              : (i + 1) % interval != 0;
        slides = config_slides(r, types, i);
        if (slides < 0)
            return slides;
        l->slides = slides;
    }
    return 0;
}

/* ---- the whole ---- */

static int config_family(const struct config_read *r)
{
    const char *type = json_string_value(folder_key(r, "model_type"));
    char *names;
    int rc = 0;

    r->c->family = type ? folder_family_of(type) : NULL;
    if (r->c->family)
        return 0;
    names = folder_family_names();
    rc = config_bad(r, ERR_UNSUPPORTED,
                    "model_type is %.40s, want one of %s (export other networks with "
                    "torch.export.save)",
                    type ? type : "missing", names);
    free(names);
    return rc;
}

int folder_padding(const struct config_read *r)
{
    struct folder_config *c = r->c;
    const json_t *padding = json_object_get(r->root, "pad_token_id");

    if (padding)
        c->padding = json_is_integer(padding) ? json_integer_value(padding) : -1;
    if (json_is_integer(padding) && c->padding == -1)
        c->padding = c->vocab - 1; /* as PyTorch counts from the end */
    if (c->padding < -1 || c->padding >= c->vocab)
        return config_bad(r, ERR_CONFIG, "pad_token_id is %lld, want null or 0 to %lld",
                          (long long)c->padding, (long long)c->vocab - 1);
    return 0;
}

static int config_sizes(const struct config_read *r)
{
    struct folder_config *c = r->c;

    if (c->heads % c->groups != 0)
        return config_bad(r, ERR_CONFIG,
                          "num_attention_heads is %lld, want a multiple of num_key_value_heads, "
                          "%lld",
                          (long long)c->heads, (long long)c->groups);
    if (c->head_dim == 0 && c->width % c->heads != 0)
        return config_bad(r, ERR_CONFIG,
                          "hidden_size is %lld, want a multiple of num_attention_heads, %lld",
                          (long long)c->width, (long long)c->heads);
    if (c->head_dim == 0)
        c->head_dim = c->width / c->heads;
    if (c->head_dim % 2 != 0 || c->head_dim < 2 || c->head_dim > FOLDER_MOST_HEAD)
        return config_bad(r, ERR_CONFIG,
                          "head_dim, or hidden_size / num_attention_heads, is %lld, want an even "
                          "number from 2 to %d",
                          (long long)c->head_dim, FOLDER_MOST_HEAD);
    return folder_padding(r);
}

static int config_read_rows(const struct config_read *r, const struct folder_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (config_row(r, &rows[i]) < 0)
            return r->err->code;
    return 0;
}

static int config_fill_form(const struct config_read *r, const struct folder_form *form)
{
    form->begin(r->c);
    if (config_refuse_unknown(r) < 0 || config_refuse_quantized(r) < 0 ||
        config_read_rows(r, form->row, form->n_rows) < 0)
        return r->err->code;
    return form->finish(r);
}

static int config_fill(const struct config_read *r)
{
    struct folder_config *c = r->c;

    if (config_family(r) < 0)
        return r->err->code;
    c->query_scalar = c->family->query_scalar;
    c->tied = c->family->tied;
    c->padding = c->family->padding;
    c->std = 0.02;
    c->window = INT64_MAX;
    if (c->family->form)
        return config_fill_form(r, c->family->form);
    if (!json_object_get(r->root, "head_dim"))
        c->head_dim = c->family->head_dim;
    if (config_refuse_unknown(r) < 0 || config_refuse_quantized(r) < 0 ||
        config_read_rows(r, folder_rows, ARRAY_LEN(folder_rows)) < 0)
        return r->err->code;
    c->groups = c->groups ? c->groups : c->heads;
    c->attention_bias &= c->family->bias == BIAS_KEY;
    c->mlp_bias &= c->family->has_mlp_bias;
    if (config_refuse_values(r) < 0 || config_sizes(r) < 0 || folder_config_rope(r) < 0 ||
        config_window(r) < 0)
        return r->err->code;
    return config_layers(r);
}

static int config_classes(const struct config_read *r)
{
    const json_t *names = folder_key(r, "id2label");

    r->c->classes = names ? (int64_t)json_object_size(names) : 2;
    return r->c->classes > 0 && r->c->classes <= FOLDER_MOST_CLASSES
               ? 0
               : config_bad(r, ERR_CONFIG,
                            "id2label has %lld classes, want an object of 1 to %d names",
                            (long long)r->c->classes, FOLDER_MOST_CLASSES);
}

int folder_finish_classes(const struct config_read *r)
{
    struct folder_config *c = r->c;
    const json_t *act = folder_key(r, "hidden_act");

    if (act && (!json_is_string(act) || strcmp(json_string_value(act), "gelu") != 0))
        return config_bad(r, ERR_UNSUPPORTED, "hidden_act is %.40s, want gelu",
                          json_is_string(act) ? json_string_value(act) : "no text");
    if (c->width % c->heads != 0)
        return config_bad(r, ERR_CONFIG,
                          "hidden_size is %lld, want a multiple of num_attention_heads, %lld",
                          (long long)c->width, (long long)c->heads);
    c->head_dim = c->width / c->heads;
    return config_classes(r);
}

/* The weights of our checkpoints are float32. */
static char *config_written(json_t *root)
{
    char *text;

    if (json_object_get(root, "torch_dtype"))
        json_object_set_new(root, "torch_dtype", json_string("float32"));
    if (json_object_get(root, "dtype") || !json_object_get(root, "torch_dtype"))
        json_object_set_new(root, "dtype", json_string("float32"));
    text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    ASSERT(text);
    return text;
}

int folder_config_read(const char *text, size_t len, struct folder_config *c, char **written,
                       struct err *err)
{
    json_error_t why;
    struct config_read r = {.c = c, .err = err};
    int rc;

    r.root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(r.root)) {
        rc = r.root ? err_set(err, ERR_CONFIG, "%s/config.json: no JSON object", c->path)
                    : err_set(err, ERR_CONFIG,
                              "%s/config.json:%d:%d: %s; want the JSON that transformers wrote",
                              c->path, why.line, why.column, why.text);
        json_decref(r.root);
        return rc;
    }
    rc = config_fill(&r);
    if (rc == 0)
        *written = config_written(r.root);
    json_decref(r.root);
    return rc < 0 ? err->code : 0;
}
