/* lora - copies the graph's nodes in their order, and appends the adapters' nodes behind each layer
 * that gets them.  Later nodes then read the sum in place of the layer's output. */
#include "model/lora_impl.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "op/op.h"

_Static_assert((int)LINEAR_X == (int)CONV2D_X && (int)LINEAR_Y == (int)CONV2D_Y &&
                   (int)LINEAR_Y == (int)EMBEDDING_Y,
               "lora_copy serves all kinds");

static const char weight_end[] = ".weight";

double lora_scale(const struct lora_options *o)
{
    const double rank = (double)o->rank;

    ASSERT(o->rank > 0);
    return o->alpha / (o->rslora ? sqrt(rank) : rank);
}

static int lora_ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n > m && !strcmp(name + n - m, end);
}

int lora_is_name(const char *name)
{
    return lora_ends_with(name, LORA_A) || lora_ends_with(name, LORA_B) ||
           lora_ends_with(name, LORA_EMBEDDING_A) || lora_ends_with(name, LORA_EMBEDDING_B);
}

size_t lora_layer_length(const char *name)
{
    const char *end = lora_ends_with(name, LORA_A)             ? LORA_A
                      : lora_ends_with(name, LORA_EMBEDDING_A) ? LORA_EMBEDDING_A
                                                               : NULL;

    return end ? strlen(name) - strlen(end) : 0;
}

/* ---- which layers ---- */

/* 1: an embedding reads the value.  A layer that shares a weight with one has no adapters under the
 * weight's name, which is the embedding's, as in PEFT. */
static int lora_is_table(const struct lora *l, int v)
{
    int is = 0;

    for (int i = 0; i < l->n_nodes && !is; i++)
        is = l->node[i].op == OP_embedding && l->node[i].in[EMBEDDING_TABLE] == v;
    return is;
}

/* The kind of layer that a node computes, and the operand which is its weight.  A convolution with
 * dilation has no adapters in PEFT. */
static enum lora_kind lora_kind_of(const struct lora *l, const struct node *n, int *weight)
{
    switch (n->op) {
    case OP_linear:
        *weight = n->in[LINEAR_W];
        return n->attr.linear.image[0] > 0 || lora_is_table(l, *weight) ? LORA_OF_NONE
                                                                        : LORA_OF_LINEAR;
    case OP_conv2d:
        *weight = n->in[CONV2D_W];
        return n->attr.conv.dilation[0] > 1 || n->attr.conv.dilation[1] > 1 ? LORA_OF_NONE
                                                                            : LORA_OF_CONVOLUTION;
    case OP_embedding:
        *weight = n->in[EMBEDDING_TABLE];
        return LORA_OF_EMBEDDING;
    default:
        return LORA_OF_NONE;
    }
}

/* The name of the layer, in the graph's arena; NULL: the node is no layer with a weight of its own
 * that may have adapters. */
static const char *lora_layer(const struct lora *l, const struct node *n)
{
    const struct value *w;
    int weight;

    if (lora_kind_of(l, n, &weight) == LORA_OF_NONE)
        return NULL;
    w = &l->g->value[weight];
    if (w->role != VALUE_PARAM || !lora_ends_with(w->name, weight_end))
        return NULL;
    return arena_printf(&l->g->arena, "%.*s", (int)(strlen(w->name) - strlen(weight_end)), w->name);
}

/* The linear layer from which the logits come through nodes that only turn or move them. */
static int lora_find_head(const struct graph *g, int logits)
{
    int at = logits == NO_VALUE ? -1 : g->value[logits].producer;

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
        return layer && node != l->head && l->node[node].op == OP_linear;
    while (rest && !fits) {
        rest = option_next_item(rest, pattern);
        fits = fnmatch(pattern, layer, 0) == 0;
    }
    return fits;
}

