/* fake_cublaslt - cuBLASLt's calls as the backend makes them: descriptors, heuristics, and
 * products with their epilogues, computed on the CPU. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cudasim/host_work.h"
#include "base/util.h"
#include "fake_state.h"
#include "tensor/half.h"

int fake_refuse_tails, fake_open_things, fake_queries, fake_disowned = -1;
int fake_runs[FAKE_ENGINES];
static int fail_in, is_silent;

void fakes_refuse_tails(int how) { fake_refuse_tails = how; }

int fakes_fail_at(int n)
{
    const int left = fail_in;

    fail_in = n;
    return left;
}

int fake_fails(void) { return fail_in > 0 && --fail_in == 0; }

int fakes_open_things(void) { return fake_open_things; }

int fakes_queries(void) { return fake_queries; }

int fakes_runs(int i) { return fake_runs[i]; }

void fakes_disown(int i) { fake_disowned = i; }

void fakes_keep_silent(int silent) { is_silent = silent; }

void fakes_forget_runs(void)
{
    fake_queries = 0;
    memset(fake_runs, 0, sizeof fake_runs);
}

enum { WORKSPACE = 777, ALIGNMENT = 16, WORKSPACE_ALIGNMENT = 256 };

/* Algorithms in the order of the heuristics, by data[0]; data[1] tells for which product an
 * algorithm was made.  The first one rounds to TF32. */
static const int algos[] = {0, FAKE_FIRST, FAKE_QUICK};
enum { ALGO_TF32 = 0 };

static double cost_us(int algo) { return algo == FAKE_QUICK ? 10.0 : 20.0; }

struct description { /* what a cublasLtMatmulDesc_t points to */
    cublasOperation_t op[2];
    cublasLtEpilogue_t epilogue;
    void *bias, *aux;
    int64_t aux_ld;
};

struct layout {
    int64_t rows, cols, ld;
    enum dtype type;
};

struct preference {
    size_t max_workspace;
    uint32_t alignment, schemes;
};

struct product { /* queued */
    struct description d;
    struct layout a, b, c;
    const void *pa, *pb;
    void *pc, *workspace;
    int algo;
    float beta;
};

_Static_assert((int)FAKE_PLAIN == (int)CUBLASLT_EPILOGUE_DEFAULT &&
                   (int)FAKE_BIAS == (int)CUBLASLT_EPILOGUE_BIAS &&
                   (int)FAKE_RELU_AUX_BIAS == (int)CUBLASLT_EPILOGUE_RELU_AUX_BIAS &&
                   (int)FAKE_DRELU == (int)CUBLASLT_EPILOGUE_DRELU &&
                   (int)FAKE_GELU_AUX_BIAS == (int)CUBLASLT_EPILOGUE_GELU_AUX_BIAS &&
                   (int)FAKE_DGELU == (int)CUBLASLT_EPILOGUE_DGELU &&
                   (int)FAKE_BGRADB == (int)CUBLASLT_EPILOGUE_BGRADB,
               "as fakes.h numbers them");

static int epilogue_runs[FAKE_EPILOGUES];

int fakes_epilogue_runs(int epilogue) { return epilogue_runs[epilogue]; }

static void note_epilogue(int epilogue) { epilogue_runs[epilogue]++; }

static void *opened(size_t n_bytes)
{
    fake_open_things++;
    return calloc(1, n_bytes);
}

