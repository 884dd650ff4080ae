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

static size_t cuda_cudnn_graph_bytes_of(cudnnBackendAttributeType_t type)
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

static int cuda_cudnn_graph_number_of(const struct cudnn_graph *g, cudnnBackendDescriptor_t d)
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
        hasher_add_i64(g->hash,
                       cuda_cudnn_graph_number_of(g, *(const cudnnBackendDescriptor_t *)a->value));
    else
        hasher_add(g->hash, a->value, (size_t)a->n * cuda_cudnn_graph_bytes_of(a->type));
}

/* Makes a finalized descriptor, which the graph frees; NULL if one was refused, now or before. */
static cudnnBackendDescriptor_t cuda_cudnn_graph_describe(struct cudnn_graph *g,
                                                          cudnnBackendDescriptorType_t type,
                                                          const struct attr *a, int n,
                                                          const char *doing)
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

static cudnnDataType_t cuda_cudnn_graph_data_type(enum dtype t)
{
    switch (t) {
    case DTYPE_F32:
        return CUDNN_DATA_FLOAT;
    case DTYPE_BF16:
        return CUDNN_DATA_BFLOAT16;
    case DTYPE_F16:
        return CUDNN_DATA_HALF;
    default:
        ASSERT(!"a layer's element type");
        return CUDNN_DATA_FLOAT;
    }
}

/* Adds a tensor: `extra`, unless it is NULL, sets one more attribute to true. */
static struct cudnn_operand *cuda_cudnn_graph_add_tensor(struct cudnn_graph *g,
                                                         const struct cudnn_tensor *t,
                                                         const cudnnBackendAttributeName_t *extra)
{
    const int64_t uid = g->n_tensors + 1, alignment = 16;
    const bool yes = true;
    const struct attr a[] = {
        ATTR(TENSOR_DATA_TYPE, DATA_TYPE, 1, &t->type),
        ATTR(TENSOR_DIMENSIONS, INT64, 4, t->dim),
        ATTR(TENSOR_STRIDES, INT64, 4, t->stride),
        ATTR(TENSOR_UNIQUE_ID, INT64, 1, &uid),
        ATTR(TENSOR_BYTE_ALIGNMENT, INT64, 1, &alignment),
        {extra ? *extra : CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes}};
    struct cudnn_operand *o = &g->tensor[g->n_tensors];

    ASSERT(g->n_tensors < CUDNN_MAX_TENSORS);
    cuda_cudnn_graph_describe(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, a, extra ? 6 : 5, "tensor");
    g->n_tensors++;
    *o = (struct cudnn_operand){.object = g->n_objects - 1, .type = t->type};
    return o;
}

static size_t cuda_cudnn_graph_size_of(cudnnDataType_t t) { return t == CUDNN_DATA_FLOAT ? 4 : 2; }

int cudnn_tensor(struct cudnn_graph *g, const struct cudnn_tensor *t, int is_inner)
{
    const cudnnBackendAttributeName_t inner = CUDNN_ATTR_TENSOR_IS_VIRTUAL;
    struct cudnn_operand *o = cuda_cudnn_graph_add_tensor(g, t, is_inner ? &inner : NULL);
    int64_t last = 0; /* the last element */

    for (int i = 0; i < 4; i++)
        last += (t->dim[i] - 1) * t->stride[i];
    o->is_inner = is_inner;
    o->n_bytes = is_inner ? 0 : (size_t)(last + 1) * cuda_cudnn_graph_size_of(t->type);
    return g->n_tensors - 1;
}

int cudnn_number(struct cudnn_graph *g, float value)
{
    const cudnnBackendAttributeName_t by_value = CUDNN_ATTR_TENSOR_IS_BY_VALUE;
    const struct cudnn_tensor one = {CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}};
    struct cudnn_operand *o = cuda_cudnn_graph_add_tensor(g, &one, &by_value);

    hasher_add(g->hash, &value, sizeof value);
    o->is_number = 1;
    o->value = value;
    return g->n_tensors - 1;
}

