/* inject: every fault can be written and read, and an error names what is wrong, with all that
 * could stand there. */
#include "../test.h"

#include "inject/inject.h"

static const struct {
    const char *text;
    struct injection want;
    const char *said;
} good[] = {
    {"kill:rank2@step50",
     {INJECTION_KILL, 2, INJECTION_AT_STEP, 50, INJECTION_PLAINLY, 0},
     "SIGKILL to itself when the step begins (step 50)"},
    {"stop:rank1@step10",
     {INJECTION_STOP, 1, INJECTION_AT_STEP, 10, INJECTION_PLAINLY, 0},
     "SIGSTOP to itself when the step begins (step 10)"},
    {"delay:rank1@step5:3s",
     {INJECTION_DELAY, 1, INJECTION_AT_STEP, 5, INJECTION_PLAINLY, 3000},
     "a pause of 3 s when the step begins (step 5)"},
    {"delay:rank0@validate2:250ms",
     {INJECTION_DELAY, 0, INJECTION_AT_VALIDATE, 2, INJECTION_PLAINLY, 250},
     "a pause of 0.25 s when validation begins (epoch 2)"},
    {"delay:rank0@stop:0.5s",
     {INJECTION_DELAY, 0, INJECTION_AT_STOP, -1, INJECTION_PLAINLY, 500},
     "a pause of 0.5 s when it is told to stop"},
    {"drop:rank3@form",
     {INJECTION_DROP, 3, INJECTION_AT_FORM, -1, INJECTION_CONNECTION, 0},
     "its control connection is cut when the ranks connect"},
    {"drop:rank3@form2:conn",
     {INJECTION_DROP, 3, INJECTION_AT_FORM, 2, INJECTION_CONNECTION, 0},
     "its control connection is cut when the ranks connect (generation 2)"},
    {"drop:rank3@prepare:in", {INJECTION_DROP, 3, INJECTION_AT_PREPARE, -1, INJECTION_IN, 0}, NULL},
    {"drop:rank3@checkpoint64:out",
     {INJECTION_DROP, 3, INJECTION_AT_CHECKPOINT, 64, INJECTION_OUT, 0},
     NULL},
    {"flip:rank1@step7", {INJECTION_FLIP, 1, INJECTION_AT_STEP, 7, INJECTION_BUCKET, 0}, NULL},
    {"flip:rank1@step7:bucket3",
     {INJECTION_FLIP, 1, INJECTION_AT_STEP, 7, INJECTION_BUCKET, 3},
     "a flipped bit: bucket 3 of step 7, before it is summed"},
    {"flip:rank65535@step0:reduced0",
     {INJECTION_FLIP, 65535, INJECTION_AT_STEP, 0, INJECTION_REDUCED, 0},
     "a flipped bit: bucket 0 of step 0, after it was summed"},
    {"flip:rank1@step7:param2",
     {INJECTION_FLIP, 1, INJECTION_AT_STEP, 7, INJECTION_PARAM, 2},
     "a flipped bit: bucket 2 of step 7, of a parameter, after the update"},
    {"flip:rank1@step7:slot0",
     {INJECTION_FLIP, 1, INJECTION_AT_STEP, 7, INJECTION_SLOT, 0},
     "a flipped bit: bucket 0 of step 7, of the optimizer's state, after the update"},
    {"flip:rank1@step7:batch",
     {INJECTION_FLIP, 1, INJECTION_AT_STEP, 7, INJECTION_BATCH, 0},
     "a flipped bit: of a sample of step 7"},
    {"skip:rank1@step7",
     {INJECTION_SKIP, 1, INJECTION_AT_STEP, 7, INJECTION_BUCKET, 0},
     "an all-reduce left out: bucket 0 of step 7"},
    {"skip:rank1@step7:bucket2",
     {INJECTION_SKIP, 1, INJECTION_AT_STEP, 7, INJECTION_BUCKET, 2},
     "an all-reduce left out: bucket 2 of step 7"},
    {"kill:rank1@gather", {INJECTION_KILL, 1, INJECTION_AT_GATHER, -1, INJECTION_PLAINLY, 0}, NULL},
    {"kill:rank1@ready", {INJECTION_KILL, 1, INJECTION_AT_READY, -1, INJECTION_PLAINLY, 0}, NULL},
    {"kill:rank1@reduce4", {INJECTION_KILL, 1, INJECTION_AT_REDUCE, 4, INJECTION_PLAINLY, 0}, NULL},
    {"kill:rank1@update4", {INJECTION_KILL, 1, INJECTION_AT_UPDATE, 4, INJECTION_PLAINLY, 0}, NULL},
};

