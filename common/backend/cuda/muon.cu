/* muon - the update of Muon for one matrix: launches that bring the momentum forward, make the
 * Newton-Schulz iterations by products in tiles, and move the parameter.
 *
 * Every operation is rounded by itself (compiled without contraction), and each element of a
 * product is summed in the order of its terms, so replicas stay equal on GPUs of any kind.
 * op/muon.c has the formula, and op/muon.h its element-wise parts; the twin is cpu/muon.c. */
#include "backend/cuda/update.cuh"

extern "C" {
#include "op/muon.h"
}

/* The matrix as the iterations see it: x [m,n] with m <= n.  All but `transposed` is scratch. */
struct iteration {
    int64_t m, n;
    bool transposed;         /* x is the parameter's matrix, transposed */
    double *squares;         /* [blocks]: sums of the squares of u */
    float *x, *next, *s, *t; /* next is as large as x; s, t [m,m] */
};

static inline int64_t cuda_muon_n_blocks(int64_t n)
{
    return (n + UPDATE_BLOCK - 1) / UPDATE_BLOCK;
}

static struct iteration cuda_muon_iteration_of(const struct own *p)
{
    const int64_t rows = (int64_t)p->attr.number[MUON_ATTR_ROWS], columns = p->n / rows;
    struct iteration at = {};

    at.m = rows < columns ? rows : columns;
    at.n = rows < columns ? columns : rows;
    at.transposed = rows > columns;
    at.squares = (double *)p->scratch;
    at.x = (float *)(at.squares + cuda_muon_n_blocks(p->n));
    at.next = at.x + p->n;
    at.s = at.next + p->n;
    at.t = at.s + at.m * at.m;
    return at;
}

static size_t cuda_muon_scratch_bytes(int64_t rows, int64_t columns)
{
    const int64_t m = rows < columns ? rows : columns, all = rows * columns;

    return (size_t)cuda_muon_n_blocks(all) * sizeof(double) +
           (size_t)(2 * all + 2 * m * m) * sizeof(float);
}

/* u goes to `next`, as the parameter's matrix. */
template <typename G>
static __global__ void cuda_muon_move_momentum(struct cuda_update u, struct iteration at,
                                               float momentum, bool nesterov, const G *grad,
                                               float *avg)
{
    struct update_thread thread(&u);

    if (!control_applies(u.check, u.control))
        return;
    for (int64_t b = blockIdx.x; b * UPDATE_BLOCK < u.n; b += gridDim.x) {
        const int64_t end = (b + 1) * UPDATE_BLOCK < u.n ? (b + 1) * UPDATE_BLOCK : u.n;
        double sum = 0;

        for (int64_t i = b * UPDATE_BLOCK + threadIdx.x; i < end; i += blockDim.x) {
            float next = avg[i];
            const float way = muon_forward(momentum, nesterov, thread.gradient(grad, i), &next);

            avg[i] = next;
            at.next[i] = way;
            sum += (double)way * (double)way;
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0)
            at.squares[b] = sum;
    }
}

/* x = u / its norm.  Every block adds the sums of the squares in the same order. */
static __global__ void cuda_muon_scale(struct iteration at)
{
    const int64_t n_sums = (at.m * at.n + UPDATE_BLOCK - 1) / UPDATE_BLOCK;
    double sum = 0;

    for (int64_t b = threadIdx.x; b < n_sums; b += blockDim.x)
        sum += at.squares[b];
    sum = block_sum(sum);
    const float norm = fmaxf((float)sqrt(sum), 1e-7f);

    for (int64_t k = grid_first(); k < at.m * at.n; k += grid_stride()) {
        const int64_t i = k / at.n, j = k % at.n;

        at.x[k] = at.next[at.transposed ? j * at.m + i : k] / norm;
    }
}

/* ---- products ---- */

/* A block computes a tile of TILE x TILE elements, and each of its threads EACH x EACH of them,
 * which lie LINE apart; DEPTH terms at a time go through shared memory. */
enum { TILE = 64, DEPTH = 16, LINE = 16, EACH = TILE / LINE };

/* c [m,n] = alpha * (a b) + beta * add, with a [m,k]; add NULL: c = alpha * (a b).  Element (t, j)
 * of b is b[t * b_row + j * b_column]. */
struct product {
    int64_t m, n, k;
    const float *a, *b, *add;
    int64_t b_row, b_column;
    float alpha, beta;
    float *c;
};

static __device__ inline void cuda_muon_store(struct product x, int64_t i, int64_t j, float sum)
{
    const int64_t at = i * x.n + j;

    if (i < x.m && j < x.n)
        x.c[at] = x.add ? x.beta * x.add[at] + x.alpha * sum : x.alpha * sum;
}

