/* onnx - a file's graph, node by node, as nodes of PyTorch.
 *
 * The happy path: name the operators that are missing; make the initializers and inputs; translate
 * each node by its row; take the outputs; let import_network_check judge the whole.  A graph whose
 * batch has no number is read for two batches: what is the same for both is the network's, and a
 * constant that is not depends on the batch, which is refused. */
#include "import/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "import/onnx_impl.h"

/* Batches in the place of one without a number: sizes that networks seldom have elsewhere. */
enum { ONNX_BATCH = 13, ONNX_OTHER_BATCH = 17 };

static int onnx_is_default(const char *domain)
{
    return !domain || !*domain || !strcmp(domain, "ai.onnx");
}

const struct onnx_op *const onnx_tables[] = {
    onnx_math,   onnx_layers,   onnx_norms, onnx_attention, onnx_choose, onnx_recurrent,
    onnx_resize, onnx_products, onnx_views, onnx_sizes,     NULL};

static const struct onnx_op *onnx_find(const Onnx__NodeProto *n)
{
    for (int t = 0; onnx_tables[t] && n->op_type && onnx_is_default(n->domain); t++)
        for (const struct onnx_op *op = onnx_tables[t]; op->name; op++)
            if (!strcmp(op->name, n->op_type))
                return op;
    return NULL;
}

/* Name all operators that have no row, with their counts. */
static int onnx_find_missing(struct onnx *o)
{
    const Onnx__GraphProto *g = o->file->model->graph;
    json_t *counts = json_object(), *count;
    struct buf text = {0};
    const char *name;

    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *n = g->node[i];
        char key[256];

        if (onnx_find(n))
            continue;
        snprintf(key, sizeof key, "%s%s%s", onnx_is_default(n->domain) ? "" : n->domain,
                 onnx_is_default(n->domain) ? "" : ".", n->op_type ? n->op_type : "");
        json_object_set_new_nocheck(
            counts, key, json_integer(json_integer_value(json_object_get(counts, key)) + 1));
    }
    json_object_foreach(counts, name, count)
        buf_printf(&text, "%s%s, %lld of the nodes", text.len ? "; " : "", name,
                   (long long)json_integer_value(count));
    if (text.len)
        onnx_fail(o, ERR_UNSUPPORTED, "it has %zu operator%s that dptrain lacks: %s",
                  json_object_size(counts), json_object_size(counts) > 1 ? "s" : "",
                  buf_cstr(&text));
    buf_fini(&text);
    json_decref(counts);
    return o->rc;
}

static void onnx_check_opset(struct onnx *o)
{
    const Onnx__ModelProto *m = o->file->model;
    int64_t version = 0;

    for (size_t i = 0; i < m->n_opset_import; i++)
        if (onnx_is_default(m->opset_import[i]->domain))
            version = m->opset_import[i]->version;
    if (version < ONNX_FIRST_OPSET || version > ONNX_LAST_OPSET)
        onnx_fail(o, ERR_UNSUPPORTED,
                  "it uses operator set %lld, want %d to %d (torch.onnx.export(..., "
                  "opset_version=20))",
                  (long long)version, ONNX_FIRST_OPSET, ONNX_LAST_OPSET);
    o->opset = (int)version;
}

/* ---- initializers ---- */

/* Names behind "%b_" in the nodes of PyTorch's exporter: its buffers. */
static void onnx_find_buffers(struct onnx *o)
{
    const Onnx__GraphProto *g = o->file->model->graph;
    json_t *marked = json_object();

    for (size_t i = 0; i < g->n_node; i++)
        for (const char *at = onnx_file_metadata(g->node[i], "pkg.torch.onnx.fx_node");
             (at = strstr(at, "%b_")); at++) {
            const char *name = at + 3;
            const size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_");

            json_object_set_new(marked, arena_printf(&o->memory, "%.*s", (int)n, name),
                                json_true());
        }
    for (size_t i = 0; i < g->n_initializer; i++) {
        char *name = arena_strdup(&o->memory, g->initializer[i]->name);

        for (char *c = name; *c; c++)
            *c = *c == '.' ? '_' : *c;
        if (json_object_get(marked, name))
            json_object_set_new(o->buffers, g->initializer[i]->name, json_true());
    }
    json_decref(marked);
}

