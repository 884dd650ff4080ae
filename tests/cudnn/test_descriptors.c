/* The descriptors by which backend/cuda tells cuBLASLt about a product, made by the real library.
 * Descriptors need no GPU, so an attribute of the wrong size, or one that contradicts another,
 * fails here.  Two calls do need a GPU and are replaced here: the one that opens the library, and
 * the one that asks for algorithms.  The second replacement reads the descriptors back and checks
 * them. */
#include "../test.h"

#include <cublasLt.h>

#include <stdlib.h>
#include <string.h>

#include "backend/cuda/blas.h"
#include "backend/cuda/tune.h"
#include "base/util.h"

enum { BATCH = 20, IN = 48, OUT = 136 }; /* gelu's pre wants multiples of 8 */

static const struct expected {
    enum blas_tail tail;
    cublasLtEpilogue_t epilogue;
    int64_t saved_ld; /* 0: nothing is saved */
} expected[] = {
    {BLAS_ALONE, CUBLASLT_EPILOGUE_DEFAULT, 0},
    {BLAS_BIAS, CUBLASLT_EPILOGUE_BIAS, 0},
    {BLAS_BIAS_RELU, CUBLASLT_EPILOGUE_RELU_BIAS, 0},
    {BLAS_RELU, CUBLASLT_EPILOGUE_RELU, 0},
    {BLAS_BIAS_GRAD, CUBLASLT_EPILOGUE_BGRADB, 0},
    {BLAS_BIAS_RELU_MASK, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, 256},
    {BLAS_RELU_MASK, CUBLASLT_EPILOGUE_RELU_AUX, 256},
    {BLAS_BIAS_GELU, CUBLASLT_EPILOGUE_GELU_BIAS, 0},
    {BLAS_GELU, CUBLASLT_EPILOGUE_GELU, 0},
    {BLAS_BIAS_GELU_PRE, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, OUT},
    {BLAS_GELU_PRE, CUBLASLT_EPILOGUE_GELU_AUX, OUT},
    {BLAS_RELU_GRAD, CUBLASLT_EPILOGUE_DRELU, 128},
    {BLAS_GELU_GRAD, CUBLASLT_EPILOGUE_DGELU, IN},
};

/* ---- replacements for the calls that need a GPU ---- */

static int n_asked;
static const struct expected *now;
static struct gemm gemm;
static struct blas_types types;
static int allows_tf32;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    *h = (cublasLtHandle_t)(void *)&n_asked;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    assert_ptr_equal(h, &n_asked);
    return CUBLAS_STATUS_SUCCESS;
}

static void read_back(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name, void *to,
                      size_t n_bytes)
{
    size_t n = 0;

    assert_int_equal(cublasLtMatmulDescGetAttribute(d, name, to, n_bytes, &n), 0);
    assert_int_equal(n, n_bytes);
}

static void check_matrix(cublasLtMatrixLayout_t m, enum dtype type, int64_t rows, int64_t cols,
                         int64_t ld)
{
    static const cublasLtMatrixLayoutAttribute_t name[] = {
        CUBLASLT_MATRIX_LAYOUT_ROWS, CUBLASLT_MATRIX_LAYOUT_COLS, CUBLASLT_MATRIX_LAYOUT_LD};
    const int64_t want[] = {rows, cols, ld};
    uint32_t seen_type = 0;
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        int64_t seen = 0;

        assert_int_equal(cublasLtMatrixLayoutGetAttribute(m, name[i], &seen, sizeof seen, &n), 0);
        assert_int_equal(seen, want[i]);
    }
    assert_int_equal(cublasLtMatrixLayoutGetAttribute(m, CUBLASLT_MATRIX_LAYOUT_TYPE, &seen_type,
                                                      sizeof seen_type, &n),
                     0);
    assert_int_equal(seen_type, type == DTYPE_F32    ? CUDA_R_32F
                                : type == DTYPE_BF16 ? CUDA_R_16BF
                                                     : CUDA_R_16F);
}

