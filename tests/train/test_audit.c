/* Wrong bits are found, the right rank is named, and what can be mended is mended; runs without a
 * fault tell of none. */
#include "../test.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "ranks.h"
#include "train/trainer_impl.h"
#include "zero_jobs.h"

#define DATA "data: {format: digits, samples: 240, validation_samples: 20}\n"
#define MLP  "model: {arch: mlp, hidden: [24, 16]}\n" DATA
#define ADAM "optimizer: {name: adamw, lr: 0.002}\n"
#define HEAL "cluster: {on_divergence: heal}\n"

/* 10 steps, all of which are compared. */
#define JOB MLP ADAM "train: {global_batch: 24, replica_check: 1}\n"

static void assert_found(const struct run_result *r, int i, int64_t step, int rank, int is_proven)
{
    assert_true(i < r->n_found);
    assert_int_equal(r->found[i].step, step);
    assert_int_equal(r->found[i].rank, rank);
    assert_int_equal(r->found[i].is_proven, is_proven);
}

/* ---- replicas ---- */

/* A flipped bit of the state of one of 3 or 5 ranks: most ranks are right, and after the step in
 * which it flipped all have the bits of an undisturbed run again.  State and sums were equal before
 * the update, unless it is the sum in which the bit flipped. */
static void test_a_minority_takes_the_state_of_the_majority(void **state)
{
    static const char *const kinds[] = {"param0", "slot0", "reduced0"};
    static struct run_result clean, hurt;

    (void)state;
    for (int n = 3; n <= 5; n += 2) {
        struct run_plan plan = {.job = JOB HEAL, .n_ranks = n, .n_epochs = 1};

        run_job_ok(&plan, &clean);
        assert_int_equal(clean.n_found, 0);
        assert_int_equal(clean.n_steps, 10);
        for (int i = 0; i < 2 * (int)ARRAY_LEN(kinds); i++) {
            const int rank = i % 2 ? n - 1 : 0;
            char inject[64];

            if (!is_run(i))
                continue;
            snprintf(inject, sizeof inject, "flip:rank%d@step4:%s", rank, kinds[i / 2]);
            plan.inject = inject;
            run_job_ok(&plan, &hurt);
            assert_non_null(strstr(hurt.injected, "the sign bit of element"));
            assert_int_equal(hurt.n_found, 1);
            assert_found(&hurt, 0, i / 2 < 2 ? 4 : 5, rank, 1);
            assert_int_equal(hurt.found[0].what, i / 2 < 2 ? CORRUPTION_UPDATE : CORRUPTION_STATE);
            assert_true(hurt.found[0].is_healed && !hurt.found[0].ends);
            assert_true(*hurt.found[0].tensor);
            assert_true(i / 2 > 0 || strstr(hurt.injected, hurt.found[0].tensor));
            assert_true(hash_equal(hurt.replica[0], clean.replica[0]));
        }
    }
}

/* The event names the tensor whose bit flipped. */
static void test_the_tensor_is_named(void **state)
{
    static struct run_result r;
    char *name;

    (void)state;
    run_job_ok(
        &(struct run_plan){
            .job = JOB HEAL, .n_ranks = 3, .n_epochs = 1, .inject = "flip:rank1@step2:slot0"},
        &r);
    name = xasprintf(" of %s, ", r.found[0].tensor);
    assert_non_null(strstr(r.injected, name));
    assert_non_null(strstr(name, ".exp_avg"));
    free(name);
}

/* Of two ranks nobody knows which one is right: both are named, and the run ends. */
static void test_of_two_ranks_both_are_named(void **state)
{
    static struct run_result r;

    (void)state;
    run_job(
        &(struct run_plan){
            .job = JOB HEAL, .n_ranks = 2, .n_epochs = 1, .inject = "flip:rank1@step4:param0"},
        &r);
    assert_int_equal(r.n_found, 2);
    for (int k = 0; k < 2; k++) {
        assert_found(&r, k, 4, k, 0);
        assert_int_equal(r.found[k].what, CORRUPTION_UPDATE);
        assert_false(r.found[k].is_healed);
        assert_int_equal(r.found[k].ends, k == 1);
        assert_int_equal(r.rc[k], ERR_CANCELED);
        assert_int_equal(r.step[k], 5);
    }
}

/* Without cluster.on_divergence heal the run ends at the comparison that finds the difference. */
static void test_stop(void **state)
{
    static struct run_result r;

    (void)state;
    run_job(
        &(struct run_plan){
            .job = JOB, .n_ranks = 3, .n_epochs = 1, .inject = "flip:rank2@step6:param0"},
        &r);
    assert_int_equal(r.n_found, 1);
    assert_found(&r, 0, 6, 2, 1);
    assert_true(r.found[0].ends && !r.found[0].is_healed);
    for (int k = 0; k < 3; k++)
        assert_int_equal(r.rc[k], ERR_CANCELED);
}

