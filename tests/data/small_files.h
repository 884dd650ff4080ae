/* small_files - small data of several formats in a folder: texts, arrays, tables, and pictures. */
#ifndef TESTS_DATA_SMALL_FILES_H
#define TESTS_DATA_SMALL_FILES_H

#include "../test.h"

#include "idx_file.h"
#include "picture_file.h"

/* n token numbers of 16 bits, without a header. */
static inline void write_ids(const char *folder, const char *name, int n)
{
    struct buf b = {0};

    for (int i = 0; i < n; i++)
        buf_append(&b, (uint8_t[2]){(uint8_t)(i * 7), (uint8_t)(i % 13)}, 2);
    write_file(folder, name, &b);
    buf_fini(&b);
}

/* A file of n bytes that is a text. */
static inline void write_text(const char *folder, const char *name, int n)
{
    struct buf b = {0};

    for (int i = 0; i < n; i++)
        buf_append(&b, &(uint8_t){(uint8_t)(32 + i * i % 95)}, 1);
    write_file(folder, name, &b);
    buf_fini(&b);
}

/* Two arrays of NumPy: features [n,2,2] in x, classes [n] in y, both of bytes. */
static inline void write_arrays(const char *folder, const char *x, const char *y, int n)
{
    for (int is_y = 0; is_y < 2; is_y++) {
        struct buf b = {0};

        buf_append(&b, "\x93NUMPY\1\0\0\1", 10); /* a header of 256 bytes */
        buf_printf(&b, "{'descr': '|u1', 'fortran_order': False, 'shape': (%d,%s), }", n,
                   is_y ? "" : " 2, 2");
        while (b.len < 266)
            buf_append(&b, " ", 1);
        for (int i = 0; i < n * (is_y ? 1 : 4); i++)
            buf_append(&b, &(uint8_t){(uint8_t)(i * i % 7 % 2)}, 1);
        write_file(folder, is_y ? y : x, &b);
        buf_fini(&b);
    }
}

/* A table of n rows: a number from 0 to 1, a word, and one of two classes. */
static inline void write_table(const char *folder, const char *name, int n)
{
    struct buf b = {0};

    buf_printf(&b, "x,word,class\n");
    for (int i = 0; i < n; i++)
        buf_printf(&b, "%g,%c,%s\n", i % 9 / 8.0, 'a' + i * i % 5 % 3, i % 2 ? "odd" : "even");
    write_file(folder, name, &b);
    buf_fini(&b);
}

/* A folder of two classes with n pictures each, all different. */
static inline void write_classes(const char *folder, const char *name, int n)
{
    char *path = xasprintf("%s/%s", folder, name);

    assert_int_equal(mkdir(path, 0777), 0);
    for (int i = 0; i < 2 * n; i++) {
        char *at = xasprintf("%s/%c", path, 'a' + i / n);
        uint8_t rgb[12] = {(uint8_t)i, (uint8_t)(3 * i), 5};
        struct buf b = {0};

        assert_true(i % n || mkdir(at, 0777) == 0);
        put_rgb_png(&b, rgb, 2, 2);
        write_file(at, (char[]){(char)('a' + i % n), '.', 'p', 'n', 'g', 0}, &b);
        buf_fini(&b);
        free(at);
    }
    free(path);
}

#endif
