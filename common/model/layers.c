/* layers - a network that the job file lists layer by layer.
 *
 * A layer is a word, "relu", or a mapping from the word to the layer's keys, {conv: {channels: 20,
 * kernel: 3}}.  Parameters are named as torch.nn.Sequential names them, by the number of the layer
 * in its list: "0.weight".  The layers of a residual, which computes x + (these)(x), stand under
 * its number ("3.0.weight"), and those of its shortcut, which x goes through first, under
 * "3.shortcut".
 *
 * The table `kinds` below is the one list of layers: the check of the job file and the building
 * both walk it. */
#include "model/layers.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "config/tree.h"
#include "model/layer.h"

/* The keys of all kinds of layers; each kind has rows for some. */
struct layer_args {
    int64_t channels, kernel, stride, padding, dilation, groups, units, size, output_padding;
    int bias;
    double p, eps;
    struct layer_recurrent recurrent;
};

struct kind {
    const char *name;
    const struct option *row; /* NULL: the layer has no keys */
    int n_rows;
    enum activation act; /* of a layer that is an activation alone */
    void (*build)(struct net *m, const char *name, const struct layer_args *a);
};

#define AT(field) offsetof(struct layer_args, field)

static const struct option conv_rows[] = {
    {"channels", OPT_INT, AT(channels), NULL, 1, 65536, .flags = OPT_REQUIRED},
    {"kernel", OPT_INT, AT(kernel), NULL, 1, 1024, .flags = OPT_REQUIRED},
    {"stride", OPT_INT, AT(stride), "1", 1, 1024},
    {"padding", OPT_INT, AT(padding), "0", 0, 1024},
    {"dilation", OPT_INT, AT(dilation), "1", 1, 1024},
    {"groups", OPT_INT, AT(groups), "1", 1, 65536},
    {"bias", OPT_BOOL, AT(bias), "true"},
};

