/* feed: the seeds' conversations run a job.
 * Cut and damaged at every byte, they end it in order. */
#include "../test.h"

#include "feed.h"
#include "samples.h"

static const int from_follower[] = {0, 1, 2, 3, 4, 5, 6, 7};
static const int from_driver[] = {10, 12, 13, 4, 14, 15, 16, 18};
static const int to_standby[] = {10, 25, 4, 18};

static void conversation(struct buf *b, const int *samples, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct arena a;
        Wire__Control m;
        struct err err;
        arena_init(&a);
        assert_true(sample_make(&a, samples[i], &m));
        struct frame *f = msg_frame(&m, &err);
        buf_append(b, f->data, f->len);
        frame_unref(f);
        arena_fini(&a);
    }
}

static void conversations_reach_their_end(void **state)
{
    struct buf b = {0};
    struct feed_result r;
    (void)state;
    conversation(&b, from_follower, ARRAY_LEN(from_follower));
    feed_driver(b.data, b.len, &r);
    assert_int_equal(r.n_messages, 8);
    assert_int_equal(r.n_epochs, 1);
    assert_int_equal(r.status, 0);
    buf_clear(&b);
    conversation(&b, from_driver, ARRAY_LEN(from_driver));
    feed_follower(b.data, b.len, &r);
    assert_int_equal(r.n_messages, 8);
    assert_int_equal(r.status, 4); /* the sample's Stop: by a signal */
    buf_fini(&b);
}

/* A follower has lost its driver, which comes again. */
static void a_follower_keeps_its_state(void **state)
{
    struct buf b = {0};
    struct feed_result r;
    (void)state;
    conversation(&b, from_driver, 3);
    buf_append(&b, "DPT1\0\0\0\1", 9); /* a body of one byte 0: the connection is lost */
    conversation(&b, to_standby, 1);
    conversation(&b, &from_driver[7], 1);
    feed_follower(b.data, b.len, &r);
    assert_int_equal(r.n_messages, 5);
    assert_int_equal(r.status, 4); /* the sample's Stop: by a signal */
    buf_fini(&b);
}

/* It joins its driver, and then ends with the job; or a follower that lost its driver makes it
 * lead. */
static void a_standby_joins_or_leads(void **state)
{
    struct buf b = {0};
    struct feed_result r;
    (void)state;
    conversation(&b, to_standby, ARRAY_LEN(to_standby));
    feed_standby(b.data, b.len, 1, &r);
    assert_int_equal(r.n_messages, 4);
    assert_int_equal(r.status, 4); /* the sample's Stop: by a signal */
    assert_false(r.is_leader);
    buf_clear(&b);
    conversation(&b, from_follower, 1);
    feed_standby(b.data, b.len, 0, &r);
    assert_int_equal(r.n_messages, 1);
    assert_int_equal(r.status, 0);
    assert_true(r.is_leader);
    buf_fini(&b);
}

static void damaged_conversations_end_too(void **state)
{
    struct buf b = {0};
    struct feed_result r;
    (void)state;
    conversation(&b, from_follower, ARRAY_LEN(from_follower));
    size_t n = b.len;
    conversation(&b, from_driver, ARRAY_LEN(from_driver));
    for (size_t i = 0; i < b.len; i++) {
        const uint8_t *start = i < n ? b.data : b.data + n;
        size_t len = i < n ? n : b.len - n;
        for (int bit = 0; bit < 8; bit += 3) {
            b.data[i] ^= (uint8_t)(1 << bit);
            feed_all(start, len);
            b.data[i] ^= (uint8_t)(1 << bit);
        }
        feed_all(start, i < n ? i : i - n);
    }
    feed_driver((const uint8_t *)"GET / HTTP/1.1\r\n", 16, &r);
    assert_int_equal(r.n_messages, 0);
    assert_true(r.was_closed);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_reach_their_end),
        cmocka_unit_test(a_follower_keeps_its_state),
        cmocka_unit_test(a_standby_joins_or_leads),
        cmocka_unit_test(damaged_conversations_end_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
