/* onnx_make - nodes of PyTorch for nodes of ONNX: values, arguments, constants that are computed at
 * once, and tensors of the network where a node reads an initializer or a constant. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/onnx_impl.h"

enum { ONNX_MAX_CONTENT = 256 << 20 };

void onnx_fail(struct onnx *o, int code, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    if (o->rc < 0)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (o->node)
        o->rc = err_set(o->err, code, "node %s (%s): %s", o->node->name ? o->node->name : "",
                        o->node->op_type, text);
    else
        o->rc = err_set(o->err, code, "%s", text);
}

int onnx_failed(const struct onnx *o) { return o->rc < 0; }

static int make_grow(struct onnx *o, void **array, size_t size, int n, int *room, int most)
{
    const int more = *room ? 2 * *room : 64;

    if (n >= most)
        onnx_fail(o, ERR_UNSUPPORTED, "the network has more than %d nodes, values or tensors",
                  most);
    if (o->rc < 0 || n < *room)
        return o->rc;
    if (try_realloc(array, size * (size_t)more, "a network", o->err) < 0)
        return o->rc = o->err->code;
    memset((char *)*array + size * (size_t)n, 0, size * (size_t)(more - n));
    *room = more;
    return 0;
}

/* ---- values ---- */

const struct import_value *onnx_value(const struct onnx *o, int v) { return &o->net->value[v]; }

int onnx_value_new(struct onnx *o, const char *name, enum import_type type, int n_dims,
                   const int64_t *dim)
{
    struct import_network *n = o->net;
    struct import_value *v;
    int room = o->room_values, known = o->room_values, host = o->room_values;
    int64_t n_elements = 1;

    if (n_dims > IMPORT_MAX_DIMS)
        onnx_fail(o, ERR_UNSUPPORTED, "%s has %d dimensions, want %d at most", name, n_dims,
                  IMPORT_MAX_DIMS);
    if (o->rc < 0 ||
        make_grow(o, (void **)&n->value, sizeof *n->value, n->n_values, &room, IMPORT_MAX_VALUES) <
            0 ||
        make_grow(o, (void **)&o->known, sizeof *o->known, n->n_values, &known, IMPORT_MAX_VALUES) <
            0 ||
        make_grow(o, (void **)&o->fold.value, sizeof *o->fold.value, n->n_values, &host,
                  IMPORT_MAX_VALUES) < 0)
        return 0;
    o->room_values = room;
    v = &n->value[n->n_values];
    *v = (struct import_value){.name = name, .type = type, .n_dims = n_dims, .tensor = -1};
    o->known[n->n_values] = (struct onnx_known){.stands_for = IMPORT_NO_VALUE};
    o->fold.value[n->n_values] = NULL;
    for (int d = 0; d < n_dims; d++) {
        v->dim[d] = dim[d];
        v->symbol[d] = -1;
        if (dim[d] < 0)
            onnx_fail(o, ERR_CONFIG, "%s would have extent %lld in dimension %d", name,
                      (long long)dim[d], d);
        else if (dim[d] > ONNX_MAX_ELEMENTS / n_elements)
            onnx_fail(o, ERR_UNSUPPORTED, "%s would have more than 2^40 elements", name);
        if (o->rc < 0)
            break;
        n_elements *= max_i64(dim[d], 1);
    }
    if (o->rc < 0)
        v->n_dims = 0; /* what reads it finds no extent that could overflow */
    return n->n_values++;
}

static int make_value(struct onnx *o, enum import_type type, int n_dims, const int64_t *dim)
{
    const char *of = o->node && o->node->n_output > 0 ? o->node->output[0] : "";

    return onnx_value_new(o, arena_printf(&o->net->arena, "%s.%d", of, o->n_made++), type, n_dims,
                          dim);
}

