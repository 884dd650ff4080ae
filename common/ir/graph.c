/* graph - the arrays of values and nodes, which grow by doubling, and a hash table of the names of
 * parameters and states. */
#include "ir/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

const char *const activation_names[] = {ACTIVATION_LIST(WORD_NAME) NULL};

/* Make room for one more element; returns the array, which may have moved. */
static void *graph_grow(void *array, int n, int *cap, size_t size)
{
    if (n < *cap)
        return array;
    *cap = *cap ? 2 * *cap : 32;
    return xrealloc(array, (size_t)*cap * size);
}

struct graph *graph_new(int64_t batch, int training)
{
    struct graph *g = xcalloc(1, sizeof *g);

    arena_init(&g->arena);
    g->batch = batch;
    g->training = training;
    g->logits = g->scaler = NO_VALUE;
    g->scalars =
        graph_value(g, VALUE_SCALARS, DTYPE_U8, SHAPE(sizeof(struct step_scalars)), "scalars");
    g->metrics = graph_value(g, VALUE_METRICS, DTYPE_F64, SHAPE(METRIC_COUNT), "metrics");
    return g;
}

void graph_free(struct graph *g)
{
    if (!g)
        return;
    arena_fini(&g->arena);
    free(g->value);
    free(g->node);
    free(g->named);
    free(g);
}

int graph_value(struct graph *g, enum value_role role, enum dtype dtype, struct shape shape,
                const char *name)
{
    g->value = graph_grow(g->value, g->n_values, &g->cap_values, sizeof *g->value);
    g->value[g->n_values] = (struct value){
        .name = arena_strdup(&g->arena, name),
        .role = role,
        .dtype = dtype,
        .shape = shape,
        .producer = -1,
        .partner = NO_VALUE,
        .grad = NO_VALUE,
        .copy = NO_VALUE,
        .shadow = NO_VALUE,
    };
    return g->n_values++;
}

int graph_input(struct graph *g, enum dtype dtype, struct shape shape, const char *name)
{
    int id = graph_value(g, VALUE_INPUT, dtype, shape, name);

    ASSERT(g->n_inputs < GRAPH_MAX_INPUTS);
    g->input[g->n_inputs++] = id;
    return id;
}

int graph_const(struct graph *g, enum dtype dtype, struct shape shape, const void *content,
                const char *name)
{
    const size_t n_bytes = (size_t)shape_elements(&shape) * dtype_size(dtype);
    const int id = graph_value(g, VALUE_CONST, dtype, shape, name);
    void *copy = arena_alloc(&g->arena, n_bytes + 1);

    if (n_bytes)
        memcpy(copy, content, n_bytes);
    g->value[id].content = copy;
    return id;
}

void graph_output(struct graph *g, int value, const char *name)
{
    ASSERT(value >= 0 && value < g->n_values && g->n_outputs < GRAPH_MAX_OUTPUTS);
    for (int i = 0; i < g->n_outputs; i++)
        ASSERT(strcmp(g->output[i].name, name) != 0);
    g->output[g->n_outputs++] = (struct output){arena_strdup(&g->arena, name), value};
}

int graph_is_output(const struct graph *g, int value)
{
    int is_output = value == g->logits;

    for (int i = 0; i < g->n_outputs; i++)
        is_output |= value == g->output[i].value;
    return is_output;
}

/* The place of `name` in the table: that of the value with this name, or the free one where it
 * belongs.  The table is never full. */
static int *graph_place_of(const struct graph *g, const char *name)
{
    uint32_t at = 2166136261;

    for (const char *c = name; *c; c++) /* FNV-1a */
        at = (at ^ (unsigned char)*c) * 16777619;
    for (;; at++) {
        int *place = &g->named[at % (uint32_t)g->cap_named];

        if (*place == NO_VALUE || !strcmp(g->value[*place].name, name))
            return place;
    }
}

/* Make the table twice as large while it would be more than half full with one more name. */
static void graph_make_room(struct graph *g)
{
    int *old = g->named;
    const int n = g->cap_named;

    if (2 * (g->n_named + 1) <= n)
        return;
    g->cap_named = n ? 2 * n : 64;
    g->named = xcalloc((size_t)g->cap_named, sizeof *g->named);
    for (int i = 0; i < g->cap_named; i++)
        g->named[i] = NO_VALUE;
    for (int i = 0; i < n; i++)
        if (old[i] != NO_VALUE)
            *graph_place_of(g, g->value[old[i]].name) = old[i];
    free(old);
}

/* A parameter or state, whose name no other one has. */
static int named_value(struct graph *g, enum value_role role, struct shape shape, const char *name)
{
    int *place, id;

    graph_make_room(g);
    place = graph_place_of(g, name);
    ASSERT(*place == NO_VALUE);
    id = graph_value(g, role, DTYPE_F32, shape, name);
    *place = id;
    g->n_named++;
    return id;
}

int graph_param(struct graph *g, struct shape shape, struct param_info info, const char *name)
{
    const int id = named_value(g, VALUE_PARAM, shape, name);

    g->value[id].info = arena_copy(&g->arena, &info, sizeof info);
    return id;
}

int graph_state(struct graph *g, struct shape shape, float init, const char *name)
{
    const int id = named_value(g, VALUE_STATE, shape, name);

    g->value[id].init_state = init;
    return id;
}

/* A value with the type and shape of value `id`, "NAME.suffix". */
static int make_partner(struct graph *g, int id, enum value_role role, const char *suffix)
{
    const struct value v = g->value[id];
    const int made =
        graph_value(g, role, v.dtype, v.shape, arena_printf(&g->arena, "%s.%s", v.name, suffix));

    g->value[made].partner = id;
    return made;
}

int graph_grad_of(struct graph *g, int param)
{
    int id = g->value[param].grad;

    ASSERT(g->value[param].role == VALUE_PARAM);
    if (id == NO_VALUE)
        id = make_partner(g, param, VALUE_GRAD, "grad");
    return g->value[param].grad = id;
}

int graph_copy_of(struct graph *g, int param, enum dtype dtype)
{
    int id = g->value[param].copy;

    ASSERT(g->value[param].role == VALUE_PARAM);
    if (id == NO_VALUE)
        id = make_partner(g, param, VALUE_COPY, "copy");
    g->value[id].dtype = dtype;
    return g->value[param].copy = id;
}

int graph_scaler(struct graph *g)
{
    enum { LEN = 4 }; /* SCALER_LEN of op/scaler.h; the operators that read it check the shape */

    if (g->scaler == NO_VALUE)
        g->scaler = graph_value(g, VALUE_SCALER, DTYPE_F32, SHAPE(LEN), "loss_scaler");
    return g->scaler;
}

int graph_shadow_of(struct graph *g, int state)
{
    int id = g->value[state].shadow;

    ASSERT(g->value[state].role == VALUE_STATE);
    if (id == NO_VALUE)
        id = make_partner(g, state, VALUE_SHADOW, "next");
    return g->value[state].shadow = id;
}

int graph_append(struct graph *g, const struct node *n)
{
    g->node = graph_grow(g->node, g->n_nodes, &g->cap_nodes, sizeof *g->node);
    g->node[g->n_nodes] = *n;
    g->node[g->n_nodes].block = g->block;
    g->node[g->n_nodes].name = arena_strdup(&g->arena, n->name);
    return g->n_nodes++;
}

const struct value *graph_find(const struct graph *g, const char *name)
{
    const int id = g->n_named ? *graph_place_of(g, name) : NO_VALUE;

    return id == NO_VALUE ? NULL : &g->value[id];
}
