/* Every kind of collective over every transport of host memory: its result, a queue of its own for
 * each channel, an abort in its midst, and what the watcher is told. */
#include "../test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "cases.h"
#include "local.h"

enum { MOST_RANKS = 5 };

static int all_cases(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    return run_cases(c, &ground_of_host, v);
}

static void test_cases(void **state)
{
    (void)state;
    for (enum transport t = 0; t < TRANSPORTS; t++)
        for (int size = 1; size <= MOST_RANKS; size++)
            assert_int_equal(run_ranks(t, size, 0, all_cases, NULL), 0);
}

static int overtake(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    return urgent_overtakes_bulk(c, &ground_of_host, v);
}

static void test_urgent_overtakes_bulk(void **state)
{
    (void)state;
    for (enum transport t = 0; t < TRANSPORTS; t++)
        for (int size = 2; size <= 4; size++)
            assert_int_equal(run_ranks(t, size, 0, overtake, NULL), 0);
}

/* The bulk sum is held up for ever on rank 1; urgent ones go on, more than a queue holds. */
static int urgent_alone(struct coll *c, const void *arg, struct verdict *v)
{
    double x = 1;
    float y = 1;
    struct err err;
    int64_t bulk = coll_allreduce(c, COLL_BULK, &y, 1, DTYPE_F32, COLL_TAG_NONE, &err);
    int rc;

    (void)arg;
    for (int i = 0; i < 2 * COLL_RING; i++) {
        const int64_t t = coll_allreduce(c, COLL_URGENT, &x, 1, DTYPE_F64, COLL_TAG_NONE, &err);

        x = t < 0 || coll_wait(c, t, &err) < 0 ? -1 : x / coll_size(c);
        if (x != 1)
            return unexpected(v, "urgent sum %d: %s", i, err.msg);
    }
    coll_abort(c);
    rc = coll_wait(c, bulk, &err);
    return rc == ERR_CANCELED || rc == ERR_PEER ? 0 : unexpected(v, "the bulk sum: %d", rc);
}

static void test_urgent_goes_on(void **state)
{
    const struct coll_fault faults[3] = {[1] = {.at_ticket = 1, .delay_ms = 3600000}};

    (void)state;
    assert_int_equal(run_ranks_with_faults(3, faults, urgent_alone, NULL), 0);
}

/* A fault at the n-th collective of the urgent channel leaves the bulk one alone, until it ends
 * the coll. */
static int urgent_fails(struct coll *c, const void *arg, struct verdict *v)
{
    float x = 1;
    struct err err;
    int64_t t;

    (void)arg;
    for (int i = 0; i < 3; i++) {
        t = coll_allreduce(c, COLL_BULK, &x, 1, DTYPE_F32, COLL_TAG_NONE, &err);
        if (t < 0 || coll_wait(c, t, &err) < 0)
            return unexpected(v, "bulk: %s", err.msg);
    }
    t = coll_allreduce(c, COLL_URGENT, &x, 1, DTYPE_F32, COLL_TAG_NONE, &err);
    if (t > 0 && coll_wait(c, t, &err) == 0)
        return unexpected(v, "the urgent one did not fail");
    t = coll_allreduce(c, COLL_BULK, &x, 1, DTYPE_F32, COLL_TAG_NONE, &err);
    if (t > 0 || err.code != (coll_rank(c) == 1 ? ERR_NUMERIC : ERR_PEER))
        return unexpected(v, "bulk after the failure: %lld %s", (long long)t, err.msg);
    return 0;
}

static void test_a_failure_ends_both_channels(void **state)
{
    const struct coll_fault faults[2] = {
        [1] = {.channel = COLL_URGENT, .at_ticket = 1, .fail = ERR_NUMERIC}};

    (void)state;
    assert_int_equal(run_ranks_with_faults(2, faults, urgent_fails, NULL), 0);
}

/* Rank 1's bulk sum fails because rank 0 fails, while its urgent sum is delayed; that one then
 * fails, too.  The first failure remains the cause of all that comes after. */
