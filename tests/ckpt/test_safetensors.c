/* safetensors: files that are written read back the same, and wrong files are refused with the
 * reason. */

#include "../test.h"

#include <unistd.h>

#include "../remove_tree.h"
#include "ckpt/safetensors.h"

static char dir[] = "/tmp/dptrain-st-XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return remove_tree(dir);
}

/* The tensor's bytes are those at `want`, read whole and from the middle. */
static void assert_holds(const struct st_file *f, const struct st_tensor *t, const void *want)
{
    size_t n = dtype_size(t->dtype) * (size_t)shape_elements(&t->shape), half = n / 2;
    uint8_t seen[64];
    struct err err;

    assert_true(n <= sizeof seen);
    assert_int_equal(st_read(f, t, 0, seen, n, &err), 0);
    if (n)
        assert_memory_equal(seen, want, n);
    assert_int_equal(st_read(f, t, half, seen, n - half, &err), 0);
    if (n)
        assert_memory_equal(seen, (const uint8_t *)want + half, n - half);
}

static void test_round_trip(void **state)
{
    float w[6] = {1, -2, 3.5f, 0, 1e-30f, 6};
    int64_t count = 41;
    uint8_t odd[3] = {1, 2, 255};
    struct st_tensor t[] = {
        {"conv1.weight", DTYPE_F32, SHAPE(2, 3), w},
        {"a \"quoted\" name", DTYPE_U8, SHAPE(3), odd},
        {"n", DTYPE_I64, {.n = 0}, &count},
        {"empty", DTYPE_F32, SHAPE(0, 4), w},
    };
    struct hash128 hash, seen;
    struct st_file *f;
    struct err err;
    char path[128];

    (void)state;
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    assert_int_equal(st_write(path, t, ARRAY_LEN(t), NULL, &hash, &err), 0);
    assert_int_equal(st_open(path, &f, &err), 0);
    assert_int_equal(st_count(f), ARRAY_LEN(t));
    assert_int_equal(st_hash(f, &seen, &err), 0);
    assert_true(hash_equal(seen, hash));
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        const struct st_tensor *g = st_find(f, t[i].name);

        assert_non_null(g);
        assert_int_equal(g->dtype, t[i].dtype);
        assert_true(shape_equal(&g->shape, &t[i].shape));
        assert_holds(f, g, t[i].data);
    }
    assert_null(st_find(f, "conv2.weight"));
    st_close(f);
    assert_true(st_write(path, t, 1, NULL, &hash, &err) < 0); /* never over another file */
    assert_non_null(strstr(err.msg, "File exists"));
}

#define ONE(body) "{\"w\":{" body "}}"
#define W         "\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"

static const struct bad {
    const char *what, *header;
    int data_bytes;
    const char *text; /* in the message */
} bad[] = {
    {"not JSON", "{\"w\":", 8, "offset 8: the header is not a JSON object"},
    {"a list", "[]", 0, "the header is not a JSON object"},
    {"a name twice", "{\"w\":{" W "},\"w\":{" W "}}", 8, "duplicate"},
    {"no dtype", ONE("\"shape\":[2],\"data_offsets\":[0,8]"), 8, "\"dtype\" is not"},
    {"unknown dtype", ONE("\"dtype\":\"F8\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, "\"dtype\""},
    {"shape is text", ONE("\"dtype\":\"F32\",\"shape\":\"2\",\"data_offsets\":[0,8]"), 8,
     "\"shape\""},
    {"negative size", ONE("\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]"), 8, "a size"},
    {"too many sizes",
     ONE("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]"), 8, "at most 8"},
    {"product overflows",
     ONE("\"dtype\":\"F32\",\"shape\":[1099511627776,1099511627776],\"data_offsets\":[0,8]"), 8,
     "do not fit"},
    {"offsets reversed", ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]"), 8,
     "[begin, end]"},
    {"one offset", ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]"), 8, "[begin, end]"},
    {"three offsets", ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]"), 8,
     "[begin, end]"},
    {"size differs", ONE("\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]"), 8,
     "do not fit"},
    {"a hole", ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]"), 12,
     "offset 4, want 0"},
    {"an overlap",
     "{\"a\":{" W "},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12,
     "offset 4, want 8"},
    {"cut short", ONE(W), 7, "has 7 bytes of data, its header describes 8"},
    {"too long", ONE(W), 9, "has 9 bytes of data, its header describes 8"},
    {"an entry that is a number", "{\"w\":3}", 0, "\"dtype\" is not"},
};

