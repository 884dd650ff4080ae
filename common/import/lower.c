/* lower - the walk over a network's nodes: its parameters, its inputs, and one builder for each
 * node that is no constant. */
#include "import/lower.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "import/lower_impl.h"

const struct import_builder *const import_tables[] = {
    import_layers,     import_linear,   import_norms,     import_math,   import_views,
    import_random,     import_lines,    import_attention, import_index,  import_sizes,
    import_decomposed, import_images,   import_formulas,  import_einsum, import_recurrent,
    import_choose,     import_products, import_scatter,   import_losses, NULL};

static const struct import_builder *builder_of(const char *target)
{
    for (int t = 0; import_tables[t]; t++)
        for (const struct import_builder *b = import_tables[t]; b->target; b++)
            if (!strcmp(b->target, target))
                return b;
    return NULL;
}

/* Nodes by target, those of one target in their order. */
static int lower_by_target(const void *a, const void *b)
{
    const struct import_node *x = *(const struct import_node *const *)a,
                             *y = *(const struct import_node *const *)b;
    const int order = strcmp(x->target, y->target);

    return order ? order : (x > y) - (x < y);
}

int import_check(const struct import_network *n, struct buf *missing)
{
    const struct import_node **lacking = xcalloc((size_t)n->n_nodes + 1, sizeof *lacking);
    int *count = xcalloc((size_t)n->n_nodes + 1, sizeof *count), kinds = 0;
    char *folded = lower_constants(n);
    size_t n_lacking = 0;

    for (int i = 0; i < n->n_nodes; i++)
        if (!folded[i] && !builder_of(n->node[i].target))
            lacking[n_lacking++] = &n->node[i];
    qsort(lacking, n_lacking, sizeof *lacking, lower_by_target);
    for (size_t i = 0, first = 0; i < n_lacking; i++) {
        if (strcmp(lacking[i]->target, lacking[first]->target) != 0)
            first = i;
        count[lacking[first] - n->node]++;
    }
    for (int i = 0; i < n->n_nodes; i++)
        if (count[i]) {
            buf_printf(missing, "%s, %d of the nodes, the first one in %s\n", n->node[i].target,
                       count[i], *n->node[i].module ? n->node[i].module : "the network itself");
            kinds++;
        }
    free(lacking);
    free(folded);
    free(count);
    return kinds;
}

/* ---- parameters ---- */

static int lower_ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n >= m && !strcmp(name + n - m, end);
}

static int lower_first_of_tied(const struct import_network *n, int i)
{
    while (n->tensor[i].same_as >= 0)
        i = n->tensor[i].same_as;
    return i;
}

/* The gates of a recurrent layer, whose parameters stand in a list; 0: the node is another one. */
static int lower_gates(const struct import_node *n)
{
    return !n                                ? 0
           : !strncmp(n->target, "lstm.", 5) ? 4
           : !strncmp(n->target, "gru.", 4)  ? 3
                                             : !strncmp(n->target, "rnn_", 4);
}

/* For each tensor the node that reads it first, or NULL. */
static const struct import_node **lower_find_uses(const struct import_network *n)
{
    const struct import_node **use = xcalloc((size_t)n->n_tensors + 1, sizeof *use);

    for (int k = n->n_nodes - 1; k >= 0; k--)
        for (int a = 0; a < n->node[k].n_args; a++) {
            const struct import_arg *arg = &n->node[k].arg[a];
            const int is_list = arg->kind == IMPORT_VALUES && lower_gates(&n->node[k]) > 0;

            for (int i = 0; i < (arg->kind == IMPORT_VALUE ? 1 : is_list ? arg->n : 0); i++)
                if (arg->values[i] != IMPORT_NO_VALUE && n->value[arg->values[i]].tensor >= 0)
                    use[lower_first_of_tied(n, n->value[arg->values[i]].tensor)] = &n->node[k];
        }
    return use;
}

