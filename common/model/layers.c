/* layers - a network that the job file lists layer by layer: layers_walk.c says how the list is
 * written.  Here are its inputs and outputs, and the job's keys. */
#include "model/layers.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "model/layer_impl.h"
#include "model/layers_impl.h"

static int layers_check(const char *text, size_t len, size_t *at, struct err *err)
{
    struct arena arena = {0};
    const struct reading r = {&arena, at, err};
    const int rc = layers_walk(text, len, &r, NULL, NULL);

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

/* 1: h has this shape for each sample; a last extent of 1 may be left out. */
static int output_is(const struct shape *h, const struct shape *sample)
{
    for (int d = 0; d < sample->n; d++)
        if (d + 1 >= h->n || h->dim[1 + d] != sample->dim[d])
            return 0;
    return h->n == 1 + sample->n || (h->n == 2 + sample->n && h->dim[h->n - 1] == 1);
}

/* Of a target with several places: an output for each class at each place, or for each number. */
static void take_places(struct net *m, const struct sample_field *t)
{
    const struct shape s = m->g->value[m->h].shape;
    const int64_t places = shape_elements(&t->shape);
    struct shape want = t->shape;
    char text[2][SHAPE_TEXT_LEN], batch[SHAPE_TEXT_LEN];

    if (t->role == SAMPLE_CLASS)
        want.dim[want.n++] = s.n > 1 ? max_i64(s.dim[s.n - 1], t->n_classes) : t->n_classes;
    if (output_is(&s, &want) && (t->role == SAMPLE_REAL || s.n == 1 + want.n)) {
        net_reshape(m, "outputs",
                    t->role == SAMPLE_CLASS ? SHAPE(s.dim[0] * places, s.dim[s.n - 1])
                                            : SHAPE(s.dim[0], places));
        m->length = t->role == SAMPLE_CLASS ? places : 0;
        return;
    }
    if (t->role == SAMPLE_CLASS)
        want.dim[want.n - 1] = t->n_classes;
    snprintf(batch, sizeof batch, "%s", shape_text(&want, text[1]) + 1);
    m->rc = err_set(m->err, ERR_CONFIG, "the last of model.layers gives %s, want [N,%s: %s",
                    shape_text(&s, text[0]), batch,
                    t->role == SAMPLE_CLASS ? "a number for each class at each place of the target"
                                            : "as many numbers as the target has, in its shape");
}

static void check_outputs(struct net *m)
{
    const struct sample_field *t = &m->spec->field[sample_target(m->spec)];
    const struct shape *s;
    char text[SHAPE_TEXT_LEN], target[SHAPE_TEXT_LEN];

    net_unfold(m, "outputs");
    if (m->rc < 0)
        return;
    s = &m->g->value[m->h].shape;
    if (!has_parameters(m->g))
        m->rc = err_set(m->err, ERR_CONFIG,
                        "no layer of model.layers has weights, want one that can be trained, such "
                        "as linear: {units: %lld}",
                        (long long)net_n_outputs(m));
    else if (t->shape.n > 0 && (t->role == SAMPLE_CLASS || s->n != 2))
        take_places(m, t);
    else if (t->shape.n == 3 && t->shape.dim[2] > 1)
        m->rc =
            err_set(m->err, ERR_CONFIG,
                    "the last of model.layers gives rows, %s, and the target is images, %s: end "
                    "with reshape: [%lld, %lld, %lld], which says the order of the numbers",
                    shape_text(s, text), shape_text(&t->shape, target), (long long)t->shape.dim[0],
                    (long long)t->shape.dim[1], (long long)t->shape.dim[2]);
    else if (s->n != 2 || !net_fits_target(m, s->dim[1]))
        m->rc =
            err_set(m->err, ERR_CONFIG,
                    "the last of model.layers gives %s, want [N,%lld]: end with flatten and "
                    "linear: {units: %lld}%s",
                    shape_text(s, text), (long long)net_n_outputs(m), (long long)net_n_outputs(m),
                    s->n == 2 ? net_class_doubt(m, s->dim[1]) : "");
}

/* Every field but the target must be read. */
static void check_inputs(struct net *m)
{
    const int target = sample_target(m->spec);

    for (int i = 0; i < m->spec->n_fields && m->rc == 0; i++) {
        int is_read = i == target;

        for (int k = 0; k < m->g->n_nodes && !is_read; k++)
            for (int j = 0; j < m->g->node[k].n_in; j++)
                is_read |= m->g->node[k].in[j] == m->g->input[i];
        if (!is_read)
            m->rc = err_set(m->err, ERR_CONFIG,
                            "no layer reads the input \"%s\": leave it out of the data, or let a "
                            "layer begin with input: %s",
                            m->spec->field[i].name, m->spec->field[i].name);
    }
}

static void layers_build_outlined(struct net *m, const struct layers_options *o,
                                  struct buf *outline)
{
    size_t at = 0;
    const struct reading r = {&m->g->arena, &at, m->err};

    if (m->rc == 0 && layers_take_input(m, "", NULL) == 0)
        m->rc = layers_walk(o->layers, strlen(o->layers), &r, m, outline);
    if (m->rc == 0)
        check_inputs(m);
}

static void layers_build(struct net *m, const void *options)
{
    layers_build_outlined(m, options, NULL);
    if (m->rc == 0)
        check_outputs(m);
}

void layers_print(const struct model_options *o, const struct sample_spec *spec, struct buf *out)
{
    struct graph *g = o->kind == &arch_layers ? graph_new(1, 1) : NULL;
    struct err ignored;
    struct net m = {.g = g, .spec = spec, .h = NO_VALUE, .err = &ignored};

    if (!g)
        return;
    net_add_inputs(&m);
    layers_build_outlined(&m, o->options, out);
    graph_free(g);
}

void layers_limit(const void *arg, const struct sample_spec *spec, int field, int64_t *least,
                  int64_t *most)
{
    const struct model_options *o = arg;
    struct graph *g = o->kind == &arch_layers ? graph_new(1, 1) : NULL;
    struct err ignored;
    struct net m = {.g = g, .spec = spec, .h = NO_VALUE, .err = &ignored};

    if (!g)
        return;
    net_add_inputs(&m);
    layers_build_outlined(&m, o->options, NULL);
    for (int k = 0; k < g->n_nodes; k++) {
        const struct node *n = &g->node[k];

        if (n->op != OP_embedding || n->in[EMBEDDING_TOKENS] != g->input[field])
            continue;
        *least = max_i64(*least, 0);
        *most = min_i64(*most, g->value[n->in[EMBEDDING_TABLE]].shape.dim[0] - 1);
    }
    graph_free(g);
}

#define AT(field) offsetof(struct layers_options, field)

static const struct option rows[] = {
    {"model.layers", OPT_TREE, AT(layers), NULL, .flags = OPT_REQUIRED, .tree = layers_check,
     .help = "The layers, in their order: conv: {channels, kernel, stride, padding, dilation, "
             "groups, bias}, conv1d: {the same}, conv_transpose: {the same, output_padding}, "
             "max_pool and avg_pool: {kernel, stride, padding}, global_avg_pool, "
             "adaptive_avg_pool: {size}, mean, max, upsample: {scale, mode}, batch_norm, "
             "group_norm: {groups, eps}, instance_norm, layer_norm and rms_norm: {eps}, linear: "
             "{units, bias}, embedding: {width, vocab}, position: {std}, attention: {heads, "
             "kv_heads, head_width, causal, rope, rope_base, dropout, bias}, lstm and gru: {units, "
             "layers, bidirectional, dropout, return}, flatten, reshape: {shape}, permute: "
             "{order}, concat: {with, dim}, add and mul: {with}, split: {into, sizes, dim}, "
             "dropout: {p}, relu, tanh, sigmoid, gelu, gelu_tanh, silu, leaky_relu, softmax and "
             "log_softmax (over features or channels); residual: [layers] adds its input to what "
             "they make of it, with shortcut: [layers] beside it where the shapes differ; repeat: "
             "N beside layers: [layers]; save: NAME and from: NAME, also beside a layer; input: "
             "FIELD. A value alone is the first key's, as in linear: 10."},
    {"model.context", OPT_INT, AT(context), "0", 0, 1e6, .unit = "tokens",
     .help = "Tokens of a sample, for data.format tokens and text; 0: the data are others."},
};

const struct model_arch arch_layers = {
    .group = {.name = "layers",
              .help = "the list of layers that the job file gives",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct layers_options)},
    .build = layers_build,
};
