/* coll: every collective over every transport is compared, bit for bit, with a reduction in rank
 * order. */
#include "../test.h"

#include "base/alloc.h"
#include "ranks.h"
#include "tensor/half.h"

enum { GUARD = 64 };

static const int sizes[] = {1, 2, 3, 4, 5, 8};

static const struct reduce_case {
    int64_t n;
    enum dtype dtype;
} reduce_cases[] = {
    {0, DTYPE_F32},       {1, DTYPE_F32},       {1, DTYPE_F64},      {7, DTYPE_F32},
    {255, DTYPE_F32},     {1021, DTYPE_F64},    {16384, DTYPE_F32},  {16411, DTYPE_F32},
    {65537, DTYPE_F32},   {70001, DTYPE_F64},   {262144, DTYPE_F32}, {300007, DTYPE_F32},
    {1000003, DTYPE_F32}, {131101, DTYPE_F64},  {1, DTYPE_BF16},     {7, DTYPE_BF16},
    {16411, DTYPE_BF16},  {300007, DTYPE_BF16}, {7, DTYPE_F16},      {16411, DTYPE_F16},
};

static int check_guard(const uint8_t *guard, struct verdict *v)
{
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != 0xa5)
            return unexpected(v, "guard byte %d changed", i);
    return 0;
}

static int compare(const void *got, const void *want, int64_t n, enum dtype dtype,
                   struct verdict *v)
{
    size_t elem = dtype_size(dtype);

    if (!memcmp(got, want, (size_t)n * elem)) /* one call: a sanitizer makes many of them slow */
        return 0;
    for (int64_t i = 0; i < n; i++)
        if (memcmp((const uint8_t *)got + (size_t)i * elem,
                   (const uint8_t *)want + (size_t)i * elem, elem))
            return unexpected(v, "element %lld of %lld (%s) has other bits than in rank order",
                              (long long)i, (long long)n, dtype_name(dtype));
    return 0;
}

static int reduce_one(struct coll *c, const struct reduce_case *k, struct verdict *v)
{
    struct err err;
    size_t n_bytes = (size_t)k->n * dtype_size(k->dtype);
    uint8_t *x = xmalloc(n_bytes + 2 * GUARD), *want = xmalloc(n_bytes + 1);
    memset(x, 0xa5, n_bytes + 2 * GUARD);
    fill(x + GUARD, k->n, k->dtype, coll_rank(c));
    expect(want, k->n, k->dtype, coll_size(c));
    int64_t ticket = coll_allreduce(c, COLL_BULK, x + GUARD, k->n, k->dtype, 3, &err);
    int rc = 0;
    if (ticket < 0 || coll_wait(c, ticket, &err) < 0)
        rc = unexpected(v, "n %lld: %s", (long long)k->n, err.msg);
    if (!rc)
        rc = compare(x + GUARD, want, k->n, k->dtype, v);
    if (!rc)
        rc = check_guard(x, v) || check_guard(x + GUARD + n_bytes, v);
    free(x);
    free(want);
    return rc;
}

static int reduce_all(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(reduce_cases); i++)
        if (reduce_cases[i].n <= LARGEST && reduce_one(c, &reduce_cases[i], v))
            return 1;
    return 0;
}

/* More all-reduces than the ring holds, of mixed sizes, waited for in reverse. */
static int many_outstanding(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    enum { COUNT = 3 * COLL_RING / 2, N_MAX = 3000 };
    struct err err;
    int64_t tickets[COUNT];
    float *x = xmalloc(COUNT * N_MAX * sizeof *x), *want = xmalloc(N_MAX * sizeof *want);
    int rc = 0;
    for (int i = 0; i < COUNT && !rc; i++) {
        int64_t n = 1 + i * 37 % N_MAX;
        fill(x + i * N_MAX, n, DTYPE_F32, coll_rank(c));
        tickets[i] = coll_allreduce(c, COLL_BULK, x + i * N_MAX, n, DTYPE_F32, i, &err);
        if (tickets[i] < 0)
            rc = unexpected(v, "queueing %d: %s", i, err.msg);
        else if (i > 0 && tickets[i] <= tickets[i - 1])
            rc = unexpected(v, "ticket %lld after %lld", (long long)tickets[i],
                            (long long)tickets[i - 1]);
    }
    for (int i = COUNT - 1; i >= 0 && !rc; i--) {
        int64_t n = 1 + i * 37 % N_MAX;
        expect(want, n, DTYPE_F32, coll_size(c));
        if (coll_wait(c, tickets[i], &err) < 0)
            rc = unexpected(v, "waiting for %d: %s", i, err.msg);
        else
            rc = compare(x + i * N_MAX, want, n, DTYPE_F32, v);
    }
    if (!rc && coll_wait(c, tickets[COUNT - 1] + COLL_CHANNELS, &err) != ERR_ARG)
        rc = unexpected(v, "waited for a ticket never given out");
    free(x);
    free(want);
    return rc;
}

