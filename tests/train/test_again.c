/* Ranks that form again compare what they hold before one of them is the source of all. */
#include "../test.h"

#include "base/util.h"
#include "ranks.h"
#include "state/loop.h"
#include "train/trainer_impl.h"

#define MLP  "model: {arch: mlp, hidden: [24, 16]}\n"
#define DATA "data: {format: digits, samples: 240, validation_samples: 20}\n"
#define ADAM "optimizer: {name: adamw, lr: 0.002}\n"
#define HEAL "cluster: {on_divergence: heal}\n"
/* 10 steps; the seed draws none of them for a comparison. */
#define RARE "train: {global_batch: 24, replica_check: 1e-9, audit: 1e-9}\n"
#define JOB  MLP DATA ADAM RARE

static void assert_found(const struct run_result *r, int i, int64_t step, int rank, int is_proven)
{
    assert_true(i < r->n_found);
    assert_int_equal(r->found[i].step, step);
    assert_int_equal(r->found[i].rank, rank);
    assert_int_equal(r->found[i].is_proven, is_proven);
    assert_int_equal(r->found[i].what, CORRUPTION_STATE);
}

/* A bit of rank `wrong` (-1: of none) flips after a step that is not compared; then the last rank
 * is lost, and the ranks form again, from the state of rank 0. */
static void form_again(const char *job, int n, int wrong, struct run_lives *lives,
                       struct run_result *r)
{
    char inject[64];

    snprintf(inject, sizeof inject, "flip:rank%d@step4:param0", wrong);
    run_job(&(struct run_plan){.job = job,
                               .n_ranks = n,
                               .n_epochs = 1,
                               .inject = wrong < 0 ? NULL : inject,
                               .fault = {.channel = COLL_BULK, .at_ticket = 13, .fail = ERR_DEVICE},
                               .lives = lives},
            r);
    assert_in_range(lives->step[0], 5, 9);
}

/* Nobody takes a state from which most of the ranks that hold this step differ. */
static void test_a_wrong_state_is_not_spread(void **state)
{
    static struct run_lives lives;
    static struct run_result r;

    (void)state;
    for (int wrong = 0; wrong < 3; wrong++) {
        const int good = wrong == 0 ? 1 : 0;

        lives = (struct run_lives){.n_back = 0};
        form_again(JOB HEAL, 4, wrong, &lives, &r);
        assert_int_equal(r.n_found, 1);
        assert_found(&r, 0, lives.step[0], wrong, 1);
        assert_true(r.found[0].is_healed && *r.found[0].tensor);
        assert_memory_not_equal(lives.before[wrong], lives.before[good],
                                sizeof(float) * (size_t)lives.n);
        for (int k = 0; k < 4; k++) {
            assert_int_equal(r.rc[k], 0);
            assert_memory_equal(lives.after[k], lives.before[good],
                                sizeof(float) * (size_t)lives.n);
        }
    }
}

/* Two ranks hold the step, or no state is to be mended: the run ends. */
static void test_a_wrong_source_ends_the_run(void **state)
{
    static struct run_lives lives;
    static struct run_result r;

    (void)state;
    lives = (struct run_lives){.n_back = 0};
    form_again(JOB HEAL, 3, 1, &lives, &r);
    assert_int_equal(r.n_found, 2);
    for (int k = 0; k < 2; k++) {
        assert_found(&r, k, lives.step[0], k, 0);
        assert_int_equal(r.found[k].ends, k == 1);
    }
    lives = (struct run_lives){.n_back = 0};
    form_again(JOB, 4, 1, &lives, &r);
    assert_int_equal(r.n_found, 1);
    assert_found(&r, 0, lives.step[0], 1, 1);
    assert_true(r.found[0].ends && !r.found[0].is_healed);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(r.rc[k], ERR_CANCELED);
        assert_non_null(strstr(r.err[k].msg, "hold different states"));
    }
}

/* A validation's result, which comes at an epoch's end, and a step that a rank did before the
 * others did it anew without that rank. */
static void keep_another_result(struct trainer *t, int rank)
{
    double *loop = state_data(t->state, &slot_loop);

    assert_non_null(loop);
    loop[LOOP_BEST + 1] += rank;
}

static void be_of_a_formation_before(struct trainer *t, int rank)
{
    float *param = state_data(t->state, &slot_parameters);

    t->met_generation -= rank == 1;
    param[0] += (float)rank;
}

/* None of these are wrong bits, nor are running statistics of a rank's own, or a newcomer's state.
 */
static void test_what_may_differ(void **state)
{
    static const char own_statistics[] =
        "model: {arch: mlp, hidden: [24], batch_norm: true, sync_batch_norm: false}\n" DATA ADAM
            RARE;
    static const char validated[] =
        MLP DATA ADAM "train: {global_batch: 24, replica_check: 1e-9, audit: 1e-9, "
                      "early_stop: {patience: 3}}\n";
    static const struct {
        const char *job;
        int n;
        void (*change)(struct trainer *t, int rank);
    } cases[] = {{own_statistics, 4, NULL},
                 {validated, 4, keep_another_result},
                 {JOB, 3, be_of_a_formation_before}};
    static struct run_lives lives;
    static struct run_result r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        lives = (struct run_lives){.change = cases[i].change};
        form_again(cases[i].job, cases[i].n, -1, &lives, &r);
        assert_int_equal(r.n_found, 0);
        for (int k = 0; k < cases[i].n; k++) {
            assert_int_equal(r.rc[k], 0);
            assert_memory_equal(lives.after[k], lives.after[0], sizeof(float) * (size_t)lives.n);
        }
    }
}

/* A rank is lost in any collective in which the ranks form again.  The one that was told of, and
 * has not taken the state of the others, fails by itself. */
static void test_a_rank_that_has_not_taken_it_fails(void **state)
{
    static struct run_lives lives;
    static struct run_result r;
    int n_failed = 0, n_broken = 0, is_wrong;

    (void)state;
    for (int64_t ticket = 1;; ticket++) {
        lives = (struct run_lives){
            .fault = {.channel = COLL_BULK, .at_ticket = ticket, .fail = ERR_DEVICE}};
        form_again(JOB HEAL, 4, 1, &lives, &r);
        if (r.rc[3] == 0)
            break; /* there are no more collectives */
        n_broken++;
        if (r.n_found == 0)
            continue;
        is_wrong = memcmp(lives.after[1], lives.before[0], sizeof(float) * (size_t)lives.n) != 0;
        n_failed += is_wrong;
        assert_int_equal(r.rc[1], is_wrong ? ERR_DEVICE : ERR_PEER);
        assert_true(!is_wrong || strstr(r.err[1].msg, "this rank holds a wrong state"));
    }
    assert_true(n_failed > 0 && n_broken > n_failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wrong_state_is_not_spread),
        cmocka_unit_test(test_a_wrong_source_ends_the_run),
        cmocka_unit_test(test_what_may_differ),
        cmocka_unit_test(test_a_rank_that_has_not_taken_it_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
