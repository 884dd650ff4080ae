/* gather - copies the rows that an index names, one table after the other.
 *
 * op/gather.c has the formula; the twin is cuda/gather.cu. */
#include <string.h>

#include "backend/cpu/plain.h"
#include "op/gather.h"

static void gather_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int64_t *index = p->in[GATHER_INDEX], n = p->out_shape[GATHER_Y].dim[0];

    (void)part;
    for (int k = 0; k < NODE_MAX_OUT; k++) {
        const size_t n_bytes = p->out[k] ? p->out_bytes[k] / (size_t)n : 0;
        const char *table = p->out[k] ? p->in[gather_table_of(k)] : NULL;

        for (int64_t i = from; p->out[k] && i < to; i++)
            memcpy((char *)p->out[k] + (size_t)i * n_bytes, table + (size_t)index[i] * n_bytes,
                   n_bytes);
    }
}

static void cpu_gather_run(const struct plain *p)
{
    size_t n_bytes = 0;

    for (int k = 0; k < NODE_MAX_OUT; k++)
        n_bytes += p->out_bytes[k];
    plain_split(p, p->out_shape[GATHER_Y].dim[0], (int64_t)(n_bytes / 32), gather_rows);
}

int cpu_make_gather(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    return plain_new_split(b, g, n, cpu_gather_run, 0, 0, out, err);
}
