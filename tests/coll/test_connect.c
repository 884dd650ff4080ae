/* coll/tcp: two ranks connect by hand.  A rank never comes, is of another formation, cannot be
 * reached or is aborted; deadlines pass.  No rank may wait for ever, and the error names the rank
 * at fault. */
#include "../test.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/shake.h"
#include "ranks.h"
#include "two.h"

/* A prompt call takes far less than this, which is far more than a busy machine needs. */
static const double promptly_s = 100;

enum { NEVER_MS = 1000000 }; /* a deadline that must not be waited for */

/* Rank 0 waits for a connection.  Rank 1 reaches rank 0's port and waits for its answer. */
static void test_abort_connect(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct two w;
        struct side k;
        two_prepare(&w, 0);
        int64_t t0 = clock_mono_ns();
        two_start(&k, &w, rank, two_connect);
        while (clock_since_s(t0) < 0.05)
            sched_yield(); /* until it surely is inside; an earlier abort would be right, too */
        coll_abort(w.c[rank]);
        pthread_join(k.thread, NULL);
        assert_int_equal(k.rc, ERR_CANCELED);
        two_free(&w);
        assert_true(clock_since_s(t0) < promptly_s);
    }
}

/* Abort rank 0 in the moment between the proof of its last link and the link itself.  Link this
 * test with --wrap=shake_take. */
static struct {
    struct coll *c; /* rank 0's; NULL: abort nothing */
    uint16_t port;
    int n_taken;             /* links of rank 0 */
    atomic_int last_channel; /* 1 + the channel of the last one; 0: none yet */
} window;

struct link_parts __real_shake_take(struct shake *s);
struct link_parts __wrap_shake_take(struct shake *s);

struct link_parts __wrap_shake_take(struct shake *s)
{
    struct sockaddr_in own = {0};
    socklen_t len = sizeof own;

    if (window.c && getsockname(s->fd, (struct sockaddr *)&own, &len) == 0 &&
        ntohs(own.sin_port) == window.port && ++window.n_taken == COLL_CHANNELS) {
        coll_abort(window.c);
        window.last_channel = 1 + (int)s->proof.link.channel;
    }
    return __real_shake_take(s);
}

static void *meet_aborted(void *arg)
{
    struct side *k = arg;
    float x = 1;

    k->rc = two_connect_within(k->two, k->rank, NEVER_MS, &k->err);
    while (k->rc == 0 && !window.last_channel)
        sched_yield();
    if (k->rc == 0) {
        const int64_t ticket =
            coll_allreduce(k->two->c[k->rank], (enum coll_channel)(window.last_channel - 1), &x, 1,
                           DTYPE_F32, 0, &k->err);

        k->rc = ticket < 0 ? (int)ticket : coll_wait(k->two->c[k->rank], ticket, &k->err);
    }
    return NULL;
}

/* No rank waits for one that was aborted while a link of its own came into being. */
static void test_abort_between_proof_and_link(void **state)
{
    struct two w;
    struct side k;
    struct err err;

    (void)state;
    two_prepare(&w, 0);
    window.c = w.c[0];
    window.port = two_port(&w);
    two_start(&k, &w, 1, meet_aborted);
    (void)two_connect_within(&w, 0, NEVER_MS, &err); /* its links may be complete */
    pthread_join(k.thread, NULL);
    assert_int_equal(k.rc, ERR_PEER);
    assert_int_equal(ranks_meet(w.c[0], &err), ERR_CANCELED);
    window.c = NULL;
    two_free(&w);
}

static void test_abort_before_connect(void **state)
{
    (void)state;
    struct two w;
    struct err err;
    two_prepare(&w, 0);
    coll_abort(w.c[0]);
    assert_int_equal(two_connect_within(&w, 0, NEVER_MS, &err), ERR_CANCELED);
    assert_int_equal(ranks_meet(w.c[0], &err), ERR_CANCELED);
    assert_int_equal(ranks_meet(w.c[1], &err), ERR_ARG); /* not connected */
    coll_abort(w.c[1]);
    assert_int_equal(two_connect_within(&w, 1, NEVER_MS, &err), ERR_CANCELED);
    two_free(&w);
}

