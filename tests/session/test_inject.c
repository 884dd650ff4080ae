/* inject: each fault on purpose is given to its rank once, and announced before it happens. The
 * faults themselves are tested in e2e/inject. */
#include "rig.h"

#include "samples.h"

static struct report *due(const char *spec, int64_t generation)
{
    struct report *r = report_new(REPORT_INJECT, generation);
    struct injection_list l = {.n = 0};
    struct err err;
    assert_int_equal(inject_parse(spec, &l, &err), 0);
    r->inject.fault = l.item[0];
    r->inject.text = strdup("SIGKILL");
    r->inject.phase = PHASE_LOAD;
    r->inject.step = 5;
    return r;
}

static void start(struct rig *r, struct driver_options *o, const char *specs)
{
    struct err err;
    *o = rig_options(2);
    o->cluster.replace_timeout_ms = 60000;
    assert_int_equal(inject_parse(specs, &o->inject, &err), 0);
    rig_driver(r, o);
}

static int is_logged(struct rig *r, const char *part)
{
    return strstr(buf_cstr(&r->log), part) != NULL;
}

/* Welcome and Prepare carry the faults that are due; a fault that happened is not given to the
 * rank's next holder. */
static void each_is_given_out_once(void **state)
{
    static const char all[] =
        "kill:rank1@step5,stop:rank1@ready,kill:rank0@form,delay:rank1@step9:1s";
    struct driver_options o;
    struct rig r;
    (void)state;
    start(&r, &o, all);
    assert_true(is_logged(&r, all));
    assert_string_equal(r.command->open.inject, all);
    rig_hello(&r, 1, -1);
    assert_string_equal(r.sent[1]->welcome->inject, "stop:rank1@ready");
    rig_report(&r, 1, due("stop:rank1@ready", 0));
    assert_int_equal(rig_event(&r, EVENT_INJECT)->rank, 1);
    assert_string_equal(rig_event(&r, EVENT_INJECT)->inject.spec, "stop:rank1@ready");
    assert_true(is_logged(&r, "injected fault stop:rank1@ready: rank 1 (h1): SIGKILL"));
    assert_int_equal(r.n_injected, 0); /* the follower is to do it */
    rig_report(&r, 0, rig_opened());
    rig_report(&r, 1, rig_opened());
    assert_string_equal(r.sent[1]->prepare->inject, "kill:rank1@step5,delay:rank1@step9:1s");
    assert_string_equal(r.command->prepare.inject, "kill:rank0@form");

    rig_report(&r, 1, due("kill:rank1@step5", 1));
    rig_close(&r, 1);
    rig_hello(&r, 2, -1);
    assert_string_equal(r.sent[2]->welcome->inject, "");
    rig_report(&r, 2, rig_opened());
    assert_string_equal(r.sent[2]->prepare->inject, "delay:rank1@step9:1s");
    rig_free(&r);
}

static void rank_0_has_its_own(void **state)
{
    struct driver_options o;
    struct rig r;
    (void)state;
    start(&r, &o, "kill:rank0@gather,kill:rank1@step5");
    rig_report(&r, 0, due("kill:rank0@gather", 0));
    assert_int_equal(rig_event(&r, EVENT_INJECT)->rank, 0); /* said first */
    assert_int_equal(r.n_injected, 1);
    assert_string_equal(r.injected.text, "kill:rank0@gather");
    rig_free(&r);
}

/* At the end the driver logs the faults that never came, and those after Stop, which no follower
 * can report. */
static void what_did_not_happen_is_told(void **state)
{
    struct driver_options o;
    struct rig r;
    (void)state;
    start(&r, &o, "kill:rank1@step5,kill:rank1@stop");
    rig_hello(&r, 1, -1);
    driver_stop(r.d, r.now, "SIGTERM");
    rig_drain(&r);
    assert_true(is_logged(&r, "--inject kill:rank1@step5: did not happen"));
    assert_string_equal(rig_event(&r, EVENT_INJECT)->inject.spec, "kill:rank1@stop");
    rig_free(&r);
}

static void get(struct rig *r, int i)
{
    struct arena a;
    Wire__Control m;
    arena_init(&a);
    assert_true(sample_make(&a, i, &m));
    rig_message(r, 0, &m);
    arena_fini(&a);
}

enum { WELCOME = 10, PREPARE = 12, STOP = 18 };

static void a_follower_says_so_first(void **state)
{
    struct rig r;
    (void)state;
    rig_follower(&r);
    get(&r, WELCOME);
    assert_string_equal(r.command->open.inject, "stop:rank1@ready");
    rig_report(&r, 1, rig_opened());
    get(&r, PREPARE);
    assert_string_equal(r.command->prepare.inject, "kill:rank1@step50,delay:rank1@form2:3s");
    int n = r.n_sent[0];
    rig_report(&r, 1, due("kill:rank1@step50", 1));
    assert_int_equal(r.sent[0]->body_case, WIRE__CONTROL__BODY_INJECTED);
    assert_string_equal(r.sent[0]->injected->spec, "kill:rank1@step50");
    assert_int_equal(r.sent[0]->injected->step, 5);
    assert_int_equal(r.n_sent_before, n + 1);
    assert_int_equal(r.n_injected, 1);
    assert_true(is_logged(&r, "injected fault kill:rank1@step50: SIGKILL"));
    get(&r, STOP);
    rig_report(&r, 1, due("kill:rank1@stop", 1)); /* the engine waits for it even now */
    assert_int_equal(r.n_injected, 2);
    assert_int_equal(r.n_sent[0], n + 1);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_given_out_once),
        cmocka_unit_test(rank_0_has_its_own),
        cmocka_unit_test(what_did_not_happen_is_told),
        cmocka_unit_test(a_follower_says_so_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
