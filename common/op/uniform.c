/* uniform - random numbers inside a network, as torch.rand.
 *
 * uniform  scalars -> y of attr.uniform.shape, whose dimension 0 counts samples
 *   With L elements for each sample, i the index of an element in y, and e = scalars.first_position
 *   * L + i its index in the global batch, y[i] = rng_to_unit(u), where u is word (e & 3) of
 *   rng_draw(seed, RNG_UNIFORM, step, (attr.uniform.tag << 40) + (e >> 2)).  So y is in [0,1), and
 *   the same for any number of ranks. */
#include "op/infer.h"

static int uniform_infer(const struct graph *g, const struct node *n,
                         struct value out[NODE_MAX_OUT], struct err *err)
{
    const int64_t tag = n->attr.uniform.tag;

    (void)g;
    if (tag < 0 || tag >= 65536)
        return op_fail(n, err, "tag %lld must be in [0, 65536)", (long long)tag);
    if (n->attr.uniform.shape.n < 1)
        return op_fail(n, err, "the shape has no dimension for the samples");
    op_out(out, UNIFORM_Y, DTYPE_F32, n->attr.uniform.shape);
    return 0;
}

const struct op_def op_uniform = {
    .infer = uniform_infer,
    OP_SIGNATURE(uniform),
    .flags = OP_ROWS,
    .typed_out = 1u << UNIFORM_Y,
};