/* Another rank is lost in any collective of the run.  A rank that was told of and does not hold the
 * state of the others fails by itself, so that nobody goes on from its state; one that has taken
 * that state does not. */
static void test_a_rank_that_was_not_mended_fails(void **state)
{
    static const char job[] =
        MLP ADAM "train: {global_batch: 24, replica_check: 1, max_steps: 3}\n" HEAL;
    static struct run_result r;
    int n_failed = 0, n_mended = 0;

    (void)state;
    for (int channel = 0; channel < COLL_CHANNELS; channel++)
        for (int64_t ticket = 1;; ticket++) {
            int is_wrong;

            run_job(&(struct run_plan){.job = job,
                                       .n_ranks = 4,
                                       .n_epochs = 1,
                                       .inject = "flip:rank1@step1:param0",
                                       .fault = {.channel = (enum coll_channel)channel,
                                                 .at_ticket = ticket,
                                                 .fail = ERR_DEVICE}},
                    &r);
            if (r.rc[3] == 0)
                break; /* there are no more collectives */
            if (r.n_found == 0)
                continue;
            is_wrong = !hash_equal(r.held[1], r.held[0]);
            assert_int_equal(r.rc[1] == ERR_DEVICE, is_wrong);
            assert_true(!is_wrong || strstr(r.err[1].msg, "this rank holds a wrong state"));
            n_failed += is_wrong;
            n_mended += !is_wrong;
        }
    assert_true(n_failed > 0 && n_mended > 0);
}

/* Steps that are not compared: the epoch's end finds the difference, and mends it. */
static void test_an_epochs_end_mends(void **state)
{
    static const char job[] = MLP ADAM "train: {global_batch: 24, replica_check: 0}\n" HEAL;
    static struct run_result r;

    (void)state;
    run_job_ok(
        &(struct run_plan){
            .job = job, .n_ranks = 3, .n_epochs = 1, .inject = "flip:rank1@step4:param0"},
        &r);
    assert_int_equal(r.n_found, 1);
    assert_found(&r, 0, 10, 1, 1);
    assert_int_equal(r.found[0].what, CORRUPTION_STATE);
    assert_true(r.found[0].is_healed);
}

/* Nothing is found where nothing is wrong, whatever the ranks do with their state. */
static void test_nothing_is_found_in_a_healthy_run(void **state)
{
    static const char *const jobs[] = {
        "strategy: {compress: uint8}\n",
        "strategy: {name: bytegrad}\n",
        "strategy: {shards: 4}\n",
        "strategy: {zero: 1}\n",
        "strategy: {zero: 2}\n",
        "strategy: {zero: 3}\n",
        "strategy: {compress: powersgd}\n",
        "strategy: {name: local_sgd}\n",
        "strategy: {name: adasum}\n",
        "precision: bfloat16\n",
    };
    static const char *const norms[] = {"true", "false"};
    static struct run_result r;
    char job[640];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(jobs) + ARRAY_LEN(norms); i++) {
        const int is_norm = i >= ARRAY_LEN(jobs);

        if (!is_run((int)i))
            continue;
        if (is_norm)
            snprintf(
                job, sizeof job,
                "model: {arch: mlp, hidden: [24], batch_norm: true, sync_batch_norm: %s}\n" DATA
                    ADAM "train: {global_batch: 24, accumulate: 2, replica_check: 1, "
                "average: {name: ema}}\n" HEAL,
                norms[i - ARRAY_LEN(jobs)]);
        else
            snprintf(job, sizeof job, "%s%s" HEAL, JOB, jobs[i]);
        run_job_ok(&(struct run_plan){.job = job, .n_ranks = 3, .n_epochs = 2}, &r);
        if (r.n_found != 0)
            fail_msg("%s: rank %d is said to differ after step %d", job, r.found[0].rank,
                     (int)r.found[0].step);
    }
}

/* A fault in a network with running statistics of each rank's own: these make no difference. */
static void test_own_statistics_are_no_difference(void **state)
{
    static const char job[] =
        "model: {arch: mlp, hidden: [24], batch_norm: true, sync_batch_norm: false}\n" DATA
        "train: {global_batch: 24, replica_check: 1}\n" HEAL;
    static struct run_result r;

    (void)state;
    run_job_ok(
        &(struct run_plan){
            .job = job, .n_ranks = 3, .n_epochs = 1, .inject = "flip:rank2@step3:param0"},
        &r);
    assert_int_equal(r.n_found, 1);
    assert_found(&r, 0, 3, 2, 1);
    assert_non_null(strstr(r.injected, r.found[0].tensor));
}

