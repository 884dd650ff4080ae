/* onednn_3 - onednn_version.h for oneDNN 3.x: a primitive descriptor is made at once, and memory
 * descriptors are handles, which the engine's struct collects until dn_release. */
#include <stdlib.h>

#include "backend/cpu/onednn_version.h"
#include "base/alloc.h"

struct dn_handles {
    struct dn_handles *next;
    dnnl_memory_desc_t v;
};

static const_dnnl_memory_desc_t cpu_onednn_3_v_of(const struct dn_md *md)
{
    return md ? md->v : NULL;
}

/* Keeps the descriptor that was just made, if it was, for dn_release. */
static dnnl_status_t cpu_onednn_3_keep(struct onednn *dn, struct dn_md *md, dnnl_status_t st)
{
    struct dn_handles *h;

    if (st != dnnl_success)
        return st;
    h = xcalloc(1, sizeof *h);
    h->v = md->v;
    h->next = dn->handles;
    dn->handles = h;
    return st;
}

void dn_release(struct onednn *dn)
{
    while (dn->handles) {
        struct dn_handles *h = dn->handles;

        dn->handles = h->next;
        dnnl_memory_desc_destroy(h->v);
        free(h);
    }
}

dnnl_status_t dn_v_md(struct onednn *dn, struct dn_md *md, const struct dn_layout *l,
                      dnnl_data_type_t type)
{
    return cpu_onednn_3_keep(
        dn, md, dnnl_memory_desc_create_with_strides(&md->v, l->n, l->dim, type, l->stride));
}

dnnl_status_t dn_v_md_tag(struct onednn *dn, struct dn_md *md, const struct dn_layout *l,
                          dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    return cpu_onednn_3_keep(dn, md,
                             dnnl_memory_desc_create_with_tag(&md->v, l->n, l->dim, type, tag));
}

dnnl_status_t dn_v_md_typed(struct onednn *dn, struct dn_md *md, const struct dn_md *from,
                            const struct dn_md *like)
{
    int n = 0;
    dnnl_dims_t *dims, *strides;
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    dnnl_data_type_t type = dnnl_data_type_undef;
    dnnl_status_t st = dnnl_memory_desc_query(like->v, dnnl_query_data_type, &type);

    if (st == dnnl_success)
        st = dnnl_memory_desc_query(from->v, dnnl_query_ndims_s32, &n);
    if (st == dnnl_success)
        st = dnnl_memory_desc_query(from->v, dnnl_query_dims, &dims);
    if (st == dnnl_success)
        st = dnnl_memory_desc_query(from->v, dnnl_query_format_kind, &kind);
    if (st != dnnl_success)
        return st;
    if (kind == dnnl_format_kind_any)
        return cpu_onednn_3_keep(
            dn, md, dnnl_memory_desc_create_with_tag(&md->v, n, *dims, type, dnnl_format_tag_any));
    st = dnnl_memory_desc_query(from->v, dnnl_query_strides, &strides);
    if (st != dnnl_success)
        return st;
    return cpu_onednn_3_keep(
        dn, md, dnnl_memory_desc_create_with_strides(&md->v, n, *dims, type, *strides));
}

dnnl_status_t dn_v_md_of_arg(struct onednn *dn, dnnl_primitive_desc_t pd, int arg, struct dn_md *md,
                             int *has)
{
    const_dnnl_memory_desc_t v = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
    int n = 0;
    dnnl_status_t st = v ? dnnl_memory_desc_query(v, dnnl_query_ndims_s32, &n) : dnnl_success;

    *has = st == dnnl_success && n > 0;
    return *has ? cpu_onednn_3_keep(dn, md, dnnl_memory_desc_clone(&md->v, v)) : st;
}

int dn_md_equal(const struct dn_md *a, const struct dn_md *b)
{
    return dnnl_memory_desc_equal(a->v, b->v);
}

size_t dn_md_bytes(const struct dn_md *md) { return dnnl_memory_desc_get_size(md->v); }

dnnl_status_t dn_v_memory(struct onednn *dn, const struct dn_md *md, dnnl_memory_t *out)
{
    return dnnl_memory_create(out, md->v, dn->engine, DNNL_MEMORY_NONE);
}

dnnl_status_t dn_v_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

dnnl_status_t dn_v_append_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t alg, float alpha)
{
    return dnnl_post_ops_append_eltwise(ops, alg, alpha, 0.0f);
}