static int fail_twice(struct coll *c, const void *arg, struct verdict *v)
{
    float x = 1, y = 1;
    struct err err;
    int64_t late = 0, t;

    (void)arg;
    if (coll_rank(c) == 1)
        late = coll_allreduce(c, COLL_URGENT, &x, 1, DTYPE_F32, COLL_TAG_NONE, &err);
    t = coll_allreduce(c, COLL_BULK, &y, 1, DTYPE_F32, COLL_TAG_NONE, &err);
    if (late < 0 || t < 0 || coll_wait(c, t, &err) == 0)
        return unexpected(v, "the bulk sum did not fail");
    if (coll_rank(c) == 0)
        return 0;
    if (coll_wait(c, late, &err) != ERR_PEER)
        return unexpected(v, "the urgent sum: %s", err.msg);
    if (coll_allreduce(c, COLL_BULK, &y, 1, DTYPE_F32, COLL_TAG_NONE, &err) != ERR_PEER)
        return unexpected(v, "what comes after: %s", err.msg);
    return 0;
}

static void test_the_first_failure_is_the_cause(void **state)
{
    const struct coll_fault faults[2] = {
        {.channel = COLL_BULK, .at_ticket = 1, .delay_ms = 100, .fail = ERR_NUMERIC},
        {.channel = COLL_URGENT, .at_ticket = 1, .delay_ms = 400, .fail = ERR_IO}};

    (void)state;
    assert_int_equal(run_ranks_with_faults(2, faults, fail_twice, NULL), 0);
}

/* ---- aborts ---- */

struct watcher {
    struct coll *c;
    atomic_int n_begun, n_ended, n_failed, last_tag;
    atomic_bool over;
};

static void note(void *arg, int64_t tag, enum coll_moment moment, int64_t now_ns)
{
    struct watcher *w = arg;

    (void)now_ns;
    w->last_tag = (int)tag;
    w->n_begun += moment == COLL_BEGINS;
    w->n_ended += moment == COLL_ENDS;
    w->n_failed += moment == COLL_FAILS;
}

static void *abort_once_begun(void *arg)
{
    struct watcher *w = arg;

    while (!w->n_begun && !w->over)
        sched_yield();
    coll_abort(w->c);
    return NULL;
}

struct stuck {
    const struct kind *kind;
    enum coll_channel channel;
    int fds[2]; /* the last rank stays until the others are free */
};

static int stay(const struct stuck *s, int n, struct verdict *v)
{
    char byte;

    for (int r = 0; r < n; r++)
        if (read(s->fds[0], &byte, 1) != 1)
            return unexpected(v, "a rank is gone");
    return 0;
}

/* Every rank but the last waits for the last one, in a collective too large for any window. */
static int abort_midway(struct coll *c, const void *arg, struct verdict *v)
{
    const struct stuck *s = arg;
    struct play p = {.c = c, .g = &ground_of_host, .channel = s->channel, .dtype = DTYPE_F32};
    struct watcher w = {.c = c};
    pthread_t thread;
    struct err err;
    int64_t ticket;
    int rc, bad = 0;

    if (coll_rank(c) == coll_size(c) - 1)
        return stay(s, coll_size(c) - 1, v);
    coll_watch(c, note, &w);
    p.n = 2000000;
    p.tag = 7;
    play_begin(&p, s->kind);
    ticket = s->kind->start(&p, &err);
    pthread_create(&thread, NULL, abort_once_begun, &w);
    rc = ticket < 0 ? (int)ticket : ticket > 0 ? coll_wait(c, ticket, &err) : ERR_CANCELED;
    w.over = 1;
    pthread_join(thread, NULL);
    if (rc != ERR_CANCELED && rc != ERR_PEER)
        bad = unexpected(v, "%s: %d", s->kind->name, rc);
    if (ticket > 0 && !bad && (w.n_failed == 0 || w.last_tag != 7))
        bad = unexpected(v, "%s: its failure was not told", s->kind->name);
    bad = play_end(&p, s->kind, v) || bad;
    (void)!write(s->fds[1], "", 1);
    return bad;
}

static void test_abort_midway(void **state)
{
    (void)state;
    for (int i = 0; i < n_kinds; i++)
        for (enum transport t = 0; t < TRANSPORTS; t++) {
            struct stuck s = {.kind = &kinds[i], .channel = (enum coll_channel)(i % COLL_CHANNELS)};

            assert_int_equal(pipe(s.fds), 0);
            assert_int_equal(run_ranks(t, 2, 0, abort_midway, &s), 0);
            close(s.fds[0]);
            close(s.fds[1]);
        }
}

