/* cudnn_graph - describes a graph to cuDNN, as one backend descriptor after another.
 *
 * Failure: when cuDNN refuses a descriptor, g->err keeps the failure and everything later is
 * skipped.  So callers describe without checking errors, and cudnn_plan_for() reports the failure.
 *
 * The hash of a graph covers every attribute; an attribute that refers to a descriptor counts with
 * the descriptor's number. */
#include "backend/cuda/cudnn_impl.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

struct cudnn_graph *cudnn_graph_new(struct cudnn_device *d, const char *what)
{
    struct cudnn_graph *g = xcalloc(1, sizeof *g);

    g->device = d;
    g->hash = hasher_new();
    snprintf(g->what, sizeof g->what, "%s", what);
    return g;
}

void cudnn_graph_free(struct cudnn_graph *g)
{
    if (!g)
        return;
    for (int i = g->n_objects; i-- > 0;)
        cudnn_destroy(g->object[i]);
    hasher_free(g->hash);
    free(g);
}

static size_t bytes_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
        return sizeof(int64_t);
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    default: /* floats and enums */
        return 4;
    }
}

static int number_of(const struct cudnn_graph *g, cudnnBackendDescriptor_t d)
{
    for (int i = 0; i < g->n_objects; i++)
        if (g->object[i] == d)
            return i;
    return -1;
}

static void hash_attr(struct cudnn_graph *g, const struct attr *a)
{
    hasher_add_i64(g->hash, a->name);
    if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        hasher_add_i64(g->hash, number_of(g, *(const cudnnBackendDescriptor_t *)a->value));
    else
        hasher_add(g->hash, a->value, (size_t)a->n * bytes_of(a->type));
}

/* Makes a finalized descriptor, which the graph frees; NULL if one was refused, now or before. */
static cudnnBackendDescriptor_t describe(struct cudnn_graph *g, cudnnBackendDescriptorType_t type,
                                         const struct attr *a, int n, const char *doing)
{
    cudnnBackendDescriptor_t d = NULL;
    cudnnStatus_t st;

    if (g->err.code)
        return NULL;
    ASSERT(g->n_objects < MAX_OBJECTS);
    hasher_add_i64(g->hash, type);
    for (int i = 0; i < n; i++)
        hash_attr(g, &a[i]);
    st = cudnn_make(type, a, n, &d);
    if (st != CUDNN_STATUS_SUCCESS) {
        cudnn_refused(&g->err, st, g->what, doing);
        return NULL;
    }
    g->object[g->n_objects++] = d;
    return d;
}

static cudnnDataType_t data_type(enum dtype t)
{
    switch (t) {
    case DTYPE_F32:
        return CUDNN_DATA_FLOAT;
    case DTYPE_BF16:
        return CUDNN_DATA_BFLOAT16;
    case DTYPE_F16:
        return CUDNN_DATA_HALF;
    default:
        ASSERT(!"a convolution's element type");
        return CUDNN_DATA_FLOAT;
    }
}

/* `dim` is in N,C,H,W order (K,C,R,S for a filter); in memory the second dimension is innermost. */
static int tensor(struct cudnn_graph *g, enum dtype t, const int64_t dim[4], int is_virtual)
{
    const int64_t stride[4] = {dim[1] * dim[2] * dim[3], 1, dim[3] * dim[1], dim[1]};
    const int64_t uid = g->n_tensors + 1, alignment = 16;
    const cudnnDataType_t type = data_type(t);
    const bool yes = true;
    const struct attr a[] = {ATTR(TENSOR_DATA_TYPE, DATA_TYPE, 1, &type),
                             ATTR(TENSOR_DIMENSIONS, INT64, 4, dim),
                             ATTR(TENSOR_STRIDES, INT64, 4, stride),
                             ATTR(TENSOR_UNIQUE_ID, INT64, 1, &uid),
                             ATTR(TENSOR_BYTE_ALIGNMENT, INT64, 1, &alignment),
                             ATTR(TENSOR_IS_VIRTUAL, BOOLEAN, 1, &yes)};
    const int id = g->n_tensors++;

    ASSERT(id < MAX_TENSORS);
    describe(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, a, is_virtual ? 6 : 5, "tensor");
    g->tensor[id] = g->n_objects - 1;
    g->virtual_tensor[id] = is_virtual;
    g->n_bytes[id] = is_virtual ? 0 : (size_t)(dim[0] * dim[1] * dim[2] * dim[3]) * dtype_size(t);
    g->f32 |= !is_virtual && t == DTYPE_F32;
    return id;
}

