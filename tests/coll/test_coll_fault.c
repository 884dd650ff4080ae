/* coll: faults.  Ranks never come, die, leave or disagree; strangers connect; deadlines pass.  No
 * rank may wait for ever, and the error names the rank at fault. */
#include "../test.h"

#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/local.h"
#include "coll/tcp.h"
#include "ranks.h"

enum { BIG = 300000 };

/* A wait of LONG_MS must not happen.  A prompt call takes far less than promptly_s, which is far
 * more than a busy machine needs. */
enum { LONG_MS = 1000000 };
static const double promptly_s = 100;

static int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

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
        a->begun = true;
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
    a.over = true;
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

/* A rank that frees its coll is gone, too, so it waits until all the others have seen which rank
 * went first. */
static int wait_until_noticed(const struct killing *k, int n, struct verdict *v)
{
    const int64_t t0 = clock_mono_ns();

    atomic_fetch_add(k->n_noticed, 1);
    while (atomic_load(k->n_noticed) < n)
        if (clock_since_s(t0) > promptly_s)
            return unexpected(v, "%d of %d ranks noticed", atomic_load(k->n_noticed), n);
        else
            sched_yield();
    return 0;
}

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
    if (!rc && (code != ERR_PEER || !strstr(err.msg, "rank 1")))
        rc = unexpected(v, "rank 1 was killed, we saw %d %s", code, err.msg);
    if (!rc && clock_since_s(t0) > promptly_s)
        rc = unexpected(v, "noticed after %g s", clock_since_s(t0));
    free(x);
    return rc ? rc : wait_until_noticed(k, coll_size(c) - 1, v);
}

static void test_peer_killed(void **state)
{
    (void)state;
    static const int64_t lens[] = {1, 1000, BIG, 4 * BIG};
    static const enum transport over[] = {OVER_TCP_FORK, OVER_SHM_FORK};
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

/* Two ranks by hand */

struct two {
    struct coll *c[2];
    struct buf blobs[2];
};

static void prepare_two(struct two *w, const char *bind0, int64_t timeout_ms)
{
    struct err err;
    memset(w, 0, sizeof *w);
    for (int r = 0; r < 2; r++) {
        const struct coll_tcp_options o = {
            .rank = r, .size = 2, .bind = r ? NULL : bind0, .timeout_ms = timeout_ms};

        if (coll_tcp_prepare(&o, &w->c[r], &err) < 0)
            fail_msg("%s", err.msg);
        coll_tcp_endpoint(w->c[r], &w->blobs[r]);
    }
}

static void free_two(struct two *w)
{
    for (int r = 0; r < 2; r++) {
        coll_free(w->c[r]);
        buf_fini(&w->blobs[r]);
    }
}

static int connect_one(struct two *w, int rank, int64_t deadline_ms, struct err *err)
{
    const void *blobs[2] = {w->blobs[0].data, w->blobs[1].data};
    const size_t lens[2] = {w->blobs[0].len, w->blobs[1].len};
    return coll_tcp_connect(w->c[rank], blobs, lens, deadline_ms, err);
}

struct connecting {
    struct two *two;
    int rank, rc;
    struct err err;
    pthread_t thread;
    int64_t deadline_ms;
};

static void *connecting_main(void *arg)
{
    struct connecting *k = arg;
    k->rc = connect_one(k->two, k->rank, k->deadline_ms, &k->err);
    return NULL;
}

static void connect_both(struct two *w)
{
    struct connecting k = {.two = w, .rank = 1, .deadline_ms = LONG_MS};
    struct err err;
    pthread_create(&k.thread, NULL, connecting_main, &k);
    int rc = connect_one(w, 0, LONG_MS, &err);
    pthread_join(k.thread, NULL);
    if (rc < 0 || k.rc < 0)
        fail_msg("%s", rc < 0 ? err.msg : k.err.msg);
}

/* Rank 0 waits for a connection.  Rank 1 reaches rank 0's port and waits for its answer. */
static void test_abort_connect(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct two w;
        prepare_two(&w, NULL, 0);
        int64_t t0 = clock_mono_ns();
        struct connecting k = {.two = &w, .rank = rank, .deadline_ms = LONG_MS};
        pthread_create(&k.thread, NULL, connecting_main, &k);
        while (clock_since_s(t0) < 0.05)
            sched_yield(); /* until it surely is inside; an earlier abort would be right, too */
        coll_abort(w.c[rank]);
        pthread_join(k.thread, NULL);
        assert_int_equal(k.rc, ERR_CANCELED);
        free_two(&w);
        assert_true(clock_since_s(t0) < promptly_s);
    }
}

