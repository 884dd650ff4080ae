/* zero_overlap - while parameters that are divided travel between the ranks, the network computes.
 *
 * The all-gather of a bucket's parameters is started well before they are read: with stages 1 and 2
 * after the update, with stage 3 before the layers in front of them.  So at least one stage of the
 * network runs between the start and the wait.  The first layers of a step have none before them.
 *
 * The calls of rank 0 are counted, and nothing is timed. */
#include "../test.h"

#include "base/util.h"
#include "program/program.h"
#include "ranks.h"
#include "strategy/exchange.h"
#include "train/trainer_impl.h"
#include "zero_jobs.h"

enum { MOST_BUCKETS = 64, N_STEPS = 3 };

/* Blocks of two layers each, which are computed again; a layer is a bucket. */
#define BLOCK "residual: [linear: {units: 110}, tanh, linear: {units: 110}], "
#define BLOCKS                                                                               \
    "train: {global_batch: 24, recompute: blocks}\n"                                         \
    "data: {format: digits, samples: 72, validation_samples: 20}\n"                          \
    "model: {arch: layers, layers: [flatten, linear: {units: 110}, " BLOCK BLOCK BLOCK BLOCK \
    "linear: {units: 10}]}\n"

/* The calls of one rank. */
struct watch {
    int64_t n_stages;                 /* stages of the network that were run */
    int64_t started_at[MOST_BUCKETS]; /* n_stages when the all-gather was started; -1: it was not */
    struct {
        int has_run;                 /* a stage of the network has run */
        int n_overlapped, n_exposed; /* waits after, and without, a stage since the start */
    } step[N_STEPS];
    int now; /* the step under way */
};

static _Thread_local struct watch *watch; /* of rank 0's thread; NULL in the others */

static void note_start(int bucket)
{
    assert_in_range(bucket, 0, MOST_BUCKETS - 1);
    watch->started_at[bucket] = watch->n_stages;
}

static void note_wait(int bucket)
{
    const int64_t from = watch->started_at[bucket];

    watch->started_at[bucket] = -1;
    if (from < 0) /* for sums of gradients */
        return;
    if (watch->n_stages > from)
        watch->step[watch->now].n_overlapped++;
    else if (watch->step[watch->now].has_run)
        watch->step[watch->now].n_exposed++;
}

int __real_exchange_allgather_spans(struct exchange *x, int bucket, void *p, int64_t n,
                                    enum dtype dtype, struct err *err);
int __wrap_exchange_allgather_spans(struct exchange *x, int bucket, void *p, int64_t n,
                                    enum dtype dtype, struct err *err);
int __wrap_exchange_allgather_spans(struct exchange *x, int bucket, void *p, int64_t n,
                                    enum dtype dtype, struct err *err)
{
    if (watch)
        note_start(bucket);
    return __real_exchange_allgather_spans(x, bucket, p, n, dtype, err);
}

int __real_exchange_wait(struct exchange *x, int bucket, struct err *err);
int __wrap_exchange_wait(struct exchange *x, int bucket, struct err *err);
int __wrap_exchange_wait(struct exchange *x, int bucket, struct err *err)
{
    if (watch)
        note_wait(bucket);
    return __real_exchange_wait(x, bucket, err);
}

int __real_program_run_stage(struct program *p, int i, struct err *err);
int __wrap_program_run_stage(struct program *p, int i, struct err *err);
int __wrap_program_run_stage(struct program *p, int i, struct err *err)
{
    if (watch && program_n_sets(p) > 0) { /* other programs, such as the update, read no sets */
        watch->n_stages++;
        watch->step[watch->now].has_run = 1;
    }
    return __real_program_run_stage(p, i, err);
}

static void begin_step(void *arg, struct trainer *t, int64_t step)
{
    assert_in_range(t->layout->n_buckets, 8, MOST_BUCKETS);
    assert_in_range(step, 0, N_STEPS - 1);
    watch = arg;
    watch->now = (int)step;
}

/* The first step follows no update, and the last one is followed by the end of the epoch, which
 * waits for all parameters.  So only the steps between them count. */
static void test_parameters_travel_while_the_network_computes(void **state)
{
    static const struct {
        const char *job;
        int n_overlapped; /* at least so many waits of a step have a stage before them */
        int most;         /* at most so many; 0: any number */
    } cases[] = {
        {LARGE "train: {global_batch: 24}\n" ZERO, 6},
        {LARGE "train: {global_batch: 24}\n" ZERO_2, 6},
        {LARGE "train: {global_batch: 24}\n" ZERO_3, 12}, /* forward and backward */
        {LARGE HALF "train: {global_batch: 24}\n" ZERO, 6},
        {BLOCKS "optimizer: {lr: 0.1}\n" ZERO_2, 6},
        {BLOCKS "optimizer: {lr: 0.1}\n" ZERO_3, 15, 15}, /* once for both passes of a block */
        {BLOCKS "optimizer: {lr: 0.1, groups: [{match: \"1.*\", frozen: true}]}\n" ZERO, 6},
    };
    static struct run_result r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct watch w = {.now = 0};

        for (int b = 0; b < MOST_BUCKETS; b++)
            w.started_at[b] = -1;
        run_job_ok(&(struct run_plan){.job = cases[i].job,
                                      .n_ranks = 3,
                                      .n_epochs = 1,
                                      .bucket_bytes = SMALL_BUCKET,
                                      .on_step = begin_step,
                                      .arg = &w},
                   &r);
        watch = NULL;
        assert_int_equal(r.n_steps, N_STEPS);
        for (int s = 1; s < N_STEPS - 1; s++) {
            print_message("case %zu, step %d: %d waits overlap, %d do not\n", i, s,
                          w.step[s].n_overlapped, w.step[s].n_exposed);
            assert_int_equal(w.step[s].n_exposed, 0);
            assert_true(w.step[s].n_overlapped >= cases[i].n_overlapped);
            assert_true(cases[i].most == 0 || w.step[s].n_overlapped <= cases[i].most);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_travel_while_the_network_computes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
