/* linear - y = x w^T + b and its gradients, as oneDNN's inner product, or dw as a product of our
 * own (grad_product.h, amx_grad_w.h).
 *
 * With a fused flatten x is an image [N,H,W,C], and w is seen as O,I,H,W, since its columns are in
 * C,H,W order.  Then either w or x is reordered: w to the layout that oneDNN likes best, or x to
 * C,H,W order.  With few samples it is less work to reorder x.
 * op/linear.c has the formulas; the twin is cuda/linear.c. */
#include <oneapi/dnnl/dnnl.h>

#include "backend/cpu/amx_grad_w.h"
#include "backend/cpu/chain.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/grad_product.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/plain.h"
#include "backend/cpu/vector.h"
#include "base/util.h"

static int cpu_linear_has_image(const struct node *n) { return n->attr.linear.image[0] > 0; }

static struct dn_layout cpu_linear_features(const struct node *n, const struct shape *x)
{
    return cpu_linear_has_image(n) ? dn_image(x) : dn_row_major(2, x->dim);
}

static struct dn_layout cpu_linear_weights(const struct node *n, const struct shape *w)
{
    const int64_t *image = n->attr.linear.image;

    if (n->attr.linear.transposed) {
        struct dn_layout l = dn_row_major(2, (int64_t[]){w->dim[1], w->dim[0]});

        l.stride[0] = 1;
        l.stride[1] = w->dim[1];
        return l;
    }
    if (!cpu_linear_has_image(n))
        return dn_row_major(2, w->dim);
    return dn_row_major(4, (int64_t[]){w->dim[0], image[2], image[0], image[1]});
}

static int cpu_linear_is_small(const struct node *n, const struct shape *w, int64_t batch)
{
    return batch < w->dim[n->attr.linear.transposed ? 1 : 0];
}

/* x or dx in the order of w's columns: the tensor itself, or a temporary if it is an image. */
static int cpu_linear_columns(struct chain *c, const struct node *n, int x,
                              const struct shape *image)
{
    if (!cpu_linear_has_image(n))
        return x;
    return chain_tensor(c, CHAIN_TEMP, 0, dn_row_major(4, dn_image(image).dim));
}

static void cpu_linear_add(struct chain *c, const struct node *n, enum dn_pass pass, int small,
                           int x, int w, int b, int y, const struct chain_arg *args, int n_args)
{
    dnnl_primitive_desc_t pd = NULL;
    struct dn_md any;
    int rc;

    if (!c || x < 0 || w < 0 || y < 0)
        return;
    any = small ? *chain_md(c, w) : chain_any(c, w);
    rc = dn_inner(chain_onednn(c), pass, chain_md(c, x), &any, chain_md(c, b), chain_md(c, y),
                  dn_fused(n->attr.linear.act), &pd, chain_err(c));
    chain_add(c, rc, pd, args, n_args);
}

int cpu_make_linear(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    struct chain *c = chain_new_products(b, g, n, err);
    int x = chain_tensor(c, CHAIN_IN, LINEAR_X, cpu_linear_features(n, cpu_in(g, n, LINEAR_X)));
    int w = chain_tensor(c, CHAIN_IN, LINEAR_W, cpu_linear_weights(n, cpu_in(g, n, LINEAR_W)));
    const int small =
        cpu_linear_is_small(n, cpu_in(g, n, LINEAR_W), cpu_in(g, n, LINEAR_X)->dim[0]);
    int bias = CHAIN_NONE, x_in = x, y;

    if (small && (x = cpu_linear_columns(c, n, x_in, cpu_in(g, n, LINEAR_X))) != x_in)
        chain_reorder(c, x_in, x);
    if (cpu_has_in(n, LINEAR_B))
        bias = chain_tensor(c, CHAIN_IN, LINEAR_B, dn_flat(cpu_in(g, n, LINEAR_B)));
    y = chain_tensor(c, CHAIN_OUT, LINEAR_Y, dn_row_major(2, cpu_out(g, n, LINEAR_Y)->dim));
    cpu_linear_add(
        c, n, DN_FORWARD, small, x, w, bias, y,
        (struct chain_arg[]){{DNNL_ARG_SRC, x, 0},
                             {DNNL_ARG_WEIGHTS, w, 0},
                             {DNNL_ARG_BIAS, bias, 0},
                             {DNNL_ARG_DST, y, 1, .act = dn_not_fused(n->attr.linear.act)}},
        4);
    return chain_finish(c, out);
}

