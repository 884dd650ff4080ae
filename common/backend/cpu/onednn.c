/* onednn - makes oneDNN's descriptors of memory and of primitives, and translates its statuses
 * into our errors.  Other files make descriptors through this one; the calls that differ between
 * oneDNN 2.x and 3.x are in onednn_2.c and onednn_3.c. */
#include "backend/cpu/onednn.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cpu/onednn_version.h"
#include "base/alloc.h"
#include "base/util.h"
#include "tensor/dtype.h"

static const char *status_text(dnnl_status_t status)
{
    switch (status) {
    case dnnl_out_of_memory:
        return "out of memory";
    case dnnl_invalid_arguments:
        return "invalid arguments";
    case dnnl_unimplemented:
        return "not implemented";
    case dnnl_runtime_error:
        return "runtime error";
    default:
        return "failed";
    }
}

int dn_check(dnnl_status_t status, const char *what, struct err *err)
{
    int code = ERR_DEVICE;

    if (status == dnnl_success)
        return 0;
    if (status == dnnl_out_of_memory)
        code = ERR_NOMEM;
    else if (status == dnnl_unimplemented)
        code = ERR_UNSUPPORTED;
    return err_set(err, code, "oneDNN: %s: %s (status %d)", what, status_text(status), (int)status);
}

int onednn_open(struct onednn **out, struct err *err)
{
    struct onednn *dn = xcalloc(1, sizeof *dn);
    int rc = dn_check(dnnl_engine_create(&dn->engine, dnnl_cpu, 0), "make an engine", err);

    if (rc == 0)
        rc = dn_check(dnnl_stream_create(&dn->stream, dn->engine, dnnl_stream_default_flags),
                      "make a stream", err);
    if (rc < 0) {
        onednn_close(dn);
        return rc;
    }
    *out = dn;
    return 0;
}

void onednn_close(struct onednn *dn)
{
    if (!dn)
        return;
    dn_release(dn);
    if (dn->stream)
        dnnl_stream_destroy(dn->stream);
    if (dn->engine)
        dnnl_engine_destroy(dn->engine);
    free(dn);
}

struct dn_layout dn_row_major(int n, const int64_t *dim)
{
    struct dn_layout l = {.n = n};
    int64_t stride = 1;

    for (int i = n - 1; i >= 0; i--) {
        l.dim[i] = dim[i];
        l.stride[i] = stride;
        stride *= dim[i];
    }
    return l;
}

struct dn_layout dn_flat(const struct shape *s)
{
    return dn_row_major(1, (int64_t[]){shape_elements(s)});
}

struct dn_layout dn_image(const struct shape *nhwc)
{
    const int64_t h = nhwc->dim[1], w = nhwc->dim[2], c = nhwc->dim[3];

    return (struct dn_layout){
        .n = 4, .dim = {nhwc->dim[0], c, h, w}, .stride = {h * w * c, 1, w * c, c}};
}

static dnnl_data_type_t cpu_onednn_data_type(enum dtype type)
{
    ASSERT(type == DTYPE_F32 || type == DTYPE_BF16);
    return type == DTYPE_F32 ? dnnl_f32 : dnnl_bf16;
}

int dn_md_init(struct onednn *dn, struct dn_md *md, const struct dn_layout *l, enum dtype type,
               struct err *err)
{
    return dn_check(dn_v_md(dn, md, l, cpu_onednn_data_type(type)), "describe a tensor", err);
}

int dn_md_tag(struct onednn *dn, struct dn_md *md, const struct dn_layout *l, enum dtype type,
              dnnl_format_tag_t tag, struct err *err)
{
    return dn_check(dn_v_md_tag(dn, md, l, cpu_onednn_data_type(type), tag), "describe a tensor",
                    err);
}

int dn_md_any(struct onednn *dn, struct dn_md *md, const struct dn_layout *l, enum dtype type,
              struct err *err)
{
    return dn_md_tag(dn, md, l, type, dnnl_format_tag_any, err);
}

int dn_md_of_arg(struct onednn *dn, dnnl_primitive_desc_t pd, int arg, struct dn_md *md,
                 struct err *err)
{
    int has;
    int rc = dn_check(dn_v_md_of_arg(dn, pd, arg, md, &has), "ask for a layout", err);

    return rc < 0 ? rc : has;
}

int dn_memory_new(struct onednn *dn, const struct dn_md *md, dnnl_memory_t *out, struct err *err)
{
    return dn_check(dn_v_memory(dn, md, out), "make a memory object", err);
}

/* On arm64 the library gives bits, too, and they mean other instructions than their names say: 0x1f
 * with SVE of 512 bits (2.6). */
#ifdef __x86_64__
static int has_isa(dnnl_cpu_isa_t isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; }

int dn_is_intel(void) { return __builtin_cpu_is("intel") != 0; }
#else
static int has_isa(dnnl_cpu_isa_t isa)
{
    (void)isa;
    return 0;
}