static void test_good(void **state)
{
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct injection_list l = {.n = 0};
        const struct injection *f = &l.item[0], *want = &good[i].want;
        char said[INJECTION_SAY];

        if (inject_parse(good[i].text, &l, &err) < 0)
            fail_msg("%s", err.msg);
        assert_int_equal(l.n, 1);
        assert_int_equal(f->what, want->what);
        assert_int_equal(f->rank, want->rank);
        assert_int_equal(f->point, want->point);
        assert_int_equal(f->number, want->number);
        assert_int_equal(f->how, want->how);
        assert_int_equal(f->amount, want->amount);
        assert_string_equal(f->text, good[i].text);
        if (good[i].said)
            assert_string_equal(inject_say(f, said), good[i].said);
    }
}

static const struct {
    const char *text, *message;
} bad[] = {
    {"", "an empty fault, want such as kill:rank1@step50"},
    {"kill:rank1@step1,", "an empty fault"},
    {",kill:rank1@step1", "an empty fault"},
    {"kil:rank1@step5", "unknown fault \"kil\", want kill, stop, delay, drop, flip or skip"},
    {"rank1@step5", "unknown fault \"rank1@step5\""},
    {" kill:rank1@step5", "unknown fault \" kill\""},
    {"kill", "want :rankK@ after \"kill\", such as kill:rank1@step50"},
    {"kill:1@step5", "want :rankK@"},
    {"kill:rank@step5", "want :rankK@"},
    {"kill:rank-1@step5", "want :rankK@"},
    {"kill:rank65536@step5", "want :rankK@"},
    {"kill:rank1step5", "want :rankK@"},
    {"kill:rank1@",
     "unknown point \"\", want gather, ready, prepare[N], form[N], stepN, backwardN, "
     "reduceN, updateN, statistics[N], validate[N], checkpoint[N] or stop"},
    {"kill:rank1@epoch5", "unknown point \"epoch5\", want gather"},
    {"kill:rank1@step", "step wants the number of the step, such as step50"},
    {"kill:rank1@step5x", "the number of the step is \"5x\", want digits"},
    {"kill:rank1@step99999999999999999999", "the number of the step is"},
    {"kill:rank1@ready2", "ready takes no number"},
    {"kill:rank1@step5:now", "\"now\" at the end, want nothing there"},
    {"kill:rank1@step5:", "\"\" at the end, want nothing there"},
    {"delay:rank1@step5", "how long is missing: want :3s at the end"},
    {"delay:rank1@step5:3", "how long is \"3\", want a time up to 3600 s, such as 3s or 250ms"},
    {"delay:rank1@step5:3min", "how long is \"3min\""},
    {"delay:rank1@step5:-3s", "how long is \"-3s\""},
    {"delay:rank1@step5:nans", "how long is \"nans\""},
    {"delay:rank1@step5:3601s", "how long is \"3601s\""},
    {"drop:rank1@step5:all", "\"all\" at the end, want conn, in or out"},
    {"drop:rank1@step5:inn", "\"inn\" at the end"},
    {"flip:rank1@step7:bit3",
     "\"bit3\" at the end, want bucketB, reducedB, paramB, slotB or batch"},
    {"flip:rank1@step7:bucket", "bucket wants the bucket's number, such as bucket0"},
    {"flip:rank1@step7:reduced1x", "reduced wants the bucket's number"},
    {"flip:rank1@form", "a flip happens within a step: want @stepN"},
    {"skip:rank1@reduce7", "a skip happens within a step: want @stepN"},
    {"skip:rank1@step7:reduced0", "\"reduced0\" at the end, want bucketB"},
    {"delay:rank1@step5:33333333333333333333333333333333333333333333333333s",
     "has 69 bytes, want at most 63"},
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct injection_list l = {.n = 0};
        struct err err;

        assert_int_equal(inject_parse(bad[i].text, &l, &err), ERR_ARG);
        if (!strstr(err.msg, bad[i].message))
            fail_msg("%s: said \"%s\", want \"%s\"", bad[i].text, err.msg, bad[i].message);
    }
}

