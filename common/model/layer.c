/* The layers: each makes its parameters with PyTorch's initial values and appends the nodes that
 * compute it. */
#include "model/layer.h"

#include <inttypes.h>
#include <math.h>

#include "base/buf.h"
#include "op/op.h"

#define NORM_EPS      1e-5F
#define NORM_MOMENTUM 0.1F

static const struct shape *h_shape(const struct net *m) { return &m->g->value[m->h].shape; }

/* "NAME.suffix", in the graph's arena. */
static const char *name_of(struct net *m, const char *name, const char *suffix)
{
    return arena_printf(&m->g->arena, "%s.%s", name, suffix);
}

/* Append a node whose in[0] is h; its first output becomes h. */
static void append(struct net *m, enum op op, const union node_attr *attr, const int *in, int n_in,
                   int *out, const char *name)
{
    if (m->rc < 0)
        return;
    m->rc = graph_node(m->g, op, attr, in, n_in, out, name, m->err);
    if (m->rc == 0)
        m->h = out[0];
}

static float uniform_bound(int64_t fan_in) { return (float)(1 / sqrt((double)fan_in)); }

static int drawn_param(struct net *m, const char *name, const char *suffix, struct shape shape,
                       struct param_info info)
{
    return graph_param(m->g, shape, info, name_of(m, name, suffix));
}

static int norm_param(struct net *m, const char *name, const char *suffix, float value)
{
    const struct shape *s = h_shape(m);
    struct param_info info = {.init = PARAM_CONST, .bound = value, .kind = PARAM_NORM};

    return graph_param(m->g, SHAPE(s->dim[s->n - 1]), info, name_of(m, name, suffix));
}

/* Append the sum with a bias from U(-bound, bound). */
static void append_bias(struct net *m, const char *name, float bound)
{
    int in[2] = {m->h}, out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    if (m->rc < 0)
        return;
    in[1] = drawn_param(
        m, name, "bias", SHAPE(h_shape(m)->dim[h_shape(m)->n - 1]),
        (struct param_info){bound > 0 ? PARAM_UNIFORM : PARAM_CONST, bound, PARAM_BIAS, 0});
    append(m, OP_bias, NULL, in, 2, out, name_of(m, name, "bias"));
}

static const struct sample_field *target_of(const struct net *m)
{
    return &m->spec->field[sample_target(m->spec)];
}

int64_t net_n_outputs(const struct net *m)
{
    const struct sample_field *t = target_of(m);

    return t->role == SAMPLE_CLASS ? t->n_classes : shape_elements(&t->shape);
}

int64_t net_classes(struct net *m, int64_t classes)
{
    const int64_t n = net_n_outputs(m);

    if (m->rc == 0 && classes && classes < n)
        m->rc = err_set(m->err, ERR_CONFIG, "model.classes is %lld, but the data have %lld",
                        (long long)classes, (long long)n);
    return classes ? classes : n;
}

void layer_begin_block(struct net *m)
{
    if (m->n_open++ == 0)
        m->g->block = ++m->g->n_blocks;
}

void layer_end_block(struct net *m)
{
    if (--m->n_open == 0)
        m->g->block = 0;
}

void layer_input(struct net *m)
{
    const int target = sample_target(m->spec), at = target == 0;

    if (m->rc < 0)
        return;
    if (m->spec->n_fields != 2)
        m->rc =
            err_set(m->err, ERR_CONFIG, "samples have %d inputs, want one", m->spec->n_fields - 1);
    else if (m->spec->field[at].dtype != DTYPE_F32)
        m->rc = err_set(m->err, ERR_CONFIG, "input \"%s\" is tokens, want real numbers",
                        m->spec->field[at].name);
    m->h = m->g->input[at];
}

static int or_1(int v) { return v ? v : 1; }

