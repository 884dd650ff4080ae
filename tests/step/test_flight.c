/* flight: the steps under way, where a step's work needs no device. */
#include "../test.h"

#include <string.h>

#include "backend/backend.h"
#include "base/util.h"
#include "coll/impl.h"
#include "step/step.h"

/* Training ends at a step, and the step after it could not be queued here.  Other ranks queued that
 * step and wait, so this rank must not go on as if nothing had happened. */
static void test_leaves_a_step_unqueued(void **state)
{
    struct coll coll = {.size = 2};
    struct stepper t = {.coll = &coll, .n_flights = 1};
    struct err err;

    (void)state;
    t.flight[0] = (struct flight){.step = 7};
    t.flight[0].rc = err_set(&t.flight[0].err, ERR_IO, "its data cannot be read");
    assert_int_equal(step_leave(&t, &err), ERR_IO);
    assert_non_null(strstr(err.msg, "step 7: its data cannot be read"));
    assert_int_equal(t.n_flights, 0);
    assert_int_equal(step_leave(&t, &err), 0);
    t.n_flights = coll.size = 1;
    assert_int_equal(step_leave(&t, &err), 0);
    assert_int_equal(t.n_flights, 0);
}

static int is_not_canceled(void *arg)
{
    (void)arg;
    return 0;
}

/* An abort stops the collectives, and the step is void, before coll_poll says so.  No call fails,
 * so the result alone tells that the step changed nothing. */
static void test_a_void_step_never_counts(void **state)
{
    enum { STEP = 7 };
    static const struct backend_ops host;
    static const struct coll_ops silent;
    const struct sample_spec spec = SAMPLE_IMAGES(2, 2, 1, 3);
    const struct sampler sampler = {.n_samples = 64, .global_batch = 8};
    float results[SEALED_SLOTS * SEALED_LEN] = {0}, *r = results + STEP % SEALED_SLOTS * SEALED_LEN;
    struct buffers buffers = {.results = results};
    struct state at = {.at.step = STEP};
    struct layout layout = {0};
    struct backend backend = {.ops = &host};
    struct coll coll = {.ops = &silent, .size = 2};
    struct stepper t = {.hooks.canceled = is_not_canceled,
                        .spec = &spec,
                        .sampler = &sampler,
                        .backend = &backend,
                        .layout = &layout,
                        .state = &at,
                        .buffers = &buffers,
                        .programs = (struct programs *)&t,
                        .tapes = (struct tapes *)&t,
                        .coll = &coll,
                        .is_batch_held = 1};

    (void)state;
    for (int is_void = 0; is_void < 2; is_void++) {
        struct step_result out;
        struct err err;

        t.n_flights = 1;
        t.flight[0] = (struct flight){.step = STEP};
        r[SEALED_STAMP] = step_stamp(STEP);
        r[SEALED_CONTROL + CONTROL_VOID] = (float)is_void;
        assert_int_equal(step_run(&t, STEP + 1, &out, &err), is_void ? ERR_CANCELED : 0);
        assert_int_equal(t.n_flights, 0);
        if (is_void)
            assert_non_null(strstr(err.msg, "its collectives were stopped"));
        else
            assert_true(out.applied);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_leaves_a_step_unqueued),
                                       cmocka_unit_test(test_a_void_step_never_counts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
