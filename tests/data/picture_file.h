/* picture_file - makes JPEG and PNG files of pixels, and tar archives, for tests. */
#ifndef TESTS_DATA_PICTURE_FILE_H
#define TESTS_DATA_PICTURE_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>

#include "base/buf.h"
#include "base/util.h"

/* A JPEG file of pixels [height,width,channels]: 1 grey, 3 RGB, 4 CMYK.  is_adobe: 1 with
 * Adobe's marker, 2 as YCCK with it. */
static inline void put_jpeg(struct buf *b, const uint8_t *pixels, int width, int height,
                            int channels, int is_progressive, int is_adobe)
{
    struct jpeg_compress_struct c = {0};
    struct jpeg_error_mgr errors;
    unsigned char *to = NULL;
    unsigned long n_bytes = 0;

    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &to, &n_bytes);
    c.image_width = (JDIMENSION)width;
    c.image_height = (JDIMENSION)height;
    c.input_components = channels;
    c.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 95, TRUE);
    if (is_adobe == 2) {
        jpeg_set_colorspace(&c, JCS_YCCK);
        for (int i = 0; i < 4; i += 3) /* its other components are of half the size */
            c.comp_info[i].h_samp_factor = c.comp_info[i].v_samp_factor = 1;
    }
    if (channels == 4)
        c.write_Adobe_marker = is_adobe != 0;
    if (is_progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    for (int i = 0; i < height; i++) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels + (size_t)i * (size_t)(width * channels));

        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    buf_append(b, to, n_bytes);
    free(to);
}

static inline void png_to_buf(png_structp p, png_bytep from, size_t n)
{
    buf_append(png_get_io_ptr(p), from, n);
}

/* A PNG file of rows of row_bytes each; type is PNG_COLOR_TYPE_... */
static inline void put_png(struct buf *b, const uint8_t *rows, size_t row_bytes, int width,
                           int height, int bits, int type, int is_interlaced)
{
    static const png_color palette[4] = {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {9, 8, 7}};
    png_structp p = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(p);
    png_bytepp row = malloc((size_t)height * sizeof *row);

    ASSERT(setjmp(png_jmpbuf(p)) == 0);
    for (int i = 0; i < height; i++)
        row[i] = (png_bytep)(uintptr_t)(rows + (size_t)i * row_bytes);
    png_set_write_fn(p, b, png_to_buf, NULL);
    png_set_IHDR(p, info, (png_uint_32)width, (png_uint_32)height, bits, type, is_interlaced,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_PLTE(p, info, palette, 4);
    png_set_rows(p, info, row);
    png_write_png(p, info, PNG_TRANSFORM_IDENTITY, NULL);
    png_destroy_write_struct(&p, &info);
    free(row);
}

static inline void put_rgb_png(struct buf *b, const uint8_t *rgb, int width, int height)
{
    put_png(b, rgb, (size_t)(3 * width), width, height, 8, PNG_COLOR_TYPE_RGB, 0);
}

/* ---- tar ---- */

static inline void fill_block(struct buf *b)
{
    while (b->len % 512)
        buf_append(b, "", 1);
}

static inline void mend_tar_sum(uint8_t *header)
{
    unsigned sum = 0;

    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

static inline void put_tar_header(struct buf *b, int type, const char *name, const char *link,
                                  size_t n_bytes)
{
    uint8_t header[512] = {0};

    memcpy(header, name, strnlen(name, 100));
    memcpy(header + 157, link, strnlen(link, 100));
    snprintf((char *)header + 124, 12, "%011o", (unsigned)n_bytes);
    header[156] = (uint8_t)type;
    memcpy(header + 257, "ustar", 6);
    mend_tar_sum(header);
    buf_append(b, header, sizeof header);
}

/* One member of type '0' (a file), 'L' (GNU's long name), 'x' (pax) or '5' (a folder). */
static inline void put_member(struct buf *b, int type, const char *name, const void *content,
                              size_t n_bytes)
{
    put_tar_header(b, type, name, "", n_bytes);
    buf_append(b, content, n_bytes);
    fill_block(b);
}

/* A picture of one colour as a member. */
static inline void put_picture(struct buf *b, const char *name, int colour)
{
    struct buf png = {0};
    uint8_t rgb[9 * 8 * 3];

    memset(rgb, colour, sizeof rgb);
    put_rgb_png(&png, rgb, 9, 8);
    put_member(b, '0', name, png.data, png.len);
    buf_fini(&png);
}

/* A record of a pax header: its length counts its own five digits. */
static inline void put_record(struct buf *b, const char *key, const void *value, size_t n)
{
    char text[64];
    const int len = snprintf(text, sizeof text, "%05zu %s=", 5 + 1 + strlen(key) + 1 + n + 1, key);

    buf_append(b, text, (size_t)len);
    buf_append(b, value, n);
    buf_append(b, "\n", 1);
}

static inline void end_tar(struct buf *b)
{
    static const char empty[1024];

    buf_append(b, empty, sizeof empty);
}

#endif
