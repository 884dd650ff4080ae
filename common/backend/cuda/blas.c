/* blas - makes, chooses and runs products of cuBLASLt.
 *
 * A product is a description, three layouts and an algorithm.  The heuristics answer up to 8
 * algorithms, best first; the capabilities of each are checked against the rules.
 *
 * An algorithm is 64 opaque bytes.  NVIDIA lets programs keep them and give them back to the same
 * version of the library; cublasLtMatmulAlgoCheck() says whether they fit a product, and which
 * workspace they need. */
#include "backend/cuda/blas.h"

#include <cublasLt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/plan_cache.h"
#include "backend/cuda/tune.h"
#include "base/alloc.h"
#include "base/util.h"

enum { ALIGNMENT = 16, MASK_ALIGN = 128, CANDIDATES = 8, KEY_LEN = 384 };

struct key { /* compared as bytes, so key_of clears the padding */
    struct gemm g;
    size_t max_workspace;
    int ab, c, tail, allow_tf32, autotune;
};

struct candidate {
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
};

struct choice {
    struct key key;
    struct candidate found;
    struct choice *next;
};

struct blas {
    cublasLtHandle_t handle;
    struct cuda *cuda;
    char gpu[TUNE_GPU_LEN];
    struct choice *first;
};

struct blas_product {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    const struct choice *choice;
    enum blas_tail tail;
    int adds; /* as the gemm's */
};

static int cuda_blas_failed(cublasStatus_t st, const char *doing, struct err *err)
{
    if (st == CUBLAS_STATUS_SUCCESS)
        return 0;
    return err_set(err, ERR_DEVICE, "cuBLASLt %zu: %s: %s", cublasLtGetVersion(), doing,
                   cublasLtGetStatusName(st));
}

int blas_open(struct cuda *cuda, struct blas **out, struct err *err)
{
    struct blas *b = xcalloc(1, sizeof *b);
    int rc = tune_describe_gpu(cuda, b->gpu, err);

    if (rc == 0)
        rc = cuda_blas_failed(cublasLtCreate(&b->handle), "open", err);
    if (rc < 0) {
        free(b);
        return rc;
    }
    b->cuda = cuda;
    *out = b;
    return 0;
}

void blas_close(struct blas *b)
{
    if (!b)
        return;
    while (b->first) {
        struct choice *c = b->first;

        b->first = c->next;
        free(c);
    }
    cublasLtDestroy(b->handle);
    free(b);
}

static cudaDataType_t cuda_blas_data_type(enum dtype t)
{
    ASSERT(t == DTYPE_F32 || t == DTYPE_BF16 || t == DTYPE_F16);
    return t == DTYPE_F32 ? CUDA_R_32F : t == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

enum saved { SAVES_NOTHING, SAVES_MASK, SAVES_PRE };

static const struct {
    cublasLtEpilogue_t epilogue;
    int has_bias;
    enum saved saved;
    const char *text;
} tails[] = {
    [BLAS_ALONE] = {CUBLASLT_EPILOGUE_DEFAULT, 0, SAVES_NOTHING, ""},
    [BLAS_BIAS] = {CUBLASLT_EPILOGUE_BIAS, 1, SAVES_NOTHING, " + bias"},
    [BLAS_BIAS_RELU] = {CUBLASLT_EPILOGUE_RELU_BIAS, 1, SAVES_NOTHING, " + bias + relu"},
    [BLAS_RELU] = {CUBLASLT_EPILOGUE_RELU, 0, SAVES_NOTHING, " + relu"},
    [BLAS_BIAS_GRAD] = {CUBLASLT_EPILOGUE_BGRADB, 1, SAVES_NOTHING, " + gradient of the bias"},
    [BLAS_BIAS_RELU_MASK] = {CUBLASLT_EPILOGUE_RELU_AUX_BIAS, 1, SAVES_MASK,
                             " + bias + relu and its mask"},
    [BLAS_RELU_MASK] = {CUBLASLT_EPILOGUE_RELU_AUX, 0, SAVES_MASK, " + relu and its mask"},
    [BLAS_BIAS_GELU] = {CUBLASLT_EPILOGUE_GELU_BIAS, 1, SAVES_NOTHING, " + bias + gelu_tanh"},
    [BLAS_GELU] = {CUBLASLT_EPILOGUE_GELU, 0, SAVES_NOTHING, " + gelu_tanh"},
    [BLAS_BIAS_GELU_PRE] = {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 1, SAVES_PRE,
                            " + bias + gelu_tanh and its input"},
    [BLAS_GELU_PRE] = {CUBLASLT_EPILOGUE_GELU_AUX, 0, SAVES_PRE, " + gelu_tanh and its input"},
    [BLAS_RELU_GRAD] = {CUBLASLT_EPILOGUE_DRELU, 0, SAVES_MASK, " + gradient of relu"},
    [BLAS_GELU_GRAD] = {CUBLASLT_EPILOGUE_DGELU, 0, SAVES_PRE, " + gradient of gelu_tanh"},
};

int blas_tail_has_bias(enum blas_tail tail) { return tails[tail].has_bias; }

static cublasStatus_t cuda_blas_set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name,
                                    const void *value, size_t n_bytes)
{
    return cublasLtMatmulDescSetAttribute(d, name, value, n_bytes);
}