/* h must be images; says so for the layer `name`. */
static int want_images(struct net *m, const char *name)
{
    char text[SHAPE_TEXT_LEN];

    if (m->rc == 0 && h_shape(m)->n != 4)
        m->rc = err_set(m->err, ERR_CONFIG, "%s: its input is %s, want images [N,H,W,C]", name,
                        shape_text(h_shape(m), text));
    return m->rc;
}

/* A convolution's filters [K,C,R,S]. */
static struct param_info conv_weight(const struct shape *w, enum conv_init init)
{
    const int64_t fan_in = shape_elements(w) / w->dim[0],
                  fan_out = w->dim[0] * w->dim[2] * w->dim[3];
    const float bound[] = {[CONV_PYTORCH] = uniform_bound(fan_in),
                           [CONV_KAIMING] = (float)sqrt(2.0 / (double)fan_out),
                           [CONV_LECUN] = uniform_bound(fan_in)};

    return (struct param_info){init == CONV_PYTORCH ? PARAM_UNIFORM : PARAM_NORMAL, bound[init],
                               PARAM_WEIGHT, 0};
}

void layer_conv(struct net *m, const char *name, const struct layer_conv *c)
{
    const int stride = or_1(c->stride), dilation = or_1(c->dilation), groups = or_1(c->groups);
    union node_attr attr = {
        .conv = {
            {stride, stride}, {c->pad, c->pad}, {dilation, dilation}, groups, ACT_NONE, {0}, {0}}};
    int in[2] = {m->h}, out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    struct shape w;

    if (want_images(m, name) < 0)
        return;
    if (h_shape(m)->dim[3] % groups) {
        m->rc = err_set(m->err, ERR_CONFIG, "%s: %lld channels are no multiple of %d groups", name,
                        (long long)h_shape(m)->dim[3], groups);
        return;
    }
    w = SHAPE(c->channels, h_shape(m)->dim[3] / groups, c->kernel, c->kernel);
    in[1] = drawn_param(m, name, "weight", w, conv_weight(&w, c->init));
    append(m, OP_conv2d, &attr, in, 2, out, name);
    if (!c->no_bias)
        append_bias(m, name,
                    c->init == CONV_LECUN ? 0 : uniform_bound(shape_elements(&w) / c->channels));
}

/* The rows or columns of a transposed convolution's output; < 1: it has none. */
static int64_t transposed_extent(int64_t in, const struct layer_conv *c, int extra)
{
    return (in - 1) * or_1(c->stride) - 2 * c->pad + or_1(c->dilation) * (c->kernel - 1) + extra +
           1;
}

static int want_transposable(struct net *m, const char *name, const struct layer_conv *c, int extra)
{
    const int groups = or_1(c->groups);
    const struct shape *x;

    if (want_images(m, name) < 0)
        return m->rc;
    x = h_shape(m);
    if (x->dim[3] % groups || c->channels % groups)
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: %lld and %lld channels are not both multiples of %d groups", name,
                        (long long)x->dim[3], (long long)c->channels, groups);
    else if (extra >= or_1(c->stride) && extra >= or_1(c->dilation))
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: output_padding is %d, want less than the stride or the dilation", name,
                        extra);
    else if (transposed_extent(x->dim[1], c, extra) < 1 ||
             transposed_extent(x->dim[2], c, extra) < 1)
        m->rc = err_set(m->err, ERR_CONFIG, "%s: with so much padding nothing is left", name);
    return m->rc;
}