/* A rank that frees its coll does not wait for a rank that never comes. */
static void test_free_waits_for_nobody(void **state)
{
    (void)state;
    for (int ch = 0; ch < COLL_CHANNELS; ch++) {
        struct coll_group *g = coll_group_new(2);
        struct coll *c[2];
        float x = 1;
        struct err err;

        for (int r = 0; r < 2; r++)
            assert_int_equal(coll_new_local(g, r, &c[r], &err), 0);
        assert_true(coll_allreduce(c[0], (enum coll_channel)ch, &x, 1, DTYPE_F32, 0, &err) > 0);
        for (int r = 0; r < 2; r++)
            coll_free(c[r]);
        coll_group_free(g);
    }
}

/* ---- the watcher ---- */

static int is_told(struct coll *c, const void *arg, struct verdict *v)
{
    struct watcher w = {.c = c};
    struct err err;

    (void)arg;
    coll_watch(c, note, &w);
    for (int i = 0; i < n_kinds; i++) {
        struct play p = {.c = c, .g = &ground_of_host, .dtype = DTYPE_F32, .n = 10, .tag = 100 + i};
        const int before = w.n_ended;
        int64_t ticket;

        play_begin(&p, &kinds[i]);
        ticket = kinds[i].start(&p, &err);
        if (ticket < 0 || (ticket && coll_wait(c, ticket, &err) < 0))
            return unexpected(v, "%s", err.msg);
        if (ticket && (w.last_tag != 100 + i || w.n_ended <= before || w.n_begun != w.n_ended))
            return unexpected(v, "%s: tag %d, %d begun, %d ended", kinds[i].name, w.last_tag,
                              w.n_begun, w.n_ended);
        if (play_end(&p, &kinds[i], v))
            return 1;
    }
    w.n_begun = 0;
    if (ranks_meet(c, &err) < 0 || w.n_begun)
        return unexpected(v, "a collective without a tag was told");
    return w.n_failed ? unexpected(v, "%d failed", w.n_failed) : 0;
}

static void test_watcher(void **state)
{
    (void)state;
    for (enum transport t = 0; t < TRANSPORTS; t++)
        for (int size = 1; size <= 3; size += 2)
            assert_int_equal(run_ranks(t, size, 0, is_told, NULL), 0);
}

/* ---- spans and arguments ---- */

static void test_spans(void **state)
{
    static const int64_t lens[] = {0, 1, 4, 5, 6, 1001};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lens); i++)
        for (int size = 1; size <= 5; size++) {
            int64_t at = 0;

            for (int r = 0; r < size; r++) {
                const struct coll_span s = coll_span(lens[i], size, r);

                assert_int_equal(s.at, at);
                assert_int_equal(s.n, lens[i] / size + (r < lens[i] % size));
                at += s.n;
            }
            assert_int_equal(at, lens[i]);
        }
}

