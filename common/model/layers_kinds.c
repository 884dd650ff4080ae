/* layers_kinds - the table of the layers of model.layers: the keys of each, and the call that
 * builds it. */
#include <string.h>

#include "base/util.h"
#include "model/layers_impl.h"

#define AT(field) offsetof(struct layer_args, field)

#define ROW_PAIR(name, field, value, least, most)                         \
    {                                                                     \
        name, OPT_INT, AT(field), value, least, most, .count = COUNT_PAIR \
    }

static const char *const same[] = {"same", NULL};

#define ROW_PADDING                                                                         \
    {                                                                                       \
        "padding", OPT_INT, AT(padding), "0", 0, 1024, .choices = same, .count = COUNT_PAIR \
    }

#define ROWS_CONV(padding_row)                                                               \
    {"channels", OPT_INT, AT(channels), NULL, 1, 65536, .flags = OPT_REQUIRED},              \
        ROW_PAIR("kernel", kernel, NULL, 1, 1024), ROW_PAIR("stride", stride, "1", 1, 1024), \
        padding_row, ROW_PAIR("dilation", dilation, "1", 1, 1024),                           \
        {"groups", OPT_INT, AT(groups), "1", 1, 65536},                                      \
    {                                                                                        \
        "bias", OPT_BOOL, AT(bias), "true"                                                   \
    }

static const struct option conv_rows[] = {ROWS_CONV(ROW_PADDING)};

static const struct option conv_transpose_rows[] = {
    ROWS_CONV(ROW_PAIR("padding", padding, "0", 0, 1024)),
    ROW_PAIR("output_padding", output_padding, "0", 0, 1024),
};

static const struct option group_norm_rows[] = {
    {"groups", OPT_INT, AT(groups), NULL, 1, 65536, .flags = OPT_REQUIRED},
    {"eps", OPT_REAL, AT(eps), "1e-5", 0, 1},
};

static const struct option norm_rows[] = {
    {"eps", OPT_REAL, AT(eps), "1e-5", 0, 1},
};

static const struct option adaptive_pool_rows[] = {
    {"size", OPT_INT, AT(size), NULL, 1, 65536, .flags = OPT_REQUIRED},
};

/* A stride of 0 stands for the kernel's size. */
static const struct option pool_rows[] = {
    ROW_PAIR("kernel", kernel, NULL, 1, 1024),
    ROW_PAIR("stride", stride, "0", 0, 1024),
    ROW_PAIR("padding", padding, "0", 0, 512),
};

static const struct option linear_rows[] = {
    {"units", OPT_INT, AT(units), NULL, 1, 1e6, .flags = OPT_REQUIRED},
    {"bias", OPT_BOOL, AT(bias), "true"},
};

static const char *const returns[] = {"sequence", "last", NULL}; /* by `last` */

static const struct option recurrent_rows[] = {
    {"units", OPT_INT, AT(recurrent.units), NULL, 1, 65536, .flags = OPT_REQUIRED},
    {"layers", OPT_INT, AT(recurrent.layers), "1", 1, 64},
    {"bidirectional", OPT_BOOL, AT(recurrent.bidirectional), "false"},
    {"dropout", OPT_REAL, AT(recurrent.dropout), "0", 0, 1, .flags = OPT_BELOW},
    {"return", OPT_CHOICE, AT(recurrent.last), "sequence", .choices = returns},
};

static const struct option dropout_rows[] = {
    {"p", OPT_REAL, AT(p), "0.5", 0, 1, .flags = OPT_BELOW},
};

/* torch.nn.RMSNorm's default is what float32 can tell from 1. */
static const struct option rms_norm_rows[] = {
    {"eps", OPT_REAL, AT(eps), "1.1920929e-07", 0, 1},
};

static const struct option embedding_rows[] = {
    {"width", OPT_INT, AT(width), NULL, 1, 65536, .flags = OPT_REQUIRED},
    {"vocab", OPT_INT, AT(vocab), "0", 0, 1e8},
};

static const struct option position_rows[] = {
    {"std", OPT_REAL, AT(std), "0.02", 0, 100},
};

static const struct option attention_rows[] = {
    {"heads", OPT_INT, AT(heads.heads), NULL, 1, 1024, .flags = OPT_REQUIRED},
    {"kv_heads", OPT_INT, AT(heads.kv_heads), "0", 0, 1024},
    {"head_width", OPT_INT, AT(heads.width), "0", 0, 1024},
    {"causal", OPT_BOOL, AT(heads.causal), "false"},
    {"rope", OPT_BOOL, AT(heads.rope), "false"},
    {"rope_base", OPT_REAL, AT(heads.rope_base), "10000", 1, 1e9},
    {"dropout", OPT_REAL, AT(heads.dropout), "0", 0, 1, .flags = OPT_BELOW},
    {"bias", OPT_BOOL, AT(heads.bias), "true"},
};