/* The gradient of a convolution whose output is h: its input is made of it. */
void layer_conv_transpose(struct net *m, const char *name, const struct layer_conv *c, int extra)
{
    const int stride = or_1(c->stride), dilation = or_1(c->dilation), groups = or_1(c->groups);
    int in[2], out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    float bound;
    struct shape w;

    if (want_transposable(m, name, c, extra) < 0)
        return;
    w = SHAPE(h_shape(m)->dim[3], c->channels / groups, c->kernel, c->kernel);
    bound = uniform_bound(shape_elements(&w) / w.dim[0]);
    in[CONV2D_GRAD_X_W] = drawn_param(m, name, "weight", w,
                                      (struct param_info){PARAM_UNIFORM, bound, PARAM_WEIGHT, 0});
    in[CONV2D_GRAD_X_DY] = m->h;
    append(
        m, OP_conv2d_grad_x,
        &(union node_attr){.conv = {.stride = {stride, stride},
                                    .pad = {c->pad, c->pad},
                                    .dilation = {dilation, dilation},
                                    .groups = groups,
                                    .in_image = {transposed_extent(h_shape(m)->dim[1], c, extra),
                                                 transposed_extent(h_shape(m)->dim[2], c, extra)}}},
        in, 2, out, name);
    if (!c->no_bias)
        append_bias(m, name, bound);
}

void layer_conv2d(struct net *m, const char *name, int64_t channels, int kernel, int pad)
{
    layer_conv(m, name, &(struct layer_conv){.channels = channels, .kernel = kernel, .pad = pad});
}

void layer_linear_plain(struct net *m, const char *name, int64_t features)
{
    int in[2] = {m->h}, out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NO_OUT, NODE_NO_OUT};
    char text[SHAPE_TEXT_LEN];
    int64_t fan_in;

    if (m->rc == 0 && h_shape(m)->n != 2)
        m->rc = err_set(m->err, ERR_CONFIG, "%s: its input is %s, want [N,C]; flatten it before",
                        name, shape_text(h_shape(m), text));
    if (m->rc < 0)
        return;
    fan_in = h_shape(m)->dim[1];
    in[1] = drawn_param(m, name, "weight", SHAPE(features, fan_in),
                        (struct param_info){PARAM_UNIFORM, uniform_bound(fan_in), PARAM_WEIGHT, 0});
    append(m, OP_linear, NULL, in, 2, out, name);
}

void layer_linear(struct net *m, const char *name, int64_t features)
{
    const int64_t fan_in = m->rc < 0 ? 1 : h_shape(m)->dim[1];

    layer_linear_plain(m, name, features);
    append_bias(m, name, uniform_bound(fan_in));
}

void layer_activation(struct net *m, const char *name, enum activation kind)
{
    union node_attr attr = {.act.kind = kind};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    append(m, OP_activation, &attr, &m->h, 1, out, name);
}

int layer_embedding(struct net *m, const char *name, const struct layer_embedding *e)
{
    const int target = sample_target(m->spec), at = target == 0;
    const struct sample_field *tokens = &m->spec->field[at];
    const struct param_info info = {PARAM_NORMAL, e->std, PARAM_EMBEDDING, 0};
    const int64_t vocab = e->vocab ? e->vocab : tokens->n_classes;
    int in[3], out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    if (m->rc < 0)
        return NO_VALUE;
    if (m->spec->n_fields != 2 || tokens->dtype != DTYPE_I32 || tokens->shape.n != 1)
        m->rc = err_set(m->err, ERR_CONFIG,
                        "its input is tokens, which these data have not; want data.format tokens "
                        "or text, or a model.arch for such data");
    else if (vocab < tokens->n_classes)
        m->rc = err_set(m->err, ERR_CONFIG, "model.vocab is %lld, but the data have %lld tokens",
                        (long long)vocab, (long long)tokens->n_classes);
    else if (e->positions < tokens->shape.dim[0])
        m->rc = err_set(m->err, ERR_CONFIG,
                        "model.context is %lld, but the data have %lld tokens a sample",
                        (long long)e->positions, (long long)tokens->shape.dim[0]);
    if (m->rc < 0)
        return NO_VALUE;
    m->length = tokens->shape.dim[0];
    in[EMBEDDING_TABLE] = drawn_param(m, e->table, "weight", SHAPE(vocab, e->width), info);
    in[EMBEDDING_TOKENS] = m->g->input[at];
    in[EMBEDDING_POSITION] =
        drawn_param(m, e->position, "weight", SHAPE(e->positions, e->width), info);
    append(m, OP_embedding, NULL, in, 3, out, name);
    return in[EMBEDDING_TABLE];
}

