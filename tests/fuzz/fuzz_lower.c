/* Fuzz target: the input is a network that a stranger packed (import/pack.h), or the message in
 * one. It is lowered for two batch sizes and in both modes; each is refused, or gives a graph whose
 * nodes pass graph_check_node.
 *
 * Bytes changed at random hardly ever unpack, so the mutator changes the network itself: targets,
 * numbers, types, extents, and which value is read or made. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/lower.h"
#include "import/pack.h"
#include "op/op.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

/* The network of these bytes, or NULL. */
static struct import_network *fuzz_unpack(const uint8_t *data, size_t size)
{
    uLongf len = compressBound((uLong)size);
    struct import_network *n = NULL;
    uint8_t *packed;
    struct err err;

    if (import_unpack(data, size, &n, &err) == 0)
        return n;
    packed = xmalloc(len + 14);
    memcpy(packed, "dpnet1", 6);
    for (int i = 0; i < 8; i++)
        packed[6 + i] = (uint8_t)((uint64_t)size >> 8 * i);
    ASSERT(compress2(packed + 14, &len, data, (uLong)size, 0) == Z_OK);
    if (import_unpack(packed, len + 14, &n, &err) < 0)
        n = NULL;
    free(packed);
    return n;
}

/* The input as the daemons make it: of the network's extents, images with channels last. */
static int fuzz_input(struct graph *g, const struct import_value *v)
{
    static const int last[4] = {0, 2, 3, 1};
    struct shape s = {.n = v->n_dims};

    if (v->n_dims < 1 || v->n_dims > SHAPE_MAX_DIMS)
        return NO_VALUE;
    for (int d = 0; d < v->n_dims; d++)
        s.dim[d] = v->dim[v->n_dims == 4 ? last[d] : d];
    s.dim[0] = g->batch;
    return graph_input(g, v->type >= IMPORT_I64 && v->type <= IMPORT_U8 ? DTYPE_I32 : DTYPE_F32, s,
                       "x");
}

static struct graph *fuzz_lower(const struct import_network *n, int64_t batch, int training)
{
    struct graph *g = graph_new(batch, training);
    struct err err = {0};
    struct net m = {.g = g, .h = NO_VALUE, .err = &err};
    int *input = xcalloc((size_t)n->n_inputs + 1, sizeof *input),
        *output = xcalloc((size_t)n->n_outputs + 1, sizeof *output);
    const struct import_choices c = {.input = input, .dropout = training ? 0.25 : -1};
    int rc = n->n_inputs > GRAPH_MAX_INPUTS;

    for (int i = 0; i < n->n_inputs && rc == 0; i++)
        input[i] = fuzz_input(g, &n->value[n->input[i].value]);
    if (rc == 0)
        rc = import_lower(&m, n, &c, output);
    ASSERT(rc <= 0 || rc == 1);
    for (int k = 0; rc == 0 && k < g->n_nodes; k++)
        ASSERT(graph_check_node(g, &g->node[k], &err) == 0);
    free(input);
    free(output);
    if (rc == 0)
        return g;
    graph_free(g);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct import_network *n = fuzz_unpack(data, size);
    struct graph *a, *b;
    struct err err;

    if (!n)
        return 0;
    a = fuzz_lower(n, 3, 1);
    b = a ? fuzz_lower(n, 5, 1) : NULL;
    if (b)
        import_same_but_batch(a, b, &err);
    graph_free(b);
    graph_free(a);
    graph_free(fuzz_lower(n, 0, 0));
    import_network_free(n);
    return 0;
}

/* ---- the mutator ---- */

struct fuzz_random {
    uint64_t state;
};

static int64_t fuzz_below(struct fuzz_random *r, int64_t n)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return n < 1 ? 0 : (int64_t)((r->state >> 33) % (uint64_t)n);
}

static int64_t fuzz_number(struct fuzz_random *r, int64_t was)
{
    static const int64_t odd[] = {0,
                                  1,
                                  -1,
                                  2,
                                  3,
                                  4,
                                  7,
                                  8,
                                  9,
                                  1 << 20,
                                  INT32_MAX,
                                  -8,
                                  INT64_C(1) << 40,
                                  64,
                                  -2,
                                  1 << 30,
                                  INT64_MAX,
                                  INT64_MIN,
                                  INT64_C(1) << 62};

    switch (fuzz_below(r, 4)) {
    case 0:
        return was + (was < INT64_MAX);
    case 1:
        return was - (was > INT64_MIN);
    default:
        return odd[fuzz_below(r, ARRAY_LEN(odd))];
    }
}

