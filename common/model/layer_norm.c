/* The layers that norm: each has a weight that begins as 1 and a bias that begins as 0.  Batch norm
 * also keeps running statistics, which evaluation uses. */
#include "model/layer_impl.h"
#include "op/compose.h"

#define NORM_EPS      1e-5F
#define NORM_MOMENTUM 0.1F

static int norm_param(struct net *m, const char *name, const char *suffix, float value)
{
    const struct shape *s = net_shape(m);
    struct param_info info = {.init = PARAM_CONST, .bound = value, .kind = PARAM_NORM};

    return graph_param(m->g, SHAPE(s->dim[s->n - 1]), info, net_name(m, name, suffix));
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
    net_append(m, OP_layer_norm, &attr, in, 3, out, name);
}

void layer_rms_norm(struct net *m, const char *name, double eps)
{
    struct compose c = {.g = m->g, .name = name, .err = m->err};

    if (m->rc < 0)
        return;
    m->h = compose_rms_norm(&c, m->h, norm_param(m, name, "weight", 1), eps, 0);
    m->rc = c.rc;
}

/* The channels are the last dimension of rows and images alone: PyTorch takes the second one of all
 * other shapes. */
static int want_norm_input(struct net *m, const char *name)
{
    char text[SHAPE_TEXT_LEN];

    if (m->rc == 0 && net_shape(m)->n != 2 && net_shape(m)->n != 4)
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: its input is %s, want rows [N,C] or images [N,H,W,C]; flatten it "
                        "before",
                        name, shape_text(net_shape(m), text));
    return m->rc;
}

/* An instance norm makes 0 of images of one pixel. */
static int want_pixels(struct net *m, const char *name)
{
    if (net_want_images(m, name) == 0 && net_shape(m)->dim[1] * net_shape(m)->dim[2] == 1)
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: instance_norm makes 0 of images of 1x1 pixels, want more pixels; "
                        "leave it out here",
                        name);
    return m->rc;
}

void layer_group_norm(struct net *m, const char *name, int64_t groups, float eps)
{
    int in[3] = {m->h, NO_VALUE, NO_VALUE};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NEW_OUT, NODE_NEW_OUT};
    union node_attr attr = {.group_norm = {.groups = groups, .eps = eps}};
    int64_t channels;

    if (want_norm_input(m, name) < 0 || (groups == 0 && want_pixels(m, name) < 0))
        return;
    channels = net_shape(m)->dim[net_shape(m)->n - 1];
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
    net_append(m, OP_group_norm, &attr, in, 3, out, name);
}

static void batch_norm_train(struct net *m, const char *name, const int param[2],
                             const int state[2])
{
    union node_attr attr = {.norm = {.eps = NORM_EPS, .momentum = NORM_MOMENTUM, .sync = m->sync}};
    int sums[NODE_MAX_OUT] = {NODE_NEW_OUT}, x = m->h;
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, graph_shadow_of(m->g, state[0]),
                             graph_shadow_of(m->g, state[1])};

    net_append(m, OP_batch_norm_stats, &attr, (int[]){x, state[0]}, 2, sums,
               net_name(m, name, "stats"));
    if (m->sync)
        net_append(m, OP_allreduce, NULL, (int[]){sums[0]}, 1, sums, net_name(m, name, "sync"));
    net_append(m, OP_batch_norm, &attr, (int[]){x, sums[0], param[0], param[1], state[0], state[1]},
               6, out, name);
}

void layer_batch_norm(struct net *m, const char *name)
{
    union node_attr attr = {.norm = {.eps = NORM_EPS, .momentum = NORM_MOMENTUM}};
    int param[2], state[2], out[NODE_MAX_OUT] = {NODE_NEW_OUT};
    struct shape channels;

    if (want_norm_input(m, name) < 0)
        return;
    param[0] = norm_param(m, name, "weight", 1);
    param[1] = norm_param(m, name, "bias", 0);
    channels = m->g->value[param[0]].shape;
    state[0] = graph_state(m->g, channels, 0, net_name(m, name, "running_mean"));
    state[1] = graph_state(m->g, channels, 1, net_name(m, name, "running_var"));
    if (m->g->training)
        batch_norm_train(m, name, param, state);
    else
        net_append(m, OP_batch_norm_infer, &attr,
                   (int[]){m->h, param[0], param[1], state[0], state[1]}, 5, out, name);
}
