/* own - a kernel of our own: it gets its shapes and types when it is made, its addresses when it is
 * bound, and each run launches it.  The counterpart for the CPU is cpu/plain.c. */
#include "backend/cuda/own.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

static int own_bind(struct kernel *k, void *const *in, void *const *out, void *scratch,
                    struct err *err)
{
    struct own *p = container_of(k, struct own, k);

    (void)err;
    for (int i = 0; i < NODE_MAX_IN; i++)
        p->in[i] = p->in_shape[i].n < 0 ? NULL : in[i];
    for (int i = 0; i < NODE_MAX_OUT; i++)
        p->out[i] = p->out_shape[i].n < 0 ? NULL : out[i];
    p->scratch = scratch;
    return 0;
}

static int own_run(struct kernel *k, struct err *err)
{
    struct own *p = container_of(k, struct own, k);

    p->run(p);
    return cuda_check((int)cudaGetLastError(), "launch a kernel", err);
}

static void own_free(struct kernel *k)
{
    struct own *p = container_of(k, struct own, k);

    if (p->table)
        backend_free(&p->cuda->base, p->table);
    free(p);
}

static const struct kernel_ops own_ops = {
    .bind = own_bind,
    .run = own_run,
    .free = own_free,
};

static void cuda_own_describe(struct own *p, const struct graph *g, const struct node *n)
{
    static const struct shape absent = {.n = -1};

    for (int i = 0; i < NODE_MAX_IN; i++)
        p->in_shape[i] = cuda_has_in(n, i) ? *cuda_in(g, n, i) : absent;
    for (int i = 0; i < NODE_MAX_IN; i++)
        if (cuda_has_in(n, i))
            p->in_type[i] = g->value[n->in[i]].dtype;
    for (int i = 0; i < NODE_MAX_OUT; i++) {
        p->out_shape[i] = cuda_has_out(n, i) ? *cuda_out(g, n, i) : absent;
        if (cuda_has_out(n, i)) {
            p->out_type[i] = g->value[n->out[i]].dtype;
            p->out_bytes[i] =
                (size_t)shape_elements(cuda_out(g, n, i)) * dtype_size(p->out_type[i]);
        }
    }
    p->rows = 1;
    p->c = 1;
    for (int i = 0; i < p->in_shape[0].n; i++) {
        p->rows *= p->c;
        p->c = p->in_shape[0].dim[i];
    }
    p->n = p->rows * p->c;
}

int own_new(struct cuda *b, const struct graph *g, const struct node *n,
            void (*run)(const struct own *p), size_t scratch_bytes, struct kernel **out,
            struct err *err)
{
    struct own *p;
    void *mem;
    int rc = try_alloc(&mem, sizeof *p, "a kernel", err);

    if (rc < 0)
        return rc;
    p = mem;
    p->k.ops = &own_ops;
    p->k.scratch_bytes = scratch_bytes;
    p->cuda = b;
    p->run = run;
    p->adds = n->adds;
    p->attr = n->attr;
    cuda_own_describe(p, g, n);
    *out = &p->k;
    return 0;
}

int own_new_table(struct cuda *b, const struct graph *g, const struct node *n,
                  void (*run)(const struct own *p), size_t scratch_bytes, const void *table,
                  size_t table_bytes, struct kernel **out, struct err *err)
{
    struct kernel *k;
    struct own *p;
    int rc = own_new(b, g, n, run, scratch_bytes, &k, err);

    if (rc < 0)
        return rc;
    p = container_of(k, struct own, k);
    if (table &&
        ((rc = backend_alloc(&b->base, table_bytes, "a kernel's table", &p->table, err)) < 0 ||
         (rc = backend_copy_in(&b->base, p->table, table, table_bytes, err)) < 0)) {
        own_free(k);
        return rc;
    }
    *out = k;
    return 0;
}

static void run_zero(const struct own *p)
{
    for (int i = 0; i < NODE_MAX_OUT; i++)
        if (p->out_bytes[i] && p->out[i] && !(p->adds >> i & 1))
            (void)cudaMemsetAsync(p->out[i], 0, p->out_bytes[i], p->cuda->stream);
}

int own_new_zero(struct cuda *b, const struct graph *g, const struct node *n, struct kernel **out,
                 struct err *err)
{
    return own_new(b, g, n, run_zero, 0, out, err);
}
