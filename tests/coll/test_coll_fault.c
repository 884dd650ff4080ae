/* coll: faults of ranks that are connected.  Ranks die, leave, abort or disagree.  No rank may wait
 * for ever, and the error names the rank at fault.  Connecting is in test_connect.c. */
#include "../test.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "local.h"
#include "ranks.h"

enum { BIG = 300000 };

/* A prompt call takes far less than this, which is far more than a busy machine needs. */
static const double promptly_s = 100;

/* A rank that has lost another one stays so long for those that have not seen it yet. */
static const double stay_s = 2;

/* Another thread aborts the coll once a collective runs, or once all is over because another rank's
 * abort ended it. */

struct aborter {
    struct coll *c;
    atomic_bool begun, over;
    pthread_t thread;
};

static void note_begun(void *arg, int64_t tag, enum coll_moment moment, int64_t now_ns)
{
    struct aborter *a = arg;

    (void)tag, (void)now_ns;
    if (moment == COLL_BEGINS)
        a->begun = 1;
}

static void *abort_main(void *arg)
{
    struct aborter *a = arg;

    while (!a->begun && !a->over)
        sched_yield();
    coll_abort(a->c);
    return NULL;
}

/* All ranks but the last wait for the last one, which makes no call and stays until the others are
 * free. */
static int stuck(struct coll *c, const void *arg, struct verdict *v)
{
    const int *pipe_fds = arg;
    float x[1000] = {0};
    char byte = 0;
    struct err err;
    if (coll_rank(c) == coll_size(c) - 1) {
        for (int r = 0; r < coll_size(c) - 1; r++)
            if (read(pipe_fds[0], &byte, 1) != 1)
                return unexpected(v, "a rank is gone");
        return 0;
    }
    int64_t tickets[3];
    struct aborter a = {.c = c};
    coll_watch(c, note_begun, &a);
    for (int i = 0; i < 3; i++)
        tickets[i] = coll_allreduce(c, COLL_BULK, x, 1000, DTYPE_F32, i, &err);
    int64_t t0 = clock_mono_ns();
    pthread_create(&a.thread, NULL, abort_main, &a);
    int codes[3];
    for (int i = 2; i >= 0; i--)
        codes[i] = tickets[i] < 0 ? (int)tickets[i] : coll_wait(c, tickets[i], &err);
    a.over = 1;
    pthread_join(a.thread, NULL);
    int later = ranks_meet(c, &err);
    double took = clock_since_s(t0);
    (void)!write(pipe_fds[1], &byte, 1);
    for (int i = 0; i < 3; i++) /* ERR_PEER where another rank was quicker to abort */
        if (codes[i] != ERR_CANCELED && codes[i] != ERR_PEER)
            return unexpected(v, "all-reduce %d returned %d", i, codes[i]);
    if (later != ERR_CANCELED && later != ERR_PEER)
        return unexpected(v, "after the abort: %d", later);
    return took > promptly_s ? unexpected(v, "took %g s", took) : 0;
}

static void test_abort_while_stuck(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    for (enum transport t = 0; t < TRANSPORTS; t++)
        for (int size = 2; size <= 4; size++)
            assert_int_equal(run_ranks(t, size, 0, stuck, fds), 0);
    close(fds[0]);
    close(fds[1]);
}

/* With two ranks no other rank can abort first. */
static int stuck_alone(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    float x = 0;
    struct err err;
    if (coll_rank(c) == 1)
        return 0; /* and free: the others' collectives fail */
    int64_t t = coll_allreduce(c, COLL_BULK, &x, 1, DTYPE_F32, 0, &err);
    int rc = t < 0 ? (int)t : coll_wait(c, t, &err);
    if (rc != ERR_PEER || !strstr(err.msg, "rank 1") || strstr(err.msg, "also gone"))
        return unexpected(v, "a rank freed its coll, we saw %d %s", rc, err.msg);
    struct err again;
    coll_abort(c);
    rc = ranks_meet(c, &again);
    if (rc != ERR_PEER || strcmp(err.msg, again.msg))
        return unexpected(v, "the first cause is not kept: %d %s", rc, again.msg);
    return 0;
}

static void test_peer_frees(void **state)
{
    (void)state;
    for (enum transport t = 0; t < TRANSPORTS; t++)
        assert_int_equal(run_ranks(t, 2, 0, stuck_alone, NULL), 0);
}

static int free_while_pending(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    static float x[3][100];
    struct err err;
    for (int i = 0; i < 10 && coll_rank(c) == 0; i++)
        if (coll_allreduce(c, COLL_BULK, x[coll_rank(c)], 100, DTYPE_F32, i, &err) < 0 &&
            err.code != ERR_PEER)
            return unexpected(v, "%s", err.msg);
    return 0;
}