/* Notes of each step whether the replicas are compared once so many steps are done. */
static void note_compared(void *arg, struct trainer *t, int64_t step)
{
    int *is_compared = arg;

    is_compared[step + 1] = inspect_compares_after(t, step + 1);
}

/* A comparison that comes steps after the flip does not blame the update. */
static void test_a_late_comparison_blames_the_state(void **state)
{
    static const char job[] = MLP ADAM "train: {global_batch: 24, replica_check: 0.4}\n" HEAL;
    static struct run_result r;
    struct run_plan plan = {.job = job, .n_ranks = 3, .n_epochs = 1, .on_step = note_compared};
    int is_compared[12] = {0}, flip = 0, found;
    char inject[64];

    (void)state;
    plan.arg = is_compared;
    run_job_ok(&plan, &r);
    while (is_compared[flip + 1])
        flip++;
    found = flip + 2;
    while (!is_compared[found])
        found++;
    assert_true(found <= 10);
    snprintf(inject, sizeof inject, "flip:rank1@step%d:param0", flip);
    plan.inject = inject;
    run_job_ok(&plan, &r);
    assert_int_equal(r.n_found, 1);
    assert_found(&r, 0, found, 1, 1);
    assert_int_equal(r.found[0].what, CORRUPTION_STATE);
}

/* An optimizer without slots: the sums of the owner and of its buddy are all that can differ, as
 * the owner's parameters go to all ranks. */
static void test_wrong_sums_are_found_without_slots(void **state)
{
    static const char *const stages[] = {ZERO, ZERO_2, ZERO_3};
    static struct run_result r;
    char job[512];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(stages); i++) {
        snprintf(job, sizeof job, MLP "train: {global_batch: 24, replica_check: 1}\n%s", stages[i]);
        run_job_ok(&(struct run_plan){.job = job, .n_ranks = 3, .n_epochs = 1}, &r);
        assert_int_equal(r.n_found, 0);
        run_job(
            &(struct run_plan){
                .job = job, .n_ranks = 3, .n_epochs = 1, .inject = "flip:rank1@step4:reduced0"},
            &r);
        assert_int_equal(r.n_found, 2);
        for (int k = 0; k < 2; k++) {
            assert_found(&r, k, 5, 1 + k, 0);
            assert_int_equal(r.found[k].what, CORRUPTION_STATE);
            assert_int_equal(r.found[k].ends, k == 1);
        }
        assert_int_equal(r.rc[0], ERR_CANCELED);
    }
}

/* ---- gradients and samples ---- */

#define AUDIT "train: {global_batch: 24, audit: 1, replica_check: 1}\n"
#define CALM  "train: {global_batch: 24, replica_check: 0}\n"

/* A flipped bit of a gradient or a sample on one of 2, 3 or 5 ranks, with each strategy that
 * audits: the rank is named, the step is computed again, and the run has the bits of an undisturbed
 * one, audited or not. */
static void test_wrong_gradients_are_never_applied(void **state)
{
    static const char *const jobs[] = {
        "",
        "strategy: {shards: 8}\n",
        "strategy: {compress: uint8}\n",
        "strategy: {compress: powersgd}\n",
        "strategy: {name: bytegrad}\n",
        "strategy: {name: adasum}\n",
        "strategy: {zero: 1}\n",
        "strategy: {zero: 2}\n",
        "strategy: {zero: 3}\n",
        "strategy: {zero: 3}\nprecision: bfloat16\n",
    };
    static const int sizes[] = {2, 3, 5};
    static struct run_result plain, hurt;
    char job[512], inject[64];

    (void)state;
    for (int i = 0; i < (int)(ARRAY_LEN(jobs) * ARRAY_LEN(sizes)); i++) {
        const int n = sizes[i % 3], rank = i % n, is_batch = i % 2;
        struct run_plan plan = {.job = job, .n_ranks = n, .n_epochs = 1};

        if (!is_run(i))
            continue;
        snprintf(job, sizeof job, MLP ADAM CALM "%s", jobs[i / 3]);
        run_job_ok(&plan, &plain);
        snprintf(job, sizeof job, MLP ADAM AUDIT "%s", jobs[i / 3]);
        snprintf(inject, sizeof inject, "flip:rank%d@step4:%s", rank,
                 is_batch ? "batch" : "bucket0");
        plan.inject = inject;
        run_job_ok(&plan, &hurt);
        assert_string_equal(hurt.warning, "");
        assert_int_equal(hurt.n_found, 1);
        assert_found(&hurt, 0, 4, rank, 1);
        assert_int_equal(hurt.found[0].what, is_batch ? CORRUPTION_BATCH : CORRUPTION_GRADIENT);
        assert_int_equal(hurt.found[0].share, rank);
        assert_true(hurt.found[0].is_healed && hurt.found[0].leaves && !hurt.found[0].ends);
        assert_true(is_batch || strstr(hurt.injected, hurt.found[0].tensor));
        if (!hash_equal(hurt.replica[0], plain.replica[0]))
            fail_msg("%s%s: other bits than without a fault", job, inject);
    }
}