/* dx as the output of a layer whose weight is w^T.  oneDNN 2.6's backward products took 1.1 to 2.2
 * of this time in F32, and up to 1.9 in BF16; longest where the batch has few small factors, such
 * as the 8 * 197 rows of a vision transformer. */
static int cpu_linear_grad_x_forward(struct cpu *b, const struct graph *g, const struct node *n,
                                     struct kernel **out, struct err *err)
{
    struct chain *c = chain_new_products(b, g, n, err);
    const struct dn_layout w = cpu_linear_weights(n, cpu_in(g, n, LINEAR_GRAD_X_W));
    const struct dn_layout flipped = {
        .n = 2, .dim = {w.dim[1], w.dim[0]}, .stride = {w.stride[1], w.stride[0]}};
    const int w_in = chain_tensor(c, CHAIN_IN, LINEAR_GRAD_X_W, flipped);
    const int dy = chain_tensor(c, CHAIN_IN, LINEAR_GRAD_X_DY,
                                dn_row_major(2, cpu_in(g, n, LINEAR_GRAD_X_DY)->dim));
    const int dx = chain_tensor(c, CHAIN_OUT, LINEAR_GRAD_X_DX,
                                dn_row_major(2, cpu_out(g, n, LINEAR_GRAD_X_DX)->dim));

    cpu_linear_add(c, n, DN_FORWARD, 0, dy, w_in, CHAIN_NONE, dx,
                   (struct chain_arg[]){
                       {DNNL_ARG_SRC, dy, 0}, {DNNL_ARG_WEIGHTS, w_in, 0}, {DNNL_ARG_DST, dx, 1}},
                   3);
    return chain_finish(c, out);
}

/* By oneDNN's backward product: of an image, or of few samples. */
static int cpu_linear_grad_x_backward(struct cpu *b, const struct graph *g, const struct node *n,
                                      int small, struct kernel **out, struct err *err)
{
    struct chain *c = chain_new_products(b, g, n, err);
    int w = chain_tensor(c, CHAIN_IN, LINEAR_GRAD_X_W,
                         cpu_linear_weights(n, cpu_in(g, n, LINEAR_GRAD_X_W)));
    int dy = chain_tensor(c, CHAIN_IN, LINEAR_GRAD_X_DY,
                          dn_row_major(2, cpu_in(g, n, LINEAR_GRAD_X_DY)->dim));
    int dx_out = chain_tensor(c, CHAIN_OUT, LINEAR_GRAD_X_DX,
                              cpu_linear_features(n, cpu_out(g, n, LINEAR_GRAD_X_DX)));
    int dx = small ? cpu_linear_columns(c, n, dx_out, cpu_out(g, n, LINEAR_GRAD_X_DX)) : dx_out;

    cpu_linear_add(c, n, DN_GRAD_X, small, dx, w, CHAIN_NONE, dy,
                   (struct chain_arg[]){{DNNL_ARG_WEIGHTS, w, 0},
                                        {DNNL_ARG_DIFF_DST, dy, 0},
                                        {DNNL_ARG_DIFF_SRC, dx, 1}},
                   3);
    if (dx != dx_out)
        chain_reorder(c, dx, dx_out);
    return chain_finish(c, out);
}

int cpu_make_linear_grad_x(struct cpu *b, const struct graph *g, const struct node *n,
                           struct kernel **out, struct err *err)
{
    const int small = cpu_linear_is_small(n, cpu_in(g, n, LINEAR_GRAD_X_W),
                                          cpu_in(g, n, LINEAR_GRAD_X_DY)->dim[0]);

    return small || cpu_linear_has_image(n) ? cpu_linear_grad_x_backward(b, g, n, small, out, err)
                                            : cpu_linear_grad_x_forward(b, g, n, out, err);
}

/* ---- dw += dy^T x ---- */

/* oneDNN's inner product always overwrites dw, but its products of matrices can add.  (So can its
 * primitive of a product, which took up to 1.08 of the time of an inner product and an addition
 * where dw has more rows than the batch.) */
int linear_adds(const struct cpu *b, const struct graph *g, const struct node *n)
{
    if (amx_grad_w_fits(b, g, n))
        return 1;
    if (cpu_linear_has_image(n) || cpu_has_out(n, LINEAR_GRAD_W_DB) ||
        g->value[n->out[LINEAR_GRAD_W_DW]].dtype != DTYPE_F32)
        return 0;
    return op_type(g, n) == DTYPE_F32 || b->widens_bf16 || dn_has_gemm_bf16();
}

