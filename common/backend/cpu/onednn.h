/* onednn - the part of oneDNN's C API that our kernels use, in terms that hold for 2.x and 3.x.
 *
 * Extents are in oneDNN's logical order (N,C,H,W; O,I,H,W; with groups G,O,I,H,W); strides say
 * where the elements lie in memory.
 *
 * Memory: a memory descriptor may be a handle (3.x).  Whoever makes descriptors, copies them
 * freely, and calls dn_release once none of them is needed any more.  Memory objects and primitives
 * that were made from descriptors outlive them.
 *
 * Threads: the engine's. */
#ifndef BACKEND_CPU_ONEDNN_H
#define BACKEND_CPU_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "base/err.h"
#include "ir/graph.h"

struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct dn_handles *handles; /* 3.x: the descriptors made since the last dn_release */
};

int onednn_open(struct onednn **out, struct err *err);
void onednn_close(struct onednn *dn); /* NULL is fine */

/* ERR_NOMEM, ERR_UNSUPPORTED or ERR_DEVICE with oneDNN's status; 0 for dnnl_success. */
int dn_check(dnnl_status_t status, const char *what, struct err *err);

int dn_has_avx512(void); /* 1 if the processor has AVX-512 and ONEDNN_MAX_CPU_ISA allows it */
int dn_has_avx2(void);   /* the same of AVX2 */
/* 1 if oneDNN has BF16 primitives for this processor: those with AVX-512.  Without the processor's
 * own BF16 products these primitives compute by F32. */
int dn_has_bf16(void);
/* 1 if the processor multiplies BF16 by itself, and ONEDNN_MAX_CPU_ISA allows it. */
int dn_multiplies_bf16(void);
/* 1 if products of BF16 tensors are computed in F32, from operands that are widened before: 0 where
 * the processor has AMX, or BF16 instructions and is not Intel's (Zen 4, Zen 5).
 *
 * Elsewhere oneDNN has no BF16 primitives, or they are slower than its F32 ones.  A step of the GPT
 * of tests/bench/models.py took one core of a Xeon 1.9 s with widened operands.  With oneDNN 2.6's
 * BF16 primitives it took 2.6 s by the processor's BF16 instructions, and 6.7 s without these
 * (ONEDNN_MAX_CPU_ISA=AVX512_CORE); tests/bench/RESULTS.md has more.
 *
 * The kind of processor decides, never a timing: a run that is resumed computes the same bits. */
int dn_widens_bf16(void);
int dn_is_intel(void); /* 1 if the processor is Intel's */
int dn_has_amx(void);  /* 1 if oneDNN multiplies BF16 by AMX here */

/* C = op(A) op(B) + beta C, as dnnl_sgemm's with alpha = 1, of BF16 matrices and an F32 C.  The
 * library (2.6, 3.2) has it, but its headers do not tell of it; dn_has_gemm_bf16 is 0 if this one
 * does not, or the processor has no BF16 primitives. */
int dn_has_gemm_bf16(void);
dnnl_status_t dn_gemm_bf16(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k,
                           const void *a, int64_t lda, const void *b, int64_t ldb, float beta,
                           float *c, int64_t ldc);

/* The extents of a tensor, and its strides in memory. */
struct dn_layout {
    int n;
    dnnl_dims_t dim, stride;
};

struct dn_layout dn_row_major(int n, const int64_t *dim); /* in the order of the extents */
struct dn_layout dn_flat(const struct shape *s);          /* all elements as one dimension */
struct dn_layout dn_image(const struct shape *nhwc);      /* [N,H,W,C] as N,C,H,W */

/* A memory descriptor of F32 or BF16. */
struct dn_md {
    dnnl_memory_desc_t v;
};

int dn_md_init(struct onednn *dn, struct dn_md *md, const struct dn_layout *l, enum dtype type,
               struct err *err);
