/* folder - the families of language models, and the network of a description.
 *
 * The modules are transformers': model.embed_tokens, the layers model.layers.0 ... with self_attn
 * and mlp, model.norm and lm_head, whose weight is that of the embedding if they are tied. */
#include "import/folder.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "import/folder_json.h"

enum {
    FOLDER_CONFIG_BYTES = 1 << 20,
    FOLDER_MOST_ANGLES = 1 << 24, /* elements of a table of rotary positions */
    FOLDER_MOST_MASKED = 1 << 14, /* tokens of a mask */
};

static const char *const gemma3_keys[] = {"attn_logit_softcapping",      "cache_implementation",
                                          "final_logit_softcapping",     "hidden_activation",
                                          "query_pre_attn_scalar",       "rope_local_base_freq",
                                          "sliding_window_pattern",      "_sliding_window_pattern",
                                          "use_bidirectional_attention", NULL};

static const char *const gpt2_keys[] = {"activation_function",
                                        "add_cross_attention",
                                        "gradient_checkpointing",
                                        "is_decoder",
                                        "model_type",
                                        "n_ctx",
                                        "pad_token_id",
                                        "reorder_and_upcast_attn",
                                        "scale_attn_weights",
                                        "summary_activation",
                                        "summary_first_dropout",
                                        "summary_proj_to_labels",
                                        "summary_type",
                                        "summary_use_proj",
                                        NULL};

static const char *const bert_keys[] = {"add_cross_attention",
                                        "gradient_checkpointing",
                                        "hidden_act",
                                        "id2label",
                                        "is_decoder",
                                        "label2id",
                                        "model_type",
                                        "pad_token_id",
                                        "position_embedding_type",
                                        "tie_word_embeddings",
                                        NULL};

static const char *const vit_keys[] = {
    "encoder_stride", "hidden_act", "id2label",   "is_decoder",         "is_encoder_decoder",
    "label2id",       "model_type", "pooler_act", "pooler_output_size", NULL};

static const struct folder_family folder_families[] = {
    {.type = "llama", .packs = 1, .bias = BIAS_KEY, .has_mlp_bias = 1, .theta = 1e4, .padding = -1},
    {.type = "mistral",
     .packs = 1,
     .window = WINDOW_ALL,
     .span = 4096,
     .theta = 1e4,
     .padding = -1},
    {.type = "qwen2",
     .packs = 1,
     .bias = BIAS_QKV,
     .window = WINDOW_TYPES,
     .span = 4096,
     .theta = 1e4,
     .padding = -1},
    {.type = "qwen3",
     .packs = 1,
     .bias = BIAS_KEY,
     .qk_norm = QK_NORM_HEAD,
     .window = WINDOW_TYPES,
     .span = 4096,
     .head_dim = 128,
     .theta = 1e4,
     .padding = -1},
    {.type = "smollm3",
     .packs = 1,
     .bias = BIAS_KEY,
     .has_mlp_bias = 1,
     .skips_rope = 1,
     .tied = 1,
     .theta = 2e6,
     .padding = 128004},
    {.type = "olmo2",
     .packs = 1,
     .bias = BIAS_KEY,
     .qk_norm = QK_NORM_ALL,
     .norms = NORMS_BEHIND,
     .theta = 1e4,
     .padding = 1},
    {.type = "phi3",
     .packs = 1,
     .window = WINDOW_ALL,
     .is_joined = 1,
     .theta = 1e4,
     .padding = 32000},
    {.type = "gemma3_text",
     .packs = 1,
     .bias = BIAS_KEY,
     .qk_norm = QK_NORM_HEAD,
     .window = WINDOW_PATTERN,
     .span = 4096,
     .norms = NORMS_BOTH,
     .norms_add_one = 1,
     .scales_embedding = 1,
     .has_gelu = 1,
     .keys = gemma3_keys,
     .tied = 1,
     .head_dim = 256,
     .theta = 1e6,
     .sliding_theta = 1e4,
     .query_scalar = 256,
     .padding = 0},
    {.type = "gpt2", .packs = 1, .form = &folder_gpt2, .keys = gpt2_keys, .tied = 1, .padding = -1},
    {.type = "bert", .form = &folder_bert, .keys = bert_keys, .padding = 0},
    {.type = "vit", .form = &folder_vit, .keys = vit_keys, .padding = -1},
};

const struct folder_family *folder_family_of(const char *type)
{
    for (size_t i = 0; i < ARRAY_LEN(folder_families); i++)
        if (!strcmp(folder_families[i].type, type))
            return &folder_families[i];
    return NULL;
}

