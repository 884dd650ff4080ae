/* Tests of the confusion matrix as a picture and as a table: what is read, the colours of cells,
 * names that are long, foreign or full of commas, and the limits. */
#include "../test.h"

#include <png.h>

#include "see/matrix.h"

static const char three[] =
    "{\"classes\":[{\"class\":\"cat\"},{\"class\":\"a, \\\"b\\\"\"},{\"class\":7}],"
    "\"confusion\":[[8,2,0],[0,0,0],[1,0,3]]}";

static void test_table(void **state)
{
    struct matrix m;
    struct buf out = {0};

    (void)state;
    assert_int_equal(matrix_read(three, &m), 1);
    matrix_csv(&m, &out);
    assert_string_equal(buf_cstr(&out), "class,cat,\"a, \"\"b\"\"\",7\n"
                                        "cat,8,2,0\n"
                                        "\"a, \"\"b\"\"\",0,0,0\n"
                                        "7,1,0,3\n");
    buf_fini(&out);
    matrix_fini(&m);
}

static void test_none(void **state)
{
    static const char *const none[] = {
        NULL,
        "",
        "{}",
        "{\"classes\":[{\"class\":1}],\"confusion\":[]}",
        "{\"classes\":[{\"class\":1}],\"confusion\":[[1,0],[0,1]]}",
        "{\"r2\":0.5,\"outputs\":[]}",
        "{\"classes\":[{\"class\":1}],\"confusions\":[{\"class\":1,\"predicted\":2,\"count\":3}]}",
    };
    struct matrix m;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        assert_int_equal(matrix_read(none[i], &m), 0);
        matrix_fini(&m);
    }
}

/* ---- the picture ---- */

struct view {
    int width, height;
    unsigned char *rgb;
};

static struct view view_of(const struct matrix *m)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    struct buf png = {0};
    struct view v;

    assert_int_equal(matrix_png(m, 42, &png, &v.width, &v.height), 1);
    assert_int_equal(png_image_begin_read_from_memory(&image, png.data, png.len), 1);
    assert_int_equal(image.width, v.width);
    assert_int_equal(image.height, v.height);
    image.format = PNG_FORMAT_RGB;
    v.rgb = malloc(PNG_IMAGE_SIZE(image));
    assert_int_equal(png_image_finish_read(&image, NULL, v.rgb, 0, NULL), 1);
    buf_fini(&png);
    return v;
}

/* 1: the pixel has this colour. */
static int is_at(const struct view *v, int x, int y, int r, int g, int b)
{
    const unsigned char *p = v->rgb + 3 * ((size_t)y * (size_t)v->width + (size_t)x);

    return p[0] == r && p[1] == g && p[2] == b;
}

static int count_of(const struct view *v, int r, int g, int b)
{
    int n = 0;

    for (int y = 0; y < v->height; y++)
        for (int x = 0; x < v->width; x++)
            n += is_at(v, x, y, r, g, b);
    return n;
}

/* A row is 75 % right: its cell has the colour of three quarters, and a row of nothing is white. */
static void test_colours(void **state)
{
    struct matrix m;
    struct view v;

    (void)state;
    assert_int_equal(matrix_read(three, &m), 1);
    v = view_of(&m);
    assert_in_range(count_of(&v, 33, 113, 181), 1600, 48 * 48);  /* 3 of 4, but for its digits */
    assert_in_range(count_of(&v, 198, 219, 239), 1600, 48 * 48); /* 1 of 4 */
    assert_true(count_of(&v, 255, 255, 255) > v.width * v.height / 2);
    for (int x = 0; x < v.width; x++) /* nothing is cut at the edges */
        assert_true(is_at(&v, x, 0, 255, 255, 255) && is_at(&v, x, v.height - 1, 255, 255, 255));
    for (int y = 0; y < v.height; y++)
        assert_true(is_at(&v, 0, y, 255, 255, 255) && is_at(&v, v.width - 1, y, 255, 255, 255));
    free(v.rgb);
    matrix_fini(&m);
}

/* All classes are right, and have names that are too long, or not of our letters. */
static char *figures_of(int n)
{
    struct buf out = {0};
    char *text;

    buf_printf(&out, "{\"classes\":[");
    for (int i = 0; i < n; i++)
        buf_printf(&out, "%s{\"class\":\"%s\"}", i ? "," : "",
                   i % 2 ? "Bl\xc3\xbcte" : "a name of so many letters");
    buf_printf(&out, "],\"confusion\":[");
    for (int i = 0; i < n; i++) {
        buf_printf(&out, "%s[", i ? "," : "");
        for (int k = 0; k < n; k++)
            buf_printf(&out, "%s%d", k ? "," : "", i == k);
        buf_printf(&out, "]");
    }
    buf_printf(&out, "]}");
    text = strdup(buf_cstr(&out));
    buf_fini(&out);
    return text;
}

static void test_sizes(void **state)
{
    static const int sizes[] = {1, 2, 10, MATRIX_MOST_NAMES, MATRIX_MOST_NAMES + 1, MATRIX_MOST};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char *figures = figures_of(sizes[i]);
        struct matrix m;
        struct view v;

        assert_int_equal(matrix_read(figures, &m), 1);
        v = view_of(&m);
        assert_in_range(v.width, 300, 1200);
        assert_in_range(v.height, 200, 1200);
        assert_true(count_of(&v, 8, 48, 107) >= 25 * sizes[i]); /* the diagonal */
        for (int y = 0; y < v.height; y++)
            assert_true(is_at(&v, 0, y, 255, 255, 255) && is_at(&v, v.width - 1, y, 255, 255, 255));
        free(v.rgb);
        matrix_fini(&m);
        free(figures);
    }
}

static void test_most(void **state)
{
    char *figures = figures_of(MATRIX_MOST + 1);
    struct matrix m;

    (void)state;
    assert_int_equal(matrix_read(figures, &m), 0);
    free(figures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table), cmocka_unit_test(test_none), cmocka_unit_test(test_colours),
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_most),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
