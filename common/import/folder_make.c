/* folder_make - values, tensors and nodes of a network that is made by a description.  Arguments
 * have the names of PyTorch's schemas. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "import/folder_impl.h"

enum { LAYER_NODES = 64, LAYER_TENSORS = 24, MORE = 32, NODE_ARGS = 8 };

void folder_make_begin(struct folder_make *m, struct import_network *n, int64_t layers)
{
    m->n = n;
    m->module = "";
    m->room_nodes = (int)layers * LAYER_NODES + MORE;
    m->room_tensors = (int)layers * LAYER_TENSORS + MORE;
    m->room_values = m->room_nodes + m->room_tensors;
    n->value = arena_alloc(&n->arena, (size_t)m->room_values * sizeof *n->value);
    n->node = arena_alloc(&n->arena, (size_t)m->room_nodes * sizeof *n->node);
    n->tensor = arena_alloc(&n->arena, (size_t)m->room_tensors * sizeof *n->tensor);
    n->symbol = arena_alloc(&n->arena, sizeof *n->symbol);
    n->symbol[n->n_symbols++] =
        (struct import_symbol){"batch", FOLDER_BATCH, 0, INT64_MAX, -1, 1, 0};
    m->arg = arena_alloc(&n->arena, NODE_ARGS * sizeof *m->arg);
}

void folder_module(struct folder_make *m, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    m->module = arena_strdup(&m->n->arena, text);
}

/* ---- values ---- */

static int make_folder_value(struct folder_make *m, const char *name, enum import_type type,
                             int n_dims, const int64_t *dim)
{
    struct import_value *v = &m->n->value[m->n->n_values];

    ASSERT(m->n->n_values < m->room_values);
    *v = (struct import_value){.name = name, .type = type, .n_dims = n_dims, .tensor = -1};
    for (int d = 0; d < n_dims; d++) {
        v->dim[d] = dim[d];
        v->symbol[d] = -1;
    }
    return m->n->n_values++;
}

/* Its first dimension is the batch. */
static int make_of_samples(struct folder_make *m, const char *name, int n_dims, const int64_t *dim)
{
    const int v = make_folder_value(m, name, IMPORT_F32, n_dims, dim);

    m->n->value[v].symbol[0] = 0;
    return v;
}

static int make_of_tensor(struct folder_make *m, struct import_tensor t)
{
    const int v = make_folder_value(m, t.name, t.type, t.n_dims, t.dim);
    int64_t stride = 1;

    ASSERT(m->n->n_tensors < m->room_tensors);
    t.same_as = -1;
    t.requires_grad = t.role == IMPORT_PARAMETER;
    for (int d = t.n_dims - 1; d >= 0; d--) {
        t.stride[d] = stride;
        stride *= t.dim[d];
    }
    m->n->value[v].tensor = m->n->n_tensors;
    m->n->tensor[m->n->n_tensors++] = t;
    return v;
}

int folder_input(struct folder_make *m, const char *name, int64_t context)
{
    const int v = make_of_samples(m, name, 2, (int64_t[]){FOLDER_BATCH, context});

    m->n->value[v].type = IMPORT_I64;
    m->n->input = arena_alloc(&m->n->arena, sizeof *m->n->input);
    m->n->input[m->n->n_inputs++] = (struct import_port){name, v};
    return v;
}

int folder_pixels(struct folder_make *m, const char *name, int64_t channels, int64_t side)
{
    const int v = make_of_samples(m, name, 4, (int64_t[]){FOLDER_BATCH, channels, side, side});

    m->n->input = arena_alloc(&m->n->arena, sizeof *m->n->input);
    m->n->input[m->n->n_inputs++] = (struct import_port){name, v};
    return v;
}

int folder_param_of(struct folder_make *m, const char *name, int n_dims, const int64_t *dim)
{
    struct import_tensor t = {.name = arena_printf(&m->n->arena, "%s.%s", m->module, name),
                              .role = IMPORT_PARAMETER,
                              .type = IMPORT_F32,
                              .n_dims = n_dims};

    memcpy(t.dim, dim, (size_t)n_dims * sizeof *dim);
    return make_of_tensor(m, t);
}

int folder_param(struct folder_make *m, const char *name, int64_t a, int64_t b)
{
    return folder_param_of(m, name, b ? 2 : 1, (int64_t[]){a, b});
}

int folder_zeros(struct folder_make *m, const char *name, int64_t a)
{
    const int v = folder_param(m, name, a, 0);

    m->n->tensor[m->n->value[v].tensor].is_even = 1; /* all are `even`, 0 */
    return v;
}

