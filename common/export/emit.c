/* The table of operators, and the values of our graph as tensors of the model.  An operator that is
 * not in the table is refused by name before anything is written. */
#include "export/emit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

/* Operators that a graph for evaluation can have, and their functions. */
static emit_function *const emit_functions[OP_COUNT] = {
    [OP_activation] = emit_activation,
    [OP_add] = emit_add,
    [OP_attention] = emit_attention,
    [OP_batch_norm_infer] = emit_batch_norm,
    [OP_bias] = emit_bias,
    [OP_cast] = emit_cast,
    [OP_class_token] = emit_class_token,
    [OP_concat] = emit_concat,
    [OP_conv2d] = emit_conv2d,
    [OP_conv2d_grad_x] = emit_conv2d_grad_x,
    [OP_elementwise] = emit_elementwise,
    [OP_embedding] = emit_embedding,
    [OP_expand] = emit_expand,
    [OP_flatten] = emit_flatten,
    [OP_group_norm] = emit_group_norm,
    [OP_integers] = emit_integers,
    [OP_layer_norm] = emit_layer_norm,
    [OP_linear] = emit_linear,
    [OP_matmul] = emit_matmul,
    [OP_permute] = emit_permute,
    [OP_pool2d] = emit_pool2d,
    [OP_recurrent] = emit_recurrent,
    [OP_reduce] = emit_reduce,
    [OP_reshape] = emit_reshape,
    [OP_rms_norm] = emit_rms_norm,
    [OP_rotary] = emit_rotary,
    [OP_slice] = emit_slice,
    [OP_slice_grad] = emit_slice_grad,
    [OP_softmax] = emit_softmax,
    [OP_unflatten] = emit_unflatten,
};

void emit_fail(struct emit *e, int code, const char *fmt, ...)
{
    char text[200];
    va_list args;

    if (e->rc < 0)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    e->rc = err_set(e->err, code, "node %s (%s): %s", e->node ? e->node->name : "",
                    e->node ? op_get(e->node->op)->name : "", text);
}

/* ---- nodes ---- */

void emit_int(struct emit *e, const char *name, int64_t v) { onnx_attr_int(e->o, name, v); }

void emit_ints(struct emit *e, const char *name, const int64_t *v, int n)
{
    onnx_attr_ints(e->o, name, v, n);
}

void emit_float(struct emit *e, const char *name, double v)
{
    onnx_attr_float(e->o, name, (float)v);
}

/* A name of a tensor.  Names of parameters have no slash. */
static const char *emit_new_name(struct emit *e, const char *what)
{
    return arena_printf(&e->o->arena, "%s/%s_%d", e->node ? e->node->name : "", what, e->n_made++);
}

void emit_outputs(struct emit *e, const char *op, const char *const *in, int n_in, const char **out,
                  int n_out)
{
    for (int i = 0; i < n_out; i++)
        out[i] = emit_new_name(e, op);
    onnx_node(e->o, op, in, n_in, out, n_out);
}

const char *emit_op(struct emit *e, const char *op, const char *const *in, int n_in)
{
    const char *out;

    emit_outputs(e, op, in, n_in, &out, 1);
    return out;
}

const char *emit_1(struct emit *e, const char *op, const char *a)
{
    return emit_op(e, op, (const char *const[]){a}, 1);
}

const char *emit_2(struct emit *e, const char *op, const char *a, const char *b)
{
    return emit_op(e, op, (const char *const[]){a, b}, 2);
}

const char *emit_3(struct emit *e, const char *op, const char *a, const char *b, const char *c)
{
    return emit_op(e, op, (const char *const[]){a, b, c}, 3);
}

/* ---- constants ---- */

