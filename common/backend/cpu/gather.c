/* gather - copies the rows that an index names, one table after the other.
 *
 * op/gather.c has the formula; the twin is cuda/gather.cu. */
#include <string.h>

#include "backend/cpu/plain.h"
#include "op/gather.h"

static void gather(char *y, const char *table, const int64_t *index, int64_t n, size_t n_row_bytes)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(y + (size_t)i * n_row_bytes, table + (size_t)index[i] * n_row_bytes, n_row_bytes);
}

static void run(const struct plain *p)
{
    const int64_t n = p->out_shape[GATHER_Y].dim[0];

    for (int k = 0; k < NODE_MAX_OUT; k++)
        if (p->out[k])
            gather(p->out[k], p->in[gather_table_of(k)], p->in[GATHER_INDEX], n,
                   p->out_bytes[k] / (size_t)n);
}

int cpu_make_gather(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    (void)b;
    return plain_new(g, n, run, 0, out, err);
}
