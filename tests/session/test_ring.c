/* ring: the last collectives that were handed over, in order and whole, also while they are
 * written. A writer and a reader run at the same time. */
#include "../test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "session/ring.h"

static void numbers_count_in_each_formation(void **state)
{
    struct ring *r = ring_new();
    struct ring_head h;
    struct collective c[RING_LEN];
    (void)state;
    ring_begin(r, 1);
    assert_int_equal(ring_hand(r, 7, RING_STATE, 0, 3, RING_OF_STATE), 1);
    ring_run(r, 1, 100);
    ring_end(r, 1, 200, 0);
    ring_begin(r, 2);
    assert_int_equal(ring_hand(r, 8, 0, 4096, 6, RING_OF_ALLREDUCE), 2);
    assert_int_equal(ring_hand(r, 8, 1, 512, 6, RING_OF_ALLREDUCE), 3);
    ring_run(r, 2, 300);
    ring_end(r, 2, 400, 0);
    ring_run(r, 3, 500);
    ring_head(r, &h);
    assert_int_equal(h.generation, 2);
    assert_int_equal(h.n_handed, 2);
    assert_int_equal(h.n_ended, 1);
    assert_int_equal(h.at.number, 2);
    assert_int_equal(h.at.step, 8);
    assert_int_equal(h.at.bucket, 1);
    assert_int_equal(h.at.n_bytes, 512);
    assert_int_equal(h.at.began_ns, 500);
    assert_string_equal(collective_state(&h.at), "running");
    assert_int_equal(ring_read(r, c), 3);
    assert_int_equal(c[0].generation, 1);
    assert_int_equal(c[0].bucket, RING_STATE);
    assert_string_equal(collective_state(&c[0]), "done");
    assert_int_equal(c[1].generation, 2);
    assert_int_equal(c[1].number, 1);
    assert_true(c[2].handed_ns >= c[1].handed_ns && c[2].handed_ns <= clock_mono_ns());
    ring_end(r, 3, 600, 1);
    ring_head(r, &h);
    assert_int_equal(h.at.number, 0);
    assert_int_equal(ring_read(r, c), 3);
    assert_string_equal(collective_state(&c[2]), "failed");
    ring_free(r);
}

/* An urgent collective may overtake one that was handed over before it. */
static void one_that_overtakes(void **state)
{
    struct ring *r = ring_new();
    struct ring_head h;
    (void)state;
    ring_begin(r, 1);
    for (int i = 0; i < 4; i++)
        ring_hand(r, 5, i, 64, 6, RING_OF_ALLREDUCE);
    for (int id = 2; id <= 3; id++) {
        ring_run(r, id, 100);
        ring_end(r, id, 200, 0);
    }
    ring_head(r, &h);
    assert_int_equal(h.n_ended, 0);
    assert_int_equal(h.at.number, 1);
    ring_run(r, 1, 300);
    ring_end(r, 1, 400, 0);
    ring_head(r, &h);
    assert_int_equal(h.n_ended, 3);
    assert_int_equal(h.at.number, 4);
    ring_free(r);
}

/* One collective runs while so many collectives of the other channel pass that its entry is
 * replaced. */
static void a_replaced_entry_counts_as_ended(void **state)
{
    struct ring *r = ring_new();
    struct ring_head h;
    int64_t slow;

    (void)state;
    ring_begin(r, 1);
    slow = ring_hand(r, 1, 0, 10, 6, RING_OF_ALLREDUCE);
    ring_run(r, slow, 1);
    for (int i = 0; i < RING_LEN + 3; i++)
        ring_end(r, ring_hand(r, 1, RING_SYNC, 8, 6, RING_OF_ALLREDUCE), 2 + i, 0);
    ring_head(r, &h);
    assert_int_equal(h.n_ended, RING_LEN + 4);
    ring_end(r, slow, 9999, 0);
    ring_head(r, &h);
    assert_int_equal(h.n_ended, RING_LEN + 4);
    assert_int_equal(h.at.number, 0);
    ring_free(r);
}

static void the_newest_are_kept(void **state)
{
    struct ring *r = ring_new();
    struct collective c[RING_LEN];
    (void)state;
    assert_int_equal(ring_read(r, c), 0);
    ring_begin(r, 1);
    for (int i = 1; i <= 3 * RING_LEN + 5; i++) {
        int64_t id = ring_hand(r, i, i % 4, 10 * i, 6, RING_OF_ALLREDUCE);
        ring_run(r, id, i);
        ring_end(r, id, i + 1, 0);
    }
    assert_int_equal(ring_hand(r, 9999, 0, 0, 6, RING_OF_ALLREDUCE), 3 * RING_LEN + 6);
    assert_int_equal(ring_read(r, c), RING_LEN);
    for (int i = 0; i < RING_LEN - 1; i++) {
        assert_int_equal(c[i].number, 2 * RING_LEN + 7 + i);
        assert_int_equal(c[i].step, c[i].number);
    }
    assert_string_equal(collective_state(&c[RING_LEN - 1]), "queued");
    ring_free(r);
}

