/* What a library computes on a GPU (cuDNN, cuBLASLt) has no source for the simulator: here the CPU
 * backend's kernels do it, in the stream's order as the library would. */
#include <stdlib.h>

#include "backend/cuda/cuda.h"
#include "base/alloc.h"
#include "base/util.h"
#include "host_work.h"
#include "library_ops.h"

struct library_kernel {
    struct kernel k;
    struct cuda *cuda;
    struct kernel *inner; /* the CPU's */
};

/* One thread: the CPU's kernels are quick enough, and the same in every process. */
static struct backend *cpu(void)
{
    static struct backend *b;
    struct err err;

    if (!b)
        ASSERT(backend_open_cpu(1, &b, &err) == 0);
    return b;
}

static int bind(struct kernel *base, void *const *in, void *const *out, void *scratch,
                struct err *err)
{
    struct kernel *inner = container_of(base, struct library_kernel, k)->inner;

    return inner->ops->bind(inner, in, out, scratch, err);
}

static void work(void *arg)
{
    struct kernel *inner = ((struct library_kernel *)arg)->inner;
    struct err err;

    ASSERT(inner->ops->run(inner, &err) == 0);
}

static int run(struct kernel *base, struct err *err)
{
    struct library_kernel *k = container_of(base, struct library_kernel, k);

    (void)err;
    sim_host_work(k->cuda->stream, work, k);
    return 0;
}

static void release(struct kernel *base)
{
    struct library_kernel *k = container_of(base, struct library_kernel, k);

    k->inner->ops->free(k->inner);
    free(k);
}

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
    *k = (struct library_kernel){.k.ops = &library_ops, .cuda = b};
    rc = backend_make_kernel(cpu(), g, n, &k->inner, err);
    if (rc < 0) {
        free(k);
        return rc;
    }
    k->k.scratch_bytes = k->inner->scratch_bytes;
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
