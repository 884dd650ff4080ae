/* arch - from the fields of the samples to the imported network, and from its outputs to the losses
 * of the job. */
#include "import/arch.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/util.h"
#include "import/folder.h"
#include "import/inputs.h"
#include "import/lower.h"
#include "model/layer.h"
#include "model/losses.h"
#include "op/compose.h"

#define AT(field) offsetof(struct import_options, field)

static const struct option rows[] = {
    {"model.import", OPT_PATH, AT(path), NULL, .flags = OPT_REQUIRED | OPT_NONE | OPT_RESUME,
     .help = "The network of a file that torch.export.save (NET.pt2) or an exporter of ONNX "
             "(NET.onnx) wrote, or of a folder with transformers' config.json and "
             "model.safetensors, in place of model.arch; none takes it back. The driver reads it "
             "and hands it on; initial weights "
             "are the file's, "
             "unless model.init says otherwise (random draws them)."},
    {"model.context", OPT_INT, AT(context), "0", 0, FOLDER_CONTEXT_LIMIT, .unit = "tokens",
     .help = "Tokens of a sample, of a network that a folder describes; 0: as many as "
             "its config.json has positions, 1024 at most. A file's network has its own number."},
    {"model.inputs", OPT_TREE, AT(inputs), "{}", .unit = "inputs", .flags = OPT_MAP,
     .tree = import_inputs_check,
     .help = "Which field of the samples each input of an imported network takes, {input: field}. "
             "Other inputs take the field of the same name; fields that are left feed the inputs "
             "that are left, in order."},
};

/* Old files have frequencies of the rotary positions, or masks, a pooler, or numbers of positions;
 * some have a tied head twice, and those of GPT-2 on Hugging Face's hub have no prefix. */
static const char *const arch_folder_ignored[] = {".rotary_emb.inv_freq",
                                                  "bert.embeddings.position_ids",
                                                  "vit.pooler.dense.weight",
                                                  "vit.pooler.dense.bias", NULL},
                         *const arch_gpt2_ignored[] = {".attn.bias", ".attn.masked_bias", NULL};
static const struct model_file arch_folder_file = {NULL, arch_folder_ignored, "lm_head.weight",
                                                   "model.embed_tokens.weight", NULL},
                               arch_gpt2_file = {"transformer.", arch_gpt2_ignored,
                                                 "lm_head.weight", "transformer.wte.weight", NULL};

const struct model_file *import_file_of(const struct model_options *o)
{
    const struct import_options *import = import_options_of(o);
    const struct import_network *n = import ? import->network : NULL;

    if (!n || !n->config)
        return NULL;
    for (int i = 0; i < n->n_tensors; i++)
        if (!strcmp(n->tensor[i].name, arch_gpt2_file.tied_to))
            return &arch_gpt2_file;
    return &arch_folder_file;
}

/* ---- building ---- */

/* The graph value of each input. */
static int arch_find_inputs(struct net *m, const struct import_options *o, int *input)
{
    const int rc = import_inputs_find(o, m->spec, input, m->err);

    for (int i = 0; rc == 0 && i < o->network->n_inputs; i++)
        input[i] = input[i] < 0 ? NO_VALUE : m->g->input[input[i]];
    return rc;
}

/* ---- outputs ---- */

const char *import_output_name(const struct import_network *n, int k, char room[32])
{
    const char *name = n->output[k].name;

    if (name[strspn(name, "0123456789")])
        return name;
    snprintf(room, 32, "output%d", k);
    return room;
}

static int arch_find_output(struct net *m, const struct import_network *n, const char *name)
{
    struct buf names = {0};
    char room[32];

    for (int k = 0; k < n->n_outputs; k++)
        if (!name || !strcmp(import_output_name(n, k, room), name))
            return k;
    for (int k = 0; k < n->n_outputs; k++)
        buf_printf(&names, "%s%s", k ? ", " : "", import_output_name(n, k, room));
    m->rc = err_set(m->err, ERR_CONFIG, "model.loss: %.60s is no output of %s, which has %s", name,
                    n->path, buf_cstr(&names));
    buf_fini(&names);
    return 0;
}

/* The value of the network's output `name`, NULL: the first one; fails if it is no tensor. */
static int arch_output_value(struct net *m, const struct import_network *n, const int *output,
                             const char *name)
{
    const int at = arch_find_output(m, n, name);
    char room[32];

    if (m->rc == 0 && output[at] == NO_VALUE)
        m->rc = err_set(m->err, ERR_UNSUPPORTED,
                        "%s: its output %s is no tensor, and model.loss takes it", n->path,
                        import_output_name(n, at, room));
    return m->rc < 0 ? NO_VALUE : output[at];
}

/* Choose the outputs that the losses take.  Predictions are the first one; where that one is a loss
 * itself, the first output of rows. */
static void arch_take_outputs(struct net *m, const struct import_network *n, const int *output)
{
    const struct losses *l = m->losses;
    int *of = arena_alloc(&m->g->arena, sizeof *of * 3 * (size_t)l->n);

    for (int i = 0; i < 3 * l->n; i++)
        of[i] = NO_VALUE;
    for (int k = 0; k < l->n && m->rc == 0; k++) {
        const struct loss_term *term = &l->term[k];

        of[k] = arch_output_value(m, n, output, term->output);
        if (m->rc == 0 && term->with)
            of[l->n + k] = arch_output_value(m, n, output, term->with);
        if (m->rc == 0 && term->scale)
            of[2 * l->n + k] = arch_output_value(m, n, output, term->scale);
    }
    if (m->rc < 0)
        return;
    m->loss_of = of;
    m->loss_with = of + l->n;
    m->loss_scale = of + 2 * l->n;
    m->h = of[0];
    for (int k = 0; k < n->n_outputs && l->term[0].kind == LOSS_OUTPUT && m->h == of[0]; k++)
        if (output[k] != NO_VALUE && m->g->value[output[k]].shape.n >= 2)
            m->h = output[k];
    import_freeze_unused(m->g, of, 3 * l->n);
}