static void test_free_while_pending(void **state)
{
    (void)state;
    int64_t t0 = clock_mono_ns();
    for (enum transport t = 0; t < TRANSPORTS; t++)
        assert_int_equal(run_ranks(t, 3, 0, free_while_pending, NULL), 0);
    assert_true(clock_since_s(t0) < promptly_s);
}

struct killing {
    int64_t len;
    _Atomic int *n_noticed; /* in memory that the forked ranks share */
};

/* A rank that frees its coll is gone, too, so it stays until all the others have seen which rank
 * went first.  But one of them may wait for this rank's bytes: without a driver, which would tell
 * it, it hears of the loss when this rank leaves. */
static void wait_until_noticed(const struct killing *k, int n)
{
    const int64_t t0 = clock_mono_ns();

    atomic_fetch_add(k->n_noticed, 1);
    while (atomic_load(k->n_noticed) < n && clock_since_s(t0) < stay_s)
        sched_yield();
}

/* "lost rank 1", "lost rank 2; also gone: rank 0, 1" */
static int names_rank_1(const char *text) { return strstr(text, "rank 1") || strstr(text, ", 1"); }

/* Rank 1 is killed between two collectives. */
static int killed(struct coll *c, const void *arg, struct verdict *v)
{
    const struct killing *k = arg;
    float *x = calloc((size_t)k->len, sizeof *x);
    struct err err;
    int rc = 0;
    if (ranks_meet(c, &err) < 0)
        rc = unexpected(v, "%s", err.msg);
    if (coll_rank(c) == 1)
        raise(SIGKILL);
    int64_t t0 = clock_mono_ns();
    int64_t t = coll_allreduce(c, COLL_BULK, x, k->len, DTYPE_F32, 0, &err);
    int code = t < 0 ? (int)t : coll_wait(c, t, &err);
    if (!rc && (code != ERR_PEER || !names_rank_1(err.msg)))
        rc = unexpected(v, "rank 1 was killed, we saw %d %s", code, err.msg);
    if (!rc && clock_since_s(t0) > promptly_s)
        rc = unexpected(v, "noticed after %g s", clock_since_s(t0));
    free(x);
    wait_until_noticed(k, coll_size(c) - 1);
    return rc;
}

static void test_peer_killed(void **state)
{
    (void)state;
    static const int64_t lens[] = {1, 1000, BIG, 4 * BIG};
    static const enum transport over[] = {OVER_TCP_FORK, OVER_SHM_FORK, OVER_FABRIC_FORK};
    struct killing k = {.n_noticed = mmap(NULL, sizeof *k.n_noticed, PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0)};

    assert_true(k.n_noticed != MAP_FAILED);
    for (size_t i = 0; i < ARRAY_LEN(lens); i++)
        for (int size = 2; size <= 4; size++) {
            k.len = lens[i];
            for (size_t t = 0; t < ARRAY_LEN(over); t++) {
                atomic_store(k.n_noticed, 0);
                assert_int_equal(run_ranks(over[t], size, SIGKILL, killed, &k), 0);
            }
        }
    munmap(k.n_noticed, sizeof *k.n_noticed);
}

/* The local group's injected faults */

static int sees_peer_error(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    struct err err;
    float x = 1;
    int64_t first = 0;
    for (int i = 1; i <= 3; i++) {
        int64_t t = coll_allreduce(c, COLL_BULK, &x, 1, DTYPE_F32, 0, &err);
        if (i == 1)
            first = t;
        int rc = t < 0 ? (int)t : coll_wait(c, t, &err);
        int want = i < 2 ? 0 : coll_rank(c) == 1 ? ERR_NUMERIC : ERR_PEER;
        if (rc != want)
            return unexpected(v, "collective %d: %d, want %d", i, rc, want);
    }
    if (coll_wait(c, first, &err) < 0)
        return unexpected(v, "what was done before the failure: %s", err.msg);
    return 0;
}

static void test_injected_failure(void **state)
{
    (void)state;
    const struct coll_fault faults[3] = {
        [1] = {.at_ticket = 2, .delay_ms = 20, .fail = ERR_NUMERIC}};
    assert_int_equal(run_ranks_with_faults(3, faults, sees_peer_error, NULL), 0);
}

enum { DELAYED = 2, DELAY_MS = 3000 };

/* The delayed rank comes when the others are in the collective, and about to wait for it. */
static int is_delayed(struct coll *c, const void *arg, struct verdict *v)
{
    atomic_int *n_there = *(atomic_int *const *)arg;
    const int is_late = coll_rank(c) == DELAYED;
    struct err err;
    struct coll_stats s;
    struct aborter a = {.c = c};
    float x = 1;
    coll_watch(c, note_begun, &a);
    while (is_late && atomic_load(n_there) < coll_size(c) - 1)
        sched_yield();
    int64_t t = coll_allreduce(c, COLL_BULK, &x, 1, DTYPE_F32, 0, &err);
    while (t > 0 && !is_late && !a.begun)
        sched_yield();
    atomic_fetch_add(n_there, 1);
    if (t < 0 || coll_wait(c, t, &err) < 0)
        return unexpected(v, "%s", err.msg);
    coll_stats(c, &s);
    if ((!is_late && s.wait_ns < 40000000) || s.busy_ns < 40000000 || s.n_bytes != 4)
        return unexpected(v, "waited %lld ns, busy %lld ns", (long long)s.wait_ns,
                          (long long)s.busy_ns);
    return 0;
}

