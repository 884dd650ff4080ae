/* lora - copies the graph's nodes in their order, and appends the adapters' nodes behind each layer
 * that gets them.  Later nodes then read the sum in place of the layer's output. */
#include "model/lora.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "op/compose.h"

static const char weight_end[] = ".weight";

struct lora { /* one call of lora_apply */
    const struct lora_options *o;
    struct graph *g;
    struct err *err;
    struct node *node; /* [n_nodes] as they were */
    int n_nodes;
    int *now; /* [values before the call] what stands for each */
    int tag;
    int head; /* the node that makes the logits; -1: none is linear */
};

double lora_scale(const struct lora_options *o)
{
    const double rank = (double)o->rank;

    ASSERT(o->rank > 0);
    return o->alpha / (o->rslora ? sqrt(rank) : rank);
}

static int lorLORA_As_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n > m && !strcmp(name + n - m, end);
}

int lora_is_name(const char *name)
{
    return lorLORA_As_with(name, LORA_A) || lorLORA_As_with(name, LORA_B);
}

size_t lora_layer_length(const char *name)
{
    return lorLORA_As_with(name, LORA_A) ? strlen(name) - strlen(LORA_A) : 0;
}

/* ---- which layers ---- */

/* The name of the layer, in the graph's arena; NULL: the node is no linear layer with a weight of
 * its own. */
static const char *lora_layer(const struct lora *l, const struct node *n)
{
    const struct value *w = n->op == OP_linear ? &l->g->value[n->in[LINEAR_W]] : NULL;

    if (!w || w->role != VALUE_PARAM || n->attr.linear.image[0] > 0 ||
        !lorLORA_As_with(w->name, weight_end))
        return NULL;
    return arena_printf(&l->g->arena, "%.*s", (int)(strlen(w->name) - strlen(weight_end)), w->name);
}

/* The linear layer from which the logits come through nodes that only turn or move them. */
static int lora_find_head(const struct graph *g)
{
    int at = g->logits == NO_VALUE ? -1 : g->value[g->logits].producer;

    while (at >= 0 && g->node[at].op != OP_linear) {
        const int op = g->node[at].op, from = g->node[at].in[0];

        if (op != OP_reshape && op != OP_permute && op != OP_bias && op != OP_elementwise &&
            op != OP_slice)
            return -1;
        at = from == NO_VALUE ? -1 : g->value[from].producer;
    }
    return at;
}

static int lora_takes(const struct lora *l, int node, const char *layer)
{
    const char *rest = l->o->match;
    char pattern[OPT_TEXT_BYTES + 1];
    int fits = 0;

    if (!layer || !rest)
        return layer && node != l->head;
    while (rest && !fits) {
        rest = option_next_item(rest, pattern);
        fits = fnmatch(pattern, layer, 0) == 0;
    }
    return fits;
}

/* pattern NULL: no layer is left. */
static int lora_fail(const struct lora *l, const char *pattern)
{
    struct buf names = {0};

    for (int i = 0; i < l->n_nodes; i++) {
        const char *layer = lora_layer(l, &l->node[i]);

        if (layer)
            buf_printf(&names, "%s%s", names.len ? ", " : "", layer);
    }
    if (!names.len)
        err_set(l->err, ERR_CONFIG, "model.lora: this network has no linear layer");
    else if (pattern)
        err_set(l->err, ERR_CONFIG,
                "model.lora.match: \"%s\" fits no linear layer; the linear layers are %s", pattern,
                buf_cstr(&names));
    else
        err_set(l->err, ERR_CONFIG,
                "model.lora.match: no layer is left but the one that makes the logits; the linear "
                "layers are %s",
                buf_cstr(&names));
    buf_fini(&names);
    return l->err->code;
}

static int lora_fits_any(const struct lora *l, const char *pattern)
{
    int fits = 0;

    for (int i = 0; i < l->n_nodes && !fits; i++) {
        const char *layer = lora_layer(l, &l->node[i]);

        fits = layer && fnmatch(pattern, layer, 0) == 0;
    }
    return fits;
}

/* Each pattern has a layer that it fits. */
static int lora_check_match(const struct lora *l)
{
    char pattern[OPT_TEXT_BYTES + 1];
    int n = 0;

    for (const char *rest = l->o->match; rest;) {
        rest = option_next_item(rest, pattern);
        if (!lora_fits_any(l, pattern))
            return lora_fail(l, pattern);
    }
    for (int i = 0; i < l->n_nodes; i++)
        n += lora_takes(l, i, lora_layer(l, &l->node[i]));
    return n > 0 ? 0 : lora_fail(l, NULL);
}

/* ---- the adapters ---- */

static int lora_param(struct lora *l, const char *layer, const char *end, struct shape shape,
                      struct param_info info)
{
    const char *name = arena_printf(&l->g->arena, "%s%s", layer, end);
    const struct value *v = graph_find(l->g, name);

