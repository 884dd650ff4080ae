/* kernels - how a test of one kernel runs it, and the operands that it draws.
 *
 * Threads: any. */
#ifndef TESTS_BACKEND_KERNELS_H
#define TESTS_BACKEND_KERNELS_H

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "tensor/half.h"

/* Run kernel k once, with scratch of its own, and free it. */
static inline void run_kernel(struct backend *b, struct kernel *k, void *const *in,
                              void *const *out)
{
    struct err err;
    void *scratch;

    assert_int_equal(backend_alloc(b, k->scratch_bytes + 1, "scratch", &scratch, &err), 0);
    assert_int_equal(k->ops->bind(k, in, out, scratch, &err), 0);
    assert_int_equal(k->ops->run(k, &err), 0);
    k->ops->free(k);
    backend_free(b, scratch);
}

/* n numbers of BF16, drawn from a normal distribution. */
static inline uint16_t *bf16_numbers(int64_t n, uint64_t step)
{
    uint16_t *x = xcalloc((size_t)n, sizeof *x);
    struct rng_stream s;

    rng_stream_init(&s, 1, RNG_TEST, step);
    for (int64_t i = 0; i < n; i++)
        x[i] = bf16_from_float((float)rng_next_normal(&s));
    return x;
}

/* The pixels of a convolution's result along one axis. */
static inline int64_t conv_extent(int64_t n, int64_t kernel, int64_t stride, int64_t pad)
{
    return (n + 2 * pad - kernel) / stride + 1;
}

#endif