/* `dim` is in N,C,H,W order (K,C,R,S for a filter); in memory the second dimension is innermost. */
static int cuda_cudnn_graph_image(struct cudnn_graph *g, enum dtype t, const int64_t dim[4],
                                  int is_inner)
{
    const struct cudnn_tensor of = {
        cuda_cudnn_graph_data_type(t),
        {dim[0], dim[1], dim[2], dim[3]},
        {dim[1] * dim[2] * dim[3], 1, dim[3] * dim[1], dim[1]},
    };

    return cudnn_tensor(g, &of, is_inner);
}

int cudnn_image(struct cudnn_graph *g, enum dtype t, const struct shape *nhwc)
{
    const int64_t *d = nhwc->dim;

    return cuda_cudnn_graph_image(g, t, (const int64_t[]){d[0], d[3], d[1], d[2]}, 0);
}

int cudnn_filter(struct cudnn_graph *g, enum dtype t, const int64_t kcrs[4])
{
    return cuda_cudnn_graph_image(g, t, kcrs, 0);
}

int cudnn_channels(struct cudnn_graph *g, enum dtype t, int64_t c)
{
    return cuda_cudnn_graph_image(g, t, (const int64_t[]){1, c, 1, 1}, 0);
}

int cudnn_inner(struct cudnn_graph *g, const struct shape *nhwc)
{
    const int64_t *d = nhwc->dim;

    return cuda_cudnn_graph_image(g, DTYPE_F32, (const int64_t[]){d[0], d[3], d[1], d[2]}, 1);
}

static cudnnBackendDescriptor_t *tensor_of(struct cudnn_graph *g, int id)
{
    return &g->object[g->err.code ? 0 : g->tensor[id].object];
}

/* A product multiplies this tensor. */
static void cuda_cudnn_graph_multiplies(struct cudnn_graph *g, int id)
{
    g->f32 |= g->tensor[id].type == CUDNN_DATA_FLOAT;
}

static void add_op(struct cudnn_graph *g, cudnnBackendDescriptorType_t type, const struct attr *a,
                   int n, const char *doing)
{
    cudnnBackendDescriptor_t d = cuda_cudnn_graph_describe(g, type, a, n, doing);

    ASSERT(g->n_ops < MAX_OPS);
    if (d)
        g->op[g->n_ops++] = d;
}

static cudnnBackendDescriptor_t cuda_cudnn_graph_convolution(struct cudnn_graph *g,
                                                             const struct cudnn_window *c)
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

    return cuda_cudnn_graph_describe(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, a, ARRAY_LEN(a),
                                     "convolution");
}

/* The operation of each pass, and its attributes' names: convolution, x, w, y, alpha, beta.
 * result: which of x, w, y it computes. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t name[6];
    const char *doing;
    int result;
} pass_table[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
     "convolution, forward",
     2},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
     "convolution, gradient of x",
     0},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
     "convolution, gradient of w",
     1},
};

void cudnn_convolve(struct cudnn_graph *g, enum cudnn_pass pass, const struct cudnn_window *c,
                    int x, int w, int y, int adds)
{
    cudnnBackendDescriptor_t conv = cuda_cudnn_graph_convolution(g, c);
    const float alpha = 1.0f, beta = adds ? 1.0f : 0.0f;
    const void *value[] = {&conv, tensor_of(g, x), tensor_of(g, w), tensor_of(g, y), &alpha, &beta};
    struct attr a[6];

    for (int i = 0; i < 6; i++)
        a[i] = (struct attr){pass_table[pass].name[i],
                             i < 4 ? CUDNN_TYPE_BACKEND_DESCRIPTOR : CUDNN_TYPE_FLOAT, 1, value[i]};
    for (int i = 0; i < 3; i++)
        if (i != pass_table[pass].result)
            cuda_cudnn_graph_multiplies(g, (int[]){x, w, y}[i]);
    add_op(g, pass_table[pass].type, a, 6, pass_table[pass].doing);
}

/* y = mode(x, b, t) in the precision; b or t < 0: mode has no such operand. */
struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t precision;
    int64_t axis; /* GEN_INDEX: of which dimension */
    int x, b, t, y;
};