static cublasStatus_t set_bias(cublasLtMatmulDesc_t d, const void *bias)
{
    return cuda_blas_set(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

static cublasStatus_t set_saved(cublasLtMatmulDesc_t d, const void *saved)
{
    return cuda_blas_set(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &saved, sizeof saved);
}

/* The distance from one column to the next: in bits of a mask, in elements of pre. */
static int64_t saved_ld(const struct gemm *g, enum saved saved)
{
    return saved == SAVES_MASK ? round_up_i64(g->m, MASK_ALIGN) : g->m;
}

/* Describes the tail for the heuristics, to which only the alignment of an address matters. */
static cublasStatus_t describe_tail(struct blas_product *p, const struct gemm *g)
{
    const cublasLtEpilogue_t e = tails[p->tail].epilogue;
    const void *any = (const void *)(uintptr_t)ALIGNMENT;
    const int64_t ld = saved_ld(g, tails[p->tail].saved);
    cublasStatus_t st = cuda_blas_set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e);

    if (st == CUBLAS_STATUS_SUCCESS && tails[p->tail].has_bias)
        st = set_bias(p->desc, any);
    if (st == CUBLAS_STATUS_SUCCESS && tails[p->tail].saved) {
        st = set_saved(p->desc, any);
        if (st == CUBLAS_STATUS_SUCCESS)
            st = cuda_blas_set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
    }
    return st;
}

static cublasStatus_t cuda_blas_describe(struct blas_product *p, const struct gemm *g,
                                         struct blas_types t, int allow_tf32)
{
    const cublasComputeType_t compute =
        t.ab == DTYPE_F32 && allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t op_a = g->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = g->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t st = cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F);

    if (st == CUBLAS_STATUS_SUCCESS)
        st = cuda_blas_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = cuda_blas_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = describe_tail(p, g);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = cublasLtMatrixLayoutCreate(&p->a, cuda_blas_data_type(t.ab), (uint64_t)gemm_rows_a(g),
                                        (uint64_t)gemm_cols_a(g), g->lda);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = cublasLtMatrixLayoutCreate(&p->b, cuda_blas_data_type(t.ab), (uint64_t)gemm_rows_b(g),
                                        (uint64_t)gemm_cols_b(g), g->ldb);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = cublasLtMatrixLayoutCreate(&p->c, cuda_blas_data_type(t.c), (uint64_t)g->m,
                                        (uint64_t)g->n, g->ldc);
    return st;
}

static cublasStatus_t cuda_blas_prefer(cublasLtMatmulPreference_t pref, size_t max_workspace)
{
    static const cublasLtMatmulPreferenceAttributes_t alignment[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, bytes = ALIGNMENT;
    cublasStatus_t st = cublasLtMatmulPreferenceSetAttribute(
        pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &max_workspace, sizeof max_workspace);

    if (st == CUBLAS_STATUS_SUCCESS)
        st = cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                  &scheme, sizeof scheme);
    for (size_t i = 0; st == CUBLAS_STATUS_SUCCESS && i < ARRAY_LEN(alignment); i++)
        st = cublasLtMatmulPreferenceSetAttribute(pref, alignment[i], &bytes, sizeof bytes);
    return st;
}

/* A second check of what the compute type forbids already: in float32 an algorithm is refused if
 * all input types that it names are rounded.  An algorithm that names float32 among its input types
 * is accepted.  An algorithm that does not answer is taken only if no other is accepted. */