static const struct option conv_transpose_rows[] = {
    {"channels", OPT_INT, AT(channels), NULL, 1, 65536, .flags = OPT_REQUIRED},
    {"kernel", OPT_INT, AT(kernel), NULL, 1, 1024, .flags = OPT_REQUIRED},
    {"stride", OPT_INT, AT(stride), "1", 1, 1024},
    {"padding", OPT_INT, AT(padding), "0", 0, 1024},
    {"output_padding", OPT_INT, AT(output_padding), "0", 0, 1024},
    {"dilation", OPT_INT, AT(dilation), "1", 1, 1024},
    {"groups", OPT_INT, AT(groups), "1", 1, 65536},
    {"bias", OPT_BOOL, AT(bias), "true"},
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
    {"kernel", OPT_INT, AT(kernel), NULL, 1, 1024, .flags = OPT_REQUIRED},
    {"stride", OPT_INT, AT(stride), "0", 0, 1024},
    {"padding", OPT_INT, AT(padding), "0", 0, 512},
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

static struct layer_conv conv_of(const struct layer_args *a)
{
    return (struct layer_conv){.channels = a->channels,
                               .kernel = (int)a->kernel,
                               .pad = (int)a->padding,
                               .stride = (int)a->stride,
                               .dilation = (int)a->dilation,
                               .groups = (int)a->groups,
                               .no_bias = !a->bias};
}

static void build_conv(struct net *m, const char *name, const struct layer_args *a)
{
    const struct layer_conv conv = conv_of(a);

    layer_conv(m, name, &conv);
}

static void build_conv_transpose(struct net *m, const char *name, const struct layer_args *a)
{
    const struct layer_conv conv = conv_of(a);

    layer_conv_transpose(m, name, &conv, (int)a->output_padding);
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
                        "%s: its input is %s, want rows [N,C]; flatten it before, or normalise "
                        "images by group_norm: {groups: 1}",
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
    layer_pool(m, name, kind, (int)a->kernel, (int)(a->stride ? a->stride : a->kernel),
               (int)a->padding);
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

static const struct kind kinds[] = {
    {"conv", conv_rows, ARRAY_LEN(conv_rows), ACT_NONE, build_conv},
    {"conv_transpose", conv_transpose_rows, ARRAY_LEN(conv_transpose_rows), ACT_NONE,
     build_conv_transpose},
    {"max_pool", pool_rows, ARRAY_LEN(pool_rows), ACT_NONE, build_max_pool},
    {"avg_pool", pool_rows, ARRAY_LEN(pool_rows), ACT_NONE, build_avg_pool},
    {"global_avg_pool", NULL, 0, ACT_NONE, build_global_avg_pool},
    {"adaptive_avg_pool", adaptive_pool_rows, ARRAY_LEN(adaptive_pool_rows), ACT_NONE,
     build_adaptive_avg_pool},
    {"batch_norm", NULL, 0, ACT_NONE, build_batch_norm},
    {"group_norm", group_norm_rows, ARRAY_LEN(group_norm_rows), ACT_NONE, build_group_norm},
    {"instance_norm", norm_rows, ARRAY_LEN(norm_rows), ACT_NONE, build_instance_norm},
    {"layer_norm", norm_rows, ARRAY_LEN(norm_rows), ACT_NONE, build_layer_norm},
    {"linear", linear_rows, ARRAY_LEN(linear_rows), ACT_NONE, build_linear},
    {"lstm", recurrent_rows, ARRAY_LEN(recurrent_rows), ACT_NONE, build_lstm},
    {"gru", recurrent_rows, ARRAY_LEN(recurrent_rows), ACT_NONE, build_gru},
    {"flatten", NULL, 0, ACT_NONE, build_flatten},
    {"dropout", dropout_rows, ARRAY_LEN(dropout_rows), ACT_NONE, build_dropout},
    {"softmax", NULL, 0, ACT_NONE, build_softmax},
    {"log_softmax", NULL, 0, ACT_NONE, build_log_softmax},
    {"relu", NULL, 0, ACT_RELU, NULL},
    {"tanh", NULL, 0, ACT_TANH, NULL},
    {"sigmoid", NULL, 0, ACT_SIGMOID, NULL},
    {"gelu", NULL, 0, ACT_GELU, NULL},
    {"gelu_tanh", NULL, 0, ACT_GELU_TANH, NULL},
    {"silu", NULL, 0, ACT_SILU, NULL},
    {"leaky_relu", NULL, 0, ACT_LEAKY_RELU, NULL},
};

/* ---- reading one layer ---- */

struct reading {
    struct arena *arena;
    size_t *at; /* of a failure: where in the text */
    struct err *err;
};

static int layers_fail(const struct reading *r, const struct tree *t, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int layers_fail(const struct reading *r, const struct tree *t, const char *fmt, ...)
{
    char text[448];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    *r->at = t->at;
    return err_set(r->err, ERR_CONFIG, "%s", text);
}

static int is_word(const struct tree *t, const char *word)
{
    return t->kind == TREE_WORD && !strcmp(t->text, word);
}

static int layers_is_empty(const struct tree *t)
{
    return is_word(t, "") || is_word(t, "~") || is_word(t, "null") ||
           (t->kind == TREE_MAP && t->n == 0);
}

static int find_kind(const struct reading *r, const struct tree *word, const struct kind **out)
{
    struct buf known = {0};
    char shown[64];
    int rc;

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (is_word(word, kinds[i].name)) {
            *out = &kinds[i];
            return 0;
        }
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        buf_printf(&known, "%s, ", kinds[i].name);
    rc = layers_fail(r, word, "no layer is called %s, want %sresidual or shortcut",
                     show_text(word->text, word->len, shown), buf_cstr(&known));
    buf_fini(&known);
    return rc;
}

static const struct option *layers_find_row(const struct kind *k, const struct tree *key)
{
    for (int i = 0; i < k->n_rows; i++)
        if (is_word(key, k->row[i].key))
            return &k->row[i];
    return NULL;
}

static int layers_fail_key(const struct reading *r, const struct kind *k, const struct tree *key)
{
    struct buf known = {0};
    char shown[64];
    int rc;

    for (int i = 0; i < k->n_rows; i++)
        buf_printf(&known, "%s%s", i ? ", " : "", k->row[i].key);
    rc = layers_fail(r, key, "%s has no key %s, want %s", k->name,
                     show_text(key->text, key->len, shown), k->n_rows ? buf_cstr(&known) : "none");
    buf_fini(&known);
    return rc;
}

static int read_key(const struct reading *r, const struct kind *k, const struct tree *key,
                    const struct tree *value, unsigned *seen, struct layer_args *a)
{
    const struct option *o = layers_find_row(k, key);

    if (!o)
        return layers_fail_key(r, k, key);
    if (*seen >> (o - k->row) & 1)
        return layers_fail(r, key, "%s is given twice", o->key);
    *seen |= 1u << (o - k->row);
    *r->at = value->at;
    if (value->kind != TREE_WORD)
        return option_fail(o, value->kind == TREE_LIST ? "a list" : "a mapping", r->err);
    return option_parse(o, (char *)a + o->offset, r->arena, value->text, value->len,
                        value->is_quoted, r->err);
}

/* A value alone, such as {dropout: 0.5}, is taken for that of the first key. */
static int fail_args(const struct reading *r, const struct kind *k, const struct tree *args)
{
    char shown[64];

    if (k->n_rows == 0)
        return layers_fail(r, args, "%s has no keys; write the word alone", k->name);
    return layers_fail(r, args, "%s wants its keys in a mapping, such as {%s: {%s: %s}}", k->name,
                       k->name, k->row[0].key,
                       args->kind == TREE_WORD ? show_text(args->text, args->len, shown) : "...");
}

static int read_args(const struct reading *r, const struct kind *k, const struct tree *word,
                     const struct tree *args, struct layer_args *a)
{
    unsigned seen = 0;
    int rc = 0;

    *a = (struct layer_args){0};
    if (args && !layers_is_empty(args) && args->kind != TREE_MAP)
        return fail_args(r, k, args);
    for (int i = 0; args && rc == 0 && i < args->n; i++)
        rc = read_key(r, k, args->key[i], args->child[i], &seen, a);
    for (int i = 0; rc == 0 && i < k->n_rows; i++) {
        const struct option *o = &k->row[i];

        if (seen >> i & 1)
            continue;
        if (!o->def)
            return layers_fail(r, word, "%s: %s is missing", k->name, o->key);
        rc = option_parse(o, (char *)a + o->offset, r->arena, o->def, strlen(o->def), 0, r->err);
    }
    return rc;
}

/* ---- walking the list ---- */

/* m NULL: the list is only checked. */
static int walk_list(const struct reading *r, const struct tree *list, struct net *m,
                     const char *prefix);

static const char *layers_name_of(const struct reading *r, const char *prefix, const char *name)
{
    return arena_printf(r->arena, "%s%s", prefix, name);
}

static int walk_plain(const struct reading *r, const struct tree *word, const struct tree *args,
                      struct net *m, const char *name)
{
    const struct kind *k = NULL;
    struct layer_args a;
    int rc = find_kind(r, word, &k);

    if (rc == 0)
        rc = read_args(r, k, word, args, &a);
    if (rc < 0 || !m)
        return rc;
    if (k->build)
        k->build(m, name, &a);
    else
        layer_activation(m, name, k->act);
    return m->rc;
}

/* The value of `key` in an item with residual and shortcut; NULL: absent. */
static const struct tree *branch_of(const struct tree *item, const char *key)
{
    for (int i = 0; i < item->n; i++)
        if (is_word(item->key[i], key))
            return item->child[i];
    return NULL;
}

static int walk_branch(const struct reading *r, const struct tree *list, struct net *m, int x,
                       const char *prefix, int *out)
{
    int rc;

    *out = x;
    if (!list)
        return 0;
    if (list->kind != TREE_LIST)
        return layers_fail(r, list, "residual and shortcut want a list of layers");
    if (m)
        m->h = x;
    rc = walk_list(r, list, m, prefix);
    if (m)
        *out = m->h;
    return rc;
}

/* y, which the residual makes of x, is added to x, or to what the shortcut makes of x. */
static int check_branches(struct net *m, const char *name, int y, int other, int has_shortcut)
{
    const struct shape *a = &m->g->value[y].shape, *b = &m->g->value[other].shape;
    char a_text[SHAPE_TEXT_LEN], b_text[SHAPE_TEXT_LEN];

    if (shape_equal(a, b))
        return 0;
    m->rc = err_set(m->err, ERR_CONFIG,
                    "model.layers: %s: the residual's layers give %s, but its %s %s; %s", name,
                    shape_text(a, a_text), has_shortcut ? "shortcut gives" : "input is",
                    shape_text(b, b_text),
                    has_shortcut ? "both must give the same shape"
                                 : "set shortcut: [layers] beside residual, whose layers give the "
                                   "input that shape");
    return m->rc;
}

static int walk_residual(const struct reading *r, const struct tree *item, struct net *m,
                         const char *name)
{
    const int x = m ? m->h : NO_VALUE;
    int y = x, short_x = x, rc;

    for (int i = 0; i < item->n; i++)
        if (!is_word(item->key[i], "residual") && !is_word(item->key[i], "shortcut"))
            return layers_fail(r, item->key[i], "beside residual stands shortcut alone");
    if (!branch_of(item, "residual"))
        return layers_fail(r, item, "shortcut stands beside residual");
    if (m)
        layer_begin_block(m);
    rc = walk_branch(r, branch_of(item, "residual"), m, x, layers_name_of(r, name, "."), &y);
    if (rc == 0)
        rc = walk_branch(r, branch_of(item, "shortcut"), m, x,
                         layers_name_of(r, name, ".shortcut."), &short_x);
    if (rc < 0 || !m)
        return rc;
    if (check_branches(m, name, y, short_x, branch_of(item, "shortcut") != NULL) < 0)
        return m->rc;
    m->h = y;
    layer_add(m, layers_name_of(r, name, ".add"), short_x);
    layer_end_block(m);
    return m->rc;
}

static int walk_item(const struct reading *r, const struct tree *item, struct net *m,
                     const char *name)
{
    if (item->kind == TREE_WORD)
        return walk_plain(r, item, NULL, m, name);
    if (item->kind == TREE_LIST || item->n == 0)
        return layers_fail(r, item,
                           "a layer is a word or a mapping, such as {linear: {units: 10}}");
    if (branch_of(item, "residual") || branch_of(item, "shortcut"))
        return walk_residual(r, item, m, name);
    if (item->n > 1)
        return layers_fail(r, item->key[1], "a second layer in one item: begin a new one with '-'");
    return walk_plain(r, item->key[0], item->child[0], m, name);
}

static int walk_list(const struct reading *r, const struct tree *list, struct net *m,
                     const char *prefix)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < list->n; i++)
        rc = walk_item(r, list->child[i], m, arena_printf(r->arena, "%s%d", prefix, i));
    return rc;
}

static int layers_walk(const char *text, size_t len, struct arena *arena, struct net *m, size_t *at,
                       struct err *err)
{
    const struct reading r = {arena, at, err};
    const struct tree *list;
    int rc = tree_parse(text, len, arena, &list, at, err);

    if (rc < 0)
        return rc;
    if (list->kind != TREE_LIST || list->n == 0)
        return layers_fail(&r, list,
                           "want a list of layers, such as [flatten, linear: {units: 10}]");
    return walk_list(&r, list, m, "");
}

static int layers_check(const char *text, size_t len, size_t *at, struct err *err)
{
    struct arena arena = {0};
    const int rc = layers_walk(text, len, &arena, NULL, at, err);

    arena_fini(&arena);
    return rc;
}

/* ---- the network ---- */

static int has_parameters(const struct graph *g)
{
    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].role == VALUE_PARAM)
            return 1;
    return 0;
}

