/* onednn - makes oneDNN's descriptors of memory and of primitives, and translates its statuses
 * into our errors.  No other file makes descriptors. */
#include "backend/cpu/onednn.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "tensor/dtype.h"

#if DNNL_VERSION_MAJOR != 2
#error "written for oneDNN 2.x (Debian 12: libdnnl-dev 2.6); this file alone has to learn another"
#endif

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

static dnnl_data_type_t data_type(enum dtype type)
{
    ASSERT(type == DTYPE_F32 || type == DTYPE_BF16);
    return type == DTYPE_F32 ? dnnl_f32 : dnnl_bf16;
}

int dn_md_init(struct dn_md *md, const struct dn_layout *l, enum dtype type, struct err *err)
{
    return dn_check(
        dnnl_memory_desc_init_by_strides(&md->v, l->n, l->dim, data_type(type), l->stride),
        "describe a tensor", err);
}

int dn_md_any(struct dn_md *md, const struct dn_layout *l, enum dtype type, struct err *err)
{
    return dn_check(
        dnnl_memory_desc_init_by_tag(&md->v, l->n, l->dim, data_type(type), dnnl_format_tag_any),
        "describe a tensor", err);
}

int dn_md_of_arg(dnnl_primitive_desc_t pd, int arg, struct dn_md *md)
{
    const dnnl_memory_desc_t *v = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);

    if (!v || v->ndims == 0)
        return 0;
    md->v = *v;
    return 1;
}

int dn_md_equal(const struct dn_md *a, const struct dn_md *b)
{
    return dnnl_memory_desc_equal(&a->v, &b->v);
}

size_t dn_md_bytes(const struct dn_md *md) { return dnnl_memory_desc_get_size(&md->v); }

int dn_memory_new(struct onednn *dn, const struct dn_md *md, dnnl_memory_t *out, struct err *err)
{
    return dn_check(dnnl_memory_create(out, &md->v, dn->engine, DNNL_MEMORY_NONE),
                    "make a memory object", err);
}

static int has_isa(dnnl_cpu_isa_t isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; }

int dn_has_avx512(void) { return has_isa(dnnl_cpu_isa_avx512_core); }

int dn_has_bf16(void) { return dn_has_avx512(); }

int dn_multiplies_bf16(void) { return has_isa(dnnl_cpu_isa_avx512_core_bf16); }

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

static dnnl_status_t add_activation(dnnl_primitive_attr_t attr, enum activation act)
{
    dnnl_post_ops_t ops;
    dnnl_status_t st;

    if (act == ACT_NONE)
        return dnnl_success;
    if ((st = dnnl_post_ops_create(&ops)) != dnnl_success)
        return st;
    st = dnnl_post_ops_append_eltwise(ops, 1.0f, forward_alg(act), alpha_of(act), 0.0f);
    if (st == dnnl_success)
        st = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
    return st;
}

/* The attribute of all primitives: the caller gives the scratchpad, and an activation may follow
 * the primitive. */
static dnnl_status_t make_attr(enum activation act, dnnl_primitive_attr_t *out)
{
    dnnl_status_t st = dnnl_primitive_attr_create(out);

    if (st != dnnl_success)
        return st;
    st = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (st == dnnl_success)
        st = add_activation(*out, act);
    if (st != dnnl_success)
        dnnl_primitive_attr_destroy(*out);
    return st;
}

static int make_pd(struct onednn *dn, dnnl_status_t st, const_dnnl_op_desc_t desc,
                   enum activation act, const_dnnl_primitive_desc_t hint, const char *what,
                   dnnl_primitive_desc_t *out, struct err *err)
{
    dnnl_primitive_attr_t attr;

    if (st == dnnl_success && (st = make_attr(act, &attr)) == dnnl_success) {
        st = dnnl_primitive_desc_create(out, desc, attr, dn->engine, hint);
        dnnl_primitive_attr_destroy(attr);
    }
    return dn_check(st, what, err);
}

/* The same layout in the type of x: a forward primitive, which a gradient needs as a hint, has
 * weights of that type, while the gradients of weights may be wider. */
static struct dn_md typed_as(const struct dn_md *x, const struct dn_md *md)
{
    struct dn_md out = {0};

    if (md) {
        out = *md;
        out.v.data_type = x->v.data_type;
    }
    return out;
}

int dn_conv(struct onednn *dn, enum dn_pass pass, const struct dn_conv *conv, const struct dn_md *x,
            const struct dn_md *w, const struct dn_md *b, const struct dn_md *y,
            enum activation act, dnnl_primitive_desc_t *out, struct err *err)
{
    const dnnl_dims_t dilation = {conv->dilation[0] - 1, conv->dilation[1] - 1};
    const dnnl_memory_desc_t *bv = b ? &b->v : NULL;
    const struct dn_md w_hint = typed_as(x, w), b_hint = typed_as(x, b);
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_t hint;
    dnnl_status_t st;
    int rc;

