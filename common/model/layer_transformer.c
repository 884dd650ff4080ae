/* The layers of transformers.  Their h is [N*T,C]: the T tokens of each sample, one after another.
 */
#include <math.h>

#include "model/layer_impl.h"

void net_check_heads(struct net *m, int64_t width, int64_t heads)
{
    if (m->rc == 0 && width % heads)
        m->rc =
            err_set(m->err, ERR_CONFIG, "model.width is %lld, want a multiple of model.heads, %lld",
                    (long long)width, (long long)heads);
}

int layer_embedding(struct net *m, const char *name, const struct layer_embedding *e)
{
    const int target = sample_target(m->spec), at = target == 0;
    const struct sample_field *tokens = &m->spec->field[at];
    const struct param_info info = {PARAM_NORMAL, e->std, PARAM_EMBEDDING, 0};
    const int64_t vocab = e->vocab ? e->vocab : tokens->n_classes;
    int in[4], out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    if (m->rc < 0)
        return NO_VALUE;
    if (sample_n_inputs(m->spec) != 1 || tokens->dtype != DTYPE_I32 || tokens->n_classes == 0 ||
        tokens->shape.n != 1)
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
    in[EMBEDDING_TABLE] = net_param(m, e->table, "weight", SHAPE(vocab, e->width), info);
    in[EMBEDDING_TOKENS] = m->g->input[at];
    in[EMBEDDING_POSITION] =
        net_param(m, e->position, "weight", SHAPE(e->positions, e->width), info);
    in[EMBEDDING_STARTS] = net_starts(m);
    net_append(m, OP_embedding, NULL, in, 4, out, name);
    return in[EMBEDDING_TABLE];
}

static void linear_of(struct net *m, const char *name, int weight, int transposed)
{
    const union node_attr attr = {.linear.transposed = transposed};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NO_OUT, NODE_NO_OUT};

    net_append(m, OP_linear, &attr, (const int[]){m->h, weight}, 2, out, name);
}

void layer_pixels(struct net *m, const char *name)
{
    struct shape s;

    if (net_want_images(m, name) < 0)
        return;
    s = *net_shape(m);
    m->length = s.dim[1] * s.dim[2];
    net_reshape(m, name, SHAPE(s.dim[0] * m->length, s.dim[3]));
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
    c = net_shape(m)->dim[1];
    in[CLASS_TOKEN_TOKEN] = graph_param(m->g, SHAPE(1, 1, c), token_info, token);
    in[CLASS_TOKEN_POSITION] =
        graph_param(m->g, SHAPE(1, m->length + 1, c), position_info, position);
    net_append(m, OP_class_token, &attr, in, 3, out, name);
    m->length++;
}

static struct param_info dense_param(struct dense_draw draw, enum param_kind kind, int64_t fan_in,
                                     int64_t fan_out)
{
    if (draw.init == DENSE_XAVIER)
        return (struct param_info){PARAM_UNIFORM, (float)sqrt(6.0 / (double)(fan_in + fan_out)),
                                   kind, 0};
    if (draw.init == DENSE_PYTORCH)
        return (struct param_info){PARAM_UNIFORM, net_uniform_bound(fan_in), kind, 0};
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
    fan_in = net_shape(m)->dim[1];
    weight = d->transposed ? SHAPE(fan_in, d->features) : SHAPE(d->features, fan_in);
    linear_of(m, name,
              graph_param(m->g, weight, dense_param(d->weight, PARAM_WEIGHT, fan_in, d->features),
                          arena_printf(&m->g->arena, "%s%sweight", name, between)),
              d->transposed);
    if (d->no_bias)
        return;
    in[0] = m->h;
    in[1] =
        graph_param(m->g, SHAPE(d->features), dense_param(d->bias, PARAM_BIAS, fan_in, d->features),
                    arena_printf(&m->g->arena, "%s%sbias", name, between));
    net_append(m, OP_bias, NULL, in, 2, out, net_name(m, name, "bias"));
}

void layer_head(struct net *m, const char *name, int weight, int64_t features, float std)
{
    const struct param_info info = {PARAM_NORMAL, std, PARAM_WEIGHT, 0};

    if (m->rc == 0 && weight == NO_VALUE)
        weight = net_param(m, name, "weight", SHAPE(features, net_shape(m)->dim[1]), info);
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
    net_append(m, OP_attention, &attr,
               (const int[]){[ATTENTION_QKV] = m->h,
                             [ATTENTION_SCALARS] = p > 0 ? m->g->scalars : NO_VALUE,
                             [ATTENTION_STARTS] = causal ? net_starts(m) : NO_VALUE},
               3, out, name);
}

/* A sample's rows as an image of one row: a pool of single pixels takes the first and no other. */
void layer_first_row(struct net *m, const char *name)
{
    const int64_t length = m->length;
    int64_t n, c;

    if (m->rc < 0)
        return;
    n = net_shape(m)->dim[0] / length;
    c = net_shape(m)->dim[1];
    net_reshape(m, net_name(m, name, "image"), SHAPE(n, 1, length, c));
    layer_pool(m, name, POOL_AVG, 1, (int)length, 0);
    net_reshape(m, net_name(m, name, "row"), SHAPE(n, c));
    m->length = 0;
}
