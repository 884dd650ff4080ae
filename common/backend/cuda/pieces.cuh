/* pieces - work on arrays element by element, 16 bytes at a time.
 *
 *     struct my_work { ...; template <int N> __device__ void piece(int64_t i) const; };
 *         does the elements [i*N, (i+1)*N) of its arrays, which hold numbers of type T
 *     pieces_run<T>(p, my_work{...}, n, pieces_are_whole(a) && ...);
 *
 * The elements after the last whole piece come one by one, and so do all of them where an array
 * does not begin at a multiple of 16 bytes. */
#ifndef BACKEND_CUDA_PIECES_CUH
#define BACKEND_CUDA_PIECES_CUH

#include "backend/cuda/device.cuh"

template <int N, typename Work> static __global__ void do_pieces(Work w, int64_t n)
{
    for (int64_t i = grid_first(); i < n / N; i += grid_stride())
        w.template piece<N>(i);
    for (int64_t i = n / N * N + grid_first(); i < n; i += grid_stride())
        w.template piece<1>(i);
}

static inline bool pieces_are_whole(const void *at) { return (uintptr_t)at % 16 == 0; }

template <typename T, typename Work>
static void pieces_run(const struct own *p, Work w, int64_t n, bool are_whole)
{
    enum { N = wide<T>::N };

    if (n <= 0)
        return;
    if (are_whole)
        LAUNCH((do_pieces<N, Work>), blocks_for(p, (n + N - 1) / N, THREADS), THREADS, p, w, n);
    else
        LAUNCH((do_pieces<1, Work>), blocks_for(p, n, THREADS), THREADS, p, w, n);
}

#endif
