/* linear - y = x w^T + b and its gradients, by one cuBLASLt product (mapping in gemm.h).
 *
 * With a fused flatten x is [N,H*W,C], but the columns of w are in C,H,W order.  So w [O,C,H*W] is
 * transposed into the scratch [O,H*W,C] before the product, or dw from there after it, as the
 * reorders of the CPU twin do.
 * If cuBLASLt has an algorithm with the right tail, the product also does the bias, the activation
 * and what it saves for its gradient; else a pass over y does them.  The same is true for the
 * gradient of the activation before the layer (a pass over dx) and for db (a pass over dy).
 *
 * None of this has run on a GPU yet.  tests/cudnn tests the mapping, and runs this file with a
 * stand-in for cuBLASLt and our passes on tests/cudasim.
 * op/linear.c has the formulas; the twin is cpu/linear.c. */
#include <stdlib.h>

#include "backend/cuda/blas.h"
#include "backend/cuda/passes.h"
#include "base/alloc.h"
#include "base/util.h"

enum { PIECE_ALIGN = 256, PRE_ALIGN = 8 };

static const size_t enough_workspace = (size_t)32 << 20; /* what NVIDIA advises for Hopper */

struct linear {
    struct kernel k;
    struct cuda *cuda;
    struct blas *blas;
    enum gemm_pass pass;
    struct gemm g;
    int64_t batch, n_out;
    int64_t pixels, channels; /* of a fused flatten whose order matters; else 0 */
    struct blas_product *product;
    enum blas_tail tail;  /* bias and activation that the product does */
    enum activation act;  /* the activation, or its gradient, that a pass does after the product */
    int has_bias;         /* a bias, or its gradient, exists */
    size_t at_w, at_sums; /* offsets in the scratch; the product's workspace is at 0 */
    /* tensor[] has the product's operands, by enum gemm_tensor, so its w may be in the scratch;
     * plain_w is the node's w.  dw and db may be F32 where x and dy are not: sums are float32 in
     * any case, and cuBLASLt then writes them so. */
    struct passes_array tensor[3], plain_w, bias;
    struct passes_saved saved; /* saved by the activation of y, or read for dx */
    int has_mask, has_pre, transposed;
    int adds_w, adds_b; /* grad_w adds to dw, to db (node.adds) */
    void *scratch;
};

static void close_blas(void *p) { blas_close(p); }

static int blas_of(struct cuda *b, struct blas **out, struct err *err)
{
    if (!b->blas.handle) {
        struct blas *opened = NULL;
        int rc = blas_open(b, &opened, err);

        if (rc < 0)
            return rc;
        b->blas.handle = opened;
        b->blas.close = close_blas;
    }
    *out = b->blas.handle;
    return 0;
}

static void linear_free(struct kernel *k)
{
    struct linear *l = container_of(k, struct linear, k);

    blas_product_free(l->product);
    free(l);
}

static int cuda_linear_saves(const struct linear *l) { return l->has_mask || l->has_pre; }

static int in_product(const struct linear *l) { return blas_tail_has_bias(l->tail); }

/* The product's output.  A pass with gelu reads its input from pre, so the product writes there. */
static void *product_to(const struct linear *l)
{
    return l->pass == GEMM_FORWARD && l->has_pre && l->act != ACT_NONE ? l->saved.pre
                                                                       : l->tensor[l->g.c].at;
}

/* The operands of each pass, as cuda_value_at numbers them. */
static const struct operands {
    int x, w, y, b, mask, pre;
} operands[] = {
    [GEMM_FORWARD] = {LINEAR_X, LINEAR_W, CUDA_OUT + LINEAR_Y, LINEAR_B, CUDA_OUT + LINEAR_MASK,
                      CUDA_OUT + LINEAR_PRE},
    [GEMM_GRAD_X] = {CUDA_OUT + LINEAR_GRAD_X_DX, LINEAR_GRAD_X_W, LINEAR_GRAD_X_DY, CUDA_NONE,
                     LINEAR_GRAD_X_MASK, LINEAR_GRAD_X_PRE},
    [GEMM_GRAD_W] = {LINEAR_GRAD_W_X, CUDA_OUT + LINEAR_GRAD_W_DW, LINEAR_GRAD_W_DY,
                     CUDA_OUT + LINEAR_GRAD_W_DB, CUDA_NONE, CUDA_NONE},
};