static int arch_check_output(struct net *m, const struct import_network *n)
{
    const struct shape *s = &m->g->value[m->h].shape;
    char text[SHAPE_TEXT_LEN];

    if (s->n >= 2 || m->losses->term[0].kind == LOSS_OUTPUT)
        return 0;
    return err_set(m->err, ERR_UNSUPPORTED,
                   "%s: the output of model.loss is %s, want [batch, outputs], [batch, places, "
                   "outputs] or [batch, outputs, rows, columns]",
                   n->path, shape_text(s, text));
}

/* Nothing tells of a file's graph what joins the places of a sample. */
static int arch_check_packed(const struct net *m, const struct import_network *n)
{
    if (n->packs || sample_starts(m->spec) < 0)
        return 0;
    return err_set(m->err, ERR_CONFIG,
                   "%s (model.import): packed documents can be kept apart in a folder's causal "
                   "language models alone, such as llama's; set data.pack false",
                   n->path);
}

/* Pairs of answers are rows of tokens, two for each sample. */
static int arch_check_pairs(const struct net *m, const struct import_network *n)
{
    if ((n->packs && n->config) || sample_answers(m->spec) < 0)
        return 0;
    return err_set(m->err, ERR_CONFIG,
                   "%s (model.import): model.loss dpo is for a folder's causal language models, "
                   "such as llama's",
                   n->path);
}

/* The rows of the network for each sample. */
static int arch_rows(const struct net *m) { return sample_answers(m->spec) >= 0 ? 2 : 1; }

/* The inputs of pairs, [N,2,T], as rows [2N,T]. */
static void arch_join_pairs(struct net *m, int *input, int n)
{
    struct compose c = {.g = m->g, .name = "pairs", .err = m->err};

    for (int i = 0; i < n && arch_rows(m) > 1; i++)
        if (input[i] != NO_VALUE)
            input[i] = compose_reshape(&c, input[i], SHAPE(-1, m->g->value[input[i]].shape.dim[2]));
    m->rc = c.rc;
}

/* A table that is read by constant places has learnt positions.  import/recognise.c lets them begin
 * anew in each document where it finds them, and no other node may read them. */
static int arch_check_places(const struct net *m, const struct import_network *n)
{
    int n_tables = 0, n_found = 0;

    for (int k = 0; k < m->g->n_nodes && sample_starts(m->spec) >= 0; k++) {
        const struct node *at = &m->g->node[k];

        if (at->op != OP_embedding)
            continue;
        n_tables += m->g->value[at->in[EMBEDDING_TOKENS]].role == VALUE_CONST;
        n_found += at->in[EMBEDDING_STARTS] != NO_VALUE;
    }
    return n_tables <= n_found
               ? 0
               : err_set(m->err, ERR_UNSUPPORTED,
                         "%s (model.import): its positions cannot begin anew in packed documents; "
                         "set data.pack false",
                         n->path);
}

/* A network of pairs has no dropout, as trl has it: the reference would be another function. */
static void arch_lower(struct net *m, const struct import_network *n, const int *input, int *output)
{
    const int each = arch_rows(m);
    const struct import_choices choices = {.input = input, .dropout = each > 1 ? 0 : -1};
    const int64_t batch = m->g->batch;

    m->g->batch *= each;
    m->rc = import_lower(m, n, &choices, output);
    m->g->batch = batch;
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
    m->rc = arch_check_packed(m, n);
    if (m->rc == 0)
        m->rc = arch_check_pairs(m, n);
    if (m->rc == 0)
        m->rc = arch_find_inputs(m, o, input);
    if (m->rc == 0)
        arch_join_pairs(m, input, n->n_inputs);
    if (m->rc == 0)
        arch_lower(m, n, input, output);
    if (m->rc == 0)
        m->rc = arch_check_places(m, n);
    if (m->rc == 0)
        arch_take_outputs(m, n, output);
    if (m->rc == 0)
        m->rc = arch_check_output(m, n);
}

const struct model_arch arch_import = {
    .group = {.name = "import",
              .help = "a network that PyTorch exported, model.import",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct import_options)},
    .build = arch_build,
    .packs = 1,
};

const struct import_options *import_options_of(const struct model_options *o)
{
    return o->kind == &arch_import ? o->options : NULL;
}

int import_build_outputs(const struct model_options *o, const struct sample_spec *spec,
                         int64_t batch, int *value, struct graph **out, struct err *err)
{
    const struct import_options *import = import_options_of(o);
    struct graph *g = graph_new(batch, 0);
    struct net m = {.g = g, .spec = spec, .h = NO_VALUE, .err = err};
    int *input = arena_alloc(&g->arena, ((size_t)import->network->n_inputs + 1) * sizeof *input);

    net_add_inputs(&m);
    m.rc = arch_find_inputs(&m, import, input);
    if (m.rc == 0)
        m.rc = import_lower(&m, import->network,
                            &(struct import_choices){.input = input, .dropout = -1}, value);
    if (m.rc < 0)
        graph_free(g);
    else
        *out = g;
    return m.rc;
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
