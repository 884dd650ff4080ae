/* picture: every kind of JPEG and PNG becomes RGB; a box that is decoded in part, and at a smaller
 * scale, is what the whole picture gives; resizing is near a plain reference in double precision;
 * broken files are refused with the library's reason. */
#include "../test.h"

#include <math.h>

#include "data/picture.h"
#include "picture_file.h"

enum { C = PICTURE_CHANNELS };

static int read_box(const struct buf *file, const struct picture_box *box, int64_t size,
                    enum picture_scale scale, uint8_t *rgb, struct err *err)
{
    struct picture *p = NULL;
    void *exact = malloc(file->len ? file->len : 1); /* a sanitizer sees a read beyond it */
    int rc;

    if (file->len)
        memcpy(exact, file->data, file->len);
    rc = picture_open(&p, exact, file->len, err);
    if (rc == 0)
        rc = picture_read(p, box, (struct picture_size){size, size}, scale, rgb, err);
    picture_close(p);
    free(exact);
    return rc;
}

static void read_ok(const struct buf *file, const struct picture_box *box, int64_t size,
                    uint8_t *rgb)
{
    struct err err = {0};

    if (read_box(file, box, size, PICTURE_SMALLEST, rgb, &err) != 0)
        fail_msg("%s", err.msg);
}

/* Random squares of 3 pixels, so that neighbours differ but JPEG keeps them well. */
static uint8_t *make_pixels(int width, int height, int channels, int grain)
{
    uint8_t *p = malloc((size_t)(width * height * channels));

    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++) {
                uint32_t v = (uint32_t)(y / grain * 7919 + x / grain * 104729 + c * 31);

                v = (v ^ v >> 7) * 2654435761U;
                p[(y * width + x) * channels + c] = (uint8_t)(v >> 24);
            }
    return p;
}

/* ---- resizing ---- */

/* The weighted mean of row or column: the definition, without rounding. */
static double reference(const uint8_t *rgb, int width, int height, const struct picture_box *box,
                        int size, int i, int k, int c)
{
    const double sy = box->height / size, sx = box->width / size;
    const double ry = fmax(sy, 1), rx = fmax(sx, 1);
    const double cy = box->y + (i + 0.5) * sy, cx = box->x + (k + 0.5) * sx;
    double sum = 0, weights = 0;

    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            const double w =
                fmax(0, 1 - fabs(y + 0.5 - cy) / ry) * fmax(0, 1 - fabs(x + 0.5 - cx) / rx);

            weights += w;
            sum += w * rgb[(y * width + x) * C + c];
        }
    return sum / weights;
}

static const struct {
    int width, height, size;
    struct picture_box box;
} resizings[] = {
    {16, 16, 16, {0, 0, 16, 16}},   {16, 16, 7, {0, 0, 16, 16}},
    {5, 9, 12, {0, 2, 5, 5}},       {40, 21, 8, {9.5, 0.25, 20.5, 20.5}},
    {30, 30, 4, {1, 2, 27.75, 13}}, {1, 1, 3, {0, 0, 1, 1}},
    {33, 2, 5, {0, 0, 33, 2}},      {64, 48, 20, {3, 5, 40, 40}},
};

static void resizing_is_near_the_definition(void **state)
{
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(resizings); n++) {
        const int w = resizings[n].width, h = resizings[n].height, size = resizings[n].size;
        uint8_t *pixels = make_pixels(w, h, C, 1), out[20 * 20 * C];
        struct buf file = {0};

        put_rgb_png(&file, pixels, w, h);
        read_ok(&file, &resizings[n].box, size, out);
        for (int p = 0; p < size * size * C; p++) {
            const double want =
                reference(pixels, w, h, &resizings[n].box, size, p / C / size, p / C % size, p % C);

            if (fabs(want - out[p]) > 1.1) /* two roundings, and those of the weights */
                fail_msg("case %zu, value %d is %d, want %g", n, p, out[p], want);
        }
        buf_fini(&file);
        free(pixels);
    }
}

/* A picture of one colour stays so: the weights' sum is exact. */
static void one_colour_stays(void **state)
{
    uint8_t pixels[37 * 23 * C], out[50 * 50 * C];
    struct buf file = {0};

    (void)state;
    memset(pixels, 255, sizeof pixels);
    put_rgb_png(&file, pixels, 37, 23);
    for (int size = 1; size <= 50; size++) {
        read_ok(&file, &(struct picture_box){1.5, 0.5, 30.25, 21}, size, out);
        for (int i = 0; i < size * size * C; i++)
            assert_int_equal(out[i], 255);
    }
    buf_fini(&file);
}

/* The same where a pixel is the mean of thousands, whose weights are small beside their rounding.
 */
