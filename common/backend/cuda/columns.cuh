/* columns - for each column of [rows,c], K sums over the rows, in double.
 *
 * There are two launches: the first adds up chunks of rows into the scratch, the second adds the
 * chunks' sums.  If one chunk is enough, there is one launch.  Only rows and c decide how the rows
 * are cut, so the bits do not depend on the device.
 *
 *     struct my_term { ...; __device__ void column(int64_t col); __device__ void add(double *sum,
 *                      int64_t row) const; };         adds the row's K terms of col to sum[K]
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
    int64_t n_chunks, chunk; /* each chunk has `chunk` rows, the last one maybe fewer */
    int width, depth;        /* depth = THREADS / width */
    int64_t n_tiles;         /* number of tiles over all columns */
};

/* COLUMNS_ROWS is how many rows a thread adds up before another chunk is worth while (cudasim sets
 * it low); COLUMNS_SUMS is the same for the chunks' sums in the second launch.  COLUMNS_NARROW is
 * the narrowest tile: so many of the chunks' sums are one sector of memory. */
#ifndef COLUMNS_ROWS
#define COLUMNS_ROWS 16
#endif
enum { COLUMNS_CHUNKS = 512, COLUMNS_SUMS = 4, COLUMNS_NARROW = 4 };

/* With few rows the tiles are made narrow: each column gets more threads, which saves the second
 * launch. */
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

/* Add part[depth][width] over depth, pairwise.  Afterwards part[0][..] has the sums. */
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

struct columns_store { /* the first launch's end: stores the chunks' sums */
    double *to;

    __device__ void put(int64_t i, double sum) const { to[i] = sum; }
};

struct columns_load { /* the second launch's term: the chunks' sums [n_chunks][n] */
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
