/* exchange: what the record of collectives shows, when the engine's hooks are asked, and the sum
 * beside the steps.  The coll is a stand-in whose collectives begin and end when the test says. */
#include "../test.h"

#include "base/util.h"
#include "coll/impl.h"
#include "session/ring.h"
#include "strategy/exchange.h"

enum { N_BUCKETS = 3, N = 4 };

/* ---- the stand-in ---- */

static int64_t newest_tag; /* of the collective that was queued last */
static int64_t n_queued, n_waited;

static int64_t stand_in_queue(struct coll *c, const struct coll_job *job, struct err *err)
{
    (void)c, (void)err;
    newest_tag = job->tag;
    return coll_ticket(job->channel, ++n_queued);
}

static int stand_in_wait(struct coll *c, int64_t ticket, struct err *err)
{
    (void)c, (void)err;
    ASSERT(ticket > 0);
    n_waited++;
    return 0;
}

static void stand_in_nothing(struct coll *c) { (void)c; }
static void stand_in_stats(struct coll *c, struct coll_stats *out)
{
    (void)c;
    *out = (struct coll_stats){0};
}

static const struct coll_ops stand_in = {.queue = stand_in_queue,
                                         .wait = stand_in_wait,
                                         .abort = stand_in_nothing,
                                         .free = stand_in_nothing,
                                         .stats = stand_in_stats};

/* ---- hooks that count ---- */

static int n_at, n_asked;

static void exchange_count_at(void *arg, enum phase phase, int64_t bucket)
{
    (void)arg, (void)phase, (void)bucket;
    n_at++;
}

static int exchange_count_asked(void *arg, int bucket)
{
    (void)arg, (void)bucket;
    n_asked++;
    return 0;
}

struct bench {
    struct ring *ring;
    struct exchange *x;
    struct coll coll;
    float v[N];
    struct err err;
};

static void begin_bench(struct bench *b, int is_device)
{
    struct exchange_options o = {
        .n_buckets = N_BUCKETS,
        .is_device = is_device,
        .hooks = {.at = exchange_count_at, .is_left_out = exchange_count_asked}};

    *b = (struct bench){.ring = ring_new()};
    n_queued = n_waited = n_at = n_asked = 0;
    o.ring = b->ring;
    b->x = exchange_new(&o);
    coll_init(&b->coll, &stand_in, "stand-in", 0, 2);
    ring_begin(b->ring, 1);
    exchange_join(b->x, &b->coll);
    exchange_begin(b->x, 0);
    exchange_enter(b->x, PHASE_BACKWARD);
}

static void end_bench(struct bench *b)
{
    exchange_leave(b->x);
    exchange_free(b->x);
    ring_free(b->ring);
}

static void sum_bucket(struct bench *b, int bucket)
{
    assert_int_equal(exchange_allreduce(b->x, bucket, b->v, N, DTYPE_F32, &b->err), 0);
}

/* The newest entry of the record. */
static struct collective newest(const struct bench *b)
{
    struct collective all[RING_LEN];
    const int n = ring_read(b->ring, all);

    assert_true(n > 0);
    return all[n - 1];
}

/* ---- the tests ---- */

/* A step asks for faults and shows its waits; a validation does neither. */
static void hooks_of_a_step(void **state)
{
    struct bench b;

    (void)state;
    begin_bench(&b, 0);
    sum_bucket(&b, 1);
    assert_int_equal(exchange_wait(b.x, 1, &b.err), 0);
    assert_int_equal(n_asked, 1);
    assert_int_equal(n_at, 1);
    exchange_enter(b.x, PHASE_VALIDATE);
    sum_bucket(&b, 1);
    assert_int_equal(exchange_wait(b.x, 1, &b.err), 0);
    assert_int_equal(n_asked, 1);
    assert_int_equal(n_at, 1);
    end_bench(&b);
}

