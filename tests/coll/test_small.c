/* coll: small sums, which the thread that waits ends itself.  Their bits, also when ranks run ahead
 * of each other; a rank that has queued one, and does not wait yet, holds up nobody; and ranks that
 * are lost, or stopped. */
#include "../test.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "coll/link.h"
#include "coll/patience.h"
#include "ranks.h"

enum { LONG_S = 100, ROUNDS = 60, BYTES_MAX = 80 << 10 };

static const enum transport quick[] = {OVER_SHM_THREADS, OVER_SHM_FORK, OVER_TCP_THREADS};

/* ---- bits ---- */

/* Bytes on both sides of each limit: of what is begun, of a message to all, of a piece. */
static const int64_t lens[] = {8,     64,    4096,  9352,  9360,     9368,     16376,
                               16384, 16392, 21840, 21848, 32 << 10, 64 << 10, BYTES_MAX};

static void dawdle(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    if (*seed >> 30 == 0)
        usleep(*seed >> 8 & 0x3ff);
    else if (*seed >> 30 == 1)
        sched_yield();
}

struct lap {
    uint8_t *x, *want; /* [ROUNDS], [1] of BYTES_MAX */
    int64_t ticket[ROUNDS];
};

static int sum_once(struct coll *c, struct lap *l, int i, enum dtype dtype, struct verdict *v)
{
    const int64_t n = lens[i % (int)ARRAY_LEN(lens)] / (int64_t)dtype_size(dtype);
    uint8_t *x = l->x + (size_t)i * BYTES_MAX;
    struct err err;

    fill(x, n, dtype, coll_rank(c));
    l->ticket[i] =
        coll_allreduce(c, (enum coll_channel)(i % 2), x, n, dtype, i % 3 ? COLL_TAG_NONE : i, &err);
    return l->ticket[i] < 0 ? unexpected(v, "%s", err.msg) : 0;
}

static int check_once(struct coll *c, struct lap *l, int i, enum dtype dtype, struct verdict *v)
{
    const int64_t n = lens[i % (int)ARRAY_LEN(lens)] / (int64_t)dtype_size(dtype);
    struct err err;

    if (coll_wait(c, l->ticket[i], &err) < 0)
        return unexpected(v, "sum %d: %s", i, err.msg);
    expect(l->want, n, dtype, coll_size(c));
    if (memcmp(l->x + (size_t)i * BYTES_MAX, l->want, (size_t)n * dtype_size(dtype)) != 0)
        return unexpected(v, "sum %d, %lld of %s: other bits than in rank order", i, (long long)n,
                          dtype_name(dtype));
    return 0;
}

/* Each rank waits for a sum at once, or a few sums later, as it pleases. */
static int laps(struct coll *c, const void *arg, struct verdict *v)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_F16};
    struct lap l = {.x = xmalloc((size_t)ROUNDS * BYTES_MAX), .want = xmalloc(BYTES_MAX)};
    uint32_t seed = (uint32_t)coll_rank(c) * 77 + 5;
    int waited = 0, bad = 0;

    (void)arg;
    for (size_t d = 0; d < ARRAY_LEN(dtypes) && !bad; d++, waited = 0)
        for (int i = 0; i < ROUNDS && !bad; i++) {
            dawdle(&seed);
            bad = sum_once(c, &l, i, dtypes[d], v);
            while (!bad && waited <= i && (i == ROUNDS - 1 || seed >> 28 & 3))
                bad = check_once(c, &l, waited++, dtypes[d], v);
        }
    free(l.x);
    free(l.want);
    return bad;
}

static void test_laps(void **state)
{
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(quick); t++)
        for (int size = 1; size <= RANKS_MAX; size++)
            assert_int_equal(run_ranks(quick[t], size, 0, laps, NULL), 0);
}

/* ---- ranks that do not wait yet ---- */

