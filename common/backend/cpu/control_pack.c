#include "backend/cpu/plain.h"

static void run(const struct plain *p)
{
    control_pack(p->in[0], (unsigned)((const struct step_scalars *)p->in[1])->requests, p->out[0]);
}

int cpu_make_control_pack(struct cpu *b, const struct graph *g, const struct node *n,
                          struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, run, 0, out, err);
}
