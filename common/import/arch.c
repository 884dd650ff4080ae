/* arch - from the fields of the samples to the imported network, and from its first output to what
 * the loss takes. */
#include "import/arch.h"

#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/util.h"
#include "config/tree.h"
#include "import/lower.h"
#include "model/layer.h"
#include "op/compose.h"

#define AT(field) offsetof(struct import_options, field)

/* ---- model.inputs ---- */

static int arch_read_inputs(const char *text, size_t len, struct arena *arena,
                            const struct tree **out, size_t *at, struct err *err)
{
    const struct tree *t;

    if (tree_parse(text, len, arena, &t, at, err) < 0)
        return err->code;
    *at = t->at;
    if (t->kind != TREE_MAP)
        return err_set(err, ERR_CONFIG,
                       "want a mapping from inputs of the network to fields of the samples, such "
                       "as {input_ids: tokens}");
    for (int i = 0; i < t->n; i++) {
        *at = t->child[i]->at;
        if (t->child[i]->kind != TREE_WORD)
            return err_set(err, ERR_CONFIG, "%s: want the name of one field", t->key[i]->text);
    }
    *out = t;
    return 0;
}

static int arch_check_inputs(const char *text, size_t len, size_t *at, struct err *err)
{
    const struct tree *t;
    struct arena arena;
    int rc;

    arena_init(&arena);
    rc = arch_read_inputs(text, len, &arena, &t, at, err);
    arena_fini(&arena);
    return rc;
}

static const struct option rows[] = {
    {"model.import", OPT_PATH, AT(path), NULL, .flags = OPT_REQUIRED,
     .help = "The network of a file that torch.export.save wrote (NET.pt2), in place of "
             "model.arch. The driver reads it and hands it on; initial weights are the file's, "
             "unless model.init says otherwise (random draws them)."},
    {"model.inputs", OPT_TREE, AT(inputs), "{}", .unit = "inputs", .flags = OPT_MAP,
     .tree = arch_check_inputs,
     .help = "Which field of the samples each input of an imported network is, {input: field}; "
             "by default they follow each other in the same order."},
};

/* ---- building ---- */

static int arch_field(const struct sample_spec *s, const char *name)
{
    for (int i = 0; i < s->n_fields; i++)
        if (!strcmp(s->field[i].name, name))
            return i;
    return -1;
}

static int arch_input(const struct import_network *n, const char *name)
{
    for (int i = 0; i < n->n_inputs; i++)
        if (!strcmp(n->input[i].name, name))
            return i;
    return -1;
}

/* Append the names of the network's inputs or outputs: "x, mask". */
static void arch_list_ports(const struct import_port *p, int n, struct buf *out)
{
    for (int i = 0; i < n; i++)
        buf_printf(out, "%s%s", i ? ", " : "", *p[i].name ? p[i].name : "(unnamed)");
}

static int arch_fail_ports(const struct import_network *n, const char *what, const char *why,
                           struct err *err)
{
    struct buf names = {0};
    int rc;

    arch_list_ports(n->input, n->n_inputs, &names);
    rc = err_set(err, ERR_CONFIG, "model.inputs: %s %s; %s has the inputs %s", what, why, n->path,
                 buf_cstr(&names));
    buf_fini(&names);
    return rc;
}

/* The i-th input is the i-th field that is no target. */
static int arch_in_order(struct net *m, const struct import_network *n, int *input)
{
    const int target = sample_target(m->spec);
    int k = 0;

    for (int i = 0; i < m->spec->n_fields; i++) {
        if (i == target)
            continue;
        if (k == n->n_inputs)
            return arch_fail_ports(n, m->spec->field[i].name,
                                   "is a field of the samples that no input is left for", m->err);
        input[k++] = m->g->input[i];
    }
    return k == n->n_inputs
               ? 0
               : arch_fail_ports(n, n->input[k].name,
                                 "is an input for which the samples have no field", m->err);
}

static int arch_by_name(struct net *m, const struct import_network *n, const struct tree *t,
                        int *input)
{
    for (int i = 0; i < t->n; i++) {
        const int at = arch_input(n, t->key[i]->text),
                  field = arch_field(m->spec, t->child[i]->text);

        if (at < 0)
            return arch_fail_ports(n, t->key[i]->text, "is no input of the network", m->err);
        if (field < 0 || field == sample_target(m->spec))
            return arch_fail_ports(n, t->child[i]->text, "is no input field of the samples",
                                   m->err);
        input[at] = m->g->input[field];
    }
    for (int i = 0; i < n->n_inputs; i++)
        if (input[i] == NO_VALUE)
            return arch_fail_ports(n, n->input[i].name, "is an input without a field", m->err);
    return 0;
}

static int arch_find_inputs(struct net *m, const struct import_options *o, int *input)
{
    const struct tree *t = NULL;
    size_t at;

    for (int i = 0; i < o->network->n_inputs; i++)
        input[i] = NO_VALUE;
    if (arch_read_inputs(o->inputs, strlen(o->inputs), &m->g->arena, &t, &at, m->err) < 0)
        return err_wrap(m->err, "model.inputs");
    return t->n > 0 ? arch_by_name(m, o->network, t, input) : arch_in_order(m, o->network, input);
}

/* The loss takes rows of outputs: [N,C] as it is, and [N,T,V] as N*T rows. */
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
    } else if (s.n != 2) {
        m->rc = err_set(m->err, ERR_UNSUPPORTED,
                        "%s: its first output is %s, want [batch, outputs] or [batch, places, "
                        "outputs] for model.loss",
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