int onnx_in(struct onnx *o, int i)
{
    json_t *at;

    if (i >= (int)o->node->n_input || !*o->node->input[i])
        return IMPORT_NO_VALUE;
    at = json_object_get(o->names, o->node->input[i]);
    if (!at && json_object_get(o->unmade, o->node->input[i])) {
        onnx_fail(o, ERR_UNSUPPORTED, "it reads %s, an output of %s that is not supported",
                  o->node->input[i],
                  json_string_value(json_object_get(o->unmade, o->node->input[i])));
        return 0;
    }
    if (!at) {
        onnx_fail(
            o, ERR_CORRUPT,
            "it reads %s, which no node before it makes; the file is damaged: export it again",
            o->node->input[i]);
        return 0;
    }
    return (int)json_integer_value(at);
}

void onnx_out(struct onnx *o, int i, int v)
{
    struct import_value *x = &o->net->value[v];
    const char *name;

    if (o->rc < 0 || i >= (int)o->node->n_output || !*o->node->output[i])
        return;
    name = arena_strdup(&o->net->arena, o->node->output[i]);
    if (v >= o->net->n_values - o->n_made && x->tensor < 0)
        x->name = name;
    if (json_object_get(o->names, name))
        onnx_fail(o, ERR_CORRUPT, "it makes %s a second time; the file is damaged: export it again",
                  name);
    else if (json_object_set_new(o->names, name, json_integer(v)) < 0)
        onnx_fail(o, ERR_CORRUPT, "its output has a name that is no UTF-8");
}

/* ---- constants ---- */

/* Before n elements of a constant are kept: fails if all constants would be too large. */
int onnx_count(struct onnx *o, int64_t n, enum import_type type)
{
    const int64_t size = (int64_t)import_type_size(type);

    if (n > (ONNX_MAX_CONTENT - o->content_bytes) / size) {
        onnx_fail(o, ERR_UNSUPPORTED, "its constants have more than %d bytes", ONNX_MAX_CONTENT);
        return -1;
    }
    o->content_bytes += n * size;
    return 0;
}

/* The elements of initializer v, in memory. */
static struct host_tensor *make_load(struct onnx *o, int v)
{
    const struct import_value like = o->net->value[v];
    struct host_tensor *h = arena_alloc(&o->memory, sizeof *h);
    int64_t n = 1;
    void *to;

    *h = (struct host_tensor){.type = like.type, .n_dims = like.n_dims, .is_read_only = 1};
    for (int d = like.n_dims - 1; d >= 0; d--) {
        h->dim[d] = like.dim[d];
        h->stride[d] = n;
        n *= like.dim[d];
    }
    if (onnx_count(o, n, like.type) < 0)
        return NULL;
    to = arena_alloc(&o->memory, (size_t)n * import_type_size(like.type) + 1);
    if (onnx_tensor_read(o->file->path, o->known[v].init, 0, n, to, o->err) < 0) {
        o->rc = o->err->code;
        return NULL;
    }
    h->data = to;
    h->memory = to;
    return h;
}

const struct host_tensor *onnx_host(struct onnx *o, int v)
{
    if (o->rc < 0 || v == IMPORT_NO_VALUE)
        return NULL;
    if (o->fold.value[v] || !o->known[v].init)
        return o->fold.value[v];
    if (!o->known[v].is_constant)
        return o->net->value[v].n_dims <= 1 ? make_load(o, v) : NULL;
    return o->fold.value[v] = make_load(o, v);
}

static int make_is_constant(struct onnx *o, int v)
{
    return v != IMPORT_NO_VALUE &&
           (o->fold.value[v] || (o->known[v].is_constant && onnx_host(o, v)));
}

