/* jpeg - JPEG files by libjpeg-turbo, as much of them as is needed.
 *
 * Only the rows and columns around the box are decoded.  PICTURE_SMALLEST takes the smallest of the
 * scales 1/8, 1/4, 1/2 and 1 at which the box still covers the rectangle; the library has vector
 * code for these scales. The library ends a call by error_exit, which jumps back to the function
 * that called it.  Each such function keeps what it changes in struct jpeg, so that the jump loses
 * nothing.
 *
 * A file that ends early is refused, whatever the box: has_end looks for the end before anything is
 * decoded, since the library sees the end only if the box reaches down to it.  The library's other
 * warnings, such as bytes between two markers, are common in data sets that everybody trains on,
 * and are ignored, as Pillow does. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/pixels.h"

enum { MOST_SCANS = 256 };

struct jpeg {
    struct decoder base;
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    char text[JMSG_LENGTH_MAX]; /* why error_exit was called */
    uint8_t *row;               /* one row of CMYK, as decoded; NULL: RGB */
};

/* ---- the library's errors ---- */

static void jpeg_give_up(j_common_ptr info)
{
    struct jpeg *j = info->client_data;

    info->err->format_message(info, j->text);
    longjmp(j->back, 1);
}

static void jpeg_note(j_common_ptr info, int level)
{
    if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF)
        jpeg_give_up(info);
}

static void jpeg_be_silent(j_common_ptr info) { (void)info; }

/* Each scan of a progressive file is a pass over the whole picture, and costs a few bytes only. */
static void count_scans(j_common_ptr info)
{
    struct jpeg *j = info->client_data;

    if (j->d.input_scan_number > MOST_SCANS) {
        info->err->msg_code = JERR_BAD_PROGRESSION;
        jpeg_give_up(info);
    }
}

static int jpeg_failed(const struct jpeg *j, struct err *err)
{
    return err_set(err, ERR_CORRUPT, "as a JPEG file: %s", j->text);
}

/* ---- the decoder ---- */

static int is_jpeg(const uint8_t *bytes, size_t n_bytes)
{
    return n_bytes >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

static void jpeg_drop(struct decoder *d)
{
    struct jpeg *j = container_of(d, struct jpeg, base);

    jpeg_destroy_decompress(&j->d);
    free(j->row);
    free(j);
}

/* Does an end-of-image marker follow?  p stands behind the header of the first scan.  In a scan
 * 0xff stands before 0 or before a marker only, and may be repeated before a marker.  Between scans
 * a segment may hold such bytes by chance; but a file of several scans is always decoded to its
 * end. */
static int has_end(const uint8_t *p, const uint8_t *end)
{
    while ((p = memchr(p, 0xff, (size_t)(end - p))) && end - p >= 2) {
        if (p[1] == 0xd9)
            return 1;
        p += p[1] == 0xff ? 1 : 2;
    }
    return 0;
}

static int jpeg_read_head(struct jpeg *j, const uint8_t *bytes, size_t n_bytes, struct err *err)
{
    if (setjmp(j->back))
        return jpeg_failed(j, err);
    jpeg_create_decompress(&j->d);
    j->d.progress = &j->progress;
    jpeg_mem_src(&j->d, bytes, (unsigned long)n_bytes);
    jpeg_read_header(&j->d, TRUE);
    if (!has_end(bytes + n_bytes - j->d.src->bytes_in_buffer, bytes + n_bytes)) {
        j->errors.msg_code = JWRN_JPEG_EOF;
        jpeg_give_up((j_common_ptr)&j->d);
    }
    return 0;
}

static int jpeg_open_bytes(struct decoder **out, const uint8_t *bytes, size_t n_bytes,
                           struct err *err)
{
    struct jpeg *j = xcalloc(1, sizeof *j);
    int rc;

    j->base.ops = &decoder_jpeg;
    j->d.err = jpeg_std_error(&j->errors);
    j->d.client_data = j;
    j->errors.error_exit = jpeg_give_up;
    j->errors.emit_message = jpeg_note;
    j->errors.output_message = jpeg_be_silent;
    j->progress.progress_monitor = count_scans;
    rc = jpeg_read_head(j, bytes, n_bytes, err);
    if (rc == 0)
        rc = pixels_check(j->d.image_width, j->d.image_height, err);
    if (rc < 0) {
        jpeg_drop(&j->base);
        return rc;
    }
    j->base.width = j->d.image_width;
    j->base.height = j->d.image_height;
    *out = &j->base;
    return 0;
}

static int is_cmyk(const struct jpeg *j)
{
    return j->d.jpeg_color_space == JCS_CMYK || j->d.jpeg_color_space == JCS_YCCK;
}

static void choose_scale(struct jpeg *j, const struct picture_box *box, struct picture_size to,
                         enum picture_scale scale)
{
    unsigned eighths = scale == PICTURE_WHOLE ? 8 : 1;

    while (eighths < 8 && (box->width * eighths < (double)(8 * to.width) ||
                           box->height * eighths < (double)(8 * to.height)))
        eighths *= 2;
    j->d.scale_num = eighths;
    j->d.scale_denom = 8;
}

/* Start decoding the columns around the box; p says which pixels will come, and at which scale. */
static int jpeg_start(struct jpeg *j, const struct picture_box *box, struct picture_size to,
                      struct pixels *p, struct err *err)
{
    JDIMENSION x, width;

    if (setjmp(j->back))
        return jpeg_failed(j, err);
    j->d.out_color_space = is_cmyk(j) ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&j->d);
    p->whole_width = j->d.output_width;
    p->whole_height = j->d.output_height;
    p->scale = (double)j->d.scale_num / (double)j->d.scale_denom;
    pixels_around(p, box, to);
    x = (JDIMENSION)p->x;
    width = (JDIMENSION)p->width;
    jpeg_crop_scanline(&j->d, &x, &width);
    p->x = x;
    p->width = width;
    return 0;
}

