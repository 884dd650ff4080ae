/* began, led, injected: what an earlier driver told of the run, read from the end of its events and
 * from their older parts. */
#include "../test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "folder.h"
#include "report/began.h"
#include "report/injected.h"
#include "report/led.h"
#include "wire/msg.h"

/* Faults on purpose that happened are found in old parts, too. */
static void test_injected_in_old_parts(void **state)
{
    struct injection_list list = {0};
    struct err err;

    (void)state;
    assert_int_equal(
        inject_parse("kill:rank1@step5,kill:rank2@step6,kill:rank3@step7", &list, &err), 0);
    write_text("e.2", "{\"event\":\"inject\",\"spec\":\"kill:rank1@step5\"}\n");
    write_text("e", "{\"event\":\"inject\",\"spec\":\"kill:rank3@step7\"}\n");
    assert_int_equal(injected_spend("e", &list), 2);
}

static void test_began(void **state)
{
    static const struct {
        const char *events, *older;
        int want;
    } rows[] = {
        {NULL, NULL, 0},
        {"{\"event\":\"start\",\"nranks\":3}\n{\"event\":\"join\",\"rank\":1}\n", NULL, 3},
        {"{\"event\":\"start\",\"nranks\":3}\n{\"event\":\"start\",\"nranks\":1}\n", NULL, 1},
        {"{\"event\":\"start\",\"nranks\":3}\n{\"event\":\"start\",\"nra", NULL, 3},
        {"{\"event\":\"form\",\"nranks\":5}\n", "{\"event\":\"start\",\"nranks\":4}\n", 4},
        {"{\"event\":\"start\",\"nranks\":2}\n", "{\"event\":\"start\",\"nranks\":4}\n", 2},
        {"{\"event\":\"warning\",\"message\":\"start\",\"nranks\":9}\n", NULL, 0},
        {"{\"event\":\"start\",\"nranks\":0}\n", NULL, 0},
        {"{\"event\":\"start\",\"nranks\":140000}\n{\"event\":\"start\"}\n", NULL, 0},
        {"start\n", NULL, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].events)
            write_text("events.jsonl", rows[i].events);
        write_text("events.jsonl.2", rows[i].older ? rows[i].older : "");
        if (began_n_ranks(".") != rows[i].want)
            fail_msg("row %d: %d", (int)i, began_n_ranks("."));
    }
}