/* c [m,n] += a^T b, with a [k,m] and b [k,n], both of this type. */
static dnnl_status_t add_product(enum dtype type, int64_t m, int64_t n, int64_t k, const void *a,
                                 const void *b, float *c)
{
    return type == DTYPE_F32 ? dnnl_sgemm('T', 'N', m, n, k, 1.0f, a, m, b, n, 1.0f, c, n)
                             : dn_gemm_bf16('T', 'N', m, n, k, a, m, b, n, 1.0f, c, n);
}

static void cpu_linear_add_products(const struct plain *p, enum dtype type, const void *x,
                                    const void *dy)
{
    const int64_t batch = p->in_shape[LINEAR_GRAD_W_X].dim[0];
    const int64_t in = p->in_shape[LINEAR_GRAD_W_X].dim[1];
    const int64_t out = p->in_shape[LINEAR_GRAD_W_DY].dim[1];
    float *dw = p->out[LINEAR_GRAD_W_DW];

    plain_multiplied(p, (int)(p->attr.linear.transposed
                                  ? add_product(type, in, out, batch, x, dy, dw)
                                  : add_product(type, out, in, batch, dy, x, dw)));
}

static void run_adding(const struct plain *p)
{
    cpu_linear_add_products(p, p->in_type[LINEAR_GRAD_W_X], p->in[LINEAR_GRAD_W_X],
                            p->in[LINEAR_GRAD_W_DY]);
}

static int64_t cpu_linear_elements_of(const struct plain *p, int i)
{
    return shape_elements(&p->in_shape[i]);
}

/* Of an operand's elements [from, end). */
static void cpu_linear_widen(const struct plain *p, int i, int64_t from, int64_t end, float *to)
{
    convert_to_f32(to + from, (const uint16_t *)p->in[i] + from, p->in_type[i], end - from);
}

static void widen_x(const struct plain *p, int part, int64_t from, int64_t end)
{
    (void)part;
    cpu_linear_widen(p, LINEAR_GRAD_W_X, from, end, p->scratch);
}

static void widen_dy(const struct plain *p, int part, int64_t from, int64_t end)
{
    (void)part;
    cpu_linear_widen(p, LINEAR_GRAD_W_DY, from, end,
                     (float *)p->scratch + cpu_linear_elements_of(p, LINEAR_GRAD_W_X));
}

/* x and dy in F32: themselves, or in the scratch.  Returns what follows them there. */
static float *cpu_linear_operands(const struct plain *p, const float **x, const float **dy)
{
    const int64_t n_x = cpu_linear_elements_of(p, LINEAR_GRAD_W_X),
                  n_dy = cpu_linear_elements_of(p, LINEAR_GRAD_W_DY);
    float *widened = p->scratch;

    *x = p->in[LINEAR_GRAD_W_X];
    *dy = p->in[LINEAR_GRAD_W_DY];
    if (p->in_type[LINEAR_GRAD_W_X] == DTYPE_F32)
        return widened;
    plain_split(p, n_x, n_x / LANES, widen_x);
    plain_split(p, n_dy, n_dy / LANES, widen_dy);
    *x = widened;
    *dy = widened + n_x;
    return widened + round_up_i64(n_x + n_dy, LANES);
}

/* The floats that cpu_linear_operands needs, in whole cache lines. */
static int64_t cpu_linear_widened(const struct graph *g, const struct node *n)
{
    if (op_type(g, n) == DTYPE_F32)
        return 0;
    return round_up_i64(shape_elements(cpu_in(g, n, LINEAR_GRAD_W_X)) +
                            shape_elements(cpu_in(g, n, LINEAR_GRAD_W_DY)),
                        LANES);
}

static void run_adding_widened(const struct plain *p)
{
    const float *x, *dy;

    cpu_linear_operands(p, &x, &dy);
    cpu_linear_add_products(p, DTYPE_F32, x, dy);
}

static int make_adding(struct cpu *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    if (op_type(g, n) == DTYPE_F32 || !b->widens_bf16)
        return plain_new(g, n, run_adding, 0, out, err);
    return plain_new_split(b, g, n, run_adding_widened,
                           (size_t)cpu_linear_widened(g, n) * sizeof(float), 0, out, err);
}