static void check_outputs(struct net *m)
{
    const struct shape *s = &m->g->value[m->h].shape;
    char text[SHAPE_TEXT_LEN];

    if (!has_parameters(m->g))
        m->rc = err_set(m->err, ERR_CONFIG,
                        "no layer of model.layers has weights, want one that can be trained, such "
                        "as linear: {units: %lld}",
                        (long long)net_n_outputs(m));
    else if (s->n != 2 || !net_fits_target(m, s->dim[1]))
        m->rc =
            err_set(m->err, ERR_CONFIG,
                    "the last of model.layers gives %s, want [N,%lld]: end with flatten and "
                    "linear: {units: %lld}%s",
                    shape_text(s, text), (long long)net_n_outputs(m), (long long)net_n_outputs(m),
                    s->n == 2 ? net_class_doubt(m, s->dim[1]) : "");
}

static void layers_build(struct net *m, const void *options)
{
    const struct layers_options *o = options;
    size_t at;

    layer_input(m);
    if (m->rc == 0)
        m->rc = layers_walk(o->layers, strlen(o->layers), &m->g->arena, m, &at, m->err);
    if (m->rc == 0)
        check_outputs(m);
}

#undef AT
#define AT(field) offsetof(struct layers_options, field)

static const struct option rows[] = {
    {"model.layers", OPT_TREE, AT(layers), NULL, .flags = OPT_REQUIRED, .tree = layers_check,
     .help = "The layers, in their order: conv: {channels, kernel, stride, padding, dilation, "
             "groups, bias}, conv_transpose: {the same, output_padding}, max_pool and avg_pool: "
             "{kernel, stride, padding}, global_avg_pool, adaptive_avg_pool: {size}, batch_norm, "
             "group_norm: {groups, eps}, instance_norm and layer_norm: {eps}, linear: {units, "
             "bias}, lstm and gru: {units, layers, bidirectional, dropout, return}, flatten, "
             "dropout: {p}, relu, tanh, sigmoid, gelu, gelu_tanh, silu, leaky_relu, softmax and "
             "log_softmax (over features or channels); residual: [layers] adds its input to what "
             "they make of it, with shortcut: [layers] beside it where the shapes differ."},
};

const struct model_arch arch_layers = {
    .group = {.name = "layers",
              .help = "the list of layers that the job file gives",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct layers_options)},
    .build = layers_build,
};
