/* add - the sum of two tensors of one shape, by oneDNN.
 *
 * op/add.c has the formula; the twin is cuda/add.cu. */
#include "backend/cpu/chain.h"

int cpu_make_add(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                 struct err *err)
{
    const struct dn_layout all = dn_flat(cpu_in(g, n, ADD_A));
    struct chain *c = chain_new(b, g, n, err);
    int x0 = chain_tensor(c, CHAIN_IN, ADD_A, all);
    int x1 = chain_tensor(c, CHAIN_IN, ADD_B, all);
    int y = chain_tensor(c, CHAIN_OUT, ADD_Y, all);

    chain_sum(c, x0, x1, y);
    return chain_finish(c, out);
}
