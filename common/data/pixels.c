/* pixels - a box of decoded pixels becomes a rectangle of another size.
 *
 * Output pixel i of `size`, along one direction, is centred at c = first + (i + 1/2) * scale of the
 * input, with scale = extent / size.  An input pixel at distance d (between centres) has the weight
 * max(0, 1 - d / max(scale, 1)), and the weights of one output pixel are divided by their sum.
 * Weights are whole numbers whose sum is exactly 1, so that white stays white (data/mixing.h). Rows
 * are combined first, then columns. */
#include "data/pixels.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/mixing.h"

enum { ONE = MIXING_ONE, C = PICTURE_CHANNELS };

static double reach_of(double scale) { return scale > 1 ? scale : 1; }

/* ---- the part that is needed ---- */

/* The pixels of [0,whole) that output pixels of [first, first + extent) read, and one more on
 * either side: a decoder that leaves out what is beyond may give the outermost ones otherwise. */
static void span_around(double first, double extent, int64_t size, int64_t whole, int64_t *at,
                        int64_t *n)
{
    const double reach = reach_of(extent / (double)size) + 1;
    const int64_t low = (int64_t)(first - reach), high = (int64_t)(first + extent + reach) + 1;

    *at = min_i64(max_i64(low, 0), whole - 1);
    *n = max_i64(min_i64(high, whole) - *at, 1);
}

/* The box, which is in pixels of the file, in pixels as they are decoded. */
static struct picture_box pixels_scaled(const struct pixels *p, const struct picture_box *box)
{
    return (struct picture_box){box->x * p->scale, box->y * p->scale, box->width * p->scale,
                                box->height * p->scale};
}

void pixels_around(struct pixels *p, const struct picture_box *box, struct picture_size to)
{
    const struct picture_box b = pixels_scaled(p, box);

    span_around(b.x, b.width, to.width, p->whole_width, &p->x, &p->width);
    span_around(b.y, b.height, to.height, p->whole_height, &p->y, &p->height);
}

int pixels_check(int64_t width, int64_t height, struct err *err)
{
    if (width < 1 || height < 1 || width > PICTURE_MOST_PIXELS / height)
        return err_set(err, ERR_CORRUPT, "it has %lld by %lld pixels, want 1 to %d pixels",
                       (long long)width, (long long)height, PICTURE_MOST_PIXELS);
    return 0;
}

int pixels_alloc(struct pixels *p, struct err *err)
{
    void *room = NULL;
    int rc = try_realloc(&room, (size_t)(p->width * p->height * C), "a picture's pixels", err);

    p->rgb = room;
    p->row_bytes = p->width * C;
    return rc;
}

/* ---- weights ---- */

static void free_taps(struct mixing_taps *t)
{
    free(t->first);
    free(t->n);
    free(t->weight);
}

static const char taps_what[] = "the weights of a picture's pixels";

static int alloc_places(struct mixing_taps *t, struct err *err)
{
    const size_t n = (size_t)t->n_results;

    if (try_realloc((void **)&t->first, n * sizeof *t->first, taps_what, err) < 0 ||
        try_realloc((void **)&t->n, n * sizeof *t->n, taps_what, err) < 0)
        return err->code;
    return 0;
}

/* Weights are zero until they are set. */
static int alloc_weights(struct mixing_taps *t, struct err *err)
{
    const size_t n_bytes = (size_t)(t->n_results * t->most) * sizeof *t->weight;
    int rc = try_realloc((void **)&t->weight, n_bytes, taps_what, err);

    if (rc == 0)
        memset(t->weight, 0, n_bytes);
    return rc;
}

static double weight_at(double distance, double reach)
{
    const double d = distance < 0 ? -distance : distance;

    return d < reach ? 1 - d / reach : 0;
}

/* The whole weights of n pixels from `first` on, around `centre`; what rounding leaves goes to the
 * largest of them. */
