/* coll/shm, coll/samehost: links of one machine carry every byte in order.  They wait, end and time
 * out as others do.  They refuse what a broken peer does to the memory, and are made where they can
 * be. */
#include "../test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "coll/link.h"
#include "coll/mesh.h"
#include "coll/patience.h"
#include "coll/samehost.h"
#include "coll/shm.h"
#include "coll/tcp.h"

enum { LONG_MS = 100000, TOTAL = 3 << 20 };

/* Two links that share memory, whose descriptor stays open. */
struct pair {
    struct link *link[2];
    struct patience patience[2];
    int fd;
};

static void pair_new(struct pair *p, int64_t timeout_ms)
{
    struct shm *shm[2];
    struct err err;
    int sockets[2];

    memset(p->patience, 0, sizeof p->patience);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    assert_int_equal(shm_new(&shm[0], &p->fd, &err), 0);
    assert_int_equal(shm_attach(p->fd, &shm[1], &err), 0);
    for (int i = 0; i < 2; i++)
        p->link[i] = link_new(
            (struct link_parts){.fd = sockets[i], .shm = shm[i], .patience = &p->patience[i]},
            timeout_ms);
}

static void pair_free(struct pair *p)
{
    for (int i = 0; i < 2; i++)
        link_free(p->link[i]);
    close(p->fd);
}

/* ---- bytes ---- */

static uint8_t byte_at(size_t i) { return (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16)); }

/* Sizes of 1 byte to 100 kB, most of them odd; different for the two sides. */
static size_t next_size(uint32_t *seed, size_t left)
{
    size_t n;

    *seed = *seed * 1664525 + 1013904223;
    n = 1 + (*seed >> 8) % (*seed >> 31 ? 100000 : 300);
    return n < left ? n : left;
}

static void *send_all(void *arg)
{
    uint8_t *from = xcalloc(TOTAL, 1);
    uint32_t seed = 1;
    struct err err;

    for (size_t i = 0; i < TOTAL; i++)
        from[i] = byte_at(i);
    for (size_t at = 0, n; at < TOTAL; at += n) {
        n = next_size(&seed, TOTAL - at);
        assert_int_equal(link_send(arg, from + at, n, &err), 0);
    }
    free(from);
    return NULL;
}

/* In both directions at once. */
static void every_byte_comes_in_order(void **state)
{
    struct pair p;
    pthread_t thread[2];
    uint8_t *to = xcalloc(TOTAL, 1);
    struct err err;

    (void)state;
    pair_new(&p, 0);
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, send_all, p.link[i]);
    for (int i = 0; i < 2; i++) {
        uint32_t seed = 7;

        memset(to, 0, TOTAL);
        for (size_t at = 0, n; at < TOTAL; at += n) {
            n = next_size(&seed, TOTAL - at);
            assert_int_equal(link_recv(p.link[1 - i], to + at, n, &err), 0);
        }
        pthread_join(thread[i], NULL);
        for (size_t k = 0; k < TOTAL; k++)
            if (to[k] != byte_at(k))
                fail_msg("byte %zu is %d, want %d", k, to[k], byte_at(k));
    }
    free(to);
    pair_free(&p);
}

/* coll/mesh.h's promise: so many pieces can be unread. */
static void a_whole_ring_can_be_unread(void **state)
{
    static uint8_t x[SHM_RING];
    struct pair p;
    struct err err;

    (void)state;
    assert_true(SHM_RING >= MESH_WINDOW * MESH_PIECE_MAX);
    pair_new(&p, 50);
    assert_int_equal(link_send(p.link[0], x, sizeof x, &err), 0);
    assert_int_equal(link_send(p.link[0], x, 1, &err), ERR_TIMEOUT);
    assert_int_equal(link_recv(p.link[1], x, sizeof x, &err), 0);
    assert_int_equal(link_recv(p.link[1], x, 1, &err), ERR_TIMEOUT);
    assert_int_equal(link_send(p.link[0], x, 1, &err), 0);
    pair_free(&p);
}

/* ---- ends ---- */

/* link_free rings no bell: it is to the peer what a kill is. */
static void what_was_sent_still_arrives(void **state)
{
    uint8_t x[1000] = {1, 2, 3}, y[1000];
    struct pair p;
    struct err err;

    (void)state;
    pair_new(&p, 0);
    assert_int_equal(link_send(p.link[0], x, sizeof x, &err), 0);
    link_free(p.link[0]);
    p.link[0] = NULL;
    assert_true(link_is_gone(p.link[1]));
    assert_int_equal(link_recv(p.link[1], y, sizeof y, &err), 0);
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(link_recv(p.link[1], y, 1, &err), ERR_PEER);
    pair_free(&p);
}

