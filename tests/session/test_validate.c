/* validate: the driver adds up the ranks' numbers of a validation, and says which of them make no
 * sense.  A job is not finished without its last validation. */
#include "rig.h"

#include <math.h>

/* Gather n ranks, and take the command to validate, for cmd_free(). */
static struct cmd *go_to_validate(struct rig *r, int n)
{
    struct driver_options o = rig_options(n);
    rig_driver(r, &o);
    rig_go_to(r, n, CMD_VALIDATE);
    struct cmd *c = r->command;
    r->command = NULL; /* the last report brings the next command */
    return c;
}

/* A rank's answer: it saw n samples, each with one target of weight 1. */
static struct report *seen(const struct cmd *c, int n)
{
    struct report *p = rig_answer(c);
    p->validated.n_samples = p->validated.n_targets = n;
    p->validated.weight = n;
    return p;
}

/* Losses are divided by the sum of all weights, and counts by that of all targets. */
static void validation_adds_up_the_ranks(void **state)
{
    (void)state;
    struct rig r;
    struct cmd *c = go_to_validate(&r, 3);
    for (int k = 0; k < 3; k++) {
        struct report *p = seen(c, 4);
        p->validated.weight = 1 << k;
        p->validated.loss_sum = 7 * (k + 1);
        p->validated.n_correct = k + 1;
        p->validated.has_top5 = p->validated.has_average = 1;
        p->validated.n_top5 = k + 2;
        p->validated.average_loss_sum = 14 * (k + 1);
        p->validated.average_n_correct = k;
        p->validated.average_n_top5 = 4;
        rig_report(&r, k, p);
    }
    cmd_free(c);
    const struct session_epoch *e = &rig_event(&r, EVENT_EPOCH)->epoch;
    assert_true(e->validation_loss == 6);
    assert_true(e->validation_accuracy == 0.5);
    assert_true(e->validation_top5 == 0.75);
    assert_true(e->average_validation_loss == 12);
    assert_true(e->average_validation_accuracy == 0.25);
    assert_true(e->average_validation_top5 == 1);
    rig_free(&r);
}

/* Each rank leaves numbers that are not finite out of its sum.  The whole set then has no loss. */
static void a_loss_that_is_not_finite_is_told(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        const int at = i % 3, is_average = i / 3;
        struct rig r;
        struct cmd *c = go_to_validate(&r, 3);
        for (int k = 0; k < 3; k++) {
            struct report *p = seen(c, 4);
            p->validated.n_nonfinite = k == at && !is_average;
            p->validated.has_average = 1;
            p->validated.average_n_nonfinite = k == at && is_average;
            rig_report(&r, k, p);
        }
        cmd_free(c);
        const struct session_epoch *e = &rig_event(&r, EVENT_EPOCH)->epoch;
        assert_true(e->is_validated);
        assert_true(isnan(e->validation_loss) == !is_average);
        assert_true(isnan(e->average_validation_loss) == is_average);
        assert_true(e->validation_accuracy > 0.7 && e->validation_accuracy < 0.8);
        assert_logged(&r, is_average ? "targets is not finite, with averaged weights"
                                     : "validation: the loss of 1 of 12 targets is not finite");
        rig_free(&r);
    }
}

/* Where every label is ignored, loss and accuracy are undefined, and print as nan, not as -nan. */
static void a_validation_of_ignored_labels_is_told(void **state)
{
    (void)state;
    struct rig r;
    struct cmd *c = go_to_validate(&r, 1);
    struct report *p = seen(c, 12);
    p->validated.n_targets = p->validated.n_correct = p->validated.n_top5 = 0;
    p->validated.loss_sum = p->validated.weight = 0;
    p->validated.has_average = p->validated.has_top5 = 1;
    p->validated.average_loss_sum = 0;
    rig_report(&r, 0, p);
    cmd_free(c);
    const struct session_epoch *e = &rig_event(&r, EVENT_EPOCH)->epoch;
    const double figures[] = {e->validation_loss,         e->validation_accuracy,
                              e->validation_top5,         e->average_validation_loss,
                              e->average_validation_top5, e->average_validation_accuracy};
    for (size_t i = 0; i < ARRAY_LEN(figures); i++)
        assert_true(isnan(figures[i]) && !signbit(figures[i]));
    assert_logged(&r, "validation: all labels are ignored");
    rig_free(&r);
}

static void validation_sees_each_sample_once(void **state)
{
    (void)state;
    for (int n = 5; n <= 7; n += 2) {
        struct rig r;
        struct cmd *c = go_to_validate(&r, 2);
        char text[64];
        for (int k = 0; k < 2; k++)
            rig_report(&r, k, seen(c, n));
        cmd_free(c);
        snprintf(text, sizeof(text), "validation saw %d samples, the set has 12", 2 * n);
        assert_has(rig_event(&r, EVENT_ERROR)->text, text);
        rig_free(&r);
    }
}

/* The run was given up in its last validation, at an epoch's end or where max_steps ends the job,
 * and rank 0 wrote the state then.  A resume finds nothing to train, but it validates. */
static void the_last_validation_is_done_again(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const int is_inside = i % 2, is_validated = i / 2;
        const int64_t last = is_inside ? 6 : 4;
        struct rig r;
        struct driver_options o = rig_options(1);
        o.resume = "runs/x";
        o.n_epochs = is_inside ? 2 : 1;
        o.max_steps = is_inside ? last : 0;
        o.led = (struct led){
            .step = last, .epoch_step = last, .validated_step = is_validated ? last : 0};
        rig_driver(&r, &o);
        struct report *opened = rig_opened();
        opened->opened.step = last;
        rig_report(&r, 0, opened);
        if (!is_validated) {
            RIG_ALL(&r, CMD_PREPARE, last, 0);
            RIG_ALL(&r, CMD_FORM, last, 0);
            assert_int_equal(r.command->kind, CMD_TRAIN);
            assert_int_equal(r.command->train.epoch, o.n_epochs);
            struct report *p = rig_answer(r.command);
            p->epoch.step = last;
            p->epoch.end = is_inside ? EPOCH_MAX_STEPS : EPOCH_WHOLE;
            rig_report(&r, 0, p);
            rig_go_on_to(&r, 1, CMD_STOP);
            assert_true(rig_event(&r, EVENT_EPOCH)->epoch.is_validated);
        }
        assert_int_equal(r.command->kind, CMD_STOP);
        assert_int_equal(rig_count(&r, EVENT_EPOCH), !is_validated);
        assert_int_equal(rig_event(&r, EVENT_DONE)->step, last);
        rig_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(validation_adds_up_the_ranks),
        cmocka_unit_test(a_loss_that_is_not_finite_is_told),
        cmocka_unit_test(a_validation_of_ignored_labels_is_told),
        cmocka_unit_test(validation_sees_each_sample_once),
        cmocka_unit_test(the_last_validation_is_done_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
