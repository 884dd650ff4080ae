/* cpu - opening and closing the embedded backend, its memory, its threads, and the table from
 * operators to their kernels' makers. */
#include "backend/cpu/cpu.h"

#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/conv2d.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/plain.h"
#include "base/alloc.h"
#include "base/util.h"

/* From the OpenMP runtime that oneDNN was linked with; <omp.h> may be another compiler's. */
void omp_set_num_threads(int n_threads);

enum { LEAST_WORK = 1 << 15 }; /* about 15 us: waking a sleeping thread takes about 5 */

static const struct backend_ops cpu_ops;

static struct cpu *to_cpu(struct backend *b)
{
    ASSERT(b->ops == &cpu_ops);
    return container_of(b, struct cpu, base);
}

static int cpu_alloc(struct backend *b, size_t n_bytes, const char *what, void **out,
                     struct err *err)
{
    (void)b;
    return try_alloc(out, n_bytes, what, err);
}

static void cpu_free(struct backend *b, void *p)
{
    (void)b;
    free(p);
}

static int cpu_copy(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err)
{
    (void)b, (void)err;
    memcpy(to, from, n_bytes);
    return 0;
}

/* 1 if an input has no rows and the operator then computes nothing. */
static int cpu_is_idle(const struct graph *g, const struct node *n)
{
    int empty = 0;

    for (int i = 0; i < n->n_in; i++)
        empty |= cpu_has_in(n, i) && shape_elements(cpu_in(g, n, i)) == 0;
    return empty && (op_get(n->op)->flags & (OP_ROWS | OP_INPLACE));
}

/* 1: the node's kernel adds to its outputs by itself: where there is nothing to compute, and the
 * kernels that make large gradients.  backend.c wraps the others: those of biases and of norms; a
 * linear_grad_w of an image, of a dw that is not F32 or, but in tiles (amx_grad_w.h), with db; and
 * a conv2d_grad_w by oneDNN of a dw that is not F32. */
static int cpu_adds_itself(struct cpu *b, const struct graph *g, const struct node *n)
{
    return cpu_is_idle(g, n) || n->op == OP_cast || n->op == OP_embedding_grad ||
           (n->op == OP_linear_grad_w && linear_adds(b, g, n)) ||
           (n->op == OP_conv2d_grad_w && conv2d_adds(b, g, n));
}

/* No FUSE_LINEAR_GRAD_ACT: here the activation's gradient would be a separate pass all the same. */
static int cpu_can_fuse(struct backend *b, const struct graph *g, const struct node *n,
                        enum fusion f, enum activation act)
{
    if (f == FUSE_FOLD)
        return n->op == OP_conv2d;
    if (f == FUSE_UNPACK)
        return op_type(g, n) == DTYPE_F32;
    if (f == FUSE_ADDS)
        return cpu_adds_itself(to_cpu(b), g, n);
    if (f == FUSE_BIAS && n->op == OP_linear_grad_w && n->adds)
        return 0; /* or the product could not add by itself */
    return backend_usual_fusion(n, f, act);
}

/* program/ never asks for these kernels: a reshape only renames memory, and the engine does an
 * all-reduce between kernels. */
static int cpu_no_kernel(const struct node *n, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED, "%s has no kernel", op_get(n->op)->name);
}

int cpu_make_reshape(struct cpu *b, const struct graph *g, const struct node *n,
                     struct kernel **out, struct err *err)
{
    (void)b, (void)g, (void)out;
    return cpu_no_kernel(n, err);
}

int cpu_make_allreduce(struct cpu *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    (void)b, (void)g, (void)out;
    return cpu_no_kernel(n, err);
}

typedef int make_fn(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err);

static make_fn *const makers[OP_COUNT] = {
#define X(name) [OP_##name] = cpu_make_##name,
    OP_LIST(X)
#undef X
};

/* Only GPUs compute in F16; here only a cast may have such an operand. */
static int refuse_f16(const struct graph *g, const struct node *n, struct err *err)
{
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const int v = i < n->n_in ? n->in[i] : n->out[i - n->n_in];

        if (n->op != OP_cast && v != NO_VALUE && g->value[v].dtype == DTYPE_F16)
            return err_set(err, ERR_UNSUPPORTED,
                           "%s is F16; this backend computes in F32 and BF16 alone",
                           g->value[v].name);
    }
    return 0;
}

static int cpu_make_kernel(struct backend *b, const struct graph *g, const struct node *n,
                           struct kernel **out, struct err *err)
{
    if (refuse_f16(g, n, err) < 0)
        return err->code;
    if (cpu_is_idle(g, n))
        return plain_new(g, n, plain_zero, 0, out, err);
    return makers[n->op](to_cpu(b), g, n, out, err);
}

static void cpu_set_threads(struct backend *b, int n_threads)
{
    to_cpu(b)->n_threads = n_threads;
    omp_set_num_threads(n_threads);
}

static void cpu_close(struct backend *b)
{
    struct cpu *c = to_cpu(b);

    onednn_close(c->dn);
    free(c);
}

static const struct backend_ops cpu_ops = {
    .name = "cpu",
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .can_fuse = cpu_can_fuse,
    .make_kernel = cpu_make_kernel,
    .set_threads = cpu_set_threads,
    .close = cpu_close,
};

const char *backend_cpu_bf16(void)
{
    if (!dn_widens_bf16())
        return "by the processor's own instructions";
    if (dn_multiplies_bf16())
        return "widened to float32 before products (this processor's BF16 instructions are slower)";
    return dn_has_avx512() ? "widened to float32 before products (no AVX512-BF16 here)"
                           : "widened to float32 before products (no AVX-512 here)";
}

void backend_cpu_libraries(char *out, size_t n_out)
{
    const dnnl_version_t *v = dnnl_version();

    snprintf(out, n_out, "oneDNN %d.%d.%d, glibc %s", v->major, v->minor, v->patch,
             gnu_get_libc_version());
}

int backend_open_cpu(int n_threads, struct backend **out, struct err *err)
{
    struct cpu *c = xcalloc(1, sizeof *c);

    ASSERT(n_threads >= 1);
    c->n_threads = n_threads;
    c->widens_bf16 = dn_widens_bf16();
    c->least_work = LEAST_WORK;
    omp_set_num_threads(n_threads);
    if (onednn_open(&c->dn, err) < 0) {
        free(c);
        return err_wrap(err, "cpu backend");
    }
    backend_init(&c->base, &cpu_ops);
    *out = &c->base;
    return 0;
}