/* The same extents in the layout that oneDNN calls so; the strides are ignored. */
int dn_md_tag(struct onednn *dn, struct dn_md *md, const struct dn_layout *l, enum dtype type,
              dnnl_format_tag_t tag, struct err *err);
/* The same extents; the primitive chooses the layout. */
int dn_md_any(struct onednn *dn, struct dn_md *md, const struct dn_layout *l, enum dtype type,
              struct err *err);
/* 1: *md is the layout that pd wants for this argument; 0: pd has no such argument. */
int dn_md_of_arg(struct onednn *dn, dnnl_primitive_desc_t pd, int arg, struct dn_md *md,
                 struct err *err);
int dn_md_equal(const struct dn_md *a, const struct dn_md *b);
size_t dn_md_bytes(const struct dn_md *md);
int dn_memory_new(struct onednn *dn, const struct dn_md *md, dnnl_memory_t *out, struct err *err);
void dn_release(struct onednn *dn); /* frees all descriptors made so far */

enum dn_pass { DN_FORWARD, DN_GRAD_X, DN_GRAD_W };

struct dn_conv {
    dnnl_dims_t stride, pad,
        dilation; /* [0] rows, [1] columns; dilation as PyTorch counts it: 1 is dense */
    int adds;     /* DN_FORWARD: the convolution is added to y, before an activation */
};

struct dn_pool {
    dnnl_dims_t kernel, stride, pad;
    int count_pad;
};

/* 1 if oneDNN makes 0 of NaN by this activation, so that a loop of ours takes its place:
 * - relu everywhere, in 2.6 and 3.x (the maximum with 0);
 * - sigmoid where a primitive is plain C, which takes NaN for a large negative number: behind a
 *   convolution on x86-64 without AVX2, and on arm64 behind each product, and by itself, too,
 *   without SVE of 512 bits;
 * - leaky_relu by SVE of 512 bits in 2.6 (the sum of a maximum and a minimum with 0).
 * findings/onednn_arm_nan.sh shows what is so on arm64. */
int dn_loses_nan(enum activation act);

/* The activation that oneDNN may fuse into a primitive, or else the one that a chain does by itself
 * (chain_arg.act). */
static inline enum activation dn_fused(enum activation act)
{
    return dn_loses_nan(act) ? ACT_NONE : act;
}

static inline enum activation dn_not_fused(enum activation act)
{
    return dn_loses_nan(act) ? act : ACT_NONE;
}

/* Primitive descriptors.  x, w, b (NULL: no bias) and y are the tensors or, in a backward pass,
 * their gradients.  The caller gives every primitive its scratchpad. */
int dn_conv(struct onednn *dn, enum dn_pass pass, const struct dn_conv *conv, const struct dn_md *x,
            const struct dn_md *w, const struct dn_md *b, const struct dn_md *y,
            enum activation act, dnnl_primitive_desc_t *out, struct err *err);
int dn_inner(struct onednn *dn, enum dn_pass pass, const struct dn_md *x, const struct dn_md *w,
             const struct dn_md *b, const struct dn_md *y, enum activation act,
             dnnl_primitive_desc_t *out, struct err *err);
int dn_average(struct onednn *dn, const struct dn_pool *pool, const struct dn_md *x,
               const struct dn_md *y, dnnl_primitive_desc_t *out, struct err *err);
int dn_eltwise(struct onednn *dn, enum activation act, const struct dn_md *x,
               dnnl_primitive_desc_t *out, struct err *err);
int dn_eltwise_grad(struct onednn *dn, enum activation act, const struct dn_md *x,
                    dnnl_primitive_desc_t *out, struct err *err);
int dn_sum(struct onednn *dn, const struct dn_md *a, const struct dn_md *b, const struct dn_md *y,
           dnnl_primitive_desc_t *out, struct err *err); /* b may have extents of 1 */
/* adds 1: what `from` holds is added to what `to` holds. */
int dn_reorder(struct onednn *dn, const struct dn_md *from, const struct dn_md *to, int adds,
               dnnl_primitive_desc_t *out, struct err *err);

#endif