    st = dnnl_dilated_convolution_forward_desc_init(
        &d, pass == DN_FORWARD ? dnnl_forward_inference : dnnl_forward_training,
        dnnl_convolution_direct, &x->v, &w_hint.v, b ? &b_hint.v : NULL, &y->v, conv->stride,
        dilation, conv->pad, conv->pad);
    if (pass == DN_FORWARD)
        return make_pd(dn, st, &d, act, NULL, "convolution", out, err);
    if ((rc = make_pd(dn, st, &d, ACT_NONE, NULL, "convolution", &hint, err)) < 0)
        return rc;
    if (pass == DN_GRAD_X)
        st = dnnl_dilated_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, &x->v,
                                                              &w->v, &y->v, conv->stride, dilation,
                                                              conv->pad, conv->pad);
    else
        st = dnnl_dilated_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, &x->v,
                                                                 &w->v, bv, &y->v, conv->stride,
                                                                 dilation, conv->pad, conv->pad);
    rc = make_pd(dn, st, &d, ACT_NONE, hint, "gradient of a convolution", out, err);
    dnnl_primitive_desc_destroy(hint);
    return rc;
}

int dn_inner(struct onednn *dn, enum dn_pass pass, const struct dn_md *x, const struct dn_md *w,
             const struct dn_md *b, const struct dn_md *y, enum activation act,
             dnnl_primitive_desc_t *out, struct err *err)
{
    const dnnl_memory_desc_t *bv = b ? &b->v : NULL;
    const struct dn_md w_hint = typed_as(x, w), b_hint = typed_as(x, b);
    dnnl_inner_product_desc_t d;
    dnnl_primitive_desc_t hint;
    dnnl_status_t st;
    int rc;

    st = dnnl_inner_product_forward_desc_init(
        &d, pass == DN_FORWARD ? dnnl_forward_inference : dnnl_forward_training, &x->v, &w_hint.v,
        b ? &b_hint.v : NULL, &y->v);
    if (pass == DN_FORWARD)
        return make_pd(dn, st, &d, act, NULL, "inner product", out, err);
    if ((rc = make_pd(dn, st, &d, ACT_NONE, NULL, "inner product", &hint, err)) < 0)
        return rc;
    if (pass == DN_GRAD_X)
        st = dnnl_inner_product_backward_data_desc_init(&d, &x->v, &w->v, &y->v);
    else
        st = dnnl_inner_product_backward_weights_desc_init(&d, &x->v, &w->v, bv, &y->v);
    rc = make_pd(dn, st, &d, ACT_NONE, hint, "gradient of an inner product", out, err);
    dnnl_primitive_desc_destroy(hint);
    return rc;
}

int dn_average(struct onednn *dn, const struct dn_pool *pool, const struct dn_md *x,
               const struct dn_md *y, dnnl_primitive_desc_t *out, struct err *err)
{
    const dnnl_dims_t dilation = {0, 0};
    dnnl_pooling_v2_desc_t d;
    dnnl_status_t st = dnnl_pooling_v2_forward_desc_init(
        &d, dnnl_forward_inference,
        pool->count_pad ? dnnl_pooling_avg_include_padding : dnnl_pooling_avg_exclude_padding,
        &x->v, &y->v, pool->stride, pool->kernel, dilation, pool->pad, pool->pad);

    return make_pd(dn, st, &d, ACT_NONE, NULL, "average pool", out, err);
}

int dn_eltwise(struct onednn *dn, enum activation act, const struct dn_md *x,
               dnnl_primitive_desc_t *out, struct err *err)
{
    dnnl_eltwise_desc_t d;
    dnnl_status_t st = dnnl_eltwise_forward_desc_init(&d, dnnl_forward_inference, forward_alg(act),
                                                      &x->v, alpha_of(act), 0.0f);

    return make_pd(dn, st, &d, ACT_NONE, NULL, "activation", out, err);
}

int dn_eltwise_grad(struct onednn *dn, enum activation act, const struct dn_md *x,
                    dnnl_primitive_desc_t *out, struct err *err)
{
    dnnl_eltwise_desc_t d;
    dnnl_primitive_desc_t hint;
    dnnl_status_t st = dnnl_eltwise_forward_desc_init(&d, dnnl_forward_training, grad_alg(act),
                                                      &x->v, alpha_of(act), 0.0f);
    int rc = make_pd(dn, st, &d, ACT_NONE, NULL, "activation", &hint, err);

    if (rc < 0)
        return rc;
    st = dnnl_eltwise_backward_desc_init(&d, grad_alg(act), &x->v, &x->v, alpha_of(act), 0.0f);
    rc = make_pd(dn, st, &d, ACT_NONE, hint, "gradient of an activation", out, err);
    dnnl_primitive_desc_destroy(hint);
    return rc;
}

int dn_sum(struct onednn *dn, const struct dn_md *a, const struct dn_md *b, const struct dn_md *y,
           dnnl_primitive_desc_t *out, struct err *err)
{
    dnnl_binary_desc_t d;
    dnnl_status_t st = dnnl_binary_desc_init(&d, dnnl_binary_add, &a->v, &b->v, &y->v);

    return make_pd(dn, st, &d, ACT_NONE, NULL, "sum", out, err);
}

int dn_reorder(struct onednn *dn, const struct dn_md *from, const struct dn_md *to,
               dnnl_primitive_desc_t *out, struct err *err)
{
    dnnl_primitive_attr_t attr;
    dnnl_status_t st = make_attr(ACT_NONE, &attr);

    if (st == dnnl_success) {
        st =
            dnnl_reorder_primitive_desc_create(out, &from->v, dn->engine, &to->v, dn->engine, attr);
        dnnl_primitive_attr_destroy(attr);
    }
    return dn_check(st, "reorder", err);
}