enum verdict { REFUSED, UNKNOWN, FINE };

static enum verdict cuda_blas_look_at(const cublasLtMatmulAlgo_t *algo, const struct key *key)
{
    uint64_t flags = 0;
    size_t n = 0;

    if (key->ab != DTYPE_F32 || key->allow_tf32)
        return FINE;
    if (cublasLtMatmulAlgoCapGetAttribute(algo, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags,
                                          sizeof flags, &n) != CUBLAS_STATUS_SUCCESS ||
        !(flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_OP_INPUT_TYPE_MASK))
        return UNKNOWN;
    return flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F ? FINE : REFUSED;
}

static int no_algorithm(const struct key *k, int n_seen, struct err *err)
{
    return err_set(
        err, ERR_UNSUPPORTED,
        "cuBLASLt %zu: %s to %s product%s, m %lld n %lld k %lld%s%s: none of %d algorithms "
        "fits (TF32 %s, workspace up to %zu MiB: train.max_workspace)",
        cublasLtGetVersion(), dtype_name((enum dtype)k->ab), dtype_name((enum dtype)k->c),
        tails[k->tail].text, (long long)k->g.m, (long long)k->g.n, (long long)k->g.k,
        k->g.transpose_a ? " A^T" : "", k->g.transpose_b ? " B^T" : "", n_seen,
        k->allow_tf32 ? "allowed" : "not allowed", k->max_workspace >> 20);
}

/* Copies the candidates with this verdict to `out`, at most n, in their order; returns how many. */
static int cuda_blas_pick(const cublasLtMatmulHeuristicResult_t *seen, int n_seen,
                          const struct key *key, enum verdict want, struct candidate *out, int n)
{
    int n_found = 0;

    for (int i = 0; i < n_seen && n_found < n; i++)
        if (seen[i].state == CUBLAS_STATUS_SUCCESS && cuda_blas_look_at(&seen[i].algo, key) == want)
            out[n_found++] = (struct candidate){seen[i].algo, seen[i].workspaceSize};
    return n_found;
}

/* Finds algorithms within the rules, best first, at most n; returns how many, or < 0. */
static int cuda_blas_ask(struct blas *b, const struct blas_product *p, const struct key *key,
                         struct candidate *out, int n, struct err *err)
{
    cublasLtMatmulHeuristicResult_t result[CANDIDATES];
    cublasLtMatmulPreference_t pref = NULL;
    int n_seen = 0, n_found;
    cublasStatus_t st = cublasLtMatmulPreferenceCreate(&pref);

    if (st == CUBLAS_STATUS_SUCCESS)
        st = cuda_blas_prefer(pref, key->max_workspace);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = cublasLtMatmulAlgoGetHeuristic(b->handle, p->desc, p->a, p->b, p->c, p->c, pref,
                                            CANDIDATES, result, &n_seen);
    if (pref)
        cublasLtMatmulPreferenceDestroy(pref);
    if (st != CUBLAS_STATUS_SUCCESS && st != CUBLAS_STATUS_NOT_SUPPORTED)
        return cuda_blas_failed(st, "ask for algorithms", err);
    n_found = cuda_blas_pick(result, n_seen, key, FINE, out, n);
    if (n_found == 0)
        n_found = cuda_blas_pick(result, n_seen, key, UNKNOWN, out, n);
    return n_found ? n_found : no_algorithm(key, n_seen, err);
}

static struct key cuda_blas_key_of(const struct gemm *g, struct blas_types t, enum blas_tail tail,
                                   const struct blas_rules *rules)
{
    struct key k;

    memset(&k, 0, sizeof k); /* with its padding: keys are compared by memcmp */
    k.g.m = g->m, k.g.n = g->n, k.g.k = g->k;
    k.g.a = g->a, k.g.b = g->b, k.g.c = g->c;
    k.g.transpose_a = g->transpose_a, k.g.transpose_b = g->transpose_b;
    k.g.lda = g->lda, k.g.ldb = g->ldb, k.g.ldc = g->ldc;
    k.g.adds = g->adds;
    k.max_workspace = rules->max_workspace;
    k.ab = t.ab, k.c = t.c, k.tail = tail;
    k.allow_tf32 = rules->allow_tf32, k.autotune = rules->autotune;
    return k;
}

