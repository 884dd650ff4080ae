/* Tests of trace.json: times on one clock, who came last, what is missing or cut, and names that
 * would break JSON. */
#include "../test.h"

#include <jansson.h>
#include <math.h>

#include "see/timeline.h"

static const int64_t second = 1000000000;

enum { CONV, CONV_KIND, SUM, SUM_KIND, ODD, N_NAMES };

static const char *const names[] = {"conv1", "conv2d", "all-reduce", "collective",
                                    "a\"b\\c\x01\xff</script>"};

/* A piece of a rank whose clock is `ahead`: one kernel, and one all-reduce that begins at
 * `begins_ns` of the driver's clock. */
static struct session_spans piece_of(int64_t ahead, int64_t begins_ns)
{
    struct session_spans s = {.n_ranks = 2, .piece = {.first = 5, .last = 6, .is_last = 1}};
    struct spans_piece *p = &s.piece;

    p->n_names = N_NAMES;
    p->name = calloc(N_NAMES, sizeof *p->name);
    for (int i = 0; i < N_NAMES; i++)
        snprintf(p->name[i].text, sizeof p->name[i].text, "%s", names[i]);
    p->n = 3;
    p->span = calloc(3, sizeof *p->span);
    p->span[0] = (struct trace_span){.begin_ns = 100 * second + ahead,
                                     .took_ns = 2000500,
                                     .step = 5,
                                     .name = CONV,
                                     .kind = CONV_KIND,
                                     .bucket = -1};
    p->span[1] = (struct trace_span){.begin_ns = begins_ns + ahead,
                                     .took_ns = 101 * second - begins_ns,
                                     .step = 5,
                                     .n_bytes = 4096,
                                     .collective = (INT64_C(3) << 32) + 17,
                                     .track = SPANS_COMM,
                                     .name = SUM,
                                     .kind = SUM_KIND,
                                     .bucket = 2};
    p->span[2] = p->span[0];
    p->span[2].begin_ns += second;
    p->span[2].name = ODD;
    return s;
}

/* The rank's clock was measured with this error. */
static void set_clock(struct session_spans *s, int64_t ahead, int64_t error_ns)
{
    assert_int_equal(offset_add(&s->clock, 100 * second, 100 * second + ahead - error_ns,
                                100 * second - 2 * error_ns, 0),
                     1);
}

static void timeline_take(struct timeline *t, int rank, struct session_spans s)
{
    timeline_add(t, rank, "host\n", &s);
    spans_piece_fini(&s.piece);
}

static json_t *json_of(const struct timeline *t, int n_ranks)
{
    struct buf text = {0};
    json_error_t err;
    json_t *o;

    timeline_json(t, "a \"run\"", n_ranks, &text);
    o = json_loads(buf_cstr(&text), JSON_REJECT_DUPLICATES, &err);
    assert_non_null(o);
    buf_fini(&text);
    return o;
}

/* The i-th event of this phase and rank. */
static const json_t *event_of(const json_t *o, const char *phase, int rank, int i)
{
    const json_t *e, *all = json_object_get(o, "traceEvents");
    size_t k;

    json_array_foreach(all, k, e) if (!strcmp(json_string_value(json_object_get(e, "ph")), phase) &&
                                      json_integer_value(json_object_get(e, "pid")) == rank &&
                                      i-- == 0) return e;
    fail_msg("there is no such event");
    return NULL;
}

static double number_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    assert_true(json_is_number(v));
    return json_number_value(v);
}

static const json_t *meta_of(const json_t *o, int rank)
{
    return json_array_get(json_object_get(json_object_get(o, "metadata"), "ranks"), (size_t)rank);
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    assert_non_null(text);
    return text;
}

static const json_t *args_of(const json_t *event) { return json_object_get(event, "args"); }

static void assert_time(const json_t *o, const char *key, double us)
{
    assert_true(fabs(number_of(o, key) - us) < 1e-3);
}

/* Each digit of a number is there, the zeros behind the point, too. */
static void check_digits(void)
{
    static const struct {
        int64_t ns;
        double us;
    } cases[] = {{0, 0},
                 {7, 0.007},
                 {45, 0.045},
                 {999, 0.999},
                 {1000, 1},
                 {1001, 1.001},
                 {60050, 60.05},
                 {1234567890, 1234567.89},
                 {100000, 100},
                 {10000000, 1e4},
                 {2000000007, 2000000.007}};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct timeline *t = timeline_new(0);
        struct session_spans s = piece_of(0, 100 * second);
        json_t *o;

        s.piece.span[0].took_ns = cases[i].ns;
        s.piece.span[0].n_bytes = cases[i].ns;
        timeline_take(t, 0, s);
        o = json_of(t, 1);
        assert_true(number_of(event_of(o, "X", 0, 0), "dur") == cases[i].us);
        if (cases[i].ns > 0)
            assert_true(number_of(args_of(event_of(o, "X", 0, 0)), "bytes") == (double)cases[i].ns);
        json_decref(o);
        timeline_free(t);
    }
}