static void linear_of(struct net *m, const char *name, int weight, int transposed)
{
    const union node_attr attr = {.linear.transposed = transposed};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NO_OUT, NODE_NO_OUT};

    append(m, OP_linear, &attr, (const int[]){m->h, weight}, 2, out, name);
}

/* The same elements in another shape. */
static void reshape(struct net *m, const char *name, struct shape shape)
{
    const union node_attr attr = {.reshape.shape = shape};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    append(m, OP_reshape, &attr, &m->h, 1, out, name);
}

void layer_pixels(struct net *m, const char *name)
{
    struct shape s;

    if (want_images(m, name) < 0)
        return;
    s = *h_shape(m);
    m->length = s.dim[1] * s.dim[2];
    reshape(m, name, SHAPE(s.dim[0] * m->length, s.dim[3]));
}

void layer_class_token(struct net *m, const char *name, const char *token, const char *position)
{
    const struct param_info token_info = {PARAM_CONST, 0, PARAM_EMBEDDING, 0},
                            position_info = {PARAM_NORMAL, 0.02F, PARAM_EMBEDDING, 0};
    union node_attr attr = {.class_token.length = m->length + 1};
    int in[3] = {m->h}, out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    int64_t c;

    if (m->rc < 0)
        return;
    c = h_shape(m)->dim[1];
    in[CLASS_TOKEN_TOKEN] = graph_param(m->g, SHAPE(1, 1, c), token_info, token);
    in[CLASS_TOKEN_POSITION] =
        graph_param(m->g, SHAPE(1, m->length + 1, c), position_info, position);
    append(m, OP_class_token, &attr, in, 3, out, name);
    m->length++;
}

static struct param_info dense_param(struct dense_draw draw, enum param_kind kind, int64_t fan_in,
                                     int64_t fan_out)
{
    if (draw.init == DENSE_XAVIER)
        return (struct param_info){PARAM_UNIFORM, (float)sqrt(6.0 / (double)(fan_in + fan_out)),
                                   kind, 0};
    if (draw.init == DENSE_PYTORCH)
        return (struct param_info){PARAM_UNIFORM, uniform_bound(fan_in), kind, 0};
    return (struct param_info){draw.std > 0 ? PARAM_NORMAL : PARAM_CONST, draw.std, kind, 0};
}

void layer_dense(struct net *m, const char *name, const struct layer_dense *d)
{
    const char *between = d->is_joint ? "_" : ".";
    int in[2], out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    int64_t fan_in;
    struct shape weight;

    if (m->rc < 0)
        return;
    fan_in = h_shape(m)->dim[1];
    weight = d->transposed ? SHAPE(fan_in, d->features) : SHAPE(d->features, fan_in);
    linear_of(m, name,
              graph_param(m->g, weight, dense_param(d->weight, PARAM_WEIGHT, fan_in, d->features),
                          arena_printf(&m->g->arena, "%s%sweight", name, between)),
              d->transposed);
    in[0] = m->h;
    in[1] =
        graph_param(m->g, SHAPE(d->features), dense_param(d->bias, PARAM_BIAS, fan_in, d->features),
                    arena_printf(&m->g->arena, "%s%sbias", name, between));
    append(m, OP_bias, NULL, in, 2, out, name_of(m, name, "bias"));
}

void layer_head(struct net *m, const char *name, int weight, int64_t features, float std)
{
    const struct param_info info = {PARAM_NORMAL, std, PARAM_WEIGHT, 0};

    if (m->rc == 0 && weight == NO_VALUE)
        weight = drawn_param(m, name, "weight", SHAPE(features, h_shape(m)->dim[1]), info);
    if (m->rc == 0)
        linear_of(m, name, weight, 0);
}

