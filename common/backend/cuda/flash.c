/* flash - attention as cuDNN plans (flash_plan.h), on all samples at once or on a few at a time.
 *
 * forward  the plan writes y and its statistics [N,heads,T] to the scratch; a pass reorders these
 *          to lse [N*T,heads]
 * grad     a pass reorders lse back; the plan
 *
 * The gradient's workspace grows with the samples.  If it is beyond train.max_workspace for all of
 * them, the samples are cut into pieces of nearly equal size, which run one after another in the
 * same scratch.
 *
 * None of this has run on a GPU yet.  tests/cudnn builds the plans for a described H200, and runs
 * this file with a stand-in for cuDNN. */
#include "backend/cuda/flash.h"

#include <stdlib.h>

#include "backend/cuda/dnn.h"
#include "backend/cuda/flash_plan.h"
#include "backend/cuda/passes.h"
#include "base/alloc.h"
#include "base/util.h"
#include "op/op.h"

/* Samples [first, first + n) and their plan. */
struct piece {
    int64_t first, n;
    const struct cudnn_plan *plan;
    struct cudnn_pack *pack; /* NULL before bind */
};

struct flash {
    struct kernel k;
    struct cuda *cuda;
    struct dnn *dnn;
    struct flash_shape s; /* of all samples */
    int is_grad;
    struct piece *piece; /* [n_pieces] */
    int n_pieces;
    size_t at_stats, at_dots; /* offsets in the scratch; the plans' workspace is at 0 */
    float *stats;             /* of one piece */
    float *lse;               /* NULL if nothing asks for it */
};

static void flash_free(struct kernel *k)
{
    struct flash *f = container_of(k, struct flash, k);

    for (int i = 0; i < f->n_pieces; i++)
        cudnn_pack_free(f->piece[i].pack);
    free(f->piece);
    free(f);
}

/* The address of column `col` of the piece's first row in an array of `cols` columns. */
static void *cuda_flash_row_of(const struct flash *f, const struct piece *p, void *array,
                               int64_t cols, int64_t col)
{
    const int64_t element = p->first * f->s.length * cols + col;

    return (char *)array + (size_t)element * dtype_size(f->s.dtype);
}

/* Q, K and V of the piece, from pointer `first` on, in the array of all three. */
static void point_to_parts(const struct flash *f, const struct piece *p, void *array, void **ptr,
                           int first)
{
    const int64_t width = f->s.heads * f->s.d;

    for (int i = 0; i < 3; i++)
        ptr[first + i] = cuda_flash_row_of(f, p, array, 3 * width, i * width);
}

static int bind_piece(const struct flash *f, struct piece *p, void *const *in, void *const *out,
                      void *scratch, struct err *err)
{
    const int64_t width = f->s.heads * f->s.d;
    void *ptr[CUDNN_MAX_TENSORS] = {NULL};

    point_to_parts(f, p, in[f->is_grad ? ATTENTION_GRAD_QKV : ATTENTION_QKV], ptr, FLASH_Q);
    ptr[FLASH_STATS] = f->stats;
    if (f->is_grad) {
        ptr[FLASH_Y] = cuda_flash_row_of(f, p, in[ATTENTION_GRAD_Y], width, 0);
        ptr[FLASH_DY] = cuda_flash_row_of(f, p, in[ATTENTION_GRAD_DY], width, 0);
        point_to_parts(f, p, out[ATTENTION_GRAD_DQKV], ptr, FLASH_DQ);
        ptr[FLASH_DOTS] = (char *)scratch + f->at_dots;
    } else {
        ptr[FLASH_Y] = cuda_flash_row_of(f, p, out[ATTENTION_Y], width, 0);
    }
    cudnn_pack_free(p->pack);
    p->pack = NULL;
    return cudnn_pack_new(p->plan, ptr, scratch, &p->pack, err);
}

static int flash_bind(struct kernel *k, void *const *in, void *const *out, void *scratch,
                      struct err *err)
{
    struct flash *f = container_of(k, struct flash, k);
    int rc = 0;

    f->stats = (float *)((char *)scratch + f->at_stats);
    f->lse = f->is_grad ? in[ATTENTION_GRAD_LSE] : out[ATTENTION_LSE];
    for (int i = 0; i < f->n_pieces && rc == 0; i++)
        rc = bind_piece(f, &f->piece[i], in, out, scratch, err);
    return rc;
}

static int run_piece(const struct flash *f, const struct piece *p, struct err *err)
{
    float *rows = f->lse ? f->lse + p->first * f->s.length * f->s.heads : NULL;
    const struct passes_array stats = {f->stats, DTYPE_F32}, lse = {rows, DTYPE_F32};
    int rc;

    if (f->is_grad)
        passes_transpose(f->cuda, lse, stats, p->n, f->s.length, f->s.heads, 0);
    rc = cudnn_pack_run(f->dnn->device, p->pack, err);
    if (rc == 0 && !f->is_grad && rows)
        passes_transpose(f->cuda, stats, lse, p->n, f->s.heads, f->s.length, 0);
    return rc;
}