static const char *const modes[] = {"nearest", "bilinear", NULL}; /* by `is_smooth` */

static const struct option upsample_rows[] = {
    ROW_PAIR("scale", scale, "2", 1, 64),
    {"mode", OPT_CHOICE, AT(is_smooth), "nearest", .choices = modes},
};

#define ROW_NAMES(name)                                       \
    {                                                         \
        name, OPT_NAME, AT(names), NULL, .count = COUNT_NAMES \
    }
#define ROW_DIM                                                        \
    {                                                                  \
        "dim", OPT_INT, AT(dim), "-1", -SHAPE_MAX_DIMS, SHAPE_MAX_DIMS \
    }

static const struct option concat_rows[] = {ROW_NAMES("with"), ROW_DIM};

static const struct option combine_rows[] = {ROW_NAMES("with")};

static const struct option split_rows[] = {
    ROW_NAMES("into"),
    {"sizes", OPT_INTS, AT(list), "", 1, 1e9},
    ROW_DIM,
};

static const struct option permute_rows[] = {
    {"order", OPT_INTS, AT(list), NULL, 0, SHAPE_MAX_DIMS - 1},
};

static const struct option reshape_rows[] = {
    {"shape", OPT_INTS, AT(list), NULL, -1, 1e9},
};

/* A padding of `same` keeps rows and columns; an odd one has its last element at the end. */
static struct layer_conv conv_of(struct net *m, const char *name, const struct layer_args *a)
{
    struct layer_conv c = {.channels = a->channels, .groups = (int)a->groups, .no_bias = !a->bias};

    for (int i = 0; i < 2; i++) {
        const int64_t all = a->dilation[i] * (a->kernel[i] - 1);
        const int is_same = a->padding[i] == option_word(0);

        c.kernel[i] = (int)a->kernel[i];
        c.stride[i] = (int)a->stride[i];
        c.dilation[i] = (int)a->dilation[i];
        c.pad[i] = (int)(is_same ? all / 2 : a->padding[i]);
        c.more[i] = is_same ? (int)(all % 2) : 0;
        if (is_same && a->stride[i] != 1 && m->rc == 0)
            m->rc = err_set(m->err, ERR_CONFIG,
                            "%s: padding is same and stride %lld, want stride 1, or a number as "
                            "padding",
                            name, (long long)a->stride[i]);
    }
    return c;
}

static void build_conv(struct net *m, const char *name, const struct layer_args *a)
{
    const struct layer_conv conv = conv_of(m, name, a);

    layer_conv(m, name, &conv);
}

static void build_conv1d(struct net *m, const char *name, const struct layer_args *a)
{
    const struct layer_conv conv = conv_of(m, name, a);

    layer_conv1d(m, name, &conv);
}

static void build_conv_transpose(struct net *m, const char *name, const struct layer_args *a)
{
    const struct layer_conv conv = conv_of(m, name, a);

    layer_conv_transpose(m, name, &conv,
                         (const int[]){(int)a->output_padding[0], (int)a->output_padding[1]});
}

static void build_group_norm(struct net *m, const char *name, const struct layer_args *a)
{
    layer_group_norm(m, name, a->groups, (float)a->eps);
}

static void build_instance_norm(struct net *m, const char *name, const struct layer_args *a)
{
    layer_group_norm(m, name, 0, (float)a->eps);
}

/* As torch.nn.LayerNorm(C), which on an image would be another norm than torch's. */
static void build_layer_norm(struct net *m, const char *name, const struct layer_args *a)
{
    char text[SHAPE_TEXT_LEN];

    if (m->rc == 0 && m->g->value[m->h].shape.n != 2)
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: its input is %s, want rows [N,C] or sequences [N,T,C]; flatten it "
                        "before, or normalise images by group_norm: {groups: 1}",
                        name, shape_text(&m->g->value[m->h].shape, text));
    layer_layer_norm(m, name, (float)a->eps);
}

static void build_adaptive_avg_pool(struct net *m, const char *name, const struct layer_args *a)
{
    layer_adaptive_avg_pool(m, name, a->size);
}

static void build_pool(struct net *m, const char *name, enum pooling kind,
                       const struct layer_args *a)
{
    struct layer_window w;

    for (int i = 0; i < 2; i++) {
        w.kernel[i] = (int)a->kernel[i];
        w.stride[i] = (int)(a->stride[i] ? a->stride[i] : a->kernel[i]);
        w.pad[i] = (int)a->padding[i];
    }
    layer_pool_window(m, name, kind, &w);
}