static void test_abort_before_connect(void **state)
{
    (void)state;
    struct two w;
    struct err err;
    prepare_two(&w, NULL, 0);
    coll_abort(w.c[0]);
    assert_int_equal(connect_one(&w, 0, LONG_MS, &err), ERR_CANCELED);
    assert_int_equal(ranks_meet(w.c[0], &err), ERR_CANCELED);
    assert_int_equal(ranks_meet(w.c[1], &err), ERR_ARG); /* not connected */
    coll_abort(w.c[1]);
    assert_int_equal(connect_one(&w, 1, LONG_MS, &err), ERR_CANCELED);
    free_two(&w);
}

/* While a rank connects, another thread can ask with which rank the link is missing. */
static void test_missing_link_is_named(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct two w;
        struct connecting k = {.two = &w, .rank = rank, .deadline_ms = LONG_MS};
        prepare_two(&w, NULL, 0);
        int64_t t0 = clock_mono_ns();
        assert_int_equal(coll_tcp_unlinked(w.c[rank]), -1);
        pthread_create(&k.thread, NULL, connecting_main, &k);
        while (coll_tcp_unlinked(w.c[rank]) != 1 - rank && clock_since_s(t0) < promptly_s)
            usleep(1000);
        assert_int_equal(coll_tcp_unlinked(w.c[rank]), 1 - rank);
        coll_abort(w.c[rank]);
        pthread_join(k.thread, NULL);
        assert_int_equal(k.rc, ERR_CANCELED);
        assert_int_equal(coll_tcp_unlinked(w.c[rank]), -1);
        free_two(&w);
    }
}

static void test_connect_deadline(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct two w;
        struct err err;
        prepare_two(&w, NULL, 0);
        int64_t t0 = clock_mono_ns();
        assert_int_equal(connect_one(&w, rank, 100, &err), ERR_TIMEOUT);
        assert_non_null(strstr(err.msg, rank ? "rank 0" : "rank 1"));
        free_two(&w);
        assert_true(clock_since_s(t0) < promptly_s);
    }
}

/* The port in rank 0's blob. */
static uint8_t *port_of_rank_0(struct two *w) { return w->blobs[0].data + 14; }

/* No socket listens at the port any more.  The test holds the port all the time, because another
 * process could take it. */
static void test_connect_refused(void **state)
{
    (void)state;
    struct two w;
    struct err err;
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof sa;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&sa, &len), 0);
    prepare_two(&w, NULL, 0);
    coll_free(w.c[0]);
    w.c[0] = NULL;
    memcpy(port_of_rank_0(&w), &sa.sin_port, 2);
    assert_int_equal(connect_one(&w, 1, LONG_MS, &err), ERR_PEER);
    assert_non_null(strstr(err.msg, "rank 0 cannot be reached at 127.0.0.1:"));
    assert_non_null(strstr(err.msg, "refused"));
    free_two(&w);
    assert_int_equal(close(s), 0);
}

/* A rank that listens on all addresses advertises none. */
static void test_any_address(void **state)
{
    (void)state;
    struct two w;
    struct err err;
    prepare_two(&w, "0.0.0.0", 0);
    assert_int_equal(connect_one(&w, 1, 1000, &err), ERR_PROTO);
    assert_non_null(strstr(err.msg, "0.0.0.0"));
    free_two(&w);
}