static void one_colour_stays_in_wide_pictures(void **state)
{
    enum { W = 20000 };
    uint8_t *pixels = malloc(W * C), out[3 * 3 * C];
    struct buf file = {0};

    (void)state;
    memset(pixels, 255, W * C);
    put_rgb_png(&file, pixels, W, 1);
    for (int size = 1; size <= 3; size++)
        for (int width = W; width > W / 3; width -= 997) {
            read_ok(&file, &(struct picture_box){0, 0, width, 1}, size, out);
            for (int i = 0; i < size * size * C; i++)
                assert_int_equal(out[i], 255);
        }
    buf_fini(&file);
    free(pixels);
}

/* ---- kinds of files ---- */

/* Read a whole square picture as it is. */
static void read_whole(const struct buf *file, int side, uint8_t *rgb)
{
    read_ok(file, &(struct picture_box){0, 0, side, side}, side, rgb);
}

static void expect_near(const uint8_t *seen, const uint8_t *want, int n, int tolerance)
{
    for (int i = 0; i < n; i++)
        if (abs(seen[i] - want[i]) > tolerance)
            fail_msg("value %d is %d, want %d", i, seen[i], want[i]);
}

enum { SIDE = 24, N = SIDE * SIDE };

static void jpegs_of_each_kind(void **state)
{
    uint8_t *rgb = make_pixels(SIDE, SIDE, 3, 8), *grey = make_pixels(SIDE, SIDE, 1, 8),
            *cmyk = make_pixels(SIDE, SIDE, 4, 8), want[N * C], seen[N * C], first[N * C];
    struct buf file = {0};

    (void)state;
    for (int is_progressive = 0; is_progressive < 2; is_progressive++) {
        buf_clear(&file);
        put_jpeg(&file, rgb, SIDE, SIDE, 3, is_progressive, 0);
        read_whole(&file, SIDE, is_progressive ? seen : first);
    }
    assert_memory_equal(seen, first, sizeof seen); /* the same coefficients in another order */
    buf_clear(&file);
    put_jpeg(&file, grey, SIDE, SIDE, 1, 0, 0);
    read_whole(&file, SIDE, seen);
    for (int i = 0; i < N * C; i++)
        want[i] = grey[i / C];
    expect_near(seen, want, N * C, 8);
    for (int is_adobe = 0; is_adobe < 3; is_adobe++) {
        buf_clear(&file);
        put_jpeg(&file, cmyk, SIDE, SIDE, 4, 0, is_adobe);
        read_whole(&file, SIDE, seen);
        for (int i = 0; i < N * C; i++) {
            const int ink = cmyk[i / C * 4 + i % C], black = cmyk[i / C * 4 + 3];

            want[i] = (uint8_t)(ink * black / 255);
        }
        expect_near(seen, want, N * C, 12);
    }
    buf_fini(&file);
    free(rgb);
    free(grey);
    free(cmyk);
}

static void pngs_of_each_kind(void **state)
{
    static const struct {
        int type, bits, channels; /* of the file */
    } kinds[] = {
        {PNG_COLOR_TYPE_RGB, 8, 3},       {PNG_COLOR_TYPE_RGB, 16, 3},
        {PNG_COLOR_TYPE_RGB_ALPHA, 8, 4}, {PNG_COLOR_TYPE_GRAY, 8, 1},
        {PNG_COLOR_TYPE_GRAY, 16, 1},     {PNG_COLOR_TYPE_GRAY_ALPHA, 8, 2},
        {PNG_COLOR_TYPE_PALETTE, 8, 1},   {PNG_COLOR_TYPE_GRAY, 1, 1},
    };
    static const uint8_t palette[4][3] = {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {9, 8, 7}};

    (void)state;
    for (size_t n = 0; n < 2 * ARRAY_LEN(kinds); n++) {
        const int type = kinds[n / 2].type, bits = kinds[n / 2].bits,
                  channels = kinds[n / 2].channels, bytes = bits == 16 ? 2 : 1;
        const size_t row_bytes = bits == 1 ? SIDE / 8 : (size_t)(SIDE * channels * bytes);
        uint8_t *rows = make_pixels(SIDE, SIDE, channels * bytes, 1), seen[N * C];
        struct buf file = {0};

        for (int i = 0; type == PNG_COLOR_TYPE_PALETTE && i < N; i++)
            rows[i] %= 4;
        put_png(&file, rows, row_bytes, SIDE, SIDE, bits, type, n % 2);
        read_whole(&file, SIDE, seen);
        for (int i = 0; i < N * C; i++) {
            const int pixel = i / C, c = channels > 2 ? i % C : 0;
            int want = rows[(pixel * channels + c) * bytes];

            if (type == PNG_COLOR_TYPE_PALETTE)
                want = palette[want][i % C];
            if (bits == 1)
                want = rows[pixel / 8] >> (7 - pixel % 8) & 1 ? 255 : 0;
            if (seen[i] != want)
                fail_msg("kind %zu, value %d is %d, want %d", n, i, seen[i], want);
        }
        buf_fini(&file);
        free(rows);
    }
}