static enum param_kind lower_kind(const struct import_tensor *t, const struct import_node *use)
{
    if (use && !strcmp(use->target, "embedding.default"))
        return PARAM_EMBEDDING;
    if (lower_ends_in(t->name, "bias") || (lower_gates(use) && t->n_dims == 1))
        return PARAM_BIAS;
    return t->n_dims < 2 ? PARAM_NORM : PARAM_WEIGHT;
}

static float lower_fan_bound(const struct import_tensor *weight)
{
    const int64_t fan_in =
        weight->n_dims && weight->dim[0] ? import_tensor_elements(weight) / weight->dim[0] : 1;

    return fan_in > 0 ? (float)(1 / sqrt((double)fan_in)) : 0;
}

/* 1/sqrt(H): of all parameters of a layer with H units. */
static float lower_gate_bound(const struct import_tensor *t, const struct import_node *use)
{
    const int64_t units = t->n_dims ? t->dim[0] / lower_gates(use) : 0;

    return units > 0 ? (float)(1 / sqrt((double)units)) : 0;
}

static int lower_has_target(const struct import_node *use, const char *const *names)
{
    for (; use && *names; names++)
        if (!strncmp(use->target, *names, strlen(*names)))
            return 1;
    return 0;
}

/* 1: the node reads t as the argument `name`, at this place. */
static int lower_is_argument(const struct import_network *n, const struct import_tensor *t,
                             const struct import_node *use, const char *name, int place)
{
    const struct import_arg *a = use ? import_arg_find(use, name, place) : NULL;

    return a && a->kind == IMPORT_VALUE && a->values[0] != IMPORT_NO_VALUE &&
           n->value[a->values[0]].tensor == (int)(t - n->tensor);
}

/* The first value of a parameter that all networks of its operator begin alike: the norm of a
 * weight drawn as that of a linear layer, and the slope of a PReLU.  0: it is none. */
static float lower_known_first(const struct import_network *n, const struct import_tensor *t,
                               const struct import_node *use)
{
    static const float norm_of_uniform = 0.57735027f; /* 1 / sqrt(3) */
    static const char *const weight_norms[] = {"_weight_norm", NULL}, *const prelus[] = {
                                                                          "prelu.",
                                                                          "_prelu_kernel.", NULL};

    if (lower_has_target(use, weight_norms) && lower_is_argument(n, t, use, "g", 1))
        return norm_of_uniform;
    return lower_has_target(use, prelus) && lower_is_argument(n, t, use, "weight", 1) ? 0.25f : 0;
}

/* The values that model.init: random draws.  A parameter that is one number throughout in the file
 * begins as that number, since no training has changed it.  Others begin by a folder's config.json,
 * or as those of torch.nn's linear layers, convolutions, embeddings, norms and recurrent layers.
 * Of further parameters, one that is a factor is 1, and one that is added or is put beside other
 * values has a standard deviation of 0.02. */
