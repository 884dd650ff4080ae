/* layer_preference - the loss dpo (Rafailov et al. 2023, arXiv:2305.18290): of two answers to a
 * prompt, the chosen one is to gain more probability than the rejected one, compared with the
 * network as it was:
 *
 *   loss = -log sigmoid(beta * ((log p(chosen) - log p_ref(chosen)) -
 *                               (log p(rejected) - log p_ref(rejected))))
 *
 * where log p is the sum over the answer's tokens.  That is the cross-entropy of two logits, beta *
 * (log p - log p_ref) of each answer, so the mean is over pairs, and the accuracy is the share of
 * pairs in which the chosen answer gained more.
 *
 * The reference is the same network without its adapters: its nodes stand before all others, so
 * that what they compute is gone before the trained network's activations are kept.
 *
 * Legend: N pairs, T tokens of a text, V the vocabulary. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "model/layer_impl.h"
#include "model/losses.h"
#include "op/compose.h"

/* ---- the reference ---- */

struct reference {
    struct graph *g;
    struct node *node; /* [n_nodes] of the network, as they were */
    int n_nodes;
    int *copy; /* [n_values] the value of the reference that stands for each */
};

/* Append node i of the network; of the reference it has new outputs. */
static void reference_append(struct reference *r, int i, int is_reference)
{
    struct node n = r->node[i];
    int id;

    for (int k = 0; is_reference && k < n.n_in; k++)
        n.in[k] = n.in[k] == NO_VALUE ? NO_VALUE : r->copy[n.in[k]];
    for (int k = 0; is_reference && k < n.n_out; k++) {
        const struct value v = n.out[k] == NO_VALUE ? (struct value){0} : r->g->value[n.out[k]];

        if (n.out[k] == NO_VALUE || v.role != VALUE_TEMP)
            continue;
        r->copy[n.out[k]] = graph_value(r->g, v.role, v.dtype, v.shape, v.name);
        n.out[k] = r->copy[n.out[k]];
    }
    r->g->block = is_reference ? 0 : n.block;
    id = graph_append(r->g, &n);
    for (int k = 0; k < n.n_out; k++)
        if (n.out[k] != NO_VALUE && r->g->value[n.out[k]].role == VALUE_TEMP)
            r->g->value[n.out[k]].producer = id;
}

/* Put a copy of all nodes before them.  Returns what stands for `logits` there. */
static int reference_prepend(struct net *m, int logits)
{
    struct graph *g = m->g;
    struct reference r = {.g = g, .n_nodes = g->n_nodes};
    const int block = g->block;

    r.node = xmalloc(((size_t)r.n_nodes + 1) * sizeof *r.node);
    r.copy = xmalloc(((size_t)g->n_values + 1) * sizeof *r.copy);
    memcpy(r.node, g->node, (size_t)r.n_nodes * sizeof *r.node);
    for (int v = 0; v < g->n_values; v++)
        r.copy[v] = v;
    g->n_nodes = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < r.n_nodes; i++)
            reference_append(&r, i, pass == 0);
    g->block = block;
    m->n_reference = r.n_nodes;
    logits = r.copy[logits];
    free(r.node);
    free(r.copy);
    return logits;
}

/* ---- the loss ---- */

static int preference_check(const struct net *m, const struct model_options *o)
{
    const int answers = sample_answers(m->spec);
    struct shape want;
    char seen[SHAPE_TEXT_LEN];

    if (answers < 0)
        return err_set(m->err, ERR_CONFIG,
                       "model.loss dpo compares two answers to a prompt, and the samples are no "
                       "pairs; want data.format text with .jsonl files of \"prompt\", \"chosen\" "
                       "and \"rejected\"");
    ASSERT(m->loss_of && o->lora.rank > 0); /* job_check */
    want = m->spec->field[answers].shape;
    want = SHAPE(2 * m->g->batch, want.dim[1], m->g->value[m->h].shape.dim[2]);
    if (m->g->value[m->h].shape.n == 3 && shape_equal(&m->g->value[m->h].shape, &want))
        return 0;
    return err_set(m->err, ERR_CONFIG,
                   "model.loss dpo takes logits [batch, places, tokens] of the network, and its "
                   "output is %s",
                   shape_text(&m->g->value[m->h].shape, seen));
}

/* logits [2N,T,V] -> the logarithms of the probabilities of the answers' tokens, [N,2,T] */
static int preference_log_p(const struct net *m, struct compose *c, int logits)
{
    const int answers = m->g->input[sample_answers(m->spec)];
    const struct shape x = m->g->value[logits].shape; /* a copy: values may move */
    const int rows = compose_reshape(c, logits, SHAPE(x.dim[0] * x.dim[1], x.dim[2]));

    return compose_reshape(c, compose_append(c, OP_label_log_p, NULL, (int[]){rows, answers}, 2),
                           SHAPE(m->g->batch, 2, x.dim[1]));
}

/* The two logits of each pair, [N,2]. */
static int preference_logits(struct net *m, struct compose *c, double beta)
{
    const int before = reference_prepend(m, m->h);
    int old = preference_log_p(m, c, before), now;

    if (c->rc < 0)
        return NO_VALUE;
    m->g->value[old].is_detached = 1;
    now = preference_log_p(m, c, m->h);
    now = compose_reduce(c, REDUCE_SUM, compose_elementwise(c, EW_SUB, now, old), 1u << 2, 0);
    return compose_constants(c, EW_AFFINE, now, (float)beta, 0);
}

void layer_preference(struct net *m, const char *name, const struct model_options *o)
{
    const struct loss_term *l = m->losses->term;
    struct compose c = {.g = m->g, .name = name, .err = m->err};
    const union node_attr attr = {
        .loss = {.factor = m->g->training ? (float)l->weight : 0, .part = LOSS_IS_WHOLE}};
    int out[NODE_MAX_OUT] = {m->g->training ? NODE_NEW_OUT : NODE_NO_OUT}, in[3];

    if (m->rc == 0)
        m->rc = preference_check(m, o);
    if (m->rc < 0)
        return;
    in[0] = m->g->logits = preference_logits(m, &c, l->beta);
    in[1] = m->g->input[sample_target(m->spec)];
    in[2] = m->g->metrics;
    m->rc = c.rc;
    if (m->rc == 0)
        m->rc = graph_node(m->g, OP_softmax_xent, &attr, in, 3, out, name, m->err);
}