/* The embedding whose weight also makes the logits; NULL: the head's weight is its own. */
static const char *lora_tied_head(const struct lora *l)
{
    const char *head = l->head >= 0 ? lora_layer(l, &l->node[l->head]) : NULL;

    for (int i = 0; head && i < l->n_nodes; i++) {
        const char *layer = l->node[i].op == OP_embedding ? lora_layer(l, &l->node[i]) : NULL;

        if (layer && !strcmp(layer, head))
            return layer;
    }
    return NULL;
}

/* pattern NULL: no layer is left. */
static int lora_fail(const struct lora *l, const char *pattern)
{
    const char *tied = lora_tied_head(l);
    struct buf names = {0};

    for (int i = 0; i < l->n_nodes; i++) {
        const char *layer = lora_layer(l, &l->node[i]);

        if (layer)
            buf_printf(&names, "%s%s", names.len ? ", " : "", layer);
    }
    if (!names.len)
        err_set(l->err, ERR_CONFIG,
                "model.lora: this network has no linear layer, convolution or embedding");
    else if (pattern)
        err_set(l->err, ERR_CONFIG,
                "model.lora.match: \"%s\" fits no layer that may have adapters;%s%s%s they are %s",
                pattern, tied ? " the head has no weight of its own, but is tied to " : "",
                tied ? tied : "", tied ? ";" : "", buf_cstr(&names));
    else
        err_set(l->err, ERR_CONFIG,
                "model.lora.match: no linear layer is left but the one that makes the logits; want "
                "patterns that name layers; those that may have adapters are %s",
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

/* The adapters of a weight serve one direction of it. */
static int lora_check_direction(const struct lora *l, const struct node *n, const char *layer)
{
    for (int i = 0; i < l->n_nodes && n->op == OP_linear; i++)
        if (l->node[i].op == OP_linear && l->node[i].in[LINEAR_W] == n->in[LINEAR_W] &&
            l->node[i].attr.linear.transposed != n->attr.linear.transposed)
            return err_set(l->err, ERR_CONFIG,
                           "model.lora: \"%s\" has a weight that is read in both directions, which "
                           "one pair of adapters cannot serve; leave it out of model.lora.match",
                           layer);
    return 0;
}

static int lora_copy(struct lora *l)
{
    for (int i = 0; i < l->n_nodes; i++) {
        const struct node *n = &l->node[i];
        const char *layer = lora_layer(l, n);
        int weight, y;
        const enum lora_kind kind = lora_kind_of(l, n, &weight);
        const int x = kind == LORA_OF_EMBEDDING ? (int)EMBEDDING_TOKENS : (int)LINEAR_X;

        lora_copy_node(l, i);
        if (i < l->first_node || !lora_takes(l, i, layer))
            continue;
        if (lora_check_direction(l, n, layer) < 0)
            return l->err->code;
        y = n->out[LINEAR_Y];
        l->now[y] = lora_append(l, kind, n, layer, l->now[n->in[x]], y);
        if (l->now[y] == NO_VALUE)
            return l->err->code;
    }
    return 0;
}

/* Outputs with names, and the logits, become the sums, too. */
static void lora_end(struct lora *l)
{
    struct graph *g = l->g;

    for (int i = 0; i < g->n_outputs; i++)
        g->output[i].value = l->now[g->output[i].value];
    if (g->logits != NO_VALUE)
        g->logits = l->now[g->logits];
}

int lora_apply(const struct lora_options *o, const struct lora_place *at, struct graph *g,
               struct err *err)
{
    struct lora l = {.o = o,
                     .g = g,
                     .err = err,
                     .n_nodes = g->n_nodes,
                     .tag = at->first_tag,
                     .first_node = at->first_node};
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
    l.head = lora_find_head(g, at->logits);
    rc = lora_check_match(&l);
    if (rc == 0) {
        lora_freeze(g);
        g->n_nodes = 0;
        rc = lora_copy(&l);
        lora_end(&l);
        g->block = block;
    }
    free(l.node);
    free(l.now);
    return rc;
}