static struct param_info lower_info(const struct import_network *n, const struct import_tensor *t,
                                    const struct import_node *use)
{
    static const char *const products[] = {"conv",       "linear.",      "matmul.", "mm.",
                                           "bmm.",       "addmm.",       "einsum.", "t.",
                                           "transpose.", "_weight_norm", NULL},
                             *const factors[] = {"mul",         "div",         "batch_norm.",
                                                 "layer_norm.", "group_norm.", "rms_norm.",
                                                 NULL};
    const enum param_kind kind = lower_kind(t, use);
    const struct import_arg *w = use ? import_arg_find(use, "weight", 1) : NULL;
    const int at = w && w->kind == IMPORT_VALUE && w->values[0] != IMPORT_NO_VALUE
                       ? n->value[w->values[0]].tensor
                       : -1;
    const float known = t->is_even ? (float)t->even : lower_known_first(n, t, use);

    if (t->is_even || known != 0)
        return (struct param_info){PARAM_CONST, known, kind, 0};
    if (n->init_std > 0 && kind == PARAM_BIAS)
        return (struct param_info){PARAM_CONST, 0, kind, 0};
    if (n->init_std > 0 && kind != PARAM_NORM)
        return (struct param_info){PARAM_NORMAL, (float)n->init_std, kind, 0};
    if (kind == PARAM_EMBEDDING)
        return (struct param_info){PARAM_NORMAL, 1, kind, 0};
    if (lower_gates(use) && t->n_dims < 3)
        return (struct param_info){PARAM_UNIFORM, lower_gate_bound(t, use), kind, 0};
    if (kind == PARAM_BIAS && lower_has_target(use, products) && at >= 0)
        return (struct param_info){PARAM_UNIFORM, lower_fan_bound(&n->tensor[at]), kind, 0};
    if (kind == PARAM_BIAS)
        return (struct param_info){PARAM_CONST, 0, kind, 0};
    if (kind == PARAM_WEIGHT && lower_has_target(use, products))
        return (struct param_info){PARAM_UNIFORM, lower_fan_bound(t), kind, 0};
    if (lower_has_target(use, factors))
        return (struct param_info){PARAM_CONST, 1, kind, 0};
    return (struct param_info){PARAM_NORMAL, 0.02f, kind, 0};
}

static struct shape lower_shape(const struct import_tensor *t)
{
    struct shape s = {.n = t->n_dims};

    memcpy(s.dim, t->dim, (size_t)t->n_dims * sizeof *s.dim);
    return s;
}

/* A buffer that is a parameter's memory: it is the parameter, if it takes part in its gradient or
 * there is none.  Else it has no value here, since the elements at export would be old. */
static void lower_tied(struct lower *l, int i)
{
    const struct import_tensor *t = &l->net->tensor[i];
    const int first = lower_first_of_tied(l->net, i), param = l->param[first];

    if (first != i && param != NO_VALUE && (t->requires_grad || l->m->g->value[param].info->frozen))
        l->param[i] = param;
}

static void lower_params(struct lower *l)
{
    const struct import_network *n = l->net;
    const struct import_node **use = lower_find_uses(n);

    for (int i = 0; i < n->n_tensors; i++) {
        const struct import_tensor *t = &n->tensor[i];
        struct param_info info;
        const int frozen = !t->requires_grad || (l->choices->is_frozen &&
                                                 l->choices->is_frozen(l->choices->of, t->name));

        l->param[i] = NO_VALUE;
        if (t->role != IMPORT_PARAMETER) {
            lower_tied(l, i);
            continue;
        }
        if (t->same_as >= 0 && l->param[t->same_as] == NO_VALUE) {
            lower_fail(l, ERR_UNSUPPORTED,
                       "parameter %s shares its elements with %s, which comes before it and is no "
                       "parameter: export one of them as a copy",
                       t->name, n->tensor[t->same_as].name);
            break;
        }
        info = lower_info(n, t, use[i]);
        info.frozen = frozen;
        if (t->same_as >= 0)
            l->param[i] = l->param[t->same_as];
        else
            l->param[i] = graph_param(l->m->g, lower_shape(t), info, t->name);
    }
    free(use);
}

char *import_kept(const struct import_network *n)
{
    char *is_kept = xcalloc((size_t)n->n_tensors + 1, 1);

    for (int i = 0; i < n->n_tensors; i++)
        is_kept[i] = n->tensor[i].role == IMPORT_BUFFER && n->tensor[i].same_as < 0;
    for (int k = 0; k < n->n_nodes; k++) {
        const struct import_node *node = &n->node[k];

        if (!strstr(node->target, "batch_norm"))
            continue;
        for (int a = 0; a < node->n_args; a++)
            if (node->arg[a].kind == IMPORT_VALUE && n->value[node->arg[a].values[0]].tensor >= 0)
                is_kept[n->value[node->arg[a].values[0]].tensor] = 0;
    }
    return is_kept;
}

