/* pt2_graph - values and nodes of an exported graph.
 *
 * An argument is an object with one key that says its kind ("as_ints").  A no_grad block is a node
 * wrap_with_set_grad_enabled with a graph of its own, whose inputs are the node's further arguments
 * and whose outputs are the node's outputs: its nodes are appended here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "import/pt2_impl.h"

/* One node while it is read. */
struct graph_read {
    struct pt2 *p;
    struct pt2_scope *scope;
    json_t *json;
    struct import_node *node;
};

static int graph_fail(const struct graph_read *g, const char *what, const char *detail)
{
    return pt2_refuse(g->p, "node %s (%s) of layer %s: %s %s", g->node->name, g->node->target,
                      g->node->module[0] ? g->node->module : "(top)", what, detail);
}

int pt2_value_add(struct pt2 *p, struct pt2_scope *s, const char *name)
{
    struct import_network *n = p->net;
    json_t *tensor = json_object_get(json_object_get(s->graph, "tensor_values"), name),
           *size = json_object_get(json_object_get(s->graph, "sym_int_values"), name);
    struct import_value *v;
    int symbol;

    if (json_object_get(s->names, name))
        return pt2_damaged(p, "value %s is made twice", name);
    if (pt2_grow(p, (void **)&n->value, sizeof *n->value, n->n_values, &p->room_values,
                 IMPORT_MAX_VALUES, "values") < 0)
        return p->err->code;
    v = &n->value[n->n_values];
    *v = (struct import_value){.name = arena_strdup(&n->arena, name), .tensor = -1};
    memset(v->symbol, -1, sizeof v->symbol);
    if (tensor) {
        if (pt2_meta(p, tensor, name, v) < 0)
            return p->err->code;
    } else if (size) {
        v->is_int = 1;
        if (pt2_size(p, size, &v->hint, &symbol) < 0)
            return err_wrap(p->err, "value %s", name);
    } else {
        return pt2_damaged(p, "value %s has no type and shape", name);
    }
    json_object_set_new(s->names, name, json_integer(n->n_values));
    return n->n_values++;
}

int pt2_value_find(struct pt2 *p, const struct pt2_scope *s, json_t *name)
{
    const char *text = json_string_value(name);
    json_t *at = text ? json_object_get(s->names, text) : NULL;

    return at ? (int)json_integer_value(at)
              : pt2_damaged(p, "value %s is read, but no node before makes it",
                            text ? text : "(no name)");
}

static int graph_int(const struct graph_read *g, json_t *j, struct import_int *out)
{
    json_t *what = j;
    const char *kind = json_is_object(j) ? pt2_union(j, &what) : NULL;

    *out = (struct import_int){0, IMPORT_NO_VALUE};
    if (kind && !strcmp(kind, "as_name")) {
        const int v = pt2_value_find(g->p, g->scope, what);

        if (v < 0)
            return v;
        *out = (struct import_int){g->p->net->value[v].hint, v};
        return 0;
    }
    if (json_is_boolean(what))
        out->number = json_is_true(what);
    else if (json_is_integer(what))
        out->number = json_integer_value(what);
    else
        return graph_fail(g, "an integer is", kind ? kind : "no number");
    return 0;
}

/* JSON has no infinities: they are strings. */
static int graph_real(const struct graph_read *g, json_t *j, double *out)
{
    const char *text = json_string_value(j);

    if (json_is_object(j)) { /* {"as_float": x} in a list of symbolic numbers */
        const char *kind = pt2_union(j, &j);

        text = json_string_value(j);
        if (!kind || strcmp(kind, "as_float") != 0)
            return graph_fail(g, "it has a number that depends on the data:", kind ? kind : "?");
    }
    if (json_is_number(j))
        *out = json_number_value(j);
    else if (text && !strcmp(text, "Infinity"))
        *out = INFINITY;
    else if (text && !strcmp(text, "-Infinity"))
        *out = -INFINITY;
    else if (text && !strcmp(text, "NaN"))
        *out = NAN;
    else
        return graph_fail(g, "a number is", text ? text : "of another kind");
    return 0;
}

/* {"name": "relu"}, or in a list of optional ones {"as_tensor": {"name": "relu"}} or
 * {"as_none": true}. */