/* Rank 0 queues a sum, and waits for it only when all others have it. */
static int late_waiter(struct coll *c, const void *arg, struct verdict *v)
{
    const int64_t *tag = arg;
    double x = coll_rank(c) + 1.0, y = 1;
    struct err err;
    const int64_t t = coll_allreduce(c, COLL_URGENT, &x, 1, DTYPE_F64, *tag, &err);
    int64_t last;

    if (t < 0 || (coll_rank(c) > 0 && coll_wait(c, t, &err) < 0))
        return unexpected(v, "the first: %s", err.msg);
    last = coll_allreduce(c, COLL_BULK, &y, 1, DTYPE_F64, COLL_TAG_NONE, &err);
    if (last < 0 || coll_wait(c, last, &err) < 0 || coll_wait(c, t, &err) < 0)
        return unexpected(v, "the second: %s", err.msg);
    if (x != coll_size(c) * (coll_size(c) + 1) / 2.0 || y != coll_size(c))
        return unexpected(v, "sums %g and %g", x, y);
    return 0;
}

static void test_late_waiter(void **state)
{
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(quick); t++)
        for (int64_t tag = COLL_TAG_NONE; tag <= 7; tag += 8)
            for (int size = 2; size <= RANKS_MAX; size += 3)
                assert_int_equal(run_ranks(quick[t], size, 0, late_waiter, &tag), 0);
}

struct seen {
    atomic_int n[COLL_FAILS + 1];
};

static void look_on(void *arg, int64_t tag, enum coll_moment moment, int64_t now_ns)
{
    struct seen *s = arg;

    (void)tag;
    (void)now_ns;
    s->n[moment]++;
}

/* The watcher of a bulk sum sees its end, although no thread waits for it. */
static int watched(struct coll *c, const void *arg, struct verdict *v)
{
    struct seen seen = {0};
    const int64_t t0 = clock_mono_ns();
    float x = 1;
    struct err err;
    int64_t t;

    (void)arg;
    coll_watch(c, look_on, &seen);
    t = coll_allreduce(c, COLL_BULK, &x, 1, DTYPE_F32, 7, &err);
    while (t > 0 && !seen.n[COLL_ENDS] && clock_since_s(t0) < LONG_S)
        sched_yield();
    if (t < 0 || !seen.n[COLL_ENDS])
        return unexpected(v, "the sum's end was not told");
    return coll_wait(c, t, &err) < 0 ? unexpected(v, "%s", err.msg) : 0;
}

/* A collective that is queued behind one that nobody waits for. */
static int queued_behind(struct coll *c, const void *arg, struct verdict *v)
{
    double x = 1, y = 2;
    struct err err;
    int64_t t = 0;

    (void)arg;
    for (int i = 0; i < 5 && t >= 0; i++) {
        t = coll_allreduce(c, COLL_URGENT, &x, 1, DTYPE_F64, COLL_TAG_NONE, &err);
        if (t >= 0)
            t = coll_broadcast_async(c, COLL_URGENT, &y, 1, DTYPE_F64, i % coll_size(c), 3, &err);
    }
    if (t < 0 || coll_wait(c, t, &err) < 0)
        return unexpected(v, "%s", err.msg);
    for (int i = 0; i < 5; i++)
        x /= coll_size(c);
    return x == 1 ? 0 : unexpected(v, "%g", x);
}

/* A coll can be freed with such a sum, and then its failure is told. */
static int freed(struct coll *c, const void *arg, struct verdict *v)
{
    static struct seen seen[RANKS_MAX];
    static double x[RANKS_MAX];
    struct err err;

    (void)arg;
    coll_watch(c, look_on, &seen[coll_rank(c)]);
    if (coll_rank(c) == 0 && coll_allreduce(c, COLL_URGENT, &x[0], 1, DTYPE_F64, 1, &err) < 0)
        return unexpected(v, "%s", err.msg);
    return 0;
}

static void test_without_a_waiter(void **state)
{
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(quick); t++) {
        assert_int_equal(run_ranks(quick[t], 3, 0, watched, NULL), 0);
        assert_int_equal(run_ranks(quick[t], 3, 0, queued_behind, NULL), 0);
        assert_int_equal(run_ranks(quick[t], 2, 0, freed, NULL), 0);
    }
}

/* ---- ends ---- */

static void *abort_soon(void *arg)
{
    usleep(30000); /* until the others surely wait; an earlier end would be right, too */
    coll_abort(arg);
    return NULL;
}

