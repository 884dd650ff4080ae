/* conv2d - convolutions and their gradients, by oneDNN or, where they are faster, by amx_conv.h,
 * conv_rows.h, winograd.h, winograd5.h and conv_pairs.h.
 *
 * Activations stay NHWC.  oneDNN chooses the filters' layout, since it falls back to its slow
 * reference code for ours; so filters are reordered first, and their gradient afterwards.  Where
 * the gradient is added to another one (node.adds), that reorder adds.
 *
 * op/conv2d.c has the formulas; the twin is cuda/conv2d.c. */
#include "backend/cpu/conv2d.h"

#include "backend/cpu/amx_conv.h"
#include "backend/cpu/amx_grad_w.h"
#include "backend/cpu/chain.h"
#include "backend/cpu/conv_pairs.h"
#include "backend/cpu/conv_rows.h"
#include "backend/cpu/winograd.h"
#include "backend/cpu/winograd5.h"

static struct dn_conv cpu_conv2d_geometry(const struct node *n)
{
    struct dn_conv conv = {.adds = n->op == OP_conv2d && cpu_has_in(n, CONV2D_ADD)};

    for (int i = 0; i < 2; i++) {
        conv.stride[i] = n->attr.conv.stride[i];
        conv.pad[i] = n->attr.conv.pad[i];
        conv.dilation[i] = n->attr.conv.dilation[i];
    }
    return conv;
}

/* The layout of w [K,C/groups,R,S] as O,I,H,W or, with groups, G,O,I,H,W. */
static struct dn_layout cpu_conv2d_filter(const struct shape *w, int groups)
{
    const int64_t *d = w->dim;

    if (groups == 1)
        return dn_row_major(4, d);
    return dn_row_major(5, (int64_t[]){groups, d[0] / groups, d[1], d[2], d[3]});
}

static void cpu_conv2d_add(struct chain *c, const struct node *n, enum dn_pass pass, int x, int w,
                           int b, int y, const struct chain_arg *args, int n_args)
{
    const struct dn_conv conv = cpu_conv2d_geometry(n);
    dnnl_primitive_desc_t pd = NULL;
    struct dn_md any;
    int rc;

    if (!c || x < 0 || w < 0 || y < 0)
        return;
    any = chain_any(c, w);
    rc = dn_conv(chain_onednn(c), pass, &conv, chain_md(c, x), &any, chain_md(c, b), chain_md(c, y),
                 dn_fused(n->attr.conv.act), &pd, chain_err(c));
    chain_add(c, rc, pd, args, n_args);
}

static int make_forward(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    struct chain *c = chain_new_products(b, g, n, err);
    int x = chain_tensor(c, CHAIN_IN, CONV2D_X, dn_image(cpu_in(g, n, CONV2D_X)));
    int w = chain_tensor(c, CHAIN_IN, CONV2D_W,
                         cpu_conv2d_filter(cpu_in(g, n, CONV2D_W), n->attr.conv.groups));
    int bias = CHAIN_NONE, y;

    if (cpu_has_in(n, CONV2D_B))
        bias = chain_tensor(c, CHAIN_IN, CONV2D_B, dn_flat(cpu_in(g, n, CONV2D_B)));
    y = chain_tensor(c, CHAIN_OUT, CONV2D_Y, dn_image(cpu_out(g, n, CONV2D_Y)));
    if (cpu_has_in(n, CONV2D_ADD))
        chain_copy(c, chain_tensor(c, CHAIN_IN, CONV2D_ADD, dn_image(cpu_out(g, n, CONV2D_Y))), y);
    cpu_conv2d_add(
        c, n, DN_FORWARD, x, w, bias, y,
        (struct chain_arg[]){{DNNL_ARG_SRC, x, 0},
                             {DNNL_ARG_WEIGHTS, w, 0},
                             {DNNL_ARG_BIAS, bias, 0},
                             {DNNL_ARG_DST, y, 1, .act = dn_not_fused(n->attr.conv.act)}},
        4);
    return chain_finish(c, out);
}