/* x / 255, rounded, for x from 0 to 255 * 255: Pillow's MULDIV255. */
static int of_255(int x)
{
    x += 128;
    return ((x >> 8) + x) >> 8;
}

/* Ink takes light away, and files store how much light is left.  Pillow reads all files so, also
 * those that lack Adobe's marker, which says it. */
static void rgb_from_cmyk(const uint8_t *from, int64_t n, uint8_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        const int left = from[4 * i + 3];

        for (int c = 0; c < PICTURE_CHANNELS; c++)
            to[3 * i + c] = (uint8_t)(left - of_255((255 - from[4 * i + c]) * left));
    }
}

static int jpeg_read_rows(struct jpeg *j, const struct pixels *p, struct err *err)
{
    if (setjmp(j->back))
        return jpeg_failed(j, err);
    if (p->y > 0)
        jpeg_skip_scanlines(&j->d, (JDIMENSION)p->y);
    while (j->d.output_scanline < (JDIMENSION)(p->y + p->height)) {
        uint8_t *to = p->rgb + ((int64_t)j->d.output_scanline - p->y) * p->width * PICTURE_CHANNELS;

        jpeg_read_scanlines(&j->d, j->row ? &j->row : &to, 1);
        if (j->row)
            rgb_from_cmyk(j->row, p->width, to);
    }
    return 0;
}

static int jpeg_read(struct decoder *d, const struct picture_box *box, struct picture_size to,
                     enum picture_scale scale, struct pixels *out, struct err *err)
{
    struct jpeg *j = container_of(d, struct jpeg, base);

    choose_scale(j, box, to, scale);
    if (jpeg_start(j, box, to, out, err) < 0 || pixels_alloc(out, err) < 0)
        return err->code;
    if (is_cmyk(j) &&
        try_realloc((void **)&j->row, (size_t)(4 * out->width), "a row of CMYK", err) < 0)
        return err->code;
    return jpeg_read_rows(j, out, err);
}

const struct decoder_ops decoder_jpeg = {is_jpeg, jpeg_open_bytes, jpeg_read, jpeg_drop};
