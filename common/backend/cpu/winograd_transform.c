/* winograd_transform - the maps on vectors of 16 channels.  Each has a form for F32 and one for
 * BF16, which differ in how they read and write. */
#include "backend/cpu/winograd_transform.h"

#include "backend/cpu/plain.h"
#include "backend/cpu/registers.h"
#include "backend/cpu/vector.h"
#include "tensor/half.h"

/* For functions whose `type` is a constant where they are called. */
#define OF_TYPE __attribute__((always_inline)) static inline

/* Numbers [at, at + LANES) of x. */
OF_TYPE void winograd_read(const void *x, int64_t at, enum dtype type, lanes *to)
{
    if (type == DTYPE_F32)
        *to = *(const lanes *)((const float *)x + at);
    else
        lanes_from_bf16(to, (const uint16_t *)x + at);
}

OF_TYPE void winograd_write(const lanes *from, int64_t at, enum dtype type, void *x)
{
    if (type == DTYPE_F32)
        *(lanes *)((float *)x + at) = *from;
    else
        lanes_to_bf16((uint16_t *)x + at, from);
}

OF_TYPE void read_pixels(const void *const *pixel, int n, int64_t at, enum dtype type, lanes *to)
{
    static const lanes none = {0};

    for (int i = 0; i < n; i++)
        if (pixel[i])
            winograd_read(pixel[i], at, type, &to[i]);
        else
            to[i] = none;
}

/* The step-th numbers of d, four of them, times B^T. */
static inline void times_b(lanes *d, int step)
{
    const lanes d1 = d[step], d2 = d[2 * step];

    d[0] -= d2;
    d[step] = d1 + d2;
    d[2 * step] = d2 - d1;
    d[3 * step] = d1 - d[3 * step];
}

/* Four numbers to two, by A^T. */
static inline void times_a_t(const lanes *m, int step, lanes *to, int to_step)
{
    to[0] = m[0] + m[step] + m[2 * step];
    to[to_step] = m[step] - m[2 * step] - m[3 * step];
}

/* Two numbers to four, by A. */
static inline void times_a(const lanes *y, int step, lanes *to, int to_step)
{
    const lanes y0 = y[0], y1 = y[step];

    to[0] = y0;
    to[to_step] = y0 + y1;
    to[2 * to_step] = y0 - y1;
    to[3 * to_step] = -y1;
}

/* Three numbers to four, by G. */
static inline void times_g(const lanes *w, int step, lanes *to, int to_step)
{
    const lanes w0 = w[0], w2 = w[2 * step], half = 0.5f * (w0 + w2), middle = 0.5f * w[step];

    to[0] = w0;
    to[to_step] = half + middle;
    to[2 * to_step] = half - middle;
    to[3 * to_step] = w2;
}

/* Four numbers to three, by G^T. */
static inline void times_g_t(const lanes *u, int step, lanes *to, int to_step)
{
    const lanes half = 0.5f * (u[step] + u[2 * step]);

    to[0] = u[0] + half;
    to[to_step] = 0.5f * (u[step] - u[2 * step]);
    to[2 * to_step] = half + u[3 * step];
}

/* Row i of B^T d, for the pixels of column j: the difference or sum of two of them. */
OF_TYPE void x_column(const void *const *pixel, int i, int j, int64_t at, enum dtype type,
                      int is_whole, lanes *to)
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

/* Row by row, so that all stays in registers: a pixel is read twice instead. */
OF_TYPE void x_of(const void *const *pixel, int64_t c, enum dtype type, int64_t panel, int is_whole,
                  float *to)
{
    for (int64_t at = 0; at < c; at += LANES) {
        float *point = to + in_panels(at, panel);

        UNROLL
        for (int i = 0; i < 4; i++) {
            lanes d[4];

            for (int j = 0; j < 4; j++)
                x_column(pixel, i, j, at, type, is_whole, &d[j]);
            times_b(d, 1);
            for (int j = 0; j < 4; j++, point += tiles_point(c))
                *(lanes *)point = d[j];
        }
    }
}

static int cpu_winograd_is_whole(const void *const *pixel)
{
    int is_whole = 1;

    for (int i = 0; i < POINTS; i++)
        is_whole &= pixel[i] != NULL;
    return is_whole;
}

CPU_CLONES void transform_x(const void *const *pixel, int64_t c, enum dtype type, int64_t panel,
                            float *to)
{
    const int is_whole = cpu_winograd_is_whole(pixel);

    if (type == DTYPE_F32 && is_whole)
        x_of(pixel, c, DTYPE_F32, panel, 1, to);
    else if (type == DTYPE_F32)
        x_of(pixel, c, DTYPE_F32, panel, 0, to);
    else if (is_whole)
        x_of(pixel, c, DTYPE_BF16, panel, 1, to);
    else
        x_of(pixel, c, DTYPE_BF16, panel, 0, to);
}