/* ---- timing ---- */

struct timed {
    struct blas *blas;
    struct blas_product *product; /* its choice is the candidate */
    void *at[4];                  /* A, B, C, workspace */
};

static int cuda_blas_run_timed(void *arg, struct err *err)
{
    const struct timed *t = arg;

    return blas_product_run(t->blas, t->product, t->at[0], t->at[1], t->at[2], t->at[3], err);
}

static size_t cuda_blas_bytes_of(int64_t rows, int64_t cols, int type)
{
    return (size_t)(rows * cols) * dtype_size((enum dtype)type);
}

static size_t saved_bytes(enum blas_tail tail, const struct gemm *g, int type)
{
    const enum saved saved = tails[tail].saved;

    if (saved == SAVES_MASK)
        return (size_t)(saved_ld(g, saved) / 8 * g->n);
    return saved == SAVES_PRE ? cuda_blas_bytes_of(g->m, g->n, type) : 0;
}

static int time_one(struct blas *b, struct blas_product *p, const struct key *k,
                    struct choice *choice, double *us, struct err *err)
{
    const struct gemm *g = &k->g;
    const size_t n_bytes[] = {cuda_blas_bytes_of(gemm_rows_a(g), gemm_cols_a(g), k->ab),
                              cuda_blas_bytes_of(gemm_rows_b(g), gemm_cols_b(g), k->ab),
                              cuda_blas_bytes_of(g->m, g->n, k->c),
                              choice->found.workspace,
                              cuda_blas_bytes_of(1, max_i64(g->m, g->n), DTYPE_F32),
                              saved_bytes(p->tail, g, k->c)};
    struct timed t = {b, p, {NULL}};
    void *at[ARRAY_LEN(n_bytes)], *base;
    int rc = tune_alloc(b->cuda, n_bytes, ARRAY_LEN(n_bytes), at, &base, err);

    if (rc < 0)
        return rc;
    memcpy(t.at, at, sizeof t.at);
    p->choice = choice;
    rc = blas_product_bind(p, tails[p->tail].has_bias ? at[4] : NULL, at[5], err);
    if (rc == 0)
        rc = tune_time(b->cuda, cuda_blas_run_timed, &t, us, err);
    backend_free(&b->cuda->base, base);
    return rc;
}

/* The fastest candidate, or the first if none can be timed.  is_sure: the result was timed, or is
 * the only candidate. */
static int cuda_blas_fastest(struct blas *b, struct blas_product *p, const struct key *key,
                             const struct candidate *found, int n, int *is_sure)
{
    double best_us = 0.0, us = 0.0;
    int best = 0;
    struct err none;

    *is_sure = n == 1;
    for (int i = 0; n > 1 && i < n; i++) {
        struct choice one = {.found = found[i]};

        if (time_one(b, p, key, &one, &us, &none) == 0 && (best_us == 0.0 || us < best_us)) {
            best = i;
            best_us = us;
            *is_sure = 1;
        }
    }
    return best;
}

/* ---- kept choices ---- */

static void cuda_blas_text_of(const struct blas *b, const struct key *k, char out[KEY_LEN])
{
    const struct gemm *g = &k->g;

    snprintf(out, KEY_LEN,
             "cublaslt %zu, %s, %zu bytes%s%s, %s to %s%s%s, %lld %lld %lld, %c%c, "
             "%lld %lld %lld",
             cublasLtGetVersion(), b->gpu, k->max_workspace, k->allow_tf32 ? ", tf32" : "",
             k->autotune ? ", timed" : "", dtype_name((enum dtype)k->ab),
             dtype_name((enum dtype)k->c), tails[k->tail].text, g->adds ? ", added" : "",
             (long long)g->m, (long long)g->n, (long long)g->k, g->transpose_a ? 't' : 'n',
             g->transpose_b ? 't' : 'n', (long long)g->lda, (long long)g->ldb, (long long)g->ldc);
}

static int cuda_blas_restore(struct blas *b, const struct blas_product *p, const struct key *key,
                             struct candidate *out)
{
    cublasLtMatmulHeuristicResult_t result = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
    char text[KEY_LEN];
    struct buf kept = {0};
    int ok;

