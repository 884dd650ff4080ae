/* idx_file - makes IDX files, sound and broken, plain and compressed, in a temporary folder of the
 * test's own. */
#ifndef TESTS_DATA_IDX_FILE_H
#define TESTS_DATA_IDX_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "../remove_tree.h"
#include "base/buf.h"
#include "base/util.h"

static inline void put_u32(struct buf *b, uint32_t v)
{
    const uint8_t be[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};

    buf_append(b, be, 4);
}

/* Replace b's content by its gzip form. */
static inline void gzip_buf(struct buf *b)
{
    z_stream z = {0};
    struct buf out = {0};
    uLong bound;

    ASSERT(deflateInit2(&z, 6, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    bound = deflateBound(&z, b->len);
    z.next_in = b->data;
    z.avail_in = (uInt)b->len;
    z.next_out = buf_reserve(&out, bound);
    z.avail_out = (uInt)bound;
    ASSERT(deflate(&z, Z_FINISH) == Z_STREAM_END);
    out.len = z.total_out;
    deflateEnd(&z);
    buf_fini(b);
    *b = out;
}

static inline void write_file(const char *folder, const char *name, const struct buf *b)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "wb");
    ASSERT(f);
    ASSERT(b->len == 0 || fwrite(b->data, b->len, 1, f) == 1);
    ASSERT(fclose(f) == 0);
}

/* Make a folder, to be removed with remove_folder. */
static inline char *make_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    char text[256];

    snprintf(text, sizeof text, "%s/dptrain-test-XXXXXX", tmp ? tmp : "/tmp");
    ASSERT(mkdtemp(text));
    return strdup(text);
}

static inline void remove_folder(char *folder)
{
    ASSERT(remove_tree(folder) == 0);
    free(folder);
}

/* A test whose state is a folder of its own. */
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, new_folder, drop_folder)

static inline int new_folder(void **state)
{
    *state = make_folder();
    return 0;
}

static inline int drop_folder(void **state)
{
    remove_folder(*state);
    return 0;
}

/* Write `text` to out, with every '@' replaced by `by`. */
static inline const char *fill_in(char *out, size_t n, const char *text, const char *by)
{
    size_t len = 0;

    for (out[0] = 0; *text; text++) {
        int k = *text == '@' ? snprintf(out + len, n - len, "%s", by)
                             : snprintf(out + len, n - len, "%c", *text);

        len += (size_t)k;
        ASSERT(len < n);
    }
    return out;
}

#endif