static int broadcast_one(struct coll *c, size_t n, int root, struct verdict *v)
{
    struct err err;
    uint8_t *x = xcalloc(n + 1, 1), *want = xmalloc(n + 1);
    for (size_t i = 0; i < min_size(n, 256); i++)
        want[i] = (uint8_t)(i * 7 + (size_t)root);
    for (size_t i = 256; i < n; i *= 2)
        memcpy(want + i, want, min_size(i, n - i));
    if (coll_rank(c) == root)
        memcpy(x, want, n);
    x[n] = 0xee;
    int rc = 0;
    if (coll_broadcast(c, x, n, root, &err) < 0)
        rc = unexpected(v, "broadcast of %zu: %s", n, err.msg);
    const int is_same = !memcmp(x, want, n); /* one call, as above */
    for (size_t i = 0; i < n && !rc && !is_same; i++)
        if (x[i] != want[i])
            rc = unexpected(v, "byte %zu of %zu from root %d is %u", i, n, root, x[i]);
    if (!rc && x[n] != 0xee)
        rc = unexpected(v, "broadcast of %zu wrote behind", n);
    free(x);
    free(want);
    return rc;
}

static int gather_one(struct coll *c, size_t n, struct verdict *v)
{
    struct err err;
    size_t size = (size_t)coll_size(c);
    uint8_t *mine = xmalloc(n + 1), *all = xmalloc(size * n + 1), *want = xmalloc(n + 1);
    memset(mine, 10 + coll_rank(c), n);
    memset(all, 0, size * n + 1);
    int rc = 0;
    if (coll_allgather(c, mine, n, all, &err) < 0)
        rc = unexpected(v, "allgather of %zu: %s", n, err.msg);
    for (size_t r = 0; r < size && !rc; r++) {
        memset(want, 10 + (int)r, n);
        if (memcmp(all + r * n, want, n))
            rc = unexpected(v, "the part of rank %zu has other bytes", r);
    }
    if (!rc && all[size * n])
        rc = unexpected(v, "allgather of %zu wrote behind", n);
    free(mine);
    free(all);
    free(want);
    return rc;
}

/* All kinds in one order, with an all-reduce left outstanding before each of the others. */
static int mixed(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    static const size_t lens[] = {0, 1, 4097, 700001};
    struct err err;
    double one[40];
    int64_t n_calls = 0;
    for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
        for (int root = 0; root < coll_size(c); root++) {
            one[i * 8 + (size_t)root] = root + 1.0;
            if (coll_allreduce(c, COLL_BULK, &one[i * 8 + (size_t)root], 1, DTYPE_F64, root, &err) <
                0)
                return unexpected(v, "%s", err.msg);
            if (broadcast_one(c, lens[i], root, v))
                return 1;
            if (one[i * 8 + (size_t)root] != (root + 1.0) * coll_size(c))
                return unexpected(v, "a broadcast overtook an all-reduce");
            n_calls += 2;
        }
        if (gather_one(c, lens[i], v))
            return 1;
        n_calls++;
    }
    struct coll_stats s;
    coll_stats(c, &s);
    if (s.n_calls != n_calls || s.wait_ns < 0 || s.wait_ns > (int64_t)3600 * 1000000000 ||
        (coll_size(c) > 1 && s.busy_ns <= 0))
        return unexpected(v, "statistics: %lld calls, want %lld", (long long)s.n_calls,
                          (long long)n_calls);
    return 0;
}

/* BF16 has 8 binary digits.  Ones that are added to 256 one by one are lost.  Ones that come first
 * are kept; then only the last sum is rounded, ties to even. */