static int pt2_graph_value(const struct graph_read *g, json_t *j, int *out)
{
    json_t *name = json_object_get(j, "name"), *what = j;

    *out = IMPORT_NO_VALUE;
    if (!name) {
        const char *kind = pt2_union(j, &what);

        if (kind && !strcmp(kind, "as_none"))
            return 0;
        name = json_object_get(what, "name");
    }
    *out = pt2_value_find(g->p, g->scope, name);
    return *out < 0 ? *out : 0;
}

/* Read one element, or each of a list, into an array of the arena. */
static int graph_ints(const struct graph_read *g, json_t *j, struct import_arg *a)
{
    const int is_list = json_is_array(j);
    struct import_int *to;

    a->n = is_list ? (int)json_array_size(j) : 1;
    a->ints = to = arena_alloc(&g->p->net->arena, sizeof *to * ((size_t)a->n + 1));
    for (int i = 0; i < a->n; i++)
        if (graph_int(g, is_list ? json_array_get(j, (size_t)i) : j, &to[i]) < 0)
            return g->p->err->code;
    return 0;
}

static int graph_reals(const struct graph_read *g, json_t *j, struct import_arg *a)
{
    const int is_list = json_is_array(j);
    double *to;

    a->n = is_list ? (int)json_array_size(j) : 1;
    a->reals = to = arena_alloc(&g->p->net->arena, sizeof *to * ((size_t)a->n + 1));
    for (int i = 0; i < a->n; i++)
        if (graph_real(g, is_list ? json_array_get(j, (size_t)i) : j, &to[i]) < 0)
            return g->p->err->code;
    return 0;
}

static int graph_values(const struct graph_read *g, json_t *j, struct import_arg *a)
{
    const int is_list = json_is_array(j);
    int *to;

    a->n = is_list ? (int)json_array_size(j) : 1;
    a->values = to = arena_alloc(&g->p->net->arena, sizeof *to * ((size_t)a->n + 1));
    for (int i = 0; i < a->n; i++)
        if (pt2_graph_value(g, is_list ? json_array_get(j, (size_t)i) : j, &to[i]) < 0)
            return g->p->err->code;
    if (a->kind == IMPORT_VALUE && to[0] == IMPORT_NO_VALUE)
        return graph_fail(g, "a tensor is", "None");
    return 0;
}

static int graph_dtype(const struct graph_read *g, json_t *j, struct import_arg *a)
{
    const int type = json_is_integer(j) ? pt2_type(json_integer_value(j)) : -1;
    struct import_int *to = arena_alloc(&g->p->net->arena, sizeof *to);
    char text[24];

    snprintf(text, sizeof text, "%d", (int)json_integer_value(j));
    if (type < 0)
        return graph_fail(g, "it has an element type that is not supported; its code is", text);
    *to = (struct import_int){type, IMPORT_NO_VALUE};
    a->ints = to;
    a->n = 1;
    return 0;
}

static const struct {
    const char *key;
    enum import_arg_kind kind;
} graph_kinds[] = {
    {"as_none", IMPORT_NONE},
    {"as_tensor", IMPORT_VALUE},
    {"as_tensors", IMPORT_VALUES},
    {"as_optional_tensor", IMPORT_VALUE},
    {"as_optional_tensors", IMPORT_VALUES},
    {"as_int", IMPORT_INT},
    {"as_ints", IMPORT_INTS},
    {"as_sym_int", IMPORT_INT},
    {"as_sym_ints", IMPORT_INTS},
    {"as_float", IMPORT_REAL},
    {"as_floats", IMPORT_REALS},
    {"as_sym_float", IMPORT_REAL},
    {"as_sym_floats", IMPORT_REALS},
    {"as_bool", IMPORT_FLAG},
    {"as_bools", IMPORT_FLAGS},
    {"as_string", IMPORT_TEXT},
    {"as_scalar_type", IMPORT_DTYPE},
    {"as_memory_format", IMPORT_NONE},
    {"as_layout", IMPORT_NONE},
    {"as_device", IMPORT_NONE},
};

/* 1: the value of a kind is a list in the file as the kind says. */
static int graph_is_list(enum import_arg_kind k)
{
    return k == IMPORT_INTS || k == IMPORT_REALS || k == IMPORT_FLAGS || k == IMPORT_VALUES;
}

