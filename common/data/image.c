/* image - crops, flips and normalisation, one image at a time, row by row, so that what a row needs
 * stays in the nearest cache.  Crops and flips move bytes, before they become numbers, so that
 * padding is black whatever the normalisation. */
#include "data/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"
#include "data/mixing.h"
#include "data/reader.h"

/* A multiple of the numbers of channels that images have, and of a vector's places. */
enum {
    PATTERN = 24,
    IMAGE_PATTERN_MOST = IMAGE_MAX_CHANNELS > PATTERN ? IMAGE_MAX_CHANNELS : PATTERN
};

const char *const normalize_names[] = {NORMALIZE_LIST(WORD_NAME) NULL};

int normalize_check(const struct image_options *o, int64_t n, const char *each, struct err *err)
{
    const struct {
        const char *key;
        int n;
    } lists[] = {{"data.normalize.mean", o->mean.n}, {"data.normalize.std", o->std.n}};

    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        if (lists[i].n && lists[i].n != n)
            return err_set(err, ERR_CONFIG, "%s has %d numbers, want %lld, one for each %s",
                           lists[i].key, lists[i].n, (long long)n, each);
    return 0;
}

int image_check(const struct image_options *o, int n_channels, struct err *err)
{
    return normalize_check(o, n_channels, "channel", err);
}

void image_prepare(struct dataset *ds, const struct image_options *o, enum dataset_purpose purpose)
{
    struct dataset_image *image = &ds->image;

    if (purpose == DATASET_TRAIN) {
        image->crop = o->crop;
        image->flip = o->flip;
    }
    image->n_channels = o->mean.n ? o->mean.n : o->std.n;
    for (int c = 0; c < image->n_channels; c++) {
        image->mean[c] = o->mean.n ? o->mean.v[c] : 0;
        image->std[c] = o->std.n ? o->std.v[c] : 1;
    }
}

/* Sums over the pixels of one channel; bytes, so that they are exact. */
struct channel_sums {
    uint64_t n, sum, squares;
};

static void add_image(struct channel_sums *s, const uint8_t *x, int64_t n_pixels, int64_t c)
{
    for (int64_t k = 0; k < c; k++) {
        uint64_t sum = 0, squares = 0;

        for (int64_t i = 0; i < n_pixels; i++) {
            const uint64_t v = x[i * c + k];

            sum += v;
            squares += v * v;
        }
        s[k].n += (uint64_t)n_pixels;
        s[k].sum += sum;
        s[k].squares += squares;
    }
}

static int sum_images(const struct dataset *ds, struct channel_sums *s, struct err *err)
{
    const int64_t *dim = ds->spec.field[0].shape.dim;
    const int64_t n = ds->is_slow ? min_i64(ds->n_samples, IMAGE_MOST_MEASURED) : ds->n_samples;
    void *room = xcalloc(1, ds->room_bytes + 1);
    int rc = 0;

    for (int64_t i = 0; i < n && rc >= 0; i++) {
        const void *row;

        rc = ds->ops->row(ds, dataset_spread(i, n, ds->n_samples), 0, room, &row, err);
        if (rc == 0)
            add_image(s, row, dim[0] * dim[1], dim[2]);
    }
    free(room);
    return rc < 0 ? rc : 0;
}

int image_measure(const struct dataset *ds, struct option_reals *mean, struct option_reals *std,
                  struct err *err)
{
    const struct sample_field *f = &ds->spec.field[0];
    struct channel_sums sums[IMAGE_MAX_CHANNELS] = {0};

    if (f->stored != DTYPE_U8 || f->scale != SAMPLE_UNIT || f->shape.n != 3 ||
        f->shape.dim[2] > IMAGE_MAX_CHANNELS)
        return err_set(err, ERR_CONFIG, "data.normalize is auto, which is for images");
    if (sum_images(ds, sums, err) < 0)
        return err->code;
    mean->n = std->n = (int)f->shape.dim[2];
    for (int c = 0; c < mean->n; c++) {
        const double n = (double)sums[c].n, m = (double)sums[c].sum / n;
        const double variance = (double)sums[c].squares / n - m * m;

        if (!(variance > 0))
            return err_set(err, ERR_CONFIG,
                           "data.normalize is auto, but channel %d is the same in all images; give "
                           "mean and std",
                           c);
        mean->v[c] = m / 255;
        std->v[c] = sqrt(variance) / 255;
    }
    return 0;
}

/* ---- drawn changes ---- */

/* The changes that are drawn for an image: it moves by (dy, dx) pixels, and is mirrored. */
struct image_move {
    int64_t dy, dx;
    int is_mirrored;
};

static struct image_move image_drawn(const struct dataset *ds, const struct dataset_draw *draw,
                                     int64_t i)
{
    const struct rng_block b =
        rng_draw(draw->seed, RNG_AUGMENT, (uint64_t)draw->epoch, (uint64_t)i);
    const int64_t places = 2 * ds->image.crop + 1;

    return (struct image_move){b.v[0] % places - ds->image.crop, b.v[1] % places - ds->image.crop,
                               ds->image.flip && b.v[2] >> 31};
}

static void mirror_pixels(const uint8_t *from, uint8_t *to, int64_t n, int64_t c)
{
    if (c == 3)
        mixing_mirror(from, n, to);
    else
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < c; k++)
                to[i * c + k] = from[(n - 1 - i) * c + k];
}

