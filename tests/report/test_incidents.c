/* Tests of incidents: the contents of an incident's file, and the limit on the number of such
 * files. */
#include "../test.h"

#include <jansson.h>

#include "folder.h"
#include "report/incidents.h"

static struct collective ring[] = {
    {.generation = 2,
     .number = 7,
     .step = 118,
     .bucket = 3,
     .n_bytes = 4096,
     .phase = PHASE_BACKWARD,
     .handed_ns = -2500000000,
     .began_ns = -2000000000},
    {.generation = 2, .number = 8, .step = 118, .bucket = RING_SYNC, .handed_ns = -1},
};

static struct incident_rank ranks[] = {
    {.rank = 2,
     .host = (char *)"node\x1b"
                     "7",
     .pid = 4242,
     .is_behind = 1,
     .at = {.phase = PHASE_BACKWARD, .step = 118, .bucket = 3},
     .phase_s = 12.5,
     .heard_s = 4},
    {.rank = 0,
     .host = (char *)"node0",
     .pid = 1,
     .at = {.phase = PHASE_IDLE, .bucket = -1},
     .has_answered = 1,
     .ring = ring,
     .n_ring = 2},
};

static const struct incident incident = {.number = 1,
                                         .text = (char *)"rank 2 is in backward",
                                         .generation = 2,
                                         .stage = "train",
                                         .n_ranks = 2,
                                         .rank = ranks,
                                         .n = 2};

static const char *text_at(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void write_one(const char *run_dir, char **path)
{
    char *text = incidents_text(&incident);
    struct err err;

    assert_int_equal(incidents_write(run_dir, text, path, &err), 0);
    free(text);
}

static void a_file_has_it_all(void **state)
{
    char *path;
    const json_t *r, *c;

    write_one(*state, &path);
    json_t *o = json_load_file(path, 0, NULL);
    assert_non_null(o);
    assert_string_equal(text_at(o, "message"), "rank 2 is in backward");
    assert_string_equal(text_at(o, "stage"), "train");
    assert_int_equal(json_integer_value(json_object_get(o, "nranks")), 2);
    r = json_array_get(json_object_get(o, "ranks"), 0);
    assert_string_equal(text_at(r, "host"), "node?7");
    assert_string_equal(text_at(r, "phase"), "backward");
    assert_true(json_is_true(json_object_get(r, "behind")));
    assert_true(json_is_null(json_object_get(r, "collectives")));
    assert_float_equal(json_real_value(json_object_get(r, "phase_seconds")), 12.5, 1e-9);
    r = json_array_get(json_object_get(o, "ranks"), 1);
    assert_true(json_is_null(json_object_get(r, "bucket")));
    c = json_array_get(json_object_get(r, "collectives"), 0);
    assert_int_equal(json_integer_value(json_object_get(c, "bucket")), 3);
    assert_int_equal(json_integer_value(json_object_get(c, "bytes")), 4096);
    assert_float_equal(json_real_value(json_object_get(c, "handed")), 2.5, 1e-9);
    assert_true(json_is_null(json_object_get(c, "ended")));
    assert_string_equal(text_at(c, "state"), "running");
    c = json_array_get(json_object_get(r, "collectives"), 1);
    assert_string_equal(text_at(c, "bucket"), "statistics");
    assert_string_equal(text_at(c, "state"), "queued");
    json_decref(o);
    free(path);
}

static void their_number_is_bounded(void **state)
{
    struct err err;
    char *path, want[4200];

    for (int i = 1; i <= INCIDENTS_MOST; i++) {
        write_one(*state, &path);
        snprintf(want, sizeof want, "%s/incidents/incident-%d.json", (char *)*state, i);
        assert_string_equal(path, want);
        free(path);
    }
    assert_int_equal(incidents_write(*state, "{}", &path, &err), INCIDENTS_FULL);
    assert_int_equal(incidents_write("/proc/none", "{}", &path, &err), ERR_IO);
    assert_non_null(strstr(err.msg, "/proc/none/incidents"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_has_it_all, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(their_number_is_bounded, folder_setup, folder_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
