/* follower: faults of its own, of its GPU and of its driver.
 * The test plays the driver and the engine. */
#include "follower_rig.h"

static void its_own_faults(void **state)
{
    struct rig r;
    (void)state;
    rig_follower(&r);
    get(&r, WELCOME, 0);
    struct report *f = report_new(REPORT_FAULT, 0);
    err_set(&f->fault.err, ERR_IO, "no such file: /data");
    rig_report(&r, 1, f);
    assert_int_equal(r.sent[0]->body_case, WIRE__CONTROL__BODY_FAULT);
    assert_ends(&r, STATUS_USAGE, 0, "no such file: /data");

    rig_follower(&r); /* too little memory, or too few threads: another start may find enough */
    get(&r, WELCOME, 0);
    f = report_new(REPORT_FAULT, 0);
    err_sys(&f->fault.err, EAGAIN, "starting a thread");
    rig_report(&r, 1, f);
    assert_ends(&r, STATUS_FAILED, 0, "starting a thread: Resource temporarily unavailable");

    go_to(&r, TRAIN); /* in training it waits for the driver's word */
    f = report_new(REPORT_FAULT, 1);
    err_set(&f->fault.err, ERR_DEVICE, "kernel failed");
    rig_report(&r, 1, f);
    assert_false(r.is_closed[0]);
    for (int i = 0; i < 9; i++) {
        rig_wait(&r, 1000);
        get(&r, BEAT, 1);
    }
    assert_false(r.is_closed[0]);
    rig_wait(&r, 1300); /* but not for ever */
    assert_ends(&r, STATUS_FAILED, 1, "kernel failed");
}

/* CUDA's errors stay with the process: another process may use that GPU, this one cannot again. */
static void a_gpu_that_failed_ends_the_process(void **state)
{
    static const struct {
        int code, is_consequence, is_gpu_lost, retry;
    } cases[] = {
        {ERR_DEVICE, 0, 1, 0}, {ERR_DEVICE, 0, 0, 1}, /* a library failed, the GPU did not */
        {ERR_PEER, 1, 1, 0},   {ERR_PEER, 1, 0, 1},   /* it failed while a lost rank's step ended */
        {ERR_NOMEM, 0, 0, 1},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        go_to(&r, TRAIN);
        free(r.f->device);
        r.f->device = xstrdup("cuda:1");
        struct report *f = report_new(REPORT_FAULT, 1);
        err_set(&f->fault.err, (enum err_code)cases[i].code, "it failed");
        f->fault.is_consequence = cases[i].is_consequence;
        f->fault.is_gpu_lost = cases[i].is_gpu_lost;
        rig_report(&r, 1, f);
        get(&r, ABORT, 1);
        assert_ends(&r, STATUS_FAILED, cases[i].retry, "");
    }
}

static void a_driver_that_breaks_the_protocol(void **state)
{
    struct rig r;
    (void)state;
    go_to(&r, TRAIN);
    get(&r, VALIDATE, 1);
    assert_ends(&r, STATUS_FAILED, 1, "Validate: the one before is not answered yet");
    go_to(&r, READY);
    get(&r, TRAIN, 1);
    assert_ends(&r, STATUS_FAILED, 1, "Train: it came before Prepare");
    go_to(&r, READY);
    get(&r, HELLO, 1);
    assert_ends(&r, STATUS_FAILED, 1, "Hello: unexpected message");
    go_to(&r, PREPARE);
    answer(&r);
    get(&r, FORM, 0); /* from an older generation: dropped */
    assert_int_equal(r.command->kind, CMD_PREPARE);
    get(&r, FORM, 1);
    assert_int_equal(r.command->kind, CMD_FORM);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_own_faults),
        cmocka_unit_test(a_gpu_that_failed_ends_the_process),
        cmocka_unit_test(a_driver_that_breaks_the_protocol),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
