/* winograd_transform - the maps on vectors of 16 channels.  Each has a form for F32 and one for
 * BF16, which differ in how they read and write. */
#include "backend/cpu/winograd_transform.h"

#include "backend/cpu/plain.h"
#include "backend/cpu/winograd_maps.h"

MAP void x_of(const void *const *pixel, int64_t c, enum dtype type, int64_t panel, int is_whole,
              float *to)
{
    for (int64_t at = 0; at < c; at += LANES) {
        float *point = to + in_panels(at, panel);

        UNROLL
        for (int i = 0; i < 4; i++) {
            lanes d[4];

            x_row(pixel, i, at, type, is_whole, d);
            for (int j = 0; j < 4; j++, point += tiles_point(c))
                *(lanes *)point = d[j];
        }
    }
}

CPU_CLONES void transform_x(const void *const *pixel, int64_t c, enum dtype type, int64_t panel,
                            float *to)
{
    const int is_whole = winograd_is_whole(pixel);

    if (type == DTYPE_F32 && is_whole)
        x_of(pixel, c, DTYPE_F32, panel, 1, to);
    else if (type == DTYPE_F32)
        x_of(pixel, c, DTYPE_F32, panel, 0, to);
    else if (is_whole)
        x_of(pixel, c, DTYPE_BF16, panel, 1, to);
    else
        x_of(pixel, c, DTYPE_BF16, panel, 0, to);
}

MAP void dy_of(const void *const *pixel, int64_t c, enum dtype type, int64_t panel, float *to,
               float *sum)
{
    for (int64_t at = 0; at < c; at += LANES) {
        lanes d[POINTS];

        dy_points(pixel, at, type, sum, d);
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
MAP void winograd_finish(const struct transform_end *end, enum dtype type, int i, int64_t at,
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

MAP void m_of(const float *m, int64_t c, int64_t panel, const struct transform_end *end,
              enum dtype type, void *const *pixel)
{
    for (int64_t at = 0; at < c; at += LANES) {
        lanes d[POINTS], y[4];

        for (int i = 0; i < POINTS; i++)
            d[i] = *(const lanes *)(m + i * tiles_point(c) + in_panels(at, panel));
        map_both_sides(times_a_t, 4, 2, d, y);
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
        lanes d[POINTS];

        w_points(tap, at, d);
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
        lanes d[POINTS], g[TAPS];

        for (int i = 0; i < POINTS; i++)
            d[i] = *(const lanes *)(u + i * each + number * f->panel + at);
        map_both_sides(times_g_t, 4, 3, d, g);
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
