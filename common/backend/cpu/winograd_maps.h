/* winograd_maps - the linear maps of winograd_transform.h on vectors in registers, for the two
 * files that read pixels and write points: winograd_transform.c and winograd_pairs.c.
 *
 * All are inlined: a map is compiled for the instruction set of its caller, and its `type` is a
 * constant there.
 *
 * Threads: pure. */
#ifndef BACKEND_CPU_WINOGRAD_MAPS_H
#define BACKEND_CPU_WINOGRAD_MAPS_H

#include "backend/cpu/registers.h"
#include "backend/cpu/vector.h"
#include "backend/cpu/winograd_transform.h"
#include "tensor/half.h"

#define MAP __attribute__((always_inline)) static inline

/* Numbers [at, at + LANES) of x. */
MAP void winograd_read(const void *x, int64_t at, enum dtype type, lanes *to)
{
    if (type == DTYPE_F32)
        *to = *(const lanes *)((const float *)x + at);
    else
        lanes_from_bf16(to, (const uint16_t *)x + at);
}

MAP void winograd_write(const lanes *from, int64_t at, enum dtype type, void *x)
{
    if (type == DTYPE_F32)
        *(lanes *)((float *)x + at) = *from;
    else
        lanes_to_bf16((uint16_t *)x + at, from);
}

MAP void read_pixels(const void *const *pixel, int n, int64_t at, enum dtype type, lanes *to)
{
    static const lanes none = {0};

    for (int i = 0; i < n; i++)
        if (pixel[i])
            winograd_read(pixel[i], at, type, &to[i]);
        else
            to[i] = none;
}

/* The step-th numbers of d, four of them, times B^T. */
MAP void times_b(lanes *d, int step)
{
    const lanes d1 = d[step], d2 = d[2 * step];

    d[0] -= d2;
    d[step] = d1 + d2;
    d[2 * step] = d2 - d1;
    d[3 * step] = d1 - d[3 * step];
}

/* Four numbers to two, by A^T. */
MAP void times_a_t(const lanes *m, int step, lanes *to, int to_step)
{
    to[0] = m[0] + m[step] + m[2 * step];
    to[to_step] = m[step] - m[2 * step] - m[3 * step];
}

/* Two numbers to four, by A. */
MAP void times_a(const lanes *y, int step, lanes *to, int to_step)
{
    const lanes y0 = y[0], y1 = y[step];

    to[0] = y0;
    to[to_step] = y0 + y1;
    to[2 * to_step] = y0 - y1;
    to[3 * to_step] = -y1;
}

/* Three numbers to four, by G. */
MAP void times_g(const lanes *w, int step, lanes *to, int to_step)
{
    const lanes w0 = w[0], w2 = w[2 * step], half = 0.5f * (w0 + w2), middle = 0.5f * w[step];

    to[0] = w0;
    to[to_step] = half + middle;
    to[2 * to_step] = half - middle;
    to[3 * to_step] = w2;
}

/* Four numbers to three, by G^T. */
MAP void times_g_t(const lanes *u, int step, lanes *to, int to_step)
{
    const lanes half = 0.5f * (u[step] + u[2 * step]);

    to[0] = u[0] + half;
    to[to_step] = 0.5f * (u[step] - u[2 * step]);
    to[2 * to_step] = half + u[3 * step];
}

typedef void winograd_map(const lanes *from, int step, lanes *to, int to_step);

/* to [to_n,to_n] = M d M^T, of d [n,n]; `map` is M, from n numbers to to_n. */
MAP void map_both_sides(winograd_map *map, int n, int to_n, const lanes *d, lanes *to)
{
    lanes half[POINTS];

    UNROLL
    for (int i = 0; i < n; i++)
        map(d + i, n, half + i, n);
    UNROLL
    for (int i = 0; i < to_n; i++)
        map(half + n * i, 1, to + to_n * i, 1);
}

/* Row i of B^T d, for the pixels of column j: the difference or sum of two of them. */
MAP void x_column(const void *const *pixel, int i, int j, int64_t at, enum dtype type, int is_whole,
                  lanes *to)
{
    static const int first[4] = {0, 1, 2, 1}, second[4] = {2, 2, 1, 3};
    const void *const two[2] = {pixel[4 * first[i] + j], pixel[4 * second[i] + j]};
    lanes d[2];

    if (is_whole) {
        winograd_read(two[0], at, type, &d[0]);
        winograd_read(two[1], at, type, &d[1]);
    } else {
        read_pixels(two, 2, at, type, d);
    }
    *to = i == 1 ? d[0] + d[1] : d[0] - d[1];
}

/* Row i of the points B^T d B.  A pixel is read twice instead of kept, so that all stays in
 * registers. */
MAP void x_row(const void *const *pixel, int i, int64_t at, enum dtype type, int is_whole,
               lanes *to)
{
    UNROLL
    for (int j = 0; j < 4; j++)
        x_column(pixel, i, j, at, type, is_whole, &to[j]);
    times_b(to, 1);
}

static inline int winograd_is_whole(const void *const *pixel)
{
    int is_whole = 1;

    for (int i = 0; i < POINTS; i++)
        is_whole &= pixel[i] != NULL;
    return is_whole;
}

/* The points A dy A^T, and the sum of the four pixels into sum[at], unless `sum` is NULL. */
MAP void dy_points(const void *const *pixel, int64_t at, enum dtype type, float *sum, lanes *to)
{
    lanes y[4];

    read_pixels(pixel, 4, at, type, y);
    if (sum)
        *(lanes *)(sum + at) += y[0] + y[1] + y[2] + y[3];
    map_both_sides(times_a, 2, 4, y, to);
}

MAP int64_t filter_row(const struct filter *f, int64_t number)
{
    return number / f->rows * f->per_panel + number % f->rows * f->per_row;
}

/* The taps of a panel's columns, from number `first` of w on. */
MAP void read_taps(const struct filter *f, const void *w, enum dtype type, int64_t first,
                   float tap[TAPS][MOST_PANEL])
{
    for (int64_t j = 0; j < f->panel; j++)
        for (int t = 0; t < TAPS; t++) {
            const int64_t at = first + j * f->per_column + t;

            tap[f->is_turned ? TAPS - 1 - t : t][j] =
                type == DTYPE_F32 ? ((const float *)w)[at]
                                  : bf16_to_float(((const uint16_t *)w)[at]);
        }
}

/* The points G w G^T of a vector of columns. */
MAP void w_points(float tap[TAPS][MOST_PANEL], int64_t at, lanes *to)
{
    lanes g[TAPS];

    UNROLL
    for (int t = 0; t < TAPS; t++)
        g[t] = *(const lanes *)(tap[t] + at);
    map_both_sides(times_g, 3, 4, g, to);
}

#endif
