/* sketch - builds small programs over memory that exists already.
 *
 * A placed value is an input of the graph whose address is not in the arena. */
#include "program/sketch.h"

#include "base/util.h"

struct sketch sketch_begin(struct err *err)
{
    return (struct sketch){.g = graph_new(1, 1), .err = err};
}

int sketch_place(struct sketch *s, enum dtype dtype, struct shape shape, void *address,
                 const char *name)
{
    ASSERT(s->n < SKETCH_MAX_PLACES);
    s->place[s->n].value = graph_value(s->g, VALUE_INPUT, dtype, shape, name);
    s->place[s->n].address = address;
    return s->place[s->n++].value;
}

void sketch_node(struct sketch *s, enum op op, const union node_attr *attr, const int *in, int n_in,
                 int *out, const char *name)
{
    if (s->rc == 0)
        s->rc = graph_node(s->g, op, attr, in, n_in, out, name, s->err);
}

static int node_to(struct sketch *s, enum op op, const union node_attr *attr, const int *in,
                   int n_in, int out, const char *name)
{
    int to[NODE_MAX_OUT] = {out};

    sketch_node(s, op, attr, in, n_in, to, name);
    return s->rc == 0 ? to[0] : NO_VALUE;
}

int sketch_elementwise(struct sketch *s, enum elementwise kind, int a, int b, int out)
{
    const union node_attr attr = {.elementwise = {.kind = kind}};

    return node_to(s, OP_elementwise, &attr, (int[]){a, b, NO_VALUE}, 3, out, "elementwise");
}

int sketch_scale(struct sketch *s, int a, double factor, int out)
{
    const union node_attr attr = {.elementwise = {.kind = EW_AFFINE, .p = (float)factor}};

    return node_to(s, OP_elementwise, &attr, (int[]){a, NO_VALUE, NO_VALUE}, 3, out, "scale");
}

int sketch_bind(struct program *const *p, int n, struct backend *b, void **arena, struct err *err)
{
    const struct program_spaces none = {0};
    size_t n_bytes = 0;
    int rc = 0;

    for (int i = 0; i < n; i++)
        if (p[i] && program_arena_bytes(p[i]) > n_bytes)
            n_bytes = program_arena_bytes(p[i]);
    if (n_bytes)
        rc = backend_alloc(b, n_bytes, "scratch of small programs", arena, err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = p[i] ? program_bind(p[i], &none, *arena, err) : 0;
    return rc;
}

int sketch_end(struct sketch *s, struct backend *b, const struct layout *layout,
               struct program **out)
{
    if (s->rc < 0)
        graph_free(s->g);
    else
        s->rc = program_new(b, s->g, layout, out, s->err);
    for (int i = 0; i < s->n && s->rc == 0; i++)
        program_place(*out, s->place[i].value, s->place[i].address);
    s->g = NULL;
    return s->rc;
}

int sketch_cast(struct backend *b, int64_t n, const float *from, void *to, enum dtype type,
                struct program **out, struct err *err)
{
    const union node_attr attr = {.cast.to = type};
    struct sketch s;
    int wide, narrow;

    if (n == 0)
        return 0;
    s = sketch_begin(err);
    wide = sketch_place(&s, DTYPE_F32, SHAPE(n), (void *)from, "wide");
    narrow = sketch_place(&s, type, SHAPE(n), to, "narrow");
    sketch_node(&s, OP_cast, &attr, &wide, 1, &narrow, "round");
    return sketch_end(&s, b, NULL, out);
}

int sketch_run(struct program *p, struct err *err)
{
    int rc = 0;

    for (int i = 0; p && i < program_n_stages(p) && rc == 0; i++)
        rc = program_run_stage(p, i, err);
    return rc;
}