char *folder_family_names(void)
{
    struct buf names = {0};
    char *text;

    for (size_t i = 0; i < ARRAY_LEN(folder_families); i++)
        buf_printf(&names, "%s%s", i ? ", " : "", folder_families[i].type);
    text = xstrdup(buf_cstr(&names));
    buf_fini(&names);
    return text;
}

/* ---- layers ---- */

/* The constants that all layers read. */
struct folder_net {
    struct folder_make make;
    const struct folder_config *c;
    int cosine[2], sine[2]; /* of layers that do not slide, and of those that do */
    int mask;               /* NO_VALUE: no layer slides within the context */
};

/* The linear layer `name` of the module `of`. */
static int net_linear(struct folder_net *f, const char *of, const char *name, int x, int64_t out,
                      int has_bias)
{
    struct folder_make *m = &f->make;
    const int64_t in = m->n->value[x].dim[2];
    int weight, bias;

    folder_module(m, "%s.%s", of, name);
    weight = folder_param(m, "weight", out, in);
    bias = has_bias ? folder_param(m, "bias", out, 0) : IMPORT_NO_VALUE;
    return folder_linear(m, x, weight, bias);
}

static int net_norm(struct folder_net *f, const char *of, const char *name, int x)
{
    struct folder_make *m = &f->make;
    const struct import_value *v = &m->n->value[x];
    const int64_t width = v->dim[v->n_dims - 1];
    int weight, y;

    folder_module(m, "%s.%s", of, name);
    if (!f->c->family->norms_add_one)
        return folder_rms_norm(m, x, folder_param(m, "weight", width, 0), f->c->eps);
    weight = folder_zeros(m, "weight", width);
    y = folder_rms_norm(m, x, IMPORT_NO_VALUE, f->c->eps);
    return folder_both(m, "mul.Tensor", y, folder_with(m, "add.Tensor", weight, 1));
}

/* Rotary positions of x [N,H,T,D]: x cos + (-x2, x1) sin. */
static int net_rotate(struct folder_net *f, int x, int slides)
{
    struct folder_make *m = &f->make;
    const int64_t half = f->c->head_dim / 2;
    const int first = folder_slice(m, x, 0, half),
              second = folder_slice(m, x, half, f->c->head_dim);
    const int straight = folder_both(m, "mul.Tensor", x, f->cosine[slides]);
    const int turned = folder_cat(m, folder_one(m, "neg.default", second), first);

    return folder_both(m, "add.Tensor", straight,
                       folder_both(m, "mul.Tensor", turned, f->sine[slides]));
}

/* Queries, keys and values [N,T,heads * D] of x. */
static void net_project(struct folder_net *f, const char *of, int x, int qkv[3])
{
    const struct folder_config *c = f->c;
    const int64_t q = c->heads * c->head_dim, k = c->groups * c->head_dim;
    const int bias = c->family->bias == BIAS_QKV || c->attention_bias;
    int all;

    if (!c->family->is_joined) {
        qkv[0] = net_linear(f, of, "q_proj", x, q, bias);
        qkv[1] = net_linear(f, of, "k_proj", x, k, bias);
        qkv[2] = net_linear(f, of, "v_proj", x, k, bias);
        return;
    }
    all = net_linear(f, of, "qkv_proj", x, q + 2 * k, 0);
    qkv[0] = folder_slice(&f->make, all, 0, q);
    qkv[1] = folder_slice(&f->make, all, q, q + k);
    qkv[2] = folder_slice(&f->make, all, q + k, q + 2 * k);
}

static int net_attention(struct folder_net *f, const char *of, int layer, int x)
{
    static const char *const norm[] = {"q_norm", "k_norm"};
    const struct folder_config *c = f->c;
    struct folder_make *m = &f->make;
    int qkv[3], y;

    net_project(f, of, x, qkv);
    for (int i = 0; i < 3; i++) {
        if (i < 2 && c->family->qk_norm == QK_NORM_ALL)
            qkv[i] = net_norm(f, of, norm[i], qkv[i]);
        qkv[i] = folder_heads(m, qkv[i], i ? c->groups : c->heads);
        if (i < 2 && c->family->qk_norm == QK_NORM_HEAD)
            qkv[i] = net_norm(f, of, norm[i], qkv[i]);
        folder_module(m, "%s", of);
        qkv[i] = folder_turn(m, qkv[i]);
        if (i < 2 && c->layer[layer].has_rope)
            qkv[i] = net_rotate(f, qkv[i], c->layer[layer].slides);
    }
    y = folder_attend(m, qkv, c->layer[layer].slides ? f->mask : IMPORT_NO_VALUE, c->dropout,
                      c->query_scalar > 0 ? 1 / sqrt(c->query_scalar) : 0);
    y = folder_join(m, folder_turn(m, y));
    return net_linear(f, of, "o_proj", y, c->width, c->attention_bias);
}

