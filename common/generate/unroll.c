/* unroll - builds both graphs, takes the tables of the whole one, and rewrites the attentions of
 * the one of few tokens. */
#include "generate/unroll.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/arch.h"
#include "import/folder.h"
#include "op/compose.h"

/* ---- the graphs of the model ---- */

/* At the first place all numbers of a table are equal (cos 0 is 1), and lowering would take one
 * number for it, or one table for two.  The numbers of few tokens are never read, so they become
 * different ones. */
static void unroll_vary_tables(struct import_network *n, int64_t rows)
{
    for (int i = 0; i < n->n_tensors; i++) {
        struct import_tensor *t = &n->tensor[i];
        const int64_t len = import_tensor_elements(t);
        float *vary;

        if (t->role != IMPORT_CONSTANT || t->type != IMPORT_F32 || t->n_dims < 2 ||
            t->dim[t->n_dims - 2] != rows || !t->bytes)
            continue;
        vary = arena_alloc(&n->arena, sizeof *vary * (size_t)len);
        for (int64_t k = 0; k < len; k++)
            vary[k] = (float)i + (float)(k + 2) / (float)(len + 2);
        t->bytes = (const char *)vary;
    }
}

/* A folder's network for samples of n tokens. */
static int unroll_import(const struct import_options *from, int64_t n, int is_few,
                         struct import_options *to, struct err *err)
{
    const char *config = from->network->config;
    int rc;

    *to = *from;
    to->context = n;
    to->network = NULL;
    rc = folder_parse(config, strlen(config), from->network->path, n, &to->network, err);
    if (rc == 0 && is_few)
        unroll_vary_tables(to->network, n);
    return rc;
}

int unroll_model(const struct unroll_request *r, int64_t n, int training, int has_starts,
                 struct graph **out, struct err *err)
{
    const struct import_options *from = import_options_of(r->model);
    struct sample_spec spec = SAMPLE_SEQUENCES(n, r->vocab);
    struct model_options model = *r->model;
    struct import_options import = {0};
    int rc = 0;

    if (has_starts)
        spec.field[spec.n_fields++] = (struct sample_field)SAMPLE_STARTS_FIELD(n);
    model.base = BASE_FLOAT32;
    model.loss = LOSS_CROSS_ENTROPY;
    model.losses = NULL;
    model.class_weights.n = 0;
    if (from) {
        rc = unroll_import(from, n, n < r->context, &import, err);
        model.options = &import;
    }
    if (rc == 0)
        rc = model_build(&model, &spec, 1, training, 0, out, err);
    import_network_free(import.network);
    return rc;
}

static int unroll_check(const struct unroll_request *r, struct err *err)
{
    const struct import_options *import = import_options_of(r->model);

    if (import ? import->network->packs && import->network->config : r->model->kind->packs)
        return 0;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s cannot be computed token by token; want model.arch gpt or gpt2, or a "
                   "folder's language model with rotary positions (model.import)",
                   import ? import->network->path : r->model->kind->group.name);
}

/* ---- tables ---- */

/* Let constant v of the graph of few tokens be an input, if `whole` has a row for each place:
 * [1,..,R,..] and [1,..,context,..]. */
static int unroll_take_table(struct unroll *u, int v, const struct value *whole, struct err *err)
{
    struct value *x = &u->g->value[v];
    int64_t width = 1;
    int at = 0, is_table = x->shape.n == whole->shape.n && x->dtype == DTYPE_F32;

    if (shape_equal(&x->shape, &whole->shape))
        return 0;
    while (is_table && at + 1 < x->shape.n && whole->shape.dim[at] == 1)
        at++;
    is_table = is_table && x->shape.dim[at] == u->rows && whole->shape.dim[at] == u->context;
    for (int d = at + 1; is_table && d < x->shape.n; d++) {
        is_table = x->shape.dim[d] == whole->shape.dim[d];
        width *= x->shape.dim[d];
    }
    if (!is_table)
        return err_set(err, ERR_UNSUPPORTED,
                       "its constant %s depends on the context, and is no table of its places",
                       x->name);
    x->role = VALUE_INPUT;
    u->table[u->n_tables++] = (struct unroll_table){v, width, whole->content};
    return 0;
}

/* 1 for each value that the logits depend on, for free(). */
static char *unroll_needed(const struct graph *g)
{
    char *needed = xcalloc((size_t)g->n_values + 1, 1);

    needed[g->logits] = 1;
    for (int k = g->n_nodes; k-- > 0;) {
        const struct node *n = &g->node[k];
        int is_needed = 0;

        for (int i = 0; i < n->n_out; i++)
            is_needed |= n->out[i] != NO_VALUE && needed[n->out[i]];
        for (int i = 0; is_needed && i < n->n_in; i++)
            if (n->in[i] != NO_VALUE)
                needed[n->in[i]] = 1;
    }
    return needed;
}

