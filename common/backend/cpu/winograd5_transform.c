/* winograd5_transform - the maps of winograd5_transform.h on vectors of 16 channels or filters: one
 * map of a column, which both_sides5 takes along the columns and then along the rows. */
#include "backend/cpu/winograd5_transform.h"

#include "backend/cpu/plain.h"
#include "backend/cpu/registers.h"
#include "backend/cpu/vector.h"

#define MAP __attribute__((always_inline)) static inline

enum { PAIRS = 3, LAST = 2 * PAIRS };

/* The squares of the three values a, and what the matrices have of them. */
#define AA  (1.0 / 16)
#define BB  (49.0 / 64)
#define CC  (49.0 / 16)
#define S_3 (AA + BB + CC)
#define T_3 (AA * BB + AA * CC + BB * CC)
#define U_3 (AA * BB * CC)

/* The values a with f, s and t of the header. */
static const struct {
    float a, f, s, t;
} value[PAIRS] = {
    {1.0 / 4, 1.0 / (2 * (1.0 / 4) * (AA - BB) * (AA - CC)), BB + CC, BB *CC},
    {7.0 / 8, 1.0 / (2 * (7.0 / 8) * (BB - AA) * (BB - CC)), AA + CC, AA *CC},
    {7.0 / 4, 1.0 / (2 * (7.0 / 4) * (CC - AA) * (CC - BB)), AA + BB, AA *BB},
};

/* ---- the maps of one column: numbers d[0], d[step], ... ---- */

typedef void winograd5_map(const lanes *d, int step, lanes *to, int to_step);

MAP void times_b_t5(const lanes *d, int step, lanes *to, int to_step)
{
    UNROLL
    for (int i = 0; i < PAIRS; i++) {
        const float a = value[i].a, s = value[i].s, t = value[i].t;
        const lanes odd = d[5 * step] - s * d[3 * step] + t * d[step];
        const lanes even = a * (d[4 * step] - s * d[2 * step] + t * d[0]);

        to[2 * i * to_step] = odd + even;
        to[(2 * i + 1) * to_step] = odd - even;
    }
    to[LAST * to_step] =
        d[6 * step] - (float)S_3 * d[4 * step] + (float)T_3 * d[2 * step] - (float)U_3 * d[0];
}

MAP void times_b5(const lanes *u, int step, lanes *to, int to_step)
{
    const lanes last = u[LAST * step];
    lanes d[W5_EDGE] = {
        (float)-U_3 * last, {0}, (float)T_3 * last, {0}, (float)-S_3 * last, {0}, last};

    UNROLL
    for (int i = 0; i < PAIRS; i++) {
        const float a = value[i].a, s = value[i].s, t = value[i].t;
        const lanes odd = u[2 * i * step] + u[(2 * i + 1) * step];
        const lanes even = a * (u[2 * i * step] - u[(2 * i + 1) * step]);

        d[0] += t * even;
        d[1] += t * odd;
        d[2] -= s * even;
        d[3] -= s * odd;
        d[4] += even;
        d[5] += odd;
    }
    UNROLL
    for (int i = 0; i < W5_EDGE; i++)
        to[i * to_step] = d[i];
}

MAP void times_a5(const lanes *y, int step, lanes *to, int to_step)
{
    UNROLL
    for (int i = 0; i < PAIRS; i++) {
        const float a = value[i].a;
        const lanes even = y[0] + (a * a) * y[2 * step], odd = a * y[step];

        to[2 * i * to_step] = even + odd;
        to[(2 * i + 1) * to_step] = even - odd;
    }
    to[LAST * to_step] = y[2 * step];
}

MAP void times_g5(const lanes *w, int step, lanes *to, int to_step)
{
    UNROLL
    for (int i = 0; i < PAIRS; i++) {
        const float a = value[i].a, f = value[i].f;
        const lanes even = f * w[0] + (f * a * a) * w[2 * step] + (f * a * a * a * a) * w[4 * step];
        const lanes odd = (f * a) * w[step] + (f * a * a * a) * w[3 * step];

        to[2 * i * to_step] = odd + even;
        to[(2 * i + 1) * to_step] = odd - even;
    }
    to[LAST * to_step] = w[4 * step];
}

MAP void times_g_t5(const lanes *u, int step, lanes *to, int to_step)
{
    lanes w[W5_FILTER] = {{0}, {0}, {0}, {0}, u[LAST * step]};

    UNROLL
    for (int i = 0; i < PAIRS; i++) {
        const float a = value[i].a, f = value[i].f;
        const lanes even = u[2 * i * step] - u[(2 * i + 1) * step];
        const lanes odd = u[2 * i * step] + u[(2 * i + 1) * step];

        w[0] += f * even;
        w[1] += (f * a) * odd;
        w[2] += (f * a * a) * even;
        w[3] += (f * a * a * a) * odd;
        w[4] += (f * a * a * a * a) * even;
    }
    UNROLL
    for (int i = 0; i < W5_FILTER; i++)
        to[i * to_step] = w[i];
}

/* to [to_n,to_n] = M d M^T, of d [n,n]; `map` is M, from n numbers to to_n. */
MAP void both_sides5(winograd5_map *map, int n, int to_n, const lanes *d, lanes *to)
{
    lanes half[W5_POINTS];

    UNROLL
    for (int i = 0; i < n; i++)
        map(d + i, n, half + i, n);
    UNROLL
    for (int i = 0; i < to_n; i++)
        map(half + n * i, 1, to + to_n * i, 1);
}