/* down(silu(gate(x)) * up(x)), or with gelu */
static int net_mlp(struct folder_net *f, const char *of, int x)
{
    const struct folder_config *c = f->c;
    int gate, up;

    if (c->family->is_joined) {
        const int both = net_linear(f, of, "gate_up_proj", x, 2 * c->inner, 0);

        gate = folder_slice(&f->make, both, 0, c->inner);
        up = folder_slice(&f->make, both, c->inner, 2 * c->inner);
    } else {
        gate = net_linear(f, of, "gate_proj", x, c->inner, c->mlp_bias);
        up = net_linear(f, of, "up_proj", x, c->inner, c->mlp_bias);
    }
    folder_module(&f->make, "%s", of);
    gate = c->family->has_gelu ? folder_gelu_tanh(&f->make, gate)
                               : folder_one(&f->make, "silu.default", gate);
    return net_linear(f, of, "down_proj", folder_both(&f->make, "mul.Tensor", gate, up), c->width,
                      c->mlp_bias);
}

static int net_layer(struct folder_net *f, int layer, int x)
{
    struct arena *a = &f->make.n->arena;
    const enum folder_norms norms = f->c->family->norms;
    const char *of = arena_printf(a, "model.layers.%d", layer);
    const char *attention = arena_printf(a, "%s.self_attn", of),
               *mlp = arena_printf(a, "%s.mlp", of);
    const char *const before_mlp =
        norms == NORMS_BOTH ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    int y = norms == NORMS_BEHIND ? x : net_norm(f, of, "input_layernorm", x);

    y = net_attention(f, attention, layer, y);
    if (norms != NORMS_BEFORE)
        y = net_norm(f, of, "post_attention_layernorm", y);
    folder_module(&f->make, "%s", of);
    x = folder_both(&f->make, "add.Tensor", x, y);
    y = net_mlp(f, mlp, norms == NORMS_BEHIND ? x : net_norm(f, of, before_mlp, x));
    if (norms != NORMS_BEFORE)
        y = net_norm(f, of, "post_feedforward_layernorm", y);
    folder_module(&f->make, "%s", of);
    return folder_both(&f->make, "add.Tensor", x, y);
}

/* ---- the whole ---- */

static void net_positions(struct folder_net *f)
{
    static const char *const name[2][2] = {{"rotary_cos", "rotary_sin"},
                                           {"sliding_cos", "sliding_sin"}};
    const struct folder_config *c = f->c;
    const int64_t n = c->context * c->head_dim;
    float *room = xmalloc((size_t)(2 * n) * sizeof *room);

    for (int i = 0; i < 2; i++) {
        if (i == 1 && c->family->sliding_theta == 0) {
            f->cosine[1] = f->cosine[0];
            f->sine[1] = f->sine[0];
            break;
        }
        folder_turns(c, &c->rope[i], room, room + n);
        f->cosine[i] =
            folder_constant(&f->make, name[i][0], IMPORT_F32, c->context, c->head_dim, room);
        f->sine[i] =
            folder_constant(&f->make, name[i][1], IMPORT_F32, c->context, c->head_dim, room + n);
    }
    free(room);
}

/* Each place sees the `window` last ones, itself included. */
static void net_mask(struct folder_net *f)
{
    const int64_t n = f->c->context;
    char *mask;
    int slides = 0;

    f->mask = IMPORT_NO_VALUE;
    for (int i = 0; i < f->c->layers; i++)
        slides |= f->c->layer[i].slides;
    if (!slides || f->c->window >= n)
        return;
    mask = xmalloc((size_t)(n * n));
    for (int64_t i = 0; i < n * n; i++) {
        const int64_t back = i / n - i % n;

        mask[i] = back >= 0 && back < f->c->window;
    }
    f->mask = folder_constant(&f->make, "sliding_mask", IMPORT_BOOL, n, n, mask);
    free(mask);
}

/* cap tanh(x / cap) */
static int net_cap(struct folder_net *f, int x)
{
    struct folder_make *m = &f->make;

    if (f->c->cap == 0)
        return x;
    x = folder_one(m, "tanh.default", folder_with(m, "div.Tensor", x, f->c->cap));
    return folder_with(m, "mul.Tensor", x, f->c->cap);
}