enum dtype import_dtype(enum import_type t)
{
    static const enum dtype type[IMPORT_TYPE_COUNT] = {
        [IMPORT_F32] = DTYPE_F32,   [IMPORT_F64] = DTYPE_F64, [IMPORT_F16] = DTYPE_F16,
        [IMPORT_BF16] = DTYPE_BF16, [IMPORT_I64] = DTYPE_I64, [IMPORT_I32] = DTYPE_I32,
        [IMPORT_I16] = DTYPE_I16,   [IMPORT_I8] = DTYPE_I8,   [IMPORT_U8] = DTYPE_U8,
        [IMPORT_BOOL] = DTYPE_BOOL};

    return type[t];
}

/* ---- inputs ---- */

/* The order of the dimensions in the graph value: as the network has them, or channels last. */
static int input_layout(const struct shape *s, const struct import_value *v, struct lowered *x)
{
    static const int last[4] = {0, 3, 1, 2};
    int plain = s->n == v->n_dims, image = s->n == 4 && v->n_dims == 4;

    for (int d = 1; d < v->n_dims && d < s->n; d++) {
        plain &= s->dim[d] == v->dim[d];
        image &= d < 4 && s->dim[last[d < 4 ? d : 0]] == v->dim[d];
        x->at[d] = d;
    }
    if (image)
        memcpy(x->at, last, sizeof last);
    return plain || image;
}

/* The input's graph value as the network takes it: whole numbers become real ones for an input of
 * real numbers, and 0 or 1 for a bool. */
static int lower_typed_input(struct lower *l, int i, enum import_type type, int id)
{
    const int is_whole = l->m->g->value[id].dtype == DTYPE_I32;

    if (type <= IMPORT_BF16)
        return is_whole ? compose_cast(&l->c, id, DTYPE_F32) : id;
    if (!is_whole)
        lower_fail(l, ERR_CONFIG,
                   "input %s of the network takes %s, but the data bring real numbers; store them "
                   "as whole numbers, such as by astype('int64')",
                   l->net->input[i].name, import_type_name(type));
    return type == IMPORT_BOOL && is_whole ? compose_compare(&l->c, EW_NE, id, 0) : id;
}

/* The graph value of input i: one number a sample, [N,1], is [N] for an input of one dimension. */
static int lower_input_value(struct lower *l, int i)
{
    const int id = l->choices->input[i], at = l->net->input[i].value;
    const struct shape *s;

    if (id == NO_VALUE || at == IMPORT_NO_VALUE || lower_failed(l))
        return NO_VALUE;
    s = &l->m->g->value[id].shape;
    l->c.name = l->net->input[i].name;
    if (l->net->value[at].n_dims == 1 && s->n == 2 && s->dim[1] == 1)
        return compose_reshape(&l->c, id, SHAPE(s->dim[0]));
    return id;
}

static void lower_input(struct lower *l, int i)
{
    const int id = lower_input_value(l, i), at = l->net->input[i].value;
    struct lowered x = {.kind = LOWERED_VALUE, .value = id};
    const struct import_value *v;
    char seen[SHAPE_TEXT_LEN], wanted[SHAPE_TEXT_LEN];
    struct shape want;

    if (id == NO_VALUE)
        return;
    v = &l->net->value[at];
    x.n = v->n_dims;
    want = (struct shape){.n = v->n_dims};
    for (int d = 0; d < v->n_dims; d++) {
        want.dim[d] = v->dim[d];
        x.dim[d] = d ? extent_of(v->dim[d]) : (struct extent){1, 1, 1};
    }
    if (v->n_dims == 0 || v->dim[0] != l->batch || !input_layout(&l->m->g->value[id].shape, v, &x))
        lower_fail(l, ERR_CONFIG,
                   "input %s of the network is %s, but the data bring %s; its first dimension "
                   "is the batch (%lld at export), the others must be equal",
                   l->net->input[i].name, shape_text(&want, wanted),
                   shape_text(&l->m->g->value[id].shape, seen), (long long)l->batch);
    else
        x.value = lower_typed_input(l, i, v->type, id);
    l->value[at] = x;
}