/* A rank that was aborted, and is still there, is no longer reached. */
static void test_aborted_rank_refuses(void **state)
{
    struct two w;
    struct err err;

    (void)state;
    two_prepare(&w, 0);
    coll_abort(w.c[0]);
    assert_int_equal(two_connect_within(&w, 1, NEVER_MS, &err), ERR_PEER);
    assert_non_null(strstr(err.msg, "rank 0 cannot be reached"));
    two_free(&w);
}

/* While a rank connects, another thread can ask with which rank the link is missing. */
static void test_missing_link_is_named(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct two w;
        struct side k;
        two_prepare(&w, 0);
        int64_t t0 = clock_mono_ns();
        assert_int_equal(coll_tcp_unlinked(w.c[rank]), -1);
        two_start(&k, &w, rank, two_connect);
        while (coll_tcp_unlinked(w.c[rank]) != 1 - rank && clock_since_s(t0) < promptly_s)
            usleep(1000);
        assert_int_equal(coll_tcp_unlinked(w.c[rank]), 1 - rank);
        coll_abort(w.c[rank]);
        pthread_join(k.thread, NULL);
        assert_int_equal(k.rc, ERR_CANCELED);
        assert_int_equal(coll_tcp_unlinked(w.c[rank]), -1);
        two_free(&w);
    }
}

static void test_connect_deadline(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct two w;
        struct err err;
        two_prepare(&w, 0);
        int64_t t0 = clock_mono_ns();
        assert_int_equal(two_connect_within(&w, rank, 100, &err), ERR_TIMEOUT);
        assert_non_null(strstr(err.msg, rank ? "rank 0" : "rank 1"));
        two_free(&w);
        assert_true(clock_since_s(t0) < promptly_s);
    }
}

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
    two_prepare(&w, 0);
    coll_free(w.c[0]);
    w.c[0] = NULL;
    two_set_port(&w, ntohs(sa.sin_port));
    assert_int_equal(two_connect_within(&w, 1, NEVER_MS, &err), ERR_PEER);
    assert_non_null(strstr(err.msg, "rank 0 cannot be reached at 127.0.0.1:"));
    assert_non_null(strstr(err.msg, "refused"));
    two_free(&w);
    assert_int_equal(close(s), 0);
}

/* A rank that listens on all addresses advertises none. */
static void test_any_address(void **state)
{
    (void)state;
    struct two w;
    struct err err;
    two_prepare_with(&w, 0, &(struct coll_tcp_options){.bind = "0.0.0.0"});
    assert_int_equal(two_connect_within(&w, 1, 1000, &err), ERR_PROTO);
    assert_non_null(strstr(err.msg, "0.0.0.0"));
    two_free(&w);
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
    two_prepare_with(&w, 0, &(struct coll_tcp_options){.bind = "::1"});
    two_both(&w, two_connect);
    two_free(&w);
}

static void test_bad_options(void **state)
{
    static const struct {
        struct coll_tcp_options o;
        const char *why;
    } bad[] = {{{.rank = 0, .size = 0}, "0 ranks, want 1 to 4096"},
               {{.rank = 0, .size = COLL_TCP_MAX_RANKS + 1}, "4097 ranks, want 1 to 4096"},
               {{.rank = -1, .size = 2}, "rank -1 of 2"},
               {{.rank = 2, .size = 2}, "rank 2 of 2"},
               {{.rank = 0, .size = 2, .timeout_ms = -1}, "timeout of -1 ms"}};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct coll *c;
        struct err err;

        assert_int_equal(coll_tcp_prepare(&bad[i].o, &c, &err), ERR_ARG);
        assert_non_null(strstr(err.msg, bad[i].why));
    }
}