int onnx_host_ints(struct onnx *o, int v, const char *what, int64_t *to, int most)
{
    const struct host_tensor *h = onnx_host(o, v);
    const int64_t n = h ? host_count(h) : 0;

    if (o->rc < 0)
        return 0;
    if (!h || host_is_real(h->type) || n > most) {
        onnx_fail(o, ERR_UNSUPPORTED, "its %s %s, want at most %d integers that are constants",
                  what, h ? "has other elements" : "depends on the data", most);
        return 0;
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = host_integer(h, i);
    return (int)n;
}

int onnx_constant(struct onnx *o, enum import_type type, int n_dims, const int64_t *dim,
                  const void *elements)
{
    const int v = make_value(o, type, n_dims, dim);
    struct host_tensor *h = arena_alloc(&o->memory, sizeof *h);
    int64_t n = 1;

    if (o->rc < 0)
        return 0;
    *h = (struct host_tensor){.type = type, .n_dims = n_dims, .is_read_only = 1};
    for (int d = n_dims - 1; d >= 0; d--) {
        h->dim[d] = dim[d];
        h->stride[d] = n;
        n *= dim[d];
    }
    if (onnx_count(o, n, type) < 0)
        return 0;
    h->data = arena_alloc(&o->memory, (size_t)n * import_type_size(type) + 1);
    memcpy(h->data, elements, (size_t)n * import_type_size(type));
    h->memory = h->data;
    o->fold.value[v] = h;
    return v;
}

/* ---- tensors of the network ---- */

static void make_tensor(struct onnx *o, int v, enum import_role role, const char *bytes)
{
    struct import_network *n = o->net;
    struct import_value *x = &n->value[v];
    struct import_tensor *t;
    int64_t stride = 1;

    if (make_grow(o, (void **)&n->tensor, sizeof *n->tensor, n->n_tensors, &o->room_tensors,
                  IMPORT_MAX_TENSORS) < 0)
        return;
    t = &n->tensor[n->n_tensors];
    *t = (struct import_tensor){.name = x->name,
                                .role = role,
                                .requires_grad = role == IMPORT_PARAMETER,
                                .type = x->type,
                                .n_dims = x->n_dims,
                                .same_as = -1,
                                .bytes = bytes};
    for (int d = x->n_dims - 1; d >= 0; d--) {
        t->dim[d] = x->dim[d];
        t->stride[d] = stride;
        stride *= x->dim[d];
    }
    x->tensor = n->n_tensors++;
}

void onnx_buffer(struct onnx *o, int v)
{
    if (o->rc < 0)
        return;
    if (!o->known[v].init || (o->net->value[v].tensor >= 0 &&
                              o->net->tensor[o->net->value[v].tensor].role == IMPORT_PARAMETER))
        onnx_fail(o, ERR_UNSUPPORTED,
                  "its statistic %s is %s; export the network with torch.onnx.export(..., "
                  "dynamo=True, optimize=False)",
                  o->net->value[v].name,
                  o->known[v].init ? "a weight of another node, too, since the exporter merges "
                                     "equal ones"
                                   : "computed by a node, want one of the file");
    else if (o->net->value[v].tensor < 0)
        make_tensor(o, v, IMPORT_BUFFER, NULL);
}

/* The elements of h row by row, without those that repeat along a dimension, in the network. */
static const char *make_bytes(struct onnx *o, struct host_tensor h)
{
    const size_t size = import_type_size(h.type);
    const int64_t n = host_count(&h);
    char *to = arena_alloc(&o->net->arena, (size_t)n * size + 1);

    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, rest = i;

        for (int d = h.n_dims - 1; d >= 0; d--) {
            at += rest % h.dim[d] * h.stride[d];
            rest /= h.dim[d];
        }
        memcpy(to + (size_t)i * size, (const char *)h.data + (size_t)at * size, size);
    }
    return to;
}

static void make_append(struct onnx *o, const char *target, int n_out, const int *out);