/* Inputs of a layer from this one on are states, as those of recurrent ones. */
enum { ONNX_WEIGHTS_BEFORE = 5 };

/* Initializers that layers take as weights. */
static json_t *onnx_find_weights(const Onnx__GraphProto *g)
{
    static const char *const layers[] = {"Conv",
                                         "ConvTranspose",
                                         "Gemm",
                                         "MatMul",
                                         "Gather",
                                         "BatchNormalization",
                                         "LayerNormalization",
                                         "GroupNormalization",
                                         "InstanceNormalization",
                                         "RMSNormalization",
                                         "PRelu",
                                         "Einsum",
                                         "LSTM",
                                         "GRU",
                                         "RNN",
                                         "Transpose"};
    json_t *weights = json_object();

    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < ARRAY_LEN(layers); k++)
            if (g->node[i]->op_type && !strcmp(g->node[i]->op_type, layers[k]))
                for (size_t a = 0; a < g->node[i]->n_input && a < ONNX_WEIGHTS_BEFORE; a++)
                    json_object_set_new(weights, g->node[i]->input[a], json_true());
    return weights;
}

/* 1: an exporter made the name up: "val_8", "onnx::MatMul_12", "lifted_tensor_0". */
static int onnx_is_anonymous(const char *name)
{
    return !strncmp(name, "val_", 4) || !strncmp(name, "onnx::", 6) || name[0] == '/' ||
           name[0] == '_' || !strncmp(name, "scalar_tensor", 13) ||
           !strncmp(name, "lifted_tensor", 13);
}

/* Whole numbers, buffers, and floats of the exporter's that no layer takes are constants. */
static int onnx_is_constant(struct onnx *o, const char *name, enum import_type type, int64_t n,
                            const json_t *weights)
{
    const char *producer = o->file->model->producer_name;
    const int is_named =
        !onnx_is_anonymous(name) && (n != 1 || (producer && !strcmp(producer, "pytorch")));

    if (!host_is_real(type) || json_object_get(o->buffers, name))
        return 1;
    return !is_named && !json_object_get(weights, name);
}

static void onnx_initializers(struct onnx *o)
{
    const Onnx__GraphProto *g = o->file->model->graph;
    json_t *weights = onnx_find_weights(g);
    struct import_value like;
    int64_t n;

    onnx_find_buffers(o);
    for (size_t i = 0; i < g->n_initializer && o->rc == 0; i++) {
        const Onnx__TensorProto *t = g->initializer[i];
        int v;

        if (onnx_tensor_shape(t, &like, &n, o->err) < 0 ||
            onnx_tensor_read(o->file->path, t, 0, 0, NULL, o->err) < 0) {
            o->rc = o->err->code;
            break;
        }
        v = onnx_value_new(o, arena_strdup(&o->net->arena, t->name), like.type, like.n_dims,
                           like.dim);
        if (o->rc < 0)
            break;
        o->known[v].init = t;
        o->known[v].is_constant = onnx_is_constant(o, t->name, like.type, n, weights);
        json_object_set_new(o->names, t->name, json_integer(v));
    }
    json_decref(weights);
}

/* ---- inputs and outputs ---- */

static int64_t onnx_extent(struct onnx *o, const Onnx__ValueInfoProto *p, size_t d,
                           const char **batch)
{
    const Onnx__TensorShapeProto__Dimension *dim = p->type->tensor_type->shape->dim[d];
    const int is_number = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    const char *name = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                           ? dim->dim_param
                           : "";

    if (is_number && dim->dim_value > 0)
        return dim->dim_value;
    if (d == 0 && !*batch)
        *batch = name;
    if (d == 0 || (*name && *batch && !strcmp(name, *batch))) {
        o->has_batch = 1;
        return o->batch;
    }
    onnx_fail(o, ERR_UNSUPPORTED,
              "dimension %zu of its input %s is \"%s\", want a number: only the batch, dimension "
              "0, may be open; export the network without dynamic shapes there",
              d, p->name, name);
    return 1;
}