static void build_max_pool(struct net *m, const char *name, const struct layer_args *a)
{
    build_pool(m, name, POOL_MAX, a);
}

static void build_avg_pool(struct net *m, const char *name, const struct layer_args *a)
{
    build_pool(m, name, POOL_AVG, a);
}

static void build_global_avg_pool(struct net *m, const char *name, const struct layer_args *a)
{
    (void)a;
    layer_global_avg_pool(m, name);
}

static void build_batch_norm(struct net *m, const char *name, const struct layer_args *a)
{
    (void)a;
    layer_batch_norm(m, name);
}

static void build_flatten(struct net *m, const char *name, const struct layer_args *a)
{
    (void)a;
    layer_flatten(m, name);
}

static void build_linear(struct net *m, const char *name, const struct layer_args *a)
{
    if (a->bias)
        layer_linear(m, name, a->units);
    else
        layer_linear_plain(m, name, a->units);
}

static void build_lstm(struct net *m, const char *name, const struct layer_args *a)
{
    layer_recurrent(m, name, RECURRENT_LSTM, &a->recurrent);
}

static void build_gru(struct net *m, const char *name, const struct layer_args *a)
{
    layer_recurrent(m, name, RECURRENT_GRU, &a->recurrent);
}

static void build_dropout(struct net *m, const char *name, const struct layer_args *a)
{
    layer_dropout(m, name, (float)a->p);
}

static void build_softmax(struct net *m, const char *name, const struct layer_args *a)
{
    (void)a;
    layer_softmax(m, name, 0);
}

static void build_log_softmax(struct net *m, const char *name, const struct layer_args *a)
{
    (void)a;
    layer_softmax(m, name, 1);
}

static void build_rms_norm(struct net *m, const char *name, const struct layer_args *a)
{
    char text[SHAPE_TEXT_LEN];

    if (m->rc == 0 && m->g->value[m->h].shape.n != 2)
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: its input is %s, want rows [N,C] or sequences [N,T,C]; flatten it "
                        "before",
                        name, shape_text(&m->g->value[m->h].shape, text));
    layer_rms_norm(m, name, a->eps);
}

static void build_embedding(struct net *m, const char *name, const struct layer_args *a)
{
    layer_lookup(m, name, a->vocab, a->width);
}

static void build_position(struct net *m, const char *name, const struct layer_args *a)
{
    layer_position(m, name, (float)a->std);
}

static void build_attention(struct net *m, const char *name, const struct layer_args *a)
{
    layer_multi_head(m, name, &a->heads);
}

static void build_mean(struct net *m, const char *name, const struct layer_args *a)
{
    (void)a;
    layer_reduce(m, name, REDUCE_MEAN);
}

static void build_max(struct net *m, const char *name, const struct layer_args *a)
{
    (void)a;
    layer_reduce(m, name, REDUCE_MAX);
}

static void build_upsample(struct net *m, const char *name, const struct layer_args *a)
{
    layer_upsample(m, name, a->scale, a->is_smooth);
}

static void build_permute(struct net *m, const char *name, const struct layer_args *a)
{
    layer_permute(m, name, &a->list);
}

static void build_reshape(struct net *m, const char *name, const struct layer_args *a)
{
    layer_reshape(m, name, &a->list);
}

static void build_concat(struct net *m, const char *name, const struct layer_args *a)
{
    layer_concat(m, name, a->operand, a->names.n, a->dim);
}

static void build_add(struct net *m, const char *name, const struct layer_args *a)
{
    layer_combine(m, name, EW_ADD, a->operand, a->names.n);
}

static void build_mul(struct net *m, const char *name, const struct layer_args *a)
{
    layer_combine(m, name, EW_MUL, a->operand, a->names.n);
}

static void build_split(struct net *m, const char *name, const struct layer_args *a)
{
    layer_split(m, name, a->dim, &a->list, a->names.n, a->part);
}

