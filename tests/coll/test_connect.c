/* coll/tcp: two ranks connect by hand.  A rank never comes, is of another formation, cannot be
 * reached or is aborted; deadlines pass.  No rank may wait for ever, and the error names the rank
 * at fault. */
#include "../test.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "coll/tcp.h"
#include "ranks.h"

/* A wait of LONG_MS must not happen.  A prompt call takes far less than promptly_s, which is far
 * more than a busy machine needs. */
enum { LONG_MS = 1000000 };
static const double promptly_s = 100;

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

static int fds_at_start;

static void test_nothing_left_open(void **state)
{
    (void)state;
    assert_int_equal(ranks_open_fds(), fds_at_start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
        cmocka_unit_test(test_nothing_left_open),
    };
    fds_at_start = ranks_open_fds();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
