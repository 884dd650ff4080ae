/* image - crops, flips and normalisation, one image at a time.  Crops and flips move bytes, before
 * they become numbers, so that padding is black whatever the normalisation. */
#include "data/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"

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

/* One row of `width` pixels of c bytes, moved by dx pixels; what comes from outside is 0. */
static void move_row(const uint8_t *from, uint8_t *to, int64_t width, int64_t c, int64_t dx)
{
    const int64_t first = min_i64(max_i64(-dx, 0), width),
                  end = max_i64(min_i64(width - dx, width), first);

    memset(to, 0, (size_t)(first * c));
    memcpy(to + first * c, from + (first + dx) * c, (size_t)((end - first) * c));
    memset(to + end * c, 0, (size_t)((width - end) * c));
}

static void mirror_row(uint8_t *row, int64_t width, int64_t c)
{
    for (int64_t i = 0, k = width - 1; i < k; i++, k--)
        for (int64_t b = 0; b < c; b++) {
            const uint8_t byte = row[i * c + b];

            row[i * c + b] = row[k * c + b];
            row[k * c + b] = byte;
        }
}

void image_augment(const struct dataset *ds, const struct dataset_draw *draw, int64_t i,
                   const uint8_t *from, uint8_t *to)
{
    const int64_t *dim = ds->spec.field[0].shape.dim, height = dim[0], width = dim[1], c = dim[2];
    const struct rng_block b =
        rng_draw(draw->seed, RNG_AUGMENT, (uint64_t)draw->epoch, (uint64_t)i);
    const int64_t places = 2 * ds->image.crop + 1;
    const int64_t dy = b.v[0] % places - ds->image.crop, dx = b.v[1] % places - ds->image.crop;
    const int is_mirrored = ds->image.flip && b.v[2] >> 31;

    for (int64_t row = 0; row < height; row++) {
        uint8_t *out = to + row * width * c;

        if (row + dy < 0 || row + dy >= height)
            memset(out, 0, (size_t)(width * c));
        else
            move_row(from + (row + dy) * width * c, out, width, c, dx);
        if (is_mirrored)
            mirror_row(out, width, c);
    }
}

void image_normalize(const struct dataset *ds, float *x)
{
    const struct dataset_image *image = &ds->image;
    const int64_t n = shape_elements(&ds->spec.field[0].shape) / image->n_channels;

    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < image->n_channels; c++, x++)
            *x = (*x - (float)image->mean[c]) / (float)image->std[c];
}
