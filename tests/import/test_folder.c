/* test_folder - networks by the config.json of transformers: what is read, in the forms of versions
 * 4 and 5, and what is refused, with its message.
 *
 * tests/interop/test_folder.py compares what the networks compute. */
#include "../test.h"

#include <math.h>

#include "base/alloc.h"
#include "import/folder_impl.h"
#include "import/pack.h"

#define SIZES                                                                        \
    "\"vocab_size\": 50, \"hidden_size\": 32, \"intermediate_size\": 48, "           \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"rms_norm_eps\": 1e-5, " \
    "\"max_position_embeddings\": 2048"
#define LLAMA(more)    "{\"model_type\": \"llama\", " SIZES more "}"
#define OF(type, more) "{\"model_type\": \"" type "\", " SIZES more "}"

static int parse(const char *text, int64_t context, struct import_network **n, struct err *err)
{
    return folder_parse(text, strlen(text), "/net", context, n, err);
}

static struct import_network *parse_good(const char *text, int64_t context)
{
    struct import_network *n = NULL;
    struct err err;

    if (parse(text, context, &n, &err) < 0)
        fail_msg("%s", err.msg);
    return n;
}

static const struct import_tensor *tensor_of(const struct import_network *n, const char *name)
{
    for (int i = 0; i < n->n_tensors; i++)
        if (!strcmp(n->tensor[i].name, name))
            return &n->tensor[i];
    return NULL;
}

static void test_names(void **state)
{
    struct import_network *n = parse_good(LLAMA(", \"num_key_value_heads\": 2"), 16);
    const struct import_tensor *k = tensor_of(n, "model.layers.1.self_attn.k_proj.weight");

    (void)state;
    assert_non_null(k);
    assert_int_equal(k->dim[0], 16);
    assert_int_equal(k->dim[1], 32);
    assert_non_null(tensor_of(n, "model.norm.weight"));
    assert_non_null(tensor_of(n, "lm_head.weight"));
    assert_null(tensor_of(n, "model.layers.1.self_attn.k_proj.bias"));
    assert_int_equal(n->value[n->input[0].value].dim[1], 16);
    assert_int_equal(n->value[n->output[0].value].dim[2], 50);
    import_network_free(n);
}

static void test_tied(void **state)
{
    struct import_network *n =
        parse_good(LLAMA(", \"tie_word_embeddings\": true, \"attention_bias\": true"), 0);

    (void)state;
    assert_null(tensor_of(n, "lm_head.weight"));
    assert_non_null(tensor_of(n, "model.layers.0.self_attn.o_proj.bias"));
    assert_int_equal(n->value[n->input[0].value].dim[1], FOLDER_MOST_CONTEXT);
    import_network_free(n);
}

/* The elements of the table of cosines. */
static const float *cosines(const struct import_network *n)
{
    return (const float *)(const void *)tensor_of(n, "rotary_cos")->bytes;
}

/* Versions 4 and 5 of transformers write the same positions differently. */
static void test_rope(void **state)
{
    struct import_network *a = parse_good(LLAMA(", \"rope_theta\": 500, \"rope_scaling\": "
                                                "{\"type\": \"linear\", \"factor\": 4}"),
                                          16);
    struct import_network *b =
        parse_good(LLAMA(", \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4.0, "
                         "\"rope_theta\": 500.0}"),
                   16);
    struct import_network *c = parse_good(LLAMA(""), 16);

    (void)state;
    assert_memory_equal(cosines(a), cosines(b), (size_t)16 * 8 * sizeof(float));
    assert_memory_not_equal(cosines(a), cosines(c), (size_t)16 * 8 * sizeof(float));
    /* theta is 1e4, and column 0 turns by 1 a position */
    assert_true(fabsf(cosines(c)[8] - cosf(1)) < 1e-6f);
    assert_true(fabsf(cosines(c)[9] - cosf(0.1f)) < 1e-6f);
    assert_true(fabsf(cosines(a)[8] - cosf(0.25f)) < 1e-6f);
    import_network_free(a);
    import_network_free(b);
    import_network_free(c);
}

