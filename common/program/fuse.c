/* fuse - replaces several nodes by one where the backend can compute them in one kernel.
 *
 * Most rules look at a node and the only user of its output.  They keep a value that has another
 * user or is the graph's logits, so that no node loses an input: gelu's gradient reads gelu's
 * input, that of relu, tanh and sigmoid their output.  A node whose work another one has taken over
 * gets op -1; prune.c drops it. */
#include "base/util.h"
#include "program/impl.h"

enum { GONE = -1 };

static int n_uses(const struct graph *g, int v)
{
    int n = v == g->logits;

    for (int k = 0; k < g->n_nodes; k++)
        for (int i = 0; g->node[k].op != GONE && i < g->node[k].n_in; i++)
            n += g->node[k].in[i] == v;
    return n;
}

/* The only user of v, if it is an `op` node that reads v as its input `at`; else NULL. */
static struct node *only_user(struct graph *g, int v, int op, int at)
{
    if (!is_temp(g, v) || n_uses(g, v) != 1)
        return NULL;
    for (int k = 0; k < g->n_nodes; k++)
        if (g->node[k].op == op && g->node[k].in[at] == v)
            return &g->node[k];
    return NULL;
}

/* n now computes what `user` did: n gets the first output of `user` as its own. */
static void take_over(struct graph *g, struct node *n, struct node *user)
{
    n->out[0] = user->out[0];
    g->value[n->out[0]].producer = (int)(n - g->node);
    user->op = GONE;
}

/* These operands have equal numbers in conv2d and linear, and in the gradients by w of both. */
_Static_assert((int)CONV2D_B == (int)LINEAR_B && (int)CONV2D_Y == (int)LINEAR_Y &&
                   (int)CONV2D_GRAD_W_DY == (int)LINEAR_GRAD_W_DY &&
                   (int)CONV2D_GRAD_W_DB == (int)LINEAR_GRAD_W_DB,
               "the rules for layers serve both");

enum {
    LAYER_B = LINEAR_B,
    LAYER_Y = LINEAR_Y,
    LAYER_GRAD_W_DY = LINEAR_GRAD_W_DY,
    LAYER_GRAD_W_DB = LINEAR_GRAD_W_DB,
};

static int is_layer(const struct node *n) { return n->op == OP_conv2d || n->op == OP_linear; }

static enum activation *layer_act(struct node *n)
{
    return n->op == OP_conv2d ? &n->attr.conv.act : &n->attr.linear.act;
}

/* Replace a flatten or unflatten that moves nothing by a reshape: its image has one channel, or one
 * row and column. */
static void simplify_flatten(struct graph *g, struct node *n)
{
    const struct shape *image;

    if (n->op != OP_flatten && n->op != OP_unflatten)
        return;
    image = &g->value[n->op == OP_flatten ? n->in[FLATTEN_X] : n->out[UNFLATTEN_X]].shape;
    if (image->dim[3] != 1 && image->dim[1] * image->dim[2] != 1)
        return;
    n->op = OP_reshape;
    n->attr.reshape.shape = g->value[n->out[RESHAPE_Y]].shape;
}

static int is_weight(const struct value *v)
{
    return v->role == VALUE_PARAM || v->role == VALUE_COPY;
}

static void fuse_bias(struct graph *g, struct backend *b, struct node *n)
{
    struct node *user;

    if (!is_layer(n) || n->in[LAYER_B] != NO_VALUE || *layer_act(n) != ACT_NONE)
        return;
    user = only_user(g, n->out[LAYER_Y], OP_bias, BIAS_X);
    if (!user || !is_weight(&g->value[user->in[BIAS_B]]) ||
        !backend_can_fuse(b, g, n, FUSE_BIAS, ACT_NONE))
        return;
    n->in[LAYER_B] = user->in[BIAS_B];
    take_over(g, n, user);
}

static void fuse_activation(struct graph *g, struct backend *b, struct node *n)
{
    struct node *user;

    if (!is_layer(n) || *layer_act(n) != ACT_NONE)
        return;
    user = only_user(g, n->out[LAYER_Y], OP_activation, ACTIVATION_X);
    if (!user || !backend_can_fuse(b, g, n, FUSE_ACTIVATION, user->attr.act.kind))
        return;
    *layer_act(n) = user->attr.act.kind;
    take_over(g, n, user);
}

