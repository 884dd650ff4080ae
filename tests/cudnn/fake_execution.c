/* fake_execution - computes a plan of the stand-in for cuDNN: its operations one after another, in
 * float32, from the tensors' strides alone. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../cudasim/host_work.h"
#include "base/util.h"
#include "fake_cudnn.h"
#include "tensor/half.h"

static double cost_us(int engine) { return engine == FAKE_QUICK ? 10.0 : 20.0; }

/* A tensor.  p has an element for each place between the first and the last element of the tensor,
 * so that a tensor that is reshaped reads the same memory by other strides. */
struct view {
    float *p;
    const int64_t *dim, *stride;
    int64_t uid;
    void *half; /* a real tensor of half precision, whose content p has; else NULL */
    enum dtype type;
};

enum { MAX_INNER = 40 };

struct run {
    struct desc *plan, *pack;
    struct view inner[MAX_INNER]; /* the virtual and the half-precision tensors met so far */
    int n_inner;
};

static void *pointer_of(const struct desc *pack, int64_t uid)
{
    const int64_t *ids = fake_get(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, -1);
    void *const *ptr = fake_get(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, -1);

    for (int i = 0;; i++)
        if (ids[i] == uid)
            return ptr[i];
}

static int64_t n_elements(const struct view *v)
{
    return v->dim[0] * v->dim[1] * v->dim[2] * v->dim[3];
}

/* The place of element i, in the order of the dimensions. */
static int64_t place(const struct view *v, int64_t i)
{
    int64_t at = 0;

    for (int d = 4; d-- > 0; i /= v->dim[d])
        at += i % v->dim[d] * v->stride[d];
    return at;
}

/* Integers and booleans are computed as floats. */
static enum dtype dtype_of(const struct desc *t)
{
    const int type = *(const int *)fake_get(t, CUDNN_ATTR_TENSOR_DATA_TYPE, 1);

    return type == CUDNN_DATA_BFLOAT16 ? DTYPE_BF16
           : type == CUDNN_DATA_HALF   ? DTYPE_F16
                                       : DTYPE_F32;
}

static int is_set(const struct desc *t, int name)
{
    const bool *yes = fake_get(t, name, -1);

    return yes && *yes;
}

static struct view view(struct run *r, const struct desc *op, int name)
{
    const struct desc *t = fake_get_desc(op, name);
    struct view v = {NULL,
                     fake_get(t, CUDNN_ATTR_TENSOR_DIMENSIONS, 4),
                     fake_get(t, CUDNN_ATTR_TENSOR_STRIDES, 4),
                     *(const int64_t *)fake_get(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1),
                     NULL,
                     dtype_of(t)};
    void *real;

    for (int i = 0; i < r->n_inner; i++)
        if (r->inner[i].uid == v.uid)
            return r->inner[i];
    real = is_set(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL) ? NULL : pointer_of(r->pack, v.uid);
    ASSERT((uintptr_t)real % 16 == 0 || is_set(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE));
    if (real && v.type == DTYPE_F32) {
        v.p = real;
        return v;
    }
    v.p = calloc((size_t)place(&v, n_elements(&v) - 1) + 1, sizeof *v.p);
    v.half = real;
    for (int64_t i = 0; real && i < n_elements(&v); i++)
        v.p[place(&v, i)] = real_get(real, v.type, place(&v, i));
    ASSERT(r->n_inner < MAX_INNER);
    r->inner[r->n_inner++] = v;
    return v;
}

/* Round an operation's result as memory, or cuDNN between two operations, holds it. */
static void round_off(const struct view *v)
{
    uint16_t one[1];
    void *to = one;

    for (int64_t i = 0; v->type != DTYPE_F32 && i < n_elements(v); i++) {
        const int64_t from = place(v, i), at = v->half ? from : 0;

        if (v->half)
            to = v->half;
        real_put(to, v->type, at, v->p[from]);
        v->p[from] = real_get(to, v->type, at);
    }
}

static float *at(const struct view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return v->p + a * v->stride[0] + b * v->stride[1] + c * v->stride[2] + d * v->stride[3];
}

static void clear(const struct view *v)
{
    for (int64_t i = 0; i < n_elements(v); i++)
        v->p[place(v, i)] = 0.0f;
}

struct conv {
    struct view x, w, y;
    const int64_t *pad, *stride, *dilation;
    int pass; /* which tensor is computed: 0 y, 1 x, 2 w */
    int adds; /* the result is added to what that tensor holds */
};

/* Add the n products of one weight and of the elements that lie side by side in rows of x and y. */
static void add_products(const struct conv *v, int64_t n, float *x, float *w, float *y)
{
    const int64_t dx = v->stride[1] * v->x.stride[3], dy = v->y.stride[3];
    const float weight = *w;
    float sum = *w;

    if (v->pass == 0)
        for (int64_t i = 0; i < n; i++)
            y[i * dy] += x[i * dx] * weight;
    else if (v->pass == 1)
        for (int64_t i = 0; i < n; i++)
            x[i * dx] += y[i * dy] * weight;
    else
        for (int64_t i = 0; i < n; i++)
            sum += x[i * dx] * y[i * dy];
    if (v->pass == 2)
        *w = sum;
}