/* Versions 4 and 5 of transformers write Gemma 3's two kinds of positions differently. */
static void test_rope_by_type(void **state)
{
    struct import_network *old =
        parse_good(OF("gemma3_text", ", \"rope_theta\": 500, \"rope_local_base_freq\": 50, "
                                     "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}, "
                                     "\"sliding_window_pattern\": 2"),
                   16);
    struct import_network *new = parse_good(
        OF("gemma3_text",
           ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", \"factor\": "
           "4, \"rope_theta\": 500}, \"sliding_attention\": {\"rope_theta\": 50}}, "
           "\"layer_types\": [\"sliding_attention\", \"full_attention\"]"),
        16);
    const char *const names[] = {"rotary_cos", "rotary_sin", "sliding_cos", "sliding_sin"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_memory_equal(tensor_of(old, names[i])->bytes, tensor_of(new, names[i])->bytes,
                            (size_t)16 * 256 * sizeof(float));
    assert_true(fabsf(cosines(new)[256] - cosf(0.25f)) < 1e-6f);
    assert_memory_not_equal(cosines(new), tensor_of(new, "sliding_cos")->bytes, 4096);
    /* norms begin as zeros */
    assert_int_equal(tensor_of(new, "model.norm.weight")->is_even, 1);
    assert_true(tensor_of(new, "model.norm.weight")->even == 0);
    import_network_free(old);
    import_network_free(new);
}

#define GPT2(more)                                                                                \
    "{\"model_type\": \"gpt2\", \"vocab_size\": 50, \"n_embd\": 32, \"n_layer\": 2, \"n_head\": " \
    "4, "                                                                                         \
    "\"n_positions\": 64" more "}"

static int count_nodes(const struct import_network *n, const char *target)
{
    int count = 0;

    for (int i = 0; i < n->n_nodes; i++)
        count += !strcmp(n->node[i].target, target);
    return count;
}

/* Products are [in,out]; keys that are missing leave transformers' defaults. */
static void test_gpt2(void **state)
{
    struct import_network *n = parse_good(GPT2(""), 16);
    struct import_network *dry =
        parse_good(GPT2(", \"resid_pdrop\": 0, \"embd_pdrop\": 0.0, \"n_inner\": 40"), 16);
    const struct import_tensor *w = tensor_of(n, "transformer.h.1.mlp.c_fc.weight");

    (void)state;
    assert_non_null(w);
    assert_int_equal(w->dim[0], 32);
    assert_int_equal(w->dim[1], 128);
    assert_int_equal(tensor_of(dry, "transformer.h.1.mlp.c_fc.weight")->dim[1], 40);
    assert_int_equal(tensor_of(n, "transformer.wpe.weight")->dim[0], 64);
    assert_null(tensor_of(n, "lm_head.weight"));
    assert_int_equal(count_nodes(n, "dropout.default"), 5);
    assert_int_equal(count_nodes(dry, "dropout.default"), 0);
    assert_int_equal(n->packs, 1);
    import_network_free(n);
    import_network_free(dry);
}

#define VIT(more)                                                                               \
    "{\"model_type\": \"vit\", \"hidden_size\": 32, \"intermediate_size\": 48, "                \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"image_size\": 9, \"patch_size\": " \
    "4" more "}"

/* Classes are as many as their names; samples have no context. */
static void test_vit(void **state)
{
    struct import_network *n = parse_good(VIT(", \"qkv_bias\": false"), 0);
    struct import_network *named =
        parse_good(VIT(", \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}"), 0);
    struct err err;

    (void)state;
    assert_int_equal(tensor_of(n, "classifier.weight")->dim[0], 2);
    assert_int_equal(tensor_of(named, "classifier.weight")->dim[0], 3);
    assert_int_equal(tensor_of(n, "vit.embeddings.position_embeddings")->dim[1], 5);
    assert_null(tensor_of(n, "vit.encoder.layer.0.attention.attention.key.bias"));
    assert_non_null(tensor_of(named, "vit.encoder.layer.0.attention.attention.key.bias"));
    assert_int_equal(n->value[n->output[0].value].n_dims, 2);
    import_network_free(n);
    import_network_free(named);
    assert_int_equal(parse(VIT(""), 16, &n, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "model.context is 16, but the network of /net/config.json"));
    assert_int_equal(parse(VIT(", \"id2label\": {}"), 0, &n, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "id2label has 0 classes"));
}

#define BERT(more)                                                                                \
    "{\"model_type\": \"bert\", \"vocab_size\": 50, \"hidden_size\": 32, \"intermediate_size\": " \
    "48, "                                                                                        \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"max_position_embeddings\": 64" more  \
    "}"

/* Places with the token of padding are masked, unless there is none. */
static void test_bert(void **state)
{
    struct import_network *n = parse_good(BERT(""), 16);
    struct import_network *all = parse_good(BERT(", \"pad_token_id\": null"), 16);

    (void)state;
    assert_int_equal(count_nodes(n, "ne.Scalar"), 1);
    assert_int_equal(count_nodes(all, "ne.Scalar"), 0);
    assert_int_equal(count_nodes(n, "dropout.default"), 6);
    assert_int_equal(tensor_of(n, "bert.embeddings.token_type_embeddings.weight")->dim[0], 2);
    assert_int_equal(n->packs, 0);
    import_network_free(n);
    import_network_free(all);
}

/* The context decides which of longrope's lists counts. */
static void test_rope_long(void **state)
{
    static const char text[] =
        OF("phi3", ", \"pad_token_id\": 0, \"original_max_position_embeddings\": 16, "
                   "\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [2, 1, 1, 1], "
                   "\"long_factor\": [4, 1, 1, 1]}");
    struct import_network *narrow = parse_good(text, 16), *wide = parse_good(text, 17);
    const float scale = sqrtf(1 + logf(2048.0f / 16) / logf(16));

    (void)state;
    assert_true(fabsf(cosines(narrow)[8] - scale * cosf(0.5f)) < 1e-6f);
    assert_true(fabsf(cosines(wide)[8] - scale * cosf(0.25f)) < 1e-6f);
    import_network_free(narrow);
    import_network_free(wide);
}

/* Checkpoints are float32, whatever the folder's weights are. */
static void test_config(void **state)
{
    struct import_network *n =
        parse_good(LLAMA(", \"torch_dtype\": \"bfloat16\", \"initializer_range\": 0.05"), 16);
    struct import_network *same = NULL;
    struct buf packed = {0};
    struct err err;

    (void)state;
    assert_non_null(strstr(n->config, "\"torch_dtype\": \"float32\""));
    assert_non_null(strstr(n->config, "\"vocab_size\": 50"));
    assert_int_equal(import_pack(n, &packed, &err), 0);
    assert_int_equal(import_unpack(packed.data, packed.len, &same, &err), 0);
    assert_string_equal(same->config, n->config);
    assert_true(same->init_std == 0.05);
    assert_true(n->packs && same->packs);
    buf_fini(&packed);
    import_network_free(n);
    import_network_free(same);
}

/* Of a file without the key, transformers takes 4096; null says that nothing slides. */
static void test_window_missing(void **state)
{
    static const struct {
        const char *text;
        int slides;
    } rows[] = {
        {OF("mistral", ""), 1},
        {OF("mistral", ", \"sliding_window\": null"), 0},
        {OF("qwen2", ", \"use_sliding_window\": true, \"max_window_layers\": 1"), 1},
        {OF("qwen3", ", \"use_sliding_window\": true, \"max_window_layers\": 0"), 1},
        {OF("qwen2", ""), 0},
        {OF("phi3", ", \"pad_token_id\": 0"), 0},
    };
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct folder_config *c = xcalloc(1, sizeof *c);
        char *written = NULL;

        c->path = "/net";
        if (folder_config_read(rows[i].text, strlen(rows[i].text), c, &written, &err) < 0)
            fail_msg("%s", err.msg);
        assert_int_equal(c->window, rows[i].slides ? 4096 : INT64_MAX);
        assert_int_equal(c->layer[1].slides, rows[i].slides);
        free(written);
        free(c);
    }
}