struct blocked {
    struct link *link;
    int sends;
    pthread_t thread;
    int rc;
};

static void *block(void *arg)
{
    static uint8_t x[2][4 * SHM_RING];
    struct blocked *b = arg;
    struct err err;

    b->rc = b->sends ? link_send(b->link, x[0], sizeof x[0], &err)
                     : link_recv(b->link, x[1], sizeof x[1], &err);
    return NULL;
}

/* A side that waits is freed at once: by its own shut, by the peer's, and soon by the peer's end.
 */
static void the_end_frees_who_waits(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++)
        for (int sends = 0; sends < 2; sends++) {
            struct blocked b = {.sends = sends};
            const int64_t t0 = clock_mono_ns();
            struct pair p;

            pair_new(&p, LONG_MS);
            b.link = p.link[0];
            pthread_create(&b.thread, NULL, block, &b);
            while (clock_since_s(t0) < 0.03)
                sched_yield(); /* until it surely waits; an earlier end would be right, too */
            if (how < 2) {
                link_shut(p.link[how]);
            } else {
                link_free(p.link[1]);
                p.link[1] = NULL;
            }
            pthread_join(b.thread, NULL);
            assert_int_equal(b.rc, ERR_PEER);
            assert_true(clock_since_s(t0) < LONG_MS / 1e3 / 2);
            pair_free(&p);
        }
}

struct sleeper {
    struct shm *shm;
    int sends;
    pthread_t thread;
};

static void *sleep_long(void *arg)
{
    struct sleeper *s = arg;

    (s->sends ? shm_wait_to_send : shm_wait_to_recv)(s->shm, 1000, LONG_MS * INT64_C(1000000));
    return NULL;
}

/* A side that waits for a position is woken when it is reached, or by the end, and not by time
 * alone. */
static void a_sleeper_is_woken(void **state)
{
    static uint8_t x[SHM_RING];
    struct err err;

    (void)state;
    for (int how = 0; how < 4; how++) {
        const int64_t t0 = clock_mono_ns();
        struct shm *side[2];
        struct sleeper s = {.sends = how % 2};
        int fd;

        assert_int_equal(shm_new(&side[0], &fd, &err), 0);
        assert_int_equal(shm_attach(fd, &side[1], &err), 0);
        s.shm = side[0];
        if (s.sends)
            assert_int_equal(shm_send(side[0], x, sizeof x), SHM_RING);
        pthread_create(&s.thread, NULL, sleep_long, &s);
        while (clock_since_s(t0) < 0.03)
            sched_yield(); /* until it surely sleeps; to be woken earlier would be right, too */
        if (how >= 2)
            shm_close(side[1]);
        else if (s.sends)
            assert_int_equal(shm_recv(side[1], x, 1000), 1000);
        else
            assert_int_equal(shm_send(side[1], x, 1000), 1000);
        pthread_join(s.thread, NULL);
        assert_true(clock_since_s(t0) < LONG_MS / 1e3 / 2);
        shm_free(side[0]);
        shm_free(side[1]);
        close(fd);
    }
}

/* ---- a broken peer ---- */

static void positions_that_cannot_be_are_refused(void **state)
{
    uint8_t x[100];
    struct pair p;
    struct stat st;
    struct err err;
    void *region;

    (void)state;
    pair_new(&p, 0);
    assert_int_equal(fstat(p.fd, &st), 0);
    region = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, p.fd, 0);
    assert_true(region != MAP_FAILED);
    for (size_t at = 64; at + 8 < 4096; at += 64) /* positions that are far apart */
        memset((uint8_t *)region + at, (int)at >> 6, 8);
    assert_int_equal(link_send(p.link[0], x, sizeof x, &err), ERR_PROTO);
    assert_int_equal(link_recv(p.link[1], x, sizeof x, &err), ERR_PROTO);
    assert_int_equal(ftruncate(p.fd, 0), -1); /* a peer cannot take the memory away */
    munmap(region, (size_t)st.st_size);
    pair_free(&p);
}