/* The last rank never comes: it is killed, or it aborts, or each rank aborts itself. */
enum end { KILLED, ABORTED, OWN_ABORT };

static int ends(struct coll *c, const void *arg, struct verdict *v)
{
    const enum end *how = arg;
    const int64_t t0 = clock_mono_ns();
    const int is_last = coll_rank(c) == coll_size(c) - 1;
    pthread_t thread;
    double x = 1;
    struct err err;
    int64_t t = 0;
    int rc = 0, aborts = *how == OWN_ABORT || (*how == ABORTED && is_last);

    if (aborts)
        pthread_create(&thread, NULL, abort_soon, c);
    for (int i = 0; rc == 0 && (!is_last || i < 100); i++) {
        t = coll_allreduce(c, (enum coll_channel)(i % 2), &x, 1, DTYPE_F64, COLL_TAG_NONE, &err);
        rc = t < 0 ? (int)t : coll_wait(c, t, &err);
    }
    if (is_last && *how == KILLED)
        kill(getpid(), SIGKILL);
    if (aborts)
        pthread_join(thread, NULL);
    if (is_last || (aborts && rc == ERR_CANCELED))
        return 0;
    if (rc != ERR_PEER || !strstr(err.msg, "lost rank ") || clock_since_s(t0) > LONG_S)
        return unexpected(v, "after %.1f s: %d %s", clock_since_s(t0), rc, err.msg);
    return 0;
}

static void test_ends(void **state)
{
    (void)state;
    for (enum end how = KILLED; how <= OWN_ABORT; how++)
        for (int size = 2; size <= RANKS_MAX; size += 3) {
            const int may_die = how == KILLED ? SIGKILL : 0;

            assert_int_equal(run_ranks(OVER_SHM_FORK, size, may_die, ends, &how), 0);
            if (size == 2)
                assert_int_equal(run_ranks(OVER_TCP_FORK, size, may_die, ends, &how), 0);
        }
}

/* ---- a rank that is stopped ---- */

enum { STOP_MS = 200 };

struct stopping {
    pid_t pid;
    atomic_int is_over;
};

static void *stop_for_a_while(void *arg)
{
    struct stopping *s = arg;

    kill(s->pid, SIGSTOP);
    usleep(STOP_MS * 1000);
    kill(s->pid, SIGCONT);
    s->is_over = 1;
    return NULL;
}

/* One sum, to which rank 0 adds whether it is the last one.  1: it was held up for half of the stop
 * or longer; a rank that is held up sleeps. */
static int sum_meanwhile(struct coll *c, double is_last, double sum[2], struct verdict *v)
{
    const int64_t t0 = clock_mono_ns(), ranks = coll_size(c);
    const clock_t cpu = clock();
    struct err err;
    double s;
    int64_t t;

    sum[0] = coll_rank(c) + 1;
    sum[1] = is_last;
    t = coll_allreduce(c, COLL_URGENT, sum, 2, DTYPE_F64, COLL_TAG_NONE, &err);
    if (t < 0 || coll_wait(c, t, &err) < 0)
        return -unexpected(v, "while a rank is stopped: %s", err.msg);
    if (2 * sum[0] != (double)(ranks * (ranks + 1)))
        return -unexpected(v, "the sum is %g", sum[0]);
    s = clock_since_s(t0);
    if (s < STOP_MS / 2e3)
        return 0;
    if ((double)(clock() - cpu) / CLOCKS_PER_SEC > s / 4)
        return -unexpected(v, "of %.2f s %.2f s of CPU time", s,
                           (double)(clock() - cpu) / CLOCKS_PER_SEC);
    return 1;
}

/* Rank 0 aborts while the last rank is stopped, and goes on: the others need not wait for that. The
 * first sum shows rank 0 that all others are here. */