void layer_attention(struct net *m, const char *name, int64_t heads, int causal, float dropout)
{
    const float p = m->g->training ? dropout : 0;
    const union node_attr attr = {
        .attention = {
            .length = m->length, .heads = heads, .causal = causal, .p = p, .tag = m->n_dropouts}};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, m->g->training ? NODE_NEW_OUT : NODE_NO_OUT};

    m->n_dropouts += p > 0;
    append(m, OP_attention, &attr, (const int[]){m->h, p > 0 ? m->g->scalars : NO_VALUE}, 2, out,
           name);
}

void layer_layer_norm(struct net *m, const char *name, float eps)
{
    const union node_attr attr = {.norm = {.eps = eps}};
    const int optional = m->g->training ? NODE_NEW_OUT : NODE_NO_OUT;
    int in[3] = {m->h}, out[NODE_MAX_OUT] = {NODE_NEW_OUT, optional, optional};

    if (m->rc < 0)
        return;
    in[1] = norm_param(m, name, "weight", 1);
    in[2] = norm_param(m, name, "bias", 0);
    append(m, OP_layer_norm, &attr, in, 3, out, name);
}

void layer_group_norm(struct net *m, const char *name, int64_t groups, float eps)
{
    int in[3] = {m->h, NO_VALUE, NO_VALUE};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NEW_OUT, NODE_NEW_OUT};
    union node_attr attr = {.group_norm = {.groups = groups, .eps = eps}};
    int64_t channels;

    if (groups == 0 && want_images(m, name) < 0)
        return;
    if (m->rc < 0)
        return;
    channels = h_shape(m)->dim[h_shape(m)->n - 1];
    if (groups && channels % groups) {
        m->rc = err_set(m->err, ERR_CONFIG, "%s: %lld channels are no multiple of %lld groups",
                        name, (long long)channels, (long long)groups);
        return;
    }
    if (groups) {
        in[GROUP_NORM_WEIGHT] = norm_param(m, name, "weight", 1);
        in[GROUP_NORM_BIAS] = norm_param(m, name, "bias", 0);
    } else {
        attr.group_norm.groups = channels;
    }
    append(m, OP_group_norm, &attr, in, 3, out, name);
}

static void pool(struct net *m, const char *name, enum pooling kind, const int kernel[2],
                 int stride, int pad)
{
    union node_attr attr = {.pool = {.kind = kind,
                                     .kernel = {kernel[0], kernel[1]},
                                     .stride = {stride, stride},
                                     .pad = {pad, pad},
                                     .count_pad = 1}};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NEW_OUT};

    append(m, OP_pool2d, &attr, &m->h, 1, out, name);
}

void layer_pool(struct net *m, const char *name, enum pooling kind, int kernel, int stride, int pad)
{
    if (want_images(m, name) == 0)
        pool(m, name, kind, (const int[]){kernel, kernel}, stride, pad);
}

void layer_global_avg_pool(struct net *m, const char *name)
{
    if (want_images(m, name) == 0)
        pool(m, name, POOL_AVG, (const int[]){(int)h_shape(m)->dim[1], (int)h_shape(m)->dim[2]}, 1,
             0);
}

void layer_adaptive_avg_pool(struct net *m, const char *name, int64_t size)
{
    char text[SHAPE_TEXT_LEN];
    int64_t h, w;

    if (want_images(m, name) < 0)
        return;
    h = h_shape(m)->dim[1];
    w = h_shape(m)->dim[2];
    if (h % size || w % size || h / size != w / size) {
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: its input is %s, want square images whose size is a multiple of %lld",
                        name, shape_text(h_shape(m), text), (long long)size);
        return;
    }
    pool(m, name, POOL_AVG, (const int[]){(int)(h / size), (int)(w / size)}, (int)(h / size), 0);
}

