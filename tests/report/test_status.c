/* Tests of status: the table of ranks as text and as JSON, its short form for the log, and the
 * progress line. */
#include "../test.h"

#include <jansson.h>

#include "report/status.h"
#include "session/action.h"

static struct status_rank ranks[] = {
    {.rank = 0,
     .role = STATUS_MEMBER,
     .host = "node0",
     .device = "cpu",
     .pid = 4240,
     .phase = PHASE_REDUCE,
     .step = 118,
     .bucket = 3,
     .generation = 2,
     .step_ms = 20.14,
     .factor = 1},
    {.rank = 1, .role = STATUS_MISSING},
    {.rank = 2,
     .role = STATUS_MEMBER,
     .host = "a-node\x1b-7",
     .device = "cuda:1",
     .pid = 42,
     .phase = PHASE_VALIDATE,
     .step = 7,
     .bucket = -1,
     .generation = 2,
     .heard_s = 12.34,
     .factor = 2.312,
     .is_straggler = 1},
};

static const struct status status = {.stage = "train",
                                     .stage_s = 12.06,
                                     .generation = 2,
                                     .epoch = 3,
                                     .step = 118,
                                     .n_ranks = 3,
                                     .n_here = 2,
                                     .rank = ranks,
                                     .n = 3};

/* Where the time went, and what it cost, where that is known. */
static void an_account(void **state)
{
    struct status s = status;
    struct buf out = {0};
    json_t *all, *o;

    (void)state;
    s.account = (struct account_times){.ns = {[ACCOUNT_PRODUCTIVE] = 3000000000, 1000000000}};
    s.cost = 12.34;
    s.cost_forecast = 99.9;
    status_put_text(&s, &out);
    assert_non_null(strstr(buf_cstr(&out), "\ngoodput 75.0 % of the time; start 25.0 %\n"
                                           "cost 12.34 so far, about 99.90 for the whole run\n"));
    buf_fini(&out);
    out = (struct buf){0};
    status_put_both(&s, 0, &out);
    all = json_loads(buf_cstr(&out), 0, NULL);
    o = json_object_get(all, "status");
    assert_float_equal(json_real_value(json_object_get(o, "goodput")), 0.75, 1e-9);
    assert_float_equal(json_real_value(json_object_get(o, "cost_forecast")), 99.9, 1e-9);
    o = json_object_get(o, "badput");
    assert_float_equal(json_real_value(json_object_get(o, "start")), 1, 1e-9);
    json_decref(all);
    buf_fini(&out);
    out = (struct buf){0};
    status_put_both(&status, 0, &out);
    assert_non_null(strstr(buf_cstr(&out), "\"goodput\":null,\"badput\":null,\"cost\":null"));
    assert_null(strstr(buf_cstr(&out), "cost 0"));
    buf_fini(&out);
}

/* The columns of memory and processors are there if a rank knows them. */
static void a_table_with_memory(void **state)
{
    struct status_rank two[2] = {ranks[0], ranks[0]};
    struct status s = status;
    struct buf out = {0};

    (void)state;
    two[0].usage = (struct usage){.resident_kib = 1500 * 1024 + 1, .cpu_permille = 1500};
    two[1].rank = 1;
    s.rank = two;
    s.n = 2;
    status_put_text(&s, &out);
    assert_non_null(strstr(buf_cstr(&out), "  slowness   MiB  cpus  gen\n"));
    assert_non_null(strstr(buf_cstr(&out), "      1.00  1501  1.50    2\n"));
    assert_non_null(strstr(buf_cstr(&out), "      1.00     -     -    2\n"));
    two[0].usage.cpu_permille = 0;
    buf_clear(&out);
    status_put_text(&s, &out);
    assert_non_null(strstr(buf_cstr(&out), "  slowness   MiB  gen\n"));
    buf_fini(&out);
}

static const json_t *status_at(const json_t *all, const char *path)
{
    char *text = strdup(path), *rest = text, *key;
    const json_t *o = all;

    while ((key = strsep(&rest, ".")))
        o = strspn(key, "0123456789") == strlen(key) ? json_array_get(o, (size_t)atoi(key))
                                                     : json_object_get(o, key);
    free(text);
    if (!o)
        fail_msg("no %s", path);
    return o;
}