static int abort_meanwhile(struct coll *c, pid_t last, struct verdict *v)
{
    const int64_t t0 = clock_mono_ns();
    const int aborts = coll_rank(c) == 0;
    pthread_t thread;
    struct err err;
    double x = 1;
    int64_t t;
    int n = 0, rc = 0;

    for (; rc == 0; n++) {
        if (aborts && n == 1) {
            kill(last, SIGSTOP);
            pthread_create(&thread, NULL, abort_soon, c);
        }
        t = coll_allreduce(c, COLL_URGENT, &x, 1, DTYPE_F64, COLL_TAG_NONE, &err);
        rc = t < 0 ? (int)t : coll_wait(c, t, &err);
    }
    if (aborts && n > 1) {
        pthread_join(thread, NULL);
        kill(last, SIGCONT);
    }
    if (rc != (aborts ? ERR_CANCELED : ERR_PEER) || clock_since_s(t0) > LONG_S)
        return unexpected(v, "after %.1f s: %d %s", clock_since_s(t0), rc, err.msg);
    return 0;
}

/* The last rank is stopped during sums, and goes on.  All sums are right. */
static int stopped(struct coll *c, const void *arg, struct verdict *v)
{
    const pid_t own = getpid();
    pid_t pid[RANKS_MAX];
    struct stopping s = {0};
    pthread_t thread;
    struct err err;
    double sum[2] = {0};
    int n_held = 0, held = 0;

    (void)arg;
    if (coll_allgather(c, &own, sizeof own, pid, &err) < 0)
        return unexpected(v, "%s", err.msg);
    s.pid = pid[coll_size(c) - 1];
    if (coll_rank(c) == 0)
        pthread_create(&thread, NULL, stop_for_a_while, &s);
    while (held >= 0 && sum[1] == 0) {
        held = sum_meanwhile(c, s.is_over, sum, v);
        n_held += held;
    }
    if (coll_rank(c) == 0)
        pthread_join(thread, NULL);
    if (held < 0)
        return 1;
    if (n_held == 0 && coll_rank(c) < coll_size(c) - 1)
        return unexpected(v, "no sum waited for the rank that was stopped");
    return abort_meanwhile(c, s.pid, v);
}

static void test_a_stopped_rank(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(OVER_SHM_FORK, 3, 0, stopped, NULL), 0);
    assert_int_equal(run_ranks(OVER_TCP_FORK, 3, 0, stopped, NULL), 0);
}

/* ---- room ---- */

/* Two ends of one connection by TCP. */
static void tcp_pair(int fd[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd[0], (struct sockaddr *)&at, len), 0);
    fd[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd[1] >= 0);
    close(listener);
}

/* While a link says that it has room, a send does not block, although the peer reads nothing. */
static void room(struct link *from, struct link *to)
{
    static uint8_t x[16 << 10];
    struct err err;
    int n = 0;

    for (; n < 10000 && link_has_room(from, sizeof x); n++)
        if (link_send(from, x, sizeof x, &err) < 0)
            fail_msg("message %d: %s", n, err.msg);
    assert_true(n >= 4 && n < 10000);
    for (int i = 0; i < n; i++)
        assert_int_equal(link_recv(to, x, sizeof x, &err), 0);
}

static void test_room(void **state)
{
    const int64_t some_ms = 2000;
    struct patience patience = {0};
    struct link *k[2];
    struct shm *shm[2];
    struct err err;
    int fd[2], memory;

    (void)state;
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        tcp_pair(fd);
        if (is_shared) {
            assert_int_equal(shm_new(&shm[0], &memory, &err), 0);
            assert_int_equal(shm_attach(memory, &shm[1], &err), 0);
            close(memory);
        }
        for (int i = 0; i < 2; i++)
            k[i] = link_new((struct link_parts){.fd = fd[i],
                                                .shm = is_shared ? shm[i] : NULL,
                                                .patience = &patience},
                            some_ms);
        room(k[0], k[1]);
        room(k[1], k[0]);
        for (int i = 0; i < 2; i++)
            link_free(k[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room),        cmocka_unit_test(test_laps),
        cmocka_unit_test(test_late_waiter), cmocka_unit_test(test_without_a_waiter),
        cmocka_unit_test(test_ends),        cmocka_unit_test(test_a_stopped_rank),
    };

    ranks_keep(BYTES_MAX / 4, DTYPE_F32);
    ranks_keep(BYTES_MAX / 8, DTYPE_F64);
    ranks_keep(BYTES_MAX / 2, DTYPE_BF16);
    ranks_keep(BYTES_MAX / 2, DTYPE_F16);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