int dn_is_intel(void) { return 0; }
#endif

int dn_has_avx512(void) { return has_isa(dnnl_cpu_isa_avx512_core); }

int dn_has_avx2(void) { return has_isa(dnnl_cpu_isa_avx2); }

int dn_has_bf16(void) { return dn_has_avx512(); }

int dn_multiplies_bf16(void) { return has_isa(dnnl_cpu_isa_avx512_core_bf16); }

int dn_widens_bf16(void) { return !dn_has_amx() && (!dn_multiplies_bf16() || dn_is_intel()); }

int dn_has_amx(void) { return has_isa(dnnl_cpu_isa_avx512_core_amx); }

__attribute__((weak)) dnnl_status_t dnnl_gemm_bf16bf16f32(char trans_a, char trans_b, dnnl_dim_t m,
                                                          dnnl_dim_t n, dnnl_dim_t k, float alpha,
                                                          const uint16_t *a, dnnl_dim_t lda,
                                                          const uint16_t *b, dnnl_dim_t ldb,
                                                          float beta, float *c, dnnl_dim_t ldc);

int dn_has_gemm_bf16(void) { return dnnl_gemm_bf16bf16f32 && dn_has_bf16(); }

dnnl_status_t dn_gemm_bf16(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k,
                           const void *a, int64_t lda, const void *b, int64_t ldb, float beta,
                           float *c, int64_t ldc)
{
    return dnnl_gemm_bf16bf16f32(trans_a, trans_b, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
}

/* With AVX2 oneDNN writes machine code for each of them. */
int dn_loses_nan(enum activation act)
{
    if (act == ACT_SIGMOID || act == ACT_LEAKY_RELU)
        return !has_isa(dnnl_cpu_isa_avx2);
    return act == ACT_RELU;
}

static dnnl_alg_kind_t forward_alg(enum activation act)
{
    switch (act) {
    case ACT_RELU:
        return dnnl_eltwise_relu;
    case ACT_TANH:
        return dnnl_eltwise_tanh;
    case ACT_SIGMOID:
        return dnnl_eltwise_logistic;
    case ACT_GELU:
        return dnnl_eltwise_gelu_erf;
    case ACT_GELU_TANH:
        return dnnl_eltwise_gelu_tanh;
    case ACT_SILU:
        return dnnl_eltwise_swish;
    case ACT_LEAKY_RELU:
        return dnnl_eltwise_relu;
    case ACT_NONE:
        break;
    }
    ASSERT(!"no such activation");
}

static dnnl_alg_kind_t grad_alg(enum activation act)
{
    switch (act) {
    case ACT_RELU:
    case ACT_LEAKY_RELU:
        return dnnl_eltwise_relu_use_dst_for_bwd;
    case ACT_TANH:
        return dnnl_eltwise_tanh_use_dst_for_bwd;
    case ACT_SIGMOID:
        return dnnl_eltwise_logistic_use_dst_for_bwd;
    default:
        return forward_alg(act);
    }
}

/* oneDNN's alpha: the slope of a relu below 0, and the factor inside swish. */
static float alpha_of(enum activation act)
{
    return act == ACT_LEAKY_RELU ? 0.01f : act == ACT_SILU ? 1.0f : 0.0f;
}

/* The operations that follow a primitive: first y += its result, then y = act(y). */
struct tail {
    int adds;
    enum activation act;
};

static dnnl_status_t cpu_onednn_add_tail(dnnl_primitive_attr_t attr, struct tail tail)
{
    dnnl_post_ops_t ops;
    dnnl_status_t st;

    if (tail.act == ACT_NONE && !tail.adds)
        return dnnl_success;
    st = dnnl_post_ops_create(&ops);
    if (st != dnnl_success)
        return st;
    if (tail.adds)
        st = dn_v_append_sum(ops);
    if (st == dnnl_success && tail.act != ACT_NONE)
        st = dn_v_append_eltwise(ops, forward_alg(tail.act), alpha_of(tail.act));
    if (st == dnnl_success)
        st = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
    return st;
}

/* The attribute of all primitives: the caller gives the scratchpad, and a tail may follow the
 * primitive. */
static dnnl_status_t make_attr(struct tail tail, dnnl_primitive_attr_t *out)
{
    dnnl_status_t st = dnnl_primitive_attr_create(out);

    if (st != dnnl_success)
        return st;
    st = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (st == dnnl_success)
        st = cpu_onednn_add_tail(*out, tail);
    if (st != dnnl_success)
        dnnl_primitive_attr_destroy(*out);
    return st;
}

static int make_pd(struct onednn *dn, dn_make *make, struct dn_wish wish, enum activation act,
                   const char *what, dnnl_primitive_desc_t *out, struct err *err)
{
    const struct tail tail = {wish.adds || (wish.conv && wish.conv->adds), act};
    dnnl_status_t st = make_attr(tail, &wish.attr);

    if (st == dnnl_success) {
        st = make(dn, &wish, out);
        dnnl_primitive_attr_destroy(wish.attr);
    }
    return dn_check(st, what, err);
}

/* A backward primitive is made by the hint of the forward one. */
static int cpu_onednn_make_grad(struct onednn *dn, dn_make *make, struct dn_wish forward,
                                struct dn_wish grad, const char *what, dnnl_primitive_desc_t *out,
                                struct err *err)
{
    int rc = make_pd(dn, make, forward, ACT_NONE, what, &grad.hint, err);

    if (rc < 0)
        return rc;
    rc = make_pd(dn, make, grad, ACT_NONE, what, out, err);
    dnnl_primitive_desc_destroy(grad.hint);
    return rc;
}

/* As make_pd or make_grad for a primitive with weights.  A hint has weights of x's type, while the
 * gradients of weights may be wider. */
static int make_weighted(struct onednn *dn, dn_make *make, struct dn_wish wish, enum activation act,
                         const char *what, dnnl_primitive_desc_t *out, struct err *err)
{
    struct dn_wish hint = wish;
    struct dn_md w, b;
    dnnl_status_t st;

    if (wish.pass == DN_FORWARD)
        return make_pd(dn, make, wish, act, what, out, err);
    hint.pass = DN_FORWARD;
    hint.prop = dnnl_forward_training;
    hint.w = &w;
    st = dn_v_md_typed(dn, &w, wish.w, wish.x);
    if (st == dnnl_success && wish.b) {
        hint.b = &b;
        st = dn_v_md_typed(dn, &b, wish.b, wish.x);
    }
    if (st != dnnl_success)
        return dn_check(st, "describe a tensor", err);
    return cpu_onednn_make_grad(dn, make, hint, wish, what, out, err);
}

int dn_conv(struct onednn *dn, enum dn_pass pass, const struct dn_conv *conv, const struct dn_md *x,
            const struct dn_md *w, const struct dn_md *b, const struct dn_md *y,
            enum activation act, dnnl_primitive_desc_t *out, struct err *err)
{
    const struct dn_wish wish = {
        .pass = pass, .prop = dnnl_forward_inference, .x = x, .w = w, .b = b, .y = y, .conv = conv};

    return make_weighted(dn, dn_v_conv, wish, act,
                         pass == DN_FORWARD ? "convolution" : "gradient of a convolution", out,
                         err);
}

int dn_inner(struct onednn *dn, enum dn_pass pass, const struct dn_md *x, const struct dn_md *w,
             const struct dn_md *b, const struct dn_md *y, enum activation act,
             dnnl_primitive_desc_t *out, struct err *err)
{
    const struct dn_wish wish = {
        .pass = pass, .prop = dnnl_forward_inference, .x = x, .w = w, .b = b, .y = y};

    return make_weighted(dn, dn_v_inner, wish, act,
                         pass == DN_FORWARD ? "inner product" : "gradient of an inner product", out,
                         err);
}

int dn_average(struct onednn *dn, const struct dn_pool *pool, const struct dn_md *x,
               const struct dn_md *y, dnnl_primitive_desc_t *out, struct err *err)
{
    const struct dn_wish wish = {.prop = dnnl_forward_inference, .x = x, .y = y, .pool = pool};

    return make_pd(dn, dn_v_average, wish, ACT_NONE, "average pool", out, err);
}

int dn_eltwise(struct onednn *dn, enum activation act, const struct dn_md *x,
               dnnl_primitive_desc_t *out, struct err *err)
{
    const struct dn_wish wish = {
        .prop = dnnl_forward_inference, .x = x, .alg = forward_alg(act), .alpha = alpha_of(act)};

    return make_pd(dn, dn_v_eltwise, wish, ACT_NONE, "activation", out, err);
}

int dn_eltwise_grad(struct onednn *dn, enum activation act, const struct dn_md *x,
                    dnnl_primitive_desc_t *out, struct err *err)
{
    const struct dn_wish forward = {
        .prop = dnnl_forward_training, .x = x, .alg = grad_alg(act), .alpha = alpha_of(act)};
    struct dn_wish grad = forward;

    grad.pass = DN_GRAD_X;
    return cpu_onednn_make_grad(dn, dn_v_eltwise, forward, grad, "gradient of an activation", out,
                                err);
}

int dn_sum(struct onednn *dn, const struct dn_md *a, const struct dn_md *b, const struct dn_md *y,
           dnnl_primitive_desc_t *out, struct err *err)
{
    return make_pd(dn, dn_v_sum, (struct dn_wish){.x = a, .b = b, .y = y}, ACT_NONE, "sum", out,
                   err);
}

int dn_reorder(struct onednn *dn, const struct dn_md *from, const struct dn_md *to, int adds,
               dnnl_primitive_desc_t *out, struct err *err)
{
    const struct dn_wish wish = {.x = from, .y = to, .adds = adds};

    return make_pd(dn, dn_v_reorder, wish, ACT_NONE, "reorder", out, err);
}
