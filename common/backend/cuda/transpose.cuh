/* transpose - a kernel that transposes many small matrices, which lie one behind the other.
 *
 * A tile goes through shared memory, so that reads and writes are both coalesced. */
#ifndef BACKEND_CUDA_TRANSPOSE_CUH
#define BACKEND_CUDA_TRANSPOSE_CUH

#include "backend/cuda/device.cuh"

enum { TILE = 32, LINES = THREADS / TILE };

/* y[s][j][i] = x[s][i][j] for samples s, i < rows, j < cols; `adds`: y[s][j][i] += that.  A block
 * moves a tile at a time.  If U is a narrower type than T, numbers are rounded. */
template <typename T, typename U>
static __global__ void transpose(const T *x, U *y, int64_t samples, int64_t rows, int64_t cols,
                                 int adds)
{
    SHARED(T, tile, TILE * (TILE + 1)); /* the extra column spreads a column over all banks */
    const int64_t down = (rows + TILE - 1) / TILE, across = (cols + TILE - 1) / TILE;
    const int tx = (int)threadIdx.x % TILE, ty = (int)threadIdx.x / TILE;

    for (int64_t job = blockIdx.x; job < samples * down * across; job += gridDim.x) {
        const int64_t sample = job / (down * across), left = job % across * TILE;
        const int64_t top = job / across % down * TILE, base = sample * rows * cols;

        for (int line = ty; line < TILE; line += LINES)
            if (top + line < rows && left + tx < cols)
                tile[line * (TILE + 1) + tx] = x[base + (top + line) * cols + left + tx];
        __syncthreads();
        for (int line = ty; line < TILE; line += LINES)
            if (left + line < cols && top + tx < rows) {
                const float v = (float)tile[tx * (TILE + 1) + line];
                U *to = y + base + (left + line) * rows + top + tx;

                *to = (U)(adds ? (float)*to + v : v);
            }
        __syncthreads(); /* before the tile is filled again */
    }
}

template <typename T, typename U>
static void transpose_all(const struct own *p, const T *x, U *y, int64_t samples, int64_t rows,
                          int64_t cols, int adds)
{
    const int64_t tiles = samples * ((rows + TILE - 1) / TILE) * ((cols + TILE - 1) / TILE);

    LAUNCH((transpose<T, U>), blocks_for(p, tiles, 1), THREADS, p, x, y, samples, rows, cols, adds);
}

#endif
