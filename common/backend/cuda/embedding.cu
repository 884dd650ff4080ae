/* embedding - copies rows of a table by token, and adds the gradients up in the order of the
 * tokens.
 *
 * For the table's gradient its rows are divided into groups.  First a block of each group lists the
 * tokens that name a row of the group, in their order.  Then a warp owns some columns of one row.
 * It looks at its group's list, 32 tokens at once, and adds the rows of those that are its own.
 * So no warp looks at all tokens, of which a large batch has as many as the table has rows.
 * op/embedding.c has the formulas; the twin is cpu/embedding.c. */
#include "backend/cuda/device.cuh"

enum { KEPT = 4, TILE = KEPT * WARP }; /* columns of a lane, and of a warp */

static __device__ inline int64_t clamp_token(int32_t token, int64_t n)
{
    return token < 0 ? 0 : token < n ? token : n - 1;
}

/* The positions of the tokens: by their places in samples of `length`, or in documents. */
template <typename T> struct places {
    const T *position;     /* NULL: there are none */
    const int32_t *starts; /* NULL: a sample is one document */
    int64_t length;

    __device__ int64_t of(int64_t r) const
    {
        const int64_t at = r % length, start = starts ? starts[r] : 0;

        return at - (start < 0 ? 0 : start < at ? start : at);
    }
};

template <typename T>
static __global__ void cuda_embedding_forward(const T *table, const int32_t *tokens,
                                              struct places<T> places, T *y, int64_t n, int64_t c,
                                              int64_t n_rows)
{
    for (struct walk w(c); w.i < n; w.next()) {
        const T v = table[clamp_token(tokens[w.row], n_rows) * c + w.col];

        y[w.i] = places.position
                     ? (T)((float)v + (float)places.position[places.of(w.row) * c + w.col])
                     : v;
    }
}

static int64_t cuda_embedding_length_of(const struct shape *tokens)
{
    return tokens->dim[tokens->n - 1];
}

template <typename T> static void cuda_embedding_run(const struct own *p)
{
    const int64_t n = shape_elements(&p->out_shape[EMBEDDING_Y]);
    const struct places<T> places = {
        (const T *)p->in[EMBEDDING_POSITION], (const int32_t *)p->in[EMBEDDING_STARTS],
            cuda_embedding_length_of(&p->in_shape[EMBEDDING_TOKENS])
    };

    LAUNCH((cuda_embedding_forward<T>), blocks_for(p, n, THREADS), THREADS, p,
           (const T *)p->in[EMBEDDING_TABLE], (const int32_t *)p->in[EMBEDDING_TOKENS], places,
           (T *)p->out[EMBEDDING_Y], n, p->c, p->rows);
}

extern "C" int cuda_make_embedding(struct cuda *b, const struct graph *g, const struct node *n,
                                   struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_embedding_run<float>, cuda_embedding_run<bf16_t>,
                         cuda_embedding_run<f16_t>),
                   0, out, err);
}

/* ---- the lists ---- */

#ifndef GROUP_ROWS /* cudasim sets it low */
#define GROUP_ROWS 64
#endif

/* A token that names a row of a group, and its place among all tokens. */
struct named {
    int32_t row, place;
};

/* The groups' lists lie one behind the other, in the order of the groups. */
struct lists {
    const int32_t *tokens;
    struct named *named; /* [n_tokens] */
    int32_t *range;      /* [n_groups, 2]: the first token of each list, and the end */
    int64_t n_tokens, n_rows, n_groups;
};

static int64_t groups_of(int64_t n_rows) { return (n_rows + GROUP_ROWS - 1) / GROUP_ROWS; }

static size_t lists_bytes(int64_t n_tokens, int64_t n_rows)
{
    return (size_t)n_tokens * sizeof(struct named) +
           (size_t)groups_of(n_rows) * 2 * sizeof(int32_t);
}

static struct lists lists_of(const struct own *p, const void *tokens, int64_t n_tokens,
                             int64_t n_rows)
{
    struct named *named = (struct named *)p->scratch;

    return {(const int32_t *)tokens, named, (int32_t *)(named + n_tokens), n_tokens, n_rows,
            groups_of(n_rows)};
}

/* The number of threads of the block before this one for which `mine` is 1; *all gets that of the
 * whole block.  Every thread of the block must call this. */
static __device__ inline int block_rank(int mine, int *all)
{
    SHARED(int, count, WARPS_MAX);
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    const unsigned found = __ballot_sync(FULL_WARP, mine);
    int before = 0;

    __syncthreads(); /* `count` of an earlier call may still be read */
    if (lane == 0)
        count[warp] = __popc(found);
    __syncthreads();
    *all = 0;
    for (int i = 0; i < (int)blockDim.x / WARP; i++) {
        before += i < warp ? count[i] : 0;
        *all += count[i];
    }
    return before + __popc(found & ((1u << lane) - 1));
}