/* ---- parts of a JPEG ---- */

/* The reference reads the same file whole, at its own size, and resizes that as PNG.  Decoded at
 * its own size, the part is the same; at the smallest one, nearly.  1: the two differ. */
static int expect_part(const struct buf *file, int width, int height, const struct picture_box *box,
                       int size, int tolerance)
{
    uint8_t *seen = malloc((size_t)(size * size * C)), *want = malloc((size_t)(size * size * C)),
            *whole = malloc((size_t)(width * height * C));
    struct jpeg_decompress_struct d = {0};
    struct jpeg_error_mgr errors;
    struct buf png = {0};
    struct err err = {0};
    int differ;

    d.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&d);
    jpeg_mem_src(&d, file->data, (unsigned long)file->len);
    jpeg_read_header(&d, TRUE);
    d.out_color_space = JCS_RGB;
    jpeg_start_decompress(&d);
    while (d.output_scanline < d.output_height) {
        JSAMPROW row = whole + d.output_scanline * (size_t)(width * C);

        jpeg_read_scanlines(&d, &row, 1);
    }
    jpeg_finish_decompress(&d);
    jpeg_destroy_decompress(&d);
    put_rgb_png(&png, whole, width, height);
    read_ok(&png, box, size, want);
    read_ok(file, box, size, seen);
    expect_near(seen, want, size * size * C, tolerance);
    differ = memcmp(seen, want, (size_t)(size * size * C)) != 0;
    assert_int_equal(read_box(file, box, size, PICTURE_WHOLE, seen, &err), 0);
    expect_near(seen, want, size * size * C, 0);
    buf_fini(&png);
    free(whole);
    free(want);
    free(seen);
    return differ;
}

static void parts_are_those_of_the_whole(void **state)
{
    enum { W = 203, H = 150 };
    uint8_t *rgb = make_pixels(W, H, C, 1);
    struct buf file = {0};

    (void)state;
    for (int is_progressive = 0; is_progressive < 2; is_progressive++) {
        buf_clear(&file);
        put_jpeg(&file, rgb, W, H, C, is_progressive, 0);
        for (int i = 0; i < 40; i++) { /* at full scale, exactly; at all kinds of edges */
            const int x = i * 37 % 150, y = i * 53 % 100, side = 20 + i * 11 % 31;

            expect_part(&file, W, H, &(struct picture_box){x, y, side, side - 5}, 48, 0);
        }
    }
    expect_part(&file, W, H, &(struct picture_box){0, 0, W, H}, 140, 0);
    buf_fini(&file);
    free(rgb);
}

/* A JPEG file of slow waves. */
static void put_waves(struct buf *file, int width, int height)
{
    uint8_t *rgb = malloc((size_t)(width * height * C));

    for (int i = 0; i < width * height * C; i++) {
        const int x = i / C % width, y = i / C / width;

        rgb[i] = (uint8_t)(128 + 60 * sin(x / 25.0 + i % C) + 60 * cos(y / 30.0));
    }
    put_jpeg(file, rgb, width, height, C, 0, 0);
    free(rgb);
}

/* A picture that is large beside the square is decoded at a smaller scale, to nearly the same;
 * also one whose last block of 8 by 8 pixels is not full. */
static void large_pictures_are_scaled(void **state)
{
    static const int sides[][2] = {{400, 320}, {401, 321}, {395, 326}};
    int differ = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
        const int w = sides[i][0], h = sides[i][1];
        struct buf file = {0};

        put_waves(&file, w, h);
        for (int size = 16; size <= 160; size *= 2) {
            differ |= expect_part(&file, w, h, &(struct picture_box){0, 0, w, h}, size, 6);
            expect_part(&file, w, h, &(struct picture_box){60.5, 30.25, 320, 256}, size, 6);
        }
        buf_fini(&file);
    }
    assert_true(differ); /* else they were decoded at their own size */
}

/* ---- broken files ---- */

static void expect_error(const struct buf *file, int code, const char *want)
{
    uint8_t out[8 * 8 * C];
    struct err err = {0};

    assert_int_equal(
        read_box(file, &(struct picture_box){0, 0, SIDE, SIDE}, 8, PICTURE_SMALLEST, out, &err),
        code);
    if (!strstr(err.msg, want))
        fail_msg("\"%s\" does not have \"%s\"", err.msg, want);
}