static int flash_run(struct kernel *k, struct err *err)
{
    const struct flash *f = container_of(k, struct flash, k);
    int rc = 0;

    for (int i = 0; i < f->n_pieces && rc == 0; i++)
        rc = run_piece(f, &f->piece[i], err);
    return rc < 0 ? rc : passes_check("launch around attention", err);
}

static const struct kernel_ops flash_ops = {
    .bind = flash_bind,
    .run = flash_run,
    .free = flash_free,
};

/* The plan of n samples. */
static int plan_of(const struct flash *f, int64_t n, const struct cudnn_plan **out, struct err *err)
{
    const struct cudnn_rules rules = dnn_rules(f->cuda);
    struct flash_shape s = f->s;

    s.samples = n;
    return flash_plan(f->dnn->device, &rules, &s, f->is_grad, out, err);
}

/* The most samples that have a plan within the workspace; 0: no number of them has one. */
static int64_t samples_at_once(const struct flash *f)
{
    const struct cudnn_plan *p = NULL;
    struct err none;
    int64_t n;

    if (plan_of(f, f->s.samples, &p, &none) == 0)
        return f->s.samples;
    if (plan_of(f, 1, &p, &none) < 0)
        return 0;
    n = p->workspace > 0 ? (int64_t)(f->cuda->choices.max_workspace / p->workspace) : 1;
    n = max_i64(1, min_i64(n, f->s.samples));
    while (n > 1 && plan_of(f, n, &p, &none) < 0)
        n /= 2;
    return n;
}

/* Cut the samples into as few pieces as `at_once` allows.  Returns 0, or an error if one of the two
 * sizes that occur has no plan. */
static int cuda_flash_cut(struct flash *f, int64_t at_once, struct err *err)
{
    const int64_t n = ceil_div_i64(f->s.samples, at_once);
    int rc = 0;

    f->piece = xcalloc((size_t)n, sizeof *f->piece);
    f->n_pieces = (int)n;
    for (int64_t i = 0; i < n && rc == 0; i++) {
        const int64_t first = f->s.samples * i / n, next = f->s.samples * (i + 1) / n;

        f->piece[i] = (struct piece){.first = first, .n = next - first};
        rc = plan_of(f, next - first, &f->piece[i].plan, err);
    }
    return rc;
}

static void cuda_flash_lay_out(struct flash *f)
{
    const size_t row = (size_t)(f->s.heads * f->s.length) * sizeof(float);
    size_t workspace = 0;
    int64_t most = 0;

    for (int i = 0; i < f->n_pieces; i++) {
        if (f->piece[i].plan->workspace > workspace)
            workspace = f->piece[i].plan->workspace;
        most = max_i64(most, f->piece[i].n);
    }
    f->at_stats = dnn_piece(workspace);
    f->at_dots = f->at_stats + dnn_piece((size_t)most * row);
    f->k.scratch_bytes = f->at_dots + (f->is_grad ? dnn_piece((size_t)most * row) : 0);
}

/* 1: the parts of each array are 16-byte aligned in each sample, in half precision, nothing is
 * drawn, and a row sees all rows, or all before it. */
static int is_suitable(const struct graph *g, const struct node *n)
{
    const int64_t width = g->value[n->in[0]].shape.dim[1] / 3;
    const int starts = n->op == OP_attention ? ATTENTION_STARTS : ATTENTION_GRAD_STARTS;

    return op_type(g, n) != DTYPE_F32 && n->attr.attention.p == 0 && width % 8 == 0 &&
           n->attr.attention.window == 0 && n->in[starts] == NO_VALUE;
}

int flash_new(struct cuda *b, const struct graph *g, const struct node *n, struct kernel **out,
              struct err *err)
{
    const struct shape *qkv = cuda_in(g, n, 0);
    struct err none;
    struct flash *f;
    int64_t at_once;
    void *mem;
    int rc;

    if (!is_suitable(g, n) || qkv->dim[0] == 0)
        return FLASH_NONE;
    rc = try_alloc(&mem, sizeof *f, "a kernel", err);
    if (rc < 0)
        return rc;
    f = mem;
    f->k.ops = &flash_ops;
    f->cuda = b;
    f->is_grad = n->op == OP_attention_grad;
    f->s = (struct flash_shape){.dtype = op_type(g, n),
                                .length = n->attr.attention.length,
                                .heads = n->attr.attention.heads,
                                .causal = n->attr.attention.causal};
    f->s.samples = qkv->dim[0] / f->s.length;
    f->s.d = qkv->dim[1] / 3 / f->s.heads;
    rc = dnn_of(b, &f->dnn, err);
    if (rc == 0) {
        at_once = samples_at_once(f);
        if (at_once == 0 || cuda_flash_cut(f, at_once, &none) < 0)
            rc = FLASH_NONE;
    }
    if (rc != 0) {
        flash_free(&f->k);
        return rc;
    }
    cuda_flash_lay_out(f);
    *out = &f->k;
    return 0;
}
