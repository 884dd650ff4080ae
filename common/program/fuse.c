/* fuse - replaces several nodes by one where the backend can compute them in one kernel.
 *
 * Most rules are rows of the table `fusion_rules`: a node, another one beside it, the fusion that
 * the backend must know, and a function for what else must hold and what the node gets from the
 * other. Most look at the only user of the node's output: they keep a value that has another user
 * or is an output of the graph, so that no node loses an input.  gelu's gradient reads gelu's
 * input, that of relu, tanh and sigmoid their output.  Rules about more than two nodes are
 * functions below the table, and in fuse_unpack.c.  A node whose work another one has taken over
 * gets op -1; prune.c drops it. */
#include "base/util.h"
#include "program/fuse_impl.h"

static void fuse_add_use(struct fuser *f, int v, int node)
{
    struct use *u;

    if (v == NO_VALUE || v >= f->n_values)
        return;
    u = arena_alloc(&f->arena, sizeof *u);
    *u = (struct use){node, f->use[v]};
    f->use[v] = u;
}

static void find_uses(struct fuser *f)
{
    const struct graph *g = f->g;

    f->n_values = g->n_values;
    f->use = arena_alloc(&f->arena, ((size_t)g->n_values + 1) * sizeof *f->use);
    for (int k = g->n_nodes - 1; k >= 0; k--)
        for (int i = 0; i < g->node[k].n_in; i++)
            fuse_add_use(f, g->node[k].in[i], k);
}

/* Make n read v as its input `at`. */
static void set_input(struct fuser *f, struct node *n, int at, int v)
{
    n->in[at] = v;
    fuse_add_use(f, v, (int)(n - f->g->node));
}

static int fuse_reads(const struct node *n, int v)
{
    int times = 0;

    for (int i = 0; n->op != GONE && i < n->n_in; i++)
        times += n->in[i] == v;
    return times;
}

/* 1: an earlier entry of v's list names u's node, too. */
static int is_listed_before(const struct fuser *f, int v, const struct use *u)
{
    const struct use *e = f->use[v];

    while (e != u && e->node != u->node)
        e = e->next;
    return e != u;
}

int fuse_n_uses(const struct fuser *f, int v)
{
    int n = graph_is_output(f->g, v);

    ASSERT(v < f->n_values);
    for (const struct use *u = f->use[v]; u && n < 3; u = u->next)
        if (!is_listed_before(f, v, u))
            n += fuse_reads(&f->g->node[u->node], v);
    return n < 3 ? n : 3;
}

/* The first node, in the order of the graph, that is an `op` node and reads v as its input `at`. */
static struct node *find_user(const struct fuser *f, int v, int op, int at)
{
    int first = f->g->n_nodes;

    for (const struct use *u = f->use[v]; u; u = u->next)
        if (f->g->node[u->node].op == op && f->g->node[u->node].in[at] == v && u->node < first)
            first = u->node;
    return first < f->g->n_nodes ? &f->g->node[first] : NULL;
}

/* The only user of v, if it is an `op` node that reads v as its input `at`; else NULL.  A node that
 * adds to a gradient stays where it is, behind the node that writes there first. */
static struct node *only_user(const struct fuser *f, int v, int op, int at)
{
    struct node *user;

    if (!is_temp(f->g, v) || fuse_n_uses(f, v) != 1)
        return NULL;
    user = find_user(f, v, op, at);
    return user && !user->adds ? user : NULL;
}

/* n now computes what `user` did: n gets the first output of `user` as its own. */
static void fuse_take_over(const struct fuser *f, struct node *n, struct node *user)
{
    n->out[0] = user->out[0];
    f->g->value[n->out[0]].producer = (int)(n - f->g->node);
    user->op = GONE;
}

/* n moves to the place of `user`, whose work it also does: n may now read what is made between the
 * two places.  n itself is gone. */
