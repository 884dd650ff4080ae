/* A descriptor here is its attributes as they were set, and the execution reads them back.  Memory
 * is calloc's, since a run must not be seen to allocate. */
#include <cudnn.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cudasim/host_work.h"
#include "base/util.h"
#include "fake_state.h"
#include "tensor/half.h"

enum { MAX_ATTRS = 16, WORKSPACE = 1000 };

/* Engines in the order of the heuristics; the last is the one to take, and for halves the first. */
static const int engine_note[] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                                  CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_FFT,
                                  -1};

struct attr {
    int name;
    int64_t n;
    size_t size; /* of one element */
    void *value;
};

struct desc {
    int type, n_refs, finalized;
    int number;          /* engine and engine configuration */
    struct desc *source; /* a configuration's heuristics */
    struct attr attr[MAX_ATTRS];
    int n_attrs;
};

struct cudnnContext {
    cudaStream_t stream;
};

static size_t size_of(cudnnBackendAttributeType_t t)
{
    return t == CUDNN_TYPE_INT64 || t == CUDNN_TYPE_BACKEND_DESCRIPTOR || t == CUDNN_TYPE_HANDLE ||
                   t == CUDNN_TYPE_VOID_PTR
               ? 8
           : t == CUDNN_TYPE_BOOLEAN || t == CUDNN_TYPE_CHAR ? 1
                                                             : 4;
}

/* Attribute `name`, which must be there with n elements (-1: any number). */
static const void *get(const struct desc *d, int name, int64_t n)
{
    for (int i = 0; i < d->n_attrs; i++)
        if (d->attr[i].name == name) {
            ASSERT(n < 0 || d->attr[i].n == n);
            return d->attr[i].value;
        }
    ASSERT(n < 0);
    return NULL;
}

static struct desc *get_desc(const struct desc *d, int name)
{
    return *(struct desc *const *)get(d, name, 1);
}

/* ---- the calls ---- */

size_t cudnnGetVersion(void) { return 91900; }

const char *cudnnGetErrorString(cudnnStatus_t st) { return st ? "FAKE_STATUS" : "SUCCESS"; }

void cudnnGetLastErrorString(char *text, size_t room) { snprintf(text, room, "as told to"); }

cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    if (fake_fails())
        return CUDNN_STATUS_INTERNAL_ERROR;

    *out = calloc(1, sizeof **out);
    fake_open_things++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
    free(h);
    fake_open_things--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s)
{
    if (fake_fails())
        return CUDNN_STATUS_INTERNAL_ERROR;

    h->stream = s;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    if (fake_fails())
        return CUDNN_STATUS_INTERNAL_ERROR;

    struct desc *d = calloc(1, sizeof *d);

    d->type = type;
    d->n_refs = 1;
    fake_open_things++;
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

static void release(struct desc *d)
{
    if (!d || --d->n_refs > 0)
        return;
    for (int i = 0; i < d->n_attrs; i++) {
        const struct attr *a = &d->attr[i];

        if (a->size == 0) /* descriptors */
            for (int64_t j = 0; j < a->n; j++)
                release(((struct desc **)a->value)[j]);
        free(a->value);
    }
    release(d->source);
    fake_open_things--;
    free(d);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    release(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t desc,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *value)
{
    if (fake_fails())
        return CUDNN_STATUS_INTERNAL_ERROR;

    struct desc *d = desc;
    const int refers = type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
    const size_t size = size_of(type);
    struct attr *a = &d->attr[d->n_attrs++];

    ASSERT(!d->finalized && n > 0 && value && d->n_attrs <= MAX_ATTRS);
    *a = (struct attr){name, n, refers ? 0 : size, calloc((size_t)n, size)};
    memcpy(a->value, value, (size_t)n * size);
    for (int64_t i = 0; refers && i < n; i++) {
        ASSERT(((struct desc **)a->value)[i]->finalized);
        ((struct desc **)a->value)[i]->n_refs++;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t desc)
{
    if (fake_fails())
        return CUDNN_STATUS_INTERNAL_ERROR;

    ((struct desc *)desc)->finalized = 1;
    return CUDNN_STATUS_SUCCESS;
}

/* How many engines a graph has. */
static int64_t n_engines(const struct desc *heur)
{
    const struct desc *graph = get_desc(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    int n_ops = 0;

    for (int i = 0; i < graph->n_attrs; i++)
        if (graph->attr[i].name == CUDNN_ATTR_OPERATIONGRAPH_OPS)
            n_ops = (int)graph->attr[i].n;
    if (n_ops > 1 && fake_refuse_tails) /* none, or some that float32 must not take */
        return fake_refuse_tails == FAKE_NO_ENGINES ? 0 : 3;
    return (int64_t)ARRAY_LEN(engine_note);
}

static void fill_configs(struct desc *heur, int64_t n, struct desc **config)
{
    for (int64_t i = 0; i < n; i++) {
        config[i]->number = (int)i;
        config[i]->source = heur;
        config[i]->finalized = 1;
        heur->n_refs++;
    }
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const desc,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *n,
                                       void *out)
{
    if (fake_fails())
        return CUDNN_STATUS_INTERNAL_ERROR;

    struct desc *d = desc;

    (void)type;
    ASSERT(d->finalized || name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX || d->number >= 0);
    *n = 1;
    switch ((int)name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        *n = room ? n_engines(d) : n_engines(d) + 2; /* an upper bound at first */
        if (out)
            fill_configs(d, *n, out);
        break;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        (*(struct desc **)out)->number = d->number;
        break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        *(int64_t *)out = d->number;
        break;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *n = engine_note[d->number] >= 0;
        if (*n)
            *(int *)out = engine_note[d->number];
        break;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
        *n = 0;
        break;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)out = WORKSPACE;
        break;
    default:
        return CUDNN_STATUS_BAD_PARAM;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- execution ---- */

struct view { /* of a tensor in NCHW order */
    float *p;
    const int64_t *dim, *stride;
    int64_t uid;
    void *half; /* p's content rounded, for a real tensor of half precision; else NULL */
    enum dtype type;
};

enum { MAX_INNER = 8 };

struct run {
    struct desc *plan, *pack;
    struct view inner[MAX_INNER]; /* virtual tensors, and those of half precision, met so far */
    int n_inner;
};

static void *pointer_of(const struct desc *pack, int64_t uid)
{
    const int64_t *ids = get(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, -1);
    void *const *ptr = get(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, -1);

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
    const int type = *(const int *)get(t, CUDNN_ATTR_TENSOR_DATA_TYPE, 1);

    ASSERT(type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF);
    return type == CUDNN_DATA_FLOAT      ? DTYPE_F32
           : type == CUDNN_DATA_BFLOAT16 ? DTYPE_BF16
                                         : DTYPE_F16;
}

static struct view view(struct run *r, const struct desc *op, int name)
{
    const struct desc *t = get_desc(op, name);
    const bool *is_virtual = get(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, -1);
    struct view v = {NULL,
                     get(t, CUDNN_ATTR_TENSOR_DIMENSIONS, 4),
                     get(t, CUDNN_ATTR_TENSOR_STRIDES, 4),
                     *(const int64_t *)get(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1),
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

/* What an operation made, as memory holds it. */
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
    int pass; /* 0 y, 1 x, 2 w is computed */
};

/* Add what tap (r,s) and channel c of the filter k contribute at y[n,k,p,q]. */
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
    const struct desc *c = get_desc(op, name[0]);
    const struct conv v = {view(r, op, name[1]),
                           view(r, op, name[2]),
                           view(r, op, name[3]),
                           get(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2),
                           get(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2),
                           get(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2),
                           pass};

    ASSERT(*(const float *)get(op, name[4], 1) == 1.0f &&
           *(const float *)get(op, name[5], 1) == 0.0f);
    ASSERT(*(const int *)get(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, 1) == CUDNN_CROSS_CORRELATION);
    ASSERT(!memcmp(v.pad, get(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2), 2 * sizeof *v.pad));
    ASSERT(v.w.dim[0] == v.y.dim[1] && v.x.dim[1] % v.w.dim[1] == 0);
    ASSERT(v.x.type == v.w.type || pass == 0); /* no dw in F32 of halves */
    convolve(&v);
    round_off(pass == 0 ? &v.y : pass == 1 ? &v.x : &v.w);
}

static void run_pointwise(struct run *r, const struct desc *op)
{
    const struct desc *how = get_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const int mode = *(const int *)get(how, CUDNN_ATTR_POINTWISE_MODE, 1);
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
    const struct desc *config = get_desc(r->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const struct desc *graph = get_desc(config->source, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    struct desc *const *op = get(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, -1);
    void *workspace = *(void *const *)get(r->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1);

    memset(workspace, 0xff, WORKSPACE);
    for (int i = 0; i < graph->n_attrs; i++)
        if (graph->attr[i].name == CUDNN_ATTR_OPERATIONGRAPH_OPS)
            for (int64_t j = 0; j < graph->attr[i].n; j++)
                run_op(r, op[j]);
    ASSERT(is_half(r) ? config->number == 0 : engine_note[config->number] < 0);
    for (int i = 0; i < r->n_inner; i++)
        free(r->inner[i].p);
    release(r->plan);
    release(r->pack);
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
    sim_host_work(h->stream, execute, r);
    return CUDNN_STATUS_SUCCESS;
}