    if (v && !shape_equal(&v->shape, &shape)) {
        err_set(
            l->err, ERR_CONFIG,
            "model.lora: \"%s\" has a weight that is read in both directions, which one pair of "
            "adapters cannot serve; leave it out of model.lora.match",
            layer);
        return NO_VALUE;
    }
    return v ? (int)(v - l->g->value) : graph_param(l->g, shape, info, name);
}

/* Append the nodes behind the layer whose input is x and output y; returns the sum. */
static int lora_append(struct lora *l, const struct node *n, const char *layer, int x, int y)
{
    struct graph *g = l->g;
    struct compose c = {.g = g, .name = arena_printf(&g->arena, "%s.lora", layer), .err = l->err};
    const struct shape shape = g->value[x].shape;
    const int64_t rank = l->o->rank, in = shape.dim[1], out = g->value[y].shape.dim[1];
    const struct param_info of_a = {PARAM_UNIFORM, in ? (float)(1 / sqrt((double)in)) : 0,
                                    PARAM_ADAPTER, 0},
                            of_b = {PARAM_CONST, 0, PARAM_ADAPTER, 0};
    const int a = lora_param(l, layer, LORA_A, SHAPE(rank, in), of_a),
              b = lora_param(l, layer, LORA_B, SHAPE(out, rank), of_b);
    const int64_t rows = g->batch ? shape.dim[0] / g->batch : 1;
    int h = x;

    ASSERT(n->op == OP_linear && shape.n == 2);
    if (a == NO_VALUE || b == NO_VALUE)
        return NO_VALUE;
    if (l->o->dropout > 0 && g->training)
        h = compose_dropout(&c, h, l->o->dropout, l->tag++, rows, 0);
    h = compose_append(&c, OP_linear, NULL, (int[]){h, a}, 2);
    h = compose_constants(&c, EW_AFFINE, h, (float)lora_scale(l->o), 0);
    h = compose_append(&c, OP_linear, NULL, (int[]){h, b}, 2);
    h = compose_elementwise(&c, EW_ADD, y, h);
    return c.rc < 0 ? NO_VALUE : h;
}

/* ---- the graph ---- */

static void lora_freeze(struct graph *g)
{
    for (int v = 0; v < g->n_values; v++) {
        struct param_info info;

        if (g->value[v].role != VALUE_PARAM)
            continue;
        info = *g->value[v].info;
        info.frozen = 1;
        g->value[v].info = arena_copy(&g->arena, &info, sizeof info);
    }
}

/* Append the i-th node as it was, with what its inputs are now. */
static void lora_copy_node(struct lora *l, int i)
{
    struct node n = l->node[i];
    int id;

    for (int k = 0; k < n.n_in; k++)
        n.in[k] = n.in[k] == NO_VALUE ? NO_VALUE : l->now[n.in[k]];
    l->g->block = n.block;
    id = graph_append(l->g, &n);
    for (int k = 0; k < n.n_out; k++)
        if (n.out[k] != NO_VALUE && l->g->value[n.out[k]].producer >= 0)
            l->g->value[n.out[k]].producer = id;
}

static int lora_copy(struct lora *l)
{
    for (int i = 0; i < l->n_nodes; i++) {
        const struct node *n = &l->node[i];
        const char *layer = lora_layer(l, n);
        int y;

        lora_copy_node(l, i);
        if (!lora_takes(l, i, layer))
            continue;
        y = n->out[LINEAR_Y];
        l->now[y] = lora_append(l, n, layer, l->now[n->in[LINEAR_X]], y);
        if (l->now[y] == NO_VALUE)
            return l->err->code;
    }
    return 0;
}

/* Outputs with names, and the logits, become the sums, too. */
static void lorLORA_A(struct lora *l)
{
    struct graph *g = l->g;

    for (int i = 0; i < g->n_outputs; i++)
        g->output[i].value = l->now[g->output[i].value];
    if (g->logits != NO_VALUE)
        g->logits = l->now[g->logits];
}

int lora_apply(const struct lora_options *o, int first_tag, struct graph *g, struct err *err)
{
    struct lora l = {.o = o, .g = g, .err = err, .n_nodes = g->n_nodes, .tag = first_tag};
    const int block = g->block;
    int rc;

    if (o->rank == 0)
        return 0;
    ASSERT(g->n_forward == 0);
    l.node = xmalloc(((size_t)l.n_nodes + 1) * sizeof *l.node);
    l.now = xmalloc(((size_t)g->n_values + 1) * sizeof *l.now);
    memcpy(l.node, g->node, (size_t)l.n_nodes * sizeof *l.node);
    for (int v = 0; v < g->n_values; v++)
        l.now[v] = v;
    l.head = lora_find_head(g);
    rc = lora_check_match(&l);
    if (rc == 0) {
        lora_freeze(g);
        g->n_nodes = 0;
        rc = lora_copy(&l);
        lorLORA_A(&l);
        g->block = block;
    }
    free(l.node);
    free(l.now);
    return rc;
}
