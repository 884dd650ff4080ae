/* parts - boxes as torchvision's Resize, CenterCrop and RandomResizedCrop take them, in the pixels
 * of the picture's own file. */
#include "data/parts.h"

#include <math.h>

#include "base/rng.h"

enum { ATTEMPTS = 10 }; /* to draw a part that fits, as torchvision */

struct picture_box parts_middle(int64_t size, int64_t resize, int64_t width, int64_t height)
{
    const int64_t w = width < height ? resize : resize * width / height,
                  h = width < height ? resize * height / width : resize;
    const double across = (double)width / (double)w, down = (double)height / (double)h,
                 side = (double)size;

    return (struct picture_box){rint((double)(w - size) / 2) * across,
                                rint((double)(h - size) / 2) * down, side * across, side * down};
}

/* The part that torchvision takes if no drawn part fits: the largest one in the middle whose form
 * is allowed. */
static struct picture_box parts_largest(int64_t width, int64_t height)
{
    const double w = (double)width, h = (double)height;
    const double part_w = fmin(w, floor(h * 4 / 3 + 0.5)), part_h = fmin(h, floor(w * 4 / 3 + 0.5));

    return (struct picture_box){floor((w - part_w) / 2), floor((h - part_h) / 2), part_w, part_h};
}

static double parts_unit(uint32_t v) { return (double)v * 0x1p-32; }

struct picture_box parts_drawn(const struct dataset_draw *draw, int64_t i, int64_t width,
                               int64_t height)
{
    const double limit = log(4.0 / 3);

    for (int k = 1; k <= ATTEMPTS; k++) {
        const struct rng_block b = rng_draw(draw->seed, RNG_AUGMENT, (uint64_t)draw->epoch,
                                            (uint64_t)i | (uint64_t)k << 48);
        const double area = (double)width * (double)height * (0.08 + 0.92 * parts_unit(b.v[0])),
                     form = exp(limit * (2 * parts_unit(b.v[1]) - 1));
        const double w = floor(sqrt(area * form) + 0.5), h = floor(sqrt(area / form) + 0.5);

        if (w >= 1 && h >= 1 && w <= (double)width && h <= (double)height)
            return (struct picture_box){floor(parts_unit(b.v[2]) * ((double)width - w + 1)),
                                        floor(parts_unit(b.v[3]) * ((double)height - h + 1)), w, h};
    }
    return parts_largest(width, height);
}