static int linear_bind(struct kernel *k, void *const *in, void *const *out, void *scratch,
                       struct err *err)
{
    struct linear *l = container_of(k, struct linear, k);
    const struct operands *at = &operands[l->pass];

    l->tensor[GEMM_X].at = cuda_address_at(in, out, at->x);
    l->plain_w.at = cuda_address_at(in, out, at->w);
    l->tensor[GEMM_Y].at = cuda_address_at(in, out, at->y);
    l->tensor[GEMM_W].at = l->pixels ? (char *)scratch + l->at_w : l->plain_w.at;
    l->bias.at = l->has_bias ? cuda_address_at(in, out, at->b) : NULL;
    if (l->has_mask)
        l->saved.mask = cuda_address_at(in, out, at->mask);
    if (l->has_pre)
        l->saved.pre = cuda_address_at(in, out, at->pre);
    l->scratch = scratch;
    return blas_product_bind(l->product, in_product(l) ? l->bias.at : NULL,
                             l->act != ACT_NONE ? NULL
                             : l->has_mask      ? l->saved.mask
                                                : l->saved.pre,
                             err);
}

static void cuda_linear_before(const struct linear *l)
{
    if (l->pixels && l->pass != GEMM_GRAD_W)
        passes_transpose(l->cuda, l->plain_w, l->tensor[GEMM_W], l->n_out, l->channels, l->pixels,
                         0);
}

static void cuda_linear_behind(const struct linear *l)
{
    const void *bias = in_product(l) ? NULL : l->bias.at;

    if (l->pass == GEMM_FORWARD && cuda_linear_saves(l) && l->act != ACT_NONE)
        passes_bias_act_saving(l->cuda, l->tensor[GEMM_Y], bias, l->act, l->batch, l->n_out,
                               l->saved);
    else if (l->pass == GEMM_FORWARD && (bias || l->act != ACT_NONE))
        passes_bias_act(l->cuda, l->tensor[GEMM_Y], bias, l->act, l->batch, l->n_out);
    if (l->pass == GEMM_GRAD_X && l->act != ACT_NONE)
        passes_act_grad(l->cuda, l->tensor[GEMM_X], l->act, l->batch, l->g.m, l->saved);
    if (l->pass != GEMM_GRAD_W)
        return;
    if (l->pixels)
        passes_transpose(l->cuda, l->tensor[GEMM_W], l->plain_w, l->n_out, l->pixels, l->channels,
                         l->adds_w);
    if (bias)
        passes_column_sums(l->cuda, l->tensor[GEMM_Y], l->bias, l->batch, l->n_out, l->adds_b,
                           (char *)l->scratch + l->at_sums);
}

static int linear_run(struct kernel *k, struct err *err)
{
    const struct linear *l = container_of(k, struct linear, k);
    int rc;

    cuda_linear_before(l);
    rc = blas_product_run(l->blas, l->product, l->tensor[l->g.a].at, l->tensor[l->g.b].at,
                          product_to(l), l->scratch, err);
    if (rc < 0)
        return rc;
    cuda_linear_behind(l);
    return passes_check("launch around a product", err);
}

static const struct kernel_ops linear_ops = {
    .bind = linear_bind,
    .run = linear_run,
    .free = linear_free,
};

/* The tail that would do most of the work around the product.  cuBLASLt may not have it. */
static enum blas_tail cuda_linear_wish(const struct linear *l)
{
    static const enum blas_tail relu[2][2] = {{BLAS_RELU, BLAS_BIAS_RELU},
                                              {BLAS_RELU_MASK, BLAS_BIAS_RELU_MASK}};
    static const enum blas_tail gelu[2][2] = {{BLAS_GELU, BLAS_BIAS_GELU},
                                              {BLAS_GELU_PRE, BLAS_BIAS_GELU_PRE}};

