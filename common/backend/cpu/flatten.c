/* flatten - turns images into rows of features in PyTorch's order (C,H,W); unflatten does the
 * reverse.
 *
 * Both are oneDNN's reorder between two layouts of N,C,H,W; the twin is cuda/flatten.cu. */
#include "backend/cpu/chain.h"

static int cpu_flatten_make(struct cpu *b, const struct graph *g, const struct node *n,
                            const struct shape *image, int to_rows, struct kernel **out,
                            struct err *err)
{
    const struct dn_layout nhwc = dn_image(image), nchw = dn_row_major(4, nhwc.dim);
    struct chain *c = chain_new(b, g, n, err);
    int from = chain_tensor(c, CHAIN_IN, to_rows ? FLATTEN_X : UNFLATTEN_Y, to_rows ? nhwc : nchw);
    int to = chain_tensor(c, CHAIN_OUT, to_rows ? FLATTEN_Y : UNFLATTEN_X, to_rows ? nchw : nhwc);

    chain_reorder(c, from, to);
    return chain_finish(c, out);
}

int cpu_make_flatten(struct cpu *b, const struct graph *g, const struct node *n,
                     struct kernel **out, struct err *err)
{
    return cpu_flatten_make(b, g, n, cpu_in(g, n, FLATTEN_X), 1, out, err);
}

int cpu_make_unflatten(struct cpu *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    return cpu_flatten_make(b, g, n, cpu_out(g, n, UNFLATTEN_X), 0, out, err);
}
