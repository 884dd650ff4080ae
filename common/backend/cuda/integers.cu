/* integers - exact arithmetic of whole numbers.
 *
 * op/integers.c has the formulas; the twin is cpu/integers.c. */
#include "backend/cuda/device.cuh"

extern "C" {
#include "ir/integers.h"
}

/* b NULL: the second operand is `number` */
static __global__ void cuda_integers(const int32_t *a, const int32_t *b, int32_t *y, int64_t n,
                                     int kind, int32_t number)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride()) {
        const int64_t v = a[i], w = b ? b[i] : number, u = INTEGERS_OF(kind, v, w);

        y[i] = (int32_t)INTEGERS_LIMIT(u);
    }
}

/* A thread adds up a row: rows are short, and sums of whole numbers are rare. */
static __global__ void cuda_integers_prefix(const int32_t *a, int32_t *y, int64_t rows, int64_t c)
{
    for (int64_t r = grid_first(); r < rows; r += grid_stride()) {
        int64_t sum = 0;

        for (int64_t i = r * c; i < (r + 1) * c; i++) {
            sum = INTEGERS_LIMIT(sum + a[i]);
            y[i] = (int32_t)sum;
        }
    }
}

static void cuda_integers_run(const struct own *p)
{
    if (p->n > 0)
        LAUNCH((cuda_integers), blocks_for(p, p->n, THREADS), THREADS, p,
               (const int32_t *)p->in[INTEGERS_A], (const int32_t *)p->in[INTEGERS_B],
               (int32_t *)p->out[INTEGERS_Y], p->n, (int)p->attr.integers.kind,
               p->attr.integers.number);
}

static void cuda_integers_run_prefix(const struct own *p)
{
    if (p->n > 0)
        LAUNCH((cuda_integers_prefix), blocks_for(p, p->rows, THREADS), THREADS, p,
               (const int32_t *)p->in[INTEGERS_A], (int32_t *)p->out[INTEGERS_Y], p->rows, p->c);
}

extern "C" int cuda_make_integers(struct cuda *b, const struct graph *g, const struct node *n,
                                  struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   n->attr.integers.kind == INTEGERS_PREFIX ? cuda_integers_run_prefix
                                                            : cuda_integers_run,
                   0, out, err);
}
