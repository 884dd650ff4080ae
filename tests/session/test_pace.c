/* driver_pace: which rank is slow, by the times of its steps in its heartbeats. */
#include "rig.h"

#include "word.h"

static void a_straggler_is_told_once(void **state)
{
    /* Rank 2's own time for a step in ms, window by window; the other ranks take 10 ms. */
    static const struct {
        int64_t ms;
        int n_events;
    } windows[] = {{10, 0}, {25, 1}, {25, 1}, {13, 1}, {11, 1}, {14, 1}, {30, 2}};
    struct rig r;
    struct driver_options o = rig_options(3);
    struct word w[3] = {{PHASE_REDUCE, .bucket = 0}};
    (void)state;
    o.cluster.straggler_factor = 1.5;
    o.cluster.straggler_window_ms = 10000;
    start_training(&r, &o);
    for (size_t i = 0; i < ARRAY_LEN(windows); i++)
        for (int s = 0; s < 21; s++) {
            for (int k = 0; k < 3; k++) {
                w[k].phase = PHASE_REDUCE;
                w[k].step = ++w[k].n_steps;
                w[k].busy_ms += k == 2 ? windows[i].ms : 10;
                say(&r, k, &w[k]);
            }
            rig_wait(&r, 500);
            if (s == 20)
                assert_int_equal(rig_count(&r, EVENT_STRAGGLER), windows[i].n_events);
        }
    const struct session_event *e = rig_event(&r, EVENT_STRAGGLER);
    assert_int_equal(e->rank, 2);
    assert_string_equal(e->host, "h2");
    assert_true(e->straggler.factor > 2.2 && e->straggler.factor < 3); /* windows overlap */
    assert_has(buf_cstr(&r.log), "rank 2 (h2, pid 102) is slow: 2.");
    assert_has(buf_cstr(&r.log), "rank 2 (h2, pid 102) keeps up again: 1.");
    rig_free(&r);
}

/* Ranks are compared within one formation: rank 2 was slow in the one before, and is no longer. */
static void a_formation_compares_anew(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    struct word w[3] = {{PHASE_LOAD}, {PHASE_LOAD}, {PHASE_LOAD}};
    (void)state;
    o.cluster.spares = 1;
    o.cluster.straggler_factor = 1.5;
    o.cluster.straggler_window_ms = 10000;
    start_training(&r, &o);
    rig_come(&r, 3, -1);
    for (int s = 0; s < 60; s++) {
        if (s == 18) { /* just before the window ends */
            rig_close(&r, 1);
            RIG_ALL(&r, CMD_PREPARE, 4, 0, 3, 2);
            RIG_ALL(&r, CMD_FORM, 4, 0, 3, 2);
            assert_int_equal(r.command->kind, CMD_TRAIN);
            w[1] = (struct word){PHASE_LOAD};
        }
        for (int k = 0; k < 3; k++) {
            w[k].step = s + 1;
            w[k].n_steps++;
            w[k].busy_ms += k == 2 && s < 18 ? 30 : 10;
            say(&r, k == 1 && s >= 18 ? 3 : k, &w[k]);
        }
        rig_wait(&r, 500);
    }
    assert_int_equal(rig_count(&r, EVENT_STRAGGLER), 0);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_straggler_is_told_once),
        cmocka_unit_test(a_formation_compares_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