int folder_constant(struct folder_make *m, const char *name, enum import_type type, int64_t a,
                    int64_t b, const void *elements)
{
    return make_of_tensor(
        m, (struct import_tensor){.name = name,
                                  .role = IMPORT_CONSTANT,
                                  .type = type,
                                  .n_dims = 4,
                                  .dim = {1, 1, a, b},
                                  .bytes = arena_copy(&m->n->arena, elements,
                                                      (size_t)(a * b) * import_type_size(type))});
}

int folder_numbers(struct folder_make *m, const char *name, int64_t n)
{
    int64_t *number = arena_alloc(&m->n->arena, (size_t)n * sizeof *number);

    for (int64_t i = 0; i < n; i++)
        number[i] = i;
    return make_of_tensor(m, (struct import_tensor){.name = name,
                                                    .role = IMPORT_CONSTANT,
                                                    .type = IMPORT_I64,
                                                    .n_dims = 2,
                                                    .dim = {1, n},
                                                    .bytes = (const char *)number});
}

/* ---- arguments ---- */

static struct import_arg *make_put(struct folder_make *m, const char *name,
                                   enum import_arg_kind kind, int n)
{
    struct import_arg *a = &m->arg[m->n_args++];

    ASSERT(m->n_args <= NODE_ARGS);
    *a = (struct import_arg){.name = name, .is_keyword = 1, .kind = kind, .n = n};
    return a;
}

static void folder_put_value(struct folder_make *m, const char *name, int v)
{
    make_put(m, name, IMPORT_VALUE, 1)->values = arena_copy(&m->n->arena, &v, sizeof v);
}

static void folder_put_int(struct folder_make *m, const char *name, int64_t v)
{
    const struct import_int number = {v, IMPORT_NO_VALUE};

    make_put(m, name, IMPORT_INT, 1)->ints = arena_copy(&m->n->arena, &number, sizeof number);
}

static void folder_put_flag(struct folder_make *m, const char *name, int v)
{
    folder_put_int(m, name, v);
    m->arg[m->n_args - 1].kind = IMPORT_FLAG;
}

static void folder_put_real(struct folder_make *m, const char *name, double v)
{
    make_put(m, name, IMPORT_REAL, 1)->reals = arena_copy(&m->n->arena, &v, sizeof v);
}

/* ---- nodes ---- */

/* A node with the arguments that were put, and its output. */
static int make_folder_node(struct folder_make *m, const char *target, int n_dims,
                            const int64_t *dim)
{
    struct import_network *n = m->n;
    const char *name =
        arena_printf(&n->arena, "%.*s_%d", (int)strcspn(target, "."), target, n->n_nodes);
    const int out = make_of_samples(m, name, n_dims, dim);

    ASSERT(n->n_nodes < m->room_nodes);
    n->node[n->n_nodes++] = (struct import_node){
        .target = target,
        .module = m->module,
        .name = name,
        .n_args = m->n_args,
        .arg = arena_copy(&n->arena, m->arg, (size_t)m->n_args * sizeof *m->arg),
        .n_out = 1,
        .out = arena_copy(&n->arena, &out, sizeof out)};
    m->n_args = 0;
    return out;
}

static const struct import_value *make_seen(const struct folder_make *m, int v)
{
    return &m->n->value[v];
}

int folder_embed(struct folder_make *m, int table, int tokens, int64_t padding)
{
    const struct import_value *t = make_seen(m, table), *x = make_seen(m, tokens);
    int y;

    folder_put_value(m, "weight", table);
    folder_put_value(m, "indices", tokens);
    folder_put_int(m, "padding_idx", padding);
    y = make_folder_node(m, "embedding.default", 3, (int64_t[]){x->dim[0], x->dim[1], t->dim[1]});
    m->n->value[y].symbol[0] = x->symbol[0];
    return y;
}

int folder_linear(struct folder_make *m, int x, int weight, int bias)
{
    struct import_value v = *make_seen(m, x);

    v.dim[v.n_dims - 1] = make_seen(m, weight)->dim[0];
    folder_put_value(m, "input", x);
    folder_put_value(m, "weight", weight);
    if (bias != IMPORT_NO_VALUE)
        folder_put_value(m, "bias", bias);
    return make_folder_node(m, "linear.default", v.n_dims, v.dim);
}

int folder_dense(struct folder_make *m, const char *of, const char *name, int x, int64_t out,
                 int has_bias)
{
    const struct import_value *v = &m->n->value[x];
    int weight;

    folder_module(m, "%s%s", of, name);
    weight = folder_param(m, "weight", out, v->dim[v->n_dims - 1]);
    return folder_linear(m, x, weight,
                         has_bias ? folder_param(m, "bias", out, 0) : IMPORT_NO_VALUE);
}

