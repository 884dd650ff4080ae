/* Tests of numbered: it holds what a plain array holds, in whatever order pointers come and go, and
 * a hundred thousand that go do not cost the square of their number. */
#include "../test.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/numbered.h"
#include "base/rng.h"
#include "base/util.h"

enum { MOST = 500, MANY = 100000 };

/* ---- beside a plain array ---- */

struct model {
    struct numbered n;
    int is_here[MOST]; /* by number; the pointer is that of its element */
    int n_here;
};

/* The next one that is here from `number` on, up or down; NULL: none is. */
static void *next_of(struct model *m, int number, int by)
{
    for (int i = number; 0 <= i && i < MOST; i += by)
        if (m->is_here[i])
            return &m->is_here[i];
    return NULL;
}

static void compare_walk(struct model *m, int by)
{
    size_t at = by > 0 ? 0 : SIZE_MAX;
    int number = by > 0 ? 0 : MOST - 1;

    for (int i = 0; i <= m->n_here; i++) {
        int *p = by > 0 ? numbered_up(&m->n, &at) : numbered_down(&m->n, &at);

        assert_ptr_equal(p, next_of(m, number, by));
        number = p ? (int)(p - m->is_here) + by : -1;
    }
}

static void compare(struct model *m)
{
    assert_int_equal(m->n.n, m->n_here);
    assert_ptr_equal(numbered_first(&m->n), next_of(m, 0, 1));
    for (int i = 0; i < MOST; i++)
        assert_ptr_equal(numbered_find(&m->n, i), m->is_here[i] ? &m->is_here[i] : NULL);
    compare_walk(m, 1);
    compare_walk(m, -1);
}

static void take(struct model *m, int number)
{
    void *p = m->is_here[number] ? &m->is_here[number] : NULL;

    assert_ptr_equal(numbered_take(&m->n, number), p);
    m->n_here -= m->is_here[number];
    m->is_here[number] = 0;
}

static void is_like_an_array(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct model m = {.n_here = 0};
        struct rng_stream r;

        rng_stream_init(&r, seed, RNG_JITTER, 0);
        for (int next = 0; next < MOST; next++) {
            if (rng_next_unit(&r) < 0.9) { /* else this number is never given */
                m.is_here[next] = 1;
                m.n_here++;
                numbered_add(&m.n, next, &m.is_here[next]);
            }
            while (rng_next_unit(&r) < (next % 100 < 60 ? 0.2 : 0.6))
                take(&m, (int)(rng_next_unit(&r) * (next + 1)));
            if (next % 10 == 0)
                compare(&m);
        }
        compare(&m);
        for (int i = 0; i < MOST; i++)
            take(&m, i);
        compare(&m);
        numbered_fini(&m.n);
    }
}

/* Pointers go while all are walked over, some of them not those at which the walk is. */
static void way_down_misses_none(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        static char p[MOST];
        struct numbered n = {.n = 0};
        int was_seen[MOST] = {0}, is_gone[MOST] = {0};
        struct rng_stream r;
        size_t at = SIZE_MAX;

        rng_stream_init(&r, seed, RNG_JITTER, 0);
        for (int i = 0; i < MOST; i++)
            numbered_add(&n, i, &p[i]);
        for (char *q; (q = numbered_down(&n, &at));) {
            int go = rng_next_unit(&r) < 0.8 ? (int)(q - p) : (int)(MOST * rng_next_unit(&r));

            was_seen[q - p] = 1;
            is_gone[go] |= numbered_take(&n, go) != NULL;
        }
        for (int i = 0; i < MOST; i++)
            assert_true(was_seen[i] || is_gone[i]);
        numbered_fini(&n);
    }
}

/* ---- many of them ---- */

/* The order in which they go: from the front, from the back, or from here and there. */
static int nth_to_go(int order, int i)
{
    if (order == 0)
        return i;
    return order == 1 ? MANY - 1 - i : (int)((int64_t)i * 7919 % MANY);
}

/* Rows are only moved when more gaps than pointers are between them.  So they are never many more
 * than the pointers, and those that were moved are not many more than those that have gone. */
static void rows_follow_the_pointers(void **state)
{
    static char p[MANY];

    (void)state;
    for (int order = 0; order < 3; order++) {
        struct numbered n = {.n = 0};
        size_t n_moved = 0;

        for (int i = 0; i < MANY; i++)
            numbered_add(&n, i, &p[i]);
        for (int i = 0; i < MANY; i++) {
            const int number = nth_to_go(order, i);
            const int is_end = n.row[n.first].number == number || n.row[n.end - 1].number == number;
            const size_t rows = n.end - n.first;

            assert_ptr_equal(numbered_take(&n, number), &p[number]);
            assert_true(n.end - n.first <= 2 * n.n + 16);
            n_moved += !is_end && n.end - n.first < rows ? n.n : 0;
        }
        assert_int_equal(n.n, 0);
        assert_true(n_moved <= 2 * MANY);
        numbered_fini(&n);
    }
}

static void room_is_used_again(void **state)
{
    struct numbered n = {.n = 0};
    static char p[1];

    (void)state;
    for (int64_t i = 0; i < 4; i++)
        numbered_add(&n, i, p);
    for (int64_t i = 4; i < MANY; i++) { /* strangers come and go beside four that stay */
        numbered_add(&n, i, p);
        assert_ptr_equal(numbered_take(&n, i), p);
    }
    for (int64_t i = MANY; i < 2 * MANY; i++) { /* the oldest goes, a new one comes */
        numbered_add(&n, i, p);
        assert_ptr_equal(numbered_take(&n, i < MANY + 4 ? i - MANY : i - 4), p);
    }
    assert_true(n.room <= 64);
    numbered_fini(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_like_an_array),
        cmocka_unit_test(way_down_misses_none),
        cmocka_unit_test(rows_follow_the_pointers),
        cmocka_unit_test(room_is_used_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