/* A sample's rows as an image of one row: a pool of single pixels takes the first and no other. */
void layer_first_row(struct net *m, const char *name)
{
    const int64_t length = m->length;
    int64_t n, c;

    if (m->rc < 0)
        return;
    n = h_shape(m)->dim[0] / length;
    c = h_shape(m)->dim[1];
    reshape(m, name_of(m, name, "image"), SHAPE(n, 1, length, c));
    pool(m, name, POOL_AVG, (const int[]){1, 1}, (int)length, 0);
    reshape(m, name_of(m, name, "row"), SHAPE(n, c));
    m->length = 0;
}

void layer_add(struct net *m, const char *name, int other)
{
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    append(m, OP_add, NULL, (const int[]){m->h, other}, 2, out, name);
}

void layer_flatten(struct net *m, const char *name)
{
    union node_attr rows = {0};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    struct shape s;

    if (m->rc < 0 || h_shape(m)->n == 2)
        return;
    s = *h_shape(m);
    rows.reshape.shape = SHAPE(s.dim[0], 1);
    for (int i = 1; i < s.n; i++)
        rows.reshape.shape.dim[1] *= s.dim[i];
    append(m, s.n == 4 ? OP_flatten : OP_reshape, &rows, &m->h, 1, out, name);
}

static void batch_norm_train(struct net *m, const char *name, const int param[2],
                             const int state[2])
{
    union node_attr attr = {.norm = {NORM_EPS, NORM_MOMENTUM, m->sync}};
    int sums[NODE_MAX_OUT] = {NODE_NEW_OUT}, x = m->h;
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, graph_shadow_of(m->g, state[0]),
                             graph_shadow_of(m->g, state[1])};

    append(m, OP_batch_norm_stats, &attr, (int[]){x, state[0]}, 2, sums, name_of(m, name, "stats"));
    if (m->sync)
        append(m, OP_allreduce, NULL, (int[]){sums[0]}, 1, sums, name_of(m, name, "sync"));
    append(m, OP_batch_norm, &attr, (int[]){x, sums[0], param[0], param[1], state[0], state[1]}, 6,
           out, name);
}

void layer_batch_norm(struct net *m, const char *name)
{
    union node_attr attr = {.norm = {NORM_EPS, NORM_MOMENTUM, 0}};
    int param[2], state[2], out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    struct shape channels;

    if (m->rc < 0)
        return;
    param[0] = norm_param(m, name, "weight", 1);
    param[1] = norm_param(m, name, "bias", 0);
    channels = m->g->value[param[0]].shape;
    state[0] = graph_state(m->g, channels, 0, name_of(m, name, "running_mean"));
    state[1] = graph_state(m->g, channels, 1, name_of(m, name, "running_var"));
    if (m->g->training)
        batch_norm_train(m, name, param, state);
    else
        append(m, OP_batch_norm_infer, &attr, (int[]){m->h, param[0], param[1], state[0], state[1]},
               5, out, name);
}

static void drop(struct net *m, const char *name, float p, int whole)
{
    union node_attr attr = {.dropout = {.p = p, .tag = m->n_dropouts, .whole = whole}};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    if (m->rc < 0 || !m->g->training || p == 0)
        return;
    attr.dropout.rows = m->g->batch ? h_shape(m)->dim[0] / m->g->batch : 1;
    m->n_dropouts++;
    append(m, OP_dropout, &attr, (int[]){m->h, m->g->scalars}, 2, out, name);
}

void layer_dropout(struct net *m, const char *name, float p) { drop(m, name, p, 0); }

void layer_drop_path(struct net *m, const char *name, float p) { drop(m, name, p, 1); }

float layer_depth_drop(double most, int64_t i, int64_t n)
{
    return n > 1 ? (float)(most * (double)i / (double)(n - 1)) : (float)most;
}

