/* coll/nccl as the largest job has it: 4,096 ranks, each with a GPU of its own, form by 32 ids,
 * gather and sum, and end in order.  They are threads over the fakes, and a few seconds' work. */
#include "../test.h"

#include <malloc.h>
#include <pthread.h>

#include "backend/cuda/cuda.h"
#include "base/alloc.h"
#include "coll/device.h"
#include "coll/nccl/ops.h"
#include "fake.h"

enum { RANKS = FAKE_DEVICES, N = 8, LONG_MS = 120000, STACK = 256 << 10, FILLED = 4 << 10 };

struct member {
    struct cuda cuda;
    int rank, rc;
    struct err err;
    uint8_t *ids;
    float *grad; /* device memory */
    pthread_t thread;
};

static void stuck(void *arg, const char *text)
{
    (void)arg;
    fail_msg("%s", text);
}

static int open_device(struct member *m, struct err *err)
{
    struct cuda *b = &m->cuda;
    int rc = cuda_check((int)cudaSetDevice(m->rank), "use", err);

    b->device = m->rank;
    if (rc == 0)
        rc = cuda_check((int)cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking), "make",
                        err);
    if (rc == 0)
        rc = cuda_check((int)cudaMalloc((void **)&m->grad, N * sizeof *m->grad), "allocate", err);
    return rc;
}

static int form(struct member *m, struct coll **c, struct err *err)
{
    struct coll_device_options o = {
        .rank = m->rank, .size = RANKS, .stop_ms = LONG_MS, .stuck = stuck, .name = "test/1"};

    if (coll_device_new(&coll_nccl_ops, &m->cuda.base, &o, c, err) < 0)
        return err->code;
    return coll_device_connect(*c, m->ids, (size_t)coll_device_n_ids(RANKS) * COLL_ID_BYTES,
                               LONG_MS, err);
}

/* Every rank tells all others its number. */
static int gather(const struct member *m, struct coll *c, struct err *err)
{
    uint16_t mine = (uint16_t)m->rank, *all = xcalloc(RANKS, sizeof *all);
    int rc = coll_allgather(c, &mine, sizeof mine, all, err);

    for (int r = 0; r < RANKS && rc == 0; r++)
        if (all[r] != r)
            rc = err_set(err, ERR_CORRUPT, "rank %d's number is %d", r, all[r]);
    free(all);
    return rc;
}

static int sum(struct member *m, struct coll *c, struct err *err)
{
    int64_t ticket;

    for (int i = 0; i < N; i++)
        m->grad[i] = (float)((m->rank + i) % 16);
    ticket = coll_allreduce(c, COLL_BULK, m->grad, N, DTYPE_F32, 0, err);
    if (ticket < 0 || coll_wait(c, ticket, err) < 0 || coll_device_quiesce(c, LONG_MS, err) < 0)
        return err->code;
    for (int i = 0; i < N; i++)
        if (m->grad[i] != (float)RANKS / 16 * 120)
            return err_set(err, ERR_CORRUPT, "sum %d is %g", i, (double)m->grad[i]);
    return 0;
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct coll *c = NULL;

    m->rc = open_device(m, &m->err);
    if (m->rc == 0)
        m->rc = form(m, &c, &m->err);
    if (m->rc == 0)
        m->rc = gather(m, c, &m->err);
    if (m->rc == 0)
        m->rc = sum(m, c, &m->err);
    if (m->rc < 0) /* the others would wait for this rank */
        fail_msg("rank %d: %s", m->rank, m->err.msg);
    coll_free(c);
    (void)cudaFree(m->grad);
    (void)cudaStreamDestroy(m->cuda.stream);
    return NULL;
}

static void start(struct member *m)
{
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    assert_int_equal(pthread_create(&m->thread, &attr, member_main, m), 0);
    pthread_attr_destroy(&attr);
}

static void all_ranks_of_the_largest_job(void **state)
{
    struct member *m = xcalloc(RANKS, sizeof *m);
    uint8_t *ids = xcalloc((size_t)coll_device_n_ids(RANKS), COLL_ID_BYTES);
    struct err err;

    (void)state;
    fake_reset();
    fake_fill_at_most(FILLED);
    assert_int_equal(coll_device_n_ids(RANKS), 32);
    assert_int_equal(coll_device_make_ids(&coll_nccl_ops, RANKS, ids, &err), 0);
    for (int r = 0; r < RANKS; r++) {
        m[r].rank = r;
        m[r].ids = ids;
        start(&m[r]);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(m[r].thread, NULL);
    assert_int_equal(fake_open_things(), 0);
    free(ids);
    free(m);
}

/* Tens of GiB are allocated and hardly touched: malloc must not fill them, as MALLOC_PERTURB_ of
 * the environment asks it to. */
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_ranks_of_the_largest_job)};

    mallopt(M_PERTURB, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
