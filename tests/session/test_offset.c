/* Tests of the offset of a peer's clock: with clocks that drift, ways of unequal length, and stamps
 * that lie, the true offset is within the error that is told. */
#include "../test.h"

#include <math.h>

#include "base/rng.h"
#include "session/offset.h"

static const int64_t second = 1000000000;

/* A peer whose clock is `ahead` ns ahead at time 0, and `ppm` faster. */
struct peer {
    int64_t ahead;
    double ppm;
};

static int64_t clock_of(const struct peer *p, int64_t now_ns)
{
    return now_ns + p->ahead + (int64_t)(1e-6 * p->ppm * (double)now_ns);
}

/* Ours leaves at `at`, takes `there` ns, is held, and the answer takes `back` ns.  Returns our time
 * when it comes. */
static int64_t exchange(struct offset *o, const struct peer *p, int64_t at, int64_t there,
                        int64_t held, int64_t back)
{
    const int64_t got = clock_of(p, at + there), sent = clock_of(p, at + there + held);

    assert_int_equal(offset_add(o, at + there + held + back, sent, at, sent - got), 1);
    return at + there + held + back;
}

static void assert_within(const struct offset *o, const struct peer *p, int64_t at_ns)
{
    const int64_t truth = clock_of(p, at_ns) - at_ns;
    struct offset_estimate e;

    assert_int_equal(offset_at(o, at_ns, &e), 1);
    assert_true(llabs(e.offset_ns - truth) <= e.error_ns + 1);
}

static void test_one_exchange(void **state)
{
    const struct peer p = {.ahead = -40 * second};
    struct offset o = {0};
    struct offset_estimate e;
    int64_t now;

    (void)state;
    assert_int_equal(offset_at(&o, second, &e), 0);
    now = exchange(&o, &p, 100 * second, 200000, second, 100000);
    assert_int_equal(offset_at(&o, now, &e), 1);
    assert_int_equal(e.error_ns, 150000);
    assert_int_equal(e.offset_ns, -40 * second + 50000); /* the ways differ by 100000 */
    assert_true(e.drift_error_ppm == 0 && e.drift_ppm == 0);
    assert_within(&o, &p, now);
}

/* Of a period the shortest exchange counts; an older period's grows worse by 100 ppm. */
static void test_shortest(void **state)
{
    const struct peer p = {.ahead = 12345};
    struct offset o = {0};
    struct offset_estimate e;
    int64_t now;

    (void)state;
    exchange(&o, &p, 80 * second, 500000, 0, 500000);
    exchange(&o, &p, 81 * second, 5000, 1000, 5000);
    now = exchange(&o, &p, 82 * second, 900000, 0, 100);
    assert_int_equal(offset_at(&o, now, &e), 1);
    assert_in_range(e.error_ns, 5000, 5000 + 100 * 1001);
    assert_int_equal(e.offset_ns, 12345);
    now = exchange(&o, &p, 130 * second, 50000, 0, 50000); /* newer, and now better */
    assert_int_equal(offset_at(&o, now, &e), 1);
    assert_in_range(e.error_ns, 50000, 51000);
    assert_int_equal(offset_at(&o, 81 * second, &e), 1);
    assert_in_range(e.error_ns, 5000, 6000);
}

static void test_drift(void **state)
{
    const struct peer p = {.ahead = 7 * second, .ppm = 30};
    struct offset o = {0};
    struct offset_estimate e;
    int64_t now = second;

    (void)state;
    for (int i = 0; i < 200; i++)
        now =
            exchange(&o, &p, now + second, 20000 + i % 7 * 9000, second / 2, 20000 + i % 5 * 9000);
    assert_within(&o, &p, now);
    assert_int_equal(offset_at(&o, now, &e), 1);
    assert_true(fabs(e.drift_ppm - 30) <= e.drift_error_ppm + 0.01);
    assert_true(e.drift_error_ppm < 1);
    assert_true(o.n > OFFSET_SAMPLES);
}

static int64_t draw(struct rng_stream *r, int64_t n)
{
    return (int64_t)rng_next_below(r, (uint64_t)n);
}

/* Ways of any length, drifts up to 100 ppm: the truth is always within the error. */
static void test_bounds(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct offset o = {0};
        struct rng_stream r;
        struct peer p;
        int64_t now = 5 * second;

        rng_stream_init(&r, seed, RNG_TEST, 0);
        p.ahead = draw(&r, 2 * second) - second;
        p.ppm = (double)draw(&r, 199) - 99;

        for (int i = 0; i < 60; i++) {
            now = exchange(&o, &p, now + draw(&r, 2 * second), draw(&r, 3000000), draw(&r, 1000000),
                           draw(&r, 3000000));
            assert_within(&o, &p, now);
            assert_within(&o, &p, now + second);
        }
    }
}

static void test_lies(void **state)
{
    static const struct {
        int64_t now, peer, sent, held;
    } lies[] = {
        {100, 50, 0, 0},   /* nothing came back */
        {100, 50, -1, 0},  /* */
        {100, 50, 101, 0}, /* sent after it came back */
        {100, 50, 90, 11}, /* held for longer than it was away */
        {100, 50, 90, -1}, /* */
        {100, 5, 90, 6},   /* held since before the peer's clock began */
        {100, INT64_MAX / 2, 100, INT64_MAX / 2},
    };
    struct offset o = {0};
    struct offset_estimate e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lies); i++)
        assert_int_equal(offset_add(&o, lies[i].now, lies[i].peer, lies[i].sent, lies[i].held), 0);
    assert_int_equal(offset_at(&o, 100, &e), 0);
    assert_int_equal(offset_add(&o, 100, INT64_MAX / 2, 90, 10), 1); /* absurd, and no overflow */
    assert_int_equal(offset_at(&o, 100, &e), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_exchange), cmocka_unit_test(test_shortest),
        cmocka_unit_test(test_drift),        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_lies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