static void onnx_inputs(struct onnx *o)
{
    const Onnx__GraphProto *g = o->file->model->graph;
    struct import_network *n = o->net;
    const char *batch = NULL;

    n->input = arena_alloc(&n->arena, sizeof *n->input * (g->n_input + 1));
    for (size_t i = 0; i < g->n_input && o->rc == 0; i++) {
        const Onnx__ValueInfoProto *p = g->input[i];
        const Onnx__TypeProto__Tensor *t =
            p->type && p->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE
                ? p->type->tensor_type
                : NULL;
        int64_t dim[IMPORT_MAX_DIMS];
        int type, v;

        if (p->name && json_object_get(o->file->initializers, p->name))
            continue; /* files of older versions list them, too */
        type = t ? onnx_type(t->elem_type) : -1;
        if (!p->name || !t || !t->shape || type < 0 || t->shape->n_dim > IMPORT_MAX_DIMS) {
            onnx_fail(o, ERR_UNSUPPORTED,
                      "its input %s is no tensor of floats, integers or booleans with a shape of "
                      "at most %d dimensions",
                      p->name ? p->name : "(without a name)", IMPORT_MAX_DIMS);
            return;
        }
        for (size_t d = 0; d < t->shape->n_dim; d++)
            dim[d] = onnx_extent(o, p, d, &batch);
        v = onnx_value_new(o, arena_strdup(&n->arena, p->name), (enum import_type)type,
                           (int)t->shape->n_dim, dim);
        n->input[n->n_inputs++] = (struct import_port){n->value[v].name, v};
        if (json_object_get(o->names, p->name) ||
            json_object_set_new(o->names, p->name, json_integer(v)) < 0)
            onnx_fail(o, ERR_CORRUPT, "it has two inputs %s, or one whose name is no UTF-8",
                      p->name);
    }
}

static void onnx_outputs(struct onnx *o)
{
    const Onnx__GraphProto *g = o->file->model->graph;
    struct import_network *n = o->net;

    n->output = arena_alloc(&n->arena, sizeof *n->output * (g->n_output + 1));
    for (size_t i = 0; i < g->n_output && o->rc == 0; i++) {
        const char *name = g->output[i]->name ? g->output[i]->name : "";
        json_t *at = json_object_get(o->names, name);
        const int v = (int)json_integer_value(at);

        if (!at && json_object_get(o->unmade, name))
            onnx_fail(o, ERR_UNSUPPORTED,
                      "its output %s is one of %s that is not supported: take it from the outputs",
                      name, json_string_value(json_object_get(o->unmade, name)));
        else if (!at)
            onnx_fail(o, ERR_CORRUPT,
                      "no node makes its output %s; the file is damaged: export it again", name);
        else if (o->known[v].init || o->fold.value[v])
            continue; /* a constant: nothing to train */
        else
            n->output[n->n_outputs++] = (struct import_port){arena_strdup(&n->arena, name), v};
    }
}

/* The file's word about a value of a node, where it has one, must be ours. */
static void onnx_compare(struct onnx *o)
{
    const Onnx__GraphProto *g = o->file->model->graph;

    for (size_t i = 0; i < g->n_value_info + g->n_output && o->rc == 0; i++) {
        const Onnx__ValueInfoProto *p =
            i < g->n_value_info ? g->value_info[i] : g->output[i - g->n_value_info];
        json_t *at = p->name ? json_object_get(o->names, p->name) : NULL;
        const Onnx__TypeProto__Tensor *t =
            p->type && p->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE
                ? p->type->tensor_type
                : NULL;
        const struct import_value *v = at ? onnx_value(o, (int)json_integer_value(at)) : NULL;
        int same = 1;

        if (!v || !t || !t->shape)
            continue;
        same = t->shape->n_dim == (size_t)v->n_dims &&
               (!t->has_elem_type || t->elem_type == 0 || onnx_type(t->elem_type) == (int)v->type);
        for (int d = 0; d < v->n_dims && same; d++)
            same = t->shape->dim[d]->value_case !=
                       ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE ||
                   t->shape->dim[d]->dim_value == v->dim[d];
        if (!same)
            onnx_fail(o, ERR_CORRUPT,
                      "value %s has another type or shape in the file than its node gives it; the "
                      "file is damaged, or its exporter differs: export it without value_info",
                      p->name);
    }
}