static void fuzz_value(struct fuzz_random *r, struct import_network *n)
{
    struct import_value *v = &n->value[fuzz_below(r, n->n_values)];
    int64_t *dim = &v->dim[fuzz_below(r, IMPORT_MAX_DIMS)];

    switch (fuzz_below(r, 5)) {
    case 0:
        v->type = (enum import_type)fuzz_below(r, IMPORT_TYPE_COUNT);
        break;
    case 1:
        v->n_dims = (int)fuzz_below(r, IMPORT_MAX_DIMS + 1);
        break;
    case 2: /* as another value */
        v->n_dims = n->value[fuzz_below(r, n->n_values)].n_dims;
        memcpy(v->dim, n->value[fuzz_below(r, n->n_values)].dim, sizeof v->dim);
        break;
    default:
        *dim = fuzz_number(r, *dim);
    }
}

static void fuzz_arg(struct fuzz_random *r, struct import_network *n, struct import_arg *a)
{
    static const double odd[] = {0, 1, -1, 0.5, 2, 1e-5, 1e38, 1e308, -1e308, 3e9};
    struct import_int *i = (struct import_int *)(uintptr_t)a->ints;
    double *real = (double *)(uintptr_t)a->reals;
    int *value = (int *)(uintptr_t)a->values;
    const int64_t at = fuzz_below(r, a->n);

    if (fuzz_below(r, 8) == 0 && a->n > 1)
        a->n--;
    else if (fuzz_below(r, 16) == 0)
        *a = (struct import_arg){.name = a->name, .is_keyword = a->is_keyword};
    else if (i && a->n > 0)
        i[at].number = fuzz_number(r, i[at].number);
    else if (real && a->n > 0)
        real[at] = odd[fuzz_below(r, ARRAY_LEN(odd))];
    else if (value && a->n > 0)
        value[at] = (int)fuzz_below(r, n->n_values);
}

static void fuzz_node(struct fuzz_random *r, struct import_network *n)
{
    struct import_node *k = &n->node[fuzz_below(r, n->n_nodes)];
    const struct import_node *other = &n->node[fuzz_below(r, n->n_nodes)];
    struct import_arg *arg = (struct import_arg *)(uintptr_t)k->arg;
    int *out = (int *)(uintptr_t)k->out;

    switch (fuzz_below(r, 8)) {
    case 0:
        k->target = other->target;
        break;
    case 1:
        if (k->n_out > 0)
            out[fuzz_below(r, k->n_out)] =
                fuzz_below(r, 2) ? IMPORT_NO_VALUE : (int)fuzz_below(r, n->n_values);
        break;
    case 2:
        k->arg = other->arg;
        k->n_args = other->n_args;
        break;
    case 3:
        k->n_args -= k->n_args > 0;
        break;
    case 4:
        k->n_out -= k->n_out > 0;
        break;
    default:
        if (k->n_args > 0)
            fuzz_arg(r, n, &arg[fuzz_below(r, k->n_args)]);
    }
}

static void fuzz_tensor(struct fuzz_random *r, struct import_network *n)
{
    struct import_tensor *t = &n->tensor[fuzz_below(r, n->n_tensors)];

    switch (fuzz_below(r, 4)) {
    case 0:
        t->same_as = (int)fuzz_below(r, n->n_tensors + 1) - 1;
        break;
    case 1:
        t->role = (enum import_role)fuzz_below(r, IMPORT_CONSTANT + 1);
        break;
    case 2:
        t->name = n->tensor[fuzz_below(r, n->n_tensors)].name;
        break;
    default:
        if (!t->bytes) /* packing takes as many elements as the extents say */
            t->dim[fuzz_below(r, IMPORT_MAX_DIMS)] = fuzz_number(r, t->dim[0]);
    }
}

/* The bytes stay as they are where the network cannot be packed into `max` bytes. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    struct import_network *n = fuzz_unpack(data, size);
    struct fuzz_random r = {seed + UINT64_C(0x9e3779b97f4a7c15)};
    struct buf out = {0};
    struct err err;

    for (int64_t k = fuzz_below(&r, 3); n && k >= 0; k--)
        switch (fuzz_below(&r, 8)) {
        case 0:
        case 1:
            if (n->n_values > 0)
                fuzz_value(&r, n);
            break;
        case 2:
            if (n->n_tensors > 0)
                fuzz_tensor(&r, n);
            break;
        default:
            if (n->n_nodes > 0)
                fuzz_node(&r, n);
        }
    if (n && import_pack(n, &out, &err) == 0 && out.len <= max) {
        memcpy(data, out.data, out.len);
        size = out.len;
    }
    buf_fini(&out);
    import_network_free(n);
    return size;
}
