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

/* A stepper with all that it needs to end one step that was queued, of two ranks on CPUs. */
enum { STEP = 7 };

struct one_step {
    float results[SEALED_SLOTS * SEALED_LEN];
    struct buffers buffers;
    struct state at;
    struct layout layout;
    struct backend backend;
    struct coll coll;
    struct sample_spec spec;
    struct stepper t;
};

static void one_step_init(struct one_step *s, int is_void)
{
    static const struct backend_ops host;
    static const struct coll_ops silent;
    static const struct sampler sampler = {.n_samples = 64, .global_batch = 8};
    float *r = s->results + STEP % SEALED_SLOTS * SEALED_LEN;

    *s = (struct one_step){.at.at.step = STEP,
                           .backend.ops = &host,
                           .coll = {.ops = &silent, .size = 2},
                           .spec = SAMPLE_IMAGES(2, 2, 1, 3)};
    s->buffers.results = s->results;
    s->t = (struct stepper){.hooks.canceled = is_not_canceled,
                            .spec = &s->spec,
                            .sampler = &sampler,
                            .backend = &s->backend,
                            .layout = &s->layout,
                            .state = &s->at,
                            .buffers = &s->buffers,
                            .programs = (struct programs *)s,
                            .tapes = (struct tapes *)s,
                            .coll = &s->coll,
                            .is_batch_held = 1,
                            .n_flights = 1};
    s->t.flight[0] = (struct flight){.step = STEP};
    r[SEALED_STAMP] = step_stamp(STEP);
    r[SEALED_CONTROL + CONTROL_VOID] = (float)is_void;
}

/* An abort stops the collectives, and the step is void, before coll_poll says so.  No call fails,
 * so the result alone tells that the step changed nothing. */
static void test_a_void_step_never_counts(void **state)
{
    (void)state;
    for (int is_void = 0; is_void < 2; is_void++) {
        struct one_step s;
        struct step_result out;
        struct err err;

        one_step_init(&s, is_void);
        assert_int_equal(step_run(&s.t, STEP + 1, &out, &err), is_void ? ERR_CANCELED : 0);
        assert_int_equal(s.t.n_flights, 0);
        if (is_void)
            assert_non_null(strstr(err.msg, "its collectives were stopped"));
        else
            assert_true(out.applied);
    }
}

/* A rank was lost while a step ended.  The step counts if its result is there, as the others may
 * have applied it, but a void one does not: no rank has applied it. */
static void test_a_broken_step_counts_by_its_result(void **state)
{
    (void)state;
    for (int is_void = 0; is_void < 2; is_void++) {
        struct one_step s;
        struct step_result out;
        struct err err;

        one_step_init(&s, is_void);
        s.t.flight[0].rc = err_set(&s.t.flight[0].err, ERR_PEER, "rank 1 is gone");
        assert_int_equal(step_run(&s.t, STEP + 1, &out, &err), is_void ? ERR_PEER : 0);
        assert_int_equal(s.t.n_flights, 0);
        if (!is_void)
            assert_true(out.applied);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_leaves_a_step_unqueued),
                                       cmocka_unit_test(test_a_void_step_never_counts),
                                       cmocka_unit_test(test_a_broken_step_counts_by_its_result)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
