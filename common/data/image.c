/* image - crops, flips and normalisation, one image at a time.  Crops and flips move bytes, before
 * they become numbers, so that padding is black whatever the normalisation. */
#include "data/image.h"

#include <string.h>

#include "base/rng.h"
#include "base/util.h"

int image_check(const struct image_options *o, int n_channels, struct err *err)
{
    const struct {
        const char *key;
        int n;
    } lists[] = {{"data.normalize.mean", o->mean.n}, {"data.normalize.std", o->std.n}};

    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        if (lists[i].n && lists[i].n != n_channels)
            return err_set(err, ERR_CONFIG, "%s has %d numbers, want %d, one for each channel",
                           lists[i].key, lists[i].n, n_channels);
    return 0;
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
        image->mean[c] = o->mean.n ? (float)o->mean.v[c] : 0;
        image->std[c] = o->std.n ? (float)o->std.v[c] : 1;
    }
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
    const int64_t *dim = ds->spec.field[0].shape.dim;

    for (int64_t i = 0; i < dim[0] * dim[1]; i++)
        for (int c = 0; c < image->n_channels; c++, x++)
            *x = (*x - image->mean[c]) / image->std[c];
}