static void other_memory_is_refused(void **state)
{
    const int plain = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct shm *shm, *ours;
    struct stat st;
    struct err err;
    int fd;

    (void)state;
    assert_int_equal(shm_new(&ours, &fd, &err), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(shm_attach(null, &shm, &err), ERR_PROTO);
    assert_int_equal(ftruncate(plain, st.st_size), 0);
    assert_int_equal(shm_attach(plain, &shm, &err), ERR_PROTO); /* could shrink */
    assert_int_equal(ftruncate(plain, st.st_size - 64), 0);
    assert_int_equal(fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(shm_attach(plain, &shm, &err), ERR_PROTO); /* too short */
    shm_free(ours);
    close(fd);
    close(plain);
    close(null);
}

/* ---- connections of one machine ---- */

static void ranks_find_each_other_by_name(void **state)
{
    const uint8_t random[2][ENDPOINT_RANDOM] = {{1, 2, 3}, {1, 2, 4}};
    struct samehost_name name[2];
    struct err err;
    int listener, dialed, accepted, again, fd = 99;

    (void)state;
    for (int i = 0; i < 2; i++)
        samehost_name_of(random[i], &name[i]);
    name[0].bytes[0] ^= (uint8_t)getpid(); /* this test may run twice at the same time */
    assert_int_equal(samehost_dial(&name[0]), -1);
    assert_int_equal(samehost_listen(&name[0], &listener, &err), 0);
    assert_int_equal(samehost_listen(&name[0], &again, &err), ERR_IO);
    assert_int_equal(samehost_dial(&name[1]), -1);
    dialed = samehost_dial(&name[0]);
    assert_true(dialed >= 0);
    accepted = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    assert_int_equal(samehost_take(accepted, &fd, &err), 1); /* nothing yet */
    assert_int_equal(samehost_give(dialed, -1, &err), 0);
    assert_int_equal(samehost_take(accepted, &fd, &err), 0);
    assert_int_equal(fd, -1);
    assert_int_equal(samehost_give(dialed, listener, &err), 0);
    assert_int_equal(samehost_take(accepted, &fd, &err), 0);
    assert_true(fd >= 0 && fd != listener);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    close(dialed);
    assert_int_equal(samehost_take(accepted, &fd, &err), ERR_PEER);
    close(accepted);
    close(listener);
}

enum { N = 3 };

struct rank {
    struct coll *c;
    struct buf blob;
    struct rank *all;
    float x[40000];
    pthread_t thread;
    int rc;
    struct err err;
};

static void *connect_and_sum(void *arg)
{
    struct rank *me = arg;
    const void *blobs[N];
    size_t lens[N];
    int64_t ticket;

    for (int r = 0; r < N; r++) {
        blobs[r] = me->all[r].blob.data;
        lens[r] = me->all[r].blob.len;
    }
    me->rc = coll_tcp_connect(me->c, blobs, lens, LONG_MS, &me->err);
    if (me->rc < 0)
        return NULL;
    ticket = coll_allreduce(me->c, COLL_BULK, me->x, ARRAY_LEN(me->x), DTYPE_F32, COLL_TAG_NONE,
                            &me->err);
    me->rc = ticket < 0 ? (int)ticket : coll_wait(me->c, ticket, &me->err);
    return NULL;
}

static void prepare_at(struct rank *all, int r, const char *host, int share_memory,
                       enum coll_encrypt encrypt)
{
    const struct coll_tcp_options o = {
        .rank = r, .size = N, .bind = host, .share_memory = share_memory, .encrypt = encrypt};

    all[r].all = all;
    if (coll_tcp_prepare(&o, &all[r].c, &all[r].err) < 0)
        fail_msg("%s", all[r].err.msg);
    coll_tcp_endpoint(all[r].c, &all[r].blob);
    for (size_t i = 0; i < ARRAY_LEN(all[r].x); i++)
        all[r].x[i] = (float)(r + 1) * (float)i;
}

static void prepare(struct rank *all, int r, int share_memory, enum coll_encrypt encrypt)
{
    prepare_at(all, r, NULL, share_memory, encrypt);
}

/* Sum over all ranks; rank r shares memory with want[r] others. */
static void sum(struct rank *all, const int want[N], int is_chained)
{
    for (int r = 0; r < N; r++)
        pthread_create(&all[r].thread, NULL, connect_and_sum, &all[r]);
    for (int r = 0; r < N; r++)
        pthread_join(all[r].thread, NULL);
    for (int r = 0; r < N; r++) {
        if (all[r].rc < 0)
            fail_msg("rank %d: %s", r, all[r].err.msg);
        assert_int_equal(coll_tcp_n_shared(all[r].c), want[r]);
        assert_int_equal(coll_tcp_is_chained(all[r].c), is_chained);
        for (size_t i = 0; i < ARRAY_LEN(all[r].x); i++)
            assert_true(all[r].x[i] == 6 * (float)i);
    }
    for (int r = 0; r < N; r++) {
        coll_free(all[r].c);
        buf_fini(&all[r].blob);
    }
    free(all);
}

/* A rank that does not share is reached by TCP.  Links that are to be encrypted are not shared. */
static void memory_is_shared_where_it_can_be(void **state)
{
    static const struct {
        int shares[N];
        enum coll_encrypt encrypt;
        int want[N];
    } cases[] = {
        {{1, 1, 1}, COLL_ENCRYPT_OFF, {2, 2, 2}}, {{1, 1, 1}, COLL_ENCRYPT_REMOTE, {2, 2, 2}},
        {{1, 0, 1}, COLL_ENCRYPT_OFF, {1, 0, 1}}, {{0, 0, 0}, COLL_ENCRYPT_OFF, {0, 0, 0}},
        {{1, 1, 1}, COLL_ENCRYPT_ON, {0, 0, 0}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rank *all = xcalloc(N, sizeof *all);

        for (int r = 0; r < N; r++)
            prepare(all, r, cases[i].shares[r], cases[i].encrypt);
        sum(all, cases[i].want, 0);
    }
}

/* A stranger that knows a rank's name is cut off and counted, and the ranks form all the same. */
static void strangers_of_this_machine(void **state)
{
    struct rank *all = xcalloc(N, sizeof *all);
    const int64_t t0 = clock_mono_ns();
    struct coll_stats stats = {0};
    struct samehost_name name;
    struct endpoint e;
    struct err err;
    char junk[200] = "GET / HTTP/1.1";
    int s;

    (void)state;
    for (int r = 0; r < N; r++)
        prepare(all, r, 1, COLL_ENCRYPT_OFF);
    assert_int_equal(endpoint_parse(all[0].blob.data, all[0].blob.len, &e, &err), 0);
    samehost_name_of(e.random, &name);
    s = samehost_dial(&name);
    assert_true(s >= 0);
    assert_int_equal(send(s, junk, sizeof junk, MSG_NOSIGNAL), (int)sizeof junk);
    for (int r = 0; r < N; r++)
        pthread_create(&all[r].thread, NULL, connect_and_sum, &all[r]);
    for (int r = 0; r < N; r++)
        pthread_join(all[r].thread, NULL);
    while (stats.n_strangers == 0 && clock_since_s(t0) < LONG_MS / 1e3)
        coll_stats(all[0].c, &stats);
    assert_int_equal(stats.n_strangers, 1);
    for (int r = 0; r < N; r++) {
        assert_int_equal(all[r].rc, 0);
        coll_free(all[r].c);
        buf_fini(&all[r].blob);
    }
    free(all);
    close(s);
}

/* Where the ranks of each host follow one another, and a host has several, sums go along them. */
static void ranks_that_share_hosts_are_chained(void **state)
{
    static const struct {
        const char *host[N];
        int want;
    } cases[] = {
        {{"127.0.0.1", "127.0.0.1", "127.0.0.1"}, 0}, {{"127.0.0.1", "127.0.0.1", "127.0.0.2"}, 1},
        {{"127.0.0.1", "127.0.0.2", "127.0.0.2"}, 1}, {{"127.0.0.1", "127.0.0.2", "127.0.0.1"}, 0},
        {{"127.0.0.1", "127.0.0.2", "127.0.0.3"}, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rank *all = xcalloc(N, sizeof *all);

        for (int r = 0; r < N; r++)
            prepare_at(all, r, cases[i].host[r], 1, COLL_ENCRYPT_OFF);
        sum(all, (const int[]){2, 2, 2}, cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_comes_in_order),
        cmocka_unit_test(a_whole_ring_can_be_unread),
        cmocka_unit_test(what_was_sent_still_arrives),
        cmocka_unit_test(the_end_frees_who_waits),
        cmocka_unit_test(a_sleeper_is_woken),
        cmocka_unit_test(positions_that_cannot_be_are_refused),
        cmocka_unit_test(other_memory_is_refused),
        cmocka_unit_test(ranks_find_each_other_by_name),
        cmocka_unit_test(memory_is_shared_where_it_can_be),
        cmocka_unit_test(strangers_of_this_machine),
        cmocka_unit_test(ranks_that_share_hosts_are_chained),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