static void check_tail(cublasLtMatmulDesc_t d)
{
    cublasLtEpilogue_t epilogue = 0;
    void *bias = NULL, *saved = NULL;
    int64_t ld = 0;

    read_back(d, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    assert_int_equal(epilogue, now->epilogue);
    read_back(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    assert_int_equal(bias != NULL, blas_tail_has_bias(now->tail));
    read_back(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &saved, sizeof saved);
    read_back(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
    assert_int_equal(saved != NULL, now->saved_ld > 0);
    assert_int_equal(ld, now->saved_ld);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t to,
                                              cublasLtMatmulPreference_t pref, int room,
                                              cublasLtMatmulHeuristicResult_t result[], int *n)
{
    cublasOperation_t op_a = CUBLAS_OP_C, op_b = CUBLAS_OP_C;
    int32_t compute = -1;

    assert_true(h && pref && room > 0 && to == c);
    read_back(d, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
    read_back(d, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
    read_back(d, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &compute, sizeof compute);
    assert_int_equal(op_a, gemm.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    assert_int_equal(op_b, gemm.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    assert_int_equal(compute, allows_tf32 && types.ab == DTYPE_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                   : CUBLAS_COMPUTE_32F);
    check_matrix(a, types.ab, gemm_rows_a(&gemm), gemm_cols_a(&gemm), gemm.lda);
    check_matrix(b, types.ab, gemm_rows_b(&gemm), gemm_cols_b(&gemm), gemm.ldb);
    check_matrix(c, types.c, gemm.m, gemm.n, gemm.ldc);
    check_tail(d);
    memset(result, 0, sizeof *result); /* an algorithm that does not tell how it rounds */
    *n = 1;
    n_asked++;
    return CUBLAS_STATUS_SUCCESS;
}

int tune_describe_gpu(const struct cuda *b, char out[TUNE_GPU_LEN], struct err *err)
{
    (void)b, (void)err;
    memcpy(out, "none", sizeof "none");
    return 0;
}

int tune_alloc(struct cuda *b, const size_t *n_bytes, int n, void **at, void **base,
               struct err *err)
{
    (void)b, (void)n_bytes, (void)n, (void)at, (void)base;
    return err_set(err, ERR_NOMEM, "nothing is timed here");
}

int tune_time(struct cuda *b, tune_work *work, void *arg, double *us, struct err *err)
{
    (void)b, (void)work, (void)arg, (void)us;
    return err_set(err, ERR_DEVICE, "nothing is timed here");
}

/* ---- the test ---- */

static enum gemm_pass pass_of(enum blas_tail tail)
{
    return tail == BLAS_BIAS_GRAD                             ? GEMM_GRAD_W
           : tail == BLAS_RELU_GRAD || tail == BLAS_GELU_GRAD ? GEMM_GRAD_X
                                                              : GEMM_FORWARD;
}

static void product(struct blas *b)
{
    const struct blas_rules rules = {.max_workspace = 1 << 20, .allow_tf32 = allows_tf32};
    static _Alignas(256) char memory[2][256];
    struct blas_product *p = NULL;
    struct err err;

    gemm = gemm_of(pass_of(now->tail), BATCH, IN, OUT);
    if (blas_product_new(b, &gemm, types, now->tail, &rules, &p, &err) < 0)
        fail_msg("tail %d: %s", (int)now->tail, err.msg);
    if (blas_product_bind(p, blas_tail_has_bias(now->tail) ? memory[0] : NULL,
                          now->saved_ld ? memory[1] : NULL, &err) < 0)
        fail_msg("tail %d: %s", (int)now->tail, err.msg);
    blas_product_free(p);
}

static void descriptors(void **state)
{
    static const struct blas_types all[] = {{DTYPE_F32, DTYPE_F32},
                                            {DTYPE_BF16, DTYPE_BF16},
                                            {DTYPE_F16, DTYPE_F16},
                                            {DTYPE_BF16, DTYPE_F32},
                                            {DTYPE_F16, DTYPE_F32}};
    struct cuda none = {0};
    struct blas *b = NULL;
    struct err err;

    (void)state;
    assert_int_equal(blas_open(&none, &b, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        for (size_t t = 0; t < ARRAY_LEN(all); t++)
            for (allows_tf32 = 0; allows_tf32 < 2; allows_tf32++) {
                now = &expected[i];
                types = all[t];
                product(b);
            }
    assert_int_equal(n_asked, 2 * ARRAY_LEN(expected) * ARRAY_LEN(all));
    blas_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(descriptors)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
