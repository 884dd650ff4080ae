/* pt2_names - what the inputs and outputs of a network's call are called.
 *
 * The file has the shape of the call as a tree, written as JSON in a string: [1, {type, context,
 * children_spec}].  A leaf has the type null.  A tree of keys names its leaves by them, a list by
 * numbers, and nested names are joined by dots. */
#include <string.h>

#include "import/pt2_impl.h"

enum { NAMES_MAX_DEPTH = 32, NAMES_MAX_BYTES = 512 };

struct names_walk {
    json_t *leaves, *fields; /* fields: type -> {field_names: names}, of named tuples */
};

/* The call's signature. */
static json_t *names_signature(struct pt2 *p)
{
    json_t *graph = json_object_get(p->root, "graph_module"),
           *calls = json_object_get(graph, "module_call_graph");

    return json_object_get(json_array_get(calls, 0), "signature");
}

static json_t *names_tree(json_t *signature, const char *key)
{
    const char *text = json_string_value(json_object_get(signature, key));
    json_t *both = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL,
           *tree = json_incref(json_array_get(both, 1));

    json_decref(both);
    return json_is_object(tree) ? tree : (json_decref(tree), NULL);
}

/* The names of a node's children, of which there may be other than n; NULL: none.  The context of a
 * dictionary is their names, that of a dataclass [names, fields that are None], and that of a named
 * tuple its type, whose names stand apart.  A new reference. */
static json_t *names_of_context(const struct names_walk *w, const char *context)
{
    json_t *keys = context ? json_loads(context, JSON_DECODE_ANY, NULL) : NULL,
           *first = json_array_get(keys, 0), *inner = NULL;

    if (context && !keys)
        return json_incref(json_object_get(json_object_get(w->fields, context), "field_names"));
    if (json_is_array(first))
        inner = json_incref(first);
    if (inner || !json_is_array(keys)) {
        json_decref(keys);
        return inner;
    }
    return keys;
}

/* The names of a node's n children; NULL: they have numbers.  A new reference. */
static json_t *names_keys(const struct names_walk *w, json_t *tree, size_t n)
{
    json_t *keys = names_of_context(w, json_string_value(json_object_get(tree, "context")));

    for (size_t i = 0; i < json_array_size(keys); i++)
        if (!json_is_string(json_array_get(keys, i)))
            n = SIZE_MAX;
    if (json_array_size(keys) == n)
        return keys;
    json_decref(keys);
    return NULL;
}

static void names_walk(const struct names_walk *w, json_t *tree, const char *name, json_t *given,
                       int depth)
{
    json_t *children = json_object_get(tree, "children_spec");
    const size_t n = json_array_size(children);
    json_t *keys;

    if (depth > NAMES_MAX_DEPTH)
        return;
    if (json_is_null(json_object_get(tree, "type"))) {
        json_array_append_new(w->leaves, json_string(name));
        return;
    }
    keys = given ? json_incref(given) : names_keys(w, tree, n);
    for (size_t i = 0; i < n; i++) {
        const char *key = json_string_value(json_array_get(keys, i));
        char number[24];
        json_t *whole;

        snprintf(number, sizeof number, "%zu", i);
        whole = json_sprintf("%s%s%s", name, name[0] ? "." : "", key ? key : number);
        if (whole && json_string_length(whole) <= NAMES_MAX_BYTES)
            names_walk(w, json_array_get(children, i), json_string_value(whole), NULL, depth + 1);
        json_decref(whole);
    }
    json_decref(keys);
}

static struct names_walk names_begin(struct pt2 *p)
{
    json_t *graph = json_object_get(p->root, "graph_module");

    return (struct names_walk){json_array(), json_object_get(graph, "treespec_namedtuple_fields")};
}

json_t *pt2_output_names(struct pt2 *p)
{
    const struct names_walk w = names_begin(p);
    json_t *tree = names_tree(names_signature(p), "out_spec");

    if (tree)
        names_walk(&w, tree, "", NULL, 0);
    json_decref(tree);
    return w.leaves;
}

/* The tree of a call is (places, names): those given by place are called as in forward(). */
json_t *pt2_input_names(struct pt2 *p)
{
    const struct names_walk w = names_begin(p);
    json_t *signature = names_signature(p), *tree = names_tree(signature, "in_spec"),
           *both = json_object_get(tree, "children_spec"),
           *names = json_object_get(signature, "forward_arg_names");

    if (json_array_size(both) == 2) {
        names_walk(&w, json_array_get(both, 0), "", json_is_array(names) ? names : NULL, 0);
        names_walk(&w, json_array_get(both, 1), "", NULL, 0);
    }
    json_decref(tree);
    return w.leaves;
}
