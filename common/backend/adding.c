/* adding - runs a kernel into the scratch and adds its outputs to where they belong.
 *
 * The scratch:  one piece for each output to which is added | the scratch of the kernels */
#include "backend/adding.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

struct adding {
    struct kernel k;
    struct kernel *inner;             /* overwrites all outputs */
    struct kernel *sum[NODE_MAX_OUT]; /* out[i] += piece i; NULL: out[i] is overwritten */
    size_t at[NODE_MAX_OUT];          /* of the pieces in the scratch */
    size_t inner_at;                  /* of the kernels' scratch there */
};

static int adding_bind(struct kernel *k, void *const *in, void *const *out, void *scratch,
                       struct err *err)
{
    struct adding *a = container_of(k, struct adding, k);
    void *own = (char *)scratch + a->inner_at, *to[NODE_MAX_OUT];
    int rc = 0;

    memcpy(to, out, sizeof to);
    for (int i = 0; i < NODE_MAX_OUT && rc == 0; i++) {
        void *term[NODE_MAX_IN] = {0}, *result[NODE_MAX_OUT] = {0};

        if (!a->sum[i])
            continue;
        to[i] = (char *)scratch + a->at[i];
        term[ADD_A] = result[ADD_Y] = out[i];
        term[ADD_B] = to[i];
        rc = a->sum[i]->ops->bind(a->sum[i], term, result, own, err);
    }
    return rc == 0 ? a->inner->ops->bind(a->inner, in, to, own, err) : rc;
}

static int adding_run(struct kernel *k, struct err *err)
{
    const struct adding *a = container_of(k, struct adding, k);
    int rc = a->inner->ops->run(a->inner, err);

    for (int i = 0; i < NODE_MAX_OUT && rc == 0; i++)
        if (a->sum[i])
            rc = a->sum[i]->ops->run(a->sum[i], err);
    return rc;
}

static void adding_free(struct kernel *k)
{
    struct adding *a = container_of(k, struct adding, k);

    if (a->inner)
        a->inner->ops->free(a->inner);
    for (int i = 0; i < NODE_MAX_OUT; i++)
        if (a->sum[i])
            a->sum[i]->ops->free(a->sum[i]);
    free(a);
}

static const struct kernel_ops adding_ops = {
    .bind = adding_bind,
    .run = adding_run,
    .free = adding_free,
};

static size_t piece_of(const struct value *v)
{
    const size_t n_bytes = (size_t)shape_elements(&v->shape) * dtype_size(v->dtype);

    return (size_t)round_up_i64((int64_t)n_bytes, BACKEND_SCRATCH_ALIGN);
}

/* Make the kernel of v += its piece: as a node, v + v -> v, which is bound to three addresses. */
static int make_sum(struct backend *b, const struct graph *g, int v, struct kernel **out,
                    struct err *err)
{
    const struct op_def *def = op_get(OP_add);
    struct node n = {
        .op = OP_add, .name = g->value[v].name, .n_in = def->n_in, .n_out = def->n_out};

    for (int i = 0; i < NODE_MAX_IN; i++)
        n.in[i] = i < n.n_in ? v : NO_VALUE;
    for (int i = 0; i < NODE_MAX_OUT; i++)
        n.out[i] = i < n.n_out ? v : NO_VALUE;
    return backend_make_kernel(b, g, &n, out, err);
}

int adding_new(struct backend *b, const struct graph *g, const struct node *n, struct kernel **out,
               struct err *err)
{
    struct node plain = *n;
    struct adding *a;
    size_t most;
    void *mem;
    int rc = try_alloc(&mem, sizeof *a, "a kernel", err);

    if (rc < 0)
        return rc;
    a = mem;
    a->k.ops = &adding_ops;
    plain.adds = 0;
    rc = backend_make_kernel(b, g, &plain, &a->inner, err);
    most = rc == 0 ? a->inner->scratch_bytes : 0;
    for (int i = 0; i < n->n_out && rc == 0; i++) {
        if (!(n->adds >> i & 1) || n->out[i] == NO_VALUE)
            continue;
        a->at[i] = a->inner_at;
        a->inner_at += piece_of(&g->value[n->out[i]]);
        rc = make_sum(b, g, n->out[i], &a->sum[i], err);
        if (rc == 0 && a->sum[i]->scratch_bytes > most)
            most = a->sum[i]->scratch_bytes;
    }
    if (rc < 0) {
        adding_free(&a->k);
        return rc;
    }
    a->k.scratch_bytes = a->inner_at + most;
    *out = &a->k;
    return 0;
}