static int make_overwriting(struct cpu *b, const struct graph *g, const struct node *n,
                            struct kernel **out, struct err *err)
{
    struct chain *c = chain_new_products(b, g, n, err);
    int x = chain_tensor(c, CHAIN_IN, LINEAR_GRAD_W_X,
                         cpu_linear_features(n, cpu_in(g, n, LINEAR_GRAD_W_X)));
    int dy = chain_tensor(c, CHAIN_IN, LINEAR_GRAD_W_DY,
                          dn_row_major(2, cpu_in(g, n, LINEAR_GRAD_W_DY)->dim));
    int dw = chain_tensor(c, CHAIN_OUT, LINEAR_GRAD_W_DW,
                          cpu_linear_weights(n, cpu_out(g, n, LINEAR_GRAD_W_DW)));
    const int small = cpu_linear_is_small(n, cpu_out(g, n, LINEAR_GRAD_W_DW),
                                          cpu_in(g, n, LINEAR_GRAD_W_X)->dim[0]);
    int db = CHAIN_NONE, x_in = x;

    if (small && (x = cpu_linear_columns(c, n, x_in, cpu_in(g, n, LINEAR_GRAD_W_X))) != x_in)
        chain_reorder(c, x_in, x);
    if (cpu_has_out(n, LINEAR_GRAD_W_DB))
        db = chain_tensor(c, CHAIN_OUT, LINEAR_GRAD_W_DB, dn_flat(cpu_out(g, n, LINEAR_GRAD_W_DB)));
    cpu_linear_add(c, n, DN_GRAD_W, small, x, dw, db, dy,
                   (struct chain_arg[]){{DNNL_ARG_SRC, x, 0},
                                        {DNNL_ARG_DIFF_DST, dy, 0},
                                        {DNNL_ARG_DIFF_WEIGHTS, dw, 1},
                                        {DNNL_ARG_DIFF_BIAS, db, 1}},
                   4);
    return chain_finish(c, out);
}

/* ---- by a product of our own ---- */

/* The rows of w are the outputs or, if it is transposed, the inputs. */
static void run_own_product(const struct plain *p)
{
    const int64_t batch = p->in_shape[LINEAR_GRAD_W_X].dim[0];
    const int64_t in = p->in_shape[LINEAR_GRAD_W_X].dim[1];
    const int64_t out = p->in_shape[LINEAR_GRAD_W_DY].dim[1];
    const int adds = plain_adds(p, LINEAR_GRAD_W_DW);
    float *dw = p->out[LINEAR_GRAD_W_DW], *db = p->out[LINEAR_GRAD_W_DB];
    const float *x, *dy;
    float *rest = cpu_linear_operands(p, &x, &dy);
    const struct grad_product usual = {batch, out, in, dy, x, dw, db, NULL, adds};
    const struct grad_product transposed = {batch, in, out, x, dy, dw, NULL, db, adds};

    grad_product_run(p->attr.linear.transposed ? &transposed : &usual, rest, p->n_threads,
                     p->least_work);
}

static int has_own_product(const struct cpu *b, const struct graph *g, const struct node *n)
{
    const struct shape *dw = cpu_out(g, n, LINEAR_GRAD_W_DW);

    if (cpu_linear_has_image(n) || (op_type(g, n) != DTYPE_F32 && !b->widens_bf16))
        return 0;
    for (int i = 0; i < NODE_MAX_OUT; i++)
        if (cpu_has_out(n, i) && g->value[n->out[i]].dtype != DTYPE_F32)
            return 0;
    return grad_product_pays(cpu_in(g, n, LINEAR_GRAD_W_X)->dim[0], dw->dim[0], dw->dim[1]);
}

static int make_own_product(struct cpu *b, const struct graph *g, const struct node *n,
                            struct kernel **out, struct err *err)
{
    const struct shape *dw = cpu_out(g, n, LINEAR_GRAD_W_DW);
    const int64_t floats =
        cpu_linear_widened(g, n) +
        grad_product_scratch(cpu_in(g, n, LINEAR_GRAD_W_X)->dim[0], dw->dim[0], dw->dim[1]);

    return plain_new_split(b, g, n, run_own_product, (size_t)floats * sizeof(float), 0, out, err);
}

int cpu_make_linear_grad_w(struct cpu *b, const struct graph *g, const struct node *n,
                           struct kernel **out, struct err *err)
{
    if (amx_grad_w_fits(b, g, n))
        return amx_grad_w_make(b, g, n, out, err);
    if (has_own_product(b, g, n))
        return make_own_product(b, g, n, out, err);
    return n->adds ? make_adding(b, g, n, out, err) : make_overwriting(b, g, n, out, err);
}
