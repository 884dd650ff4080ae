/* columns - for each column of [rows,c], K sums over the rows, in double.
 *
 * There are two launches: the first adds up chunks of rows into the scratch, the second adds the
 * chunks' sums.  If one chunk is enough, there is one launch.  Only rows and c decide how the rows
 * are cut, so the bits do not depend on the device.
 *
 *     template <int V> struct my_term {  a thread does V neighbouring columns:
 *         enum { WIDTH = V };
 *         __device__ void column(int64_t col);          they begin at col
 *         __device__ void add(double (&sum)[V][K], int64_t row) const;   adds the row's K terms
 *     };
 *     struct my_end { ...; __device__ void put(int64_t i, double sum) const; };   i < K*c
 *     columns_sum<K>(p, my_term<V>{...}, my_end{...}, rows, c);
 * with columns_scratch(K, rows, c) bytes at p->scratch.  V is 1 or, where columns_are_wide(rows, c)
 * says so, COLUMNS_WIDE: then col is a multiple of V, and neighbours can be read at once.  The bits
 * are the same.
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
enum { COLUMNS_CHUNKS = 1024, COLUMNS_SUMS = 4, COLUMNS_NARROW = 4, COLUMNS_WIDE = 4 };

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

static inline bool columns_are_wide(int64_t rows, int64_t c)
{
    return c % COLUMNS_WIDE == 0 && columns_plan(rows, c, COLUMNS_CHUNKS).width == WARP;
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
        double sum[1][K] = {};

        if (mine) {
            term.column(col);
            for (int64_t row = from + line; row < to_row; row += p.depth)
                term.add(sum, row);
        }
        for (int k = 0; k < K; k++) {
            part[threadIdx.x] = sum[0][k];
            columns_fold(part, line, p.width, p.depth);
            if (mine && line == 0)
                to.put((chunk * K + k) * p.c + col, part[threadIdx.x]);
            __syncthreads(); /* before part is used again */
        }
    }
}

/* The same for terms of V columns.  A team of threads does V * lanes columns of a chunk, by DEPTH
 * rows at a time, which are as many as columns_kernel's where a tile has WARP columns.  So each
 * column is added up in the same order. */
struct columns_team {
    int lanes, n; /* threads across; teams of a block */
    int64_t n_tiles;
};

template <int V> static inline struct columns_team columns_team_of(int64_t c)
{
    struct columns_team t = {};

    t.lanes = c / V < WARP ? (int)(c / V) : WARP;
    t.n = WARP / t.lanes;
    t.n_tiles = (c / V + t.lanes - 1) / t.lanes;
    return t;
}

/* The sum of eight lines that are `step` apart, pairwise as columns_fold adds them. */
static __device__ inline double columns_of_eight(const double *v, int step)
{
    return ((v[0] + v[4 * step]) + (v[2 * step] + v[6 * step])) +
           ((v[step] + v[5 * step]) + (v[3 * step] + v[7 * step]));
}

template <int K, typename Term, typename End>
static __global__ void columns_wide_kernel(Term term, End to, struct columns_plan p,
                                           struct columns_team t)
{
    enum { DEPTH = THREADS / WARP, V = Term::WIDTH };
    static_assert(DEPTH == 8, "columns_of_eight");
    SHARED(double, part, THREADS *V *K);
    const int across = t.lanes * V * K; /* sums of a line of a team */
    const int team = (int)threadIdx.x / (DEPTH * t.lanes), place = (int)threadIdx.x % t.lanes;
    const int line = (int)threadIdx.x / t.lanes % DEPTH;
    const int64_t n_jobs = t.n_tiles * p.n_chunks;

    for (int64_t first = (int64_t)blockIdx.x * t.n; first < n_jobs;
         first += (int64_t)gridDim.x * t.n) {
        const int64_t job = first + team, col = (job % t.n_tiles * t.lanes + place) * V;
        const int64_t from = job / t.n_tiles * p.chunk;
        const int64_t to_row = from + p.chunk < p.rows ? from + p.chunk : p.rows;
        double sum[V][K] = {};

        if (team < t.n && job < n_jobs && col < p.c) {
            term.column(col);
            for (int64_t row = from + line; row < to_row; row += DEPTH)
                term.add(sum, row);
        }
        for (int v = 0; v < V; v++)
            for (int k = 0; k < K; k++)
                part[((int)threadIdx.x * V + v) * K + k] = sum[v][k];
        __syncthreads();
        for (int i = (int)threadIdx.x; i < t.n * across; i += THREADS) {
            const int64_t its = first + i / across;
            const int64_t its_col = its % t.n_tiles * t.lanes * V + i % across / K;

            if (its < n_jobs && its_col < p.c)
                to.put((its / t.n_tiles * K + i % K) * p.c + its_col,
                       columns_of_eight(part + i / across * DEPTH * across + i % across, across));
        }
        __syncthreads(); /* before part is used again */
    }
}

struct columns_store { /* the first launch's end: stores the chunks' sums */
    double *to;

    __device__ void put(int64_t i, double sum) const { to[i] = sum; }
};

struct columns_load { /* the second launch's term: the chunks' sums [n_chunks][n] */
    enum { WIDTH = 1 };
    const double *from;
    int64_t n, col;

    __device__ void column(int64_t column) { col = column; }
    __device__ void add(double (&sum)[1][1], int64_t row) const
    {
        sum[0][0] += from[row * n + col];
    }
};

/* A term: the elements of x. */
template <typename T, int V> struct element_term {
    enum { WIDTH = V };
    const T *x;
    int64_t c, col;

    __device__ void column(int64_t column) { col = column; }
    __device__ void add(double (&sum)[V][1], int64_t row) const
    {
        float here[V];

        load_floats(x + row * c + col, here);
        for (int v = 0; v < V; v++)
            sum[v][0] += (double)here[v];
    }
};

/* One of the launches. */
template <int K, typename Term, typename End>
static void columns_launch(const struct own *p, Term term, End end, struct columns_plan plan)
{
    const struct columns_team t = columns_team_of<Term::WIDTH>(plan.c);

    if constexpr (Term::WIDTH > 1)
        LAUNCH((columns_wide_kernel<K, Term, End>), blocks_for(p, t.n_tiles * plan.n_chunks, t.n),
               THREADS, p, term, end, plan, t);
    else
        LAUNCH((columns_kernel<K, Term, End>), blocks_for(p, plan.n_tiles * plan.n_chunks, 1),
               THREADS, p, term, end, plan);
}

template <int K, typename Term, typename End>
static void columns_sum(const struct own *p, Term term, End end, int64_t rows, int64_t c)
{
    const struct columns_plan first = columns_plan(rows, c, COLUMNS_CHUNKS);
    const struct columns_plan second = columns_plan(first.n_chunks, K * c, 1);
    double *part = (double *)p->scratch;
    const struct columns_store store = {part};
    const struct columns_load load = {part, K * c, 0};

    if (first.n_chunks == 1) {
        columns_launch<K>(p, term, end, first);
        return;
    }
    columns_launch<K>(p, term, store, first);
    columns_launch<1>(p, load, end, second);
}

#endif