OF_TYPE void dy_of(const void *const *pixel, int64_t c, enum dtype type, int64_t panel, float *to,
                   float *sum)
{
    for (int64_t at = 0; at < c; at += LANES) {
        lanes y[4], half[8], d[POINTS];

        read_pixels(pixel, 4, at, type, y);
        if (sum)
            *(lanes *)(sum + at) += y[0] + y[1] + y[2] + y[3];
        for (int i = 0; i < 2; i++)
            times_a(y + i, 2, half + i, 2);
        for (int i = 0; i < 4; i++)
            times_a(half + 2 * i, 1, d + 4 * i, 1);
        for (int i = 0; i < POINTS; i++)
            *(lanes *)(to + i * tiles_point(c) + in_panels(at, panel)) = d[i];
    }
}

CPU_CLONES void transform_dy(const void *const *pixel, int64_t c, enum dtype type, int64_t panel,
                             float *to, float *sum)
{
    if (type == DTYPE_F32)
        dy_of(pixel, c, DTYPE_F32, panel, to, sum);
    else
        dy_of(pixel, c, DTYPE_BF16, panel, to, sum);
}

/* y = act(y + bias + pixel i of `add`) for the vector of channels at `at` */
OF_TYPE void winograd_finish(const struct transform_end *end, enum dtype type, int i, int64_t at,
                             lanes *y)
{
    lanes more;

    if (end->bias) {
        winograd_read(end->bias, at, type, &more);
        *y += more;
    }
    if (end->add && end->add[i]) {
        winograd_read(end->add[i], at, type, &more);
        *y += more;
    }
    if (end->is_relu) /* NaN stays */
        *y = (lanes)((lane_bits)*y & ~(lane_bits)(*y < 0));
}

OF_TYPE void m_of(const float *m, int64_t c, int64_t panel, const struct transform_end *end,
                  enum dtype type, void *const *pixel)
{
    for (int64_t at = 0; at < c; at += LANES) {
        lanes d[POINTS], half[8], y[4];

        for (int i = 0; i < POINTS; i++)
            d[i] = *(const lanes *)(m + i * tiles_point(c) + in_panels(at, panel));
        for (int i = 0; i < 4; i++)
            times_a_t(d + i, 4, half + i, 4);
        for (int i = 0; i < 2; i++)
            times_a_t(half + 4 * i, 1, y + 2 * i, 1);
        for (int i = 0; i < 4; i++) {
            winograd_finish(end, type, i, at, &y[i]);
            if (pixel[i])
                winograd_write(&y[i], at, type, pixel[i]);
        }
    }
}

CPU_CLONES void transform_m(const float *m, int64_t c, int64_t panel,
                            const struct transform_end *end, void *const *pixel)
{
    if (end->type == DTYPE_F32)
        m_of(m, c, panel, end, DTYPE_F32, pixel);
    else
        m_of(m, c, panel, end, DTYPE_BF16, pixel);
}

/* ---- filters ---- */

static int64_t filter_row(const struct filter *f, int64_t number)
{
    return number / f->rows * f->per_panel + number % f->rows * f->per_row;
}

/* The taps of a panel's columns, from number `first` of w on. */
OF_TYPE void read_taps(const struct filter *f, const void *w, enum dtype type, int64_t first,
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

CPU_CLONES void transform_w(const struct filter *f, const void *w, enum dtype type, int64_t number,
                            float *to)
{
    const int64_t each = filter_point(f->panels * f->panel, f->rows), first = filter_row(f, number);
    float tap[TAPS][MOST_PANEL];

    if (type == DTYPE_F32)
        read_taps(f, w, DTYPE_F32, first, tap);
    else
        read_taps(f, w, DTYPE_BF16, first, tap);
    for (int64_t at = 0; at < f->panel; at += LANES) {
        lanes g[TAPS], half[12], d[POINTS];

        for (int t = 0; t < TAPS; t++)
            g[t] = *(const lanes *)(tap[t] + at);
        for (int i = 0; i < 3; i++)
            times_g(g + i, 3, half + i, 3);
        for (int i = 0; i < 4; i++)
            times_g(half + 3 * i, 1, d + 4 * i, 1);
        for (int i = 0; i < POINTS; i++)
            *(lanes *)(to + i * each + number * f->panel + at) = d[i];
    }
}

CPU_CLONES void transform_u(const struct filter *f, const float *u, int64_t number, int adds,
                            float *dw)
{
    const int64_t each = filter_point(f->panels * f->panel, f->rows);
    float tap[TAPS][MOST_PANEL];

    for (int64_t at = 0; at < f->panel; at += LANES) {
        lanes d[POINTS], half[12], g[TAPS];

        for (int i = 0; i < POINTS; i++)
            d[i] = *(const lanes *)(u + i * each + number * f->panel + at);
        for (int i = 0; i < 4; i++)
            times_g_t(d + i, 4, half + i, 4);
        for (int i = 0; i < 3; i++)
            times_g_t(half + 4 * i, 1, g + 3 * i, 1);
        for (int t = 0; t < TAPS; t++)
            *(lanes *)(tap[t] + at) = g[t];
    }
    dw += filter_row(f, number);
    for (int64_t j = 0; j < f->panel; j++)
        for (int t = 0; t < TAPS; t++) {
            float *to = dw + j * f->per_column + t;

            *to = adds ? *to + tap[t][j] : tap[t][j];
        }
}