/* A window as wide as the context needs no mask. */
static void test_window(void **state)
{
    struct import_network *narrow = parse_good(OF("mistral", ", \"sliding_window\": 8"), 16),
                          *wide = parse_good(OF("mistral", ", \"sliding_window\": 16"), 16),
                          *off = parse_good(OF("qwen2", ", \"sliding_window\": 8"), 16);
    const char *mask = tensor_of(narrow, "sliding_mask")->bytes;

    (void)state;
    assert_int_equal(mask[15 * 16 + 8], 1);
    assert_int_equal(mask[15 * 16 + 7], 0);
    assert_int_equal(mask[3 * 16 + 4], 0);
    assert_null(tensor_of(wide, "sliding_mask"));
    assert_null(tensor_of(off, "sliding_mask"));
    import_network_free(narrow);
    import_network_free(wide);
    import_network_free(off);
}

static const struct {
    const char *text;
    int code;
    const char *want; /* in the message */
} bad[] = {
    {"{", ERR_CONFIG, "/net/config.json:1:1: "},
    {"[]", ERR_CONFIG, "no JSON object"},
    {"{}", ERR_UNSUPPORTED, "model_type is missing, want one of llama, mistral"},
    {OF("mamba", ""), ERR_UNSUPPORTED, "model_type is mamba"},
    {"{\"model_type\": \"llama\", \"vocab_size\": 8}", ERR_CONFIG, "it has no hidden_size"},
    {LLAMA(", \"embedding_multiplier\": 12.0"), ERR_UNSUPPORTED, "key embedding_multiplier"},
    {LLAMA(", \"num_key_value_heads\": 3"), ERR_CONFIG, "a multiple of num_key_value_heads, 3"},
    {LLAMA(", \"num_key_value_heads\": 0"), ERR_CONFIG, "num_key_value_heads is 0, want 1"},
    {LLAMA(", \"num_key_value_heads\": \"2\""), ERR_CONFIG, "want a whole number"},
    {LLAMA(", \"tie_word_embeddings\": 1"), ERR_CONFIG, "want true or false"},
    {LLAMA(", \"head_dim\": 7"), ERR_CONFIG, "is 7, want an even number from 2 to 4096"},
    {"{\"model_type\": \"phi3\", \"vocab_size\": 50, \"hidden_size\": 16384, "
     "\"intermediate_size\": 32, \"num_hidden_layers\": 1, \"num_attention_heads\": 1, "
     "\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 64}",
     ERR_CONFIG, "hidden_size / num_attention_heads, is 16384, want an even number from 2 to 4096"},
    {LLAMA(", \"rope_parameters\": {\"rope_type\": \"longrope\", \"short_factor\": "
           "[1, 1, 1, 1], \"long_factor\": [1, 1, 1, 1], "
           "\"original_max_position_embeddings\": 1}"),
     ERR_CONFIG, "original_max_position_embeddings is 1, want a number above 1"},
    {LLAMA(", \"hidden_act\": \"relu\""), ERR_UNSUPPORTED, "hidden_act is relu, want silu"},
    {LLAMA(", \"pad_token_id\": 50"), ERR_CONFIG, "pad_token_id is 50, want null or 0 to 49"},
    {LLAMA(", \"use_sliding_window\": true"), ERR_UNSUPPORTED, "use_sliding_window"},
    {LLAMA(", \"quantization_config\": {\"bits\": 4}"), ERR_UNSUPPORTED, "are quantized"},
    {LLAMA(", \"rope_parameters\": {\"rope_type\": \"axial\"}"), ERR_UNSUPPORTED,
     "rope_type axial is not supported; want default, linear, dynamic, llama3"},
    {LLAMA(", \"rope_parameters\": {\"rope_type\": \"dynamic\"}"), ERR_CONFIG, "factor is missing"},
    {LLAMA(", \"rope_parameters\": {\"rope_type\": \"longrope\", \"short_factor\": [1, 1, 1]}"),
     ERR_CONFIG, "short_factor is no list of 4 numbers, half of head_dim"},
    {LLAMA(", \"rope_parameters\": {\"rope_type\": \"longrope\", \"short_factor\": "
           "[1, 1, 1, 1], \"long_factor\": [1, 1, 0, 1]}"),
     ERR_CONFIG, "long_factor: element 2 is no number above 0"},
    {BERT(", \"position_embedding_type\": \"relative_key\""), ERR_UNSUPPORTED,
     "position_embedding_type is relative_key, want absolute"},
    {BERT(", \"pad_token_id\": 50"), ERR_CONFIG, "pad_token_id is 50, want null or 0 to 49"},
    {BERT(", \"is_decoder\": true"), ERR_UNSUPPORTED, "is_decoder"},
    {VIT(", \"hidden_act\": \"relu\""), ERR_UNSUPPORTED, "hidden_act is relu, want gelu"},
    {VIT(", \"channels\": 3"), ERR_UNSUPPORTED, "key channels is not known"},
    {GPT2(", \"activation_function\": \"relu\""), ERR_UNSUPPORTED,
     "activation_function is relu, want gelu_new"},
    {GPT2(", \"add_cross_attention\": true"), ERR_UNSUPPORTED, "add_cross_attention"},
    {"{\"model_type\": \"gpt2\", \"vocab_size\": 50, \"n_embd\": 32, \"n_layer\": 2, "
     "\"n_head\": 5, \"n_positions\": 64}",
     ERR_CONFIG, "n_embd is 32, want a multiple of n_head, 5"},
    {GPT2(", \"rope_theta\": 5"), ERR_UNSUPPORTED, "key rope_theta is not known"},
    {LLAMA(", \"initializer_range\": 2.0"), ERR_CONFIG, "initializer_range is 2, want 1e-09 to 1"},
    {LLAMA(", \"head_dim\": 8192"), ERR_CONFIG, "head_dim is 8192, want 2 to 4096"},
    {LLAMA(", \"num_key_value_heads\": 2.5"), ERR_CONFIG,
     "num_key_value_heads is a number with a fraction, want a whole number"},
    {LLAMA(", \"final_logit_softcapping\": 30.0"), ERR_UNSUPPORTED, "key final_logit_softcapping"},
    {OF("gemma3_text", ", \"attn_logit_softcapping\": 50.0"), ERR_UNSUPPORTED,
     "attn_logit_softcapping"},
    {OF("gemma3_text", ", \"hidden_activation\": \"silu\""), ERR_UNSUPPORTED,
     "hidden_activation is silu, want gelu_pytorch_tanh"},
    {OF("gemma3_text", ", \"sliding_window\": null"), ERR_CONFIG, "sliding_window is null"},
    {OF("gemma3_text", ", \"sliding_window_pattern\": 0"), ERR_CONFIG, "sliding_window_pattern"},
    {OF("gemma3_text", ", \"use_bidirectional_attention\": true"), ERR_UNSUPPORTED,
     "use_bidirectional_attention"},
    {OF("gemma3_text", ", \"rope_parameters\": {\"rope_theta\": 5.0}"), ERR_UNSUPPORTED,
     "key rope_theta is not known; want full_attention and sliding_attention"},
    {LLAMA(", \"rope_parameters\": {\"mscale\": 1}"), ERR_UNSUPPORTED, "key mscale"},
    {LLAMA(", \"rope_parameters\": {\"partial_rotary_factor\": 0.5}"), ERR_UNSUPPORTED,
     "partial_rotary_factor is 0.5, want 1"},
    {LLAMA(", \"rope_scaling\": {\"type\": \"linear\"}"), ERR_CONFIG, "factor is missing"},
    {LLAMA(", \"rope_theta\": -1"), ERR_CONFIG, "rope_theta is no such number"},
    {OF("qwen2", ", \"layer_types\": [\"full_attention\"]"), ERR_CONFIG, "2 elements"},
    {OF("qwen2", ", \"layer_types\": [\"full_attention\", \"linear\"]"), ERR_UNSUPPORTED,
     "layer 1 is linear"},
    {OF("mistral", ", \"sliding_window\": 0"), ERR_CONFIG, "sliding_window is 0"},
    {OF("phi3", ", \"pad_token_id\": 0, \"resid_pdrop\": 0.1"), ERR_UNSUPPORTED, "resid_pdrop"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct import_network *n = NULL;
        struct err err = {0};

        if (parse(bad[i].text, 16, &n, &err) == 0)
            fail_msg("%s: it was read", bad[i].text);
        if (err.code != bad[i].code || !strstr(err.msg, bad[i].want) ||
            strncmp(err.msg, "/net/config.json", 16) != 0)
            fail_msg("%s: %d, %s", bad[i].text, err.code, err.msg);
    }
}