static int graph_fill(const struct graph_read *g, json_t *what, struct import_arg *a)
{
    if (a->kind != IMPORT_NONE && graph_is_list(a->kind) != json_is_array(what))
        return graph_fail(g, "an argument is a list or none, against its kind:", a->name);
    switch (a->kind) {
    case IMPORT_NONE:
        return 0;
    case IMPORT_INT:
    case IMPORT_INTS:
    case IMPORT_FLAG:
    case IMPORT_FLAGS:
        return graph_ints(g, what, a);
    case IMPORT_REAL:
    case IMPORT_REALS:
        return graph_reals(g, what, a);
    case IMPORT_VALUE:
    case IMPORT_VALUES:
        return graph_values(g, what, a);
    case IMPORT_DTYPE:
        return graph_dtype(g, what, a);
    case IMPORT_TEXT:
        a->text = pt2_text(g->p, what);
        return 0;
    }
    return 0;
}

static int graph_arg(const struct graph_read *g, json_t *j, struct import_arg *a)
{
    json_t *what;
    const char *key = pt2_union(json_object_get(j, "arg"), &what);
    size_t i;

    *a = (struct import_arg){.name = pt2_text(g->p, json_object_get(j, "name")),
                             .is_keyword = json_integer_value(json_object_get(j, "kind")) == 2};
    for (i = 0; i < ARRAY_LEN(graph_kinds); i++)
        if (key && !strcmp(key, graph_kinds[i].key))
            break;
    if (i == ARRAY_LEN(graph_kinds))
        return graph_fail(
            g, "it has an argument of a kind that is not supported:", key ? key : "none");
    a->kind = graph_kinds[i].kind;
    return graph_fill(g, what, a);
}

/* Append the name of one output, which is a string under `key`; null: the output is None. */
static int graph_out_name(const struct graph_read *g, json_t *names, json_t *of, const char *key)
{
    json_t *name = json_object_get(of, key);

    if (!json_is_string(name) || !*json_string_value(name))
        return graph_fail(g, "an output has", "no name");
    json_array_append(names, name);
    return 0;
}

/* Append the names of one entry of a node's outputs. */
static int graph_out_entry(const struct graph_read *g, json_t *names, json_t *entry)
{
    json_t *what, *item, *of;
    const char *kind = pt2_union(entry, &what);
    size_t k;

    if (kind && (!strcmp(kind, "as_tensor") || !strcmp(kind, "as_optional_tensor")) &&
        json_object_get(what, "as_none"))
        kind = "as_none";
    if (kind && !strcmp(kind, "as_none")) {
        json_array_append_new(names, json_null());
        return 0;
    }
    if (kind && !strcmp(kind, "as_sym_int"))
        return graph_out_name(g, names, what, "as_name");
    if (kind && (!strcmp(kind, "as_tensor") || !strcmp(kind, "as_optional_tensor"))) {
        of = json_object_get(what, "as_tensor");
        return graph_out_name(g, names, of ? of : what, "name");
    }
    if (!kind || (strcmp(kind, "as_tensors") != 0 && strcmp(kind, "as_optional_tensors") != 0))
        return graph_fail(
            g, "it has an output of a kind that is not supported:", kind ? kind : "none");
    json_array_foreach(what, k, item)
    {
        of = json_object_get(item, "as_tensor");
        if (json_object_get(item, "as_none"))
            json_array_append_new(names, json_null());
        else if (graph_out_name(g, names, of ? of : item, "name") < 0)
            return g->p->err->code;
    }
    return 0;
}

/* The names of a node's outputs, an array of strings and nulls: lists of tensors are spread.  A new
 * reference; NULL: the error is set. */
static json_t *graph_out_names(const struct graph_read *g)
{
    json_t *names = json_array(), *entry;
    size_t i;

    json_array_foreach(json_object_get(g->json, "outputs"), i, entry)
    {
        if (graph_out_entry(g, names, entry) < 0) {
            json_decref(names);
            return NULL;
        }
    }
    return names;
}

