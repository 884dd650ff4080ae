/* coll/tcp with more ranks than have links with each other: the same bits as in rank order, over
 * the ring and the tree; and 1,024 ranks of one process. */
#include "../test.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "coll/mesh.h"
#include "coll/tcp.h"
#include "ranks.h"

enum { MOST = 1024, CONNECT_MS = 120000, STACK = 256 << 10 };

/* ---- ranks as threads ---- */

struct crowd;

struct member {
    struct crowd *crowd;
    int rank, rc;
    struct coll *c;
    struct verdict v;
    pthread_t thread;
};

struct crowd {
    int size;
    rank_fn *fn;
    enum coll_encrypt encrypt;
    struct buf *blobs; /* [size] */
    struct member *members;
    pthread_barrier_t barrier;
};

static int connect_member(struct member *m, struct err *err)
{
    struct crowd *w = m->crowd;
    const void **blobs = xcalloc((size_t)w->size, sizeof *blobs);
    size_t *lens = xcalloc((size_t)w->size, sizeof *lens);
    int rc;

    for (int r = 0; r < w->size; r++) {
        blobs[r] = w->blobs[r].data;
        lens[r] = w->blobs[r].len;
    }
    rc = coll_tcp_connect(m->c, blobs, lens, CONNECT_MS, err);
    free(blobs);
    free(lens);
    return rc;
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct err err;

    if (connect_member(m, &err) < 0)
        m->rc = unexpected(&m->v, "%s", err.msg);
    else
        m->rc = m->crowd->fn(m->c, NULL, &m->v);
    pthread_barrier_wait(&m->crowd->barrier); /* a rank that leaves early is a lost rank */
    coll_free(m->c);
    return NULL;
}

static void start_member(struct crowd *w, int r)
{
    pthread_attr_t attr;

    w->members[r].crowd = w;
    w->members[r].rank = r;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    assert_int_equal(pthread_create(&w->members[r].thread, &attr, member_main, &w->members[r]), 0);
    pthread_attr_destroy(&attr);
}

/* fabric: as in struct coll_tcp_options. */
static void run_crowd(int size, enum coll_encrypt encrypt, const char *fabric, rank_fn *fn)
{
    static const char *const hosts[] = {NULL, "127.0.0.2", "127.0.0.3"};
    struct crowd w = {.size = size, .fn = fn, .encrypt = encrypt};
    struct err err;

    w.blobs = xcalloc((size_t)size, sizeof *w.blobs);
    w.members = xcalloc((size_t)size, sizeof *w.members);
    pthread_barrier_init(&w.barrier, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        /* Without a fabric, the ranks have the addresses of three hosts, in no order. */
        const struct coll_tcp_options o = {.rank = r,
                                           .size = size,
                                           .bind = fabric ? NULL : hosts[r % 7 % 3],
                                           .encrypt = encrypt,
                                           .fabric = fabric};

        if (coll_tcp_prepare(&o, &w.members[r].c, &err) < 0)
            fail_msg("rank %d: %s", r, err.msg);
        coll_tcp_endpoint(w.members[r].c, &w.blobs[r]);
    }
    for (int r = 0; r < size; r++)
        start_member(&w, r);
    for (int r = 0; r < size; r++)
        pthread_join(w.members[r].thread, NULL);
    for (int r = 0; r < size; r++) {
        if (w.members[r].rc)
            fail_msg("rank %d of %d: %s", r, size, w.members[r].v.why);
        buf_fini(&w.blobs[r]);
    }
    pthread_barrier_destroy(&w.barrier);
    free(w.blobs);
    free(w.members);
}

/* ---- collectives ---- */

/* The sums that all ranks of a crowd must have.  They are the same for all, so they are made once.
 */
static struct sums {
    int64_t n;
    enum dtype dtype;
    int size;
    void *x;
} made[32];
static pthread_mutex_t made_lock = PTHREAD_MUTEX_INITIALIZER;

static const void *expected(int64_t n, enum dtype dtype, int size)
{
    struct sums *s = made;

    pthread_mutex_lock(&made_lock);
    while (s->x && (s->n != n || s->dtype != dtype || s->size != size))
        s++;
    ASSERT(s < made + ARRAY_LEN(made) - 1);
    if (!s->x) {
        *s = (struct sums){n, dtype, size, xmalloc((size_t)n * dtype_size(dtype) + 1)};
        expect(s->x, n, dtype, size);
    }
    pthread_mutex_unlock(&made_lock);
    return s->x;
}

static void forget_sums(void)
{
    for (size_t i = 0; i < ARRAY_LEN(made); i++) {
        free(made[i].x);
        made[i].x = NULL;
    }
}