static cublasStatus_t closed(void *p)
{
    fake_open_things--;
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

/* Two functions of the runtime that the simulator lacks. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "simulator %d", device);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

size_t cublasLtGetVersion(void) { return 130100; }

const char *cublasLtGetStatusName(cublasStatus_t st) { return st ? "FAKE_STATUS" : "SUCCESS"; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    if (fake_fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;

    *h = opened(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { return closed(h); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (fake_fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;

    struct description *p = opened(sizeof *p);

    ASSERT(compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F);
    p->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *d = (cublasLtMatmulDesc_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return closed(d); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t n_bytes)
{
    if (fake_fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;

    struct description *d = (void *)desc;
    void *to = NULL;
    size_t size = sizeof(cublasOperation_t);

    if (name == CUBLASLT_MATMUL_DESC_TRANSA)
        to = &d->op[0];
    else if (name == CUBLASLT_MATMUL_DESC_TRANSB)
        to = &d->op[1];
    else if (name == CUBLASLT_MATMUL_DESC_EPILOGUE)
        to = &d->epilogue;
    else if (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        to = &d->bias, size = sizeof d->bias;
    else if (name == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)
        to = &d->aux, size = sizeof d->aux;
    else if (name == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD)
        to = &d->aux_ld, size = sizeof d->aux_ld;
    if (!to || n_bytes != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

static enum dtype dtype_of(cudaDataType type)
{
    ASSERT(type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F);
    return type == CUDA_R_32F ? DTYPE_F32 : type == CUDA_R_16BF ? DTYPE_BF16 : DTYPE_F16;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    if (fake_fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;

    struct layout *p = opened(sizeof *p);

    ASSERT(ld >= (int64_t)rows && rows > 0 && cols > 0);
    *p = (struct layout){(int64_t)rows, (int64_t)cols, ld, dtype_of(type)};
    *l = (cublasLtMatrixLayout_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return closed(l); }

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *pref)
{
    if (fake_fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;

    struct preference *p = opened(sizeof *p);

    p->alignment = 256;
    *pref = (cublasLtMatmulPreference_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
    return closed(pref);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *value, size_t n_bytes)
{
    if (fake_fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;

    struct preference *p = (void *)pref;

    if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        ASSERT(n_bytes == sizeof p->max_workspace);
        memcpy(&p->max_workspace, value, n_bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    ASSERT(n_bytes == sizeof(uint32_t));
    if (name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        memcpy(&p->schemes, value, n_bytes);
    else
        memcpy(&p->alignment, value, n_bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static int is_refused(int epilogue)
{
    switch (fake_refuse_tails) {
    case FAKE_NO_RELU_AUX:
        return epilogue == CUBLASLT_EPILOGUE_RELU_AUX ||
               epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
    case FAKE_NO_DRELU:
        return epilogue == CUBLASLT_EPILOGUE_DRELU;
    default:
        return fake_refuse_tails && epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    }
}

static uint64_t signature(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t d)
{
    const struct layout *l = (const void *)d;

    return (uint64_t)(l->rows << 32 | l->cols << 12) | ((const struct description *)desc)->epilogue;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t pref, int room,
                                              cublasLtMatmulHeuristicResult_t result[], int *n)
{
    if (fake_fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;

    const struct preference *p = (const void *)pref;
    const struct description *what = (const void *)desc;

    (void)h, (void)a, (void)b, (void)c;
    ASSERT(room >= (int)ARRAY_LEN(algos) && p->alignment <= ALIGNMENT &&
           p->max_workspace >= WORKSPACE);
    ASSERT(!(p->schemes & CUBLASLT_REDUCTION_SCHEME_INPLACE));
    memset(result, 0, (size_t)room * sizeof *result);
    *n = 0;
    fake_queries++;
    if (is_refused((int)what->epilogue))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (size_t i = 0; i < ARRAY_LEN(algos); i++)
        if (algos[i] != fake_disowned) {
            result[*n].algo.data[0] = (uint64_t)algos[i];
            result[*n].algo.data[1] = signature(desc, d);
            result[*n].workspaceSize = WORKSPACE;
            result[(*n)++].state = CUBLAS_STATUS_SUCCESS;
        }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    if (fake_fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;

    (void)h, (void)a, (void)b, (void)c;
    if ((int)algo->data[0] == fake_disowned || algo->data[0] > FAKE_QUICK ||
        algo->data[1] != signature(desc, d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    result->algo = *algo;
    result->workspaceSize = WORKSPACE;
    result->state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                 cublasLtMatmulAlgoCapAttributes_t name,
                                                 void *value, size_t n_bytes, size_t *written)
{
    if (fake_fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;
    if (is_silent)
        return CUBLAS_STATUS_NOT_SUPPORTED;

    const uint64_t tf32 = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32;
    const uint64_t f32 = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F;
    const uint64_t flags = algo->data[0] == ALGO_TF32    ? tf32
                           : algo->data[0] == FAKE_FIRST ? f32
                                                         : tf32 | f32; /* it can do both */

    ASSERT(name == CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS && n_bytes == sizeof flags);
    memcpy(value, &flags, sizeof flags);
    *written = sizeof flags;
    return CUBLAS_STATUS_SUCCESS;
}

static float element(const void *p, const struct layout *l, cublasOperation_t op, int64_t row,
                     int64_t col)
{
    const int64_t r = op == CUBLAS_OP_T ? col : row, c = op == CUBLAS_OP_T ? row : col;

    ASSERT(r < l->rows && c < l->cols);
    return real_get(p, l->type, r + c * l->ld);
}

/* The bits of which the values of cublasLtEpilogue_t are made. */
enum { RELU = 2, BIAS = 4, DRELU = 8, GELU = 32, DGELU = 64, AUX = 128 };

static double gelu(double x, double *slope)
{
    const double k = sqrt(2.0 / acos(-1.0)), t = tanh(k * (x + 0.044715 * x * x * x));

    *slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * k * (1.0 + 3.0 * 0.044715 * x * x);
    return 0.5 * x * (1.0 + t);
}

static unsigned char *mask_byte(const struct product *p, int64_t i, int64_t j)
{
    return (unsigned char *)p->d.aux + (j * p->d.aux_ld + i) / 8;
}

