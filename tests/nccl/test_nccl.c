/* Tests of coll/nccl over the fakes when no call fails: the order of its calls, the bytes that it
 * moves, what it refuses, and that nothing is left open.  test_stop.c tests failures. */
#include <sched.h>

#include "../coll/cases.h"
#include "base/alloc.h"
#include "coll/impl.h"
#include "rig.h"
#include "tensor/half.h"

/* ---- the happy path ---- */

static void steps_are_replayed(void **state)
{
    (void)state;
    for (int size = 2; size <= MAX_RANKS; size++) {
        struct job j = {0};

        fake_reset();
        job_run(&j, size);
        job_assert_fine(&j);
        for (int k = 0; k < size; k++)
            assert_int_equal(j.rank[k].n_applied, N_STEPS);
    }
}

/* The order of freeing: recordings, registered windows, the two communicators, the memory; nothing
 * is aborted. */
static void an_orderly_end(void **state)
{
    static const char *const words[] = {"ncclCommWindowRegister",
                                        "ncclCommAbort",
                                        "ncclCommWindowDeregister",
                                        "cudaGraphExecDestroy",
                                        "ncclCommFinalize",
                                        "ncclCommDestroy",
                                        "ncclMemFree",
                                        NULL};
    struct job j = {0};
    char *log, want[512] = "";
    const char *at;

    (void)state;
    job_run(&j, 2);
    job_assert_fine(&j);
    log = fake_log(words);
    for (int k = 0; k < 2; k++) {
        at = log;
        for (const char *const *w =
                 (const char *const[]){"ncclCommWindowRegister", "cudaGraphExecDestroy",
                                       "ncclCommWindowDeregister", "ncclCommFinalize",
                                       "ncclCommFinalize", "ncclCommDestroy", "ncclCommDestroy",
                                       "ncclMemFree", NULL};
             *w; w++) {
            snprintf(want, sizeof want, "%d:%s ", k, *w);
            at = strstr(at, want);
            if (!at)
                fail_msg("no %s in its place in %s", want, log);
            at += strlen(want);
        }
    }
    assert_null(strstr(log, "Abort"));
    free(log);
}

/* NCCL may succeed in registering and give no window: between GPUs that do not reach each other. */
static void windows_may_be_none(void **state)
{
    static const char *const words[] = {"ncclCommWindowRegister", "ncclCommWindowDeregister", NULL};
    struct job j = {0};
    char *log;

    (void)state;
    fake_windows(0);
    job_run(&j, 2);
    job_assert_fine(&j);
    log = fake_log(words);
    assert_non_null(strstr(log, "ncclCommWindowRegister"));
    assert_null(strstr(log, "ncclCommWindowDeregister"));
    free(log);
}

/* ---- memory of the host and of the device ---- */

static int move_bytes(struct rank *r, struct err *err)
{
    enum { BIG = (4 << 20) + 12345 };
    struct coll *c = r->job->coll[r->k];
    const int size = coll_size(c);
    uint8_t *x = xcalloc(BIG, 1), *all = xcalloc((size_t)size, BIG);
    int rc;

    memset(x, 10 + r->k, BIG);
    rc = coll_allgather(c, x, BIG, all, err);
    for (int k = 0; rc == 0 && k < size; k++)
        for (int i = 0; i < BIG; i++)
            assert_int_equal(all[(size_t)k * BIG + (size_t)i], 10 + k);
    if (rc == 0)
        rc = coll_broadcast(c, x, BIG, size - 1, err);
    for (int i = 0; rc == 0 && i < BIG; i++)
        assert_int_equal(x[i], 10 + size - 1);
    r->param[0] = (float)r->k; /* device memory, which the fake keeps in host memory */
    if (rc == 0)
        rc = coll_broadcast(c, r->param, sizeof(float), size - 1, err);
    assert_true(rc < 0 || r->param[0] == (float)(size - 1));
    r->param[0] = 0;
    free(x);
    free(all);
    return rc;
}

