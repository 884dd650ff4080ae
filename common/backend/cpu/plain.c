#include "backend/cpu/plain.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

static int plain_bind(struct kernel *k, void *const *in, void *const *out, void *scratch,
                      struct err *err)
{
    struct plain *p = container_of(k, struct plain, k);

    (void)err;
    for (int i = 0; i < NODE_MAX_IN; i++)
        p->in[i] = p->in_shape[i].n < 0 ? NULL : in[i];
    for (int i = 0; i < NODE_MAX_OUT; i++)
        p->out[i] = p->out_shape[i].n < 0 ? NULL : out[i];
    p->scratch = scratch;
    return 0;
}

static int plain_run(struct kernel *k, struct err *err)
{
    struct plain *p = container_of(k, struct plain, k);

    (void)err;
    p->run(p);
    return 0;
}

static void plain_free(struct kernel *k) { free(container_of(k, struct plain, k)); }

static const struct kernel_ops plain_ops = {
    .bind = plain_bind,
    .run = plain_run,
    .free = plain_free,
};

int plain_new(const struct graph *g, const struct node *n, void (*run)(const struct plain *p),
              size_t scratch_bytes, struct kernel **out, struct err *err)
{
    static const struct shape absent = {.n = -1};
    struct plain *p;
    void *mem;
    int rc = try_alloc(&mem, sizeof *p, "a kernel", err);

    if (rc < 0)
        return rc;
    p = mem;
    p->k.ops = &plain_ops;
    p->k.scratch_bytes = scratch_bytes;
    p->run = run;
    p->attr = n->attr;
    for (int i = 0; i < NODE_MAX_IN; i++)
        p->in_shape[i] = cpu_has_in(n, i) ? *cpu_in(g, n, i) : absent;
    for (int i = 0; i < NODE_MAX_IN; i++)
        if (cpu_has_in(n, i))
            p->in_type[i] = g->value[n->in[i]].dtype;
    for (int i = 0; i < NODE_MAX_OUT; i++)
        p->out_shape[i] = cpu_has_out(n, i) ? *cpu_out(g, n, i) : absent;
    for (int i = 0; i < NODE_MAX_OUT; i++)
        if (cpu_has_out(n, i))
            p->out_bytes[i] =
                (size_t)shape_elements(cpu_out(g, n, i)) * dtype_size(g->value[n->out[i]].dtype);
    p->rows = 1;
    p->c = 1;
    for (int i = 0; i < p->in_shape[0].n; i++) {
        p->rows *= p->c;
        p->c = p->in_shape[0].dim[i];
    }
    *out = &p->k;
    return 0;
}

void plain_zero(const struct plain *p)
{
    for (int i = 0; i < NODE_MAX_OUT; i++)
        if (p->out_bytes[i] && p->out[i])
            memset(p->out[i], 0, p->out_bytes[i]);
}
