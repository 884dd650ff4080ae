/* columns - K sums over the rows of [rows,c], for each column, in double.
 *
 * Two launches: blocks add up chunks of rows into the scratch, and then the chunks' sums; one where
 * a chunk is enough.  How the rows are cut depends on rows and c alone, so the bits do not depend
 * on the device.
 *
 *     struct my_term { ...; __device__ void column(int64_t col); __device__ void add(double *sum,
 *                      int64_t row) const; };         adds row's K terms of that column to sum[K]
 *     struct my_end  { ...; __device__ void put(int64_t i, double sum) const; };   i < K*c
 *     columns_sum<K>(p, my_term{...}, my_end{...}, rows, c);
 * with columns_scratch(K, rows, c) bytes at p->scratch.
 *
 * Sum number k of column col is i = k*c + col. */
#ifndef BACKEND_CUDA_COLUMNS_CUH
#define BACKEND_CUDA_COLUMNS_CUH

#include "backend/cuda/device.cuh"

/* A block works on a tile of `width` columns by THREADS / width rows at a time. */
struct columns_plan {
    int64_t rows, c;
    int64_t n_chunks, chunk; /* chunk rows each, the last one fewer */
    int width, depth;        /* depth = THREADS / width */
    int64_t n_tiles;         /* over the columns */
};

/* Rows that a thread adds up, one behind the other, before another chunk is worth while (cudasim:
 * few); how many of the chunks' sums.  The narrowest tile is a sector of memory wide, where it
 * reads these. */
#ifndef COLUMNS_ROWS
#define COLUMNS_ROWS 16
#endif
enum { COLUMNS_CHUNKS = 512, COLUMNS_SUMS = 4, COLUMNS_NARROW = 4 };

/* Few rows get narrow tiles, and by that more threads to a column, rather than a second launch. */
static inline struct columns_plan columns_plan(int64_t rows, int64_t c, int64_t max_chunks)
{
    const int each = max_chunks == 1 ? COLUMNS_SUMS : COLUMNS_ROWS;
    struct columns_plan p = {};
    int width = WARP;
    int64_t want;

    while (width > COLUMNS_NARROW && rows > THREADS / width * each &&
           (max_chunks == 1 || rows <= THREADS / COLUMNS_NARROW * each))
        width /= 2;
    p.rows = rows;
    p.c = c;
    p.width = c < width ? (int)c : width;
    p.depth = THREADS / p.width;
    p.n_tiles = (c + p.width - 1) / p.width;
    want = (rows + p.depth * each - 1) / (p.depth * each);
    p.n_chunks = want < 1 ? 1 : want < max_chunks ? want : max_chunks;
    p.chunk = (rows + p.n_chunks - 1) / p.n_chunks;
    return p;
}

static inline size_t columns_scratch(int k, int64_t rows, int64_t c)
{
    const int64_t n_chunks = columns_plan(rows, c, COLUMNS_CHUNKS).n_chunks;

    return n_chunks == 1 ? 0 : (size_t)n_chunks * (size_t)(k * c) * sizeof(double);
}

/* Add part[depth][width] over depth, pairwise; part[0][..] has the sums afterwards. */
static __device__ inline void columns_fold(double *part, int line, int width, int depth)
{
    int half = 1;

    while (half < depth)
        half *= 2;
    for (half /= 2; half > 0; half /= 2) {
        __syncthreads();
        if (line < half && line + half < depth)
            part[threadIdx.x] += part[(int)threadIdx.x + half * width];
    }
    __syncthreads();
}

/* to.put(chunk * K*c + k*c + col, sum over the chunk's rows) */
template <int K, typename Term, typename End>
static __global__ void columns_kernel(Term term, End to, struct columns_plan p)
{
    SHARED(double, part, THREADS);
    const int place = (int)threadIdx.x % p.width, line = (int)threadIdx.x / p.width;

    for (int64_t job = blockIdx.x; job < p.n_tiles * p.n_chunks; job += gridDim.x) {
        const int64_t col = job % p.n_tiles * p.width + place, chunk = job / p.n_tiles;
        const int64_t from = chunk * p.chunk;
        const int64_t to_row = from + p.chunk < p.rows ? from + p.chunk : p.rows;
        const bool mine = line < p.depth && col < p.c;
        double sum[K] = {};

        if (mine) {
            term.column(col);
            for (int64_t row = from + line; row < to_row; row += p.depth)
                term.add(sum, row);
        }
        for (int k = 0; k < K; k++) {
            part[threadIdx.x] = sum[k];
            columns_fold(part, line, p.width, p.depth);
            if (mine && line == 0)
                to.put((chunk * K + k) * p.c + col, part[threadIdx.x]);
            __syncthreads(); /* before part is used again */
        }
    }
}

struct columns_store { /* the end of the first launch */
    double *to;

    __device__ void put(int64_t i, double sum) const { to[i] = sum; }
};

struct columns_load { /* the term of the second: the first one's sums, [n_chunks][n] */
    const double *from;
    int64_t n, col;

    __device__ void column(int64_t column) { col = column; }
    __device__ void add(double *sum, int64_t row) const { *sum += from[row * n + col]; }
};

template <int K, typename Term, typename End>
static void columns_sum(const struct own *p, Term term, End end, int64_t rows, int64_t c)
{
    const struct columns_plan first = columns_plan(rows, c, COLUMNS_CHUNKS);
    const struct columns_plan second = columns_plan(first.n_chunks, K * c, 1);
    const int64_t blocks = blocks_for(p, first.n_tiles * first.n_chunks, 1);
    double *part = (double *)p->scratch;
    const struct columns_store store = {part};
    const struct columns_load load = {part, K * c, 0};

    if (first.n_chunks == 1) {
        LAUNCH((columns_kernel<K, Term, End>), blocks, THREADS, p, term, end, first);
        return;
    }
    LAUNCH((columns_kernel<K, Term, struct columns_store>), blocks, THREADS, p, term, store, first);
    LAUNCH((columns_kernel<1, struct columns_load, End>), blocks_for(p, second.n_tiles, 1), THREADS,
           p, load, end, second);
}

#endif