/* Memory, processor, GPU and joules of a rank; 0 is not known. */
static void what_a_rank_uses(void **state)
{
    struct status_rank two[2] = {ranks[0], ranks[2]};
    struct status s = status;
    struct buf out = {0};
    json_t *all;

    (void)state;
    two[0].usage = (struct usage){.resident_kib = 2, .cpu_permille = 1500};
    two[0].energy.mj[ENERGY_PACKAGE] = 2500;
    two[1].usage = (struct usage){.gpu_permille = 930, .gpu_memory_kib = 4, .gpu_mw = 512250};
    s.rank = two;
    s.n = 2;
    s.energy.mj[ENERGY_PACKAGE] = 3500;
    s.no_energy = (char *)"no counter of GPUs for 1 of 2 ranks";
    status_put_json(&s, &out);
    all = json_loads(buf_cstr(&out), 0, NULL);
    assert_non_null(all);
    assert_int_equal(json_integer_value(status_at(all, "ranks.0.memory_bytes")), 2048);
    assert_float_equal(json_real_value(status_at(all, "ranks.0.cpu")), 1.5, 1e-9);
    assert_true(json_is_null(status_at(all, "ranks.0.gpu")));
    assert_float_equal(json_real_value(status_at(all, "ranks.0.joules.package")), 2.5, 1e-9);
    assert_true(json_is_null(status_at(all, "ranks.0.joules.gpu")));
    assert_true(json_is_null(status_at(all, "ranks.1.memory_bytes")));
    assert_float_equal(json_real_value(status_at(all, "ranks.1.gpu.use")), 0.93, 1e-9);
    assert_int_equal(json_integer_value(status_at(all, "ranks.1.gpu.memory_bytes")), 4096);
    assert_float_equal(json_real_value(status_at(all, "ranks.1.gpu.watts")), 512.25, 1e-9);
    assert_true(json_is_null(status_at(all, "ranks.1.gpu.celsius")));
    assert_float_equal(json_real_value(status_at(all, "joules.package")), 3.5, 1e-9);
    assert_true(json_is_null(status_at(all, "joules.gpu")));
    assert_string_equal(json_string_value(status_at(all, "energy_missing")), s.no_energy);
    json_decref(all);
    buf_clear(&out);
    status_put_text(&s, &out);
    assert_non_null(strstr(buf_cstr(&out), "\nenergy 3.5 J of processors' packages; not known: "));
    buf_fini(&out);
}

static void a_table_for_people(void **state)
{
    struct buf out = {0};

    (void)state;
    status_put_text(&status, &out);
    assert_string_equal(
        buf_cstr(&out),
        "train for 12.1 s, generation 2, epoch 3, step 118, 2 of 3 ranks\n"
        "rank  host        pid  device  state    phase     step  bucket  step ms  heard s  slowness"
        "  gen\n"
        "   0  node0      4240  cpu     member   reduce     118       3     20.1      0.0      1.00"
        "    2\n"
        "   1  -             -  -       missing  -            -       -        -        -         -"
        "    -\n"
        "   2  a-node?-7    42  cuda:1  member   validate     7       -        -     12.3     2.31*"
        "    2\n");
    buf_fini(&out);
}

/* A spare is named as --drain takes it, and not by a number that a rank has. */
static void a_spare_has_no_rank(void **state)
{
    struct status_rank spare = ranks[0];
    struct status s = status;
    struct buf out = {0};
    json_t *o, *r;

    (void)state;
    spare.role = STATUS_SPARE;
    spare.rank = -1;
    spare.spare = 2;
    s.rank = &spare;
    s.n = 1;
    status_put_both(&s, 0, &out);
    o = json_loadb((char *)out.data, out.len, 0, NULL);
    assert_non_null(strstr(json_string_value(json_object_get(o, "text")), "\nspare2  node0"));
    r = json_array_get(json_object_get(json_object_get(o, "status"), "ranks"), 0);
    assert_true(json_is_null(json_object_get(r, "rank")));
    assert_int_equal(json_integer_value(json_object_get(r, "spare")), 2);
    json_decref(o);
    buf_fini(&out);
}

/* Where the standby is, and whether it has a vote yet. */
static void the_standby_is_named(void **state)
{
    struct status s = status;
    struct buf out = {0};
    json_t *o, *standby;

    (void)state;
    s.standby = "10.0.0.9:7001";
    status_put_text(&s, &out);
    assert_non_null(strstr(buf_cstr(&out), "\nstandby at 10.0.0.9:7001, which has no vote yet\n"));
    s.standby_votes = 1;
    buf_clear(&out);
    status_put_both(&s, 0, &out);
    o = json_loadb((char *)out.data, out.len, 0, NULL);
    assert_non_null(
        strstr(json_string_value(json_object_get(o, "text")), "\nstandby at 10.0.0.9:7001\n"));
    standby = json_object_get(json_object_get(o, "status"), "standby");
    assert_string_equal(json_string_value(json_object_get(standby, "address")), "10.0.0.9:7001");
    assert_true(json_is_true(json_object_get(standby, "votes")));
    json_decref(o);
    buf_fini(&out);
}

/* While training waits for data, all forms of the status say so. */
static void a_wait_for_data_is_told(void **state)
{
    static const char text[] = "\nwaiting for data 50 % of the time on rank 0: set data.workers ";
    struct status s = status;
    struct buf out = {0};
    json_t *o;

    (void)state;
    s.data_wait_share = 0.5;
    s.data_wait_cause = WAIT_READING;
    status_put_text(&s, &out);
    assert_non_null(strstr(buf_cstr(&out), text));
    buf_clear(&out);
    status_put_brief(&s, 1, &out);
    assert_non_null(strstr(buf_cstr(&out), text));
    buf_clear(&out);
    status_put_both(&s, 0, &out);
    o = json_loadb((char *)out.data, out.len, 0, NULL);
    assert_true(json_real_value(json_object_get(json_object_get(o, "status"), "data_wait_share")) ==
                0.5);
    json_decref(o);
    buf_fini(&out);
}

