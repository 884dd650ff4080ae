/* onednn_2 - onednn_version.h for oneDNN 2.x: a primitive descriptor is made from an operation
 * descriptor, and memory descriptors are structs, of which nothing has to be freed. */
#include "backend/cpu/onednn_version.h"

static const dnnl_memory_desc_t *cpu_onednn_2_v_of(const struct dn_md *md)
{
    return md ? &md->v : NULL;
}

dnnl_status_t dn_v_md(struct onednn *dn, struct dn_md *md, const struct dn_layout *l,
                      dnnl_data_type_t type)
{
    (void)dn;
    return dnnl_memory_desc_init_by_strides(&md->v, l->n, l->dim, type, l->stride);
}

dnnl_status_t dn_v_md_tag(struct onednn *dn, struct dn_md *md, const struct dn_layout *l,
                          dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    (void)dn;
    return dnnl_memory_desc_init_by_tag(&md->v, l->n, l->dim, type, tag);
}

dnnl_status_t dn_v_md_typed(struct onednn *dn, struct dn_md *md, const struct dn_md *from,
                            const struct dn_md *like)
{
    (void)dn;
    *md = *from;
    md->v.data_type = like->v.data_type;
    return dnnl_success;
}

dnnl_status_t dn_v_md_of_arg(struct onednn *dn, dnnl_primitive_desc_t pd, int arg, struct dn_md *md,
                             int *has)
{
    const dnnl_memory_desc_t *v = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);

    (void)dn;
    *has = v && v->ndims > 0;
    if (*has)
        md->v = *v;
    return dnnl_success;
}

int dn_md_equal(const struct dn_md *a, const struct dn_md *b)
{
    return dnnl_memory_desc_equal(&a->v, &b->v);
}

size_t dn_md_bytes(const struct dn_md *md) { return dnnl_memory_desc_get_size(&md->v); }

dnnl_status_t dn_v_memory(struct onednn *dn, const struct dn_md *md, dnnl_memory_t *out)
{
    return dnnl_memory_create(out, &md->v, dn->engine, DNNL_MEMORY_NONE);
}

void dn_release(struct onednn *dn) { (void)dn; }

dnnl_status_t dn_v_append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1.0f); }

dnnl_status_t dn_v_append_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t alg, float alpha)
{
    return dnnl_post_ops_append_eltwise(ops, 1.0f, alg, alpha, 0.0f);
}

/* st: the status of making the operation descriptor `desc`. */
static dnnl_status_t cpu_onednn_2_make(struct onednn *dn, const struct dn_wish *wish,
                                       dnnl_status_t st, const_dnnl_op_desc_t desc,
                                       dnnl_primitive_desc_t *out)
{
    if (st != dnnl_success)
        return st;
    return dnnl_primitive_desc_create(out, desc, wish->attr, dn->engine,
                                      wish->pass == DN_FORWARD ? NULL : wish->hint);
}

dnnl_status_t dn_v_conv(struct onednn *dn, const struct dn_wish *wish, dnnl_primitive_desc_t *out)
{
    const struct dn_conv *conv = wish->conv;
    const dnnl_dims_t dilation = {conv->dilation[0] - 1, conv->dilation[1] - 1};
    const dnnl_memory_desc_t *x = cpu_onednn_2_v_of(wish->x), *w = cpu_onednn_2_v_of(wish->w),
                             *b = cpu_onednn_2_v_of(wish->b), *y = cpu_onednn_2_v_of(wish->y);
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    dnnl_convolution_desc_t d;
    dnnl_status_t st;

    if (wish->pass == DN_FORWARD)
        st = dnnl_dilated_convolution_forward_desc_init(
            &d, wish->prop, alg, x, w, b, y, conv->stride, dilation, conv->pad, conv->pad);
    else if (wish->pass == DN_GRAD_X)
        st = dnnl_dilated_convolution_backward_data_desc_init(&d, alg, x, w, y, conv->stride,
                                                              dilation, conv->pad, conv->pad);
    else
        st = dnnl_dilated_convolution_backward_weights_desc_init(&d, alg, x, w, b, y, conv->stride,
                                                                 dilation, conv->pad, conv->pad);
    return cpu_onednn_2_make(dn, wish, st, &d, out);
}

dnnl_status_t dn_v_inner(struct onednn *dn, const struct dn_wish *wish, dnnl_primitive_desc_t *out)
{
    const dnnl_memory_desc_t *x = cpu_onednn_2_v_of(wish->x), *w = cpu_onednn_2_v_of(wish->w),
                             *b = cpu_onednn_2_v_of(wish->b), *y = cpu_onednn_2_v_of(wish->y);
    dnnl_inner_product_desc_t d;
    dnnl_status_t st;

    if (wish->pass == DN_FORWARD)
        st = dnnl_inner_product_forward_desc_init(&d, wish->prop, x, w, b, y);
    else if (wish->pass == DN_GRAD_X)
        st = dnnl_inner_product_backward_data_desc_init(&d, x, w, y);
    else
        st = dnnl_inner_product_backward_weights_desc_init(&d, x, w, b, y);
    return cpu_onednn_2_make(dn, wish, st, &d, out);
}

dnnl_status_t dn_v_average(struct onednn *dn, const struct dn_wish *wish,
                           dnnl_primitive_desc_t *out)
{
    const struct dn_pool *pool = wish->pool;
    const dnnl_dims_t dilation = {0, 0};
    dnnl_pooling_v2_desc_t d;
    dnnl_status_t st = dnnl_pooling_v2_forward_desc_init(
        &d, wish->prop,
        pool->count_pad ? dnnl_pooling_avg_include_padding : dnnl_pooling_avg_exclude_padding,
        cpu_onednn_2_v_of(wish->x), cpu_onednn_2_v_of(wish->y), pool->stride, pool->kernel,
        dilation, pool->pad, pool->pad);

    return cpu_onednn_2_make(dn, wish, st, &d, out);
}

dnnl_status_t dn_v_eltwise(struct onednn *dn, const struct dn_wish *wish,
                           dnnl_primitive_desc_t *out)
{
    const dnnl_memory_desc_t *x = cpu_onednn_2_v_of(wish->x);
    dnnl_eltwise_desc_t d;
    dnnl_status_t st;

    if (wish->pass == DN_FORWARD)
        st = dnnl_eltwise_forward_desc_init(&d, wish->prop, wish->alg, x, wish->alpha, 0.0f);
    else
        st = dnnl_eltwise_backward_desc_init(&d, wish->alg, x, x, wish->alpha, 0.0f);
    return cpu_onednn_2_make(dn, wish, st, &d, out);
}

dnnl_status_t dn_v_sum(struct onednn *dn, const struct dn_wish *wish, dnnl_primitive_desc_t *out)
{
    dnnl_binary_desc_t d;
    dnnl_status_t st =
        dnnl_binary_desc_init(&d, dnnl_binary_add, cpu_onednn_2_v_of(wish->x),
                              cpu_onednn_2_v_of(wish->b), cpu_onednn_2_v_of(wish->y));

    return cpu_onednn_2_make(dn, wish, st, &d, out);
}

dnnl_status_t dn_v_reorder(struct onednn *dn, const struct dn_wish *wish,
                           dnnl_primitive_desc_t *out)
{
    return dnnl_reorder_primitive_desc_create(out, cpu_onednn_2_v_of(wish->x), dn->engine,
                                              cpu_onednn_2_v_of(wish->y), dn->engine, wish->attr);
}