/* ---- nodes ---- */

/* The module of the node: the last but one name of PyTorch's scopes, or the path in its name. */
static const char *onnx_module(struct onnx *o, const Onnx__NodeProto *n)
{
    const char *scopes = onnx_file_metadata(n, "pkg.torch.onnx.name_scopes"), *at, *name = n->name;
    const char *end = strrchr(scopes, ','), *slash;
    char *module;

    if (end) {
        for (at = end; at > scopes && at[-1] != ' ' && at[-1] != '['; at--)
            ;
        if (end - at >= 2 && *at == '\'' && end[-1] == '\'')
            return arena_printf(&o->net->arena, "%.*s", (int)(end - at - 2), at + 1);
        return "";
    }
    slash = name && name[0] == '/' ? strrchr(name, '/') : NULL;
    if (!slash || slash == name)
        return "";
    module = arena_printf(&o->net->arena, "%.*s", (int)(slash - name - 1), name + 1);
    for (char *c = module; *c; c++)
        *c = *c == '/' ? '.' : *c;
    return module;
}

static void onnx_take_node(struct onnx *o, const Onnx__NodeProto *n)
{
    const struct onnx_op *op = onnx_find(n);

    o->node = n;
    o->module = onnx_module(o, n);
    o->n_made = o->n_args = 0;
    if (o->opset < op->since)
        onnx_fail(o, ERR_CORRUPT, "it needs operator set %d, the file says %d", op->since,
                  o->opset);
    if (n->n_output < 1)
        onnx_fail(o, ERR_CORRUPT, "it has no output; the file is damaged: export it again");
    for (int i = 0; i < op->least && o->rc == 0; i++)
        if (i >= (int)n->n_input || !*n->input[i])
            onnx_fail(o, ERR_CORRUPT,
                      "it has %zu inputs, want %d; the file is damaged: export it "
                      "again",
                      n->n_input, op->least);
    for (int i = 0; i < (int)n->n_input && o->rc == 0; i++)
        onnx_in(o, i);
    if (o->rc == 0)
        op->make(o, op);
    for (size_t i = 0; i < n->n_output && o->rc == 0; i++)
        if (*n->output[i] && !json_object_get(o->names, n->output[i]))
            json_object_set_new(o->unmade, n->output[i], json_string(n->op_type));
    o->node = NULL;
}

/* ---- the whole ---- */

/* The arrays that grew, in the network's arena. */
static void onnx_settle(struct onnx *o)
{
    struct import_network *n = o->net;
    void *old[] = {n->value, n->node, n->tensor};

    n->value = arena_copy(&n->arena, n->value, sizeof *n->value * (size_t)n->n_values);
    n->node = arena_copy(&n->arena, n->node, sizeof *n->node * (size_t)n->n_nodes);
    n->tensor = arena_copy(&n->arena, n->tensor, sizeof *n->tensor * (size_t)n->n_tensors);
    for (size_t i = 0; i < ARRAY_LEN(old); i++)
        free(old[i]);
}

static void onnx_translate(struct onnx *o)
{
    const Onnx__GraphProto *g = o->file->model->graph;

    onnx_check_opset(o);
    if (o->rc == 0)
        onnx_find_missing(o);
    if (o->rc == 0)
        onnx_refuse_folded(o);
    if (o->rc == 0)
        onnx_value_new(o, "", IMPORT_F32, 0, NULL); /* 0 stands for all after a failure */
    if (o->rc == 0)
        onnx_initializers(o);
    if (o->rc == 0)
        onnx_inputs(o);
    for (size_t i = 0; i < g->n_node && o->rc == 0; i++)
        onnx_take_node(o, g->node[i]);
    if (o->rc == 0)
        onnx_outputs(o);
    if (o->rc == 0)
        onnx_compare(o);
}