static void test_injected_delay(void **state)
{
    (void)state;
    const struct coll_fault faults[3] = {[DELAYED] = {.at_ticket = 1, .delay_ms = DELAY_MS}};
    atomic_int n_there = 0, *there = &n_there;
    assert_int_equal(run_ranks_with_faults(3, faults, is_delayed, &there), 0);
    const struct coll_fault forever[2] = {[0] = {.at_ticket = 1, .delay_ms = 3600000}};
    int64_t t0 = clock_mono_ns();
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(run_ranks_with_faults(2, forever, stuck, fds), 0);
    close(fds[0]);
    close(fds[1]);
    assert_true(clock_since_s(t0) < promptly_s);
}

static int disagree(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    struct err err;
    float x[2] = {1, 1};
    int64_t t = coll_allreduce(c, COLL_BULK, x, 1 + coll_rank(c), DTYPE_F32, 0, &err);
    int rc = t < 0 ? (int)t : coll_wait(c, t, &err);
    return rc == ERR_ARG && strstr(err.msg, "disagree") ? 0 : unexpected(v, "%d %s", rc, err.msg);
}

static void test_local_disagree(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(OVER_LOCAL, 2, 0, disagree, NULL), 0);
}

/* Rank 0 sends rank 1 more or fewer elements than rank 1 takes. */
static int disagree_on_a_message(struct coll *c, const void *arg, struct verdict *v)
{
    const int *n_sent = arg;
    const int rank = coll_rank(c), n = rank == 0 ? *n_sent : 3 - *n_sent;
    const struct coll_message m = {.rank = 1 - rank, .x = (float[2]){1, 1}, .n = n};
    struct err err;
    int64_t t = rank == 0 ? coll_send(c, COLL_BULK, m, DTYPE_F32, 0, &err)
                          : coll_recv(c, COLL_BULK, m, DTYPE_F32, 0, &err);
    int rc = t < 0 ? (int)t : coll_wait(c, t, &err);
    return rc == ERR_ARG && strstr(err.msg, "disagree") ? 0 : unexpected(v, "%d %s", rc, err.msg);
}

static void test_local_messages_disagree(void **state)
{
    (void)state;
    for (int n_sent = 1; n_sent <= 2; n_sent++)
        assert_int_equal(run_ranks(OVER_LOCAL, 2, 0, disagree_on_a_message, &n_sent), 0);
}

/* Rank 2 leaves, so rank 0's exchange fails: rank 1 must not find what rank 0 meant to send. */
static int takes_no_letter(struct coll *c, const void *arg, struct verdict *v)
{
    static float sent, taken;
    atomic_int *has_failed = *(atomic_int *const *)arg;
    const struct coll_message out = {.rank = 1, .x = &sent, .n = 1};
    const struct coll_message in = {.rank = coll_rank(c) == 0 ? 2 : 0, .x = &taken, .n = 1};
    struct err err;
    if (coll_rank(c) == 2)
        return 0;
    while (coll_rank(c) == 1 && !atomic_load(has_failed))
        sched_yield();
    int64_t t = coll_rank(c) == 0 ? coll_exchange(c, COLL_BULK, out, in, DTYPE_F32, 0, &err)
                                  : coll_recv(c, COLL_BULK, in, DTYPE_F32, 0, &err);
    int rc = t < 0 ? (int)t : coll_wait(c, t, &err);
    atomic_store(has_failed, 1);
    return rc == ERR_PEER ? 0 : unexpected(v, "rank %d: %d", coll_rank(c), rc);
}

static void test_local_letter_of_a_failure(void **state)
{
    (void)state;
    atomic_int has_failed = 0, *failed = &has_failed;
    assert_int_equal(run_ranks(OVER_LOCAL, 3, 0, takes_no_letter, &failed), 0);
}

static int fds_at_start;

static void test_nothing_left_open(void **state)
{
    (void)state;
    assert_int_equal(ranks_open_fds(), fds_at_start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abort_while_stuck),
        cmocka_unit_test(test_peer_frees),
        cmocka_unit_test(test_free_while_pending),
        cmocka_unit_test(test_peer_killed),
        cmocka_unit_test(test_injected_failure),
        cmocka_unit_test(test_injected_delay),
        cmocka_unit_test(test_local_disagree),
        cmocka_unit_test(test_local_messages_disagree),
        cmocka_unit_test(test_local_letter_of_a_failure),
        cmocka_unit_test(test_nothing_left_open),
    };
    fds_at_start = ranks_open_fds();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