static int sum_one(struct coll *c, int64_t n, enum dtype dtype, struct verdict *v)
{
    const size_t n_bytes = (size_t)n * dtype_size(dtype);
    const void *want = expected(n, dtype, coll_size(c));
    uint8_t *x = xmalloc(n_bytes + 1);
    struct err err;
    int64_t t;
    int rc = 0;

    fill(x, n, dtype, coll_rank(c));
    t = coll_allreduce(c, COLL_URGENT, x, n, dtype, 0, &err);
    if (t < 0 || coll_wait(c, t, &err) < 0)
        rc = unexpected(v, "%s", err.msg);
    else if (memcmp(x, want, n_bytes))
        rc = unexpected(v, "%lld of %s: other bits than in rank order", (long long)n,
                        dtype_name(dtype));
    free(x);
    return rc;
}

/* A reduce-scatter and an all-gather are an all-reduce. */
static int two_halves(struct coll *c, int64_t n, struct verdict *v)
{
    const float *want = expected(n, DTYPE_F32, coll_size(c));
    float *x = xmalloc((size_t)n * sizeof *x + 1);
    const struct coll_span mine = coll_span(n, coll_size(c), coll_rank(c));
    struct err err;
    int64_t t;
    int rc = 0;

    fill(x, n, DTYPE_F32, coll_rank(c));
    t = coll_reduce_scatter(c, COLL_BULK, x, n, DTYPE_F32, 0, &err);
    if (t < 0 || coll_wait(c, t, &err) < 0)
        rc = unexpected(v, "reduce-scatter: %s", err.msg);
    else if (memcmp(x + mine.at, want + mine.at, (size_t)mine.n * sizeof *x))
        rc = unexpected(v, "reduce-scatter of %lld: wrong", (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (i < mine.at || i >= mine.at + mine.n)
            x[i] = -1;
    t = rc ? 0 : coll_allgather_spans(c, COLL_BULK, x, n, DTYPE_F32, 0, &err);
    if (t < 0 || (t && coll_wait(c, t, &err) < 0))
        rc = unexpected(v, "all-gather: %s", err.msg);
    else if (!rc && memcmp(x, want, (size_t)n * sizeof *x))
        rc = unexpected(v, "all-gather of %lld: wrong", (long long)n);
    free(x);
    return rc;
}

static int broadcast_from(struct coll *c, int root, int64_t n, struct verdict *v)
{
    int32_t *x = xcalloc((size_t)n + 1, sizeof *x);
    struct err err;
    int rc = 0;

    for (int64_t i = 0; i < n && coll_rank(c) == root; i++)
        x[i] = (int32_t)(i * 7 + root);
    if (coll_broadcast(c, x, (size_t)n * sizeof *x, root, &err) < 0)
        rc = unexpected(v, "broadcast: %s", err.msg);
    for (int64_t i = 0; i < n && !rc; i++)
        if (x[i] != (int32_t)(i * 7 + root))
            rc = unexpected(v, "broadcast from %d: element %lld", root, (long long)i);
    free(x);
    return rc;
}

/* Pairs without a link get one when they first need it. */
static int exchange_far(struct coll *c, struct verdict *v)
{
    const int size = coll_size(c), far = size / 2, rank = coll_rank(c);
    int32_t mine[300], theirs[300];
    const struct coll_message out = {mine, 300, (rank + far) % size},
                              in = {theirs, 300, (rank + size - far) % size};
    struct err err;
    int64_t t;

    for (int i = 0; i < 300; i++)
        mine[i] = rank * 1000 + i;
    t = coll_exchange(c, COLL_BULK, out, in, DTYPE_I32, 0, &err);
    if (t < 0 || coll_wait(c, t, &err) < 0)
        return unexpected(v, "exchange: %s", err.msg);
    for (int i = 0; i < 300; i++)
        if (theirs[i] != in.rank * 1000 + i)
            return unexpected(v, "exchange: element %d", i);
    return 0;
}

/* The elements that one rank gives another: none, one, or up to `most`. */
static int64_t part_of(int from, int to, int64_t most) { return (from * 7 + to * 3) % (most + 1); }

/* Element i of what `from` gives `to`. */
static int32_t given(int from, int to, int64_t i)
{
    return (int32_t)((from << 20) + (to << 8) + i % 251);
}

/* Parts of many lengths.  known: 0 or the longest, so that they go from rank to rank. */
static int all_to_all(struct coll *c, int64_t most, int64_t known, struct verdict *v)
{
    const int size = coll_size(c), rank = coll_rank(c);
    struct coll_span *give = xcalloc((size_t)size, sizeof *give),
                     *take = xcalloc((size_t)size, sizeof *take);
    const size_t room = (size_t)size * (size_t)most + 1;
    int32_t *x = xcalloc(room, sizeof *x), *y = xcalloc(room, sizeof *y);
    struct err err;
    int64_t t;
    int rc = 0;

    for (int r = 0; r < size; r++) {
        give[r] = (struct coll_span){r * most, part_of(rank, r, most)};
        take[r] = (struct coll_span){r * most, part_of(r, rank, most)};
        for (int64_t i = 0; i < give[r].n; i++)
            x[give[r].at + i] = given(rank, r, i);
    }
    t = coll_all_to_all(c, COLL_BULK, (struct coll_parts){x, give, known},
                        (struct coll_parts){y, take, known}, DTYPE_I32, 0, &err);
    if (t < 0 || coll_wait(c, t, &err) < 0)
        rc = unexpected(v, "all-to-all: %s", err.msg);
    for (int r = 0; r < size && !rc; r++)
        for (int64_t i = 0; i < most && !rc; i++)
            if (y[r * most + i] != (i < take[r].n ? given(r, rank, i) : 0))
                rc = unexpected(v, "all-to-all: element %lld from rank %d", (long long)i, r);
    free(give);
    free(take);
    free(x);
    free(y);
    return rc;
}

static int all_of_them(struct coll *c, const void *arg, struct verdict *v)
{
    static const int64_t lens[] = {0, 1, 5, 17, 1000, 30011, 300007};

    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(lens); i++)
        if (sum_one(c, lens[i], DTYPE_F32, v) || sum_one(c, lens[i], DTYPE_BF16, v) ||
            two_halves(c, lens[i], v) || broadcast_from(c, 0, lens[i], v) ||
            broadcast_from(c, coll_size(c) / 3, lens[i], v))
            return 1;
    return exchange_far(c, v) || all_to_all(c, 3, 3, v) || all_to_all(c, 700, 700, v) ||
           all_to_all(c, 3, 0, v) || sum_one(c, 1000, DTYPE_F64, v);
}

/* Sizes beside and at powers of two, where the tree has its corners. */
static void test_sparse(void **state)
{
    static const int sizes[] = {MESH_ALL_PAIRS, MESH_ALL_PAIRS + 1, 16, 17, 23, 32, 33};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        run_crowd(sizes[i], i % 2 ? COLL_ENCRYPT_ON : COLL_ENCRYPT_OFF, NULL, all_of_them);
        forget_sums();
    }
}

