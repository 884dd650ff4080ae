/* Tests of the record of spans: what is recorded when, names, limits, and readers beside writers.
 */
#include "../test.h"

#include <pthread.h>
#include <stdio.h>

#include "base/spans.h"

static struct spans *new_on(void)
{
    struct spans *s = spans_new();
    struct err err;

    spans_use(spans_track(s, SPANS_ENGINE));
    assert_int_equal(spans_start(s, &err), 0);
    return s;
}

static void record(const char *name, const char *kind) { spans_end(spans_begin(), name, kind); }

static void test_off(void **state)
{
    struct spans *s = spans_new();
    struct spans_record r;
    struct err err;
    int64_t began;

    (void)state;
    spans_use(NULL);
    assert_int_equal(spans_begin(), 0);
    record("nothing", "x"); /* a thread without a track */
    spans_use(spans_track(s, SPANS_ENGINE));
    assert_int_equal(spans_begin(), 0);
    record("before", "x");
    assert_int_equal(spans_start(s, &err), 0);
    began = spans_begin();
    assert_true(began > 0);
    spans_stop(s);
    record("after", "x");
    spans_end(began, "begun before", "x");
    spans_read(s, &r);
    assert_int_equal(r.n, 0);
    assert_int_equal(r.is_cut, 0);
    spans_record_fini(&r);
    spans_free(s);
}

static void test_spans_and_names(void **state)
{
    struct spans *s = new_on();
    struct spans_record r;
    int64_t outer, inner;

    (void)state;
    spans_step(7);
    outer = spans_begin();
    inner = spans_begin();
    spans_end_at(inner, "conv1", "conv2d", 3);
    record("conv1", "conv2d");
    spans_end(outer, "step", "step");
    spans_add(spans_track(s, SPANS_COMM),
              &(struct trace_span){
                  .begin_ns = inner, .took_ns = 5, .step = 7, .n_bytes = 64, .collective = 9},
              "all-reduce", "collective");
    spans_stop(s);
    spans_read(s, &r);
    assert_int_equal(r.n, 4);
    assert_int_equal(r.n_names, 5); /* conv1, conv2d, step; all-reduce, collective */
    assert_string_equal(r.name[r.span[0].name], "conv1");
    assert_string_equal(r.name[r.span[0].kind], "conv2d");
    assert_int_equal(r.span[0].bucket, 3);
    assert_int_equal(r.span[1].name, r.span[0].name);
    assert_int_equal(r.span[1].bucket, -1);
    assert_string_equal(r.name[r.span[2].name], "step");
    assert_int_equal(r.span[2].step, 7);
    assert_true(r.span[2].begin_ns <= r.span[0].begin_ns);
    assert_true(r.span[2].begin_ns + r.span[2].took_ns >= r.span[1].begin_ns + r.span[1].took_ns);
    assert_int_equal(r.span[3].track, SPANS_COMM);
    assert_string_equal(r.name[r.span[3].name], "all-reduce");
    assert_int_equal(r.span[3].collective, 9);
    spans_record_fini(&r);
    spans_free(s);
}

/* A second record has nothing of the first one; names are cut, and the cut ones stay apart. */
static void test_again(void **state)
{
    char long_name[2 * SPANS_NAME];
    struct spans *s = new_on();
    struct spans_record r;
    struct err err;
    int64_t began = spans_begin();

    (void)state;
    record("first", "x");
    spans_stop(s);
    assert_int_equal(spans_start(s, &err), 0);
    spans_end(began, "of the first", "x");
    memset(long_name, 'n', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    record(long_name, "x");
    record(long_name, "x");
    spans_stop(s);
    spans_read(s, &r);
    assert_int_equal(r.n, 2);
    assert_int_equal(strlen(r.name[r.span[0].name]), SPANS_NAME - 1);
    assert_int_equal(r.span[0].name, r.span[1].name);
    spans_record_fini(&r);
    spans_free(s);
}

/* Names that stand at one address, one after another, as after a network was built anew. */
static void test_address_of_others(void **state)
{
    static const char *const texts[] = {"conv1", "conv10", "conv1", "conv", "conv10"};
    struct spans *s = new_on();
    struct spans_record r;
    char name[SPANS_NAME];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        snprintf(name, sizeof name, "%s", texts[i]);
        record(name, "conv2d");
    }
    spans_stop(s);
    spans_read(s, &r);
    assert_int_equal(r.n_names, 4); /* with the kind */
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        assert_string_equal(r.name[r.span[i].name], texts[i]);
    spans_record_fini(&r);
    spans_free(s);
}

static void test_full(void **state)
{
    struct spans *s = new_on();
    struct spans_record r;
    struct err err;
    char name[16];

    (void)state;
    for (int i = 0; i < SPANS_MOST + 1; i++)
        record("a", "b");
    spans_stop(s);
    spans_read(s, &r);
    assert_int_equal(r.n, SPANS_MOST);
    assert_int_equal(r.is_cut, 1);
    spans_record_fini(&r);

    assert_int_equal(spans_start(s, &err), 0);
    for (int i = 0; i < SPANS_MOST_NAMES; i++) {
        snprintf(name, sizeof name, "%d", i);
        record(name, "b");
    }
    spans_stop(s);
    spans_read(s, &r);
    assert_in_range(r.n, SPANS_MOST_NAMES / 2, SPANS_MOST_NAMES - 1);
    assert_in_range(r.n_names, r.n, SPANS_MOST_NAMES);
    assert_int_equal(r.is_cut, 1);
    for (int i = 0; i < r.n; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_string_equal(r.name[r.span[i].name], name);
    }
    spans_record_fini(&r);
    spans_free(s);
}

enum { RECORDS = 200 };

static void *write_beside(void *arg)
{
    struct spans *s = arg;
    char name[16];

    spans_use(spans_track(s, SPANS_LOADER));
    for (int i = 0; i < RECORDS * 50; i++) {
        snprintf(name, sizeof name, "batch %d", i % 8);
        spans_step(i % 8);
        record(name, "data");
    }
    spans_use(NULL);
    return NULL;
}

/* Records begin, end and are read while another thread writes: all spans are whole. */
static void test_beside(void **state)
{
    struct spans *s = new_on();
    pthread_t thread;
    struct err err;
    char name[16];

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, write_beside, s), 0);
    for (int k = 0; k < RECORDS; k++) {
        struct spans_record r;

        spans_stop(s);
        spans_read(s, &r);
        for (int i = 0; i < r.n; i++) {
            snprintf(name, sizeof name, "batch %d", (int)r.span[i].step);
            assert_string_equal(r.name[r.span[i].name], name);
            assert_string_equal(r.name[r.span[i].kind], "data");
        }
        spans_record_fini(&r);
        assert_int_equal(spans_start(s, &err), 0);
    }
    pthread_join(thread, NULL);
    spans_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off),   cmocka_unit_test(test_spans_and_names),
        cmocka_unit_test(test_again), cmocka_unit_test(test_address_of_others),
        cmocka_unit_test(test_full),  cmocka_unit_test(test_beside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
