/* What a library computes on a GPU (cuDNN, cuBLASLt) has no source for the simulator: here the
 * reference does it, in the stream's order as the library would. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/alloc.h"
#include "base/util.h"
#include "host_work.h"
#include "library_ops.h"
#include "ref_backend.h"

struct library_kernel {
    struct kernel k;
    struct cuda *cuda;
    const struct graph *g;
    struct node n;
    void *in[NODE_MAX_IN], *out[NODE_MAX_OUT];
};

static int bind(struct kernel *base, void *const *in, void *const *out, void *scratch,
                struct err *err)
{
    struct library_kernel *k = container_of(base, struct library_kernel, k);

    (void)scratch, (void)err;
    memcpy(k->in, in, (size_t)k->n.n_in * sizeof *in);
    memcpy(k->out, out, (size_t)k->n.n_out * sizeof *out);
    return 0;
}

static void work(void *arg)
{
    struct library_kernel *k = arg;

    ref_run_node(k->g, &k->n, k->in, k->out);
}

static int run(struct kernel *base, struct err *err)
{
    struct library_kernel *k = container_of(base, struct library_kernel, k);

    (void)err;
    sim_host_work(k->cuda->stream, work, k);
    return 0;
}

static void release(struct kernel *base) { free(container_of(base, struct library_kernel, k)); }

static const struct kernel_ops library_ops = {bind, run, release};

static int make(struct cuda *b, const struct graph *g, const struct node *n, struct kernel **out,
                struct err *err)
{
    struct library_kernel *k;
    void *mem;
    int rc = try_alloc(&mem, sizeof *k, "a kernel", err);

    if (rc < 0)
        return rc;
    k = mem;
    *k = (struct library_kernel){.k.ops = &library_ops, .cuda = b, .g = g, .n = *n};
    *out = &k->k;
    return 0;
}

#define LIBRARY_OP(name)                                                              \
    int cuda_make_##name(struct cuda *b, const struct graph *g, const struct node *n, \
                         struct kernel **out, struct err *err)                        \
    {                                                                                 \
        return make(b, g, n, out, err);                                               \
    }

LIBRARY_OP(conv2d)
LIBRARY_OP(conv2d_grad_x)
LIBRARY_OP(conv2d_grad_w)
LIBRARY_OP(linear)
LIBRARY_OP(linear_grad_x)
LIBRARY_OP(linear_grad_w)

int is_library_op(int op)
{
    static const int ops[] = {OP_conv2d, OP_conv2d_grad_x, OP_conv2d_grad_w,
                              OP_linear, OP_linear_grad_x, OP_linear_grad_w};

    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (op == ops[i])
            return 1;
    return 0;
}
