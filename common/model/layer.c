/* The layers that compute one value from another: each makes its parameters with PyTorch's initial
 * values and appends the nodes that compute it.  layer_impl.h names the files of the others. */
#include "model/layer.h"

#include <math.h>

#include "base/util.h"
#include "model/layer_impl.h"
#include "op/compose.h"

const struct shape *net_shape(const struct net *m) { return &m->g->value[m->h].shape; }

const char *net_name(struct net *m, const char *name, const char *suffix)
{
    return arena_printf(&m->g->arena, "%s.%s", name, suffix);
}

void net_append(struct net *m, enum op op, const union node_attr *attr, const int *in, int n_in,
                int *out, const char *name)
{
    if (m->rc < 0)
        return;
    m->rc = graph_node(m->g, op, attr, in, n_in, out, name, m->err);
    if (m->rc == 0)
        m->h = out[0];
}

float net_uniform_bound(int64_t fan_in) { return (float)(1 / sqrt((double)fan_in)); }

int net_param(struct net *m, const char *name, const char *suffix, struct shape shape,
              struct param_info info)
{
    return graph_param(m->g, shape, info, net_name(m, name, suffix));
}

/* Append the sum with a bias from U(-bound, bound). */
static void append_bias(struct net *m, const char *name, float bound)
{
    int in[2] = {m->h}, out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    if (m->rc < 0)
        return;
    in[1] = net_param(
        m, name, "bias", SHAPE(net_shape(m)->dim[net_shape(m)->n - 1]),
        (struct param_info){bound > 0 ? PARAM_UNIFORM : PARAM_CONST, bound, PARAM_BIAS, 0});
    net_append(m, OP_bias, NULL, in, 2, out, net_name(m, name, "bias"));
}

const struct sample_field *net_target(const struct net *m)
{
    return &m->spec->field[sample_target(m->spec)];
}

int64_t net_n_outputs(const struct net *m)
{
    const struct sample_field *t = net_target(m);

    return t->role == SAMPLE_CLASS ? t->n_classes : shape_elements(&t->shape);
}

int net_fits_target(const struct net *m, int64_t outputs)
{
    const int64_t n = net_n_outputs(m);

    return net_target(m)->role == SAMPLE_CLASS ? outputs >= n : outputs == n;
}

const char *net_class_doubt(const struct net *m, int64_t outputs)
{
    const struct sample_field *t = net_target(m);

    if (t->role != SAMPLE_CLASS || outputs >= t->n_classes)
        return "";
    return "; labels that are numbers belong in float32, and one that marks no class in "
           "train.ignore_index";
}

int64_t net_classes(struct net *m, int64_t classes)
{
    const int64_t n = net_n_outputs(m);

    if (m->rc == 0 && classes && !net_fits_target(m, classes))
        m->rc = err_set(m->err, ERR_CONFIG,
                        "model.classes is %lld, but the data have %lld; leave it out%s%s",
                        (long long)classes, (long long)n,
                        net_target(m)->role == SAMPLE_CLASS ? ", or set it higher" : "",
                        net_class_doubt(m, classes));
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

int net_starts(const struct net *m)
{
    const int at = m->spec ? sample_starts(m->spec) : -1; /* a graph alone has no data */

    return at < 0 ? NO_VALUE : m->g->input[at];
}

void layer_input(struct net *m)
{
    const int target = sample_target(m->spec), at = target == 0;

    if (m->rc < 0)
        return;
    if (sample_n_inputs(m->spec) != 1)
        m->rc = err_set(m->err, ERR_CONFIG, "samples have %d inputs, want one",
                        sample_n_inputs(m->spec));
    else if (m->spec->field[at].dtype != DTYPE_F32)
        m->rc = err_set(m->err, ERR_CONFIG, "input \"%s\" is %s, want real numbers",
                        m->spec->field[at].name,
                        m->spec->field[at].n_classes ? "tokens" : "whole numbers");
    m->h = m->g->input[at];
}

static int or_1(int v) { return v ? v : 1; }

int net_want_images(struct net *m, const char *name)
{
    char text[SHAPE_TEXT_LEN];

    if (m->rc == 0 && net_shape(m)->n != 4)
        m->rc = err_set(m->err, ERR_CONFIG, "%s: its input is %s, want images [N,H,W,C]", name,
                        shape_text(net_shape(m), text));
    return m->rc;
}

/* A convolution's filters [K,C,R,S]. */
static struct param_info conv_weight(const struct shape *w, enum conv_init init)
{
    const int64_t fan_in = shape_elements(w) / w->dim[0],
                  fan_out = w->dim[0] * w->dim[2] * w->dim[3];
    const float bound[] = {[CONV_PYTORCH] = net_uniform_bound(fan_in),
                           [CONV_KAIMING] = (float)sqrt(2.0 / (double)fan_out),
                           [CONV_LECUN] = net_uniform_bound(fan_in)};

    return (struct param_info){init == CONV_PYTORCH ? PARAM_UNIFORM : PARAM_NORMAL, bound[init],
                               PARAM_WEIGHT, 0};
}

/* The channels of input and output must be multiples of the groups. */
static int layer_want_groups(struct net *m, const char *name, const struct layer_conv *c)
{
    const int groups = or_1(c->groups);
    const int64_t in = net_shape(m)->dim[net_shape(m)->n - 1];

    if (in % groups || c->channels % groups)
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: its input has %lld channels and its output %lld, want multiples of "
                        "groups, %d, for both",
                        name, (long long)in, (long long)c->channels, groups);
    return m->rc;
}