static cudnnBackendDescriptor_t cuda_cudnn_graph_function_of(struct cudnn_graph *g,
                                                             const struct pointwise *p)
{
    const cudnnNanPropagation_t keep = CUDNN_PROPAGATE_NAN;
    struct attr a[] = {
        ATTR(POINTWISE_MODE, POINTWISE_MODE, 1, &p->mode),
        ATTR(POINTWISE_MATH_PREC, DATA_TYPE, 1, &p->precision),
        ATTR(POINTWISE_NAN_PROPAGATION, NAN_PROPOGATION, 1, &keep),
    };
    const struct attr axis = ATTR(POINTWISE_AXIS, INT64, 1, &p->axis);
    const int is_index = p->mode == CUDNN_POINTWISE_GEN_INDEX;

    if (is_index)
        a[2] = axis;
    return cuda_cudnn_graph_describe(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, a,
                                     is_index || p->mode == CUDNN_POINTWISE_RELU_FWD ? 3 : 2,
                                     "pointwise function");
}

static void cuda_cudnn_graph_pointwise(struct cudnn_graph *g, const struct pointwise *p)
{
    cudnnBackendDescriptor_t d = cuda_cudnn_graph_function_of(g, p);
    struct attr a[5] = {
        ATTR(OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1, &d),
        ATTR(OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, p->x)),
        ATTR(OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, p->y)),
    };
    int n = 3;

    if (p->b >= 0)
        a[n++] =
            (struct attr)ATTR(OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, p->b));
    if (p->t >= 0)
        a[n++] =
            (struct attr)ATTR(OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, p->t));
    add_op(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, a, n, "pointwise");
}

void cudnn_apply(struct cudnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y)
{
    cuda_cudnn_graph_pointwise(g, &(struct pointwise){mode, CUDNN_DATA_FLOAT, 0, x, b, -1, y});
}

void cudnn_index(struct cudnn_graph *g, int64_t axis, int x, int y)
{
    cuda_cudnn_graph_pointwise(
        g, &(struct pointwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, axis, x, -1, -1, y});
}

void cudnn_compare(struct cudnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y)
{
    cuda_cudnn_graph_pointwise(g, &(struct pointwise){mode, CUDNN_DATA_BOOLEAN, 0, x, b, -1, y});
}

void cudnn_select(struct cudnn_graph *g, int mask, int x, int b, int y)
{
    cuda_cudnn_graph_pointwise(
        g, &(struct pointwise){CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, x, b, mask, y});
}

void cudnn_matmul(struct cudnn_graph *g, int a, int b, int c)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    const struct attr sums = ATTR(MATMUL_COMP_TYPE, DATA_TYPE, 1, &f32);
    cudnnBackendDescriptor_t d =
        cuda_cudnn_graph_describe(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, &sums, 1, "product's sums");
    const struct attr of[] = {ATTR(OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, a)),
                              ATTR(OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, b)),
                              ATTR(OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, c)),
                              ATTR(OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR, 1, &d)};

    cuda_cudnn_graph_multiplies(g, a);
    cuda_cudnn_graph_multiplies(g, b);
    add_op(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, of, ARRAY_LEN(of), "product");
}

void cudnn_reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t op, int x, int y)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    const struct attr how[] = {ATTR(REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, &op),
                               ATTR(REDUCTION_COMP_TYPE, DATA_TYPE, 1, &f32)};
    cudnnBackendDescriptor_t d = cuda_cudnn_graph_describe(
        g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, how, ARRAY_LEN(how), "reduction's function");
    const struct attr of[] = {
        ATTR(OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR, 1, &d),
        ATTR(OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, x)),
        ATTR(OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, y))};

    add_op(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, of, ARRAY_LEN(of), "reduction");
}

void cudnn_reshape(struct cudnn_graph *g, int x, int y)
{
    const struct attr of[] = {
        ATTR(OPERATION_RESHAPE_XDESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, x)),
        ATTR(OPERATION_RESHAPE_YDESC, BACKEND_DESCRIPTOR, 1, tensor_of(g, y))};

    add_op(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, of, ARRAY_LEN(of), "reshape");
}