/* Rank 1's clock is 11.56 s ahead, and it comes 2 ms after rank 0. */
static void test_one_clock(void **state)
{
    struct timeline *t = timeline_new(0);
    struct session_spans s = piece_of(0, 100 * second + 5000000);
    const json_t *sum;
    json_t *o;

    (void)state;
    check_digits();
    s.is_clock_ours = 1;
    timeline_take(t, 0, s);
    s = piece_of(11560000000, 100 * second + 7000000);
    set_clock(&s, 11560000000, 50000);
    timeline_take(t, 1, s);
    o = json_of(t, 2);
    assert_string_equal(text_of(args_of(event_of(o, "M", 1, 0)), "name"), "rank 1 (host\n)");
    assert_time(event_of(o, "X", 0, 0), "dur", 2000.5);
    assert_string_equal(text_of(event_of(o, "X", 1, 0), "name"), "conv1");
    assert_string_equal(text_of(event_of(o, "X", 1, 0), "cat"), "conv2d");
    assert_true(fabs(number_of(event_of(o, "X", 1, 0), "ts") -
                     number_of(event_of(o, "X", 0, 0), "ts")) < 150);
    for (int k = 0; k < 2; k++) {
        sum = event_of(o, "X", k, 1);
        assert_string_equal(text_of(args_of(sum), "collective"), "3.17");
        assert_int_equal((int)number_of(args_of(sum), "last_rank"), 1);
        assert_int_equal((int)number_of(args_of(sum), "bucket"), 2);
        assert_true(fabs(number_of(args_of(sum), "first_waited_us") - 2000) < 150);
    }
    assert_time(meta_of(o, 0), "error_us", 0);
    assert_in_range((int64_t)number_of(meta_of(o, 1), "error_us"), 50, 250);
    assert_true(number_of(json_object_get(o, "metadata"), "clock_error_us") ==
                number_of(meta_of(o, 1), "error_us"));
    json_decref(o);
    timeline_free(t);
}

/* The difference is below the error, or a clock is not known: no rank is named. */
static void test_clocks_that_cannot_tell(void **state)
{
    (void)state;
    for (int is_known = 0; is_known < 2; is_known++) {
        struct timeline *t = timeline_new(0);
        struct session_spans s = piece_of(0, 100 * second);
        json_t *o;

        s.is_clock_ours = 1;
        timeline_take(t, 0, s);
        s = piece_of(-3 * second, 100 * second + 1000000);
        if (is_known)
            set_clock(&s, -3 * second, 1500000);
        timeline_take(t, 1, s);
        o = json_of(t, 2);
        assert_null(json_object_get(args_of(event_of(o, "X", 0, 1)), "last_rank"));
        assert_int_equal(
            json_is_null(json_object_get(json_object_get(o, "metadata"), "clock_error_us")),
            !is_known);
        json_decref(o);
        timeline_free(t);
    }
}

/* Ranks of one machine have one clock, unless the stamps say that they do not. */
static void test_one_machine(void **state)
{
    static const int64_t ahead[] = {0, 5 * 1000000000LL};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct timeline *t = timeline_new(0);
        struct session_spans s = piece_of(ahead[i], 100 * second);
        json_t *o;

        set_clock(&s, ahead[i], 80000);
        s.is_clock_ours = 1;
        timeline_take(t, 0, s);
        o = json_of(t, 1);
        assert_true((number_of(meta_of(o, 0), "error_us") == 0) == (i == 0));
        assert_true(fabs(number_of(meta_of(o, 0), "offset_us") - 1e-3 * (double)ahead[i]) < 200);
        assert_true(number_of(meta_of(o, 0), "measured_error_us") >= 80);
        json_decref(o);
        timeline_free(t);
    }
}