static int graph_outputs(const struct graph_read *g)
{
    json_t *names = graph_out_names(g);
    int *out;

    if (!names)
        return g->p->err->code;
    g->node->n_out = (int)json_array_size(names);
    g->node->out = out = arena_alloc(&g->p->net->arena, sizeof *out * ((size_t)g->node->n_out + 1));
    for (int i = 0; i < g->node->n_out; i++) {
        const char *name = json_string_value(json_array_get(names, (size_t)i));

        out[i] = name ? pt2_value_add(g->p, g->scope, name) : IMPORT_NO_VALUE;
        if (name && out[i] < 0) {
            json_decref(names);
            return out[i];
        }
    }
    json_decref(names);
    return 0;
}

/* "L__self__,,Net;L__self__layer1,layer1,Sequential": the second field of the last one. */
static const char *graph_module(struct pt2 *p, json_t *node)
{
    const char *stack = json_string_value(
                   json_object_get(json_object_get(node, "metadata"), "nn_module_stack")),
               *last = stack ? strrchr(stack, ';') : NULL;
    int depth = 0;
    size_t len;
    char *out;

    last = last ? last + 1 : stack;
    for (; last && *last && (*last != ',' || depth > 0); last++)
        depth += *last == '(' || *last == '[' ? 1 : *last == ')' || *last == ']' ? -1 : 0;
    if (!last || *last != ',')
        return "";
    len = strcspn(++last, ",");
    out = arena_alloc(&p->net->arena, len + 1);
    memcpy(out, last, len);
    return out;
}

/* aten is not named; other namespaces are. */
static const char *graph_target(struct pt2 *p, json_t *node)
{
    const char *t = pt2_text(p, json_object_get(node, "target"));

    if (!strncmp(t, "torch.ops.aten.", 15))
        return pt2_synonym(&p->net->arena, t + 15);
    return strncmp(t, "torch.ops.", 10) ? t : t + 10;
}

static const char *graph_name(struct pt2 *p, json_t *node, const char *target)
{
    const char *name = pt2_text(p, json_object_get(node, "name"));
    json_t *what = NULL;

    if (!name[0]) {
        pt2_union(json_array_get(json_object_get(node, "outputs"), 0), &what);
        name = pt2_text(p, json_object_get(what, "name"));
    }
    return name[0] ? name : target;
}

/* Give the outputs of a no_grad block's node the values that its graph returns. */
static int graph_return(const struct graph_read *g, struct pt2_scope *inner)
{
    json_t *outer = graph_out_names(g), *list = json_object_get(inner->graph, "outputs"), *what;
    int rc = outer ? 0 : g->p->err->code;

    if (outer && json_array_size(outer) != json_array_size(list))
        rc = graph_fail(g, "its graph has another number of outputs than", "the node");
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(outer, i)),
                   *kind = pt2_union(json_array_get(list, i), &what);
        json_t *from =
            json_object_get(what, kind && !strcmp(kind, "as_sym_int") ? "as_name" : "name");
        int v;

        if (!name)
            continue;
        v = pt2_value_find(g->p, inner, from);
        rc = v < 0 ? v : 0;
        if (rc == 0 && json_object_get(g->scope->names, name))
            rc = pt2_damaged(g->p, "value %s is made twice", name);
        if (rc == 0)
            json_object_set_new(g->scope->names, name, json_integer(v));
    }
    json_decref(outer);
    return rc;
}

static int graph_enter(const struct graph_read *g, struct pt2_scope *inner, json_t *args)
{
    json_t *inputs = json_object_get(inner->graph, "inputs"), *what;

    if (json_array_size(inputs) + 2 != json_array_size(args))
        return graph_fail(g, "its graph has another number of inputs than", "the node");
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        json_t *arg = json_object_get(json_array_get(args, i + 2), "arg"), *from;
        const char *kind = pt2_union(arg, &from), *name;
        const int is_int = kind && !strcmp(kind, "as_sym_int");
        int v;

        if (!kind || (!is_int && strcmp(kind, "as_tensor") != 0))
            return graph_fail(g, "an input of its graph is of a kind that is not supported:",
                              kind ? kind : "none");
        v = pt2_value_find(g->p, g->scope, json_object_get(from, is_int ? "as_name" : "name"));
        pt2_union(json_array_get(inputs, i), &what);
        name = json_string_value(json_object_get(what, is_int ? "as_name" : "name"));
        if (v < 0)
            return v;
        if (!name)
            return graph_fail(g, "an input of its graph has", "no name");
        json_object_set_new(inner->names, name, json_integer(v));
    }
    return 0;
}