static int onnx_parse_at(const struct onnx_file *f, int64_t batch, int *has_batch,
                         struct import_network **out, struct err *err)
{
    struct onnx o = {.file = f, .err = err, .batch = batch, .module = ""};
    const char *producer = f->model->producer_name, *version = f->model->producer_version;

    o.net = import_network_new(f->path);
    o.net->writer = arena_printf(&o.net->arena, "%s %s", producer ? producer : "unknown",
                                 version ? version : "");
    arena_init(&o.memory);
    o.fold.a = &o.memory;
    o.names = json_object();
    o.buffers = json_object();
    o.unmade = json_object();
    o.sequences = json_object();
    onnx_translate(&o);
    onnx_settle(&o);
    if (o.rc == 0 && import_network_check(o.net, err) < 0)
        o.rc = err->code;
    else if (o.rc < 0)
        err_wrap(err, "%s", f->path);
    *has_batch = o.has_batch;
    json_decref(o.names);
    json_decref(o.buffers);
    json_decref(o.unmade);
    json_decref(o.sequences);
    free(o.known);
    free(o.fold.value);
    arena_fini(&o.memory);
    if (o.rc < 0)
        import_network_free(o.net);
    else
        *out = o.net;
    return o.rc;
}

static int onnx_same_bytes(const struct import_tensor *a, const struct import_tensor *b)
{
    if (a->n_dims != b->n_dims || memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->n_dims) != 0)
        return 0;
    if (a->role != b->role || a->type != b->type || !a->bytes != !b->bytes ||
        strcmp(a->name, b->name) != 0)
        return 0;
    return !a->bytes || !memcmp(a->bytes, b->bytes,
                                (size_t)import_tensor_elements(a) * import_type_size(a->type));
}

/* Numbers of arithmetic that differ. */
static int onnx_same_numbers(const struct import_node *a, const struct import_node *b)
{
    if (strcmp(a->target, b->target) != 0 || a->n_args != b->n_args)
        return 0;
    for (int i = 0; i < a->n_args; i++) {
        const struct import_arg *x = &a->arg[i], *y = &b->arg[i];

        if (x->kind != y->kind || x->n != y->n ||
            (x->kind == IMPORT_REAL && memcmp(x->reals, y->reals, sizeof *x->reals) != 0) ||
            (x->kind == IMPORT_INT && x->ints[0].number != y->ints[0].number))
            return 0;
    }
    return 1;
}

/* The readings of the file for two batches are one network. */
static int onnx_same_but_batch(const struct import_network *a, const struct import_network *b,
                               struct err *err)
{
    const char *of = NULL;

    if (a->n_nodes != b->n_nodes || a->n_tensors != b->n_tensors)
        of = "the number of its nodes";
    for (int i = 0; i < a->n_tensors && !of; i++)
        if (!onnx_same_bytes(&a->tensor[i], &b->tensor[i]))
            of = a->tensor[i].name;
    for (int i = 0; i < a->n_nodes && !of; i++)
        if (!onnx_same_numbers(&a->node[i], &b->node[i]))
            of = a->node[i].name;
    return of ? err_set(err, ERR_UNSUPPORTED,
                        "%s: %s depends on the number of samples in a batch, which differs "
                        "between ranks; want a network that treats each sample alone",
                        a->path, of)
              : 0;
}

int onnx_parse(const struct onnx_file *f, struct import_network **out, struct err *err)
{
    struct import_network *n = NULL, *other = NULL;
    int has_batch, rc = onnx_parse_at(f, ONNX_BATCH, &has_batch, &n, err);

    if (rc == 0 && has_batch)
        rc = onnx_parse_at(f, ONNX_OTHER_BATCH, &has_batch, &other, err);
    if (rc == 0 && other)
        rc = onnx_same_but_batch(n, other, err);
    import_network_free(other);
    if (rc < 0) {
        import_network_free(n);
        return rc;
    }
    onnx_doubt(f, n);
    *out = n;
    return 0;
}