static int make_grad_x(struct cpu *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    struct chain *c = chain_new_products(b, g, n, err);
    int w = chain_tensor(c, CHAIN_IN, CONV2D_GRAD_X_W,
                         cpu_conv2d_filter(cpu_in(g, n, CONV2D_GRAD_X_W), n->attr.conv.groups));
    int dy = chain_tensor(c, CHAIN_IN, CONV2D_GRAD_X_DY, dn_image(cpu_in(g, n, CONV2D_GRAD_X_DY)));
    int dx =
        chain_tensor(c, CHAIN_OUT, CONV2D_GRAD_X_DX, dn_image(cpu_out(g, n, CONV2D_GRAD_X_DX)));

    cpu_conv2d_add(c, n, DN_GRAD_X, dx, w, CHAIN_NONE, dy,
                   (struct chain_arg[]){{DNNL_ARG_WEIGHTS, w, 0},
                                        {DNNL_ARG_DIFF_DST, dy, 0},
                                        {DNNL_ARG_DIFF_SRC, dx, 1}},
                   3);
    return chain_finish(c, out);
}

static int make_grad_w(struct cpu *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    struct chain *c = chain_new_products(b, g, n, err);
    int x = chain_tensor(c, CHAIN_IN, CONV2D_GRAD_W_X, dn_image(cpu_in(g, n, CONV2D_GRAD_W_X)));
    int dy = chain_tensor(c, CHAIN_IN, CONV2D_GRAD_W_DY, dn_image(cpu_in(g, n, CONV2D_GRAD_W_DY)));
    int dw = chain_tensor(c, CHAIN_OUT, CONV2D_GRAD_W_DW,
                          cpu_conv2d_filter(cpu_out(g, n, CONV2D_GRAD_W_DW), n->attr.conv.groups));
    int db = CHAIN_NONE;

    if (cpu_has_out(n, CONV2D_GRAD_W_DB))
        db = chain_tensor(c, CHAIN_OUT, CONV2D_GRAD_W_DB, dn_flat(cpu_out(g, n, CONV2D_GRAD_W_DB)));
    cpu_conv2d_add(
        c, n, DN_GRAD_W, x, dw, db, dy,
        (struct chain_arg[]){{DNNL_ARG_SRC, x, 0},
                             {DNNL_ARG_DIFF_DST, dy, 0},
                             {DNNL_ARG_DIFF_WEIGHTS, dw, 1, n->adds >> CONV2D_GRAD_W_DW & 1},
                             {DNNL_ARG_DIFF_BIAS, db, 1, n->adds >> CONV2D_GRAD_W_DB & 1}},
        4);
    return chain_finish(c, out);
}

typedef int maker(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err);

static maker *cpu_conv2d_choose(const struct cpu *b, const struct graph *g, const struct node *n,
                                maker *by_onednn)
{
    return amx_conv_fits(b, g, n)     ? amx_conv_make
           : amx_grad_w_fits(b, g, n) ? amx_grad_w_make
           : winograd5_fits(b, g, n)  ? winograd5_make
           : conv_rows_fits(b, g, n)  ? conv_rows_make
           : winograd_fits(b, g, n)   ? winograd_make
           : conv_pairs_fits(b, g, n) ? conv_pairs_make
                                      : by_onednn;
}

/* oneDNN's chain adds in F32. */
static int chain_adds(const struct graph *g, const struct node *n)
{
    int is_f32 = 1;

    for (int i = 0; i < n->n_out; i++)
        is_f32 &= !cpu_has_out(n, i) || g->value[n->out[i]].dtype == DTYPE_F32;
    return is_f32;
}

int conv2d_adds(const struct cpu *b, const struct graph *g, const struct node *n)
{
    return cpu_conv2d_choose(b, g, n, NULL) != NULL || chain_adds(g, n);
}

int cpu_make_conv2d(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    return cpu_conv2d_choose(b, g, n, make_forward)(b, g, n, out, err);
}

int cpu_make_conv2d_grad_x(struct cpu *b, const struct graph *g, const struct node *n,
                           struct kernel **out, struct err *err)
{
    return cpu_conv2d_choose(b, g, n, make_grad_x)(b, g, n, out, err);
}

int cpu_make_conv2d_grad_w(struct cpu *b, const struct graph *g, const struct node *n,
                           struct kernel **out, struct err *err)
{
    return cpu_conv2d_choose(b, g, n, make_grad_w)(b, g, n, out, err);
}