static void test_several(void **state)
{
    struct injection_list l = {.n = 0};
    char text[INJECTION_MAX_TEXT];
    struct err err;

    (void)state;
    assert_int_equal(inject_parse("kill:rank1@step5,stop:rank2@ready", &l, &err), 0);
    assert_int_equal(inject_parse("kill:rank1@step5", &l, &err), 0);
    assert_int_equal(l.n, 3);
    assert_int_equal(inject_check_ranks(&l, 3, &err), 0);
    assert_int_equal(inject_check_ranks(&l, 2, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "there is no rank 2: the job has 2"));

    inject_select(&l, -1, INJECTION_AT_GATHER, INJECTION_AT_STOP, text);
    assert_string_equal(text, "kill:rank1@step5,stop:rank2@ready,kill:rank1@step5");
    inject_select(&l, 2, INJECTION_AT_PREPARE, INJECTION_AT_STOP, text);
    assert_string_equal(text, "");
    assert_int_equal(inject_spend(&l, "kill:rank1@step5"), 1);
    inject_select(&l, 1, INJECTION_AT_PREPARE, INJECTION_AT_STOP, text);
    assert_string_equal(text, "kill:rank1@step5");
    assert_int_equal(inject_spend(&l, "kill:rank1@step5"), 1);
    assert_int_equal(inject_spend(&l, "kill:rank1@step5"), 0);
    inject_select(&l, 1, INJECTION_AT_GATHER, INJECTION_AT_STOP, text);
    assert_string_equal(text, "");
}

/* The largest number of faults, each with the longest text, fits in the message. */
static void test_most(void **state)
{
    static const char longest[] =
        "delay:rank65535@checkpoint1000000000000000:3.000000000000000000s";
    struct injection_list l = {.n = 0};
    char text[INJECTION_MAX_TEXT], one[INJECTION_TEXT];
    struct err err;

    (void)state;
    snprintf(one, sizeof one, "%.*ss", INJECTION_TEXT - 2, longest);
    for (int i = 0; i < INJECTION_MAX; i++)
        assert_int_equal(inject_parse(one, &l, &err), 0);
    assert_int_equal(inject_parse(one, &l, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "more than 32 faults"));
    inject_select(&l, 65535, INJECTION_AT_GATHER, INJECTION_AT_STOP, text);
    assert_int_equal(strlen(text), INJECTION_MAX_TEXT - 1);
    l.n = 0;
    assert_int_equal(inject_parse(text, &l, &err), 0);
    assert_int_equal(l.n, INJECTION_MAX);
}

static void test_due(void **state)
{
    struct injection_list l = {.n = 0};
    struct err err;

    (void)state;
    assert_int_equal(inject_parse("kill:rank1@step5,kill:rank1@form", &l, &err), 0);
    assert_true(inject_is_due(&l.item[0], INJECTION_AT_STEP, 5));
    assert_false(inject_is_due(&l.item[0], INJECTION_AT_STEP, 6));
    assert_false(inject_is_due(&l.item[0], INJECTION_AT_REDUCE, 5));
    assert_true(inject_is_due(&l.item[1], INJECTION_AT_FORM, 7));
    l.item[1].is_spent = 1;
    assert_false(inject_is_due(&l.item[1], INJECTION_AT_FORM, 7));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good), cmocka_unit_test(test_bad), cmocka_unit_test(test_several),
        cmocka_unit_test(test_most), cmocka_unit_test(test_due),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
