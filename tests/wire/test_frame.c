/* frame: whole bodies come out however the stream is cut, strangers are named, and limits on the
 * length hold. */
#include "../test.h"

#include "wire/frame.h"

/* Three bodies of 1, 300 and 70000 bytes. */
static void make_stream(struct buf *b)
{
    static const size_t sizes[] = {1, 300, 70000};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct frame *f = frame_new(sizes[i]);
        memset(f->data + FRAME_HEADER, (int)(i + 1), sizes[i]);
        buf_append(b, f->data, f->len);
        frame_unref(f);
    }
}

/* Read all, `chunk` bytes at a time; returns the number of bodies. */
static int read_all(const struct buf *b, size_t chunk, size_t limit)
{
    struct frame_reader r;
    struct err err;
    const uint8_t *body;
    size_t len;
    int n = 0;

    frame_reader_init(&r, limit);
    for (size_t at = 0; at < b->len; at += chunk) {
        int rc;
        assert_int_equal(
            frame_reader_add(&r, b->data + at, at + chunk < b->len ? chunk : b->len - at, &err), 0);
        while ((rc = frame_reader_next(&r, &body, &len, &err)) > 0) {
            n++;
            assert_int_equal(len, n == 1 ? 1 : n == 2 ? 300 : 70000);
            assert_int_equal(body[0], n);
            assert_int_equal(body[len - 1], n);
        }
        assert_int_equal(rc, 0);
        frame_reader_rest(&r);
        assert_int_equal(r.in.data == NULL, frame_reader_pending(&r) == 0);
    }
    assert_int_equal(frame_reader_pending(&r), 0);
    frame_reader_fini(&r);
    return n;
}

static void any_cut_gives_the_same_bodies(void **state)
{
    static const size_t chunks[] = {1, 2, 3, 7, 8, 9, 4096, 70000, 1 << 20};
    struct buf b = {0};
    (void)state;
    make_stream(&b);
    for (size_t i = 0; i < ARRAY_LEN(chunks); i++)
        assert_int_equal(read_all(&b, chunks[i], FRAME_MAX), 3);
    buf_fini(&b);
}

static void strangers_are_named(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *want;
    } cases[] = {
        {"GET / HTTP/1.1\r\n", 16, "looks like an HTTP request"},
        {"POST", 4, "looks like an HTTP request"},
        {"HTTP/1.1 400", 12, "looks like an HTTP server"},
        {"\x16\x03\x01\x02", 4, "looks like a TLS connection"},
        {"SSH-2.0-", 8, "looks like an SSH connection"},
        {"\x15\x03\x03\x00", 4, "it has a secret and this side has none: give both the same"},
        {"DPT9", 4, "another version of dptrain's protocol: install the same version"},
        {"\0\0\0\0", 4, "starts with 00 00 00 00"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct frame_reader r;
        struct err err;
        const uint8_t *body;
        size_t len;
        frame_reader_init(&r, FRAME_MAX);
        assert_int_equal(frame_reader_add(&r, cases[i].bytes, 3, &err), 0);
        assert_int_equal(frame_reader_next(&r, &body, &len, &err), 0);
        assert_int_equal(frame_reader_add(&r, cases[i].bytes + 3, cases[i].len - 3, &err), 0);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(frame_reader_next(&r, &body, &len, &err), ERR_PROTO);
            assert_non_null(strstr(err.msg, cases[i].want));
        }
        frame_reader_fini(&r);
    }
}

static void length_is_bounded_before_the_body(void **state)
{
    static const struct {
        uint32_t length;
        size_t limit;
        int want;
    } cases[] = {
        {0, FRAME_MAX, ERR_PROTO},
        {FRAME_MAX_STRANGER, FRAME_MAX_STRANGER, 0},
        {FRAME_MAX_STRANGER + 1, FRAME_MAX_STRANGER, ERR_PROTO},
        {FRAME_MAX, FRAME_MAX, 0},
        {FRAME_MAX + 1u, FRAME_MAX, ERR_PROTO},
        {UINT32_MAX, FRAME_MAX, ERR_PROTO},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t n = cases[i].length;
        uint8_t head[8] = {
            'D',       'P', 'T', '1', (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
            (uint8_t)n};
        struct frame_reader r;
        struct err err;
        const uint8_t *body;
        size_t len;
        frame_reader_init(&r, cases[i].limit);
        assert_int_equal(frame_reader_add(&r, head, sizeof(head), &err), 0);
        assert_int_equal(frame_reader_next(&r, &body, &len, &err), cases[i].want);
        assert_true(r.in.cap <= 4096); /* what was announced is not allocated */
        frame_reader_fini(&r);
    }
}

static void limit_may_be_raised(void **state)
{
    struct buf b = {0};
    struct frame_reader r;
    struct err err;
    const uint8_t *body;
    size_t len;
    (void)state;
    make_stream(&b);
    frame_reader_init(&r, 1000);
    assert_int_equal(frame_reader_add(&r, b.data, b.len, &err), 0);
    assert_int_equal(frame_reader_next(&r, &body, &len, &err), 1);
    assert_int_equal(frame_reader_next(&r, &body, &len, &err), 1);
    assert_int_equal(frame_reader_next(&r, &body, &len, &err), ERR_PROTO);
    r.limit = FRAME_MAX;
    assert_int_equal(frame_reader_next(&r, &body, &len, &err), 1);
    assert_int_equal(len, 70000);
    frame_reader_fini(&r);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_gives_the_same_bodies),
        cmocka_unit_test(strangers_are_named),
        cmocka_unit_test(length_is_bounded_before_the_body),
        cmocka_unit_test(limit_may_be_raised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
