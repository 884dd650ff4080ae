#include <string.h>

#include "backend/cpu/plain.h"

static void run(const struct plain *p)
{
    const int64_t n = p->out_shape[0].dim[0];
    const size_t row = p->out_bytes[0] / (size_t)n;
    const int64_t *index = p->in[1];
    const int32_t *labels = p->in[2];
    int32_t *picked = p->out[1];

    for (int64_t i = 0; i < n; i++) {
        memcpy((char *)p->out[0] + (size_t)i * row, (const char *)p->in[0] + (size_t)index[i] * row,
               row);
        if (picked)
            picked[i] = labels[index[i]];
    }
}

int cpu_make_gather(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    (void)b;
    return plain_new(g, n, run, 0, out, err);
}
