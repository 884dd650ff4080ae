#include "op/seal.h"

#include "backend/cpu/plain.h"

static void run(const struct plain *p)
{
    const struct seal s = {.check = p->in[2],
                           .metrics = p->in[5],
                           .control = p->in[3],
                           .scaler = p->in[7],
                           .scalars = p->in[4],
                           .waits = p->in[6]};
    float *to = (float *)p->out[1] + s.scalars->slot * SEAL_LEN;

    for (int i = 0; i < SEAL_LEN; i++)
        to[i] = seal_value(&s, i);
    *(float *)p->out[0] = seal_is_clean(&s) ? s.scalars->stamp : 0;
}

int cpu_make_seal(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err)
{
    (void)b;
    return plain_new(g, n, run, 0, out, err);
}