dnnl_status_t dn_v_conv(struct onednn *dn, const struct dn_wish *wish, dnnl_primitive_desc_t *out)
{
    const struct dn_conv *conv = wish->conv;
    const dnnl_dims_t dilation = {conv->dilation[0] - 1, conv->dilation[1] - 1};
    const_dnnl_memory_desc_t x = cpu_onednn_3_v_of(wish->x), w = cpu_onednn_3_v_of(wish->w),
                             b = cpu_onednn_3_v_of(wish->b), y = cpu_onednn_3_v_of(wish->y);
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;

    if (wish->pass == DN_FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(out, dn->engine, wish->prop, alg, x,
                                                              w, b, y, conv->stride, dilation,
                                                              conv->pad, conv->pad, wish->attr);
    if (wish->pass == DN_GRAD_X)
        return dnnl_convolution_backward_data_primitive_desc_create(
            out, dn->engine, alg, x, w, y, conv->stride, dilation, conv->pad, conv->pad, wish->hint,
            wish->attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        out, dn->engine, alg, x, w, b, y, conv->stride, dilation, conv->pad, conv->pad, wish->hint,
        wish->attr);
}

dnnl_status_t dn_v_inner(struct onednn *dn, const struct dn_wish *wish, dnnl_primitive_desc_t *out)
{
    const_dnnl_memory_desc_t x = cpu_onednn_3_v_of(wish->x), w = cpu_onednn_3_v_of(wish->w),
                             b = cpu_onednn_3_v_of(wish->b), y = cpu_onednn_3_v_of(wish->y);

    if (wish->pass == DN_FORWARD)
        return dnnl_inner_product_forward_primitive_desc_create(out, dn->engine, wish->prop, x, w,
                                                                b, y, wish->attr);
    if (wish->pass == DN_GRAD_X)
        return dnnl_inner_product_backward_data_primitive_desc_create(out, dn->engine, x, w, y,
                                                                      wish->hint, wish->attr);
    return dnnl_inner_product_backward_weights_primitive_desc_create(out, dn->engine, x, w, b, y,
                                                                     wish->hint, wish->attr);
}

dnnl_status_t dn_v_average(struct onednn *dn, const struct dn_wish *wish,
                           dnnl_primitive_desc_t *out)
{
    const struct dn_pool *pool = wish->pool;
    const dnnl_dims_t dilation = {0, 0};

    return dnnl_pooling_forward_primitive_desc_create(
        out, dn->engine, wish->prop,
        pool->count_pad ? dnnl_pooling_avg_include_padding : dnnl_pooling_avg_exclude_padding,
        cpu_onednn_3_v_of(wish->x), cpu_onednn_3_v_of(wish->y), pool->stride, pool->kernel,
        dilation, pool->pad, pool->pad, wish->attr);
}

dnnl_status_t dn_v_eltwise(struct onednn *dn, const struct dn_wish *wish,
                           dnnl_primitive_desc_t *out)
{
    const_dnnl_memory_desc_t x = cpu_onednn_3_v_of(wish->x);

    if (wish->pass == DN_FORWARD)
        return dnnl_eltwise_forward_primitive_desc_create(out, dn->engine, wish->prop, wish->alg, x,
                                                          x, wish->alpha, 0.0f, wish->attr);
    return dnnl_eltwise_backward_primitive_desc_create(out, dn->engine, wish->alg, x, x, x,
                                                       wish->alpha, 0.0f, wish->hint, wish->attr);
}

dnnl_status_t dn_v_sum(struct onednn *dn, const struct dn_wish *wish, dnnl_primitive_desc_t *out)
{
    return dnnl_binary_primitive_desc_create(out, dn->engine, dnnl_binary_add,
                                             cpu_onednn_3_v_of(wish->x), cpu_onednn_3_v_of(wish->b),
                                             cpu_onednn_3_v_of(wish->y), wish->attr);
}

dnnl_status_t dn_v_reorder(struct onednn *dn, const struct dn_wish *wish,
                           dnnl_primitive_desc_t *out)
{
    return dnnl_reorder_primitive_desc_create(out, cpu_onednn_3_v_of(wish->x), dn->engine,
                                              cpu_onednn_3_v_of(wish->y), dn->engine, wish->attr);
}
