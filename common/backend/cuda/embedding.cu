/* embedding - copies rows of a table by token, and adds the gradients up in the order of the
 * tokens.
 *
 * For the table's gradient a warp owns some columns of one row.  It looks at all tokens, 32 at
 * once, and adds the rows of those that are its own.  op/embedding.c has the formulas; the twin is
 * cpu/embedding.c. */
#include "backend/cuda/device.cuh"

enum { KEPT = 4, TILE = KEPT * WARP }; /* columns of a lane, and of a warp */

static __device__ inline int64_t clamp_token(int32_t token, int64_t n)
{
    return token < 0 ? 0 : token < n ? token : n - 1;
}

template <typename T>
static __global__ void embed(const T *table, const int32_t *tokens, const T *position, T *y,
                             int64_t n, int64_t c, int64_t n_rows, int64_t length)
{
    for (struct walk w(c); w.i < n; w.next()) {
        const T v = table[clamp_token(tokens[w.row], n_rows) * c + w.col];

        y[w.i] = position ? (T)((float)v + (float)position[w.row % length * c + w.col]) : v;
    }
}

static int64_t length_of(const struct shape *tokens) { return tokens->dim[tokens->n - 1]; }

template <typename T> static void run(const struct own *p)
{
    const int64_t n = shape_elements(&p->out_shape[EMBEDDING_Y]);

    LAUNCH((embed<T>), blocks_for(p, n, THREADS), THREADS, p, (const T *)p->in[EMBEDDING_TABLE],
           (const int32_t *)p->in[EMBEDDING_TOKENS], (const T *)p->in[EMBEDDING_POSITION],
           (T *)p->out[EMBEDDING_Y], n, p->c, p->rows, length_of(&p->in_shape[EMBEDDING_TOKENS]));
}

extern "C" int cuda_make_embedding(struct cuda *b, const struct graph *g, const struct node *n,
                                   struct kernel **out, struct err *err)
{
    return own_new(b, g, n, typed(g, n, run<float>, run<bf16_t>, run<f16_t>), 0, out, err);
}

template <typename T> struct table_grad {
    const T *dy;
    const int32_t *tokens;
    struct grad_array to;
    int64_t n_tokens, c, n_rows;
};

/* Row `row` of the gradient, from column `from` on, TILE columns at most; by one warp. */
template <typename T>
static __device__ void sum_table_row(const struct table_grad<T> *p, int64_t row, int64_t from)
{
    const int lane = threadIdx.x % WARP;
    float sum[KEPT] = {0};

    for (int64_t first = 0; first < p->n_tokens; first += WARP) {
        const int64_t mine = first + lane;
        unsigned found = __ballot_sync(
            FULL_WARP, mine < p->n_tokens && clamp_token(p->tokens[mine], p->n_rows) == row);

        for (int64_t r = first; found; r++, found >>= 1)
            for (int k = 0; (found & 1) && k < KEPT; k++) {
                const int64_t col = from + k * WARP + lane;

                sum[k] += col < p->c ? (float)p->dy[r * p->c + col] : 0.0f;
            }
    }
    for (int k = 0; k < KEPT; k++) {
        const int64_t col = from + k * WARP + lane;

        if (col < p->c)
            p->to.put(row * p->c + col, (double)sum[k]);
    }
}

template <typename T> static __global__ void sum_table(struct table_grad<T> p)
{
    const int64_t tiles = (p.c + TILE - 1) / TILE;

    for (int64_t i = grid_first() / WARP; i < p.n_rows * tiles; i += grid_stride() / WARP)
        sum_table_row(&p, i / tiles, i % tiles * TILE);
}

/* An element of the positions' gradient is the sum of one row of each sample. */
template <typename T>
static __global__ void sum_positions(const T *dy, struct grad_array to, int64_t n, int64_t c,
                                     int64_t n_tokens, int64_t length)
{
    for (struct walk w(c); w.i < n; w.next()) {
        float sum = 0;

        for (int64_t r = w.row; w.row < length && r < n_tokens; r += length)
            sum += (float)dy[r * c + w.col];
        to.put(w.i, (double)sum);
    }
}

template <typename T> static void run_grad(const struct own *p)
{
    const struct shape *dy = &p->in_shape[EMBEDDING_GRAD_DY];
    const int64_t c = dy->dim[1], n_position = p->attr.embedding.positions * c;
    const struct table_grad<T> table = {
        (const T *)p->in[EMBEDDING_GRAD_DY], (const int32_t *)p->in[EMBEDDING_GRAD_TOKENS],
            grad_of(p, EMBEDDING_GRAD_DTABLE), dy->dim[0], c, p->attr.embedding.rows
    };

    if (p->out[EMBEDDING_GRAD_DTABLE])
        LAUNCH((sum_table<T>),
               blocks_for(p, table.n_rows * ((c + TILE - 1) / TILE), THREADS / WARP), THREADS, p,
               table);
    if (p->out[EMBEDDING_GRAD_DPOSITION])
        LAUNCH((sum_positions<T>), blocks_for(p, n_position, THREADS), THREADS, p, table.dy,
               grad_of(p, EMBEDDING_GRAD_DPOSITION), n_position, c, dy->dim[0],
               length_of(&p->in_shape[EMBEDDING_GRAD_TOKENS]));
}

extern "C" int cuda_make_embedding_grad(struct cuda *b, const struct graph *g, const struct node *n,
                                        struct kernel **out, struct err *err)
{
    return own_new(b, g, n, typed(g, n, run_grad<float>, run_grad<bf16_t>, run_grad<f16_t>), 0, out,
                   err);
}