/* A constant of the model; small ones that are equal are one tensor. */
static const char *emit_constant(struct emit *e, enum onnx_type type, const struct shape *s,
                                 const void *data, size_t n_bytes)
{
    enum { SMALL = 64 };
    struct onnx_tensor t = {.type = type, .shape = *s, .n_bytes = n_bytes};

    for (int i = 0; i < e->o->n_tensors && n_bytes <= SMALL; i++) {
        const struct onnx_tensor *old = &e->o->tensor[i];

        if (old->data && old->type == type && old->n_bytes == n_bytes &&
            shape_equal(&old->shape, s) && !memcmp(old->data, data, n_bytes))
            return old->name;
    }
    t.name = emit_new_name(e, "const");
    t.data = arena_copy(&e->o->arena, data, n_bytes);
    onnx_add_tensor(e->o, &t);
    return t.name;
}

const char *emit_floats(struct emit *e, const float *v, const struct shape *s)
{
    return emit_constant(e, ONNX_FLOAT, s, v, sizeof *v * (size_t)shape_elements(s));
}

const char *emit_number(struct emit *e, double v)
{
    const float x = (float)v;

    return emit_floats(e, &x, &(struct shape){.n = 0});
}

const char *emit_list(struct emit *e, const int64_t *v, int n)
{
    return emit_constant(e, ONNX_INT64, &SHAPE(n), v, sizeof *v * (size_t)n);
}

/* ---- small functions of nodes ---- */

const char *emit_plus(struct emit *e, const char *x, double v)
{
    return v == 0 ? x : emit_2(e, "Add", x, emit_number(e, v));
}

const char *emit_times(struct emit *e, const char *x, double v)
{
    return v == 1 ? x : emit_2(e, "Mul", x, emit_number(e, v));
}

const char *emit_cast_to(struct emit *e, const char *x, enum onnx_type to)
{
    emit_int(e, "to", to);
    return emit_1(e, "Cast", x);
}

const char *emit_to_shape(struct emit *e, const char *x, const int64_t *dim, int n)
{
    return emit_2(e, "Reshape", x, emit_list(e, dim, n));
}

const char *emit_order(struct emit *e, const char *x, const int64_t *order, int n)
{
    int d = 0;

    while (d < n && order[d] == d)
        d++;
    if (d == n)
        return x;
    emit_ints(e, "perm", order, n);
    return emit_1(e, "Transpose", x);
}

const char *emit_batch(struct emit *e)
{
    if (!e->batch) {
        emit_int(e, "start", 0);
        emit_int(e, "end", 1);
        e->batch = emit_1(e, "Shape", e->samples);
    }
    return e->batch;
}

/* ---- values ---- */

const struct shape *emit_shape(const struct emit *e, int value)
{
    return &e->g->value[value].shape;
}

int64_t emit_growth(const struct emit *e, int value, int d)
{
    return e->other->value[value].shape.dim[d] - e->g->value[value].shape.dim[d];
}

void emit_extents(struct emit *e, int value, int64_t *dim)
{
    const struct shape *s = emit_shape(e, value);
    int n = 0;

    for (int d = 0; d < s->n; d++) {
        const int grows = emit_growth(e, value, d) != 0;

        dim[d] = grows ? -1 : s->dim[d];
        n += grows;
    }
    if (n > 1)
        emit_fail(e, ERR_UNSUPPORTED, "two extents of %s grow with the batch",
                  e->g->value[value].name);
}

int emit_at(enum form form, int d, int n)
{
    if (form == FORM_PLAIN || d == 0)
        return d;
    return d == n - 1 ? 1 : d + 1;
}

/* These elements of a constant of our graph. */
static const char *emit_content(struct emit *e, enum dtype dtype, const struct shape *s,
                                const void *content)
{
    const size_t n = (size_t)shape_elements(s);
    const int32_t *from = content;
    const char *name;
    int64_t *whole;

    if (dtype == DTYPE_F32)
        return emit_floats(e, content, s);
    whole = xmalloc(sizeof *whole * (n + 1));
    for (size_t i = 0; i < n; i++)
        whole[i] = from[i];
    name = emit_constant(e, ONNX_INT64, s, whole, sizeof *whole * n);
    free(whole);
    return name;
}