/* ---- tiles ---- */

/* Where the vector begins that holds channel `at` and those behind it. */
MAP int64_t vector_from(int64_t at, int64_t c) { return at + LANES <= c ? at : c - LANES; }

/* The lanes of the vector from `from` on that hold channels from `at` on; the others become 0. */
MAP void leave_lanes(int64_t from, int64_t at, lanes *x)
{
    lane_bits keep;

    if (from == at)
        return;
    for (int i = 0; i < LANES; i++)
        keep[i] = from + i >= at ? -1 : 0;
    *x = (lanes)((lane_bits)*x & keep);
}

MAP void read_points5(const float *from, int64_t step, lanes *to)
{
    UNROLL
    for (int i = 0; i < W5_POINTS; i++)
        to[i] = *(const lanes *)(from + i * step);
}

CPU_CLONES void winograd5_of_x(float *const *pixel, int64_t c, int64_t step, float *to)
{
    for (int64_t at = 0; at < c; at += LANES) {
        const int64_t from = vector_from(at, c);
        lanes half[W5_POINTS];

        UNROLL
        for (int j = 0; j < W5_EDGE; j++) {
            lanes d[W5_EDGE];

            UNROLL
            for (int i = 0; i < W5_EDGE; i++)
                d[i] = *(const lanes *)(pixel[W5_EDGE * i + j] + from);
            times_b_t5(d, 1, half + j, W5_EDGE);
        }
        for (int i = 0; i < W5_EDGE; i++) {
            lanes d[W5_EDGE];

            times_b_t5(half + W5_EDGE * i, 1, d, 1);
            UNROLL
            for (int j = 0; j < W5_EDGE; j++)
                *(lanes *)(to + (W5_EDGE * i + j) * step + from) = d[j];
        }
    }
}

CPU_CLONES void winograd5_of_dy(float *const *pixel, int64_t c, int64_t step, float *to, float *sum)
{
    for (int64_t at = 0; at < c; at += LANES) {
        const int64_t from = vector_from(at, c);
        lanes y[W5_TILE_PIXELS], half[W5_TILE * W5_EDGE], all = {0};

        UNROLL
        for (int i = 0; i < W5_TILE_PIXELS; i++) {
            y[i] = *(const lanes *)(pixel[i] + from);
            all += y[i];
        }
        if (sum) {
            leave_lanes(from, at, &all);
            *(lanes *)(sum + from) += all;
        }
        UNROLL
        for (int j = 0; j < W5_TILE; j++)
            times_a5(y + j, W5_TILE, half + j, W5_TILE);
        for (int i = 0; i < W5_EDGE; i++) {
            lanes d[W5_EDGE];

            times_a5(half + W5_TILE * i, 1, d, 1);
            UNROLL
            for (int j = 0; j < W5_EDGE; j++)
                *(lanes *)(to + (W5_EDGE * i + j) * step + from) = d[j];
        }
    }
}

CPU_CLONES void winograd5_to_dx(const float *m, int64_t c, int64_t step, float *const *pixel)
{
    for (int64_t at = 0; at < c; at += LANES) {
        const int64_t from = vector_from(at, c);
        lanes half[W5_POINTS];

        UNROLL
        for (int j = 0; j < W5_EDGE; j++) {
            lanes d[W5_EDGE];

            UNROLL
            for (int i = 0; i < W5_EDGE; i++)
                d[i] = *(const lanes *)(m + (W5_EDGE * i + j) * step + from);
            times_b5(d, 1, half + j, W5_EDGE);
        }
        for (int i = 0; i < W5_EDGE; i++) {
            lanes d[W5_EDGE];

            times_b5(half + W5_EDGE * i, 1, d, 1);
            UNROLL
            for (int j = 0; j < W5_EDGE; j++) {
                leave_lanes(from, at, &d[j]);
                *(lanes *)(pixel[W5_EDGE * i + j] + from) += d[j];
            }
        }
    }
}

/* ---- filters ---- */

CPU_CLONES void winograd5_of_w(const float *w, int64_t each, int n_lanes, int64_t step, float *to)
{
    float tap[W5_TAPS][LANES] = {{0}};
    lanes g[W5_TAPS], d[W5_POINTS];

    for (int i = 0; i < n_lanes; i++)
        for (int t = 0; t < W5_TAPS; t++)
            tap[t][i] = w[i * each + t];
    UNROLL
    for (int t = 0; t < W5_TAPS; t++)
        g[t] = *(const lanes *)tap[t];
    both_sides5(times_g5, W5_FILTER, W5_EDGE, g, d);
    for (int i = 0; i < W5_POINTS; i++)
        *(lanes *)(to + i * step) = d[i];
}

CPU_CLONES void winograd5_to_dw(const float *u, int64_t step, int n_lanes, int64_t each, int adds,
                                float *dw)
{
    float tap[W5_TAPS][LANES];
    lanes g[W5_TAPS], d[W5_POINTS];

    read_points5(u, step, d);
    both_sides5(times_g_t5, W5_EDGE, W5_FILTER, d, g);
    for (int t = 0; t < W5_TAPS; t++)
        *(lanes *)tap[t] = g[t];
    for (int i = 0; i < n_lanes; i++)
        for (int t = 0; t < W5_TAPS; t++) {
            float *to = dw + i * each + t;

            *to = adds ? *to + tap[t][i] : tap[t][i];
        }
}