/* The constant v as a value that nodes read: with extent 1 where its elements repeat, expanded. */
static int make_constant(struct onnx *o, int v)
{
    struct host_tensor thin = *o->fold.value[v];
    const struct import_value whole = o->net->value[v];
    int is_thin = 0, at;

    for (int d = 0; d < thin.n_dims; d++)
        if (thin.dim[d] > 1 && host_is_even(o->fold.value[v], d)) {
            thin.dim[d] = 1;
            is_thin = 1;
        }
    if (!is_thin) {
        make_tensor(o, v,
                    o->known[v].init && json_object_get(o->buffers, whole.name) ? IMPORT_BUFFER
                                                                                : IMPORT_CONSTANT,
                    make_bytes(o, thin));
        return v;
    }
    at = onnx_value_new(o, arena_printf(&o->net->arena, "%s.thin", whole.name), whole.type,
                        whole.n_dims, thin.dim);
    if (o->rc == 0)
        make_tensor(o, at, IMPORT_CONSTANT, make_bytes(o, thin));
    if (o->rc == 0) {
        struct import_arg kept[ONNX_MAX_ARGS];
        const int n_kept = o->n_args,
                  out = onnx_value_new(o, arena_strdup(&o->net->arena, whole.name), whole.type,
                                       whole.n_dims, whole.dim);

        memcpy(kept, o->arg, sizeof kept);
        o->n_args = 0;
        onnx_put_value(o, "self", at);
        onnx_put_ints(o, "size", whole.dim, whole.n_dims);
        make_append(o, "expand.default", 1, &out);
        memcpy(o->arg, kept, sizeof kept);
        o->n_args = n_kept;
        return out;
    }
    return 0;
}

/* The value that a node reads in the place of v. */
static int make_use(struct onnx *o, int v)
{
    struct onnx_known *k = &o->known[v];

    if (o->rc < 0 || v == IMPORT_NO_VALUE || o->net->value[v].tensor >= 0)
        return v;
    if (k->stands_for != IMPORT_NO_VALUE)
        return k->stands_for;
    if (k->init && !k->is_constant) {
        make_tensor(o, v, IMPORT_PARAMETER, NULL);
        return v;
    }
    if (!make_is_constant(o, v))
        return v;
    {
        const int at = make_constant(o, v);

        if (o->rc == 0)
            o->known[v].stands_for = at;
        return at;
    }
}

/* ---- arguments ---- */

static struct import_arg *make_arg(struct onnx *o, const char *name, enum import_arg_kind kind,
                                   int n)
{
    struct import_arg *a = &o->arg[o->n_args];

    ASSERT(o->n_args < ONNX_MAX_ARGS);
    o->n_args++;
    *a = (struct import_arg){.name = name, .is_keyword = 1, .kind = kind, .n = n};
    return a;
}

void onnx_put_values(struct onnx *o, const char *name, const int *v, int n)
{
    make_arg(o, name, IMPORT_VALUES, n)->values =
        arena_copy(&o->net->arena, v, (size_t)n * sizeof *v);
}

void onnx_put_value(struct onnx *o, const char *name, int v)
{
    if (v == IMPORT_NO_VALUE) {
        make_arg(o, name, IMPORT_NONE, 0);
        return;
    }
    onnx_put_values(o, name, &v, 1);
    o->arg[o->n_args - 1].kind = IMPORT_VALUE;
}

static void make_list(struct onnx *o, const char *name, enum import_arg_kind kind, const int64_t *v,
                      int n)
{
    struct import_int *to = arena_alloc(&o->net->arena, ((size_t)n + 1) * sizeof *to);

    for (int i = 0; i < n; i++)
        to[i] = (struct import_int){v[i], IMPORT_NO_VALUE};
    make_arg(o, name, kind, n)->ints = to;
}

void onnx_put_int(struct onnx *o, const char *name, int64_t v)
{
    make_list(o, name, IMPORT_INT, &v, 1);
}

void onnx_put_flag(struct onnx *o, const char *name, int v)
{
    make_list(o, name, IMPORT_FLAG, &(int64_t){v}, 1);
}

void onnx_put_ints(struct onnx *o, const char *name, const int64_t *v, int n)
{
    make_list(o, name, IMPORT_INTS, v, n);
}

void onnx_put_type(struct onnx *o, const char *name, enum import_type type)
{
    make_list(o, name, IMPORT_DTYPE, &(int64_t){type}, 1);
}

void onnx_put_real(struct onnx *o, const char *name, double v)
{
    make_arg(o, name, IMPORT_REAL, 1)->reals = arena_copy(&o->net->arena, &v, sizeof v);
}

