/* seal - writes a step's results to the step's slot, and notes whether the step was clean.
 *
 * op/seal.c says which results; the twin is cuda/seal.cu. */
#include "op/seal.h"

#include "backend/cpu/plain.h"

static void cpu_seal_run(const struct plain *p)
{
    const struct seal s = {.check = p->in[SEAL_CHECK],
                           .metrics = p->in[SEAL_METRICS],
                           .control = p->in[SEAL_CONTROL],
                           .scaler = p->in[SEAL_SCALER],
                           .scalars = p->in[SEAL_SCALARS],
                           .waits = p->in[SEAL_WAITS],
                           .kept = p->in[SEAL_KEPT]};
    float *to = (float *)p->out[SEAL_NEW_RESULTS] + s.scalars->slot * SEALED_LEN;

    for (int i = 0; i < SEALED_LEN; i++)
        to[i] = seal_value(&s, i);
    *(float *)p->out[SEAL_NEW_CLEAN] = seal_is_clean(&s) ? s.scalars->stamp : 0;
}

int cpu_make_seal(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err)
{
    (void)b;
    return plain_new(g, n, cpu_seal_run, 0, out, err);
}
