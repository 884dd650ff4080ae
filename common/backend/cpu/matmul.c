/* matmul - a product of matrices after the other, by oneDNN's dnnl_sgemm.
 *
 * With at least as many products as threads each thread computes some; else all threads compute
 * each of them.  BF16 matrices are widened to F32 before, and the product is rounded after.
 * op/matmul.c has the formula; the twin is cuda/matmul.cu. */
#include <oneapi/dnnl/dnnl.h>

#include "backend/cpu/convert.h"
#include "backend/cpu/plain.h"
#include "base/util.h"
#include "op/strided.h"

/* The matrices of an operand. */
struct matrices {
    struct strided index; /* of the operand's matrix for each one of y */
    int64_t rows, cols;   /* as they lie in memory */
};

static struct shape cpu_matmul_batch_of(const struct shape *s)
{
    struct shape batch = *s;

    batch.n -= 2;
    return batch;
}

static struct matrices cpu_matmul_matrices_of(const struct plain *p, int in)
{
    const struct shape *s = &p->in_shape[in];
    const struct shape batch = cpu_matmul_batch_of(s),
                       all = cpu_matmul_batch_of(&p->out_shape[MATMUL_Y]);

    return (struct matrices){strided_broadcast(&batch, &all), s->dim[s->n - 2], s->dim[s->n - 1]};
}

/* The matrix of in[i] for product k, as F32. */
static const float *read_matrix(const struct plain *p, int i, const struct matrices *m, int64_t k,
                                float *room)
{
    const int64_t n = m->rows * m->cols;

    return plain_read(p, i, strided_at(&m->index, k) * n, n, room);
}

static int64_t cpu_matmul_elements(const struct shape *s)
{
    return s->dim[s->n - 2] * s->dim[s->n - 1];
}

static void product_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct matrices a = cpu_matmul_matrices_of(p, MATMUL_A),
                          b = cpu_matmul_matrices_of(p, MATMUL_B);
    const int ta = p->attr.matmul.transpose_a, tb = p->attr.matmul.transpose_b;
    const struct shape *y = &p->out_shape[MATMUL_Y];
    const int64_t M = y->dim[y->n - 2], N = y->dim[y->n - 1], K = ta ? a.rows : a.cols;
    float *room_a = plain_part_scratch(p, part), *room_b = room_a + a.rows * a.cols;
    float *room_y = room_b + b.rows * b.cols;

    for (int64_t k = from; k < to; k++) {
        const float *x = read_matrix(p, MATMUL_A, &a, k, room_a);
        const float *w = read_matrix(p, MATMUL_B, &b, k, room_b);
        float *product = plain_dest(p, MATMUL_Y, k * M * N, room_y);

        plain_multiplied(p, (int)dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', M, N, K, 1.0f, x,
                                            a.cols, w, b.cols, 0.0f, product, N));
        plain_done(p, MATMUL_Y, k * M * N, M * N, room_y);
    }
}

static void cpu_matmul_run(const struct plain *p)
{
    const struct shape *y = &p->out_shape[MATMUL_Y];
    const int64_t n = shape_elements(y) / cpu_matmul_elements(y);

    if (n < p->n_threads)
        product_part(p, 0, 0, n);
    else
        plain_split(p, n, p->rows * p->c / 8 * y->dim[y->n - 1], product_part);
}

int cpu_make_matmul(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    const int is_wide = op_type(g, n) == DTYPE_F32;
    const int64_t room = cpu_matmul_elements(cpu_in(g, n, MATMUL_A)) +
                         cpu_matmul_elements(cpu_in(g, n, MATMUL_B)) +
                         cpu_matmul_elements(cpu_out(g, n, MATMUL_Y));

    return plain_new_split(b, g, n, cpu_matmul_run, 0, is_wide ? 0 : (size_t)room * sizeof(float),
                           out, err);
}
