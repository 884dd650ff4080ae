/* adasum - combines gradients pair by pair.
 *
 * Every tensor is cut into as many pieces as the length of a row says.  A block adds up a piece's
 * products, then one thread adds the pieces of a product.  Every operation is rounded by itself
 * (compiled without contraction).
 * op/adasum.c has the formulas; the twin is cpu/adasum.c. */
#include "backend/cuda/device.cuh"

extern "C" {
#include "op/adasum.h"
}

/* A row of this many elements has one more piece of each tensor, up to the limit. */
enum { PIECE = 16384, PIECES_MOST = 64 };

struct tensors {
    const float *rows;
    const int64_t *ends;
    int64_t c, stride;        /* elements of a row; rows from a to b */
    int64_t n, count, pieces; /* tensors of a row; of all pairs; pieces of each */
};

/* A piece of a tensor: elements [from, to) of the array `rows`, and of row b those `apart` behind.
 */
struct piece {
    int64_t item, from, to, apart;

    __device__ piece(const struct tensors &t, int64_t k)
    {
        const int64_t part = k % t.pieces;
        int64_t tensor, begin, length, row;

        item = k / t.pieces;
        tensor = item % t.n;
        row = item / t.n * 2 * t.stride * t.c;
        begin = tensor > 0 ? t.ends[tensor - 1] : 0;
        length = t.ends[tensor] - begin;
        from = row + begin + length * part / t.pieces;
        to = row + begin + length * (part + 1) / t.pieces;
        apart = t.stride * t.c;
    }
};

/* part [ADASUM_N_DOTS, count * pieces] */
static __global__ void cuda_adasum_add_pieces(struct tensors t, double *part)
{
    for (int64_t k = blockIdx.x; k < t.count * t.pieces; k += gridDim.x) {
        const struct piece p(t, k);
        double ab = 0, aa = 0, bb = 0;

        for (int64_t i = p.from + threadIdx.x; i < p.to; i += blockDim.x) {
            const double a = (double)t.rows[i], b = (double)t.rows[i + p.apart];

            ab += a * b;
            aa += a * a;
            bb += b * b;
        }
        ab = block_sum(ab);
        aa = block_sum(aa);
        bb = block_sum(bb);
        if (threadIdx.x == 0) {
            part[ADASUM_AB * t.count * t.pieces + k] = ab;
            part[ADASUM_AA * t.count * t.pieces + k] = aa;
            part[ADASUM_BB * t.count * t.pieces + k] = bb;
        }
    }
}

static __global__ void cuda_adasum_add_dots(struct tensors t, const double *part, double *dots)
{
    for (int64_t i = grid_first(); i < t.count * ADASUM_N_DOTS; i += grid_stride()) {
        const int64_t item = i / ADASUM_N_DOTS, kind = i % ADASUM_N_DOTS;
        const double *from = part + (kind * t.count + item) * t.pieces;
        double sum = 0;

        for (int64_t k = 0; k < t.pieces; k++)
            sum += from[k];
        dots[i] = sum;
    }
}

static __global__ void cuda_adasum_combine(struct tensors t, const double *dots, float *rows)
{
    for (int64_t k = blockIdx.x; k < t.count * t.pieces; k += gridDim.x) {
        const struct piece p(t, k);
        const double *of = dots + p.item * ADASUM_N_DOTS;
        const double of_a = adasum_factor(of[ADASUM_AB], of[ADASUM_AA]);
        const double of_b = adasum_factor(of[ADASUM_AB], of[ADASUM_BB]);

        for (int64_t i = p.from + threadIdx.x; i < p.to; i += blockDim.x)
            rows[i] = (float)(of_a * (double)rows[i] + of_b * (double)rows[i + p.apart]);
    }
}

static struct tensors tensors_of(const struct shape *rows, const struct shape *ends, double stride)
{
    struct tensors t = {};

    t.c = rows->dim[1];
    t.stride = (int64_t)stride;
    t.n = ends->dim[0];
    t.count = adasum_pairs(rows->dim[0], t.stride) * t.n;
    t.pieces = max_i64(1, min_i64(PIECES_MOST, ceil_div_i64(t.c, PIECE)));
    return t;
}

static struct tensors tensors_at(const struct own *p)
{
    struct tensors t = tensors_of(&p->in_shape[ADASUM_DOTS_ROWS], &p->in_shape[ADASUM_DOTS_ENDS],
                                  p->attr.number[ADASUM_DOTS_ATTR_STRIDE]);

    t.rows = (const float *)p->in[ADASUM_DOTS_ROWS];
    t.ends = (const int64_t *)p->in[ADASUM_DOTS_ENDS];
    return t;
}

static void cuda_adasum_run_dots(const struct own *p)
{
    const struct tensors t = tensors_at(p);
    double *part = (double *)p->scratch;

    if (t.count == 0)
        return;
    LAUNCH(cuda_adasum_add_pieces, blocks_for(p, t.count * t.pieces, 1), THREADS, p, t, part);
    LAUNCH(cuda_adasum_add_dots, blocks_for(p, t.count * ADASUM_N_DOTS, THREADS), THREADS, p, t,
           (const double *)part, (double *)p->out[ADASUM_DOTS_DOTS]);
}

static void cuda_adasum_run_combine(const struct own *p)
{
    const struct tensors t = tensors_at(p);

    if (t.count > 0)
        LAUNCH(cuda_adasum_combine, blocks_for(p, t.count * t.pieces, 1), THREADS, p, t,
               (const double *)p->in[ADASUM_COMBINE_DOTS],
               (float *)p->out[ADASUM_COMBINE_NEW_ROWS]);
}

extern "C" int cuda_make_adasum_dots(struct cuda *b, const struct graph *g, const struct node *n,
                                     struct kernel **out, struct err *err)
{
    const struct tensors t =
        tensors_of(cuda_in(g, n, ADASUM_DOTS_ROWS), cuda_in(g, n, ADASUM_DOTS_ENDS),
                   n->attr.number[ADASUM_DOTS_ATTR_STRIDE]);

    return own_new(b, g, n, cuda_adasum_run_dots,
                   (size_t)(t.count * t.pieces * ADASUM_N_DOTS) * sizeof(double), out, err);
}

extern "C" int cuda_make_adasum_combine(struct cuda *b, const struct graph *g, const struct node *n,
                                        struct kernel **out, struct err *err)
{
    return own_new(b, g, n, cuda_adasum_run_combine, 0, out, err);
}