/* The part of a constant that belongs to one sample, in `out`, if it is the same for all of them in
 * dimension d; else 0. */
static int constant_of_sample(const struct value *v, int d, const struct shape *part, char *out)
{
    const int64_t samples = v->shape.dim[d] / part->dim[d];
    const char *from = v->content;
    size_t inner = dtype_size(v->dtype), outer = 1;

    for (int i = d; i < part->n; i++)
        inner *= (size_t)part->dim[i];
    for (int i = 0; i < d; i++)
        outer *= (size_t)part->dim[i];
    for (size_t i = 0; i < outer; i++)
        for (int64_t k = 0; k < samples; k++, from += inner)
            if (k == 0)
                memcpy(out + i * inner, from, inner);
            else if (memcmp(out + i * inner, from, inner) != 0)
                return 0;
    return 1;
}

/* A constant that has an extent of the batch: what one sample has, and a Tile. */
static const char *emit_tiled(struct emit *e, int id, int d)
{
    const struct value *v = &e->g->value[id];
    const int64_t one = 1;
    const char *times[SHAPE_MAX_DIMS], *name;
    struct shape part = v->shape;
    char *content;
    int is_same;

    part.dim[d] = emit_growth(e, id, d);
    content = xmalloc(dtype_size(v->dtype) * (size_t)shape_elements(&part) + 1);
    is_same = v->shape.dim[d] % part.dim[d] == 0 && constant_of_sample(v, d, &part, content);
    if (!is_same)
        emit_fail(e, ERR_UNSUPPORTED, "its constant is not the same for each sample");
    name = is_same ? emit_content(e, v->dtype, &part, content) : "";
    free(content);
    for (int i = 0; i < part.n; i++)
        times[i] = i == d ? emit_batch(e) : emit_list(e, &one, 1);
    emit_int(e, "axis", 0);
    return emit_2(e, "Tile", name, emit_op(e, "Concat", times, part.n));
}

static const char *emit_const(struct emit *e, int id)
{
    const struct value *v = &e->g->value[id];
    int64_t dim[SHAPE_MAX_DIMS];

    emit_extents(e, id, dim);
    for (int d = 0; d < v->shape.n && e->rc == 0; d++)
        if (dim[d] < 0)
            return emit_tiled(e, id, d);
    if (v->content != e->other->value[id].content &&
        memcmp(v->content, e->other->value[id].content,
               dtype_size(v->dtype) * (size_t)shape_elements(&v->shape)) != 0)
        emit_fail(e, ERR_UNSUPPORTED, "its constant depends on the batch");
    return emit_content(e, v->dtype, &v->shape, v->content);
}

/* Make the tensor of a parameter, state or constant. */
static void emit_tensor(struct emit *e, int id)
{
    const struct value *v = &e->g->value[id];
    struct emitted *to = &e->value[id];
    const struct st_tensor *t;
    char seen[SHAPE_TEXT_LEN], want[SHAPE_TEXT_LEN];

    to->type = v->dtype == DTYPE_I32 ? ONNX_INT64 : ONNX_FLOAT;
    to->name[FORM_PLAIN] = v->name;
    if (v->role == VALUE_CONST) {
        to->name[FORM_PLAIN] = emit_const(e, id);
        return;
    }
    t = st_find(e->o->weights, v->name);
    if (!t || t->dtype != DTYPE_F32 || !shape_equal(&t->shape, &v->shape)) {
        emit_fail(e, ERR_CONFIG, "the checkpoint has %s %s %s, and the job's network F32 %s",
                  t ? dtype_name(t->dtype) : "no", v->name, t ? shape_text(&t->shape, seen) : "",
                  shape_text(&v->shape, want));
        return;
    }
    onnx_add_tensor(e->o, &(struct onnx_tensor){.name = v->name,
                                                .type = ONNX_FLOAT,
                                                .shape = v->shape,
                                                .n_bytes = st_bytes(t),
                                                .from = t});
}

