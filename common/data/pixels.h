/* pixels - what picture.c asks of the decoders of JPEG and PNG, and of the resizing.
 *
 * Threads: any, each with decoders of its own. */
#ifndef DATA_PIXELS_H
#define DATA_PIXELS_H

#include "data/picture.h"

/* Decoded pixels: `width` by `height` of them, RGB, the first one at (x, y) of a picture that is
 * `whole_width` by `whole_height` at the scale of decoding.  A pixel of the file is `scale` of
 * theirs wide and high; the last column and the last row may reach beyond the file's. */
struct pixels {
    uint8_t *rgb;      /* for free() if pixels_alloc made it */
    int64_t row_bytes; /* from a row to the next */
    int64_t x, y, width, height;
    int64_t whole_width, whole_height;
    double scale;
};

struct decoder;

struct decoder_ops {
    int (*is)(const uint8_t *bytes, size_t n_bytes); /* do these begin such a file? */
    int (*open)(struct decoder **out, const uint8_t *bytes, size_t n_bytes, struct err *err);
    /* Decode at least what resizing the box to the size `to` reads (pixels_around). */
    int (*read)(struct decoder *d, const struct picture_box *box, struct picture_size to,
                enum picture_scale scale, struct pixels *out, struct err *err);
    void (*close)(struct decoder *d);
};

/* The base of each decoder's own struct; `open` fills width and height. */
struct decoder {
    const struct decoder_ops *ops;
    int64_t width, height;
};

extern const struct decoder_ops decoder_jpeg, decoder_png;

/* Set p's x, y, width and height to the pixels that resizing the box to the size `to` reads; p has
 * the whole picture's width and height, and the scale. */
void pixels_around(struct pixels *p, const struct picture_box *box, struct picture_size to);

/* Refuse a picture of this size if it has too many pixels to decode, or none. */
int pixels_check(int64_t width, int64_t height, struct err *err);

/* Room for p->width by p->height pixels, one row behind the other. */
int pixels_alloc(struct pixels *p, struct err *err);

/* Resize the box to rgb [to.height,to.width,3]. */
int pixels_resize(const struct pixels *p, const struct picture_box *box, struct picture_size to,
                  uint8_t *rgb, struct err *err);

#endif