static int bf16_rounds(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    struct err err;
    const int size = coll_size(c), is_first = coll_rank(c) == 0, is_last = coll_rank(c) == size - 1;
    uint16_t x[2] = {bf16_from_float(is_first ? 256 : 1), bf16_from_float(is_last ? 256 : 1)};
    static const float ones_first[] = {0, 256, 256, 258, 260, 260, 0, 0, 264}; /* by size */
    const float want[2] = {256, ones_first[size]};
    int64_t t = coll_allreduce(c, COLL_BULK, x, 2, DTYPE_BF16, 0, &err);
    if (t < 0 || coll_wait(c, t, &err) < 0)
        return unexpected(v, "%s", err.msg);
    for (int i = 0; i < 2; i++)
        if (bf16_to_float(x[i]) != want[i])
            return unexpected(v, "sum %d is %g, want %g", i, (double)bf16_to_float(x[i]),
                              (double)want[i]);
    return 0;
}

static int bad_arguments(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    struct err err;
    float x = 1;
    if (coll_allreduce(c, COLL_BULK, &x, 1, DTYPE_I32, 0, &err) != ERR_ARG ||
        coll_allreduce(c, COLL_BULK, &x, -1, DTYPE_F32, 0, &err) != ERR_ARG ||
        coll_allreduce(c, COLL_BULK, NULL, 1, DTYPE_F32, 0, &err) != ERR_ARG ||
        coll_broadcast(c, &x, 4, coll_size(c), &err) != ERR_ARG ||
        coll_broadcast(c, &x, 4, -1, &err) != ERR_ARG || coll_wait(c, 0, &err) != ERR_ARG)
        return unexpected(v, "a bad argument was not refused");
    int64_t t = coll_allreduce(c, COLL_BULK, &x, 1, DTYPE_F32, 0, &err); /* and harms nothing */
    if (t < 0 || coll_wait(c, t, &err) < 0 || x != (float)coll_size(c))
        return unexpected(v, "after refusals: %s", err.msg);
    return 0;
}

/* After a first round, the counted allocations stand still. */
static int allocates_nothing(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    struct err err;
    static float x[8][50000];
    float *mine = x[coll_rank(c)];
    uint64_t before = 0;
    for (int round = 0; round < 3; round++) {
        int64_t t = 0;
        if (ranks_meet(c, &err) < 0)
            return unexpected(v, "%s", err.msg);
        if (round == 1)
            before = alloc_count();
        for (int i = 0; i < 4; i++)
            t = coll_allreduce(c, COLL_BULK, mine, 50000 - i, DTYPE_F32, i, &err);
        if (t < 0 || coll_wait(c, t, &err) < 0)
            return unexpected(v, "%s", err.msg);
    }
    if (alloc_count() != before)
        return unexpected(v, "%llu allocations", (unsigned long long)(alloc_count() - before));
    return 0;
}

static void over_all(rank_fn *fn)
{
    for (enum transport t = 0; t < TRANSPORTS; t++)
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
            assert_int_equal(run_ranks(t, sizes[i], 0, fn, NULL), 0);
}

static void test_reduce(void **s)
{
    (void)s;
    over_all(reduce_all);
}

static void test_many(void **s)
{
    (void)s;
    over_all(many_outstanding);
}

static void test_mixed(void **s)
{
    (void)s;
    over_all(mixed);
}

static void test_bf16_rounds(void **s)
{
    (void)s;
    over_all(bf16_rounds);
}

static void test_bad_arguments(void **s)
{
    (void)s;
    over_all(bad_arguments);
}

static void test_allocates_nothing(void **s)
{
    (void)s;
    over_all(allocates_nothing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_allocates_nothing),
        cmocka_unit_test(test_bf16_rounds),
    };
    int64_t most_of[DTYPE_COUNT] = {0};

    for (size_t i = 0; i < ARRAY_LEN(reduce_cases); i++)
        if (most_of[reduce_cases[i].dtype] < reduce_cases[i].n && reduce_cases[i].n <= LARGEST)
            most_of[reduce_cases[i].dtype] = reduce_cases[i].n;
    for (int d = 0; d < DTYPE_COUNT; d++)
        if (most_of[d] > 0)
            ranks_keep(most_of[d], (enum dtype)d);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