static void layer_pad_more(struct net *m, const char *name, const struct layer_conv *c)
{
    struct compose more = {.g = m->g, .name = name, .err = m->err};

    for (int i = 0; i < 2; i++)
        if (c->more[i])
            m->h = compose_pad(&more, m->h, 1 + i, (int64_t[]){0, c->more[i]}, PAD_CONSTANT, 0);
    m->rc = more.rc;
}

void layer_conv(struct net *m, const char *name, const struct layer_conv *c)
{
    const int groups = or_1(c->groups);
    union node_attr attr = {.conv = {{or_1(c->stride[0]), or_1(c->stride[1])},
                                     {c->pad[0], c->pad[1]},
                                     {or_1(c->dilation[0]), or_1(c->dilation[1])},
                                     groups,
                                     ACT_NONE,
                                     {0},
                                     {0}}};
    int in[2], out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    struct shape w;

    if (net_want_images(m, name) < 0)
        return;
    if (layer_want_groups(m, name, c) < 0)
        return;
    layer_pad_more(m, name, c);
    if (m->rc < 0)
        return;
    w = SHAPE(c->channels, net_shape(m)->dim[3] / groups, c->kernel[0], c->kernel[1]);
    in[0] = m->h;
    in[1] = net_param(m, name, "weight", w, conv_weight(&w, c->init));
    net_append(m, OP_conv2d, &attr, in, 2, out, name);
    if (!c->no_bias)
        append_bias(m, name,
                    c->init == CONV_LECUN ? 0
                                          : net_uniform_bound(shape_elements(&w) / c->channels));
}

/* The rows or columns of a transposed convolution's output; < 1: it has none. */
static int64_t transposed_extent(const struct net *m, const struct layer_conv *c,
                                 const int extra[2], int i)
{
    const int64_t in = net_shape(m)->dim[1 + i];

    return (in - 1) * or_1(c->stride[i]) - 2 * c->pad[i] +
           or_1(c->dilation[i]) * (c->kernel[i] - 1) + extra[i] + 1;
}

static int want_transposable(struct net *m, const char *name, const struct layer_conv *c,
                             const int extra[2])
{
    char text[SHAPE_TEXT_LEN];
    int64_t h, w;

    if (net_want_images(m, name) < 0 || layer_want_groups(m, name, c) < 0)
        return m->rc;
    h = transposed_extent(m, c, extra, 0);
    w = transposed_extent(m, c, extra, 1);
    for (int i = 0; i < 2 && m->rc == 0; i++)
        if (extra[i] >= or_1(c->stride[i]))
            m->rc = err_set(m->err, ERR_CONFIG,
                            "%s: output_padding is %d, want less than the stride, %d", name,
                            extra[i], or_1(c->stride[i]));
    if (m->rc == 0 && (h < 1 || w < 1))
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: padding %d leaves %lldx%lld pixels of its input %s, want at least 1x1",
                        name, c->pad[h < 1 ? 0 : 1], (long long)max_i64(h, 0),
                        (long long)max_i64(w, 0), shape_text(net_shape(m), text));
    return m->rc;
}

/* The gradient of a convolution whose output is h: its input is made of it. */
void layer_conv_transpose(struct net *m, const char *name, const struct layer_conv *c,
                          const int extra[2])
{
    const int groups = or_1(c->groups);
    int in[2], out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    float bound;
    struct shape w;

    if (want_transposable(m, name, c, extra) < 0)
        return;
    w = SHAPE(net_shape(m)->dim[3], c->channels / groups, c->kernel[0], c->kernel[1]);
    bound = net_uniform_bound(shape_elements(&w) / w.dim[0]);
    in[CONV2D_GRAD_X_W] =
        net_param(m, name, "weight", w, (struct param_info){PARAM_UNIFORM, bound, PARAM_WEIGHT, 0});
    in[CONV2D_GRAD_X_DY] = m->h;
    net_append(m, OP_conv2d_grad_x,
               &(union node_attr){.conv = {.stride = {or_1(c->stride[0]), or_1(c->stride[1])},
                                           .pad = {c->pad[0], c->pad[1]},
                                           .dilation = {or_1(c->dilation[0]), or_1(c->dilation[1])},
                                           .groups = groups,
                                           .in_image = {transposed_extent(m, c, extra, 0),
                                                        transposed_extent(m, c, extra, 1)}}},
               in, 2, out, name);
    if (!c->no_bias)
        append_bias(m, name, bound);
}