/* The file lies in a block of its exact size, so that a sanitizer sees a read past the end. */
static int parse(const char *header, size_t header_len, size_t data_bytes, struct err *err)
{
    size_t n = 8 + header_len + data_bytes;
    uint8_t *file = malloc(n);
    uint64_t len = header_len;
    struct st_file *f = NULL;
    int rc;

    memset(file, 0, n);
    memcpy(file, &len, 8);
    memcpy(file + 8, header, header_len);
    rc = st_parse(file, n, "x.safetensors", &f, err);
    if (rc == 0)
        st_close(f);
    free(file);
    return rc;
}

static void test_bad_files(void **state)
{
    struct err err;

    (void)state;
    assert_int_equal(parse(ONE(W), strlen(ONE(W)), 8, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int rc = parse(bad[i].header, strlen(bad[i].header), (size_t)bad[i].data_bytes, &err);

        if (rc != ERR_CORRUPT || !strstr(err.msg, bad[i].text) || !strstr(err.msg, "x.safetensors"))
            fail_msg("%s: rc %d, message: %s", bad[i].what, rc, rc < 0 ? err.msg : "");
    }
}

static void test_bad_length(void **state)
{
    uint8_t file[16] = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, '{', '}'};
    struct st_file *f;
    struct err err;

    (void)state;
    assert_int_equal(st_parse(file, 7, "x", &f, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "7 bytes"));
    assert_int_equal(st_parse(file, sizeof file, "x", &f, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "header length 4294967295"));
    file[7] = 0xff; /* a length that would overflow */
    assert_int_equal(st_parse(file, sizeof file, "x", &f, &err), ERR_CORRUPT);
    memcpy(file, "PK\3\4", 4);
    assert_int_equal(st_parse(file, sizeof file, "x", &f, &err), ERR_CORRUPT);
    assert_string_equal(err.msg,
                        "x: offset 0: a zip archive, as torch.save() writes it; write the weights "
                        "with safetensors.torch.save_file(), or name a file of torch.export.save() "
                        "in model.import");
}

/* Every prefix of a good file is refused; so nothing is read that is not there. */
static void test_every_truncation(void **state)
{
    const char *header = ONE(W);
    struct err err;
    uint64_t len = strlen(header);

    (void)state;
    for (size_t n = 0; n < 8 + len + 8; n++) {
        uint8_t *file = calloc(1, n ? n : 1);
        struct st_file *f;

        memcpy(file, &len, n < 8 ? n : 8);
        if (n > 8)
            memcpy(file + 8, header, n - 8 < len ? n - 8 : len);
        assert_int_equal(st_parse(file, n, "x", &f, &err), ERR_CORRUPT);
        free(file);
    }
}

static void test_missing(void **state)
{
    struct st_file *f;
    struct err err;

    (void)state;
    assert_int_equal(st_open("/nonexistent/m.safetensors", &f, &err), ERR_IO);
    assert_string_equal(err.msg, "/nonexistent/m.safetensors: No such file or directory");
    assert_int_equal(st_open("/", &f, &err), ERR_CORRUPT);
    assert_string_equal(err.msg, "/ is a folder, want a file");
    assert_int_equal(st_open("/dev/null", &f, &err), ERR_CORRUPT);
    assert_string_equal(err.msg, "/dev/null is a pipe or device, want a file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_bad_length), cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_missing),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