static void move_to(struct fuser *f, struct node *n, struct node *user)
{
    struct graph *g = f->g;
    struct node moved = *n;
    const int at = (int)(user - g->node);

    moved.out[0] = user->out[0];
    n->op = GONE;
    *user = moved;
    for (int i = 0; i < moved.n_in; i++)
        fuse_add_use(f, moved.in[i], at);
    for (int i = 0; i < moved.n_out; i++)
        if (moved.out[i] != NO_VALUE && !op_get(moved.op)->update[i])
            g->value[moved.out[i]].producer = at;
}

/* These operands have equal numbers in conv2d and linear, and in the gradients by w of both. */
_Static_assert((int)CONV2D_B == (int)LINEAR_B && (int)CONV2D_Y == (int)LINEAR_Y &&
                   (int)CONV2D_GRAD_W_DY == (int)LINEAR_GRAD_W_DY &&
                   (int)CONV2D_GRAD_W_DB == (int)LINEAR_GRAD_W_DB,
               "the rules for layers serve both");
_Static_assert((int)LINEAR_X == (int)LINEAR_GRAD_W_X, "the rule for flatten serves both");

enum {
    LAYER_B = LINEAR_B,
    LAYER_Y = LINEAR_Y,
    LAYER_GRAD_W_DY = LINEAR_GRAD_W_DY,
    LAYER_GRAD_W_DB = LINEAR_GRAD_W_DB,
};

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
    return v->role == VALUE_PARAM || v->role == VALUE_COPY || v->role == VALUE_CONST;
}

/* ---- rules about two nodes ---- */

/* Each merges n with the other node of its rule, as far as it differs from rule to rule.  0: it
 * must not, and nothing is changed. */

static int merge_bias(struct fuser *f, struct node *n, struct node *bias)
{
    if (n->in[LAYER_B] != NO_VALUE || *layer_act(n) != ACT_NONE ||
        !is_weight(&f->g->value[bias->in[BIAS_B]]))
        return 0;
    n->in[LAYER_B] = bias->in[BIAS_B];
    return 1;
}

static int merge_activation(struct fuser *f, struct node *n, struct node *act)
{
    (void)f;
    if (*layer_act(n) != ACT_NONE)
        return 0;
    *layer_act(n) = act->attr.act.kind;
    return 1;
}

/* The number of operands of forward nodes that are the parameter of this gradient. */
static int param_uses(const struct graph *g, int grad)
{
    return g->value[g->value[grad].partner].n_uses;
}

/* The weights' gradient n computes the bias' gradient, too, because both read the same dy.  The
 * gradient of a bias that several nodes read stays with its own nodes, whose order matters. */
static int merge_bias_grad(struct fuser *f, struct node *n, struct node *bias)
{
    struct graph *g = f->g;
    const int db = bias->out[BIAS_GRAD_DB];

    if (n->out[LAYER_GRAD_W_DB] != NO_VALUE || g->value[db].role != VALUE_GRAD ||
        param_uses(g, db) > 1)
        return 0;
    n->out[LAYER_GRAD_W_DB] = db;
    n->adds |= bias->adds ? 1u << LAYER_GRAD_W_DB : 0;
    g->value[db].producer = (int)(n - g->node);
    return 1;
}

/* n reads or writes the image instead of the flat x; its weight must not be transposed. */
static int merge_image(struct fuser *f, struct node *n, struct node *other)
{
    const int v = other->op == OP_flatten ? other->in[FLATTEN_X] : other->out[UNFLATTEN_X];

    if (n->attr.linear.transposed)
        return 0;
    for (int i = 0; i < 3; i++)
        n->attr.linear.image[i] = f->g->value[v].shape.dim[1 + i];
    return 1;
}

/* A pool's gradient computes the gradient of the activation that made the pool's input, too. */
static int merge_pool_grad(struct fuser *f, struct node *n, struct node *act_grad)
{
    if (n->attr.pool.act != ACT_NONE || act_grad->in[ACTIVATION_GRAD_Y] == NO_VALUE)
        return 0;
    n->attr.pool.act = act_grad->attr.act.kind;
    set_input(f, n, POOL2D_GRAD_Y_ACT, act_grad->in[ACTIVATION_GRAD_Y]);
    return 1;
}