static void test_ipv6(void **state)
{
    (void)state;
    struct two w;
    struct coll *c;
    struct err err;
    if (coll_tcp_prepare(&(struct coll_tcp_options){.size = 2, .bind = "::1"}, &c, &err) < 0) {
        print_message("no IPv6 here: %s\n", err.msg);
        skip();
    }
    coll_free(c);
    prepare_two(&w, "::1", 0);
    connect_both(&w);
    free_two(&w);
}

static void test_timeout(void **state)
{
    (void)state;
    struct two w;
    struct err err;
    prepare_two(&w, NULL, 100);
    connect_both(&w);
    int64_t t0 = clock_mono_ns();
    assert_int_equal(ranks_meet(w.c[0], &err), ERR_TIMEOUT);
    assert_non_null(strstr(err.msg, "rank 1"));
    assert_true(clock_since_s(t0) < promptly_s);
    free_two(&w);
}

/* All ranks send short messages to a rank whose links hold little unread. */
static void test_smallest_window(void **state)
{
    enum { SMALL = 4096 };
    struct two w;

    (void)state;
    prepare_two(&w, NULL, 0);
    connect_both(&w);
    assert_true(coll_tcp_piece(w.c[0]) > SMALL);
    assert_true(coll_tcp_piece(w.c[0]) == coll_tcp_piece(w.c[1]));
    free_two(&w);
    prepare_two(&w, NULL, 0);
    for (int r = 0; r < 2; r++) {
        memset(w.blobs[r].data + 8, 0, 4);
        w.blobs[r].data[10] = SMALL >> 8;
    }
    connect_both(&w);
    for (int r = 0; r < 2; r++)
        assert_int_equal(coll_tcp_piece(w.c[r]), SMALL / 8);
    free_two(&w);
}

/* A rank of another formation knows the port, but not the key: to both it is as if the other rank
 * had not come. */
static void test_stale_blob(void **state)
{
    (void)state;
    struct two w, stale = {{0}};
    struct err err;
    prepare_two(&w, NULL, 0);
    for (int r = 0; r < 2; r++)
        buf_append(&stale.blobs[r], w.blobs[r].data, w.blobs[r].len);
    stale.c[1] = w.c[1];
    stale.blobs[0].data[40] ^= 1;
    struct connecting k = {.two = &stale, .rank = 1, .deadline_ms = 300};
    pthread_create(&k.thread, NULL, connecting_main, &k);
    assert_int_equal(connect_one(&w, 0, 300, &err), ERR_TIMEOUT);
    assert_non_null(strstr(err.msg, "rank 1 (did not connect to us)"));
    pthread_join(k.thread, NULL);
    assert_int_equal(k.rc, ERR_TIMEOUT);
    assert_non_null(strstr(k.err.msg, "rank 0 (127.0.0.1:"));
    struct coll_stats s;
    coll_stats(w.c[0], &s);
    assert_true(s.n_strangers > 1); /* the rank came again and again */
    for (int r = 0; r < 2; r++)
        buf_fini(&stale.blobs[r]);
    free_two(&w);
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
    assert_int_equal(count_fds(), fds_at_start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abort_while_stuck),
        cmocka_unit_test(test_peer_frees),
        cmocka_unit_test(test_free_while_pending),
        cmocka_unit_test(test_peer_killed),
        cmocka_unit_test(test_abort_connect),
        cmocka_unit_test(test_abort_before_connect),
        cmocka_unit_test(test_missing_link_is_named),
        cmocka_unit_test(test_connect_deadline),
        cmocka_unit_test(test_connect_refused),
        cmocka_unit_test(test_any_address),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_stale_blob),
        cmocka_unit_test(test_smallest_window),
        cmocka_unit_test(test_injected_failure),
        cmocka_unit_test(test_injected_delay),
        cmocka_unit_test(test_local_disagree),
        cmocka_unit_test(test_local_messages_disagree),
        cmocka_unit_test(test_local_letter_of_a_failure),
        cmocka_unit_test(test_nothing_left_open),
    };
    fds_at_start = count_fds();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