/* The next constant from v on that is needed; n_values: there is none. */
static int next_constant(const struct graph *g, const char *needed, int v)
{
    while (v < g->n_values && (g->value[v].role != VALUE_CONST || !needed[v]))
        v++;
    return v;
}

/* Both graphs have the same constants, in the same order. */
static int unroll_take_tables(struct unroll *u, struct err *err)
{
    const struct graph *g = u->g, *whole = u->whole;
    char *of_g = unroll_needed(g), *of_whole = unroll_needed(whole);
    int v = next_constant(g, of_g, 0), w = next_constant(whole, of_whole, 0), rc = 0;

    u->table = xcalloc((size_t)g->n_values + (size_t)g->n_nodes, sizeof *u->table);
    while (v < g->n_values && w < whole->n_values && rc == 0) {
        rc = unroll_take_table(u, v, &whole->value[w], err);
        v = next_constant(g, of_g, v + 1);
        w = next_constant(whole, of_whole, w + 1);
    }
    if (rc == 0 && (v < g->n_values || w < whole->n_values))
        rc = err_set(err, ERR_UNSUPPORTED, "its constants depend on the context");
    free(of_g);
    free(of_whole);
    return rc;
}

/* ---- nodes ---- */

/* The values of the rewritten graph: map[v] stands for value v. */
struct rewrite {
    struct unroll *u;
    struct compose c;
    int *map, n_map;
    int k; /* attentions so far */
};

static int rewrite_input(struct rewrite *w, struct shape shape, const char *name)
{
    return graph_value(w->u->g, VALUE_INPUT, DTYPE_F32, shape,
                       arena_printf(&w->u->g->arena, "%s.%s", w->c.name, name));
}

static int rewrite_mask(struct rewrite *w, int64_t window)
{
    const struct unroll *u = w->u;

    for (int i = 0; i < w->k; i++)
        if (u->layer[i].window == window)
            return u->layer[i].mask;
    return rewrite_input(w, SHAPE(u->rows, u->places + u->rows), "mask");
}

/* Part `at` of the rows q, k, v [R,3*H*D], as [H,R,D].  to: NODE_NEW_OUT, or where it goes. */
static int rewrite_part(struct rewrite *w, int qkv, int at, int to)
{
    const struct unroll_layer *l = &w->u->layer[w->k];
    const union node_attr order = {.permute.order = {1, 0, 2}};
    const int64_t width = l->heads * l->width;
    int out[NODE_MAX_OUT] = {to};
    int x = compose_slice(&w->c, qkv, 1, at * width, (at + 1) * width, 1);

    x = compose_reshape(&w->c, x, SHAPE(w->u->rows, l->heads, l->width));
    if (w->c.rc == 0)
        w->c.rc = graph_node(w->c.g, OP_permute, &order, &x, 1, out, w->c.name, w->c.err);
    return w->c.rc == 0 ? out[0] : NO_VALUE;
}

/* y [R,H*D] */
static int rewrite_attend(struct rewrite *w, int qkv)
{
    const struct unroll_layer *l = &w->u->layer[w->k];
    const int64_t places = w->u->places;
    struct compose *c = &w->c;
    int q = rewrite_part(w, qkv, 0, NODE_NEW_OUT), k = rewrite_part(w, qkv, 1, l->new_key),
        v = rewrite_part(w, qkv, 2, l->new_value), p, y;

    q = compose_constants(c, EW_AFFINE, q, (float)(1 / sqrt((double)l->width)), 0);
    p = compose_concat(
        c, (int[]){compose_matmul(c, q, l->key, 0, 1), compose_matmul(c, q, k, 0, 1)}, 2, 2);
    p = compose_softmax(c, compose_elementwise(c, EW_ADD, p, l->mask), 2, 0);
    y = compose_matmul(c, compose_slice(c, p, 2, 0, places, 1), l->value, 0, 0);
    y = compose_elementwise(
        c, EW_ADD, y, compose_matmul(c, compose_slice(c, p, 2, places, INT64_MAX, 1), v, 0, 0));
    y = compose_permute(c, y, (int[]){1, 0, 2});
    return compose_reshape(c, y, SHAPE(w->u->rows, l->heads * l->width));
}

/* An attention becomes nodes that read the cache. */
static void rewrite_attention(struct rewrite *w, const struct node *n)
{
    const int64_t H = n->attr.attention.heads;
    const struct shape *y = &w->u->g->value[n->out[ATTENTION_Y]].shape;
    struct unroll_layer *l = &w->u->layer[w->k];

    l->heads = H;
    l->width = y->dim[1] / H;
    l->mask = rewrite_mask(w, l->window);
    l->key = rewrite_input(w, SHAPE(H, w->u->places, l->width), "key");
    l->value = rewrite_input(w, SHAPE(H, w->u->places, l->width), "value");
    l->new_key = rewrite_input(w, SHAPE(H, w->u->rows, l->width), "new_key");
    l->new_value = rewrite_input(w, SHAPE(H, w->u->rows, l->width), "new_value");
    w->map[n->out[ATTENTION_Y]] = rewrite_attend(w, n->in[ATTENTION_QKV]);
    w->k++;
}

