/* fake_execution - computes a plan of the stand-in for cuDNN: its operations one after another, in
 * float32, from the tensors' strides alone. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../cudasim/host_work.h"
#include "base/util.h"
#include "fake_cudnn.h"
#include "tensor/half.h"

static double cost_us(int engine) { return engine == FAKE_QUICK ? 10.0 : 20.0; }

struct view { /* a tensor, its axes in the order NCHW */
    float *p;
    const int64_t *dim, *stride;
    int64_t uid;
    void *half; /* p's content rounded, for a real tensor of half precision; else NULL */
    enum dtype type;
};

enum { MAX_INNER = 8 };

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

static enum dtype dtype_of(const struct desc *t)
{
    const int type = *(const int *)fake_get(t, CUDNN_ATTR_TENSOR_DATA_TYPE, 1);

    ASSERT(type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF);
    return type == CUDNN_DATA_FLOAT      ? DTYPE_F32
           : type == CUDNN_DATA_BFLOAT16 ? DTYPE_BF16
                                         : DTYPE_F16;
}

static struct view view(struct run *r, const struct desc *op, int name)
{
    const struct desc *t = fake_get_desc(op, name);
    const bool *is_virtual = fake_get(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, -1);
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
    real = is_virtual && *is_virtual ? NULL : pointer_of(r->pack, v.uid);
    if (real && v.type == DTYPE_F32) {
        ASSERT((uintptr_t)real % 16 == 0);
        v.p = real;
        return v;
    }
    v.p = calloc((size_t)n_elements(&v), sizeof *v.p);
    v.half = real;
    for (int64_t i = 0; real && i < n_elements(&v); i++)
        v.p[i] = real_get(real, v.type, i);
    ASSERT(r->n_inner < MAX_INNER);
    r->inner[r->n_inner++] = v;
    return v;
}

/* Round an operation's result as memory holds it. */
static void round_off(const struct view *v)
{
    for (int64_t i = 0; v->half && i < n_elements(v); i++) {
        real_put(v->half, v->type, i, v->p[i]);
        v->p[i] = real_get(v->half, v->type, i);
    }
}

static float *at(const struct view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return v->p + a * v->stride[0] + b * v->stride[1] + c * v->stride[2] + d * v->stride[3];
}

static void clear(const struct view *v)
{
    for (int64_t i = 0; i < n_elements(v); i++)
        v->p[i] = 0.0f;
}

struct conv {
    struct view x, w, y;
    const int64_t *pad, *stride, *dilation;
    int pass; /* which tensor is computed: 0 y, 1 x, 2 w */
};

/* Add the contribution of tap (r,s) and channel c of filter k at y[n,k,p,q]. */
static void tap(const struct conv *v, const int64_t i[7])
{
    const int64_t n = i[0], k = i[1], p = i[2], q = i[3], c = i[4], r = i[5], s = i[6];
    const int64_t per_group = v->w.dim[1], n_groups = v->x.dim[1] / per_group;
    const int64_t first = k / (v->w.dim[0] / n_groups) * per_group;
    const int64_t h = p * v->stride[0] - v->pad[0] + r * v->dilation[0];
    const int64_t w = q * v->stride[1] - v->pad[1] + s * v->dilation[1];
    float *fx, *fw, *fy;

    if (h < 0 || h >= v->x.dim[2] || w < 0 || w >= v->x.dim[3])
        return;
    fx = at(&v->x, n, first + c, h, w);
    fw = at(&v->w, k, c, r, s);
    fy = at(&v->y, n, k, p, q);
    if (v->pass == 0)
        *fy += *fx * *fw;
    else if (v->pass == 1)
        *fx += *fy * *fw;
    else
        *fw += *fx * *fy;
}

static void convolve(const struct conv *v)
{
    const int64_t end[7] = {v->y.dim[0], v->y.dim[1], v->y.dim[2], v->y.dim[3],
                            v->w.dim[1], v->w.dim[2], v->w.dim[3]};
    int64_t i[7] = {0};
    int axis = 0;

    clear(v->pass == 0 ? &v->y : v->pass == 1 ? &v->x : &v->w);
    while (axis >= 0) {
        tap(v, i);
        for (axis = 6; axis >= 0 && ++i[axis] == end[axis]; axis--)
            i[axis] = 0;
    }
}

static void run_conv(struct run *r, const struct desc *op, int pass, const int name[6])
{
    const struct desc *c = fake_get_desc(op, name[0]);
    const struct conv v = {view(r, op, name[1]),
                           view(r, op, name[2]),
                           view(r, op, name[3]),
                           fake_get(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2),
                           fake_get(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2),
                           fake_get(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2),
                           pass};

    ASSERT(*(const float *)fake_get(op, name[4], 1) == 1.0f &&
           *(const float *)fake_get(op, name[5], 1) == 0.0f);
    ASSERT(*(const int *)fake_get(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, 1) ==
           CUDNN_CROSS_CORRELATION);
    ASSERT(!memcmp(v.pad, fake_get(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2), 2 * sizeof *v.pad));
    ASSERT(v.w.dim[0] == v.y.dim[1] && v.x.dim[1] % v.w.dim[1] == 0);
    ASSERT(v.x.type == v.w.type || pass == 0); /* no float32 dw of half-precision tensors */
    convolve(&v);
    round_off(pass == 0 ? &v.y : pass == 1 ? &v.x : &v.w);
}

static void run_pointwise(struct run *r, const struct desc *op)
{
    const struct desc *how = fake_get_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const int mode = *(const int *)fake_get(how, CUDNN_ATTR_POINTWISE_MODE, 1);
    const struct view x = view(r, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const struct view y = view(r, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    struct view b = x;

    ASSERT(mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_RELU_FWD);
    if (mode == CUDNN_POINTWISE_ADD)
        b = view(r, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    for (int64_t n = 0; n < y.dim[0]; n++)
        for (int64_t k = 0; k < y.dim[1]; k++)
            for (int64_t h = 0; h < y.dim[2]; h++)
                for (int64_t w = 0; w < y.dim[3]; w++) {
                    const float v = *at(&x, n, k, h, w);
                    const float add = *at(&b, b.dim[0] > 1 ? n : 0, k, b.dim[2] > 1 ? h : 0,
                                          b.dim[3] > 1 ? w : 0);

                    *at(&y, n, k, h, w) = mode == CUDNN_POINTWISE_ADD ? v + add
                                          : v < 0.0f                  ? 0.0f
                                                                      : v;
                }
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
    memset(workspace, 0xff, FAKE_WORKSPACE);
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