/* The activation of v; relu may write its mask, and gelu its input, to aux. */
static double activated(const struct product *p, double v, int64_t i, int64_t j)
{
    const int e = (int)p->d.epilogue;
    double slope;

    if (e & GELU && e & AUX) {
        real_put(p->d.aux, p->c.type, i + j * p->d.aux_ld, (float)v);
        v = (double)real_get(p->d.aux, p->c.type, i + j * p->d.aux_ld);
    }
    if (e & GELU)
        return gelu(v, &slope);
    if (e & RELU && e & AUX) {
        unsigned char *byte = mask_byte(p, i, j);

        *byte = (unsigned char)((*byte & ~(1 << i % 8)) | (v > 0.0) << i % 8);
    }
    return e & RELU && v < 0.0 ? 0.0 : v;
}

/* Element (i,j) of the product after its epilogue; v is the sum. */
static float finished(const struct product *p, float v, int64_t i, int64_t j)
{
    const int e = (int)p->d.epilogue;
    double slope;

    if (e == CUBLASLT_EPILOGUE_BGRADB)
        return v;
    if (e & BIAS)
        v += real_get(p->d.bias, p->c.type, i);
    if (e & DRELU)
        return *mask_byte(p, i, j) >> i % 8 & 1 ? v : 0.0f;
    if (e & DGELU) {
        (void)gelu((double)real_get(p->d.aux, p->c.type, i + j * p->d.aux_ld), &slope);
        return (float)((double)v * slope);
    }
    return (float)activated(p, (double)v, i, j);
}

static int64_t depth(const struct product *p)
{
    return p->d.op[0] == CUBLAS_OP_T ? p->a.rows : p->a.cols;
}

static void multiply(void *arg)
{
    struct product *p = arg;

    fake_runs[p->algo]++;
    sim_spend(cost_us(p->algo));
    memset(p->workspace, 0xff, WORKSPACE);
    for (int64_t j = 0; j < p->c.cols; j++) {
        float db = 0.0f;

        for (int64_t i = 0; i < p->c.rows; i++) {
            float sum = 0.0f;

            for (int64_t k = 0; k < depth(p); k++)
                sum += element(p->pa, &p->a, p->d.op[0], i, k) *
                       element(p->pb, &p->b, p->d.op[1], k, j);
            sum = finished(p, sum, i, j);
            if (p->beta != 0.0f)
                sum += p->beta * real_get(p->pc, p->c.type, i + j * p->c.ld);
            real_put(p->pc, p->c.type, i + j * p->c.ld, sum);
        }
        for (int64_t k = 0; k < depth(p); k++)
            db += element(p->pb, &p->b, p->d.op[1], k, j);
        if (p->d.epilogue == CUBLASLT_EPILOGUE_BGRADB)
            real_put(p->d.bias, p->c.type, j, db);
    }
}

static int is_aligned(const void *p) { return p && (uintptr_t)p % ALIGNMENT == 0; }

/* Not the placeholder that stood there while the heuristics were asked. */
static int is_real(const void *p) { return is_aligned(p) && (uintptr_t)p > ALIGNMENT; }

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t n_bytes,
                              cudaStream_t stream)
{
    if (fake_fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;

    const struct description *what = (const void *)desc;
    struct product *p = calloc(1, sizeof *p);

    (void)h;
    ASSERT(*(const float *)alpha == 1.0f);
    ASSERT(*(const float *)beta == 0.0f || what->epilogue == CUBLASLT_EPILOGUE_DEFAULT);
    ASSERT(c == d && lc == ld && n_bytes >= WORKSPACE);
    ASSERT(is_aligned(a) && is_aligned(b) && is_aligned(d));
    ASSERT(workspace && (uintptr_t)workspace % WORKSPACE_ALIGNMENT == 0);
    *p = (struct product){*what,
                          *(const struct layout *)(const void *)la,
                          *(const struct layout *)(const void *)lb,
                          *(const struct layout *)(const void *)lc,
                          a,
                          b,
                          d,
                          workspace,
                          (int)algo->data[0],
                          *(const float *)beta};
    ASSERT(p->algo != ALGO_TF32 || p->a.type != DTYPE_F32 || is_silent);
    ASSERT(algo->data[1] == signature(desc, ld));
    ASSERT(p->a.type == p->b.type && (p->c.type == p->a.type || p->c.type == DTYPE_F32));
    if (what->epilogue & BIAS || what->epilogue == CUBLASLT_EPILOGUE_BGRADB)
        ASSERT(is_real(what->bias));
    if (what->epilogue & AUX)
        ASSERT(is_real(what->aux) && what->aux_ld >= p->c.rows &&
               what->aux_ld % (what->epilogue & (GELU | DGELU) ? 8 : 128) == 0);
    note_epilogue((int)what->epilogue);
    sim_host_work_owned(stream, multiply, p, free);
    return CUBLAS_STATUS_SUCCESS;
}