    cuda_blas_text_of(b, key, text);
    ok = plan_cache_get(b->cuda->plans, text, &kept) && kept.len == sizeof out->algo;
    if (ok) {
        memcpy(&out->algo, kept.data, sizeof out->algo);
        ok = cublasLtMatmulAlgoCheck(b->handle, p->desc, p->a, p->b, p->c, p->c, &out->algo,
                                     &result) == CUBLAS_STATUS_SUCCESS &&
             result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= key->max_workspace &&
             cuda_blas_look_at(&out->algo, key) != REFUSED;
        out->workspace = result.workspaceSize;
    }
    buf_fini(&kept);
    return ok;
}

static void cuda_blas_keep(struct blas *b, const struct key *key, const struct candidate *c)
{
    char text[KEY_LEN];

    cuda_blas_text_of(b, key, text);
    plan_cache_put(b->cuda->plans, text, &c->algo, sizeof c->algo);
}

/* ---- choosing ---- */

static int cuda_blas_search(struct blas *b, struct blas_product *p, const struct key *key,
                            struct candidate *out, struct err *err)
{
    struct candidate found[CANDIDATES];
    int n, is_sure;

    if (cuda_blas_restore(b, p, key, out))
        return 0;
    n = cuda_blas_ask(b, p, key, found, key->autotune ? CANDIDATES : 1, err);
    if (n < 0)
        return n;
    *out = found[cuda_blas_fastest(b, p, key, found, n, &is_sure)];
    if (is_sure)
        cuda_blas_keep(b, key, out);
    return 0;
}

static int cuda_blas_choose(struct blas *b, struct blas_product *p, const struct key *key,
                            struct err *err)
{
    struct choice *c;
    int rc;

    for (c = b->first; c; c = c->next)
        if (!memcmp(&c->key, key, sizeof *key))
            break;
    if (!c) {
        c = xcalloc(1, sizeof *c);
        rc = cuda_blas_search(b, p, key, &c->found, err);
        if (rc < 0) {
            free(c);
            return rc;
        }
        c->key = *key;
        c->next = b->first;
        b->first = c;
    }
    p->choice = c;
    return 0;
}

int blas_product_new(struct blas *b, const struct gemm *g, struct blas_types t, enum blas_tail tail,
                     const struct blas_rules *rules, struct blas_product **out, struct err *err)
{
    struct blas_product *p = xcalloc(1, sizeof *p);
    const struct key key = cuda_blas_key_of(g, t, tail, rules);
    int rc;

    p->tail = tail;
    p->adds = g->adds;
    rc =
        cuda_blas_failed(cuda_blas_describe(p, g, t, rules->allow_tf32), "describe a product", err);
    if (rc == 0)
        rc = cuda_blas_choose(b, p, &key, err);
    if (rc < 0) {
        blas_product_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

size_t blas_product_workspace(const struct blas_product *p) { return p->choice->found.workspace; }

void blas_product_free(struct blas_product *p)
{
    if (!p)
        return;
    if (p->a)
        cublasLtMatrixLayoutDestroy(p->a);
    if (p->b)
        cublasLtMatrixLayoutDestroy(p->b);
    if (p->c)
        cublasLtMatrixLayoutDestroy(p->c);
    if (p->desc)
        cublasLtMatmulDescDestroy(p->desc);
    free(p);
}

int blas_product_bind(struct blas_product *p, void *bias, void *saved, struct err *err)
{
    cublasStatus_t st = CUBLAS_STATUS_SUCCESS;

    ASSERT(tails[p->tail].has_bias == (bias != NULL) && !tails[p->tail].saved == !saved);
    if (bias)
        st = set_bias(p->desc, bias);
    if (st == CUBLAS_STATUS_SUCCESS && saved)
        st = set_saved(p->desc, saved);
    return cuda_blas_failed(st, "bind a product", err);
}

int blas_product_run(struct blas *b, const struct blas_product *p, const void *a, const void *bm,
                     void *c, void *workspace, struct err *err)
{
    static const float one = 1.0f, zero = 0.0f;
    const float *beta = p->adds ? &one : &zero;

    return cuda_blas_failed(cublasLtMatmul(b->handle, p->desc, &one, a, p->a, bm, p->b, beta, c,
                                           p->c, c, p->c, &p->choice->found.algo, workspace,
                                           p->choice->found.workspace, b->cuda->stream),
                            "multiply", err);
}