    if (l->pass == GEMM_GRAD_W)
        return l->has_bias && !l->transposed && !l->adds_w && !l->adds_b ? BLAS_BIAS_GRAD
                                                                         : BLAS_ALONE;
    if (l->pass == GEMM_GRAD_X)
        return l->has_mask ? BLAS_RELU_GRAD : l->has_pre ? BLAS_GELU_GRAD : BLAS_ALONE;
    if (l->act == ACT_RELU)
        return relu[l->has_mask][l->has_bias];
    if (l->act == ACT_GELU_TANH)
        return gelu[l->has_pre][l->has_bias];
    return l->has_bias && l->act == ACT_NONE ? BLAS_BIAS : BLAS_ALONE;
}

/* 0 if cuBLASLt surely has no such tail for these types and shapes. */
static int is_possible(const struct linear *l, struct blas_types types)
{
    if (l->tail == BLAS_BIAS_GRAD)
        return l->bias.type == types.c; /* the product's db has the type of dw */
    return !l->has_pre || l->g.m % PRE_ALIGN == 0;
}

static size_t cuda_linear_piece(size_t n_bytes)
{
    return (n_bytes + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
}

static void cuda_linear_lay_out(struct linear *l)
{
    const int sums = l->pass == GEMM_GRAD_W && l->has_bias && !in_product(l);
    const int64_t w = l->n_out * l->pixels * l->channels;

    l->at_w = cuda_linear_piece(blas_product_workspace(l->product));
    l->at_sums = l->at_w + cuda_linear_piece((size_t)w * dtype_size(l->plain_w.type));
    l->k.scratch_bytes =
        l->at_sums + (sums ? cuda_linear_piece(passes_column_sums_scratch(l->batch, l->n_out)) : 0);
}

static void set_types(struct linear *l, const struct graph *g, const struct node *n)
{
    const enum dtype t = op_type(g, n);

    l->tensor[GEMM_X].type = l->tensor[GEMM_Y].type = l->plain_w.type = l->bias.type = t;
    if (l->pass == GEMM_GRAD_W) {
        l->plain_w.type = g->value[n->out[LINEAR_GRAD_W_DW]].dtype;
        if (l->has_bias)
            l->bias.type = g->value[n->out[LINEAR_GRAD_W_DB]].dtype;
    }
    l->tensor[GEMM_W].type = l->plain_w.type;
}

/* x is [N,in] or an image, w [out,in] or [in,out]. */
static void cuda_linear_describe(struct linear *l, const struct graph *g, const struct node *n)
{
    const int64_t *image = n->attr.linear.image;
    const struct operands *at = &operands[l->pass];
    const struct shape *y = &g->value[cuda_value_at(n, at->y)].shape;
    const struct shape *w = &g->value[cuda_value_at(n, at->w)].shape;

    l->has_bias = cuda_value_at(n, at->b) != NO_VALUE;
    l->batch = y->dim[0];
    l->n_out = y->dim[1];
    if (image[0] > 0 && image[0] * image[1] > 1 && image[2] > 1) {
        l->pixels = image[0] * image[1];
        l->channels = image[2];
    }
    l->act = n->attr.linear.act;
    l->has_mask = cuda_value_at(n, at->mask) != NO_VALUE;
    l->has_pre = cuda_value_at(n, at->pre) != NO_VALUE;
    l->transposed = n->attr.linear.transposed;
    l->g = l->transposed ? gemm_of_transposed(l->pass, l->batch, w->dim[0], l->n_out)
                         : gemm_of(l->pass, l->batch, w->dim[1], l->n_out);
    l->adds_w = n->op == OP_linear_grad_w && n->adds >> LINEAR_GRAD_W_DW & 1;
    l->adds_b = n->op == OP_linear_grad_w && n->adds >> LINEAR_GRAD_W_DB & 1;
    l->g.adds = l->adds_w && !l->pixels; /* else the pass behind the product adds */
    set_types(l, g, n);
}

static int new_product(struct linear *l, struct err *err)
{
    const struct plugin_choices *job = &l->cuda->choices;
    const struct blas_rules rules = {job->max_workspace < enough_workspace ? job->max_workspace
                                                                           : enough_workspace,
                                     job->allow_tf32, job->autotune};
    const struct blas_types types = {l->tensor[l->g.a].type, l->tensor[l->g.c].type};

    if (l->tail != BLAS_ALONE && !is_possible(l, types))
        return err_set(err, ERR_UNSUPPORTED, "no such tail");
    return blas_product_new(l->blas, &l->g, types, l->tail, &rules, &l->product, err);
}

/* The node that reads the mask which n writes, or writes the mask which n reads; NULL if there is
 * none. */
static const struct node *other_side(const struct graph *g, const struct node *n)
{
    if (n->op == OP_linear_grad_x) {
        const int producer = g->value[n->in[LINEAR_GRAD_X_MASK]].producer;

        return producer < 0 ? NULL : &g->node[producer];
    }
    for (int i = 0; i < g->n_nodes; i++)
        if (g->node[i].op == OP_linear_grad_x && cuda_has_in(&g->node[i], LINEAR_GRAD_X_MASK) &&
            g->node[i].in[LINEAR_GRAD_X_MASK] == n->out[LINEAR_MASK])
            return &g->node[i];
    return NULL;
}

/* 1 if the node on the mask's other side can have its tail, too, or if there is no such node.
 * Either cuBLASLt writes and reads a mask's bits, or our passes do both (see blas.h).  The other
 * side's product is made only to see whether it exists; products share choices, so this costs
 * little. */
static int other_has_tail(const struct linear *l, const struct graph *g, const struct node *n)
{
    const struct node *other = l->has_mask ? other_side(g, n) : NULL;
    struct linear o = {.cuda = l->cuda, .blas = l->blas};
    struct err none;

    if (!other)
        return 1;
    o.pass = other->op == OP_linear ? GEMM_FORWARD : GEMM_GRAD_X;
    cuda_linear_describe(&o, g, other);
    o.tail = cuda_linear_wish(&o);
    if (new_product(&o, &none) < 0)
        return 0;
    blas_product_free(o.product);
    return 1;
}

static int cuda_linear_choose(struct linear *l, const struct graph *g, const struct node *n,
                              struct err *err)
{
    struct err none;

    l->tail = cuda_linear_wish(l);
    if (l->tail != BLAS_ALONE && other_has_tail(l, g, n) && new_product(l, &none) == 0) {
        l->act = ACT_NONE;
        return 0;
    }
    l->tail = BLAS_ALONE;
    return new_product(l, err);
}

static int cuda_linear_make(struct cuda *b, enum gemm_pass pass, const struct graph *g,
                            const struct node *n, struct kernel **out, struct err *err)
{
    struct linear *l;
    void *mem;
    int rc = try_alloc(&mem, sizeof *l, "a kernel", err);

    if (rc < 0)
        return rc;
    l = mem;
    l->k.ops = &linear_ops;
    l->cuda = b;
    l->pass = pass;
    cuda_linear_describe(l, g, n);
    if ((rc = blas_of(b, &l->blas, err)) < 0 || (rc = cuda_linear_choose(l, g, n, err)) < 0) {
        free(l);
        return rc;
    }
    cuda_linear_lay_out(l);
    *out = &l->k;
    return 0;
}

int cuda_make_linear(struct cuda *b, const struct graph *g, const struct node *n,
                     struct kernel **out, struct err *err)
{
    return cuda_linear_make(b, GEMM_FORWARD, g, n, out, err);
}

int cuda_make_linear_grad_x(struct cuda *b, const struct graph *g, const struct node *n,
                            struct kernel **out, struct err *err)
{
    return cuda_linear_make(b, GEMM_GRAD_X, g, n, out, err);
}

int cuda_make_linear_grad_w(struct cuda *b, const struct graph *g, const struct node *n,
                            struct kernel **out, struct err *err)
{
    return cuda_linear_make(b, GEMM_GRAD_W, g, n, out, err);
}
