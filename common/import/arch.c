/* arch - from the fields of the samples to the imported network, and from its first output to what
 * the loss takes. */
#include "import/arch.h"

#include <string.h>

#include "base/arena.h"
#include "base/util.h"
#include "import/inputs.h"
#include "import/lower.h"
#include "model/layer.h"
#include "op/compose.h"

#define AT(field) offsetof(struct import_options, field)

static const struct option rows[] = {
    {"model.import", OPT_PATH, AT(path), NULL, .flags = OPT_REQUIRED,
     .help = "The network of a file that torch.export.save wrote (NET.pt2), in place of "
             "model.arch. The driver reads it and hands it on; initial weights are the file's, "
             "unless model.init says otherwise (random draws them)."},
    {"model.inputs", OPT_TREE, AT(inputs), "{}", .unit = "inputs", .flags = OPT_MAP,
     .tree = import_inputs_check,
     .help = "Which field of the samples each input of an imported network takes, {input: field}. "
             "Other inputs take the field of the same name; fields that are left feed the inputs "
             "that are left, in order."},
};

/* ---- building ---- */

/* The graph value of each input. */
static int arch_find_inputs(struct net *m, const struct import_options *o, int *input)
{
    const int rc = import_inputs_find(o, m->spec, input, m->err);

    for (int i = 0; rc == 0 && i < o->network->n_inputs; i++)
        input[i] = input[i] < 0 ? NO_VALUE : m->g->input[input[i]];
    return rc;
}

/* The loss takes rows of outputs: [N,C] as it is, [N,T,V] as N*T rows, [N,C,H,W] as N*H*W. */
static void arch_take_output(struct net *m, const struct import_network *n, int value)
{
    struct compose c = {.g = m->g, .name = "logits", .err = m->err};
    char text[SHAPE_TEXT_LEN];
    struct shape s;

    if (value == NO_VALUE) {
        m->rc = err_set(m->err, ERR_UNSUPPORTED,
                        "%s: its first output%s%s is no tensor, and the loss takes that one",
                        n->path, *n->output[0].name ? " " : "", n->output[0].name);
        return;
    }
    s = m->g->value[value].shape;
    if (s.n == 3) {
        m->length = s.dim[1];
        value = compose_reshape(&c, value, (struct shape){2, {m->g->batch * s.dim[1], s.dim[2]}});
    } else if (s.n == 4) { /* a row for each pixel */
        m->length = s.dim[2] * s.dim[3];
        value = compose_permute(&c, value, (const int[]){0, 2, 3, 1});
        value = compose_reshape(&c, value, SHAPE(m->g->batch * m->length, s.dim[1]));
    } else if (s.n != 2) {
        m->rc = err_set(m->err, ERR_UNSUPPORTED,
                        "%s: its first output is %s, want [batch, outputs], [batch, places, "
                        "outputs] or [batch, outputs, rows, columns] for model.loss",
                        n->path, shape_text(&s, text));
        return;
    }
    m->rc = c.rc;
    m->h = value;
}

static void arch_build(struct net *m, const void *options)
{
    const struct import_options *o = options;
    const struct import_network *n = o->network;
    int *input, *output;

    if (!n || n->n_outputs == 0) {
        m->rc = n ? err_set(m->err, ERR_CONFIG, "%s: the network has no output", n->path)
                  : err_set(m->err, ERR_CONFIG,
                            "model.import: %s has not been read, and the driver handed no network "
                            "on",
                            o->path);
        return;
    }
    input = arena_alloc(&m->g->arena, ((size_t)n->n_inputs + 1) * sizeof *input);
    output = arena_alloc(&m->g->arena, (size_t)n->n_outputs * sizeof *output);
    m->rc = arch_find_inputs(m, o, input);
    if (m->rc == 0)
        m->rc = import_lower(m, n, &(struct import_choices){.input = input, .dropout = -1}, output);
    if (m->rc < 0)
        return;
    import_freeze_unused(m->g, output, 1);
    arch_take_output(m, n, output[0]);
}

const struct model_arch arch_import = {
    .group = {.name = "import",
              .help = "a network that PyTorch exported, model.import",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct import_options)},
    .build = arch_build,
};

const struct import_options *import_options_of(const struct model_options *o)
{
    return o->kind == &arch_import ? o->options : NULL;
}

int import_check_batch(const struct model_options *o, const struct sample_spec *spec,
                       struct err *err)
{
    struct graph *a = NULL, *b = NULL;
    int rc;

    if (!import_options_of(o))
        return 0;
    rc = model_build(o, spec, 2, 1, 0, &a, err);
    if (rc == 0)
        rc = model_build(o, spec, 3, 1, 0, &b, err);
    if (rc == 0)
        rc = import_same_but_batch(a, b, err);
    graph_free(a);
    graph_free(b);
    return rc < 0 ? err_wrap(err, "model.import") : 0;
}
