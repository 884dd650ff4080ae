/* idx: reads IDX files, plain and compressed, that are sound, or broken in each possible way, with
 * the message that each gives. */
#include "../test.h"

#include "base/alloc.h"
#include "data/idx.h"
#include "idx_file.h"

enum { GZ = 1, TWO_MEMBERS = 2 };

#define IMAGES (&(struct idx_want){IDX_U8, 3, 4})
#define LABELS (&(struct idx_want){IDX_U8, 1, 1})
#define WANT_OF(c) \
    (&(struct idx_want){(c)->type ? (c)->type : IDX_U8, (c)->min_dims, (c)->max_dims})

/* A file: magic, extents and a number of bytes 0, 1, 2 ...  It may be compressed, and is then
 * damaged. */
static const struct file_case {
    const char *name;
    uint32_t magic;
    int n_dims;
    uint32_t dim[4];
    int n_bytes;
    int gz;
    int cut;          /* bytes taken from the end */
    const char *tail; /* bytes added there */
    int flip;         /* 1 + offset of a byte to invert, from the end if negative */
    int min_dims, max_dims;
    int code;
    const char *want;   /* message; @ is the path; NULL: fine */
    enum idx_type type; /* that is wanted; 0: IDX_U8 */
} cases[] = {
    {"images", 0x803, 3, {3, 2, 4}, 24, .min_dims = 3, .max_dims = 4},
    {"images-gz", 0x803, 3, {3, 2, 4}, 24, GZ, .min_dims = 3, .max_dims = 4},
    {"colour", 0x804, 4, {2, 2, 2, 3}, 24, .min_dims = 3, .max_dims = 4},
    {"labels", 0x801, 1, {5}, 5, .min_dims = 1, .max_dims = 1},
    {"large", 0x803, 3, {300, 28, 28}, 300 * 784, .min_dims = 3, .max_dims = 4},
    {"large-gz", 0x803, 3, {300, 28, 28}, 300 * 784, GZ, .min_dims = 3, .max_dims = 4},
    {"two-members", 0x803, 3, {300, 28, 28}, 300 * 784, TWO_MEMBERS, .min_dims = 3, .max_dims = 3},
    {"integers", 0xc02, 2, {3, 8}, 96, .min_dims = 2, .max_dims = 2, .type = IDX_I32},
    {"integers-gz", 0xc02, 2, {3, 8}, 96, GZ, .min_dims = 2, .max_dims = 2, .type = IDX_I32},
    {"bytes-as-integers",
     0x801,
     1,
     {5},
     5,
     .min_dims = 2,
     .max_dims = 2,
     .code = ERR_CORRUPT,
     .want = "@: offset 0: magic is 0x00000801, want 0x00000c02 (IDX, 32-bit integers, 2 "
             "dimensions); is this the right file?",
     .type = IDX_I32},
    {"integers-cut",
     0xc02,
     2,
     {3, 8},
     96,
     .cut = 1,
     .min_dims = 2,
     .max_dims = 2,
     .code = ERR_CORRUPT,
     .want = "@: offset 12: 95 bytes follow the header, want as many as [3,8] has; the file is "
             "truncated or no IDX file, fetch it again",
     .type = IDX_I32},
    {"huge-integers",
     0xc02,
     2,
     {0xffffffff, 0x80000000},
     96,
     .min_dims = 2,
     .max_dims = 2,
     .code = ERR_CORRUPT,
     .want = "@: offset 12: 96 bytes follow the header, want as many as [4294967295,2147483648] "
             "has; the file is truncated or no IDX file, fetch it again",
     .type = IDX_I32},
    {"empty", .cut = 4, .min_dims = 3, .max_dims = 4, .code = ERR_CORRUPT,
     .want =
         "@: offset 0: the file ends within its header, want 4 bytes of it; fetch the file again"},
    {"short-header",
     0x803,
     2,
     {3, 2},
     0,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 12: the file ends within its header, want 16 bytes of it; fetch the file "
             "again"},
    {"html",
     0x3c21444f,
     0,
     {0},
     90,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 0: magic is 0x3c21444f, want 0x00000803 (IDX, unsigned bytes, 3 "
             "dimensions); is this the right file?"},
    {"floats",
     0xd03,
     3,
     {3, 2, 4},
     96,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 0: magic is 0x00000d03, want 0x00000803 (IDX, unsigned bytes, 3 "
             "dimensions); is this the right file?"},
    {"swapped",
     0x801,
     1,
     {5},
     5,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 3: number of dimensions is 1, want 3 to 4; are the files of images and "
             "labels swapped?"},
    {"too-many-dims",
     0x805,
     4,
     {1, 1, 1, 1},
     5,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 3: number of dimensions is 5, want 3 to 4; are the files of images and "
             "labels swapped?"},
    {"images-as-labels",
     0x803,
     3,
     {3, 2, 4},
     24,
     .min_dims = 1,
     .max_dims = 1,
     .code = ERR_CORRUPT,
     .want = "@: offset 3: number of dimensions is 3, want 1; are the files of images and labels "
             "swapped?"},
    {"no-samples",
     0x803,
     3,
     {0, 2, 4},
     0,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 4: extents are [0,2,4], want none to be 0; is this the right file?"},
    {"no-width",
     0x803,
     3,
     {3, 2, 0},
     0,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 12: extents are [3,2,0], want none to be 0; is this the right file?"},
    {"cut",
     0x803,
     3,
     {3, 2, 4},
     24,
     .cut = 1,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 16: 23 bytes follow the header, want as many as [3,2,4] has; the file is "
             "truncated or no IDX file, fetch it again"},
    {"huge",
     0x803,
     3,
     {0xffffffff, 0xffffffff, 0xffffffff},
     24,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 16: 24 bytes follow the header, want as many as "
             "[4294967295,4294967295,4294967295] has; the file is truncated or no IDX file, fetch "
             "it again"},
    {"huge-gz",
     0x803,
     3,
     {0xffffffff, 2, 4},
     24,
     GZ,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 16: at most 98560 bytes follow the header, want as many as "
             "[4294967295,2,4] has; the file is truncated or no IDX file, fetch it again"},
    {"wrapping",
     0x804,
     4,
     {0x80000000, 0x80000000, 0x80000000, 0x80000000},
     24,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 20: 24 bytes follow the header, want as many as "
             "[2147483648,2147483648,2147483648,2147483648] has; the file is truncated or no IDX "
             "file, fetch it again"},
    {"short-inside-gz",
     0x803,
     3,
     {4, 2, 4},
     24,
     GZ,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 40: the file ends, want 48 bytes in all for [4,2,4]; fetch it again"},
    {"longer",
     0x803,
     3,
     {3, 2, 4},
     25,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want =
         "@: offset 40: bytes follow the array [3,2,4], want the end of the file; fetch it again"},
    {"longer-inside-gz",
     0x803,
     3,
     {3, 2, 4},
     25,
     GZ,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want =
         "@: offset 40: bytes follow the array [3,2,4], want the end of the file; fetch it again"},
    {"garbage-after-gz",
     0x803,
     3,
     {3, 2, 4},
     24,
     GZ,
     .tail = "garbage",
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 56 of the compressed file: other bytes follow the gzip data, want its end; "
             "fetch the file again"},
    {"gz-cut",
     0x803,
     3,
     {300, 28, 28},
     300 * 784,
     GZ,
     .cut = 300,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 980 of the compressed file: it ends within the gzip data (truncated); "
             "fetch the file again"},
    {"gz-without-checksum",
     0x803,
     3,
     {3, 2, 4},
     24,
     GZ,
     .cut = 8,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 48 of the compressed file: it ends within the gzip data (truncated); fetch "
             "the file again"},
    {"gz-wrong-checksum",
     0x803,
     3,
     {3, 2, 4},
     24,
     GZ,
     .flip = -8,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 52 of the compressed file: gzip data is damaged (incorrect data check); "
             "fetch the file again"},
    {"gz-wrong-length",
     0x803,
     3,
     {3, 2, 4},
     24,
     GZ,
     .flip = -4,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 56 of the compressed file: gzip data is damaged (incorrect length check); "
             "fetch the file again"},
    {"gz-damaged",
     0x803,
     3,
     {300, 28, 28},
     300 * 784,
     GZ,
     .flip = 12,
     .min_dims = 3,
     .max_dims = 4,
     .code = ERR_CORRUPT,
     .want = "@: offset 17 of the compressed file: gzip data is damaged (invalid code lengths "
             "set); fetch the file again"},
    {"gz-only-magic", 0x1f8b0000, .cut = 2, .min_dims = 3, .max_dims = 4, .code = ERR_CORRUPT,
     .want = "@: offset 2 of the compressed file: it ends within the gzip data (truncated); fetch "
             "the file again"},
};

static void make_file(struct buf *b, const struct file_case *c)
{
    put_u32(b, c->magic);
    for (int i = 0; i < c->n_dims; i++)
        put_u32(b, c->dim[i]);
    for (int i = 0; i < c->n_bytes; i++)
        *buf_reserve(b, 1) = (uint8_t)i, b->len++;
    if (c->gz == TWO_MEMBERS) {
        struct buf second = {0};

        buf_append(&second, b->data + b->len / 2, b->len - b->len / 2);
        b->len /= 2;
        gzip_buf(b);
        gzip_buf(&second);
        buf_append(b, second.data, second.len);
        buf_fini(&second);
    } else if (c->gz) {
        gzip_buf(b);
    }
    b->len -= (size_t)c->cut;
    if (c->tail)
        buf_append(b, c->tail, strlen(c->tail));
    if (c->flip)
        b->data[c->flip > 0 ? (size_t)c->flip - 1 : b->len - (size_t)-c->flip] ^= 0xff;
}

static void check_result(const struct file_case *c, const struct idx *x, int rc,
                         const struct err *err, const char *path)
{
    char want[1024];

    if (rc != c->code)
        fail_msg("%s: returned %d, want %d: %s", c->name, rc, c->code, rc ? err->msg : "");
    if (c->want) {
        assert_string_equal(err->msg, fill_in(want, sizeof want, c->want, path));
        assert_null(x->data);
        return;
    }
    assert_int_equal(x->n_dims, c->n_dims);
    assert_int_equal(x->n_bytes, c->n_bytes);
    for (int i = 0; i < c->n_dims; i++)
        assert_int_equal(x->dim[i], c->dim[i]);
    for (int i = 0; i < c->n_bytes; i++)
        assert_int_equal(x->data[i], (uint8_t)i);
}

static void files_are_read_or_refused(void **state)
{
    char *folder = make_folder();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct file_case *c = &cases[i];
        struct buf b = {0};
        struct idx x;
        struct err err;
        char *path = xasprintf("%s/%s", folder, c->name);
        int rc;

        make_file(&b, c);
        write_file(folder, c->name, &b);
        rc = idx_read(&x, path, WANT_OF(c), &err);
        check_result(c, &x, rc, &err, path);
        idx_fini(&x);
        buf_fini(&b);
        free(path);
    }
    remove_folder(folder);
}

/* Reading from memory gives the same outcome, and the same message without the path. */
static void bytes_are_parsed_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct file_case c = cases[i];
        struct buf b = {0};
        struct idx x;
        struct err err;
        int rc;

        c.want = c.want ? c.want + strlen("@: ") : NULL;
        make_file(&b, &c);
        rc = idx_parse(&x, b.data, b.len, WANT_OF(&c), &err);
        check_result(&c, &x, rc, &err, "");
        idx_fini(&x);
        buf_fini(&b);
    }
}

/* Every prefix and every inverted byte of a small file is either read or refused, never worse;
 * where it has a checksum, no damage goes unnoticed. */
static void any_damage_is_survived(void **state)
{
    (void)state;
    for (int gz = 0; gz <= GZ; gz++) {
        const struct file_case c = {"", 0x803, 3, {3, 2, 4}, 24, gz};
        struct buf b = {0};
        struct idx x;
        struct err err;

        make_file(&b, &c);
        for (size_t n = 0; n < b.len; n++) {
            assert_true(idx_parse(&x, b.data, n, IMAGES, &err) < 0);
            idx_fini(&x);
        }
        for (size_t i = 0; i < b.len; i++) {
            int rc;

            b.data[i] ^= 0xff;
            rc = idx_parse(&x, b.data, b.len, IMAGES, &err);
            if (gz && (i < 4 || i >= 10)) /* gzip's time and system are not data */
                assert_true(rc < 0);
            idx_fini(&x);
            b.data[i] ^= 0xff;
        }
        buf_fini(&b);
    }
}

static void what_is_no_file_is_refused(void **state)
{
    char *folder = make_folder(), *path = xasprintf("%s/none", folder);
    char want[1024];
    struct idx x;
    struct err err;

    (void)state;
    assert_int_equal(idx_read(&x, path, LABELS, &err), ERR_IO);
    assert_string_equal(
        err.msg, fill_in(want, sizeof want, "@: cannot open it: No such file or directory", path));
    assert_int_equal(idx_read(&x, folder, LABELS, &err), ERR_IO);
    assert_string_equal(err.msg, fill_in(want, sizeof want, "@: is not a regular file", folder));
    free(path);
    remove_folder(folder);
}

static void no_memory_is_an_error(void **state)
{
    const struct file_case c = {"", 0x803, 3, {3, 2, 4}, 24};
    struct buf b = {0};
    struct idx x;
    struct err err;

    (void)state;
    make_file(&b, &c);
    alloc_fail_at(1);
    assert_int_equal(idx_parse(&x, b.data, b.len, IMAGES, &err), ERR_NOMEM);
    assert_string_equal(err.msg, "out of memory: 24 bytes wanted for an IDX file's array");
    idx_fini(&x);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_read_or_refused), cmocka_unit_test(bytes_are_parsed_or_refused),
        cmocka_unit_test(any_damage_is_survived),    cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(no_memory_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
