/* bind - gives every value its address, and hands the addresses to the kernels.
 *
 * The arena:  temporaries | scratch, shared by all kernels | inputs that were not placed elsewhere
 *
 * Constants lie outside of it, in memory of the program's own.
 *
 * No kernel overwrites the inputs, because program_find_nonfinite runs the forward part again. */
#include "base/util.h"
#include "program/impl.h"

static size_t align_up(size_t n) { return (n + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN; }

static int lies_in_arena(const struct program *p, int v)
{
    return p->graph->value[v].role == VALUE_INPUT && !p->place[v].external;
}

static char *scratch_of(const struct program *p, char *arena)
{
    const uintptr_t end = (uintptr_t)arena + p->temp_bytes;

    return arena + p->temp_bytes +
           (BACKEND_SCRATCH_ALIGN - end % BACKEND_SCRATCH_ALIGN) % BACKEND_SCRATCH_ALIGN;
}

/* The result is never 0, so that the arena always has an address. */
size_t program_arena_bytes(const struct program *p)
{
    size_t n = align_up(p->temp_bytes) + BACKEND_SCRATCH_ALIGN + align_up(p->scratch_bytes);

    for (int v = 0; v < p->graph->n_values; v++)
        if (lies_in_arena(p, v))
            n += align_up(value_bytes(&p->graph->value[v]));
    return n;
}

void program_place(struct program *p, int value, void *address)
{
    ASSERT(value >= 0 && value < p->graph->n_values);
    ASSERT(p->graph->value[value].role == VALUE_INPUT && address);
    p->place[value].external = address;
}

static void *space_of(const struct program_spaces *s, enum value_role role)
{
    switch (role) {
    case VALUE_PARAM:
        return s->param;
    case VALUE_COPY:
        return s->copy;
    case VALUE_BASE:
        return s->base;
    case VALUE_SCALER:
        return s->scaler;
    case VALUE_GRAD:
        return s->grad;
    case VALUE_STATE:
        return s->state;
    case VALUE_SHADOW:
        return s->shadow;
    case VALUE_METRICS:
        return s->metrics;
    case VALUE_SCALARS:
        return s->scalars;
    default:
        return NULL;
    }
}

/* The address of a value that has its place in one of the shared spaces, or NULL. */
static void *address_in_space(const struct program *p, const struct program_spaces *s, int v)
{
    const enum value_role role = p->graph->value[v].role;
    const size_t offset = p->place[v].offset;
    char *space = space_of(s, role);

    if (role == VALUE_GRAD && s->bucket) {
        const int64_t element = (int64_t)(offset / dtype_size(p->graph->value[v].dtype));
        const int b = program_bucket_of(p->layout, element);

        return (char *)s->bucket[b] + (offset - p->layout->bucket[b].at);
    }
    if ((role == VALUE_PARAM && s->param_bucket) || (role == VALUE_COPY && s->copy_bucket)) {
        const size_t size = dtype_size(p->graph->value[v].dtype);
        const int64_t element = (int64_t)(offset / size);
        const int b = program_bucket_of(p->layout, element);
        char *bucket = role == VALUE_PARAM ? s->param_bucket[b] : s->copy_bucket[b];

        return bucket + size * (size_t)(element - p->layout->bucket[b].offset);
    }
    return space ? space + offset : NULL;
}

/* Set the addresses of all values: first by their own place, then those that share memory get the
 * address of their root. */
static void find_addresses(struct program *p, const struct program_spaces *s, char *arena)
{
    char *inputs = scratch_of(p, arena) + align_up(p->scratch_bytes);

    for (int v = 0; v < p->graph->n_values; v++) {
        const struct value *value = &p->graph->value[v];
        struct place *place = &p->place[v];

        if (value->role == VALUE_CONST) {
            place->address = (char *)p->constants + place->offset;
        } else if (value->role == VALUE_TEMP) {
            place->address = arena + place->offset;
        } else if (value->role == VALUE_INPUT) {
            place->address = place->external ? place->external : inputs;
            if (!place->external)
                inputs += align_up(value_bytes(value));
        } else {
            place->address = address_in_space(p, s, v);
        }
    }
    for (int v = 0; v < p->graph->n_values; v++)
        p->place[v].address = p->place[p->place[v].root].address;
}

/* The address of v, which node n reads or writes; fails if v has none. */
static int bind_address_for(const struct program *p, const struct node *n, int v, void **out,
                            struct err *err)
{
    *out = v == NO_VALUE ? NULL : p->place[v].address;
    if (v != NO_VALUE && !*out)
        return err_set(err, ERR_ARG, "%s (%s): %s has no place: its space was not given", n->name,
                       op_get(n->op)->name, p->graph->value[v].name);
    return 0;
}

static int bind_step(struct program *p, const struct step *s, void *scratch, struct err *err)
{
    const struct node *n = &p->graph->node[s->node];
    void *in[NODE_MAX_IN] = {0}, *out[NODE_MAX_OUT] = {0};
    int rc = 0;

    for (int i = 0; rc == 0 && i < n->n_in; i++)
        rc = bind_address_for(p, n, n->in[i], &in[i], err);
    for (int i = 0; rc == 0 && i < n->n_out; i++)
        rc = bind_address_for(p, n, n->out[i], &out[i], err);
    if (rc < 0 || !s->kernel)
        return rc;
    rc = s->kernel->ops->bind(s->kernel, in, out, scratch, err);
    return rc < 0 ? err_wrap(err, "%s (%s)", n->name, op_get(n->op)->name) : 0;
}

/* Bring the constants to the backend's memory, one after another. */
static int place_constants(struct program *p, struct err *err)
{
    const struct graph *g = p->graph;
    size_t n_bytes = 0;
    int rc = 0;

    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].role == VALUE_CONST) {
            p->place[v].offset = n_bytes;
            n_bytes += align_up(value_bytes(&g->value[v]));
        }
    if (n_bytes)
        rc = backend_alloc(p->backend, n_bytes, "constants", &p->constants, err);
    for (int v = 0; v < g->n_values && rc == 0; v++)
        if (g->value[v].role == VALUE_CONST)
            rc = backend_copy_in(p->backend, (char *)p->constants + p->place[v].offset,
                                 g->value[v].content, value_bytes(&g->value[v]), err);
    if (rc < 0) {
        backend_free(p->backend, p->constants);
        p->constants = NULL;
    }
    return rc;
}

int program_bind(struct program *p, const struct program_spaces *s, void *arena, struct err *err)
{
    char *scratch = scratch_of(p, arena);
    int rc = 0;

    ASSERT((uintptr_t)arena % PLACE_ALIGN == 0);
    if (!p->constants && (rc = place_constants(p, err)) < 0)
        return rc;
    find_addresses(p, s, arena);
    for (int i = 0; i < p->n_stages; i++)
        if (p->stage[i].kind == STAGE_SYNC)
            p->stage[i].sync = p->place[p->sync_value[i]].address;
    for (int i = 0; rc == 0 && i < p->n_steps; i++)
        rc = bind_step(p, &p->step[i], scratch, err);
    return rc;
}