static void lower_inputs(struct lower *l)
{
    const char *name = "";

    l->batch = 1;
    for (int i = 0; i < l->net->n_inputs; i++) {
        const int at = l->net->input[i].value;

        if (at != IMPORT_NO_VALUE && l->choices->input[i] != NO_VALUE &&
            l->net->value[at].n_dims > 0) {
            l->batch = l->net->value[at].dim[0];
            name = l->net->input[i].name;
            break;
        }
    }
    if (l->batch < 2)
        lower_fail(
            l, ERR_CONFIG,
            "input %s of the network was exported with a batch of %lld, which cannot be told "
            "from other sizes: export it with 2 samples or more",
            name, (long long)l->batch);
    for (int i = 0; i < l->net->n_inputs; i++)
        lower_input(l, i);
}

/* The tensors of the file as lowered values. */
static void lower_tensors(struct lower *l)
{
    for (int v = 0; v < l->net->n_values; v++) {
        const int t = l->net->value[v].tensor;
        struct lowered x = {.kind = LOWERED_VALUE};

        l->base[v] = l->next[v] = v;
        if (t < 0)
            continue;
        if (l->param[t] == NO_VALUE) {
            const int first = lower_first_of_tied(l->net, t);
            const struct host_tensor of_file = host_of_file(&l->net->tensor[t]);

            if (of_file.data)
                l->host[v] = arena_copy(&l->arena, &of_file, sizeof of_file);
            x = lower_constant(l, l->host[v]);
            if (l->norm[t] == NORM_COUNT)
                l->is_stale[v] = STALE_COUNTS;
            else if (l->net->tensor[first].role == IMPORT_PARAMETER)
                l->is_stale[v] = STALE_TIED;
        }
        x.value = l->param[t];
        x.n = l->net->tensor[t].n_dims;
        for (int d = 0; d < x.n; d++) {
            x.dim[d] = extent_of(l->net->tensor[t].dim[d]);
            x.at[d] = d;
        }
        l->value[v] = x;
    }
}

/* ---- nodes ---- */

void lower_set(struct lower *l, int i, struct lowered v)
{
    if (lower_failed(l) || i >= l->node->n_out || l->node->out[i] == IMPORT_NO_VALUE)
        return;
    lower_batch_check(l, &v);
    l->value[l->node->out[i]] = v;
}

static int lower_wrap(struct lower *l, const struct import_node *n)
{
    return err_wrap(l->c.err, "node %s (%s) in %s", n->name, n->target,
                    *n->module ? n->module : "the network itself");
}

void lower_build(struct lower *l)
{
    const struct import_builder *b = builder_of(l->node->target);

    if (b && !lower_failed(l))
        b->build(l, b->kind);
}

static void lower_node(struct lower *l, const struct import_node *n)
{
    const struct import_builder *b = builder_of(n->target);
    const int n_before = l->m->g->n_values;

    l->node = n;
    l->reads_mixed = 0;
    lower_block(l, n->module);
    lower_sizes_refuse(l);
    l->c.name = *n->module ? n->module : n->name;
    lower_gate(l);
    if (lower_guard(l, n) || lower_fold(l, n)) {
        lower_net(l);
        if (lower_failed(l))
            lower_wrap(l, n);
        return;
    }
    if (!b && fold_can(n->target))
        lower_fail(l, ERR_UNSUPPORTED,
                   "this operator is supported for constants alone, and an input of it is none; "
                   "run_decompositions() before the save may write it in others");
    else if (!b)
        lower_fail(
            l, ERR_UNSUPPORTED,
            "this operator is not supported; run_decompositions() before the save may write it in "
            "others");
    else if (!lower_failed(l))
        b->build(l, b->kind);
    if (n->no_gradient)
        lower_without_gradient(l, n_before, fold_is_in_place(n->target));
    lower_sizes_check(l);
    lower_net(l);
    lower_track(l, n);
    if (lower_failed(l))
        lower_wrap(l, n);
}

