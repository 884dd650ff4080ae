/* control_pack - packs this step's metrics and requests into the control vector (op/control.h).
 *
 * The twin is cuda/control_pack.cu. */
#include "backend/cpu/plain.h"

static void cpu_control_pack_run(const struct plain *p)
{
    const struct step_scalars *s = p->in[CONTROL_PACK_SCALARS];

    control_pack(p->in[CONTROL_PACK_METRICS], (unsigned)s->requests,
                 s->after != 0 && s->clean != s->after, p->out[CONTROL_PACK_CONTROL]);
}

int cpu_make_control_pack(struct cpu *b, const struct graph *g, const struct node *n,
                          struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, cpu_control_pack_run, 0, out, err);
}