/* Micro-batches, an epoch's shorter last step, and batch norm by each rank's own samples or by
 * those of all ranks. */
static void test_micro_batches_are_audited(void **state)
{
    static const char job[] =
        "model: {arch: mlp, hidden: [24], batch_norm: true, sync_batch_norm: %s, "
        "dropout: 0.2}\ndata: {format: digits, samples: 230, validation_samples: 20}\n" ADAM
        "train: {global_batch: 24, accumulate: 3, audit: %d}\n%s";
    static const char *const more[] = {"",
                                       "strategy: {shards: 3}\n",
                                       "strategy: {zero: 1}\n",
                                       "strategy: {zero: 2}\n",
                                       "strategy: {zero: 3}\n",
                                       "precision: bfloat16\n"};
    static struct run_result r[2];
    char text[512];

    (void)state;
    for (int s = 0; s < 2 * (int)ARRAY_LEN(more); s++) {
        const int is_synced = s % 2 && !strstr(more[s / 2], "shards");
        const char *const inject = s % 3 ? "flip:rank2@step9:bucket0" : "flip:rank2@step9:batch";

        for (int audits = 0; audits < 2; audits++) {
            snprintf(text, sizeof text, job, is_synced ? "true" : "false", audits, more[s / 2]);
            run_job_ok(
                &(struct run_plan){
                    .job = text, .n_ranks = 3, .n_epochs = 2, .inject = audits ? inject : NULL},
                &r[audits]);
            assert_int_equal(r[audits].n_found, audits);
        }
        assert_string_equal(r[1].warning, "");
        assert_found(&r[1], 0, 9, 2, 1);
        assert_true(hash_equal(r[0].replica[0], r[1].replica[0]));
    }
}

/* A rank that computes wrongly again and again fails, with no update made, so that it is replaced.
 */
static void test_a_rank_that_is_always_wrong_fails(void **state)
{
    static const char flip[] = "flip:rank1@step4:bucket0";
    static const char *const jobs[] = {MLP ADAM AUDIT, MLP ADAM AUDIT ZERO_2,
                                       MLP ADAM AUDIT ZERO_3};
    static struct run_result r;
    char inject[4 * sizeof flip];

    (void)state;
    snprintf(inject, sizeof inject, "%s,%s,%s", flip, flip, flip);
    for (int i = 0; i < 2 * (int)ARRAY_LEN(jobs); i++) {
        const int n = 2 + i % 2;

        run_job(
            &(struct run_plan){.job = jobs[i / 2], .n_ranks = n, .n_epochs = 1, .inject = inject},
            &r);
        assert_int_equal(r.n_found, 1);
        assert_found(&r, 0, 4, 1, 1);
        assert_false(r.found[0].is_healed || r.found[0].leaves || r.found[0].ends);
        for (int k = 0; k < n; k++) {
            assert_int_equal(r.rc[k], k == 1 ? ERR_DEVICE : ERR_CANCELED);
            assert_int_equal(r.step[k], 4);
        }
    }
}

/* Such a rank ends the others' collectives.  So it waits until all have heard the last votes, also
 * rank 0, which reports the verdict, behind a slow link.  That wait is the first collective in
 * which a loss changes nothing. */
static void test_the_last_votes_are_heard(void **state)
{
    static const char inject[] =
        "flip:rank1@step0:bucket0,flip:rank1@step0:bucket0,flip:rank1@step0:bucket0";
    static struct run_result r;
    struct run_plan plan = {.job = MLP ADAM AUDIT, .n_ranks = 3, .n_epochs = 1, .inject = inject};
    struct coll_fault *fault = &plan.own_fault;

    (void)state;
    *fault = (struct coll_fault){.channel = COLL_BULK, .fail = ERR_DEVICE};
    for (r.n_found = 0; r.n_found == 0;) {
        fault->at_ticket++;
        run_job(&plan, &r);
    }
    *fault =
        (struct coll_fault){.channel = COLL_BULK, .at_ticket = fault->at_ticket - 1, .lag_ms = 300};
    run_job(&plan, &r);
    assert_int_equal(r.n_found, 1);
    assert_found(&r, 0, 0, 1, 1);
    for (int k = 0; k < 3; k++)
        assert_int_equal(r.rc[k], k == 1 ? ERR_DEVICE : ERR_CANCELED);
}