static void broken_files_are_refused(void **state)
{
    uint8_t *rgb = make_pixels(SIDE, SIDE, 3, 1);
    struct buf jpeg = {0}, png = {0}, file = {0};

    (void)state;
    put_jpeg(&jpeg, rgb, SIDE, SIDE, 3, 0, 0);
    put_rgb_png(&png, rgb, SIDE, SIDE);
    expect_error(&file, ERR_CORRUPT, "its 0 bytes begin neither as a JPEG nor as a PNG file");
    buf_append(&file, "GIF89a--", 8);
    expect_error(&file, ERR_CORRUPT, "its 8 bytes begin neither as a JPEG nor as a PNG file");
    for (size_t len = 8; len < jpeg.len; len += 5) { /* cut short, at any place */
        buf_clear(&file);
        buf_append(&file, jpeg.data, len);
        expect_error(&file, ERR_CORRUPT, "as a JPEG file: ");
    }
    expect_error(&file, ERR_CORRUPT, "as a JPEG file: Premature end of JPEG file");
    for (size_t len = 8; len < png.len; len += 5) {
        buf_clear(&file);
        buf_append(&file, png.data, len);
        expect_error(&file, ERR_CORRUPT, "as a PNG file: ");
    }
    buf_clear(&file);
    buf_append(&file, png.data, png.len);
    file.data[png.len / 2] ^= 1;
    expect_error(&file, ERR_CORRUPT, "as a PNG file: ");
    for (int i = 0; i < 4; i++) /* the height of a frame of 65,535 by 65,535 */
        for (size_t k = 0; k + 8 < jpeg.len; k++)
            if (jpeg.data[k] == 0xff && jpeg.data[k + 1] == 0xc0)
                jpeg.data[k + 5 + (size_t)i] = 0xdc;
    expect_error(&jpeg, ERR_CORRUPT, "it has 56540 by 56540 pixels, want 1 to 134217728 pixels");
    buf_fini(&jpeg);
    buf_fini(&png);
    buf_fini(&file);
    free(rgb);
}

/* The outcome of reading a small box at the top, one at the bottom, and all of it. */
static void expect_one_outcome(const struct buf *file, const char *what, size_t at)
{
    static const struct picture_box box[] = {
        {0, 0, 4, 4}, {SIDE - 4, SIDE - 4, 4, 4}, {0, 0, SIDE, SIDE}};
    uint8_t out[4 * 4 * C];
    struct err err = {0};
    const int first = read_box(file, &box[0], 4, PICTURE_WHOLE, out, &err);

    for (size_t i = 0; i < ARRAY_LEN(box); i++)
        for (int scale = 0; scale < 2; scale++)
            if (read_box(file, &box[i], 4, scale ? PICTURE_WHOLE : PICTURE_SMALLEST, out, &err) !=
                first)
                fail_msg("%s at byte %zu: box %zu and the first differ: %s", what, at, i, err.msg);
}

/* The first byte that can change without another size of the picture: behind a PNG's header, and
 * behind the frame's and the tables' of a JPEG. */
static size_t content_of(const struct buf *file)
{
    size_t at = 33;

    while (file->data[0] == 0xff && (file->data[at] != 0xff || file->data[at + 1] != 0xda))
        at++;
    return at;
}

/* An epoch may draw any part of a picture, so a file is broken in all epochs or in none. */
static void errors_do_not_depend_on_the_part(void **state)
{
    uint8_t *rgb = make_pixels(SIDE, SIDE, 3, 1);

    (void)state;
    for (int kind = 0; kind < 3; kind++) { /* baseline, progressive, PNG */
        struct buf file = {0};
        size_t len;

        if (kind < 2)
            put_jpeg(&file, rgb, SIDE, SIDE, 3, kind, 0);
        else
            put_rgb_png(&file, rgb, SIDE, SIDE);
        for (size_t at = content_of(&file); at < file.len; at += 5) {
            const uint8_t was = file.data[at];

            file.data[at] = (uint8_t)(was ^ 1 << at % 8);
            expect_one_outcome(&file, "a bit is wrong", at);
            file.data[at] = 0xff; /* in a scan a marker begins */
            expect_one_outcome(&file, "0xff", at);
            file.data[at] = was;
        }
        for (len = file.len; file.len > len - 40; file.len--)
            expect_one_outcome(&file, "cut", file.len);
        buf_fini(&file);
    }
    free(rgb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resizing_is_near_the_definition),
        cmocka_unit_test(one_colour_stays),
        cmocka_unit_test(one_colour_stays_in_wide_pictures),
        cmocka_unit_test(jpegs_of_each_kind),
        cmocka_unit_test(pngs_of_each_kind),
        cmocka_unit_test(parts_are_those_of_the_whole),
        cmocka_unit_test(large_pictures_are_scaled),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(errors_do_not_depend_on_the_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