/* Append the nodes of a no_grad block. */
static int graph_block(const struct graph_read *g)
{
    json_t *args = json_object_get(g->json, "inputs"), *flag, *graph;
    struct pt2_scope inner = {.depth = g->scope->depth + 1};
    int rc;

    flag = json_object_get(json_object_get(json_array_get(args, 0), "arg"), "as_bool");
    graph = json_object_get(json_object_get(json_array_get(args, 1), "arg"), "as_graph");
    inner.graph = json_object_get(graph, "graph");
    if (!json_is_boolean(flag) || !json_is_object(inner.graph))
        return graph_fail(g, "it has", "no flag and graph");
    if (inner.depth > PT2_MAX_NESTED)
        return graph_fail(g, "graphs are nested too deep", "");
    inner.no_gradient = !json_is_true(flag);
    inner.names = json_object();
    rc = graph_enter(g, &inner, args);
    if (rc == 0)
        rc = pt2_nodes(g->p, &inner);
    if (rc == 0)
        rc = graph_return(g, &inner);
    json_decref(inner.names);
    return rc;
}

static int pt2_graph_node(struct pt2 *p, struct pt2_scope *s, json_t *json)
{
    struct import_network *n = p->net;
    struct import_node node = {.target = graph_target(p, json), .no_gradient = s->no_gradient};
    struct graph_read g = {p, s, json, &node};
    json_t *args = json_object_get(json, "inputs");
    struct import_arg *arg;

    node.module = graph_module(p, json);
    node.name = graph_name(p, json, node.target);
    if (!strcmp(node.target, "higher_order.wrap_with_set_grad_enabled"))
        return graph_block(&g);
    node.n_args = (int)json_array_size(args);
    node.arg = arg = arena_alloc(&n->arena, sizeof *arg * ((size_t)node.n_args + 1));
    for (int i = 0; i < node.n_args; i++)
        if (graph_arg(&g, json_array_get(args, (size_t)i), &arg[i]) < 0)
            return p->err->code;
    if (graph_outputs(&g) < 0)
        return p->err->code;
    if (pt2_grow(p, (void **)&n->node, sizeof *n->node, n->n_nodes, &p->room_nodes,
                 IMPORT_MAX_NODES, "nodes") < 0)
        return p->err->code;
    n->node[n->n_nodes++] = node;
    return 0;
}

int pt2_nodes(struct pt2 *p, struct pt2_scope *s)
{
    json_t *nodes = json_object_get(s->graph, "nodes"), *one;
    size_t i;

    if (!json_is_array(nodes))
        return pt2_damaged(p, "a graph has no list of nodes");
    json_array_foreach(nodes, i, one) if (pt2_graph_node(p, s, one) < 0) return p->err->code;
    return 0;
}

int pt2_copy_to(struct pt2 *p, int to, int from)
{
    struct import_network *n = p->net;
    struct import_arg *arg = arena_alloc(&n->arena, 2 * sizeof *arg);
    int *value = arena_alloc(&n->arena, 3 * sizeof *value);

    if (pt2_grow(p, (void **)&n->value, sizeof *n->value, n->n_values, &p->room_values,
                 IMPORT_MAX_VALUES, "values") < 0 ||
        pt2_grow(p, (void **)&n->node, sizeof *n->node, n->n_nodes, &p->room_nodes,
                 IMPORT_MAX_NODES, "nodes") < 0)
        return p->err->code;
    value[0] = to;
    value[1] = from;
    value[2] = n->n_values;
    n->value[n->n_values] = n->value[to];
    n->value[n->n_values].tensor = -1;
    n->value[n->n_values].name = arena_printf(&n->arena, "copy_%d", n->n_values);
    arg[0] = (struct import_arg){.name = "self", .kind = IMPORT_VALUE, .n = 1, .values = value};
    arg[1] = (struct import_arg){.name = "src", .kind = IMPORT_VALUE, .n = 1, .values = value + 1};
    n->node[n->n_nodes++] = (struct import_node){.target = "copy_.default",
                                                 .module = "",
                                                 .name = n->value[n->n_values].name,
                                                 .n_args = 2,
                                                 .n_out = 1,
                                                 .arg = arg,
                                                 .out = value + 2};
    n->n_values++;
    return 0;
}