/* Many buckets share a little memory, and the next one's parameters are under way while one is
 * computed.  The flip is in the last bucket that the backward pass fills. */
static void test_buckets_that_come_and_go_are_audited(void **state)
{
    static const char *const plain[] = {LARGE CALM ZERO_2, LARGE CALM ZERO_3};
    static const char *const jobs[] = {LARGE AUDIT ZERO_2, LARGE AUDIT ZERO_3};
    static struct run_result r[2];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        struct run_plan plan = {.n_ranks = 3, .n_epochs = 2, .bucket_bytes = SMALL_BUCKET};

        plan.job = plain[i];
        run_job_ok(&plan, &r[0]);
        plan.job = jobs[i];
        plan.inject = "flip:rank1@step2:bucket7,flip:rank2@step4:bucket0";
        run_job_ok(&plan, &r[1]);
        assert_int_equal(r[1].n_found, 2);
        assert_found(&r[1], 0, 2, 1, 1);
        assert_found(&r[1], 1, 4, 2, 1);
        assert_true(hash_equal(r[0].replica[0], r[1].replica[0]));
    }
}

/* The last of three ranks has another number of threads, so nobody computes its share, and it
 * computes nobody's.  It takes part in all else, and the other two find each other's faults. */
static void test_a_rank_that_is_alone_attends(void **state)
{
    static const char *const jobs[] = {MLP ADAM AUDIT, MLP ADAM AUDIT ZERO_2,
                                       MLP ADAM AUDIT ZERO_3};
    static struct run_result r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        run_job_ok(&(struct run_plan){.job = jobs[i],
                                      .n_ranks = 3,
                                      .n_epochs = 1,
                                      .last_threads = 2,
                                      .inject = "flip:rank1@step4:bucket0"},
                   &r);
        assert_non_null(strstr(r.warning, "train.audit: 1 of 3 ranks, first rank 2 ("));
        assert_non_null(
            strstr(r.warning, ", 2 threads), have a processor, libraries or a number "));
        assert_int_equal(r.n_found, 1);
        assert_found(&r, 0, 4, 1, 1);
        assert_true(r.found[0].is_healed && *r.found[0].tensor);
    }
}

/* Where no rank can compute another one's share, the start says so. */
static void test_what_cannot_be_audited_is_told(void **state)
{
    static const struct {
        const char *job, *why;
        int n_ranks;
    } cases[] = {
        {MLP, "there is only one rank", 1},
        {MLP "strategy: {name: local_sgd}\n", "parameters differ between two meetings", 2},
    };
    static struct run_result r;
    char job[512];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(job, sizeof job, "%strain: {global_batch: 24, max_steps: 2, audit: 1}\n",
                 cases[i].job);
        run_job_ok(&(struct run_plan){.job = job, .n_ranks = cases[i].n_ranks, .n_epochs = 1}, &r);
        if (!strstr(r.warning, "train.audit is 1, and no gradient is audited") ||
            !strstr(r.warning, cases[i].why))
            fail_msg("%s: warns %s", job, r.warning);
        assert_int_equal(r.n_found, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_minority_takes_the_state_of_the_majority),
        cmocka_unit_test(test_the_tensor_is_named),
        cmocka_unit_test(test_of_two_ranks_both_are_named),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_a_rank_that_was_not_mended_fails),
        cmocka_unit_test(test_an_epochs_end_mends),
        cmocka_unit_test(test_nothing_is_found_in_a_healthy_run),
        cmocka_unit_test(test_own_statistics_are_no_difference),
        cmocka_unit_test(test_a_late_comparison_blames_the_state),
        cmocka_unit_test(test_wrong_sums_are_found_without_slots),
        cmocka_unit_test(test_wrong_gradients_are_never_applied),
        cmocka_unit_test(test_micro_batches_are_audited),
        cmocka_unit_test(test_a_rank_that_is_always_wrong_fails),
        cmocka_unit_test(test_the_last_votes_are_heard),
        cmocka_unit_test(test_buckets_that_come_and_go_are_audited),
        cmocka_unit_test(test_a_rank_that_is_alone_attends),
        cmocka_unit_test(test_what_cannot_be_audited_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
