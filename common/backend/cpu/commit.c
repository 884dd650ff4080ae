/* commit - copies the shadow over the state if the step is applied (op/commit.c).
 *
 * The twin is cuda/commit.cu. */
#include <string.h>

#include "backend/cpu/plain.h"

static void cpu_commit_run(const struct plain *p)
{
    if (control_applies(p->in[COMMIT_CHECK], p->in[COMMIT_CONTROL]))
        memcpy(p->out[COMMIT_STATE], p->in[COMMIT_SHADOW], p->out_bytes[COMMIT_STATE]);
}

int cpu_make_commit(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    (void)b;
    return plain_new(g, n, cpu_commit_run, 0, out, err);
}