/* An embedding with positions becomes the sum of two, of which one reads the tokens' places. */
static void rewrite_embedding(struct rewrite *w, const struct node *n)
{
    const int place = graph_value(w->u->g, VALUE_INPUT, DTYPE_I32, SHAPE(1, w->u->rows), "place");
    const int of_token[] = {n->in[EMBEDDING_TABLE], n->in[EMBEDDING_TOKENS], NO_VALUE, NO_VALUE};
    const int of_place[] = {n->in[EMBEDDING_POSITION], place, NO_VALUE, NO_VALUE};
    const int x = compose_append(&w->c, OP_embedding, &n->attr, of_token, 4);
    const int y = compose_append(&w->c, OP_embedding, &n->attr, of_place, 4);

    w->u->table[w->u->n_tables++] = (struct unroll_table){place, 1, NULL};
    w->map[n->out[EMBEDDING_Y]] = compose_elementwise(&w->c, EW_ADD, x, y);
}

static void rewrite_node(struct rewrite *w, struct node n)
{
    struct graph *g = w->u->g;
    int id;

    for (int i = 0; i < n.n_in; i++)
        n.in[i] = n.in[i] == NO_VALUE ? NO_VALUE : w->map[n.in[i]];
    w->c.name = n.name;
    if (op_get(n.op)->flags & OP_LOSS)
        return;
    if (n.op == OP_attention) {
        rewrite_attention(w, &n);
        return;
    }
    if (n.op == OP_embedding && n.in[EMBEDDING_POSITION] != NO_VALUE) {
        rewrite_embedding(w, &n);
        return;
    }
    id = graph_append(g, &n);
    for (int i = 0; i < n.n_out; i++)
        if (n.out[i] != NO_VALUE && g->value[n.out[i]].producer >= 0)
            g->value[n.out[i]].producer = id;
}

static int unroll_rewrite(struct unroll *u, struct err *err)
{
    struct graph *g = u->g;
    const int n_nodes = g->n_nodes;
    struct rewrite w = {.u = u, .c = {.g = g, .err = err}, .n_map = g->n_values};
    struct node *node = xcalloc((size_t)n_nodes + 1, sizeof *node);

    memcpy(node, g->node, (size_t)n_nodes * sizeof *node);
    w.map = xcalloc((size_t)w.n_map + 1, sizeof *w.map);
    for (int v = 0; v < w.n_map; v++)
        w.map[v] = v;
    g->n_nodes = 0;
    for (int k = 0; k < n_nodes && w.c.rc == 0; k++)
        rewrite_node(&w, node[k]);
    if (w.c.rc == 0)
        g->logits = w.map[g->logits];
    free(w.map);
    free(node);
    return w.c.rc;
}

/* ---- all of it ---- */

/* Note the windows of the whole graph's attentions. */
static int unroll_find_layers(struct unroll *u, struct err *err)
{
    int n = 0;

    u->layer = xcalloc((size_t)u->whole->n_nodes + 1, sizeof *u->layer);
    for (int k = 0; k < u->whole->n_nodes; k++)
        if (u->whole->node[k].op == OP_attention)
            u->layer[u->n_layers++].window = u->whole->node[k].attr.attention.window;
    for (int k = 0; k < u->g->n_nodes; k++)
        n += u->g->node[k].op == OP_attention;
    if (n == u->n_layers && n > 0)
        return 0;
    return err_set(err, ERR_UNSUPPORTED,
                   "it has %d causal attentions for its whole context, and %d for %lld tokens; "
                   "want as many, and at least one",
                   u->n_layers, n, (long long)u->rows);
}

int unroll_build(const struct unroll_request *r, struct unroll *out, struct err *err)
{
    struct unroll u = {
        .rows = r->rows, .places = r->places, .context = r->context, .vocab = r->vocab};
    int rc = unroll_check(r, err);

    ASSERT(r->rows < r->context);
    if (rc == 0)
        rc = unroll_model(r, r->context, 0, 1, &u.whole, err);
    if (rc == 0)
        rc = unroll_model(r, r->rows, 0, 1, &u.g, err);
    if (rc == 0)
        rc = unroll_find_layers(&u, err);
    if (rc == 0)
        rc = unroll_take_tables(&u, err);
    if (rc == 0)
        rc = unroll_rewrite(&u, err);
    if (rc < 0)
        unroll_fini(&u);
    else
        *out = u;
    return rc;
}

void unroll_fini(struct unroll *u)
{
    graph_free(u->g);
    graph_free(u->whole);
    free(u->layer);
    free(u->table);
    *u = (struct unroll){0};
}
