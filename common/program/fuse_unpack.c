/* fuse_unpack - products that read a large packed weight (model.base) tile by tile, so that its
 * numbers are never all in memory. */
#include "op/op.h"
#include "program/fuse_impl.h"

/* The node that unpacks the large weight v for n alone; NULL if it is small, or no such node makes
 * it. Tiles do not pay for small ones, which are in the cache when they are multiplied. */
static struct node *large_unpacked(const struct fuser *f, int v)
{
    enum { LEAST = 1 << 22 }; /* elements */
    struct graph *g = f->g;
    const int maker = is_temp(g, v) ? g->value[v].producer : -1;

    if (maker < 0 || g->node[maker].op != OP_unpack || fuse_n_uses(f, v) != 1 ||
        shape_elements(&g->value[v].shape) < LEAST)
        return NULL;
    return &g->node[maker];
}

void fuse_unpack(struct fuser *f, struct node *n)
{
    const struct node l = *n;
    const int is_grad = n->op == OP_linear_grad_x;
    struct node *unpack;

    if ((n->op != OP_linear && !is_grad) || n->attr.linear.image[0] > 0 ||
        n->attr.linear.act != ACT_NONE ||
        !(unpack = large_unpacked(f, n->in[is_grad ? LINEAR_GRAD_X_W : LINEAR_W])) ||
        !backend_can_fuse(f->b, f->g, n, FUSE_UNPACK, ACT_NONE))
        return;
    n->op = is_grad ? OP_unpack_linear_grad_x : OP_unpack_linear;
    n->n_in = op_get(n->op)->n_in;
    n->n_out = op_get(n->op)->n_out;
    n->in[UNPACK_LINEAR_X] = l.in[is_grad ? LINEAR_GRAD_X_DY : LINEAR_X];
    n->in[UNPACK_LINEAR_CODES] = unpack->in[UNPACK_CODES];
    n->in[UNPACK_LINEAR_SCALES] = unpack->in[UNPACK_SCALES];
    if (!is_grad)
        n->in[UNPACK_LINEAR_B] = l.in[LINEAR_B];
    unpack->op = GONE;
}