static __global__ void cuda_muon_multiply(struct product x)
{
    SHARED(float, tile_a, TILE *DEPTH);
    SHARED(float, tile_b, DEPTH *TILE);
    const int row = threadIdx.x / LINE, column = threadIdx.x % LINE;
    const int64_t across = (x.n + TILE - 1) / TILE, down = (x.m + TILE - 1) / TILE;

    for (int64_t tile = blockIdx.x; tile < across * down; tile += gridDim.x) {
        const int64_t top = tile / across * TILE, left = tile % across * TILE;
        float sum[EACH][EACH] = {};

        for (int64_t k = 0; k < x.k; k += DEPTH) {
            __syncthreads(); /* the tiles before may still be read */
            for (int e = threadIdx.x; e < TILE * DEPTH; e += blockDim.x) {
                const int64_t i = top + e / DEPTH, in_a = k + e % DEPTH;
                const int64_t in_b = k + e / TILE, j = left + e % TILE;

                tile_a[e] = i < x.m && in_a < x.k ? x.a[i * x.k + in_a] : 0.0f;
                tile_b[e] = in_b < x.k && j < x.n ? x.b[in_b * x.b_row + j * x.b_column] : 0.0f;
            }
            __syncthreads();
            for (int l = 0; l < DEPTH; l++)
                for (int i = 0; i < EACH; i++)
                    for (int j = 0; j < EACH; j++)
                        sum[i][j] += tile_a[(row + i * LINE) * DEPTH + l] *
                                     tile_b[l * TILE + column + j * LINE];
        }
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++)
                cuda_muon_store(x, top + row + i * LINE, left + column + j * LINE, sum[i][j]);
    }
}

static void launch_product(const struct own *p, struct product x)
{
    const int64_t tiles = ((x.m + TILE - 1) / TILE) * ((x.n + TILE - 1) / TILE);

    LAUNCH(cuda_muon_multiply, blocks_for(p, tiles, 1), LINE * LINE, p, x);
}

/* s = x x^T;  t = b s + c (s s);  next = a x + t x */
static void cuda_muon_iterate(const struct own *p, const struct iteration *at)
{
    const double *number = p->attr.number;

    launch_product(p, {at->m, at->m, at->n, at->x, at->x, NULL, 1, at->n, 1.0f, 0.0f, at->s});
    launch_product(p, {at->m, at->m, at->m, at->s, at->s, at->s, at->m, 1,
                       (float)number[MUON_ATTR_C], (float)number[MUON_ATTR_B], at->t});
    launch_product(p, {at->m, at->n, at->m, at->t, at->x, at->x, at->n, 1, 1.0f,
                       (float)number[MUON_ATTR_A], at->next});
}

/* ---- the move ---- */

/* `copy` is the working copy of the parameters, or NULL. */
template <typename C>
static __global__ void cuda_muon_move(struct cuda_update u, struct iteration at, double ratio,
                                      float *param, C *copy)
{
    const int64_t columns = at.transposed ? at.m : at.n;
    const struct muon_terms m = muon_terms(ratio, u.scalars->rate, u.segments);

    if (!control_applies(u.check, u.control))
        return;
    for (int64_t k = grid_first(); k < u.n; k += grid_stride()) {
        const int64_t i = k / columns, j = k % columns;
        const float next = u.keep(
            k, param[k] * m.keep - m.step * at.x[at.transposed ? j * at.n + i : k], param[k]);

        param[k] = next;
        if (copy)
            copy[k] = (C)next;
    }
}

template <typename G, typename C> static void cuda_muon_run(const struct own *p)
{
    const struct cuda_update u = update_of(p);
    const int steps = (int)p->attr.number[MUON_ATTR_STEPS];
    struct iteration at = {};

    if (p->n == 0)
        return;
    at = cuda_muon_iteration_of(p);
    LAUNCH(cuda_muon_move_momentum<G>, blocks_for(p, cuda_muon_n_blocks(p->n), 1), THREADS, p, u,
           at, (float)p->attr.number[MUON_ATTR_MOMENTUM], p->attr.number[MUON_ATTR_NESTEROV] != 0,
           (const G *)p->in[MUON_GRAD], (float *)p->out[MUON_NEW_EXP_AVG]);
    LAUNCH(cuda_muon_scale, blocks_for(p, p->n, THREADS), THREADS, p, at);
    for (int k = 0; k < steps; k++) {
        float *x = at.x;

        cuda_muon_iterate(p, &at);
        at.x = at.next;
        at.next = x;
    }
    LAUNCH(cuda_muon_move<C>, blocks_for(p, p->n, THREADS), THREADS, p, u, at,
           p->attr.number[MUON_ATTR_RATIO], (float *)p->out[MUON_NEW_PARAM],
           (C *)p->out[MUON_NEW_COPY]);
}

extern "C" int cuda_make_muon(struct cuda *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    const int64_t rows = (int64_t)n->attr.number[MUON_ATTR_ROWS];
    const int64_t columns = shape_elements(cuda_in(g, n, UPDATE_PARAM)) / rows;

    return own_new(b, g, n, UPDATE_RUN(g, n, cuda_muon_run), cuda_muon_scratch_bytes(rows, columns),
                   out, err);
}
