/* gather - copies the rows that an index names, by one kernel for all tables.
 *
 * Row i of all tables counts as one row, in which the tables' rows follow each other; a thread
 * copies one element.  An element has 4 bytes, whatever its type.
 * op/gather.c has the formula; the twin is cpu/gather.c. */
#include "backend/cuda/device.cuh"

extern "C" {
#include "op/gather.h"
}

struct gathered {
    const int64_t *index;
    const int32_t *table[NODE_MAX_OUT];
    int32_t *y[NODE_MAX_OUT];
    int64_t length[NODE_MAX_OUT]; /* elements of a row; 0: there is no such table */
};

static __global__ void cuda_gather(struct gathered p, int64_t n, int64_t length)
{
    for (struct walk w(length); w.i < n; w.next()) {
        int64_t col = w.col;
        int k = 0;

        for (; col >= p.length[k]; k++)
            col -= p.length[k];
        p.y[k][w.row * p.length[k] + col] = p.table[k][p.index[w.row] * p.length[k] + col];
    }
}

static void cuda_gather_run(const struct own *p)
{
    const int64_t n_rows = p->out_shape[GATHER_Y].dim[0];
    struct gathered what = {(const int64_t *)p->in[GATHER_INDEX], {}, {}, {}};
    int64_t length = 0;

    for (int k = 0; k < NODE_MAX_OUT; k++) {
        what.table[k] = (const int32_t *)p->in[gather_table_of(k)];
        what.y[k] = (int32_t *)p->out[k];
        if (what.y[k])
            what.length[k] = (int64_t)(p->out_bytes[k] / sizeof(int32_t)) / n_rows;
        length += what.length[k];
    }
    LAUNCH(cuda_gather, blocks_for(p, n_rows * length, THREADS), THREADS, p, what, n_rows * length,
           length);
}

extern "C" int cuda_make_gather(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return own_new(b, g, n, cuda_gather_run, 0, out, err);
}