/* The list of a group begins behind all tokens that name rows of the groups before. */
static __device__ void list_group(const struct lists *l, int64_t group)
{
    const int64_t from = group * GROUP_ROWS, to = from + GROUP_ROWS;
    double before = 0;
    int64_t at;

    for (int64_t i = threadIdx.x; i < l->n_tokens; i += blockDim.x)
        before += clamp_token(l->tokens[i], l->n_rows) < from ? 1 : 0;
    at = (int64_t)block_sum(before);
    if (threadIdx.x == 0)
        l->range[2 * group] = (int32_t)at;
    for (int64_t first = 0; first < l->n_tokens; first += blockDim.x) {
        const int64_t i = first + threadIdx.x;
        const int64_t row = i < l->n_tokens ? clamp_token(l->tokens[i], l->n_rows) : -1;
        const int mine = row >= from && row < to;
        int all;
        const int rank = block_rank(mine, &all);

        if (mine)
            l->named[at + rank] = {(int32_t)row, (int32_t)i};
        at += all;
    }
    if (threadIdx.x == 0)
        l->range[2 * group + 1] = (int32_t)at;
}

static __global__ void list_tokens(struct lists l)
{
    for (int64_t group = blockIdx.x; group < l.n_groups; group += gridDim.x)
        list_group(&l, group);
}

/* ---- the sums ---- */

template <typename T> struct table_grad {
    const T *dy;
    struct lists lists;
    struct grad_array to;
    int64_t c;
    int64_t padding; /* the row whose gradient is 0; -1: none */
};

/* Row `row` of the gradient, from column `from` on, TILE columns at most; by one warp. */
template <typename T>
static __device__ void sum_table_row(const struct table_grad<T> *p, int64_t row, int64_t from)
{
    const int32_t *range = p->lists.range + 2 * (row / GROUP_ROWS);
    const int lane = threadIdx.x % WARP;
    float sum[KEPT] = {0};

    for (int64_t first = range[0]; first < range[1] && row != p->padding; first += WARP) {
        const struct named none = {-1, 0};
        const struct named mine = first + lane < range[1] ? p->lists.named[first + lane] : none;
        unsigned found = __ballot_sync(FULL_WARP, mine.row == row);

        for (int k = 0; k < WARP && found >> k; k++) {
            const int64_t r = __shfl_sync(FULL_WARP, mine.place, k);

            for (int j = 0; (found >> k & 1) && j < KEPT; j++) {
                const int64_t col = from + j * WARP + lane;

                sum[j] += col < p->c ? (float)p->dy[r * p->c + col] : 0.0f;
            }
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

    for (int64_t i = grid_first() / WARP; i < p.lists.n_rows * tiles; i += grid_stride() / WARP)
        sum_table_row(&p, i / tiles, i % tiles * TILE);
}

/* An element of the positions' gradient is the sum of one row of each sample, or of each document:
 * then all rows are looked at. */
template <typename T>
static __global__ void sum_positions(const T *dy, struct grad_array to, int64_t n, int64_t c,
                                     int64_t n_tokens, struct places<T> places)
{
    const int64_t step = places.starts ? 1 : places.length;

    for (struct walk w(c); w.i < n; w.next()) {
        float sum = 0;

        for (int64_t r = w.row; w.row < places.length && r < n_tokens; r += step)
            if (!places.starts || places.of(r) == w.row)
                sum += (float)dy[r * c + w.col];
        to.put(w.i, (double)sum);
    }
}

template <typename T> static void run_table_grad(const struct own *p)
{
    const struct shape *dy = &p->in_shape[EMBEDDING_GRAD_DY];
    const struct table_grad<T> table = {
        (const T *)p->in[EMBEDDING_GRAD_DY],
            lists_of(p, p->in[EMBEDDING_GRAD_TOKENS], dy->dim[0], p->attr.embedding.rows),
            grad_of(p, EMBEDDING_GRAD_DTABLE), dy->dim[1], p->attr.embedding.padding - 1
    };
    const int64_t tiles = (table.c + TILE - 1) / TILE;

    LAUNCH(list_tokens, blocks_for(p, table.lists.n_groups, 1), THREADS, p, table.lists);
    LAUNCH((sum_table<T>), blocks_for(p, table.lists.n_rows * tiles, THREADS / WARP), THREADS, p,
           table);
}

template <typename T> static void cuda_embedding_run_grad(const struct own *p)
{
    const struct shape *dy = &p->in_shape[EMBEDDING_GRAD_DY];
    const int64_t c = dy->dim[1], n_position = p->attr.embedding.positions * c;
    const struct places<T> places = {
        NULL, (const int32_t *)p->in[EMBEDDING_GRAD_STARTS],
            cuda_embedding_length_of(&p->in_shape[EMBEDDING_GRAD_TOKENS])
    };

    if (p->out[EMBEDDING_GRAD_DTABLE])
        run_table_grad<T>(p);
    if (p->out[EMBEDDING_GRAD_DPOSITION])
        LAUNCH((sum_positions<T>), blocks_for(p, n_position, THREADS), THREADS, p,
               (const T *)p->in[EMBEDDING_GRAD_DY], grad_of(p, EMBEDDING_GRAD_DPOSITION),
               n_position, c, dy->dim[0], places);
}

extern "C" int cuda_make_embedding_grad(struct cuda *b, const struct graph *g, const struct node *n,
                                        struct kernel **out, struct err *err)
{
    const int64_t n_tokens = cuda_in(g, n, EMBEDDING_GRAD_DY)->dim[0];

    if (n_tokens > INT32_MAX)
        return err_set(err, ERR_UNSUPPORTED, "embedding_grad: a batch of 2^31 tokens or more");
    return own_new(b, g, n,
                   typed(g, n, cuda_embedding_run_grad<float>, cuda_embedding_run_grad<bf16_t>,
                         cuda_embedding_run_grad<f16_t>),
                   lists_bytes(n_tokens, n->attr.embedding.rows), out, err);
}