static void bytes_arrive(void **state)
{
    (void)state;
    for (int size = 2; size <= 3; size++) {
        struct job j = {.after = move_bytes};

        fake_reset();
        job_run(&j, size);
        job_assert_fine(&j);
    }
}

/* ---- the table of cases ---- */

static void *take_device(size_t n_bytes)
{
    void *p = NULL;

    assert_int_equal(cudaMalloc(&p, n_bytes), cudaSuccess);
    return p;
}

static void give_device(void *p) { assert_int_equal(cudaFree(p), cudaSuccess); }

static int finish_rank(void *arg, struct coll *c, struct err *err)
{
    return rank_finish_step(arg, c, err);
}

typedef int case_fn(struct coll *c, const struct ground *g, struct verdict *v);

/* At the end the ranks meet: in a chain the first rank is done long before the last, and a rank
 * that frees its communicator ends what the others have not begun. */
static int on_device(struct rank *r, case_fn *fn, struct err *err)
{
    static const int64_t sizes[] = {1000};
    const struct ground ground = {.take = take_device,
                                  .give = give_device,
                                  .finish = finish_rank,
                                  .arg = r,
                                  .dtypes = 1u << DTYPE_F32 | 1u << DTYPE_F64,
                                  .sizes = sizes,
                                  .n_sizes = ARRAY_LEN(sizes)};
    struct coll *c = r->job->coll[r->k];
    struct verdict v = {""};

    return fn(c, &ground, &v) ? err_set(err, ERR_NUMERIC, "%.200s", v.why) : rank_meet(c, err);
}

static int do_cases(struct rank *r, struct err *err) { return on_device(r, run_cases, err); }

static void every_collective(void **state)
{
    (void)state;
    for (int size = 2; size <= MAX_RANKS; size++) {
        struct job j = {.after = do_cases};

        fake_reset();
        job_run(&j, size);
        job_assert_fine(&j);
    }
}

/* The rig has run a sum on each channel, so the ranks are connected for sums: from then on the
 * order between the channels may differ. */
static int overtake(struct rank *r, struct err *err)
{
    return on_device(r, urgent_overtakes_bulk, err);
}

static void urgent_sums_overtake(void **state)
{
    (void)state;
    for (int size = 2; size <= MAX_RANKS; size++) {
        struct job j = {.after = overtake};

        fake_reset();
        job_run(&j, size);
        job_assert_fine(&j);
    }
}

/* Rank 0 sums on the bulk channel again and again while its urgent sum waits for rank 1. */
static int sum_beside(struct rank *r, struct err *err)
{
    struct coll *c = r->job->coll[r->k];
    float *x = take_device(BUCKET * sizeof *x);
    int64_t beside = 0, ticket;
    int rc = 0;

    x[0] = (float)(r->k + 1);
    if (r->k == 0)
        beside = coll_allreduce(c, COLL_URGENT, x, BUCKET, DTYPE_F32, 0, err);
    for (int i = 0; i < N_STEPS && rc == 0; i++) {
        r->grad[0] = 1.0f;
        ticket = coll_allreduce(c, COLL_BULK, r->grad, BUCKET, DTYPE_F32, 0, err);
        assert_int_equal(coll_wait(c, ticket, err), 0);
        rc = rank_finish_step(r, c, err);
        assert_true(r->grad[0] == 2.0f);
        if (r->k == 0)
            assert_int_equal(coll_device_passed(c, beside, err), 1);
    }
    r->job->n_there++;
    while (r->job->n_there < 2)
        sched_yield();
    if (r->k == 1)
        beside = coll_allreduce(c, COLL_URGENT, x, BUCKET, DTYPE_F32, 0, err);
    assert_int_equal(coll_device_passed(c, beside + COLL_CHANNELS, err), ERR_ARG);
    while (rc == 0 && (rc = coll_device_passed(c, beside, err)) == 1)
        rc = 0;
    assert_int_equal(rc, 0);
    assert_true(x[0] == 3.0f);
    assert_int_equal(coll_wait(c, beside, err), 0);
    if (rank_finish_step(r, c, err) < 0 || rank_meet(c, err) < 0)
        return err->code;
    give_device(x);
    return 0;
}

