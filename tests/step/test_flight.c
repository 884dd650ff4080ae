/* flight: the steps under way, where a step's work needs no device. */
#include "../test.h"

#include <string.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_leaves_a_step_unqueued)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