/* The samples must have the targets that the job's loss compares with. */
static int check_loss(const struct net *m, const struct model_options *o, struct err *err)
{
    static const char *const name[] = {LOSS_LIST(WORD_NAME)};
    const struct sample_field *t = target_of(m);
    const int is_sequence = t->role == SAMPLE_CLASS && t->shape.n == 1;
    const enum loss loss = o->loss;
    struct buf text = {0};

    if (is_sequence && loss == LOSS_CROSS_ENTROPY && m->length == t->shape.dim[0])
        return 0;
    if ((t->role != SAMPLE_CLASS || t->shape.n != 0) &&
        (t->role != SAMPLE_REAL || loss == LOSS_CROSS_ENTROPY)) {
        sample_field_print(t, &text);
        err_set(err, ERR_CONFIG, "model.loss %s needs one class label a %s%s; the target is %s",
                name[loss], m->length ? "token" : "sample",
                loss == LOSS_CROSS_ENTROPY ? "" : ", or real numbers", buf_cstr(&text));
        buf_fini(&text);
        return err->code;
    }
    if (loss != LOSS_CROSS_ENTROPY && o->label_smoothing != 0)
        return err_set(err, ERR_CONFIG,
                       "train.label_smoothing is %g, but model.loss is %s: smoothing belongs to "
                       "cross_entropy; set it to 0",
                       o->label_smoothing, name[loss]);
    return 0;
}

/* Put the class weights into the graph's arena, as float32, multiplied by the power of two that
 * brings the largest of them to [0.5, 1): a mean with weights does not depend on their scale.  Then
 * all weights from 1/64 on are multiples of 1 / WEIGHT_UNITS, and lower ones are rounded to one. */
static int weigh_classes(struct net *m, const struct option_numbers *from, union node_attr *attr,
                         struct err *err)
{
    const struct shape *logits = h_shape(m);
    const int64_t n = logits->dim[logits->n - 1];
    float most = 0, *w;
    int exponent;

    if (from->n == 0)
        return 0;
    if (from->n != n)
        return err_set(err, ERR_CONFIG,
                       "train.class_weights has %d numbers, want %" PRId64 ", one for each class",
                       from->n, n);
    w = arena_alloc(&m->g->arena, (size_t)n * sizeof *w);
    for (int i = 0; i < from->n; i++)
        most = fmaxf(most, (float)from->v[i]);
    (void)frexpf(most, &exponent);
    for (int i = 0; i < from->n; i++) {
        const double scaled = ldexp((double)(float)from->v[i], -exponent);

        w[i] = (float)(rint(scaled * WEIGHT_UNITS) / WEIGHT_UNITS);
        attr->loss.class_weight_sum += (double)w[i];
    }
    attr->loss.class_weight = w;
    return 0;
}

void layer_loss(struct net *m, const char *name, const struct model_options *o)
{
    static const enum pointwise kinds[] = {[LOSS_MSE] = POINTWISE_SQUARED,
                                           [LOSS_L1] = POINTWISE_ABSOLUTE,
                                           [LOSS_BCE] = POINTWISE_LOGISTIC};
    const enum op op = o->loss == LOSS_CROSS_ENTROPY ? OP_softmax_xent : OP_pointwise_loss;
    /* Smoothing helps training; a validation loss with it could not be compared with others. */
    union node_attr attr = {.loss.label_smoothing = m->g->training ? (float)o->label_smoothing : 0};
    int out[NODE_MAX_OUT] = {m->g->training ? NODE_NEW_OUT : NODE_NO_OUT};
    const int target = m->g->input[sample_target(m->spec)];

    if (m->rc == 0)
        m->rc = check_loss(m, o, m->err);
    if (m->rc == 0)
        m->rc = weigh_classes(m, &o->class_weights, &attr, m->err);
    if (m->rc < 0)
        return;
    if (op == OP_pointwise_loss)
        attr.loss.pointwise = kinds[o->loss];
    m->g->logits = m->h;
    attr.loss.counts_top5 = !m->g->training && model_counts_top5(o, m->g);
    append(m, op, &attr, (int[]){m->h, target, m->g->metrics}, 3, out, name);
}