static void test_context(void **state)
{
    const char *const long_heads =
        "{\"model_type\": \"llama\", \"vocab_size\": 50, \"hidden_size\": 32, "
        "\"intermediate_size\": 48, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, "
        "\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 10000, \"head_dim\": 4096}";
    struct import_network *n = NULL;
    struct err err;

    (void)state;
    assert_int_equal(parse(LLAMA(""), 4096, &n, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "model.context is 4096"));
    assert_int_equal(parse(OF("mistral", ", \"head_dim\": 4096"), 2048, &n, &err), 0);
    import_network_free(n);
    assert_int_equal(folder_parse(long_heads, strlen(long_heads), "/net", 8192, &n, &err),
                     ERR_CONFIG);
    assert_non_null(strstr(err.msg, "model.context is 8192, want at most 4096"));
    assert_true(folder_is("/") && !folder_is("/nowhere"));
    assert_int_equal(folder_read("/nowhere", 0, &n, &err), ERR_IO);
    assert_non_null(strstr(err.msg, "/nowhere/config.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),          cmocka_unit_test(test_tied),
        cmocka_unit_test(test_rope),           cmocka_unit_test(test_config),
        cmocka_unit_test(test_rope_by_type),   cmocka_unit_test(test_rope_long),
        cmocka_unit_test(test_gpt2),           cmocka_unit_test(test_vit),
        cmocka_unit_test(test_bert),           cmocka_unit_test(test_window),
        cmocka_unit_test(test_window_missing), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_context),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