static void a_sum_runs_beside_steps(void **state)
{
    struct job j = {.after = sum_beside};

    (void)state;
    job_run(&j, 2);
    job_assert_fine(&j);
}

/* The tickets of the two channels are counted apart, and each is waited for on its own stream. */
static int tickets_of_two(struct rank *r, struct err *err)
{
    struct coll *c = r->job->coll[r->k];
    int64_t bulk, urgent, other;

    for (int i = 0; i < N_GRAD; i++)
        r->grad[i] = 1.0f;
    for (int i = 0; i < N_STATS; i++)
        r->stats[i] = 2.0;
    bulk = coll_allreduce(c, COLL_BULK, r->grad, BUCKET, DTYPE_F32, 0, err);
    urgent = coll_allreduce(c, COLL_URGENT, r->stats, N_STATS, DTYPE_F64, 0, err);
    other = coll_allreduce(c, COLL_BULK, r->grad + BUCKET, N_GRAD - BUCKET, DTYPE_F32, 0, err);
    assert_true(bulk > 0 && urgent > 0 && other == bulk + COLL_CHANNELS && urgent != bulk);
    assert_int_equal(coll_wait(c, urgent + COLL_CHANNELS, err), ERR_ARG);
    assert_int_equal(coll_wait(c, urgent, err), 0);
    assert_int_equal(coll_wait(c, other, err), 0);
    if (rank_finish_step(r, c, err) < 0)
        return err->code;
    assert_true(r->stats[N_STATS - 1] == 4.0 && r->grad[N_GRAD - 1] == 2.0f);
    return rank_meet(c, err);
}

static void channels_count_apart(void **state)
{
    struct job j = {.after = tickets_of_two};

    (void)state;
    job_run(&j, 2);
    job_assert_fine(&j);
}

/* Overlap: the backend's work behind an all-reduce does not wait for it until coll_wait. */
static int overlap(struct rank *r, struct err *err)
{
    struct coll *c = r->job->coll[r->k];
    int64_t ticket;

    r->n_computed = 0;
    fake_kernel(r->cuda.stream, rank_compute, r);
    if (r->k == 0) { /* rank 1 joins the all-reduce only after rank 0 has gone on */
        ticket = coll_allreduce(c, COLL_BULK, r->grad, BUCKET, DTYPE_F32, 0, err);
        fake_kernel(r->cuda.stream, rank_compute_more, r);
        if (rank_finish_step(r, c, err) < 0)
            return err->code;
        assert_true(r->grad[N_GRAD - 1] == 1.0f);
        assert_true(r->grad[0] == 1.0f); /* not yet summed */
        r->job->n_there++;
    } else {
        while (!r->job->n_there)
            sched_yield();
        ticket = coll_allreduce(c, COLL_BULK, r->grad, BUCKET, DTYPE_F32, 0, err);
    }
    if (ticket < 0 || coll_wait(c, ticket, err) < 0 || rank_finish_step(r, c, err) < 0)
        return err->code;
    assert_true(r->grad[0] == 3.0f);
    return 0;
}

static void all_reduces_overlap(void **state)
{
    struct job j = {.after = overlap};

    (void)state;
    job_run(&j, 2);
    job_assert_fine(&j);
}

/* In each type 1 is the last place's half of the large number, so it is lost each time that it is
 * added. */
static int sum_halves(struct rank *r, struct err *err)
{
    static const struct {
        enum dtype type;
        float large;
    } rows[] = {{DTYPE_BF16, 256}, {DTYPE_F16, 2048}};
    struct coll *c = r->job->coll[r->k];

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const float sent[] = {r->k == 0 ? rows[i].large : 1, 0.5f + (float)r->k};
        int64_t ticket;

        for (int e = 0; e < 2; e++)
            real_put(r->grad, rows[i].type, e, sent[e]);
        ticket = coll_allreduce(c, COLL_BULK, r->grad, 2, rows[i].type, 0, err);
        if (ticket < 0 || coll_wait(c, ticket, err) < 0 || rank_finish_step(r, c, err) < 0)
            return err->code;
        assert_true(real_get(r->grad, rows[i].type, 0) == rows[i].large);
        assert_true(real_get(r->grad, rows[i].type, 1) == 4.5f);
    }
    return rank_meet(c, err);
}

