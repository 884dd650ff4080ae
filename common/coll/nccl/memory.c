/* memory - memory that the ranks' GPUs may reach into (NCCL's own allocator makes it), and its
 * registration.
 *
 * A registered window is symmetric: between GPUs that all reach each other, NCCL then sums in
 * place, without staging.  Otherwise NCCL registers the memory for the network only, or does
 * nothing and returns no window.  Memory is registered only with the bulk channel's communicator,
 * because urgent sums are too small to gain.  The window is given back when nothing runs any more,
 * before the communicator ends.  A communicator that is aborted takes its windows with it.  The
 * owner of the memory frees it after all that. */
#include "coll/nccl/impl.h"

#include "base/util.h"

/* 1: the device lacks memory for n_bytes, which NCCL rounds up to pieces of some MiB.  NCCL's error
 * does not say so: sharing memory can also fail as "out of memory" while most memory is free. */
static int is_short(size_t n_bytes)
{
    const size_t margin = (size_t)64 << 20;
    size_t left = 0, total = 0;

    return cudaMemGetInfo(&left, &total) == cudaSuccess && left < n_bytes + margin;
}

int nccl_alloc(struct backend *b, size_t n_bytes, const char *what, void **out, struct err *err)
{
    struct cuda *cuda = container_of(b, struct cuda, base);
    void *p = NULL;
    int rc = nccl_rc(ncclMemAlloc(&p, n_bytes), "allocate GPU memory that ranks share", err);

    (void)cudaGetLastError(); /* reported here: it must not be found again after a launch */
    if (rc < 0 && is_short(n_bytes))
        return cuda_no_memory(n_bytes, what, err);
    if (rc < 0)
        return err_wrap(err,
                        "%s (%.1f MiB; NCCL_CUMEM_ENABLE=0 in every rank's environment does "
                        "without sharing)",
                        what, (double)n_bytes / 0x1p20);
    rc = nccl_cuda(cudaMemsetAsync(p, 0, n_bytes, cuda->stream), "clear memory", err);
    if (rc < 0)
        (void)ncclMemFree(p);
    else
        *out = p;
    return rc;
}

void nccl_free_memory(struct backend *b, void *p)
{
    const struct cuda *cuda = container_of(b, struct cuda, base);

    (void)cudaStreamSynchronize(cuda->stream); /* kernels may still use it */
    (void)ncclMemFree(p);
}

int nccl_enroll(struct coll *c, void *x, size_t n_bytes, struct err *err)
{
    struct nccl *n = nccl_of(c);
    int rc = nccl_standing(n, err);

    ASSERT(n->state == NCCL_UP && n->n_enrolled < NCCL_MAX_ENROLLED);
    if (rc < 0 || (rc = nccl_enter(n, err)) < 0)
        return rc;
    rc = nccl_begun(n,
                    ncclCommWindowRegister(n->channel[COLL_BULK].comm, x, n_bytes,
                                           &n->enrolled[n->n_enrolled], NCCL_WIN_COLL_SYMMETRIC),
                    "register memory", INT64_MAX, err);
    if (rc < 0)
        return nccl_fail(n, err);
    n->n_enrolled++;
    return 0;
}

void nccl_deregister(struct nccl *n)
{
    for (int i = 0; i < n->n_enrolled; i++)
        if (n->enrolled[i])
            (void)ncclCommWindowDeregister(n->channel[COLL_BULK].comm, n->enrolled[i]);
}