/* The next formation waits for nothing that a step left. */
static void tickets_of_another_formation(void **state)
{
    struct bench b;

    (void)state;
    begin_bench(&b, 0);
    sum_bucket(&b, 0);
    sum_bucket(&b, 2);
    exchange_leave(b.x);
    exchange_join(b.x, &b.coll);
    assert_int_equal(exchange_wait_buckets(b.x, &b.err), 0);
    assert_int_equal(n_waited, 0);
    sum_bucket(&b, 2);
    assert_int_equal(exchange_wait_buckets(b.x, &b.err), 0);
    assert_int_equal(n_waited, 1);
    end_bench(&b);
}

static void states_in_the_record(void **state)
{
    static const struct {
        enum coll_moment moment;
        int is_failed;
    } row[] = {{COLL_ENDS, 0}, {COLL_FAILS, 1}};

    (void)state;
    for (int i = 0; i < (int)ARRAY_LEN(row); i++) {
        struct bench b;

        begin_bench(&b, 0);
        sum_bucket(&b, 1);
        assert_int_equal(newest(&b).bucket, 1);
        assert_int_equal(newest(&b).n_bytes, N * sizeof(float));
        assert_int_equal(newest(&b).began_ns, 0);
        coll_tell(&b.coll, newest_tag, COLL_BEGINS, 5);
        assert_int_equal(newest(&b).began_ns, 5);
        assert_int_equal(newest(&b).ended_ns, 0);
        coll_tell(&b.coll, newest_tag, row[i].moment, 9);
        assert_int_equal(newest(&b).ended_ns, 9);
        assert_int_equal(newest(&b).is_failed, row[i].is_failed);
        end_bench(&b);
    }
}

/* A rank that rests has an entry, too, which has ended. */
static void a_rest_in_the_record(void **state)
{
    struct bench b;

    (void)state;
    begin_bench(&b, 0);
    exchange_rest(b.x, 2, N, DTYPE_F32);
    assert_int_equal(newest(&b).bucket, 2);
    assert_true(newest(&b).began_ns > 0 && newest(&b).ended_ns >= newest(&b).began_ns);
    assert_int_equal(n_queued, 0);
    end_bench(&b);
}

/* On a device the engine marks the entries of a step, from the first one to the last. */
static void entries_of_a_device(void **state)
{
    struct bench b;
    struct handed h;

    (void)state;
    begin_bench(&b, 1);
    for (int i = 0; i < N_BUCKETS; i++)
        sum_bucket(&b, i);
    h = exchange_end(b.x);
    assert_true(h.first > 0);
    assert_int_equal(h.last - h.first, N_BUCKETS - 1);
    exchange_ran(b.x, h);
    exchange_ended(b.x, h, 0);
    for (int i = 0; i < N_BUCKETS; i++)
        assert_int_equal(exchange_wait(b.x, i, &b.err), 0);
    exchange_begin(b.x, 1);
    assert_int_equal(exchange_end(b.x).first, 0);
    sum_bucket(&b, 0);
    assert_int_equal(exchange_end(b.x).first, h.last + 1);
    end_bench(&b);
}

/* The sum beside the steps has ended once it ends, however long it runs. */
static void a_sum_beside(void **state)
{
    struct bench b;

    (void)state;
    begin_bench(&b, 0);
    assert_int_equal(exchange_beside_has_ended(b.x, &b.err), 1); /* there is none */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(exchange_sum_beside(b.x, b.v, N, &b.err), 0);
        assert_int_equal(exchange_beside_has_ended(b.x, &b.err), 0);
        coll_tell(&b.coll, newest_tag, COLL_BEGINS, 5);
        assert_int_equal(exchange_beside_has_ended(b.x, &b.err), 0);
        coll_tell(&b.coll, newest_tag, COLL_ENDS, 9);
        assert_int_equal(exchange_beside_has_ended(b.x, &b.err), 1);
        assert_int_equal(exchange_wait_beside(b.x, &b.err), 0);
    }
    assert_int_equal(n_waited, 2);
    end_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_of_a_step),      cmocka_unit_test(tickets_of_another_formation),
        cmocka_unit_test(states_in_the_record), cmocka_unit_test(a_rest_in_the_record),
        cmocka_unit_test(entries_of_a_device),  cmocka_unit_test(a_sum_beside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