int cudnn_image(struct cudnn_graph *g, enum dtype t, const struct shape *nhwc)
{
    const int64_t *d = nhwc->dim;

    return tensor(g, t, (const int64_t[]){d[0], d[3], d[1], d[2]}, 0);
}

int cudnn_filter(struct cudnn_graph *g, enum dtype t, const int64_t kcrs[4])
{
    return tensor(g, t, kcrs, 0);
}

int cudnn_channels(struct cudnn_graph *g, enum dtype t, int64_t c)
{
    return tensor(g, t, (const int64_t[]){1, c, 1, 1}, 0);
}

int cudnn_inner(struct cudnn_graph *g, const struct shape *nhwc)
{
    const int64_t *d = nhwc->dim;

    return tensor(g, DTYPE_F32, (const int64_t[]){d[0], d[3], d[1], d[2]}, 1);
}

static cudnnBackendDescriptor_t *tensor_of(struct cudnn_graph *g, int id)
{
    return &g->object[g->err.code ? 0 : g->tensor[id]];
}

static void add_op(struct cudnn_graph *g, cudnnBackendDescriptorType_t type, const struct attr *a,
                   int n, const char *doing)
{
    cudnnBackendDescriptor_t d = describe(g, type, a, n, doing);

    ASSERT(g->n_ops < MAX_OPS);
    if (d)
        g->op[g->n_ops++] = d;
}

static cudnnBackendDescriptor_t convolution(struct cudnn_graph *g, const struct cudnn_window *c)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t two = 2;
    const struct attr a[] = {ATTR(CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, &f32),
                             ATTR(CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, &mode),
                             ATTR(CONVOLUTION_SPATIAL_DIMS, INT64, 1, &two),
                             ATTR(CONVOLUTION_PRE_PADDINGS, INT64, 2, c->pad),
                             ATTR(CONVOLUTION_POST_PADDINGS, INT64, 2, c->pad),
                             ATTR(CONVOLUTION_FILTER_STRIDES, INT64, 2, c->stride),
                             ATTR(CONVOLUTION_DILATIONS, INT64, 2, c->dilation)};

    return describe(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, a, ARRAY_LEN(a), "convolution");
}

/* The operation of each pass, and its attributes' names: convolution, x, w, y, alpha, beta. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t name[6];
    const char *doing;
} pass_table[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
     "convolution, forward"},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
     "convolution, gradient of x"},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
     "convolution, gradient of w"},
};

void cudnn_convolve(struct cudnn_graph *g, enum cudnn_pass pass, const struct cudnn_window *c,
                    int x, int w, int y)
{
    cudnnBackendDescriptor_t conv = convolution(g, c);
    const float alpha = 1.0f, beta = 0.0f;
    const void *value[] = {&conv, tensor_of(g, x), tensor_of(g, w), tensor_of(g, y), &alpha, &beta};
    struct attr a[6];

    for (int i = 0; i < 6; i++)
        a[i] = (struct attr){pass_table[pass].name[i],
                             i < 4 ? CUDNN_TYPE_BACKEND_DESCRIPTOR : CUDNN_TYPE_FLOAT, 1, value[i]};
    add_op(g, pass_table[pass].type, a, 6, pass_table[pass].doing);
}

/* Adds y = mode(x, b), or y = mode(x) if b < 0. */
static void pointwise(struct cudnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    const cudnnNanPropagation_t keep = CUDNN_PROPAGATE_NAN;
    const struct attr how[] = {ATTR(POINTWISE_MODE, POINTWISE_MODE, 1, &mode),
                               ATTR(POINTWISE_MATH_PREC, DATA_TYPE, 1, &f32),
                               ATTR(POINTWISE_NAN_PROPAGATION, NAN_PROPOGATION, 1, &keep)};
    cudnnBackendDescriptor_t d =
        describe(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, how,
                 mode == CUDNN_POINTWISE_RELU_FWD ? 3 : 2, "pointwise function");
    const struct attr a[] = {
        ATTR(OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1, &d),
        ATTR(OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, x)),
        ATTR(OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, y)),
        ATTR(OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, max_i64(b, 0)))};

    add_op(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, a, b < 0 ? 3 : 4, "pointwise");
}

void cudnn_add(struct cudnn_graph *g, int x, int b, int y)
{
    pointwise(g, CUDNN_POINTWISE_ADD, x, b, y);
}

void cudnn_activate(struct cudnn_graph *g, cudnnPointwiseMode_t mode, int x, int y)
{
    pointwise(g, mode, x, -1, y);
}
