/* onednn_version - the calls of oneDNN that differ between 2.x and 3.x, for onednn.c alone.
 *
 * The build takes onednn_2.c or onednn_3.c, by the version that it finds.  In 2.x a memory
 * descriptor is a struct, and a primitive descriptor is made from an operation descriptor.  In 3.x
 * the former is a handle that must be freed, and the latter is made at once.
 *
 * All return oneDNN's status.  Pointers are borrowed; a memory descriptor may be NULL where a
 * primitive has no such tensor.
 *
 * Threads: the engine's. */
#ifndef BACKEND_CPU_ONEDNN_VERSION_H
#define BACKEND_CPU_ONEDNN_VERSION_H

#include "backend/cpu/onednn.h"

dnnl_status_t dn_v_md(struct onednn *dn, struct dn_md *md, const struct dn_layout *l,
                      dnnl_data_type_t type);
/* The extents of *l, in the layout of this tag; its strides are ignored. */
dnnl_status_t dn_v_md_tag(struct onednn *dn, struct dn_md *md, const struct dn_layout *l,
                          dnnl_data_type_t type, dnnl_format_tag_t tag);
/* The layout of `from`, which is one that dn_v_md made, or dn_v_md_tag for any layout, in the
 * element type of `like`. */
dnnl_status_t dn_v_md_typed(struct onednn *dn, struct dn_md *md, const struct dn_md *from,
                            const struct dn_md *like);
/* *has is 0 if pd has no such argument; else *md is its layout. */
dnnl_status_t dn_v_md_of_arg(struct onednn *dn, dnnl_primitive_desc_t pd, int arg, struct dn_md *md,
                             int *has);
dnnl_status_t dn_v_memory(struct onednn *dn, const struct dn_md *md, dnnl_memory_t *out);

dnnl_status_t dn_v_append_sum(dnnl_post_ops_t ops); /* y += the result */
dnnl_status_t dn_v_append_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t alg, float alpha);

/* A primitive descriptor to be made, and what makes it. */
struct dn_wish {
    enum dn_pass pass;
    dnnl_prop_kind_t prop;             /* of a forward pass */
    const struct dn_md *x, *w, *b, *y; /* in a backward pass their gradients where it writes them */
    const struct dn_conv *conv;        /* dn_v_conv */
    int adds;                          /* y += the result */
    const struct dn_pool *pool;        /* dn_v_average */
    dnnl_alg_kind_t alg;               /* dn_v_eltwise, with alpha */
    float alpha;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t hint; /* the forward pass of a backward one */
};

typedef dnnl_status_t dn_make(struct onednn *dn, const struct dn_wish *wish,
                              dnnl_primitive_desc_t *out);

dn_make dn_v_conv, dn_v_inner, dn_v_average;
dn_make dn_v_eltwise; /* y or, in a backward pass, dx and dy have the layout of x */
dn_make dn_v_sum;     /* y = x + b */
dn_make dn_v_reorder; /* from x to y */

#endif