static void pixels_weigh(double centre, double reach, int64_t first, int64_t n, int16_t *to)
{
    double sum = 0;
    int64_t largest = 0;
    int left = ONE;

    for (int64_t k = 0; k < n; k++)
        sum += weight_at((double)(first + k) + 0.5 - centre, reach);
    for (int64_t k = 0; k < n; k++) {
        to[k] = (int16_t)(weight_at((double)(first + k) + 0.5 - centre, reach) / sum * ONE + 0.5);
        left -= to[k];
        largest = to[k] > to[largest] ? k : largest;
    }
    to[largest] = (int16_t)(to[largest] + left);
}

/* Give t->first and t->n the input's pixels that output pixels [0,size) of the input's
 * [begin, begin + extent) read; the input has pixels [at, at + n), and t->first counts from `at`.
 */
static void pixels_place(struct mixing_taps *t, double begin, double scale, int64_t at, int64_t n)
{
    const double reach = reach_of(scale);
    int64_t most = 1;

    for (int64_t i = 0; i < t->n_results; i++) {
        const double centre = begin + ((double)i + 0.5) * scale;
        const int64_t low = min_i64(max_i64((int64_t)(centre - reach + 0.5), at), at + n - 1);
        const int64_t end = max_i64(min_i64((int64_t)(centre + reach + 0.5), at + n), low + 1);

        t->first[i] = low - at;
        t->n[i] = end - low;
        most = max_i64(most, t->n[i]);
    }
    t->most = round_up_i64(most, 2);
}

static int make_taps(struct mixing_taps *t, double begin, double extent, int64_t size, int64_t at,
                     int64_t n, struct err *err)
{
    const double scale = extent / (double)size, reach = reach_of(scale);

    t->n_results = size;
    if (alloc_places(t, err) < 0)
        return err->code;
    pixels_place(t, begin, scale, at, n);
    if (alloc_weights(t, err) < 0)
        return err->code;
    for (int64_t i = 0; i < size; i++)
        pixels_weigh(begin + ((double)i + 0.5) * scale, reach, t->first[i] + at, t->n[i],
                     t->weight + i * t->most);
    return 0;
}

/* ---- the two passes ---- */

enum { PIXELS_BAND = 8 }; /* rows from one pass to the other: they stay in the nearest cache */

static int pixels_mix(const struct pixels *p, const struct mixing_taps *down,
                      const struct mixing_taps *across, uint8_t *rgb, struct err *err)
{
    const int64_t row_bytes = p->width * C, band_bytes = PIXELS_BAND * row_bytes,
                  spare = MIXING_SPARE + C * across->most;
    int32_t *sum = NULL;
    uint8_t *band;

    if (try_realloc((void **)&sum, (size_t)(row_bytes * (int64_t)sizeof *sum + band_bytes + spare),
                    "rows of pixels", err) < 0)
        return err->code;
    band = (uint8_t *)(sum + row_bytes);
    memset(band + band_bytes, 0, (size_t)spare);
    for (int64_t first = 0; first < down->n_results; first += PIXELS_BAND) {
        const int64_t n = min_i64(PIXELS_BAND, down->n_results - first);

        for (int64_t i = first; i < first + n; i++)
            mixing_rows(p->rgb + down->first[i] * p->row_bytes, p->row_bytes,
                        down->weight + i * down->most, down->n[i], row_bytes, sum,
                        band + (i - first) * row_bytes);
        mixing_columns(band, row_bytes, n, across, rgb + first * across->n_results * C);
    }
    free(sum);
    return 0;
}

int pixels_resize(const struct pixels *p, const struct picture_box *box, struct picture_size to,
                  uint8_t *rgb, struct err *err)
{
    const struct picture_box b = pixels_scaled(p, box);
    struct mixing_taps down = {0}, across = {0};
    int rc = make_taps(&down, b.y, b.height, to.height, p->y, p->height, err);

    if (rc == 0)
        rc = make_taps(&across, b.x, b.width, to.width, p->x, p->width, err);
    if (rc == 0)
        rc = pixels_mix(p, &down, &across, rgb, err);
    free_taps(&down);
    free_taps(&across);
    return rc;
}