/* A rank that sends nothing, with and without encryption. */
static void test_timeout(void **state)
{
    (void)state;
    for (int is_encrypted = 0; is_encrypted < 2; is_encrypted++) {
        const struct coll_tcp_options o = {
            .timeout_ms = 100, .encrypt = is_encrypted ? COLL_ENCRYPT_ON : COLL_ENCRYPT_OFF};
        struct two w;
        struct err err;
        int64_t t0;

        two_prepare_with(&w, 0, &o);
        two_both(&w, two_connect);
        t0 = clock_mono_ns();
        assert_int_equal(ranks_meet(w.c[0], &err), ERR_TIMEOUT);
        assert_non_null(strstr(err.msg, "rank 1"));
        assert_non_null(strstr(err.msg, "no progress"));
        assert_true(clock_since_s(t0) < promptly_s);
        two_free(&w);
    }
}

/* All ranks send short messages to a rank whose links hold little unread, whichever rank that is.
 */
static void test_smallest_window(void **state)
{
    enum { SMALL = 4096 };
    struct two w;

    (void)state;
    two_prepare(&w, 0);
    two_both(&w, two_connect);
    assert_true(coll_tcp_piece(w.c[0]) > SMALL);
    assert_true(coll_tcp_piece(w.c[0]) == coll_tcp_piece(w.c[1]));
    two_free(&w);
    for (int small = 0; small < 2; small++) {
        two_prepare(&w, 0);
        memset(w.blobs[small].data + 8, 0, 4);
        w.blobs[small].data[10] = SMALL >> 8;
        two_both(&w, two_connect);
        for (int r = 0; r < 2; r++)
            assert_int_equal(coll_tcp_piece(w.c[r]), SMALL / 8);
        two_free(&w);
    }
}

enum { SOON_MS = 300 };

static void *connect_soon(void *arg)
{
    struct side *s = arg;

    s->rc = two_connect_within(s->two, s->rank, SOON_MS, &s->err);
    return NULL;
}

/* A rank of another formation knows the port, but not the key: to both it is as if the other rank
 * had not come. */
static void test_stale_blob(void **state)
{
    (void)state;
    struct two w, stale = {{0}};
    struct err err;
    two_prepare(&w, 0);
    for (int r = 0; r < 2; r++)
        buf_append(&stale.blobs[r], w.blobs[r].data, w.blobs[r].len);
    stale.c[1] = w.c[1];
    stale.blobs[0].data[40] ^= 1;
    struct side k;
    two_start(&k, &stale, 1, connect_soon);
    assert_int_equal(two_connect_within(&w, 0, SOON_MS, &err), ERR_TIMEOUT);
    assert_non_null(strstr(err.msg, "rank 1 (did not connect to us)"));
    pthread_join(k.thread, NULL);
    assert_int_equal(k.rc, ERR_TIMEOUT);
    assert_non_null(strstr(k.err.msg, "rank 0 (127.0.0.1:"));
    struct coll_stats s;
    coll_stats(w.c[0], &s);
    assert_true(s.n_strangers > 1); /* the rank came again and again */
    for (int r = 0; r < 2; r++)
        buf_fini(&stale.blobs[r]);
    two_free(&w);
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
        cmocka_unit_test(test_abort_between_proof_and_link),
        cmocka_unit_test(test_abort_before_connect),
        cmocka_unit_test(test_aborted_rank_refuses),
        cmocka_unit_test(test_missing_link_is_named),
        cmocka_unit_test(test_connect_deadline),
        cmocka_unit_test(test_connect_refused),
        cmocka_unit_test(test_any_address),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_stale_blob),
        cmocka_unit_test(test_smallest_window),
        cmocka_unit_test(test_nothing_left_open),
    };
    fds_at_start = ranks_open_fds();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