/* One row of `width` pixels of c bytes, moved; what comes from outside is 0. */
static void move_row(const uint8_t *from, uint8_t *to, int64_t width, int64_t c,
                     const struct image_move *m)
{
    const int64_t first = min_i64(max_i64(-m->dx, 0), width),
                  end = max_i64(min_i64(width - m->dx, width), first);
    const int64_t left = m->is_mirrored ? width - end : first, n = end - first;
    const uint8_t *const there = from + (first + m->dx) * c;

    if (left > 0)
        memset(to, 0, (size_t)(left * c));
    if (m->is_mirrored)
        mirror_pixels(there, to + left * c, n, c);
    else
        memcpy(to + left * c, there, (size_t)(n * c));
    if (width > left + n)
        memset(to + (left + n) * c, 0, (size_t)((width - left - n) * c));
}

/* ---- numbers ---- */

/* A repetition of the channels' means and deviations. */
struct image_pattern {
    int64_t n;
    float mean[IMAGE_PATTERN_MOST], std[IMAGE_PATTERN_MOST];
};

/* The pattern is of PATTERN places where the channels divide it, so that loops have a length that
 * the compiler knows. */
static void pattern_make(struct image_pattern *p, const struct dataset_image *image)
{
    p->n = PATTERN % image->n_channels == 0 ? PATTERN : image->n_channels;
    for (int64_t i = 0; i < p->n; i++) {
        p->mean[i] = (float)image->mean[i % image->n_channels];
        p->std[i] = (float)image->std[i % image->n_channels];
    }
}

/* The n bytes from number `first` on, where the pattern begins. */
static void normalize_rest(const uint8_t *v, int64_t first, int64_t n,
                           const struct image_pattern *p, float *x)
{
    for (int64_t i = first, k = 0; i < n; i++, k = k + 1 < p->n ? k + 1 : 0)
        x[i] = (reader_unit(v[i]) - p->mean[k]) / p->std[k];
}

static void normalize_reals(float *x, int64_t n, const struct image_pattern *p)
{
    int64_t i = 0;

    if (p->n == PATTERN)
        for (; i + PATTERN <= n; i += PATTERN)
            for (int k = 0; k < PATTERN; k++)
                x[i + k] = (x[i + k] - p->mean[k]) / p->std[k];
    for (int64_t k = 0; i < n; i++, k = k + 1 < p->n ? k + 1 : 0)
        x[i] = (x[i] - p->mean[k]) / p->std[k];
}

#ifdef __x86_64__

/* The compiler does not use whole registers here.  The operations, and so the bits, are those of
 * normalize_rest. */
__attribute__((target("avx2"))) static int64_t normalize_avx2(const uint8_t *v, int64_t n,
                                                              const struct image_pattern *p,
                                                              float *x)
{
    enum { WIDE = 8 };
    const __m256 high = _mm256_set1_ps(READER_UNIT_HIGH), low = _mm256_set1_ps(READER_UNIT_LOW);
    int64_t i = 0;

    for (; p->n == PATTERN && i + PATTERN <= n; i += PATTERN)
        for (int k = 0; k < PATTERN; k += WIDE) {
            const __m256 f = _mm256_cvtepi32_ps(
                _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(v + i + k))));
            const __m256 unit = _mm256_add_ps(_mm256_mul_ps(f, high), _mm256_mul_ps(f, low));

            _mm256_storeu_ps(x + i + k,
                             _mm256_div_ps(_mm256_sub_ps(unit, _mm256_loadu_ps(p->mean + k)),
                                           _mm256_loadu_ps(p->std + k)));
        }
    return i;
}

static void normalize_bytes(const uint8_t *v, int64_t n, const struct image_pattern *p, float *x)
{
    normalize_rest(v, __builtin_cpu_supports("avx2") ? normalize_avx2(v, n, p, x) : 0, n, p, x);
}

#else

static void normalize_bytes(const uint8_t *v, int64_t n, const struct image_pattern *p, float *x)
{
    normalize_rest(v, 0, n, p, x);
}

#endif

void image_write(const struct dataset *ds, const struct dataset_draw *draw, int64_t i,
                 const uint8_t *from, uint8_t *row, float *to)
{
    const struct sample_field *f = &ds->spec.field[0];
    const int64_t height = draw ? f->shape.dim[0] : 1,
                  n = shape_elements(&f->shape) / height; /* bytes of a row */
    const int64_t c = draw ? f->shape.dim[2] : 1;
    const struct image_move m = draw ? image_drawn(ds, draw, i) : (struct image_move){0};
    struct image_pattern pattern = {.n = 0};

    if (ds->image.n_channels)
        pattern_make(&pattern, &ds->image);
    for (int64_t y = 0; y < height; y++) {
        const uint8_t *v = from + (y + m.dy) * n;

        if (y + m.dy < 0 || y + m.dy >= height)
            v = memset(row, 0, (size_t)n);
        else if (m.dx || m.is_mirrored) {
            move_row(v, row, n / c, c, &m);
            v = row;
        }
        if (pattern.n)
            normalize_bytes(v, n, &pattern, to + y * n);
        else
            reader_converter(f)(to + y * n, v, n);
    }
}

void image_normalize(const struct dataset *ds, float *x)
{
    struct image_pattern pattern;

    pattern_make(&pattern, &ds->image);
    normalize_reals(x, shape_elements(&ds->spec.field[0].shape), &pattern);
}
