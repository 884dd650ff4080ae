/* graph - the arrays of values and nodes, which grow by doubling.  The gradient and the copy of a
 * parameter, and the shadow of a state, are found by their partner. */
#include "ir/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

const char *const activation_names[] = {ACTIVATION_LIST(WORD_NAME) NULL};

/* Make room for one more element; returns the array, which may have moved. */
static void *grow(void *array, int n, int *cap, size_t size)
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
    g->logits = NO_VALUE;
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
    free(g);
}

int graph_value(struct graph *g, enum value_role role, enum dtype dtype, struct shape shape,
                const char *name)
{
    g->value = grow(g->value, g->n_values, &g->cap_values, sizeof *g->value);
    g->value[g->n_values] = (struct value){
        .name = arena_strdup(&g->arena, name),
        .role = role,
        .dtype = dtype,
        .shape = shape,
        .producer = -1,
        .partner = NO_VALUE,
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

int graph_param(struct graph *g, struct shape shape, struct param_info info, const char *name)
{
    int id;

    ASSERT(!graph_find(g, name));
    id = graph_value(g, VALUE_PARAM, DTYPE_F32, shape, name);
    g->value[id].info = arena_copy(&g->arena, &info, sizeof info);
    return id;
}

int graph_state(struct graph *g, struct shape shape, float init, const char *name)
{
    int id;

    ASSERT(!graph_find(g, name));
    id = graph_value(g, VALUE_STATE, DTYPE_F32, shape, name);
    g->value[id].init_state = init;
    return id;
}

/* The value of this role whose partner is `id`; made if the graph has none. */
static int partner_of(struct graph *g, int id, enum value_role role, const char *suffix)
{
    const struct value v = g->value[id];
    int made;

    for (int i = 0; i < g->n_values; i++)
        if (g->value[i].role == role && g->value[i].partner == id)
            return i;
    made = graph_value(g, role, v.dtype, v.shape, arena_printf(&g->arena, "%s.%s", v.name, suffix));
    g->value[made].partner = id;
    return made;
}

int graph_grad_of(struct graph *g, int param)
{
    ASSERT(g->value[param].role == VALUE_PARAM);
    return partner_of(g, param, VALUE_GRAD, "grad");
}

int graph_copy_of(struct graph *g, int param, enum dtype dtype)
{
    int id;

    ASSERT(g->value[param].role == VALUE_PARAM);
    id = partner_of(g, param, VALUE_COPY, "copy");
    g->value[id].dtype = dtype;
    return id;
}

int graph_scaler(struct graph *g)
{
    enum { LEN = 4 }; /* SCALER_LEN of op/scaler.h; the operators that read it check the shape */

    for (int i = 0; i < g->n_values; i++)
        if (g->value[i].role == VALUE_SCALER)
            return i;
    return graph_value(g, VALUE_SCALER, DTYPE_F32, SHAPE(LEN), "loss_scaler");
}

int graph_shadow_of(struct graph *g, int state)
{
    ASSERT(g->value[state].role == VALUE_STATE);
    return partner_of(g, state, VALUE_SHADOW, "next");
}

int graph_append(struct graph *g, const struct node *n)
{
    g->node = grow(g->node, g->n_nodes, &g->cap_nodes, sizeof *g->node);
    g->node[g->n_nodes] = *n;
    g->node[g->n_nodes].name = arena_strdup(&g->arena, n->name);
    return g->n_nodes++;
}

const struct value *graph_find(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->n_values; i++)
        if (!strcmp(g->value[i].name, name))
            return &g->value[i];
    return NULL;
}