static void lower_outputs(struct lower *l, int *outputs)
{
    for (int i = 0; i < l->net->n_outputs && !lower_failed(l); i++) {
        const int v = l->net->output[i].value;

        outputs[i] = NO_VALUE;
        if (v == IMPORT_NO_VALUE || l->value[v].kind != LOWERED_VALUE)
            continue;
        outputs[i] = lower_plain(l, lower_at(l, v)).value;
    }
}

static void lower_begin(struct lower *l)
{
    const size_t n = (size_t)l->net->n_values + 1;

    arena_init(&l->arena);
    l->value = xcalloc(n, sizeof *l->value);
    l->host = xcalloc(n, sizeof *l->host);
    l->fold = (struct fold_host){.a = &l->arena, .value = l->host};
    l->norm = lower_norm_uses(l->net);
    l->base = xcalloc(n, sizeof *l->base);
    l->next = xcalloc(n, sizeof *l->next);
    l->is_view = xcalloc(n, 1);
    l->is_stale = xcalloc(n, 1);
    l->view = xcalloc(n, sizeof *l->view);
    l->param = xcalloc((size_t)l->net->n_tensors + 1, sizeof *l->param);
}

static void lower_end(struct lower *l)
{
    arena_fini(&l->arena);
    free(l->value);
    free(l->host);
    free(l->norm);
    free(l->base);
    free(l->next);
    free(l->is_view);
    free(l->is_stale);
    free(l->view);
    free(l->param);
}

int import_lower(struct net *m, const struct import_network *n, const struct import_choices *c,
                 int *outputs)
{
    struct lower l = {.m = m, .net = n, .choices = c, .c = {.g = m->g, .err = m->err}};

    if (m->rc < 0)
        return m->rc;
    lower_begin(&l);
    lower_params(&l);
    lower_tensors(&l);
    lower_inputs(&l);
    lower_sizes_begin(&l);
    for (int k = 0; k < n->n_nodes && !lower_failed(&l); k++)
        lower_node(&l, &n->node[k]);
    lower_block(&l, "");
    lower_outputs(&l, outputs);
    if (!lower_failed(&l))
        import_freeze_unused(m->g, outputs, n->n_outputs);
    lower_end(&l);
    return m->rc = l.c.rc;
}

/* ---- two batch sizes ---- */

static int differs_by_batch(int64_t a, int64_t b, const struct graph *ga, const struct graph *gb)
{
    return a == b || (a % ga->batch == 0 && b % gb->batch == 0 && a / ga->batch == b / gb->batch);
}

int import_same_but_batch(const struct graph *a, const struct graph *b, struct err *err)
{
    char seen[2][SHAPE_TEXT_LEN];
    int same = a->n_nodes == b->n_nodes && a->n_values == b->n_values;

    for (int k = 0; same && k < a->n_nodes; k++)
        if (a->node[k].op != b->node[k].op)
            return err_set(err, ERR_UNSUPPORTED, "%s: other operators at batch %lld than at %lld",
                           a->node[k].name, (long long)a->batch, (long long)b->batch);
    for (int v = 0; same && v < a->n_values; v++) {
        const struct shape *s = &a->value[v].shape, *t = &b->value[v].shape;
        int fits = s->n == t->n;

        for (int d = 0; fits && d < s->n; d++)
            fits = differs_by_batch(s->dim[d], t->dim[d], a, b);
        if (!fits)
            return err_set(err, ERR_UNSUPPORTED,
                           "%s is %s at batch %lld and %s at %lld: the network depends on the "
                           "batch of its export",
                           a->value[v].name, shape_text(s, seen[0]), (long long)a->batch,
                           shape_text(t, seen[1]), (long long)b->batch);
    }
    return same ? 0
                : err_set(err, ERR_UNSUPPORTED, "%d nodes at batch %lld, but %d at %lld",
                          a->n_nodes, (long long)a->batch, b->n_nodes, (long long)b->batch);
}