/* Fails if a pair for a sequence, which has one dimension, has two different numbers. */
static void want_one_number(struct net *m, const char *name, const char *what, const int pair[2])
{
    if (m->rc == 0 && pair[0] != pair[1])
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: %s is [%d, %d] and its input is sequences, want one number", name,
                        what, pair[0], pair[1]);
}

void layer_conv1d(struct net *m, const char *name, const struct layer_conv *c)
{
    const struct compose_window win = {
        .stride = {1, or_1(c->stride[1])},
        .pad = {{0, 0}, {c->pad[1], c->pad[1] + c->more[1]}},
        .dilation = {1, or_1(c->dilation[1])},
        .groups = or_1(c->groups),
    };
    struct compose line = {.g = m->g, .name = name, .err = m->err};
    char text[SHAPE_TEXT_LEN];
    int weight, bias = NO_VALUE;
    struct shape w;
    float bound;

    if (m->rc == 0 && net_shape(m)->n != 3)
        m->rc = err_set(m->err, ERR_CONFIG, "%s: its input is %s, want sequences [N,T,C]", name,
                        shape_text(net_shape(m), text));
    want_one_number(m, name, "kernel", c->kernel);
    want_one_number(m, name, "stride", c->stride);
    want_one_number(m, name, "padding", c->pad);
    want_one_number(m, name, "dilation", c->dilation);
    if (m->rc < 0 || layer_want_groups(m, name, c) < 0)
        return;
    w = SHAPE(c->channels, net_shape(m)->dim[2] / win.groups, c->kernel[1]);
    bound = net_uniform_bound(w.dim[1] * w.dim[2]);
    weight =
        net_param(m, name, "weight", w, (struct param_info){PARAM_UNIFORM, bound, PARAM_WEIGHT, 0});
    if (!c->no_bias)
        bias = net_param(m, name, "bias", SHAPE(c->channels),
                         (struct param_info){PARAM_UNIFORM, bound, PARAM_BIAS, 0});
    m->h = compose_conv1d(&line, m->h, weight, bias, &win);
    m->rc = line.rc;
}

void layer_conv2d(struct net *m, const char *name, int64_t channels, int kernel, int pad)
{
    layer_conv(
        m, name,
        &(struct layer_conv){.channels = channels, .kernel = {kernel, kernel}, .pad = {pad, pad}});
}

void layer_linear_plain(struct net *m, const char *name, int64_t features)
{
    int in[2] = {m->h}, out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NO_OUT, NODE_NO_OUT};
    char text[SHAPE_TEXT_LEN];
    int64_t fan_in;

    if (m->rc == 0 && net_shape(m)->n != 2)
        m->rc = err_set(m->err, ERR_CONFIG, "%s: its input is %s, want [N,C]; flatten it before",
                        name, shape_text(net_shape(m), text));
    if (m->rc < 0)
        return;
    fan_in = net_shape(m)->dim[1];
    in[1] =
        net_param(m, name, "weight", SHAPE(features, fan_in),
                  (struct param_info){PARAM_UNIFORM, net_uniform_bound(fan_in), PARAM_WEIGHT, 0});
    net_append(m, OP_linear, NULL, in, 2, out, name);
}

void layer_linear(struct net *m, const char *name, int64_t features)
{
    const int64_t fan_in = m->rc < 0 ? 1 : net_shape(m)->dim[1];

    layer_linear_plain(m, name, features);
    append_bias(m, name, net_uniform_bound(fan_in));
}

void layer_activation(struct net *m, const char *name, enum activation kind)
{
    union node_attr attr = {.act.kind = kind};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    net_append(m, OP_activation, &attr, &m->h, 1, out, name);
}

void layer_softmax(struct net *m, const char *name, int log)
{
    union node_attr attr = {.softmax.log = log};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    if (m->rc < 0)
        return;
    attr.softmax.dim = net_shape(m)->n - 1;
    net_append(m, OP_softmax, &attr, &m->h, 1, out, name);
}

void net_fold(struct net *m, const char *name)
{
    struct shape s;

    if (m->rc < 0 || net_shape(m)->n != 3)
        return;
    s = *net_shape(m);
    net_reshape(m, net_name(m, name, "rows"), SHAPE(s.dim[0] * s.dim[1], s.dim[2]));
    m->length = s.dim[1];
}

