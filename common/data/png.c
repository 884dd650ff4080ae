/* png - PNG files by libpng, whole: their rows depend on each other.
 *
 * The library ends a call by its error function, which jumps back to the function that called. */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/pixels.h"

struct png {
    struct decoder base;
    png_structp read;
    png_infop info;
    const uint8_t *bytes;
    size_t n_bytes, at;
    uint8_t **row; /* [height] where each row goes */
    char text[128];
};

static void png_give_up(png_structp read, png_const_charp text)
{
    struct png *p = png_get_error_ptr(read);

    strncpy(p->text, text, sizeof p->text - 1);
    png_longjmp(read, 1);
}

static void png_be_silent(png_structp read, png_const_charp text) { (void)read, (void)text; }

static void take_bytes(png_structp read, png_bytep to, size_t n)
{
    struct png *p = png_get_io_ptr(read);

    if (n > p->n_bytes - p->at)
        png_error(read, "the file ends early");
    memcpy(to, p->bytes + p->at, n);
    p->at += n;
}

static int png_failed(const struct png *p, struct err *err)
{
    return err_set(err, ERR_CORRUPT, "as a PNG file: %s", p->text);
}

static int is_png(const uint8_t *bytes, size_t n_bytes)
{
    return n_bytes >= 8 && png_sig_cmp(bytes, 0, 8) == 0;
}

static void png_drop(struct decoder *d)
{
    struct png *p = container_of(d, struct png, base);

    png_destroy_read_struct(&p->read, &p->info, NULL);
    free(p->row);
    free(p);
}

static int png_read_header(struct png *p, struct err *err)
{
    if (setjmp(png_jmpbuf(p->read)))
        return png_failed(p, err);
    png_set_read_fn(p->read, p, take_bytes);
    png_set_user_limits(p->read, PICTURE_MOST_PIXELS, PICTURE_MOST_PIXELS);
    png_read_info(p->read, p->info);
    p->base.width = png_get_image_width(p->read, p->info);
    p->base.height = png_get_image_height(p->read, p->info);
    return 0;
}

static int png_open_bytes(struct decoder **out, const uint8_t *bytes, size_t n_bytes,
                          struct err *err)
{
    struct png *p = xcalloc(1, sizeof *p);
    int rc = 0;

    p->base.ops = &decoder_png;
    p->bytes = bytes;
    p->n_bytes = n_bytes;
    p->read = png_create_read_struct(PNG_LIBPNG_VER_STRING, p, png_give_up, png_be_silent);
    if (p->read)
        p->info = png_create_info_struct(p->read);
    if (!p->info)
        rc = err_set(err, ERR_NOMEM, "libpng %s cannot start", PNG_LIBPNG_VER_STRING);
    if (rc == 0)
        rc = png_read_header(p, err);
    if (rc == 0)
        rc = pixels_check(p->base.width, p->base.height, err);
    if (rc < 0) {
        png_drop(&p->base);
        return rc;
    }
    *out = &p->base;
    return 0;
}

/* Every kind becomes RGB of 8 bits. */
static int png_start(struct png *p, struct err *err)
{
    if (setjmp(png_jmpbuf(p->read)))
        return png_failed(p, err);
    png_set_expand(p->read);
    png_set_strip_16(p->read);
    png_set_strip_alpha(p->read);
    png_set_gray_to_rgb(p->read);
    png_set_interlace_handling(p->read);
    png_read_update_info(p->read, p->info);
    ASSERT(png_get_rowbytes(p->read, p->info) == (size_t)p->base.width * PICTURE_CHANNELS);
    return 0;
}

static int png_read_image_rows(struct png *p, struct err *err)
{
    if (setjmp(png_jmpbuf(p->read)))
        return png_failed(p, err);
    png_read_image(p->read, p->row);
    png_read_end(p->read, NULL);
    return 0;
}

static int png_read(struct decoder *d, const struct picture_box *box, struct picture_size to,
                    enum picture_scale scale, struct pixels *out, struct err *err)
{
    struct png *p = container_of(d, struct png, base);

    (void)box, (void)to, (void)scale;
    out->width = out->whole_width = d->width;
    out->height = out->whole_height = d->height;
    out->scale = 1;
    if (png_start(p, err) < 0 || pixels_alloc(out, err) < 0 ||
        try_realloc((void **)&p->row, (size_t)d->height * sizeof *p->row, "the rows of a picture",
                    err) < 0)
        return err->code;
    for (int64_t i = 0; i < d->height; i++)
        p->row[i] = out->rgb + i * d->width * PICTURE_CHANNELS;
    return png_read_image_rows(p, err);
}

const struct decoder_ops decoder_png = {is_png, png_open_bytes, png_read, png_drop};