/* The least q >= 0 with q * stride + from >= to. */
static int64_t first_from(int64_t from, int64_t stride, int64_t to)
{
    return from >= to ? 0 : (to - from + stride - 1) / stride;
}

/* Add the products of all channels and taps (r,s) at row y[n,k,p,:]; i has these three numbers. */
static void add_row(const struct conv *v, const int64_t i[3])
{
    const int64_t per_group = v->w.dim[1], n_groups = v->x.dim[1] / per_group;
    const int64_t channel = i[1] / (v->w.dim[0] / n_groups) * per_group;
    const int64_t n_taps = v->w.dim[2] * v->w.dim[3];

    for (int64_t j = 0; j < per_group * n_taps; j++) {
        const int64_t c = j / n_taps, r = j % n_taps / v->w.dim[3], s = j % v->w.dim[3];
        const int64_t h = i[2] * v->stride[0] - v->pad[0] + r * v->dilation[0];
        const int64_t w = s * v->dilation[1] - v->pad[1]; /* beside q = 0 */
        const int64_t q = first_from(w, v->stride[1], 0);
        int64_t end = first_from(w, v->stride[1], v->x.dim[3]);

        end = end < v->y.dim[3] ? end : v->y.dim[3];
        if (h >= 0 && h < v->x.dim[2] && q < end)
            add_products(v, end - q, at(&v->x, i[0], channel + c, h, q * v->stride[1] + w),
                         at(&v->w, i[1], c, r, s), at(&v->y, i[0], i[1], i[2], q));
    }
}

static void convolve(const struct conv *v)
{
    int64_t i[3] = {0};
    int axis = 0;

    if (!v->adds)
        clear(v->pass == 0 ? &v->y : v->pass == 1 ? &v->x : &v->w);
    while (axis >= 0) {
        add_row(v, i);
        for (axis = 2; axis >= 0 && ++i[axis] == v->y.dim[axis]; axis--)
            i[axis] = 0;
    }
}

static void run_conv(struct run *r, const struct desc *op, int pass, const int name[6])
{
    const struct desc *c = fake_get_desc(op, name[0]);
    const float beta = *(const float *)fake_get(op, name[5], 1);
    const struct conv v = {view(r, op, name[1]),
                           view(r, op, name[2]),
                           view(r, op, name[3]),
                           fake_get(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2),
                           fake_get(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2),
                           fake_get(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2),
                           pass,
                           beta == 1.0f};

    ASSERT(*(const float *)fake_get(op, name[4], 1) == 1.0f && (beta == 0.0f || beta == 1.0f));
    ASSERT(*(const int *)fake_get(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, 1) ==
           CUDNN_CROSS_CORRELATION);
    ASSERT(!memcmp(v.pad, fake_get(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2), 2 * sizeof *v.pad));
    ASSERT(v.w.dim[0] == v.y.dim[1] && v.x.dim[1] % v.w.dim[1] == 0);
    ASSERT(v.x.type == v.w.type || pass == 0); /* no float32 dw of half-precision tensors */
    convolve(&v);
    round_off(pass == 0 ? &v.y : pass == 1 ? &v.x : &v.w);
}

/* The element of v that stands beside element i of y: v is broadcast. */
static float beside(const struct view *v, const struct view *y, int64_t i)
{
    int64_t at = 0;

    for (int d = 4; d-- > 0; i /= y->dim[d])
        if (v->dim[d] > 1)
            at += i % y->dim[d] * v->stride[d];
    return v->p[at];
}

static float apply(int mode, float x, float b, float t)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_LOG:
        return logf(x);
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return t != 0.0f ? x : b;
    default:
        ASSERT(mode == CUDNN_POINTWISE_RELU_FWD);
        return x < 0.0f ? 0.0f : x;
    }
}

/* Element i's index in dimension `axis`. */
static float index_of(const struct view *y, int64_t axis, int64_t i)
{
    for (int64_t d = 3; d > axis; d--)
        i /= y->dim[d];
    return (float)(i % y->dim[axis]);
}