/* ---- three threads ---- */

enum { MANY = 20000, OUTSTANDING = 60 };

struct shared {
    struct ring *ring;
    atomic_int_fast64_t handed, ended, n_read;
};

/* Every field follows from the id, so a mixture of two entries shows. */
static void *hand_over(void *arg)
{
    struct shared *s = arg;
    for (int64_t i = 1; i <= MANY; i++) {
        while (i - atomic_load(&s->ended) > OUTSTANDING)
            sched_yield();
        while (i == OUTSTANDING && !atomic_load(&s->n_read)) /* the reader may come late */
            sched_yield();
        ring_hand(s->ring, 3 * i, i % 5, 7 * i, i % 11, RING_OF_ALLREDUCE);
        atomic_store(&s->handed, i);
    }
    return NULL;
}

static void *run_all(void *arg)
{
    struct shared *s = arg;
    for (int64_t i = 1; i <= MANY; i++) {
        while (atomic_load(&s->handed) < i)
            sched_yield();
        ring_run(s->ring, i, 1000 + i);
        ring_end(s->ring, i, 2000 + i, i % 2);
        atomic_store(&s->ended, i);
    }
    return NULL;
}

static int is_whole(const struct collective *c)
{
    int64_t i = c->number;
    return c->generation == 1 && c->step == 3 * i && c->bucket == i % 5 && c->n_bytes == 7 * i &&
           c->phase == i % 11 && (c->began_ns == 0 || c->began_ns == 1000 + i) &&
           (c->ended_ns == 0 || (c->ended_ns == 2000 + i && c->is_failed == i % 2));
}

static void readers_see_whole_entries(void **state)
{
    struct shared s = {.ring = ring_new()};
    struct collective c[RING_LEN];
    struct ring_head h;
    pthread_t writer, runner;
    int64_t last = 0;
    (void)state;
    ring_begin(s.ring, 1);
    assert_int_equal(pthread_create(&writer, NULL, hand_over, &s), 0);
    assert_int_equal(pthread_create(&runner, NULL, run_all, &s), 0);
    while (atomic_load(&s.ended) < MANY) {
        int n = ring_read(s.ring, c);
        for (int i = 0; i < n; i++) {
            assert_true(is_whole(&c[i]));
            assert_true(i == 0 || c[i].number > c[i - 1].number);
        }
        ring_head(s.ring, &h);
        assert_true(h.n_ended <= h.n_handed && h.n_handed >= last);
        if (h.at.number) {
            assert_true(is_whole(&h.at));
            assert_int_equal(h.at.number, h.n_ended + 1);
        }
        last = h.n_handed;
        atomic_fetch_add(&s.n_read, n);
    }
    pthread_join(writer, NULL);
    pthread_join(runner, NULL);
    ring_free(s.ring);
}

/* ---- formations that follow each other ---- */

enum { FORMATIONS = 600000, IN_EACH = 2 };

static void *form_often(void *arg)
{
    struct shared *s = arg;
    for (int64_t g = 1; g <= FORMATIONS; g++) {
        int64_t id = 0;
        ring_begin(s->ring, g);
        for (int i = 0; i < IN_EACH; i++)
            id = ring_hand(s->ring, g, i, 8, 6, RING_OF_ALLREDUCE);
        for (int i = IN_EACH - 1; i >= 0; i--)
            ring_end(s->ring, id - i, g, 0);
        atomic_store(&s->ended, g);
        while (g == 1 && !atomic_load(&s->n_read)) /* the reader may come late */
            sched_yield();
    }
    return NULL;
}

/* The counts of a head are those of one formation. */
static void a_head_is_of_one_formation(void **state)
{
    struct shared s = {.ring = ring_new()};
    struct ring_head h;
    pthread_t writer;
    (void)state;
    assert_int_equal(pthread_create(&writer, NULL, form_often, &s), 0);
    while (atomic_load(&s.ended) < FORMATIONS) {
        ring_head(s.ring, &h);
        assert_true(h.generation >= 0);
        assert_true(0 <= h.n_ended && h.n_ended <= h.n_handed && h.n_handed <= IN_EACH);
        assert_true(!h.at.number || h.at.generation == h.generation);
        atomic_fetch_add(&s.n_read, 1);
    }
    pthread_join(writer, NULL);
    ring_free(s.ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_count_in_each_formation),
        cmocka_unit_test(one_that_overtakes),
        cmocka_unit_test(a_replaced_entry_counts_as_ended),
        cmocka_unit_test(the_newest_are_kept),
        cmocka_unit_test(readers_see_whole_entries),
        cmocka_unit_test(a_head_is_of_one_formation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