static int refuses(struct coll *c, const void *arg, struct verdict *v)
{
    const int other = (coll_rank(c) + 1) % coll_size(c);
    const struct coll_message good = {&(float){1}, 1, other}, self = {&(float){1}, 1, coll_rank(c)},
                              nobody = {&(float){1}, 1, coll_size(c)},
                              less = {&(float){1}, -1, other};
    struct coll_span give[RANKS_MAX] = {{0, 1}, {0, 1}}, take[RANKS_MAX] = {{0, 1}, {0, 1}};
    float x[2] = {1, 2}, y[2];
    const struct coll_parts from = {x, give, 0}, to = {y, take, 0}, more = {y, take, 1};
    struct err err;

    (void)arg;
    if (coll_reduce_scatter(c, COLL_BULK, x, 1, DTYPE_U8, 0, &err) != ERR_ARG ||
        coll_allreduce(c, COLL_CHANNELS, x, 1, DTYPE_F32, 0, &err) != ERR_ARG ||
        coll_allgather_spans(c, COLL_BULK, x, -1, DTYPE_F32, 0, &err) != ERR_ARG ||
        coll_broadcast_async(c, COLL_BULK, x, 1, DTYPE_F32, coll_size(c), 0, &err) != ERR_ARG ||
        coll_broadcast_async(c, COLL_BULK, x, 1, DTYPE_COUNT, 0, 0, &err) != ERR_ARG ||
        coll_send(c, COLL_BULK, self, DTYPE_F32, 0, &err) != ERR_ARG ||
        coll_recv(c, COLL_BULK, nobody, DTYPE_F32, 0, &err) != ERR_ARG ||
        coll_exchange(c, COLL_BULK, good, less, DTYPE_F32, 0, &err) != ERR_ARG ||
        coll_exchange(c, COLL_BULK, less, good, DTYPE_F32, 0, &err) != ERR_ARG)
        return unexpected(v, "a bad argument was not refused");
    give[coll_rank(c)].n = 2;
    if (coll_all_to_all(c, COLL_BULK, from, to, DTYPE_F32, 0, &err) != ERR_ARG)
        return unexpected(v, "parts for itself of two lengths were not refused");
    give[coll_rank(c)] = (struct coll_span){-1, 1};
    if (coll_all_to_all(c, COLL_BULK, from, to, DTYPE_F32, 0, &err) != ERR_ARG)
        return unexpected(v, "a part before its memory was not refused");
    give[coll_rank(c)] = (struct coll_span){0, 2};
    take[coll_rank(c)] = (struct coll_span){0, 2};
    if (coll_all_to_all(c, COLL_BULK, (struct coll_parts){x, give, 1}, more, DTYPE_F32, 0, &err) !=
        ERR_ARG)
        return unexpected(v, "a part longer than the longest was not refused");
    if (coll_all_to_all(c, COLL_BULK, (struct coll_parts){x, give, 2},
                        (struct coll_parts){y, take, 3}, DTYPE_F32, 0, &err) != ERR_ARG)
        return unexpected(v, "two lengths of the longest part were not refused");
    return ranks_meet(c, &err) < 0 ? unexpected(v, "%s", err.msg) : 0;
}

static void test_bad_arguments(void **state)
{
    (void)state;
    for (enum transport t = 0; t < TRANSPORTS; t++)
        assert_int_equal(run_ranks(t, 2, 0, refuses, NULL), 0);
}

/* Over coll/local, ranks whose collectives do not fit together fail with that reason. */
static int disagree(struct coll *c, const void *arg, struct verdict *v)
{
    const int *how = arg, rank = coll_rank(c);
    float x[4] = {0}, y[4];
    struct coll_span give[2] = {{0, 1}, {1, 1}}, take[2] = {{0, 1}, {1, 1}};
    const struct coll_message m = {x, 1 + rank, 1 - rank};
    struct err err;
    int64_t t;
    int rc;

    give[1 - rank].n += rank;
    if (*how == 0)
        t = coll_all_to_all(c, COLL_BULK, (struct coll_parts){x, give, 0},
                            (struct coll_parts){y, take, 0}, DTYPE_F32, 0, &err);
    else if (*how == 1)
        t = rank ? coll_send(c, COLL_BULK, m, DTYPE_F32, 0, &err)
                 : coll_recv(c, COLL_BULK, m, DTYPE_F32, 0, &err);
    else
        t = coll_broadcast_async(c, COLL_BULK, x, 1, DTYPE_F32, rank, 0, &err);
    rc = t < 0 ? (int)t : coll_wait(c, t, &err);
    return rc == ERR_ARG && strstr(err.msg, "disagree")
               ? 0
               : unexpected(v, "%d: %d %s", *how, rc, err.msg);
}

static void test_disagree(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++)
        assert_int_equal(run_ranks(OVER_LOCAL, 2, 0, disagree, &how), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_urgent_overtakes_bulk),
        cmocka_unit_test(test_urgent_goes_on),
        cmocka_unit_test(test_a_failure_ends_both_channels),
        cmocka_unit_test(test_the_first_failure_is_the_cause),
        cmocka_unit_test(test_abort_midway),
        cmocka_unit_test(test_free_waits_for_nobody),
        cmocka_unit_test(test_watcher),
        cmocka_unit_test(test_disagree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