const char *emit_get(struct emit *e, int id, enum form form)
{
    struct emitted *v = &e->value[id];
    const int n = emit_shape(e, id)->n;
    int64_t order[SHAPE_MAX_DIMS];

    if (!v->name[FORM_PLAIN] && !v->name[FORM_FIRST])
        emit_tensor(e, id);
    if (v->name[form] || e->rc < 0)
        return v->name[form] ? v->name[form] : "";
    ASSERT(n >= 3 && e->o->attributes.len == 0);
    for (int d = 0; d < n; d++)
        if (form == FORM_PLAIN)
            order[d] = emit_at(FORM_FIRST, d, n);
        else
            order[emit_at(FORM_FIRST, d, n)] = d;
    v->name[form] = emit_order(e, v->name[form == FORM_PLAIN ? FORM_FIRST : FORM_PLAIN], order, n);
    return v->name[form];
}

const char *emit_in_form(struct emit *e, int i, enum form form)
{
    if (i >= e->node->n_in || e->node->in[i] == NO_VALUE)
        return NULL;
    return emit_get(e, e->node->in[i], form);
}

const char *emit_in(struct emit *e, int i) { return emit_in_form(e, i, FORM_PLAIN); }

enum form emit_made(const struct emit *e, int i) { return e->value[e->node->in[i]].made; }

/* 1: the value has one element, for any batch. */
static int is_single(const struct emit *e, int id)
{
    return shape_elements(emit_shape(e, id)) == 1 &&
           shape_elements(&e->other->value[id].shape) == 1;
}

const char *emit_spread(struct emit *e, int i, int n, enum form form)
{
    const int id = e->node->in[i];
    const struct shape *s = emit_shape(e, id);
    int64_t one[SHAPE_MAX_DIMS], order[SHAPE_MAX_DIMS];
    const char *x;
    int is_vector = s->n > 0;

    if (is_single(e, id))
        return emit_get(e, id, e->value[id].made);
    if (form == FORM_PLAIN)
        return emit_get(e, id, form);
    for (int d = 0; d < n; d++)
        one[d] = 1;
    for (int d = 0; d + 1 < s->n; d++)
        is_vector &= s->dim[d] == 1 && emit_growth(e, id, d) == 0;
    if (is_vector && emit_growth(e, id, s->n - 1) == 0 && !e->value[id].name[FORM_FIRST]) {
        one[0] = s->dim[s->n - 1]; /* [C] is [C,1,..] */
        return emit_to_shape(e, emit_get(e, id, FORM_PLAIN), one, n - 1);
    }
    if (s->n == n)
        return emit_get(e, id, FORM_FIRST);
    for (int d = 0; d < n; d++) {
        one[d] = d; /* new dimensions in front */
        order[emit_at(FORM_FIRST, d, n)] = d;
    }
    x = emit_get(e, id, FORM_PLAIN);
    x = emit_2(e, "Unsqueeze", x, emit_list(e, one, n - s->n));
    return emit_order(e, x, order, n);
}

const char *emit_bias_behind(struct emit *e)
{
    const struct node *n = e->node, *next = n + 1;

    if (next == e->g->node + e->g->n_nodes || next->op != OP_bias ||
        next->in[BIAS_X] != n->out[0] || e->uses[n->out[0]] != 1)
        return NULL;
    e->value[next->out[BIAS_Y]].has_bias = 1;
    return emit_get(e, next->in[BIAS_B], FORM_PLAIN);
}

void emit_put(struct emit *e, const char *name, enum form form)
{
    struct emitted *v = &e->value[e->node->out[0]];

    v->name[form] = name;
    v->made = form;
    if (!v->type)
        v->type = e->g->value[e->node->out[0]].dtype == DTYPE_I32 ? ONNX_INT64 : ONNX_FLOAT;
}

