#include "backend/cpu/plain.h"

static void run(const struct plain *p)
{
    const struct step_scalars *s = p->in[1];

    control_pack(p->in[0], (unsigned)s->requests, s->after != 0 && s->clean != s->after, p->out[0]);
}

int cpu_make_control_pack(struct cpu *b, const struct graph *g, const struct node *n,
                          struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, run, 0, out, err);
}