static void net_make(struct import_network *n, const struct folder_config *c)
{
    struct folder_net f = {.c = c};
    int x, table;

    folder_make_begin(&f.make, n, c->layers);
    net_positions(&f);
    net_mask(&f);
    x = folder_input(&f.make, "input_ids", c->context);
    folder_module(&f.make, "model.embed_tokens");
    table = folder_param(&f.make, "weight", c->vocab, c->width);
    x = folder_embed(&f.make, table, x, c->padding);
    if (c->family->scales_embedding)
        x = folder_with(&f.make, "mul.Tensor", x, sqrt((double)c->width));
    for (int i = 0; i < c->layers; i++)
        x = net_layer(&f, i, x);
    x = net_norm(&f, "model", "norm", x);
    folder_module(&f.make, "lm_head");
    if (!c->tied)
        table = folder_param(&f.make, "weight", c->vocab, c->width);
    x = net_cap(&f, folder_linear(&f.make, x, table, IMPORT_NO_VALUE));
    n->output = arena_alloc(&n->arena, sizeof *n->output);
    n->output[n->n_outputs++] = (struct import_port){"logits", x};
}

static int folder_set_context(struct folder_config *c, int64_t context, struct err *err)
{
    if (context && c->family->form && c->family->form->is_of_pictures)
        return err_set(err, ERR_CONFIG,
                       "model.context is %lld, but the network of %s/config.json has no tokens; "
                       "leave the key out",
                       (long long)context, c->path);
    if (context > c->positions)
        return err_set(err, ERR_CONFIG,
                       "model.context is %lld, but max_position_embeddings of %s/config.json is "
                       "%lld; want at most that",
                       (long long)context, c->path, (long long)c->positions);
    c->context = context ? context : min_i64(c->positions, FOLDER_MOST_CONTEXT);
    if (c->context * c->head_dim > FOLDER_MOST_ANGLES)
        return err_set(err, ERR_CONFIG,
                       "model.context is %lld, want at most %lld with the head_dim of "
                       "%s/config.json, %lld",
                       (long long)c->context, (long long)(FOLDER_MOST_ANGLES / c->head_dim),
                       c->path, (long long)c->head_dim);
    if (c->context > FOLDER_MOST_MASKED && c->window < c->context)
        return err_set(err, ERR_CONFIG,
                       "model.context is %lld, want at most %d for a network with a window "
                       "(sliding_window of %s/config.json)",
                       (long long)c->context, FOLDER_MOST_MASKED, c->path);
    return 0;
}

int folder_parse(const char *text, size_t len, const char *path, int64_t context,
                 struct import_network **out, struct err *err)
{
    struct folder_config *c = xcalloc(1, sizeof *c);
    struct import_network *n = import_network_new(path);
    char *written = NULL;
    int rc;

    c->path = path;
    rc = folder_config_read(text, len, c, &written, err);
    if (rc == 0)
        rc = folder_set_context(c, context, err);
    if (rc == 0) {
        n->writer = arena_printf(&n->arena, "transformers' %s", c->family->type);
        n->config = arena_strdup(&n->arena, written);
        n->init_std = c->std;
        n->packs = c->family->packs;
        if (c->family->form)
            c->family->form->make(n, c);
        else
            net_make(n, c);
        rc = import_network_check(n, err);
    }
    free(written);
    free(c);
    if (rc < 0)
        import_network_free(n);
    else
        *out = n;
    return rc;
}

int folder_is(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Read a file of a few kilobytes. */
static int folder_load(const char *path, struct buf *out, struct err *err)
{
    FILE *f = fopen(path, "rbe");
    struct stat st;
    int rc = 0;

    if (!f)
        return err_sys(err, errno,
                       "%s (want a folder with transformers' config.json and model.safetensors)",
                       path);
    if (fstat(fileno(f), &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > FOLDER_CONFIG_BYTES)
        rc = err_set(err, ERR_CONFIG,
                     "%s: want a file of at most %d bytes: transformers' "
                     "config.json",
                     path, FOLDER_CONFIG_BYTES);
    if (rc == 0) {
        uint8_t *to = buf_reserve(out, (size_t)st.st_size + 1);

        out->len += fread(to, 1, (size_t)st.st_size, f);
        if (ferror(f))
            rc = err_sys(err, errno, "%s", path);
        else if (out->len != (size_t)st.st_size)
            rc = err_set(err, ERR_IO, "%s: it became shorter while it was read", path);
    }
    fclose(f);
    return rc;
}

int folder_read(const char *path, int64_t context, struct import_network **out, struct err *err)
{
    char *config = xasprintf("%s/config.json", path);
    struct buf text = {0};
    int rc = folder_load(config, &text, err);

    if (rc == 0)
        rc = folder_parse((const char *)text.data, text.len, path, context, out, err);
    buf_fini(&text);
    free(config);
    return rc;
}