/* ---- the graph ---- */

/* For each node 1 if one of the outputs depends on it, to free; and e->uses. */
static char *emit_needed(struct emit *e, const int *outputs, int n)
{
    const struct graph *g = e->g;
    char *node = xcalloc((size_t)g->n_nodes + 1, 1);

    for (int i = 0; i < n; i++)
        e->uses[outputs[i]]++;
    for (int k = g->n_nodes - 1; k >= 0; k--) {
        const struct node *at = &g->node[k];

        for (int i = 0; i < at->n_out; i++)
            node[k] |= at->out[i] != NO_VALUE && e->uses[at->out[i]] > 0;
        for (int i = 0; i < at->n_in && node[k]; i++)
            if (at->in[i] != NO_VALUE)
                e->uses[at->in[i]]++;
    }
    return node;
}

const struct node *emit_product_of(const struct graph *g, const struct node *n)
{
    const int made = g->value[n->in[RECURRENT_GX]].producer;

    return made >= 0 && g->node[made].op == OP_linear && !g->node[made].attr.linear.transposed
               ? &g->node[made]
               : NULL;
}

/* A product that a recurrent node alone reads is part of that node. */
static void leave_out_products(const struct emit *e, char *needed)
{
    for (int k = 0; k < e->g->n_nodes; k++) {
        const struct node *n = &e->g->node[k];
        const struct node *product =
            needed[k] && n->op == OP_recurrent ? emit_product_of(e->g, n) : NULL;

        if (product && e->uses[n->in[RECURRENT_GX]] == 1)
            needed[product - e->g->node] = 0;
    }
}

/* Refuse the operators without a function, by name and count. */
static int emit_check(const struct graph *g, const char *needed, struct err *err)
{
    int count[OP_COUNT] = {0}, n = 0;
    struct buf text = {0};

    for (int k = 0; k < g->n_nodes; k++)
        count[g->node[k].op] += needed[k] && !emit_functions[g->node[k].op];
    for (int op = 0; op < OP_COUNT; op++)
        if (count[op])
            buf_printf(&text, "%s%s (%d)", n++ ? ", " : "", op_get(op)->name, count[op]);
    if (n)
        err_set(err, ERR_UNSUPPORTED,
                "operators that cannot be written as ONNX, and how many nodes have them: %s; "
                "--export FILE.safetensors writes the weights alone",
                buf_cstr(&text));
    buf_fini(&text);
    return n ? err->code : 0;
}

/* Both graphs have the same nodes. */
static int emit_compare(const struct graph *a, const struct graph *b, struct err *err)
{
    int same = a->n_nodes == b->n_nodes && a->n_values == b->n_values;

    for (int k = 0; k < a->n_nodes && same; k++)
        same = a->node[k].op == b->node[k].op;
    for (int v = 0; v < a->n_values && same; v++)
        same = a->value[v].shape.n == b->value[v].shape.n;
    return same ? 0
                : err_set(err, ERR_UNSUPPORTED,
                          "the network is not the same for %lld and %lld samples, so no model can "
                          "hold it for any number of them",
                          (long long)a->batch, (long long)b->batch);
}

int emit_graph(struct emit *e, const int *outputs, int n)
{
    char *needed;

    e->uses = xcalloc((size_t)e->g->n_values + 1, sizeof *e->uses);
    needed = emit_needed(e, outputs, n);
    e->rc = emit_compare(e->g, e->other, e->err);
    if (e->rc == 0)
        e->rc = emit_check(e->g, needed, e->err);
    leave_out_products(e, needed);
    for (int k = 0; k < e->g->n_nodes && e->rc == 0; k++)
        if (needed[k]) {
            e->node = &e->g->node[k];
            emit_functions[e->node->op](e, e->node);
        }
    free(needed);
    free(e->uses);
    e->uses = NULL;
    return e->rc;
}
