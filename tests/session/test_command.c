/* command, convert: commands and reports are the same after they were packed, sent and unpacked.
 * Names are there for every value.  A session's time does not go back. */
#include "rig.h"

#include "samples.h"
#include "session/convert.h"
#include "session/queue.h"

static struct frame *again(const Wire__Control *m, struct err *err)
{
    struct cmd *c = convert_to_command(m);
    struct report *r = convert_to_report(m);
    struct frame *f = c ? convert_command(c, err) : r ? convert_report(r, err) : NULL;
    assert_true(!c || !r);
    cmd_free(c);
    report_free(r);
    return f;
}

/* Every sample that is a command or a report, turned into one and back, has the same bytes. */
static void nothing_is_lost_on_the_wire(void **state)
{
    struct arena a;
    Wire__Control m;
    struct err err;
    int n = 0;
    (void)state;
    arena_init(&a);
    for (int i = 0; sample_make(&a, i, &m); i++) {
        struct frame *f = msg_frame(&m, &err), *g = again(&m, &err);
        if (g) {
            assert_int_equal(g->len, f->len);
            assert_memory_equal(g->data, f->data, f->len);
            n++;
        }
        frame_unref(f);
        frame_unref(g);
    }
    assert_int_equal(n, 15); /* 6 commands, 9 reports */
    arena_fini(&a);
}

/* An engine's numbers and texts are made fit for the wire. */
static void odd_reports_can_be_sent(void **state)
{
    struct report *r = report_new(REPORT_EPOCH, 1);
    struct err err;
    (void)state;
    r->epoch.epoch = 1;
    r->epoch.end = EPOCH_WHOLE;
    r->epoch.train_loss = 0.0 / 0.0;
    r->epoch.samples_per_second = 1.0 / 0.0;
    r->epoch.step_ms_median = -1;
    r->epoch.rss_mib = 0.0 / 0.0;
    r->epoch.peak_rss_mib = -1;
    r->epoch.tensor = calloc(1, sizeof(*r->epoch.tensor));
    r->epoch.tensor[0].name = strdup("");
    r->epoch.n_tensors = 1;
    r->epoch.note = strdup("two\nlines\x1b[2J");
    struct frame *f = convert_report(r, &err);
    assert_non_null(f);
    frame_unref(f);
    report_free(r);
    r = report_new(REPORT_FAULT, 1);
    r->fault.step = -1;
    f = convert_report(r, &err);
    assert_non_null(f);
    frame_unref(f);
    report_free(r);
}

static void names_are_for_every_value(void **state)
{
    (void)state;
    for (int p = 0; p < PHASE_COUNT; p++)
        assert_string_not_equal(phase_name((enum phase)p), "?");
    assert_string_equal(phase_name(PHASE_COUNT), "?");
    assert_string_equal(phase_name((enum phase) - 1), "?");
    for (int k = CMD_OPEN; k <= CMD_STOP; k++)
        assert_string_not_equal(cmd_name((enum cmd_kind)k), "?");
    for (int k = REPORT_OPENED; k <= REPORT_INJECT; k++)
        assert_string_not_equal(report_name((enum report_kind)k), "?");
    assert_int_equal(PHASE_COUNT, wire__phase__descriptor.n_values);
    for (int p = 0; p < PHASE_COUNT; p++)
        assert_int_equal(wire__phase__descriptor.values[p].value, p);
    assert_int_equal(EPOCH_NONFINITE, WIRE__EPOCH_END__EPOCH_NONFINITE);
    assert_int_equal(EPOCH_STOPPED, WIRE__EPOCH_END__EPOCH_STOPPED);
}

/* Time that the caller's loop was late is left out of a session's time, which never goes back. */
static void time_stands_still_in_a_stall(void **state)
{
    static const struct {
        int64_t now_ms, want_ms, due_ms; /* the caller's time; the session's; when to be called */
    } calls[] = {
        {1000, 1000, 1100},                     /* in time */
        {1090, 1090, 1100}, {1300, 1300, 1400}, /* 200 ms late are no stall */
        {2400, 1400, 1500},                     /* 1,000 ms late are one */
        {2500, 1500, 700},                      /* it is due already, and so is called at once */
        {2600, 1600, 1300}, {3600, 1600, INT64_MAX}, {9600, 7600, 7700},
    };
    struct session_clock c = {.due_ns = INT64_MAX};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        assert_int_equal(session_enter_ms(&c, calls[i].now_ms * 1000000), calls[i].want_ms);
        session_leave(&c, calls[i].due_ms);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_on_the_wire),
        cmocka_unit_test(odd_reports_can_be_sent),
        cmocka_unit_test(names_are_for_every_value),
        cmocka_unit_test(time_stands_still_in_a_stall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