/* The weights' gradient n computes the bias' gradient, too, because both read the same dy. */
static void fuse_bias_grad(struct graph *g, struct backend *b, struct node *n)
{
    if ((n->op != OP_conv2d_grad_w && n->op != OP_linear_grad_w) ||
        n->out[LAYER_GRAD_W_DB] != NO_VALUE)
        return;
    for (int k = 0; k < g->n_nodes; k++) {
        struct node *other = &g->node[k];

        if (other->op != OP_bias_grad || other->in[BIAS_GRAD_DY] != n->in[LAYER_GRAD_W_DY] ||
            g->value[other->out[BIAS_GRAD_DB]].role != VALUE_GRAD)
            continue;
        if (!backend_can_fuse(b, g, n, FUSE_BIAS, ACT_NONE))
            return;
        n->out[LAYER_GRAD_W_DB] = other->out[BIAS_GRAD_DB];
        g->value[n->out[LAYER_GRAD_W_DB]].producer = (int)(n - g->node);
        other->op = GONE;
        return;
    }
}

static void set_image(struct node *n, const struct shape *image)
{
    for (int i = 0; i < 3; i++)
        n->attr.linear.image[i] = image->dim[1 + i];
}

/* A linear or linear_grad_w whose input a flatten makes reads the image instead. */
static void fuse_flatten(struct graph *g, struct backend *b, struct node *n)
{
    const int x = n->op == OP_linear ? LINEAR_X : LINEAR_GRAD_W_X;
    int maker;

    if ((n->op != OP_linear && n->op != OP_linear_grad_w) || !is_temp(g, n->in[x]))
        return;
    maker = g->value[n->in[x]].producer;
    if (maker < 0 || g->node[maker].op != OP_flatten ||
        !backend_can_fuse(b, g, n, FUSE_FLATTEN, ACT_NONE))
        return;
    n->in[x] = g->node[maker].in[FLATTEN_X];
    set_image(n, &g->value[n->in[x]].shape);
}

/* A linear_grad_x whose output an unflatten reads writes the image instead. */
static void fuse_unflatten(struct graph *g, struct backend *b, struct node *n)
{
    struct node *user;

    if (n->op != OP_linear_grad_x)
        return;
    user = only_user(g, n->out[LINEAR_GRAD_X_DX], OP_unflatten, UNFLATTEN_Y);
    if (!user || !backend_can_fuse(b, g, n, FUSE_FLATTEN, ACT_NONE))
        return;
    take_over(g, n, user);
    set_image(n, &g->value[n->out[LINEAR_GRAD_X_DX]].shape);
}

/* A pool's gradient computes the gradient of the activation that made the pool's input, too. */
static void fuse_pool_grad(struct graph *g, struct backend *b, struct node *n)
{
    struct node *user;

    if (n->op != OP_pool2d_grad || n->attr.pool.act != ACT_NONE)
        return;
    user = only_user(g, n->out[POOL2D_GRAD_DX], OP_activation_grad, ACTIVATION_GRAD_DY);
    if (!user || user->in[ACTIVATION_GRAD_Y] == NO_VALUE ||
        !backend_can_fuse(b, g, n, FUSE_POOL_GRAD_ACT, user->attr.act.kind))
        return;
    n->attr.pool.act = user->attr.act.kind;
    n->in[POOL2D_GRAD_Y_ACT] = user->in[ACTIVATION_GRAD_Y];
    take_over(g, n, user);
}

/* The loss writes its own gradient, over the logits if no later node reads them. */
static void fuse_loss_grad(struct graph *g, struct backend *b, struct node *n)
{
    struct node *user;

    if (n->op != OP_softmax_xent || n->out[SOFTMAX_XENT_PROB] == NO_VALUE)
        return;
    user = only_user(g, n->out[SOFTMAX_XENT_PROB], OP_softmax_xent_grad, SOFTMAX_XENT_GRAD_PROB);
    if (!user || !backend_can_fuse(b, g, n, FUSE_LOSS_GRAD, ACT_NONE))
        return;
    n->op = OP_softmax_xent_train;
    n->n_in = op_get(n->op)->n_in;
    n->in[SOFTMAX_XENT_TRAIN_SCALARS] = user->in[SOFTMAX_XENT_GRAD_SCALARS];
    n->in[SOFTMAX_XENT_TRAIN_SCALER] = user->in[SOFTMAX_XENT_GRAD_SCALER];
    take_over(g, n, user);
}