/* Every two ranks that an algorithm uses without asking are near. */
static void test_near(void **state)
{
    (void)state;
    for (int size = 2; size <= 70; size++) {
        struct layout l;
        int host[70];

        for (int r = 0; r < size; r++)
            host[r] = r % 3;
        layout_init(&l, size, host);
        for (int a = 0; a < size; a++) {
            assert_false(mesh_is_near(&l, a, a));
            assert_true(mesh_is_near(&l, a, (a + 1) % size));
            assert_true(a == 0 || mesh_is_near(&l, a, l.order[l.parent[l.place[a]]]));
            for (int b = 0; b < size; b++) {
                assert_int_equal(mesh_is_near(&l, a, b), mesh_is_near(&l, b, a));
                if (size <= MESH_ALL_PAIRS && a != b)
                    assert_true(mesh_is_near(&l, a, b));
            }
        }
        layout_fini(&l);
    }
}

/* A fabric's window is one of messages, while TCP's holds more small ones. */
static void test_over_fabric(void **state)
{
    (void)state;
    if (!ranks_have_fabric())
        skip();
    run_crowd(MESH_ALL_PAIRS + 3, COLL_ENCRYPT_OFF, "tcp;ofi_rxm", all_of_them);
    forget_sums();
}

static int some_sums(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    return sum_one(c, 1, DTYPE_F64, v) || sum_one(c, 100, DTYPE_F32, v) ||
           sum_one(c, 5000, DTYPE_F32, v);
}

static void test_a_thousand(void **state)
{
    enum { FILES = 10000 };
    struct rlimit r;

    (void)state;
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_max < FILES) {
        print_message("1,024 ranks need %d open files: the limit is %lld\n", FILES,
                      (long long)r.rlim_max);
        skip();
    }
    run_crowd(MOST, COLL_ENCRYPT_OFF, NULL, some_sums);
    forget_sums();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near),
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_over_fabric),
        cmocka_unit_test(test_a_thousand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