static void an_object_for_programs(void **state)
{
    struct buf out = {0};
    json_t *o, *s, *r;

    (void)state;
    status_put_both(&status, 0, &out);
    assert_int_equal(out.data[out.len - 1], '\n');
    o = json_loadb((char *)out.data, out.len, 0, NULL);
    assert_non_null(o);
    assert_non_null(strstr(json_string_value(json_object_get(o, "text")), "   1  -"));
    s = json_object_get(o, "status");
    assert_string_equal(json_string_value(json_object_get(s, "stage")), "train");
    assert_int_equal(json_integer_value(json_object_get(s, "nranks")), 3);
    assert_int_equal(json_array_size(json_object_get(s, "ranks")), 3);
    assert_true(json_is_null(json_object_get(s, "standby")));
    r = json_array_get(json_object_get(s, "ranks"), 0);
    assert_int_equal(json_integer_value(json_object_get(r, "bucket")), 3);
    assert_int_equal(json_integer_value(json_object_get(r, "pid")), 4240);
    assert_true(json_is_false(json_object_get(r, "straggler")));
    r = json_array_get(json_object_get(s, "ranks"), 1);
    assert_string_equal(json_string_value(json_object_get(r, "role")), "missing");
    assert_int_equal(json_integer_value(json_object_get(r, "rank")), 1);
    assert_true(json_is_null(json_object_get(r, "spare")));
    assert_null(json_object_get(r, "pid"));
    r = json_array_get(json_object_get(s, "ranks"), 2);
    assert_string_equal(json_string_value(json_object_get(r, "host")), "a-node?-7");
    assert_string_equal(json_string_value(json_object_get(r, "device")), "cuda:1");
    assert_true(json_is_null(json_object_get(r, "bucket")));
    assert_true(json_is_null(json_object_get(r, "step_ms")));
    assert_true(json_is_true(json_object_get(r, "straggler")));
    assert_float_equal(json_real_value(json_object_get(r, "factor")), 2.312, 1e-9);
    json_decref(o);
    buf_fini(&out);
}

/* A log must not get thousands of lines: of a large job it shows a few ranks, the unusual ones
 * first of all. */
static void a_log_of_many_is_brief(void **state)
{
    struct status_rank many[1000];
    struct status s = status;
    struct buf brief = {0}, whole = {0}, line = {0};
    int n_lines = 0;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        many[i] = ranks[0];
        many[i].rank = i;
    }
    many[500].role = STATUS_MISSING;
    many[700].is_straggler = 1;
    many[999].role = STATUS_LEAVING;
    s.rank = many;
    s.n = 1000;
    status_put_brief(&s, 5, &brief);
    for (const char *c = buf_cstr(&brief); *c; c++)
        n_lines += *c == '\n';
    assert_int_equal(n_lines, 2 + 5 + 1);
    assert_non_null(strstr(buf_cstr(&brief), "\n   0  node0"));
    assert_non_null(strstr(buf_cstr(&brief), "\n   1  node0"));
    assert_null(strstr(buf_cstr(&brief), "\n   2  node0"));
    assert_non_null(strstr(buf_cstr(&brief), "\n 500  -"));
    assert_non_null(strstr(buf_cstr(&brief), "\n 700  node0"));
    assert_non_null(strstr(buf_cstr(&brief), "\n 999  node0"));
    assert_non_null(strstr(buf_cstr(&brief), "\nand 995 more: dpdriver --status shows all\n"));
    status_put_both(&s, 5, &line); /* for --watch */
    assert_non_null(strstr(buf_cstr(&line), "\\nand 995 more: "));
    buf_clear(&line);

    buf_clear(&brief);
    status_put_brief(&status, 3, &brief); /* a few ranks get the whole table */
    status_put_text(&status, &whole);
    assert_string_equal(buf_cstr(&brief), buf_cstr(&whole));
    status_put_line(&status, &line);
    assert_memory_equal(whole.data, line.data, line.len);
    assert_int_equal(line.data[line.len - 1], '\n');
    buf_fini(&brief);
    buf_fini(&whole);
    buf_fini(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_for_people),
        cmocka_unit_test(a_table_with_memory),
        cmocka_unit_test(an_account),
        cmocka_unit_test(what_a_rank_uses),
        cmocka_unit_test(a_spare_has_no_rank),
        cmocka_unit_test(the_standby_is_named),
        cmocka_unit_test(a_wait_for_data_is_told),
        cmocka_unit_test(an_object_for_programs),
        cmocka_unit_test(a_log_of_many_is_brief),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