void net_unfold(struct net *m, const char *name)
{
    struct shape s;

    if (m->rc < 0 || m->length == 0)
        return;
    s = *net_shape(m);
    net_reshape(m, net_name(m, name, "sequence"), SHAPE(s.dim[0] / m->length, m->length, s.dim[1]));
    m->length = 0;
}

void net_reshape(struct net *m, const char *name, struct shape shape)
{
    const union node_attr attr = {.reshape.shape = shape};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    net_append(m, OP_reshape, &attr, &m->h, 1, out, name);
}

static void append_pool(struct net *m, const char *name, enum pooling kind,
                        const struct layer_window *w)
{
    union node_attr attr = {.pool = {.kind = kind,
                                     .kernel = {w->kernel[0], w->kernel[1]},
                                     .stride = {w->stride[0], w->stride[1]},
                                     .pad = {w->pad[0], w->pad[1]},
                                     .count_pad = 1}};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NEW_OUT};

    net_append(m, OP_pool2d, &attr, &m->h, 1, out, name);
}

void layer_pool(struct net *m, const char *name, enum pooling kind, int kernel, int stride, int pad)
{
    layer_pool_window(m, name, kind,
                      &(struct layer_window){{kernel, kernel}, {stride, stride}, {pad, pad}});
}

void layer_pool_window(struct net *m, const char *name, enum pooling kind,
                       const struct layer_window *w)
{
    struct layer_window line = {{1, w->kernel[1]}, {1, w->stride[1]}, {0, w->pad[1]}};
    struct shape s;

    if (m->rc == 0 && net_shape(m)->n == 3) {
        want_one_number(m, name, "kernel", w->kernel);
        want_one_number(m, name, "stride", w->stride);
        want_one_number(m, name, "padding", w->pad);
        if (m->rc < 0)
            return;
        s = *net_shape(m);
        net_reshape(m, net_name(m, name, "image"), SHAPE(s.dim[0], 1, s.dim[1], s.dim[2]));
        append_pool(m, name, kind, &line);
        if (m->rc == 0)
            net_reshape(m, net_name(m, name, "sequence"),
                        SHAPE(s.dim[0], net_shape(m)->dim[2], s.dim[2]));
    } else if (net_want_images(m, name) == 0) {
        append_pool(m, name, kind, w);
    }
}

void layer_global_avg_pool(struct net *m, const char *name)
{
    if (net_want_images(m, name) == 0)
        append_pool(m, name, POOL_AVG,
                    &(struct layer_window){
                        {(int)net_shape(m)->dim[1], (int)net_shape(m)->dim[2]}, {1, 1}, {0, 0}});
}

void layer_adaptive_avg_pool(struct net *m, const char *name, int64_t size)
{
    char text[SHAPE_TEXT_LEN];
    int64_t h, w;

    if (net_want_images(m, name) < 0)
        return;
    h = net_shape(m)->dim[1];
    w = net_shape(m)->dim[2];
    if (h % size || w % size || h / size != w / size) {
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: its input is %s, want square images whose size is a multiple of %lld",
                        name, shape_text(net_shape(m), text), (long long)size);
        return;
    }
    layer_pool(m, name, POOL_AVG, (int)(h / size), (int)(h / size), 0);
}

void layer_add(struct net *m, const char *name, int other)
{
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    net_append(m, OP_add, NULL, (const int[]){m->h, other}, 2, out, name);
}

void layer_flatten(struct net *m, const char *name)
{
    union node_attr rows = {0};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    struct shape s;

    if (m->rc < 0 || net_shape(m)->n == 2)
        return;
    s = *net_shape(m);
    rows.reshape.shape = SHAPE(s.dim[0], 1);
    for (int i = 1; i < s.n; i++)
        rows.reshape.shape.dim[1] *= s.dim[i];
    net_append(m, s.n == 4 ? OP_flatten : OP_reshape, &rows, &m->h, 1, out, name);
}

static void layer_drop(struct net *m, const char *name, float p, int whole)
{
    union node_attr attr = {.dropout = {.p = p, .tag = m->n_dropouts, .whole = whole}};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    if (m->rc < 0 || !m->g->training || p == 0)
        return;
    attr.dropout.rows = m->g->batch ? net_shape(m)->dim[0] / m->g->batch : 1;
    m->n_dropouts++;
    net_append(m, OP_dropout, &attr, (int[]){m->h, m->g->scalars}, 2, out, name);
}

void layer_dropout(struct net *m, const char *name, float p) { layer_drop(m, name, p, 0); }

void layer_drop_path(struct net *m, const char *name, float p) { layer_drop(m, name, p, 1); }

float layer_depth_drop(double most, int64_t i, int64_t n)
{
    return n > 1 ? (float)(most * (double)i / (double)(n - 1)) : (float)most;
}