/* The loss writes its own gradient, over the logits if no later node reads them. */
static int merge_loss_grad(struct fuser *f, struct node *n, struct node *grad)
{
    (void)f;
    n->op = OP_softmax_xent_train;
    n->n_in = op_get(n->op)->n_in;
    n->in[SOFTMAX_XENT_TRAIN_SCALARS] = grad->in[SOFTMAX_XENT_GRAD_SCALARS];
    n->in[SOFTMAX_XENT_TRAIN_SCALER] = grad->in[SOFTMAX_XENT_GRAD_SCALER];
    return 1;
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
static struct node *activation_of(const struct fuser *f, int v, const struct node *act_grad)
{
    struct node *act;

    if (!is_temp(f->g, v) || fuse_n_uses(f, v) != 2)
        return NULL;
    act = find_user(f, v, OP_activation, ACTIVATION_X);
    return act && act->attr.act.kind == act_grad->attr.act.kind ? act : NULL;
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
static int merge_linear_grad(struct fuser *f, struct node *n, struct node *act_grad)
{
    struct node *saver = saver_of(f->g, act_grad), *act;

    if (n->attr.linear.image[0] > 0 || !saver)
        return 0;
    if (act_grad->attr.act.kind == ACT_RELU) {
        n->in[LINEAR_GRAD_X_MASK] = save_mask(f->g, saver);
    } else {
        if (!(act = activation_of(f, saver->out[LINEAR_Y], act_grad)))
            return 0;
        n->in[LINEAR_GRAD_X_PRE] = saver->out[LINEAR_PRE] = saver->out[LINEAR_Y];
        *layer_act(saver) = act->attr.act.kind;
        fuse_take_over(f, saver, act);
    }
    n->attr.linear.act = act_grad->attr.act.kind;
    return 1;
}

/* y = x + other, where batch norm n makes x. */
static int merge_norm_sum(struct fuser *f, struct node *n, struct node *add)
{
    int *to = &n->in[n->op == OP_batch_norm ? BATCH_NORM_ADD : BATCH_NORM_INFER_ADD];

    (void)f;
    if (n->attr.norm.act != ACT_NONE || *to != NO_VALUE)
        return 0;
    *to = add->in[add->in[ADD_A] == n->out[0] ? ADD_B : ADD_A];
    return 1;
}

static int merge_norm_relu(struct fuser *f, struct node *n, struct node *act)
{
    (void)f;
    if (n->attr.norm.act != ACT_NONE || act->attr.act.kind != ACT_RELU)
        return 0;
    n->attr.norm.act = ACT_RELU;
    return 1;
}

enum relation {
    TAKES_OVER, /* the other is the only user of n's first output; n computes its first output */
    MOVES,      /* the same, at the other's place, because its other inputs may be made after n */
    SHARES,     /* the other reads the same dy as n; n does its work, too */
    READS_PAST, /* the other makes n's x; n reads the other's input instead */
};

/* Each node tries the rules for it in this order. */
/* clang-format off */
static const struct fusion_rule {
    enum op op[2]; /* n is one of these; the second may be left out */
    enum relation relation;
    enum op other;
    int at; /* the number of the input by which the other is related */
    enum fusion kind;
    int (*merge)(struct fuser *f, struct node *n, struct node *other);
} fusion_rules[] = {
    {{OP_conv2d, OP_linear}, TAKES_OVER, OP_bias, BIAS_X, FUSE_BIAS, merge_bias},
    {{OP_conv2d, OP_linear}, TAKES_OVER, OP_activation, ACTIVATION_X, FUSE_ACTIVATION,
     merge_activation},
    {{OP_conv2d_grad_w, OP_linear_grad_w}, SHARES, OP_bias_grad, BIAS_GRAD_DY, FUSE_BIAS,
     merge_bias_grad},
    {{OP_linear, OP_linear_grad_w}, READS_PAST, OP_flatten, FLATTEN_X, FUSE_FLATTEN, merge_image},
    {{OP_linear_grad_x}, TAKES_OVER, OP_unflatten, UNFLATTEN_Y, FUSE_FLATTEN, merge_image},
    {{OP_pool2d_grad}, TAKES_OVER, OP_activation_grad, ACTIVATION_GRAD_DY, FUSE_POOL_GRAD_ACT,
     merge_pool_grad},
    {{OP_softmax_xent}, TAKES_OVER, OP_softmax_xent_grad, SOFTMAX_XENT_GRAD_PROB, FUSE_LOSS_GRAD,
     merge_loss_grad},
    {{OP_linear_grad_x}, TAKES_OVER, OP_activation_grad, ACTIVATION_GRAD_DY, FUSE_LINEAR_GRAD_ACT,
     merge_linear_grad},
    {{OP_batch_norm, OP_batch_norm_infer}, MOVES, OP_add, ADD_A, FUSE_NORM, merge_norm_sum},
    {{OP_batch_norm, OP_batch_norm_infer}, MOVES, OP_add, ADD_B, FUSE_NORM, merge_norm_sum},
    {{OP_batch_norm, OP_batch_norm_infer}, MOVES, OP_activation, ACTIVATION_X, FUSE_NORM,
     merge_norm_relu},
};
/* clang-format on */

/* The other node of a rule for n, or NULL. */
static struct node *find_other(const struct fuser *f, const struct fusion_rule *r,
                               const struct node *n)
{
    struct graph *g = f->g;
    int maker;

    if (r->relation == SHARES)
        return find_user(f, n->in[LAYER_GRAD_W_DY], r->other, r->at);
    if (r->relation != READS_PAST)
        return only_user(f, n->out[0], r->other, r->at);
    maker = is_temp(g, n->in[LINEAR_X]) ? g->value[n->in[LINEAR_X]].producer : -1;
    return maker >= 0 && g->node[maker].op == (int)r->other ? &g->node[maker] : NULL;
}

static void apply_rule(struct fuser *f, const struct fusion_rule *r, struct node *n)
{
    const int is_for_n = n->op == (int)r->op[0] || (r->op[1] && n->op == (int)r->op[1]);
    const int has_act = r->other == OP_activation || r->other == OP_activation_grad;
    struct node *other = is_for_n ? find_other(f, r, n) : NULL;

    if (!other ||
        !backend_can_fuse(f->b, f->g, n, r->kind, has_act ? other->attr.act.kind : ACT_NONE) ||
        !r->merge(f, n, other))
        return;
    if (r->relation == TAKES_OVER)
        fuse_take_over(f, n, other);
    else if (r->relation == MOVES)
        move_to(f, n, other);
    else if (r->relation == SHARES)
        other->op = GONE;
    else
        set_input(f, n, LINEAR_X, other->in[r->at]);
}

/* ---- rules about more nodes ---- */

/* A new temporary of the same type as `like`, which node k makes. */
static int new_temp(struct graph *g, int like, struct shape shape, int k, const char *suffix)
{
    const int v = graph_value(g, VALUE_TEMP, g->value[like].dtype, shape,
                              arena_printf(&g->arena, "%s.%s", g->node[k].name, suffix));

    g->value[v].producer = k;
    return v;
}

/* Batch norm n with running statistics, of a convolution that no other node reads, becomes that
 * convolution: with a filter and a bias that a small node makes of both, at the convolution's old
 * place, and with n's sum and activation. */
static void fuse_fold(struct fuser *f, struct node *n)
{
    struct graph *g = f->g;
    const int maker =
        n->op == OP_batch_norm_infer ? g->value[n->in[BATCH_NORM_INFER_X]].producer : -1;
    struct node conv, *fold = maker < 0 ? NULL : &g->node[maker];

    if (!fold || fold->op != OP_conv2d || fold->attr.conv.act != ACT_NONE ||
        fold->in[CONV2D_ADD] != NO_VALUE ||
        only_user(f, fold->out[CONV2D_Y], OP_batch_norm_infer, BATCH_NORM_INFER_X) != n)
        return;
    conv = *fold;
    conv.in[CONV2D_ADD] = n->in[BATCH_NORM_INFER_ADD];
    conv.attr.conv.act = n->attr.norm.act;
    if (!backend_can_fuse(f->b, g, &conv, FUSE_FOLD, conv.attr.conv.act))
        return;
    *fold = (struct node){.op = OP_batch_norm_fold,
                          .name = arena_printf(&g->arena, "%s.fold", conv.name),
                          .block = conv.block,
                          .n_in = op_get(OP_batch_norm_fold)->n_in,
                          .n_out = op_get(OP_batch_norm_fold)->n_out,
                          .attr = n->attr};
    for (int i = 0; i < NODE_MAX_IN; i++)
        fold->in[i] = NO_VALUE;
    for (int i = 0; i < NODE_MAX_OUT; i++)
        fold->out[i] = NO_VALUE;
    fold->in[BATCH_NORM_FOLD_W] = conv.in[CONV2D_W];
    fold->in[BATCH_NORM_FOLD_B] = conv.in[CONV2D_B];
    fold->in[BATCH_NORM_FOLD_WEIGHT] = n->in[BATCH_NORM_INFER_WEIGHT];
    fold->in[BATCH_NORM_FOLD_BIAS] = n->in[BATCH_NORM_INFER_BIAS];
    fold->in[BATCH_NORM_FOLD_RUNNING_MEAN] = n->in[BATCH_NORM_INFER_RUNNING_MEAN];
    fold->in[BATCH_NORM_FOLD_RUNNING_VAR] = n->in[BATCH_NORM_INFER_RUNNING_VAR];
    fold->out[BATCH_NORM_FOLD_FILTER] = conv.in[CONV2D_W] =
        new_temp(g, conv.in[CONV2D_W], g->value[conv.in[CONV2D_W]].shape, maker, "filter");
    fold->out[BATCH_NORM_FOLD_SHIFT] = conv.in[CONV2D_B] = new_temp(
        g, conv.in[CONV2D_W], g->value[n->in[BATCH_NORM_INFER_BIAS]].shape, maker, "shift");
    conv.out[CONV2D_Y] = n->out[BATCH_NORM_INFER_Y];
    *n = conv;
}

/* The batch norm with a fused relu, and no sum, that made v; else NULL. */
static struct node *norm_with_relu(struct graph *g, int v)
{
    struct node *n = g->value[v].producer < 0 ? NULL : &g->node[g->value[v].producer];

    if (!n || n->op != OP_batch_norm || n->attr.norm.act != ACT_RELU ||
        n->in[BATCH_NORM_ADD] != NO_VALUE)
        return NULL;
    return n;
}

/* Both gradient nodes of a batch norm with a fused relu compute the relu's gradient, too, so that
 * activation_grad n, whose output they read, has no more work. */
static void fuse_norm_grad(struct fuser *f, struct node *n)
{
    struct node *norm, *stats, *grad;
    int dy;

    if (n->op != OP_activation_grad || n->attr.act.kind != ACT_RELU ||
        !(norm = norm_with_relu(f->g, n->in[ACTIVATION_GRAD_Y])))
        return;
    dy = n->out[ACTIVATION_GRAD_DX];
    stats = find_user(f, dy, OP_batch_norm_grad_stats, BATCH_NORM_GRAD_STATS_DY);
    grad = find_user(f, dy, OP_batch_norm_grad, BATCH_NORM_GRAD_DY);
    if (!stats || fuse_n_uses(f, dy) != (grad ? 2 : 1))
        return;
    stats->attr.norm.act = ACT_RELU;
    set_input(f, stats, BATCH_NORM_GRAD_STATS_DY, n->in[ACTIVATION_GRAD_DY]);
    set_input(f, stats, BATCH_NORM_GRAD_STATS_WEIGHT, norm->in[BATCH_NORM_WEIGHT]);
    set_input(f, stats, BATCH_NORM_GRAD_STATS_BIAS, norm->in[BATCH_NORM_BIAS]);
    n->op = GONE;
    if (!grad)
        return;
    grad->attr.norm.act = ACT_RELU;
    set_input(f, grad, BATCH_NORM_GRAD_DY, n->in[ACTIVATION_GRAD_DY]);
    set_input(f, grad, BATCH_NORM_GRAD_BIAS, norm->in[BATCH_NORM_BIAS]);
}

/* The node that makes v, of which v is an output that only `reader` reads, and only views lie
 * between; v is then set to that output.  NULL if there is no such node in the backward part. */
static struct node *maker_behind_views(const struct fuser *f, int *v, enum dtype type)
{
    struct graph *g = f->g;

    for (;;) {
        const int maker = is_temp(g, *v) ? g->value[*v].producer : -1;

        if (maker < g->n_forward || fuse_n_uses(f, *v) != 1 || g->value[*v].dtype != type)
            return NULL;
        if (g->node[maker].op != OP_reshape)
            return g->node[maker].op == GONE ? NULL : &g->node[maker];
        *v = g->node[maker].in[RESHAPE_X];
    }
}

/* 1: a node between the two writes the gradient of this parameter. */
static int is_written_between(const struct graph *g, const struct node *from, const struct node *to,
                              int param)
{
    for (const struct node *n = from + 1; n < to; n++)
        for (int i = 0; n->op != GONE && i < n->n_out; i++)
            if (n->out[i] != NO_VALUE && g->value[n->out[i]].role == VALUE_GRAD &&
                g->value[n->out[i]].partner == param)
                return 1;
    return 0;
}

/* A term of a gradient is made where n would copy or add it to: in the gradient's memory, which may
 * be seen under another shape there. */
static void fuse_grad_copy(struct fuser *f, struct node *n)
{
    struct graph *g = f->g;
    const int target = n->out[0], param = n->op == OP_cast ? g->value[target].partner : NO_VALUE;
    struct node *maker;
    int v;

    if (n->op != OP_cast || g->value[target].role != VALUE_GRAD ||
        (g->grads_at_once && param_uses(g, target) > 1))
        return;
    v = n->in[CAST_X];
    maker = maker_behind_views(f, &v, g->value[target].dtype);
    if (!maker || is_written_between(g, maker, n, param))
        return;
    for (int i = 0; i < maker->n_out; i++)
        if (maker->out[i] == v && !op_get(maker->op)->update[i])
            maker->adds |= n->adds ? 1u << i : 0;
    for (int view = n->in[CAST_X]; view != v;) {
        struct node *reshape = &g->node[g->value[view].producer];

        view = reshape->in[RESHAPE_X];
        reshape->op = GONE;
    }
    g->value[v].role = VALUE_GRAD;
    g->value[v].partner = param;
    n->op = GONE;
}

int program_fuse(struct graph *g, struct backend *b, struct err *err)
{
    struct fuser f = {.g = g, .b = b};
    int rc = 0;

    for (int k = 0; k < g->n_nodes; k++)
        simplify_flatten(g, &g->node[k]);
    find_uses(&f);
    for (int k = 0; k < g->n_nodes; k++) {
        for (size_t i = 0; i < ARRAY_LEN(fusion_rules); i++)
            apply_rule(&f, &fusion_rules[i], &g->node[k]);
        fuse_norm_grad(&f, &g->node[k]);
        fuse_grad_copy(&f, &g->node[k]);
    }
    for (int k = 0; k < g->n_nodes; k++) { /* they have their sums and activations */
        fuse_fold(&f, &g->node[k]);
        fuse_unpack(&f, &g->node[k]);
    }
    for (int k = 0; rc == 0 && k < g->n_nodes; k++)
        if (g->node[k].op != GONE)
            rc = graph_check_node(g, &g->node[k], err);
    arena_fini(&f.arena);
    return rc;
}