/* The linear node whose output the activation of `act_grad` was applied to.  A relu is fused into
 * that node by now, so the node made the relu's output.  NULL if the activation is neither relu nor
 * gelu_tanh, or no linear node stands directly before it. */
static struct node *saver_of(struct graph *g, const struct node *act_grad)
{
    const enum activation act = act_grad->attr.act.kind;
    const int v = act_grad->in[act == ACT_RELU ? ACTIVATION_GRAD_Y : ACTIVATION_GRAD_X];
    const int maker = v == NO_VALUE ? -1 : g->value[v].producer;
    struct node *l = maker < 0 ? NULL : &g->node[maker];

    if ((act != ACT_RELU && act != ACT_GELU_TANH) || !l || l->op != OP_linear ||
        l->out[LINEAR_Y] != v)
        return NULL;
    return *layer_act(l) == (act == ACT_RELU ? ACT_RELU : ACT_NONE) ? l : NULL;
}

/* The activation node that reads v, if that node and `act_grad` are v's only users; else NULL. */
static struct node *activation_of(struct graph *g, int v, const struct node *act_grad)
{
    if (!is_temp(g, v) || n_uses(g, v) != 2)
        return NULL;
    for (int k = 0; k < g->n_nodes; k++)
        if (g->node[k].op == OP_activation && g->node[k].in[ACTIVATION_X] == v &&
            g->node[k].attr.act.kind == act_grad->attr.act.kind)
            return &g->node[k];
    return NULL;
}

/* The mask that the linear node l writes; made if l has none. */
static int save_mask(struct graph *g, struct node *l)
{
    const struct shape *y = &g->value[l->out[LINEAR_Y]].shape;

    if (l->out[LINEAR_MASK] == NO_VALUE) {
        l->out[LINEAR_MASK] = graph_value(g, VALUE_TEMP, DTYPE_I32,
                                          SHAPE(y->dim[0], 4 * ceil_div_i64(y->dim[1], 128)),
                                          arena_printf(&g->arena, "%s.mask", l->name));
        g->value[l->out[LINEAR_MASK]].producer = (int)(l - g->node);
    }
    return l->out[LINEAR_MASK];
}

/* A linear_grad_x computes the gradient of the activation that made its x, too.  The linear node
 * before that activation leaves the mask (relu) or the activation's input (gelu_tanh) for it. */
static void fuse_linear_grad(struct graph *g, struct backend *b, struct node *n)
{
    struct node *user, *saver, *act;

    if (n->op != OP_linear_grad_x || n->attr.linear.image[0] > 0)
        return;
    user = only_user(g, n->out[LINEAR_GRAD_X_DX], OP_activation_grad, ACTIVATION_GRAD_DY);
    if (!user || !(saver = saver_of(g, user)) ||
        !backend_can_fuse(b, g, n, FUSE_LINEAR_GRAD_ACT, user->attr.act.kind))
        return;
    if (user->attr.act.kind == ACT_RELU) {
        n->in[LINEAR_GRAD_X_MASK] = save_mask(g, saver);
    } else {
        if (!(act = activation_of(g, saver->out[LINEAR_Y], user)))
            return;
        n->in[LINEAR_GRAD_X_PRE] = saver->out[LINEAR_PRE] = saver->out[LINEAR_Y];
        *layer_act(saver) = act->attr.act.kind;
        take_over(g, saver, act);
    }
    n->attr.linear.act = user->attr.act.kind;
    take_over(g, n, user);
}

int program_fuse(struct graph *g, struct backend *b, struct err *err)
{
    int rc = 0;

    for (int k = 0; k < g->n_nodes; k++)
        simplify_flatten(g, &g->node[k]);
    for (int k = 0; k < g->n_nodes; k++) {
        fuse_bias(g, b, &g->node[k]);
        fuse_activation(g, b, &g->node[k]);
        fuse_bias_grad(g, b, &g->node[k]);
        fuse_flatten(g, b, &g->node[k]);
        fuse_unflatten(g, b, &g->node[k]);
        fuse_pool_grad(g, b, &g->node[k]);
        fuse_loss_grad(g, b, &g->node[k]);
        fuse_linear_grad(g, b, &g->node[k]);
    }
    for (int k = 0; rc == 0 && k < g->n_nodes; k++)
        if (g->node[k].op != GONE)
            rc = graph_check_node(g, &g->node[k], err);
    return rc;
}