int folder_rms_norm(struct folder_make *m, int x, int weight, double eps)
{
    const struct import_value v = *make_seen(m, x);
    const struct import_int width = {v.dim[v.n_dims - 1], IMPORT_NO_VALUE};

    folder_put_value(m, "input", x);
    make_put(m, "normalized_shape", IMPORT_INTS, 1)->ints =
        arena_copy(&m->n->arena, &width, sizeof width);
    if (weight != IMPORT_NO_VALUE)
        folder_put_value(m, "weight", weight);
    folder_put_real(m, "eps", eps);
    return make_folder_node(m, "rms_norm.default", v.n_dims, v.dim);
}

int folder_layer_norm(struct folder_make *m, int x, double eps)
{
    const struct import_value v = *make_seen(m, x);
    const struct import_int width = {v.dim[v.n_dims - 1], IMPORT_NO_VALUE};

    folder_put_value(m, "input", x);
    make_put(m, "normalized_shape", IMPORT_INTS, 1)->ints =
        arena_copy(&m->n->arena, &width, sizeof width);
    folder_put_value(m, "weight", folder_param(m, "weight", width.number, 0));
    folder_put_value(m, "bias", folder_param(m, "bias", width.number, 0));
    folder_put_real(m, "eps", eps);
    return make_folder_node(m, "layer_norm.default", v.n_dims, v.dim);
}

int folder_product(struct folder_make *m, int x, int weight)
{
    struct import_value v = *make_seen(m, x);

    v.dim[v.n_dims - 1] = make_seen(m, weight)->dim[1];
    folder_put_value(m, "self", x);
    folder_put_value(m, "other", weight);
    return make_folder_node(m, "matmul.default", v.n_dims, v.dim);
}

int folder_dropout(struct folder_make *m, int x, double p)
{
    const struct import_value v = *make_seen(m, x);

    if (p == 0)
        return x;
    folder_put_value(m, "input", x);
    folder_put_real(m, "p", p);
    folder_put_flag(m, "train", 1);
    return make_folder_node(m, "dropout.default", v.n_dims, v.dim);
}

int folder_heads(struct folder_make *m, int x, int64_t heads)
{
    const struct import_value *v = make_seen(m, x);

    folder_put_value(m, "self", x);
    return make_folder_node(m, "view.default", 4,
                            (int64_t[]){v->dim[0], v->dim[1], heads, v->dim[2] / heads});
}

int folder_join(struct folder_make *m, int x)
{
    const struct import_value *v = make_seen(m, x);

    folder_put_value(m, "self", x);
    return make_folder_node(m, "reshape.default", 3,
                            (int64_t[]){v->dim[0], v->dim[1], v->dim[2] * v->dim[3]});
}

int folder_turn(struct folder_make *m, int x)
{
    const struct import_value *v = make_seen(m, x);

    folder_put_value(m, "self", x);
    folder_put_int(m, "dim0", 1);
    folder_put_int(m, "dim1", 2);
    return make_folder_node(m, "transpose.int", 4,
                            (int64_t[]){v->dim[0], v->dim[2], v->dim[1], v->dim[3]});
}

int folder_both(struct folder_make *m, const char *target, int a, int b)
{
    const struct import_value v = *make_seen(m, a);

    folder_put_value(m, "self", a);
    folder_put_value(m, "other", b);
    return make_folder_node(m, target, v.n_dims, v.dim);
}

int folder_one(struct folder_make *m, const char *target, int x)
{
    const struct import_value v = *make_seen(m, x);

    folder_put_value(m, "self", x);
    return make_folder_node(m, target, v.n_dims, v.dim);
}

int folder_with(struct folder_make *m, const char *target, int x, double other)
{
    const struct import_value v = *make_seen(m, x);
    int y;

    folder_put_value(m, "self", x);
    folder_put_real(m, "other", other);
    y = make_folder_node(m, target, v.n_dims, v.dim);
    m->n->value[y].symbol[0] = v.symbol[0];
    return y;
}

int folder_gelu_tanh(struct folder_make *m, int x)
{
    const struct import_value v = *make_seen(m, x);

    folder_put_value(m, "self", x);
    make_put(m, "approximate", IMPORT_TEXT, 1)->text = "tanh";
    return make_folder_node(m, "gelu.default", v.n_dims, v.dim);
}

int folder_slice(struct folder_make *m, int x, int64_t start, int64_t end)
{
    struct import_value v = *make_seen(m, x);

    v.dim[v.n_dims - 1] = end - start;
    folder_put_value(m, "self", x);
    folder_put_int(m, "dim", v.n_dims - 1);
    folder_put_int(m, "start", start);
    folder_put_int(m, "end", end);
    return make_folder_node(m, "slice.Tensor", v.n_dims, v.dim);
}