void onnx_put_text(struct onnx *o, const char *name, const char *text)
{
    make_arg(o, name, IMPORT_TEXT, 1)->text = arena_strdup(&o->net->arena, text);
}

void onnx_put_number_or_value(struct onnx *o, const char *name, int v, int x)
{
    const struct host_tensor *h = make_is_constant(o, v) ? o->fold.value[v] : NULL;

    if (!h || host_count(h) != 1 || h->n_dims > o->net->value[x].n_dims || make_is_constant(o, x))
        onnx_put_value(o, name, v);
    else if (host_is_real(h->type))
        onnx_put_real(o, name, host_element(h, 0));
    else
        onnx_put_int(o, name, host_integer(h, 0));
}

/* ---- nodes ---- */

static void make_append(struct onnx *o, const char *target, int n_out, const int *out)
{
    struct import_network *n = o->net;
    struct arena *a = &n->arena;

    if (make_grow(o, (void **)&n->node, sizeof *n->node, n->n_nodes, &o->room_nodes,
                  IMPORT_MAX_NODES) < 0)
        return;
    n->node[n->n_nodes++] = (struct import_node){
        .target = target,
        .module = o->module,
        .name = n->value[out[0]].name,
        .n_args = o->n_args,
        .n_out = n_out,
        .arg = arena_copy(a, o->arg, sizeof *o->arg * (size_t)o->n_args),
        .out = arena_copy(a, out, sizeof *out * (size_t)n_out),
    };
}

/* 1: all tensors among the arguments are constants. */
static int make_is_folded(struct onnx *o, const char *target)
{
    int all = fold_can(target);

    for (int i = 0; i < o->n_args && all; i++)
        for (int k = 0; k < o->arg[i].n && all; k++)
            if (o->arg[i].values)
                all = make_is_constant(o, o->arg[i].values[k]);
    return all && o->rc == 0;
}

static void make_node(struct onnx *o, const char *target, int n_out, const int *out)
{
    const struct import_node node = {.target = target,
                                     .module = o->module,
                                     .name = o->node->name ? o->node->name : "",
                                     .n_args = o->n_args,
                                     .n_out = n_out,
                                     .arg = o->arg,
                                     .out = out};

    if (o->rc == 0 && make_is_folded(o, target)) {
        if (fold_node(&o->fold, o->net, &node, o->err) < 0) {
            o->rc = err_wrap(o->err, "node %s (%s)", node.name, o->node->op_type);
        }
        o->n_args = 0;
        return;
    }
    for (int i = 0; i < o->n_args && o->rc == 0; i++)
        for (int k = 0; k < o->arg[i].n && o->arg[i].values; k++)
            ((int *)(uintptr_t)o->arg[i].values)[k] = make_use(o, o->arg[i].values[k]);
    make_append(o, target, n_out, out);
    o->n_args = 0;
}

int onnx_make(struct onnx *o, const char *target, enum import_type type, int n_dims,
              const int64_t *dim)
{
    const int out = make_value(o, type, n_dims, dim);

    if (o->rc == 0)
        make_node(o, target, 1, &out);
    o->n_args = 0;
    return out;
}

int onnx_make_like(struct onnx *o, const char *target, int x)
{
    const struct import_value like = o->net->value[x];

    return onnx_make(o, target, like.type, like.n_dims, like.dim);
}

void onnx_make_parts(struct onnx *o, const char *target, int x, int dim, const int64_t *part, int n,
                     int *out)
{
    struct import_value like = o->net->value[x];

    for (int i = 0; i < n; i++) {
        like.dim[dim] = part[i];
        out[i] = make_value(o, like.type, like.n_dims, like.dim);
    }
    if (o->rc == 0)
        make_node(o, target, n, out);
    o->n_args = 0;
}

void onnx_make_several(struct onnx *o, const char *target, enum import_type type, int n,
                       const int64_t (*dim)[3], int *out)
{
    for (int i = 0; i < n; i++)
        out[i] = make_value(o, type, 3, dim[i]);
    if (o->rc == 0)
        make_node(o, target, n, out);
    o->n_args = 0;
}
