/* cast - converts numbers from one floating-point type to another.
 *
 * op/cast.c has the formula; the twin is cuda/cast.cu. */
#include "backend/cpu/plain.h"
#include "tensor/half.h"

static void run(const struct plain *p)
{
    for (int64_t i = 0; i < p->rows * p->c; i++)
        real_put(p->out[CAST_Y], p->attr.cast.to, i,
                 real_get(p->in[CAST_X], p->in_type[CAST_X], i));
}

int cpu_make_cast(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err)
{
    (void)b;
    return plain_new(g, n, run, 0, out, err);
}