static void halves_are_summed(void **state)
{
    struct job j = {.after = sum_halves};

    (void)state;
    job_run(&j, 3);
    job_assert_fine(&j);
}

static int bad_arguments(struct rank *r, struct err *err)
{
    struct coll *c = r->job->coll[r->k];
    struct coll_stats s;

    assert_int_equal(coll_allreduce(c, COLL_BULK, r->grad, 8, DTYPE_I32, 0, err), ERR_ARG);
    assert_int_equal(coll_wait(c, 1000, err), ERR_ARG);
    assert_true(coll_allreduce(c, COLL_BULK, r->grad, 8, DTYPE_BF16, 0, err) > 0);
    assert_true(coll_allreduce(c, COLL_BULK, r->grad, 8, DTYPE_F16, 0, err) > 0);
    assert_true(coll_allreduce(c, COLL_BULK, r->grad, 0, DTYPE_F32, 0, err) > 0);
    coll_stats(c, &s);
    assert_int_equal(s.n_calls, 3 + 1 + 3); /* warming up: two sums, an all-gather; a broadcast */
    assert_true(coll_is_device(c));
    assert_string_equal(c->kind, "nccl");
    return rank_meet(c, err);
}

static void never_stuck(void *arg, const char *text)
{
    (void)arg;
    fail_msg("%s", text);
}

static void arguments_are_checked(void **state)
{
    struct coll_device_options o = {
        .rank = 0, .size = 300, .name = "x/1", .stop_ms = 1, .stuck = never_stuck};
    struct job j = {.after = bad_arguments};
    struct cuda cuda = {.device = 0};
    uint8_t ids[3 * COLL_ID_BYTES] = {0};
    struct coll *c;
    struct err err;

    (void)state;
    job_run(&j, 2);
    job_assert_fine(&j);
    assert_int_equal(coll_device_n_ids(1), 1);
    assert_int_equal(coll_device_n_ids(128), 1);
    assert_int_equal(coll_device_n_ids(129), 2);
    assert_int_equal(coll_device_n_ids(4096), 32);
    assert_int_equal(coll_device_n_ids(65536), 32); /* else all ranks were sent the more bytes */
    assert_int_equal(coll_device_new(&coll_nccl_ops, &cuda.base, &o, &c, &err), 0);
    assert_int_equal(coll_device_connect(c, ids, 2 * COLL_ID_BYTES, 1, &err), ERR_PROTO);
    assert_non_null(strstr(err.msg, "256 bytes of nccl's ids, want 3 of 128 bytes for 300 ranks"));
    coll_free(c);
    o.rank = 300;
    assert_int_equal(coll_device_new(&coll_nccl_ops, &cuda.base, &o, &c, &err), ERR_ARG);
    o.rank = 0;
    o.size = 1;
    assert_int_equal(coll_device_new(&coll_nccl_ops, &cuda.base, &o, &c, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "rank 0 of 1, want one of two or more"));
    assert_int_equal(fake_open_things(), 0);
}