int folder_cat(struct folder_make *m, int a, int b)
{
    struct import_value v = *make_seen(m, a);
    const int both[] = {a, b}, last = v.n_dims - 1;

    v.dim[last] += make_seen(m, b)->dim[last];
    make_put(m, "tensors", IMPORT_VALUES, 2)->values = arena_copy(&m->n->arena, both, sizeof both);
    folder_put_int(m, "dim", last);
    return make_folder_node(m, "cat.default", v.n_dims, v.dim);
}

static void folder_put_both(struct folder_make *m, const char *name, int64_t number)
{
    const struct import_int two[] = {{number, IMPORT_NO_VALUE}, {number, IMPORT_NO_VALUE}};

    make_put(m, name, IMPORT_INTS, 2)->ints = arena_copy(&m->n->arena, two, sizeof two);
}

int folder_patches(struct folder_make *m, int x, int weight, int bias)
{
    const struct import_value v = *make_seen(m, x), w = *make_seen(m, weight);
    const int64_t side = v.dim[2] / w.dim[2];

    folder_put_value(m, "input", x);
    folder_put_value(m, "weight", weight);
    if (bias != IMPORT_NO_VALUE)
        folder_put_value(m, "bias", bias);
    folder_put_both(m, "stride", w.dim[2]);
    x = make_folder_node(m, "conv2d.default", 4, (int64_t[]){v.dim[0], w.dim[0], side, side});
    folder_put_value(m, "self", x);
    folder_put_int(m, "start_dim", 2);
    x = make_folder_node(m, "flatten.using_ints", 3, (int64_t[]){v.dim[0], w.dim[0], side * side});
    folder_put_value(m, "self", x);
    folder_put_int(m, "dim0", 1);
    folder_put_int(m, "dim1", 2);
    return make_folder_node(m, "transpose.int", 3, (int64_t[]){v.dim[0], side * side, w.dim[0]});
}

int folder_put_before(struct folder_make *m, int row, int x)
{
    const struct import_value v = *make_seen(m, x);
    const int64_t one[] = {v.dim[0], 1, v.dim[2]};
    int both[] = {row, x}, first;

    folder_put_value(m, "self", x);
    folder_put_int(m, "dim", 1);
    folder_put_int(m, "start", 0);
    folder_put_int(m, "end", 1);
    first = make_folder_node(m, "slice.Tensor", 3, one);
    folder_put_value(m, "self", row);
    folder_put_value(m, "other", first);
    both[0] = make_folder_node(m, "expand_as.default", 3, one);
    make_put(m, "tensors", IMPORT_VALUES, 2)->values = arena_copy(&m->n->arena, both, sizeof both);
    folder_put_int(m, "dim", 1);
    return make_folder_node(m, "cat.default", 3, (int64_t[]){v.dim[0], v.dim[1] + 1, v.dim[2]});
}

int folder_first(struct folder_make *m, int x)
{
    const struct import_value v = *make_seen(m, x);

    folder_put_value(m, "self", x);
    folder_put_int(m, "dim", 1);
    folder_put_int(m, "index", 0);
    return make_folder_node(m, "select.int", 2, (int64_t[]){v.dim[0], v.dim[2]});
}

int folder_attend(struct folder_make *m, const int qkv[3], int mask, double dropout, double scale)
{
    const struct import_value v = *make_seen(m, qkv[0]);

    folder_put_value(m, "query", qkv[0]);
    folder_put_value(m, "key", qkv[1]);
    folder_put_value(m, "value", qkv[2]);
    if (mask >= 0)
        folder_put_value(m, "attn_mask", mask);
    folder_put_real(m, "dropout_p", dropout);
    folder_put_flag(m, "is_causal", mask == IMPORT_NO_VALUE);
    if (scale > 0)
        folder_put_real(m, "scale", scale);
    folder_put_flag(m, "enable_gqa", 1);
    return make_folder_node(m, "scaled_dot_product_attention.default", 4, v.dim);
}

int folder_is_no_padding(struct folder_make *m, int tokens, int64_t padding)
{
    const struct import_value v = *make_seen(m, tokens);
    int64_t dim[] = {v.dim[0], v.dim[1], 1, v.dim[1]};
    int mask;

    folder_put_value(m, "self", tokens);
    folder_put_int(m, "other", padding);
    mask = make_folder_node(m, "ne.Scalar", 2, dim);
    m->n->value[mask].type = IMPORT_BOOL;
    dim[1] = 1;
    dim[2] = v.dim[1];
    for (int d = 1; d < 3; d++) {
        folder_put_value(m, "self", mask);
        folder_put_int(m, "dim", 1);
        mask = make_folder_node(m, "unsqueeze.default", d + 2,
                                d == 1 ? dim : (int64_t[]){v.dim[0], 1, 1, v.dim[1]});
        m->n->value[mask].type = IMPORT_BOOL;
    }
    return mask;
}
