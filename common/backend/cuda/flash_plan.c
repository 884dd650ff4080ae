/* flash_plan - attention as a graph of cuDNN's operations.
 *
 * op/attention.c has the formulas; the comments here name its letters.  cuDNN recognises attention
 * by the order of the operations and by the types of the tensors between them, so both must stay as
 * they are.  [T,T] is a tensor of one matrix for each head of each sample, [T,1] of one column. */
#include "backend/cuda/flash_plan.h"

#include <math.h>
#include <stdio.h>

#include "base/util.h"

struct drawing {
    struct cudnn_graph *g;
    const struct flash_shape *s;
    cudnnDataType_t half; /* the element type of the operands */
    int scale, minus_infinity;
};

/* Q, K or V in the array of all three, or its gradient: one head is [T,D]. */
static int cuda_flash_plan_part(const struct drawing *w)
{
    const struct flash_shape *s = w->s;
    const int64_t row = 3 * s->heads * s->d;

    return cudnn_tensor(w->g,
                        &(struct cudnn_tensor){w->half,
                                               {s->samples, s->heads, s->length, s->d},
                                               {s->length * row, s->d, row, 1}},
                        0);
}

/* The same, read as [D,T]. */
static int part_transposed(const struct drawing *w)
{
    const struct flash_shape *s = w->s;
    const int64_t row = 3 * s->heads * s->d;

    return cudnn_tensor(w->g,
                        &(struct cudnn_tensor){w->half,
                                               {s->samples, s->heads, s->d, s->length},
                                               {s->length * row, s->d, 1, row}},
                        0);
}

/* y or dy: one head is [T,D]. */
static int cuda_flash_plan_result(const struct drawing *w)
{
    const struct flash_shape *s = w->s;
    const int64_t row = s->heads * s->d;

    return cudnn_tensor(w->g,
                        &(struct cudnn_tensor){w->half,
                                               {s->samples, s->heads, s->length, s->d},
                                               {s->length * row, s->d, row, 1}},
                        0);
}

/* A packed tensor of `rows` x `cols` for each head of each sample. */
static int cuda_flash_plan_packed(const struct drawing *w, cudnnDataType_t type, int64_t rows,
                                  int64_t cols, int is_inner)
{
    const struct flash_shape *s = w->s;

    return cudnn_tensor(w->g,
                        &(struct cudnn_tensor){type,
                                               {s->samples, s->heads, rows, cols},
                                               {s->heads * rows * cols, rows * cols, cols, 1}},
                        is_inner);
}

static int cuda_flash_plan_square(const struct drawing *w, cudnnDataType_t type)
{
    return cuda_flash_plan_packed(w, type, w->s->length, w->s->length, 1);
}

static int cuda_flash_plan_column(const struct drawing *w, int is_inner)
{
    return cuda_flash_plan_packed(w, CUDNN_DATA_FLOAT, w->s->length, 1, is_inner);
}

/* mode(x, b) as a new [T,T]; b < 0: mode(x). */
static int cuda_flash_plan_apply(const struct drawing *w, cudnnPointwiseMode_t mode, int x, int b,
                                 cudnnDataType_t type)
{
    const int y = cuda_flash_plan_square(w, type);

    cudnn_apply(w->g, mode, x, b, y);
    return y;
}

/* x where the query sees the key, -infinity elsewhere. */
static int cuda_flash_plan_masked(const struct drawing *w, int x)
{
    int row, col, sees, y;

    if (!w->s->causal)
        return x;
    row = cuda_flash_plan_square(w, CUDNN_DATA_INT32);
    col = cuda_flash_plan_square(w, CUDNN_DATA_INT32);
    sees = cuda_flash_plan_square(w, CUDNN_DATA_BOOLEAN);
    y = cuda_flash_plan_square(w, CUDNN_DATA_FLOAT);
    cudnn_index(w->g, 2, x, row);
    cudnn_index(w->g, 3, x, col);
    cudnn_compare(w->g, CUDNN_POINTWISE_CMP_GE, row, col, sees);
    cudnn_select(w->g, sees, x, w->minus_infinity, y);
    return y;
}

/* [T,T] x transposed, in half precision. */
static int cuda_flash_plan_transposed(const struct drawing *w, int x)
{
    const struct flash_shape *s = w->s;
    const int64_t n = s->length;
    const int y =
        cudnn_tensor(w->g,
                     &(struct cudnn_tensor){
                         w->half, {s->samples, s->heads, n, n}, {s->heads * n * n, n * n, 1, n}},
                     1);

    cudnn_reshape(w->g, x, y);
    return y;
}

static int sum_of_keys(const struct drawing *w, cudnnReduceTensorOp_t op, int x)
{
    const int y = cuda_flash_plan_column(w, 1);

    cudnn_reduce(w->g, op, x, y);
    return y;
}

static int cuda_flash_plan_scores(const struct drawing *w, int q, int k)
{
    const int s = cuda_flash_plan_square(w, CUDNN_DATA_FLOAT);

    cudnn_matmul(w->g, q, k, s);
    return cuda_flash_plan_apply(w, CUDNN_POINTWISE_MUL, s, w->scale, CUDNN_DATA_FLOAT);
}