static void run_pointwise(struct run *r, const struct desc *op)
{
    const struct desc *how = fake_get_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const int mode = *(const int *)fake_get(how, CUDNN_ATTR_POINTWISE_MODE, 1);
    const struct view x = view(r, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const struct view y = view(r, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    struct view b = x, t = x;

    if (fake_get(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, -1))
        b = view(r, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    if (fake_get(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, -1))
        t = view(r, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    for (int64_t i = 0; i < n_elements(&y); i++)
        y.p[place(&y, i)] =
            mode == CUDNN_POINTWISE_GEN_INDEX
                ? index_of(&y, *(const int64_t *)fake_get(how, CUDNN_ATTR_POINTWISE_AXIS, 1), i)
                : apply(mode, beside(&x, &y, i), beside(&b, &y, i), beside(&t, &y, i));
    round_off(&y);
}

static void run_matmul(struct run *r, const struct desc *op)
{
    const struct view a = view(r, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    const struct view b = view(r, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    const struct view c = view(r, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);

    ASSERT(a.dim[3] == b.dim[2] && a.dim[2] == c.dim[2] && b.dim[3] == c.dim[3]);
    ASSERT(a.type == b.type && a.type != DTYPE_F32);
    for (int64_t i = 0; i < n_elements(&c); i++) {
        const int64_t col = i % c.dim[3], row = i / c.dim[3] % c.dim[2];
        const int64_t head = i / c.dim[3] / c.dim[2] % c.dim[1],
                      sample = i / c.dim[3] / c.dim[2] / c.dim[1];
        float sum = 0.0f;

        for (int64_t k = 0; k < a.dim[3]; k++)
            sum += *at(&a, sample, head, row, k) * *at(&b, sample, head, k, col);
        *at(&c, sample, head, row, col) = sum;
    }
    round_off(&c);
}

/* Over the last dimension. */
static void run_reduction(struct run *r, const struct desc *op)
{
    const struct desc *how = fake_get_desc(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    const int is_max =
        *(const int *)fake_get(how, CUDNN_ATTR_REDUCTION_OPERATOR, 1) == CUDNN_REDUCE_TENSOR_MAX;
    const struct view x = view(r, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    const struct view y = view(r, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);

    ASSERT(y.dim[3] == 1 && x.dim[2] == y.dim[2]);
    for (int64_t i = 0; i < n_elements(&y); i++) {
        float all = is_max ? -INFINITY : 0.0f;

        for (int64_t j = 0; j < x.dim[3]; j++) {
            const float v = x.p[place(&x, i * x.dim[3] + j)];

            all = is_max ? fmaxf(all, v) : all + v;
        }
        y.p[place(&y, i)] = all;
    }
    round_off(&y);
}

static void run_reshape(struct run *r, const struct desc *op)
{
    const struct view x = view(r, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
    const struct view y = view(r, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);

    for (int64_t i = 0; i < n_elements(&y); i++)
        y.p[place(&y, i)] = x.p[place(&y, i)];
    round_off(&y);
}

#define NAMES(kind, x, w, y)                                 \
    (const int[])                                            \
    {                                                        \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_CONV_DESC, \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_##x,   \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_##w,   \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_##y,   \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_ALPHA, \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_BETA   \
    }

static void run_op(struct run *r, const struct desc *op)
{
    switch (op->type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        run_conv(r, op, 0, NAMES(FORWARD, X, W, Y));
        break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        run_conv(r, op, 1, NAMES(BWD_DATA, DX, W, DY));
        break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        run_conv(r, op, 2, NAMES(BWD_FILTER, X, DW, DY));
        break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        run_matmul(r, op);
        break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        run_reduction(r, op);
        break;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        run_reshape(r, op);
        break;
    default:
        ASSERT(op->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
        run_pointwise(r, op);
    }
}

static int is_half(const struct run *r)
{
    for (int i = 0; i < r->n_inner; i++)
        if (r->inner[i].half)
            return 1;
    return 0;
}

static void execute(void *arg)
{
    struct run *r = arg;
    const struct desc *config = fake_get_desc(r->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const struct desc *graph = fake_get_desc(config->source, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    struct desc *const *op = fake_get(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, -1);
    void *workspace = *(void *const *)fake_get(r->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1);

    fake_runs[config->number]++;
    sim_spend(cost_us(config->number));
    ASSERT((uintptr_t)workspace % 256 == 0);
    memset(workspace, 0xff, (size_t)fake_workspace(r->plan));
    for (int i = 0; i < graph->n_attrs; i++)
        if (graph->attr[i].name == CUDNN_ATTR_OPERATIONGRAPH_OPS)
            for (int64_t j = 0; j < graph->attr[i].n; j++)
                run_op(r, op[j]);
    ASSERT(is_half(r) ? fake_note_of(config->number) != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                      : fake_note_of(config->number) < 0);
    for (int i = 0; i < r->n_inner; i++)
        free(r->inner[i].p);
    r->n_inner = 0;
}

static void release_run(void *arg)
{
    struct run *r = arg;

    fake_release(r->plan);
    fake_release(r->pack);
    free(r);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    if (fake_fails())
        return CUDNN_STATUS_INTERNAL_ERROR;

    struct run *r = calloc(1, sizeof *r);

    ASSERT(((struct desc *)plan)->finalized && ((struct desc *)pack)->finalized);
    r->plan = plan;
    r->pack = pack;
    r->plan->n_refs++;
    r->pack->n_refs++;
    sim_host_work_owned(h->stream, execute, r, release_run);
    return CUDNN_STATUS_SUCCESS;
}
