/* ref_backend - a backend with the naive kernels of ref_kernels.h.  Operands in half precision are
 * widened to float for them, and their results are rounded afterwards. */
#include "ref_backend.h"

#include <stdlib.h>
#include <string.h>

#include "../host_memory.h"
#include "base/alloc.h"
#include "base/util.h"
#include "ref_kernels.h"
#include "tensor/half.h"

enum { SCRATCH = 256 }; /* every kernel asks for it and overwrites it in every run */

struct ref_kernel {
    struct kernel base;
    struct ref_node node;
    void *scratch;
};

struct ref_backend {
    struct backend base;
    unsigned fusions;
};

static void (*const table[OP_COUNT])(const struct ref_node *n) = {
#define X(name) [OP_##name] = ref_##name,
    OP_LIST(X)
#undef X
};

static void describe(const struct graph *g, const struct node *n, struct ref_node *to)
{
    *to = (struct ref_node){.op = n->op, .attr = n->attr};
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != NO_VALUE) {
            to->in_shape[i] = g->value[n->in[i]].shape;
            to->in_type[i] = g->value[n->in[i]].dtype;
        }
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != NO_VALUE) {
            to->out_shape[i] = g->value[n->out[i]].shape;
            to->out_type[i] = g->value[n->out[i]].dtype;
        }
}

static float *widened(const void *from, enum dtype t, const struct shape *s)
{
    const int64_t n = shape_elements(s);
    float *to = xmalloc((size_t)n * sizeof *to + 1);

    for (int64_t i = 0; i < n; i++)
        to[i] = real_get(from, t, i);
    return to;
}

/* Run the kernel on operands widened to float, and round its outputs.  An output that shares the
 * memory of an input (updated, or in place) also shares the widened copy. */
static void run_any(const struct ref_node *node)
{
    struct ref_node f = *node;

    for (int i = 0; i < NODE_MAX_IN; i++)
        if (node->in[i] && dtype_is_half(node->in_type[i]))
            f.in[i] = widened(node->in[i], node->in_type[i], &node->in_shape[i]);
    for (int i = 0; i < NODE_MAX_OUT; i++)
        for (int k = 0; node->out[i] && dtype_is_half(node->out_type[i]) && k <= NODE_MAX_IN; k++) {
            if (k < NODE_MAX_IN && node->in[k] != node->out[i])
                continue;
            f.out[i] = k < NODE_MAX_IN
                           ? f.in[k]
                           : widened(node->out[i], node->out_type[i], &node->out_shape[i]);
            break;
        }
    table[node->op](&f);
    for (int i = 0; i < NODE_MAX_OUT; i++)
        for (int64_t e = 0; f.out[i] != node->out[i] && e < shape_elements(&node->out_shape[i]);
             e++)
            real_put(node->out[i], node->out_type[i], e, ((const float *)f.out[i])[e]);
    for (int i = 0; i < NODE_MAX_OUT; i++) {
        int is_input = 0;

        for (int k = 0; k < NODE_MAX_IN; k++)
            is_input |= f.in[k] == f.out[i];
        if (f.out[i] != node->out[i] && !is_input)
            free(f.out[i]);
    }
    for (int i = 0; i < NODE_MAX_IN; i++)
        if (f.in[i] != node->in[i])
            free(f.in[i]);
}

void ref_run_node(const struct graph *g, const struct node *n, void *const *in, void *const *out)
{
    struct ref_node node;

    describe(g, n, &node);
    memcpy(node.in, in, (size_t)n->n_in * sizeof *in);
    memcpy(node.out, out, (size_t)n->n_out * sizeof *out);
    run_any(&node);
}

static int kernel_bind(struct kernel *base, void *const *in, void *const *out, void *scratch,
                       struct err *err)
{
    struct ref_kernel *k = container_of(base, struct ref_kernel, base);

    (void)err;
    ASSERT(scratch && (uintptr_t)scratch % BACKEND_SCRATCH_ALIGN == 0);
    memcpy(k->node.in, in, (size_t)op_get(k->node.op)->n_in * sizeof *in);
    memcpy(k->node.out, out, (size_t)op_get(k->node.op)->n_out * sizeof *out);
    k->scratch = scratch;
    return 0;
}

static int kernel_run(struct kernel *base, struct err *err)
{
    struct ref_kernel *k = container_of(base, struct ref_kernel, base);

    (void)err;
    memset(k->scratch, 0xff, SCRATCH);
    run_any(&k->node);
    return 0;
}

static void kernel_free(struct kernel *base) { free(container_of(base, struct ref_kernel, base)); }

static const struct kernel_ops kernel_ops = {kernel_bind, kernel_run, kernel_free};

static int make_kernel(struct backend *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    struct ref_kernel *k = xcalloc(1, sizeof *k);

    (void)b, (void)err;
    ASSERT(!(op_get(n->op)->flags & (OP_ENGINE | OP_ALIAS)));
    k->base.ops = &kernel_ops;
    k->base.scratch_bytes = SCRATCH;
    describe(g, n, &k->node);
    *out = &k->base;
    return 0;
}

static int can_fuse(struct backend *b, const struct graph *g, const struct node *n, enum fusion f,
                    enum activation act)
{
    (void)g, (void)n, (void)act;
    return (container_of(b, struct ref_backend, base)->fusions >> f) & 1;
}

static void close_ref(struct backend *b) { free(container_of(b, struct ref_backend, base)); }

static const struct backend_ops ref_ops = {
    .name = "ref",
    .alloc = host_memory_alloc,
    .free = host_memory_free,
    .copy_in = host_memory_copy,
    .copy_out = host_memory_copy,
    .can_fuse = can_fuse,
    .make_kernel = make_kernel,
    .close = close_ref,
};

int ref_open(unsigned fusions, struct backend **out)
{
    struct ref_backend *r = xcalloc(1, sizeof *r);

    r->fusions = fusions;
    backend_init(&r->base, &ref_ops);
    *out = &r->base;
    return 0;
}