/* y = softmax(s) v, and the statistics. */
static void draw_forward(struct drawing *w)
{
    const int q = cuda_flash_plan_part(w), k = part_transposed(w), v = cuda_flash_plan_part(w),
              y = cuda_flash_plan_result(w), stats = cuda_flash_plan_column(w, 0);
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    int s, most, e, sum, log, p;

    ASSERT(q == FLASH_Q && k == FLASH_K && v == FLASH_V && y == FLASH_Y && stats == FLASH_STATS);
    w->scale = cudnn_number(w->g, 1.0f / sqrtf((float)w->s->d));
    w->minus_infinity = cudnn_number(w->g, -INFINITY);
    s = cuda_flash_plan_masked(w, cuda_flash_plan_scores(w, q, k));
    most = sum_of_keys(w, CUDNN_REDUCE_TENSOR_MAX, s);
    e = cuda_flash_plan_apply(w, CUDNN_POINTWISE_EXP,
                              cuda_flash_plan_apply(w, CUDNN_POINTWISE_SUB, s, most, f32), -1, f32);
    sum = sum_of_keys(w, CUDNN_REDUCE_TENSOR_ADD, e);
    log = cuda_flash_plan_column(w, 1);
    cudnn_apply(w->g, CUDNN_POINTWISE_LOG, sum, -1, log);
    cudnn_apply(w->g, CUDNN_POINTWISE_ADD, most, log, stats);
    p = cuda_flash_plan_apply(w, CUDNN_POINTWISE_DIV, e, sum, w->half);
    cudnn_matmul(w->g, p, v, y);
}

/* dots = sum over d of dy*y, which equals the sum over k of p*dp. */
static void draw_dots(const struct drawing *w, int y, int dy, int dots)
{
    const int product = cuda_flash_plan_packed(w, CUDNN_DATA_FLOAT, w->s->length, w->s->d, 1);
    const int sum = cuda_flash_plan_column(w, 1);

    cudnn_apply(w->g, CUDNN_POINTWISE_MUL, dy, y, product);
    cudnn_reduce(w->g, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    cudnn_apply(w->g, CUDNN_POINTWISE_MUL, sum, cudnn_number(w->g, 1.0f), dots);
}

/* K as [T,D] again: cuDNN wants the same tensor in both products. */
static int cuda_flash_plan_untransposed(const struct drawing *w, int k)
{
    const struct flash_shape *s = w->s;
    const int64_t row = 3 * s->heads * s->d;
    const int y = cudnn_tensor(w->g,
                               &(struct cudnn_tensor){w->half,
                                                      {s->samples, s->heads, s->length, s->d},
                                                      {s->length * row, s->d, row, 1}},
                               1);

    cudnn_reshape(w->g, k, y);
    return y;
}

static void draw_grad(struct drawing *w)
{
    const int q = cuda_flash_plan_part(w), k = part_transposed(w), v = part_transposed(w),
              y = cuda_flash_plan_result(w);
    const int stats = cuda_flash_plan_column(w, 0), dy = cuda_flash_plan_result(w),
              dq = cuda_flash_plan_part(w), dk = cuda_flash_plan_part(w),
              dv = cuda_flash_plan_part(w);
    const int dots = cuda_flash_plan_column(w, 0);
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    int p, dp, ds;

    ASSERT(stats == FLASH_STATS && dy == FLASH_DY && dv == FLASH_DV && dots == FLASH_DOTS);
    w->scale = cudnn_number(w->g, 1.0f / sqrtf((float)w->s->d));
    w->minus_infinity = cudnn_number(w->g, -INFINITY);
    draw_dots(w, y, dy, dots);
    p = cuda_flash_plan_apply(w, CUDNN_POINTWISE_SUB, cuda_flash_plan_scores(w, q, k), stats, f32);
    p = cuda_flash_plan_apply(w, CUDNN_POINTWISE_EXP, cuda_flash_plan_masked(w, p), -1, f32);
    cudnn_matmul(w->g, cuda_flash_plan_transposed(w, p), dy, dv);
    dp = cuda_flash_plan_square(w, f32);
    cudnn_matmul(w->g, dy, v, dp);
    ds = cuda_flash_plan_apply(w, CUDNN_POINTWISE_SUB, dp, dots, f32);
    ds = cuda_flash_plan_apply(w, CUDNN_POINTWISE_MUL, ds, p, f32);
    ds = cuda_flash_plan_apply(w, CUDNN_POINTWISE_MUL, ds, w->scale, w->half);
    cudnn_matmul(w->g, cuda_flash_plan_transposed(w, ds), q, dk);
    cudnn_matmul(w->g, ds, cuda_flash_plan_untransposed(w, k), dq);
}

int flash_plan(struct cudnn_device *d, const struct cudnn_rules *rules, const struct flash_shape *s,
               int is_grad, const struct cudnn_plan **out, struct err *err)
{
    char what[128];
    struct drawing w = {.s = s,
                        .half = s->dtype == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF};

    snprintf(what, sizeof what, "attention%s of %s, %lld x %lld rows, %lld heads of %lld%s",
             is_grad ? "'s gradient" : "", dtype_name(s->dtype), (long long)s->samples,
             (long long)s->length, (long long)s->heads, (long long)s->d,
             s->causal ? ", causal" : "");
    w.g = cudnn_graph_new(d, what);
    if (is_grad)
        draw_grad(&w);
    else
        draw_forward(&w);
    return cudnn_plan_for(w.g, rules, out, err);
}