/* A run whose events tell of a checkpoint, and what stands in the place of the folder now. */
static void test_checkpoints_gone(void **state)
{
    static const char none[] = "{\"event\":\"start\",\"nranks\":1}\n"
                               "{\"event\":\"error\",\"phase\":\"checkpoint\",\"step\":3}\n"
                               "{\"event\":\"checkpoint\",\"step\":9,\"pa",
                      two[] = "{\"event\":\"checkpoint\",\"step\":4,\"path\":\"x\"}\n"
                              "{\"event\":\"checkpoint\",\"step\":8,\"path\":\"y\"}\n";
    static const struct {
        const char *older, *events;
        const char *folder[2]; /* these are made */
        const char *target;    /* checkpoints is a link there; "": it is a file */
        const char *want;      /* NULL: nothing is wrong */
    } rows[] = {
        {"", none, {NULL}, NULL, NULL},
        {"",
         two,
         {NULL},
         NULL,
         "step 8 by its events.jsonl, but ./checkpoints is missing; mount the disk"},
        {two,
         none,
         {"checkpoints"},
         NULL,
         "step 8 by its events.jsonl, but ./checkpoints holds none;"},
        {two, "", {NULL}, "off/ck", "is a link to off/ck, which is missing;"},
        {"", two, {"on"}, "on", "is a link to on, which holds none;"},
        {"",
         two,
         {"checkpoints", "checkpoints/step-00000004"},
         NULL,
         NULL}, /* older, or damaged: told later */
        {"", two, {NULL}, "", "checkpoints: Not a directory"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = {.code = 0};
        int rc;

        for (int k = 0; k < 2 && rows[i].folder[k]; k++)
            assert_int_equal(mkdir(rows[i].folder[k], 0700), 0);
        if (rows[i].target && *rows[i].target)
            assert_int_equal(symlink(rows[i].target, "checkpoints"), 0);
        else if (rows[i].target)
            write_text("checkpoints", "");
        write_text("events.jsonl.1", rows[i].older);
        write_text("events.jsonl", rows[i].events);
        rc = began_check_checkpoints(".", &err);
        if (rc != (rows[i].want ? ERR_CONFIG : 0) || (rc && !strstr(err.msg, rows[i].want)))
            fail_msg("row %d: %d %s", (int)i, rc, rc ? err.msg : "");
        if (rows[i].target)
            assert_int_equal(unlink("checkpoints"), 0);
        for (int k = 2; k-- > 0;)
            assert_int_equal(rows[i].folder[k] ? rmdir(rows[i].folder[k]) : 0, 0);
    }
}

/* A run that goes back: what it told of later steps is of a branch that is lost. */
static void test_led(void **state)
{
    struct led led;

    (void)state;
    led_read("none", &led);
    assert_int_equal(led.step + led.generation, 0);
    write_text("e.1", "{\"event\":\"form\",\"generation\":1,\"step\":0}\n"
                      "{\"event\":\"epoch\",\"step\":400,\"validation_loss\":1}\n"
                      "{\"event\":\"epoch\",\"step\":1000,\"validation_loss\":1}\n");
    write_text("e", "");
    led_read("e", &led);
    assert_int_equal(led.step, 1000);
    assert_int_equal(led.epoch_step, 1000);
    assert_int_equal(led.validated_step, 1000);
    write_text("e", "{\"event\":\"form\",\"generation\":2,\"step\":400}\n"
                    "{\"event\":\"warning\",\"step\":450}\n{\"event\":\"ep");
    led_read("e", &led);
    assert_int_equal(led.generation, 2);
    assert_int_equal(led.step, 450);
    assert_int_equal(led.epoch_step, 400);
    assert_int_equal(led.validated_step, 400);
    write_text("e", "{\"event\":\"form\",\"generation\":2}\n"); /* of an older version */
    led_read("e", &led);
    assert_int_equal(led.step, 1000);
}

/* `done` counts until the run goes on. */
static void test_led_of_a_finished_job(void **state)
{
    struct led led;

    (void)state;
    write_text("e.1", "{\"event\":\"form\",\"generation\":1,\"step\":0}\n");
    write_text("e", "{\"event\":\"checkpoint\",\"step\":8}\n");
    led_read("e", &led);
    assert_false(led.is_done);
    write_text("e", "{\"event\":\"done\",\"step\":8}\n{\"event\":\"start\"}\n");
    led_read("e", &led);
    assert_true(led.is_done);
    write_text("e", "{\"event\":\"done\",\"step\":8}\n"
                    "{\"event\":\"form\",\"generation\":2,\"step\":8}\n");
    led_read("e", &led);
    assert_false(led.is_done);
}

/* Numbers that no run reaches, as in a damaged file, leave room for the next one. */
static void test_led_of_huge_numbers(void **state)
{
    struct led led;

    (void)state;
    write_text("e", "{\"event\":\"form\",\"generation\":9223372036854775807,"
                    "\"step\":9223372036854775807,\"term\":-3,\"nranks\":4294967295,"
                    "\"standby\":\"77aa\"}\n");
    led_read("e", &led);
    assert_true(led.generation == INT64_MAX / 4 && led.step == INT64_MAX / 4);
    assert_int_equal(led.voters.n_ranks, MSG_MAX_RANKS);
    assert_int_equal(led.voters.term, 0);
}

static char *repeat(char *at, int n, const char *line)
{
    for (int i = 0; i < n; i++)
        at = stpcpy(at, line);
    return at;
}

/* The newest lines tell all, so a long file is not read to its beginning: there, lines that would
 * change the numbers stand in the way.  A line across the border of what is read counts, too. */
static void test_led_of_a_long_run(void **state)
{
    static const char warning[] = "{\"event\":\"warning\",\"step\":7,\"message\":\"slow\"}\n";
    enum { LINES = 1 << 20 }; /* 50 MiB */
    char *text = xmalloc((LINES + 10) * sizeof warning), *at = text;
    struct led led;

    (void)state;
    at = stpcpy(at, "{\"event\":\"epoch\",\"step\":9,\"validation_loss\":1}\n");
    at = repeat(at, LINES, warning);
    at = stpcpy(at, "{\"event\":\"form\",\"generation\":5,\"step\":20}\n"
                    "{\"event\":\"epoch\",\"step\":30}\n"
                    "{\"event\":\"inject\",\"step\":34}\n");
    write_text("e", text);
    led_read("e", &led);
    assert_int_equal(led.generation, 5);
    assert_int_equal(led.step, 34);
    assert_int_equal(led.epoch_step, 30);
    assert_int_equal(led.validated_step, 0); /* too far back */
    at = repeat(at, 5000, warning);          /* the numbers are beyond what is read first */
    write_text("e", text);
    led_read("e", &led);
    assert_int_equal(led.generation, 5);
    assert_int_equal(led.step, 34);
    assert_int_equal(led.epoch_step, 30);
    free(text);
}

/* A formation that goes on from an older step than an epoch's line: the line counts up to there. */
static void test_led_goes_back_twice(void **state)
{
    struct led led;

    (void)state;
    write_text("e.1", "{\"event\":\"form\",\"generation\":1,\"step\":0}\n"
                      "{\"event\":\"epoch\",\"step\":100,\"validation_loss\":1}\n"
                      "{\"event\":\"epoch\",\"step\":200}\n");
    write_text("e", "{\"event\":\"form\",\"generation\":2,\"step\":150}\n"
                    "{\"event\":\"form\",\"generation\":3,\"step\":160}\n"
                    "{\"event\":\"lost\",\"step\":170}");
    led_read("e", &led);
    assert_int_equal(led.generation, 3);
    assert_int_equal(led.step, 170);
    assert_int_equal(led.epoch_step, 150);
    assert_int_equal(led.validated_step, 100);
}

/* A run whose driver was killed: the newest account, what the driver did behind it, and what
 * training had taken at the steps before. */
static void test_led_of_an_account(void **state)
{
    struct led led;

    (void)state;
    write_text(
        "e",
        "{\"event\":\"start\",\"time\":100}\n"
        "{\"event\":\"form\",\"time\":101,\"step\":0,\"wall_seconds\":1,\"badput\":{\"start\":1}}\n"
        "{\"event\":\"checkpoint\",\"time\":105,\"step\":40,\"wall_seconds\":5,"
        "\"badput\":{\"start\":1},\"joules\":{\"package\":7.5,\"gpu\":1}}\n"
        "{\"event\":\"form\",\"time\":107,\"step\":30,\"wall_seconds\":7,"
        "\"badput\":{\"start\":1,\"lost\":2,\"repeated\":1}}\n"
        "{\"event\":\"checkpoint\",\"time\":109,\"step\":50,\"wall_seconds\":9,\"rank_hours\":0.5,"
        "\"joules\":{\"package\":12.5,\"gpu\":null},"
        "\"badput\":{\"start\":1,\"lost\":2,\"repeated\":1,\"data\":0.5,\"waiting\":-4}}\n"
        "{\"event\":\"warning\",\"time\":112}\n"
        "{\"event\":\"start\",\"time\":900}\n{\"event\":\"warning\",\"time\":950}\n");
    led_read("e", &led);
    assert_int_equal(account_wall_ns(&led.account.times), 12000000000);
    assert_int_equal(led.account.times.ns[ACCOUNT_REPEATED], 4000000000);
    assert_int_equal(led.account.times.ns[ACCOUNT_PRODUCTIVE], 4500000000);
    assert_int_equal(led.account.times.ns[ACCOUNT_DATA], 500000000);
    assert_int_equal(led.account.times.rank_us, 1800000000);
    assert_int_equal(led.energy.mj[ENERGY_PACKAGE], 12500);
    assert_int_equal(led.energy.mj[ENERGY_GPU], 0);
    assert_int_equal(led.account.n_marks, 3);
    assert_int_equal(led.account.mark[0].step, 0);
    assert_int_equal(led.account.mark[1].step, 30);
    assert_int_equal(led.account.mark[1].ns, 3000000000);
    assert_int_equal(led.account.mark[2].step, 50);
    assert_int_equal(led.account.mark[2].ns, 5000000000);
    write_text("e", "{\"event\":\"form\",\"step\":0,\"wall_seconds\":1e300,"
                    "\"joules\":{\"package\":1e300,\"gpu\":-5},"
                    "\"badput\":{\"start\":1e300,\"lost\":\"x\"}}\n");
    led_read("e", &led);
    assert_int_equal(account_wall_ns(&led.account.times), 0);
    assert_int_equal(led.energy.mj[ENERGY_PACKAGE], 1000000000000000000);
    assert_int_equal(led.energy.mj[ENERGY_GPU], 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_injected_in_old_parts), CASE(test_led),
        CASE(test_led_of_a_finished_job), CASE(test_led_of_a_long_run),
        CASE(test_led_of_huge_numbers),   CASE(test_led_goes_back_twice),
        CASE(test_led_of_an_account),     CASE(test_began),
        CASE(test_checkpoints_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