/* A rank that was lost has no part, and another one in its place has one. */
static void test_missing(void **state)
{
    struct timeline *t = timeline_new(0);
    struct session_spans s = piece_of(0, 100 * second);
    const json_t *lost;
    json_t *o;

    (void)state;
    s.piece.is_cut = 1;
    timeline_take(t, 0, s);
    s = piece_of(0, 100 * second);
    s.piece.is_last = 0;
    timeline_take(t, 2, s);
    timeline_lost(
        t, (struct timeline_loss){2, "host", "it \"closed\" the connection", 100 * second + 500});
    timeline_lost(t, (struct timeline_loss){0, NULL, "long before", 99 * second});
    timeline_lost(t, (struct timeline_loss){0, NULL, "long after", 999 * second});
    timeline_lost(t, (struct timeline_loss){1, NULL, "before it sent its part", 999 * second});
    o = json_of(t, 4);
    assert_string_equal(text_of(meta_of(o, 3), "missing"),
                        "it had not sent its record when the run ended");
    assert_string_equal(text_of(meta_of(o, 2), "missing"), "it \"closed\" the connection");
    assert_string_equal(text_of(meta_of(o, 1), "missing"), "before it sent its part");
    assert_null(json_object_get(meta_of(o, 0), "missing"));
    lost = json_object_get(json_object_get(o, "metadata"), "lost");
    assert_int_equal(json_array_size(lost), 2);
    assert_int_equal((int)number_of(json_array_get(lost, 0), "rank"), 2);
    assert_time(json_array_get(lost, 0), "at_us", 0.5);
    assert_time(event_of(o, "i", 0, 0), "ts", 0.5);
    assert_string_equal(text_of(event_of(o, "i", 0, 0), "name"), "rank 2 is lost");
    assert_true(json_is_true(json_object_get(json_object_get(o, "metadata"), "truncated")));
    assert_true(json_is_true(json_object_get(meta_of(o, 0), "truncated")));
    json_decref(o);
    timeline_take(t, 2, piece_of(0, 100 * second));
    timeline_take(t, 1, piece_of(0, 100 * second));
    timeline_free(t);
}

/* A rank that was lost between the operator's request and the first step on record. */
static void test_lost_at_the_begin(void **state)
{
    struct timeline *t = timeline_new(1);
    struct session_spans s = piece_of(1, 100 * second);
    const json_t *lost;
    json_t *o;

    (void)state;
    s.asked_ns = 98 * second;
    timeline_take(t, 0, s);
    timeline_lost(t, (struct timeline_loss){1, "host", "before the request", 97 * second});
    timeline_lost(t, (struct timeline_loss){2, "host", "crashed", 99 * second});
    o = json_of(t, 3);
    lost = json_object_get(json_object_get(o, "metadata"), "lost");
    assert_int_equal(json_array_size(lost), 1);
    assert_int_equal((int)number_of(json_array_get(lost, 0), "rank"), 2);
    assert_time(json_array_get(lost, 0), "at_us", 0);
    assert_time(event_of(o, "i", 0, 0), "ts", 0);
    json_decref(o);
    timeline_free(t);
}

/* Clocks as far apart as a message may say (wire/rules.c): no sum overflows. */
static void test_extreme_times(void **state)
{
    const int64_t latest = INT64_C(1) << 60;
    struct timeline *t = timeline_new(0);
    struct session_spans s = piece_of(0, 100 * second);
    json_t *o;

    (void)state;
    s.is_clock_ours = 1;
    timeline_take(t, 0, s);
    s = piece_of(0, 100 * second);
    assert_int_equal(offset_add(&s.clock, latest, latest, 1, 0), 1);
    for (int i = 0; i < s.piece.n; i++) {
        s.piece.span[i].begin_ns = latest;
        s.piece.span[i].took_ns = latest;
    }
    timeline_take(t, 1, s);
    s = piece_of(0, 100 * second);
    assert_int_equal(offset_add(&s.clock, latest, 0, latest, 0), 1);
    s.piece.span[0].begin_ns = s.piece.span[0].took_ns = latest;
    s.piece.span[1].begin_ns = 0;
    timeline_take(t, 2, s);
    o = json_of(t, 3);
    assert_true(number_of(event_of(o, "X", 1, 1), "dur") > 1e14);
    assert_non_null(json_object_get(args_of(event_of(o, "X", 0, 1)), "first_waited_us"));
    json_decref(o);
    timeline_free(t);
}

/* Spans that name what the record does not have are left out; ranks beyond the limit, too. */
static void test_bounds(void **state)
{
    struct timeline *t = timeline_new(0);
    struct session_spans s = piece_of(0, 100 * second);
    json_t *o;

    (void)state;
    s.piece.span[1].name = N_NAMES;
    s.piece.is_launched = 1;
    timeline_take(t, 0, s);
    timeline_take(t, TIMELINE_RANKS, piece_of(0, 100 * second));
    for (int i = 0; i < TIMELINE_LOSSES + 1; i++)
        timeline_lost(t, (struct timeline_loss){.rank = TIMELINE_RANKS});
    o = json_of(t, TIMELINE_RANKS + 1);
    assert_true(json_is_true(json_object_get(meta_of(o, 0), "truncated")));
    assert_string_equal(text_of(meta_of(o, 0), "kernels"), "launches only");
    assert_int_equal((int)number_of(json_object_get(o, "metadata"), "ranks_not_shown"), 1);
    assert_string_equal(text_of(event_of(o, "X", 0, 1), "cat"), "conv2d"); /* the odd name's */
    json_decref(o);
    timeline_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_clock),
        cmocka_unit_test(test_clocks_that_cannot_tell),
        cmocka_unit_test(test_one_machine),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_lost_at_the_begin),
        cmocka_unit_test(test_extreme_times),
        cmocka_unit_test(test_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