/* The error of ncclMemAlloc alone does not say what to do; ours does. */
static void memory_may_be_short(void **state)
{
    static const struct {
        double room_mib, wanted_mib;
        int fails_at;
        int code;
        const char *says;
    } rows[] = {
        {1, 3, 0, ERR_NOMEM,
         "gradients needs 3.0 MiB of GPU memory, 1.0 of 256.0 MiB are free: a smaller batch"},
        {3, 2.5, 0, ERR_NOMEM, "gradients needs 2.5 MiB of GPU memory, 3.0 of 256.0 MiB are free"},
        {66, 3, 1, ERR_NOMEM, "gradients needs 3.0 MiB of GPU memory, 66.0 of 256.0 MiB are free"},
        {67, 3, 1, ERR_DEVICE, "gradients (3.0 MiB; NCCL_CUMEM_ENABLE=0 in every rank's"},
        {4, 3, 0, 0, ""},
    };
    struct cuda cuda = {.device = 0};
    struct err err = {0};
    void *p;

    (void)state;
    assert_int_equal(cudaStreamCreateWithFlags(&cuda.stream, cudaStreamNonBlocking), cudaSuccess);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const size_t n_bytes = (size_t)(rows[i].wanted_mib * 0x1p20);

        fake_room((size_t)(rows[i].room_mib * 0x1p20));
        fake_fail_at(0, rows[i].fails_at);
        assert_int_equal(
            coll_device_alloc(&coll_nccl_ops, &cuda.base, n_bytes, "gradients", &p, &err),
            rows[i].code);
        if (!strstr(err.msg, rows[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.msg, rows[i].says);
    }
    coll_device_free(&coll_nccl_ops, &cuda.base, p);
    assert_int_equal(cudaStreamDestroy(cuda.stream), cudaSuccess);
    assert_int_equal(fake_open_things(), 0);
}

/* The queued work does not end, and nobody aborts: quiesce itself gives up in time. */
static int leave_early(struct rank *r, struct err *err)
{
    struct coll *c = r->job->coll[r->k];
    int rc = rank_record_step(r, c, err);

    if (rc == 0 && r->k == 0)
        rc = rank_launch(r, err);
    return rc;
}

/* The same with a sum on the urgent channel for which nothing waits. */
static int leave_a_sum(struct rank *r, struct err *err)
{
    int64_t ticket = 0;

    if (r->k == 0)
        ticket = coll_allreduce(r->job->coll[0], COLL_URGENT, r->stats, N_STATS, DTYPE_F64, 0, err);
    return ticket < 0 ? (int)ticket : 0;
}

static void quiesce_has_a_deadline(void **state)
{
    static int (*const after[])(struct rank * r, struct err * err) = {leave_early, leave_a_sum};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(after); i++) {
        struct job j = {.after = after[i], .finish_ms = 100};

        fake_reset();
        job_run(&j, 2);
        assert_int_equal(j.rank[0].rc, 0);
        assert_int_equal(j.rank[0].quiesced, ERR_TIMEOUT);
        assert_int_equal(j.rank[0].n_applied, 0);
        assert_int_equal(j.rank[1].quiesced, 0);
        assert_int_equal(fake_open_things(), 0);
    }
}

/* The driver aborted before a rank connects.  Then NCCL is not called at all. */
static void a_canceled_rank_does_not_connect(void **state)
{
    static const char *const words[] = {"ncclCommInitRankScalable", NULL};
    struct job j = {0};
    char *log;

    (void)state;
    job_begin(&j, 2);
    job_abort(&j);
    job_run(&j, 2);
    log = fake_log(words);
    assert_string_equal(log, "");
    free(log);
    for (int k = 0; k < 2; k++)
        assert_int_equal(j.rank[k].err.code, ERR_CANCELED);
    assert_int_equal(j.n_stuck, 0);
    assert_int_equal(fake_open_things(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(steps_are_replayed, job_setup),
        cmocka_unit_test_setup(an_orderly_end, job_setup),
        cmocka_unit_test_setup(windows_may_be_none, job_setup),
        cmocka_unit_test_setup(bytes_arrive, job_setup),
        cmocka_unit_test_setup(every_collective, job_setup),
        cmocka_unit_test_setup(urgent_sums_overtake, job_setup),
        cmocka_unit_test_setup(a_sum_runs_beside_steps, job_setup),
        cmocka_unit_test_setup(channels_count_apart, job_setup),
        cmocka_unit_test_setup(all_reduces_overlap, job_setup),
        cmocka_unit_test_setup(halves_are_summed, job_setup),
        cmocka_unit_test_setup(arguments_are_checked, job_setup),
        cmocka_unit_test_setup(memory_may_be_short, job_setup),
        cmocka_unit_test_setup(quiesce_has_a_deadline, job_setup),
        cmocka_unit_test_setup(a_canceled_rank_does_not_connect, job_setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
