/* Ranks that form again compare what they hold before one of them is the source of all. */
#include "../test.h"

#include "base/util.h"
#include "ranks.h"

#define MLP  "model: {arch: mlp, hidden: [24, 16]}\n"
#define DATA "data: {format: digits, samples: 240, validation_samples: 20}\n"
#define ADAM "optimizer: {name: adamw, lr: 0.002}\n"
#define HEAL "cluster: {on_divergence: heal}\n"
/* 10 steps; the seed draws none of them for a comparison. */
#define RARE "train: {global_batch: 24, replica_check: 1e-9}\n"
#define JOB  MLP DATA ADAM RARE

static void assert_found(const struct run_result *r, int i, int64_t step, int rank, int is_proven)
{
    assert_true(i < r->n_found);
    assert_int_equal(r->found[i].step, step);
    assert_int_equal(r->found[i].rank, rank);
    assert_int_equal(r->found[i].is_proven, is_proven);
    assert_int_equal(r->found[i].what, CORRUPTION_STATE);
}

/* A bit of rank `wrong` flips after a step that is not compared; then the last rank is lost, and
 * the ranks form again, from the state of rank 0. */
static void form_again(const char *job, int n, int wrong, struct run_lives *lives,
                       struct run_result *r)
{
    char inject[64];

    snprintf(inject, sizeof inject, "flip:rank%d@step4:param0", wrong);
    *lives = (struct run_lives){.n_back = 0};
    run_job(&(struct run_plan){.job = job,
                               .n_ranks = n,
                               .n_epochs = 1,
                               .inject = inject,
                               .fault = {.channel = COLL_BULK, .at_ticket = 12, .fail = ERR_DEVICE},
                               .lives = lives},
            r);
}

/* Nobody takes a state from which most of the ranks that hold this step differ. */
static void test_a_wrong_state_is_not_spread(void **state)
{
    static struct run_lives lives;
    static struct run_result r;

    (void)state;
    for (int wrong = 0; wrong < 3; wrong++) {
        const int good = wrong == 0 ? 1 : 0;

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
    form_again(JOB HEAL, 3, 1, &lives, &r);
    assert_int_equal(r.n_found, 2);
    for (int k = 0; k < 2; k++) {
        assert_found(&r, k, lives.step[0], k, 0);
        assert_int_equal(r.found[k].ends, k == 1);
    }
    form_again(JOB, 4, 1, &lives, &r);
    assert_int_equal(r.n_found, 1);
    assert_found(&r, 0, lives.step[0], 1, 1);
    assert_true(r.found[0].ends && !r.found[0].is_healed);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(r.rc[k], ERR_CANCELED);
        assert_non_null(strstr(r.err[k].msg, "hold different states"));
    }
}

/* Running statistics that are each rank's own are no difference, nor is a newcomer's state. */
static void test_sound_ranks_form_again(void **state)
{
    static const char job[] =
        "model: {arch: mlp, hidden: [24], batch_norm: true, sync_batch_norm: false}\n" DATA ADAM
            RARE;
    static struct run_lives lives;
    static struct run_result r;

    (void)state;
    lives = (struct run_lives){.n_back = 0};
    run_job(&(struct run_plan){.job = job,
                               .n_ranks = 4,
                               .n_epochs = 1,
                               .fault = {.channel = COLL_BULK, .at_ticket = 12, .fail = ERR_DEVICE},
                               .lives = &lives},
            &r);
    assert_int_equal(r.n_found, 0);
    assert_in_range(lives.step[0], 5, 9);
    for (int k = 0; k < 4; k++)
        assert_int_equal(r.rc[k], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wrong_state_is_not_spread),
        cmocka_unit_test(test_a_wrong_source_ends_the_run),
        cmocka_unit_test(test_sound_ranks_form_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