const struct layer_kind layer_kinds[] = {
    {"conv", conv_rows, ARRAY_LEN(conv_rows), ACT_NONE, build_conv, FORM_WHOLE, 0},
    {"conv1d", conv_rows, ARRAY_LEN(conv_rows), ACT_NONE, build_conv1d, FORM_WHOLE, 0},
    {"conv_transpose", conv_transpose_rows, ARRAY_LEN(conv_transpose_rows), ACT_NONE,
     build_conv_transpose, FORM_WHOLE, 0},
    {"max_pool", pool_rows, ARRAY_LEN(pool_rows), ACT_NONE, build_max_pool, FORM_WHOLE, 0},
    {"avg_pool", pool_rows, ARRAY_LEN(pool_rows), ACT_NONE, build_avg_pool, FORM_WHOLE, 0},
    {"global_avg_pool", NULL, 0, ACT_NONE, build_global_avg_pool, FORM_WHOLE, 0},
    {"adaptive_avg_pool", adaptive_pool_rows, ARRAY_LEN(adaptive_pool_rows), ACT_NONE,
     build_adaptive_avg_pool, FORM_WHOLE, 0},
    {"mean", NULL, 0, ACT_NONE, build_mean, FORM_WHOLE, 0},
    {"max", NULL, 0, ACT_NONE, build_max, FORM_WHOLE, 0},
    {"upsample", upsample_rows, ARRAY_LEN(upsample_rows), ACT_NONE, build_upsample, FORM_WHOLE, 0},
    {"batch_norm", NULL, 0, ACT_NONE, build_batch_norm, FORM_ROWS, 0},
    {"group_norm", group_norm_rows, ARRAY_LEN(group_norm_rows), ACT_NONE, build_group_norm,
     FORM_WHOLE, 0},
    {"instance_norm", norm_rows, ARRAY_LEN(norm_rows), ACT_NONE, build_instance_norm, FORM_WHOLE,
     0},
    {"layer_norm", norm_rows, ARRAY_LEN(norm_rows), ACT_NONE, build_layer_norm, FORM_ROWS, 0},
    {"rms_norm", rms_norm_rows, ARRAY_LEN(rms_norm_rows), ACT_NONE, build_rms_norm, FORM_ROWS, 0},
    {"linear", linear_rows, ARRAY_LEN(linear_rows), ACT_NONE, build_linear, FORM_ROWS, 0},
    {"embedding", embedding_rows, ARRAY_LEN(embedding_rows), ACT_NONE, build_embedding, FORM_WHOLE,
     KIND_INDICES},
    {"position", position_rows, ARRAY_LEN(position_rows), ACT_NONE, build_position, FORM_WHOLE, 0},
    {"attention", attention_rows, ARRAY_LEN(attention_rows), ACT_NONE, build_attention, FORM_ROWS,
     0},
    {"lstm", recurrent_rows, ARRAY_LEN(recurrent_rows), ACT_NONE, build_lstm, FORM_WHOLE, 0},
    {"gru", recurrent_rows, ARRAY_LEN(recurrent_rows), ACT_NONE, build_gru, FORM_WHOLE, 0},
    {"flatten", NULL, 0, ACT_NONE, build_flatten, FORM_WHOLE, 0},
    {"reshape", reshape_rows, ARRAY_LEN(reshape_rows), ACT_NONE, build_reshape, FORM_WHOLE, 0},
    {"permute", permute_rows, ARRAY_LEN(permute_rows), ACT_NONE, build_permute, FORM_WHOLE, 0},
    {"concat", concat_rows, ARRAY_LEN(concat_rows), ACT_NONE, build_concat, FORM_WHOLE, KIND_READS},
    {"add", combine_rows, ARRAY_LEN(combine_rows), ACT_NONE, build_add, FORM_WHOLE, KIND_READS},
    {"mul", combine_rows, ARRAY_LEN(combine_rows), ACT_NONE, build_mul, FORM_WHOLE, KIND_READS},
    {"split", split_rows, ARRAY_LEN(split_rows), ACT_NONE, build_split, FORM_WHOLE, KIND_SAVES},
    {"dropout", dropout_rows, ARRAY_LEN(dropout_rows), ACT_NONE, build_dropout, FORM_ANY, 0},
    {"softmax", NULL, 0, ACT_NONE, build_softmax, FORM_ANY, 0},
    {"log_softmax", NULL, 0, ACT_NONE, build_log_softmax, FORM_ANY, 0},
    {"relu", NULL, 0, ACT_RELU, NULL, FORM_ANY, 0},
    {"tanh", NULL, 0, ACT_TANH, NULL, FORM_ANY, 0},
    {"sigmoid", NULL, 0, ACT_SIGMOID, NULL, FORM_ANY, 0},
    {"gelu", NULL, 0, ACT_GELU, NULL, FORM_ANY, 0},
    {"gelu_tanh", NULL, 0, ACT_GELU_TANH, NULL, FORM_ANY, 0},
    {"silu", NULL, 0, ACT_SILU, NULL, FORM_ANY, 0},
    {"leaky_relu", NULL, 0, ACT_LEAKY_RELU, NULL, FORM_ANY, 0},
};

const int n_layer_kinds = ARRAY_LEN(layer_kinds);
