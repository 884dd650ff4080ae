/* picture - JPEG and PNG files in memory, decoded to RGB: a box of the picture, resized to a
 * rectangle.
 *
 *     JPEG   grey, YCbCr, RGB, CMYK and YCCK, baseline and progressive; whole, or at 1/8, 1/4 or
 *            1/2 of its size where that still covers the rectangle
 *     PNG    every kind; 16 bits are cut to 8, palettes and grey become RGB, transparency is
 *            dropped
 *
 * A file that ends early is an error whatever the box.  Gamma, colour profiles and the orientation
 * in EXIF are left alone, as Pillow's convert("RGB") and torchvision do.  The arithmetic is of
 * whole numbers, so one version of libjpeg-turbo gives the same bytes on every machine.
 *
 * Life:    picture_open -> size -> picture_read -> picture_close.  The file's bytes are borrowed
 *          throughout.
 * Threads: any, each with pictures of its own.
 * Errors:  ERR_CORRUPT (what the library says of the file; it is cut short; it is neither JPEG nor
 *          PNG), ERR_NOMEM. */
#ifndef DATA_PICTURE_H
#define DATA_PICTURE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { PICTURE_CHANNELS = 3, PICTURE_MOST_PIXELS = 1 << 27 };

/* A part of a picture, in its pixels; it may end between two of them. */
struct picture_box {
    double x, y, width, height;
};

struct picture_size {
    int64_t width, height;
};

/* How a JPEG file is decoded: at the smallest size that covers the rectangle, which is faster and
 * gives slightly other pixels, or at its own size, as Pillow does. */
enum picture_scale { PICTURE_SMALLEST, PICTURE_WHOLE };

struct picture;

int picture_open(struct picture **out, const void *bytes, size_t n_bytes, struct err *err);
struct picture_size picture_size(const struct picture *p);

/* Resize what is in the box, which lies within the picture, to rgb [to.height,to.width,3], once.
 * Each result is the mean of the pixels around its place, weighted by a triangle (bilinear with
 * antialiasing, as Pillow resizes). */
int picture_read(struct picture *p, const struct picture_box *box, struct picture_size to,
                 enum picture_scale scale, uint8_t *rgb, struct err *err);
void picture_close(struct picture *p); /* NULL is fine */

#endif
