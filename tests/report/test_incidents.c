/* Tests of incidents: the contents of an incident's file, and the limit on the number of such
 * files. */
#include "../test.h"

#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

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

static json_t *list_of(const char *run_dir)
{
    struct buf text = {0};
    struct err err;
    json_t *list;

    assert_int_equal(incidents_list(run_dir, &text, &err), 0);
    list = json_loads(buf_cstr(&text), 0, NULL);
    assert_true(json_is_array(list));
    buf_fini(&text);
    return list;
}

/* Make incidents/NAME with `text`. */
static void put_file(const char *run_dir, const char *name, const char *text)
{
    char path[4200];
    FILE *f;

    snprintf(path, sizeof path, "%s/incidents/%s", run_dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void a_list_has_their_heads(void **state)
{
    char *path;
    json_t *list = list_of(*state);
    const json_t *row;

    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
    write_one(*state, &path);
    free(path);
    put_file(*state, "incident-2.json", "{\"time\": 3, \"ranks\": [{\"torn");
    put_file(*state, "incident-4.json", "no JSON");
    put_file(*state, "other.json", "{}");
    list = list_of(*state);
    assert_int_equal(json_array_size(list), 3);
    row = json_array_get(list, 0);
    assert_string_equal(text_at(row, "name"), "incident-1.json");
    assert_string_equal(text_at(row, "message"), "rank 2 is in backward");
    assert_string_equal(text_at(row, "stage"), "train");
    assert_int_equal(json_integer_value(json_object_get(row, "step")), 118);
    assert_int_equal(json_integer_value(json_object_get(row, "nranks")), 2);
    assert_true(json_real_value(json_object_get(row, "time")) > 1e9);
    assert_null(json_object_get(row, "ranks"));
    row = json_array_get(list, 1);
    assert_int_equal(json_integer_value(json_object_get(row, "time")), 3);
    assert_true(json_is_null(json_object_get(row, "message")));
    row = json_array_get(list, 2);
    assert_string_equal(text_at(row, "name"), "incident-4.json");
    assert_true(json_is_null(json_object_get(row, "time")));
    assert_int_equal(json_integer_value(json_object_get(row, "bytes")), 7);
    json_decref(list);
}

/* A stranger may ask for these in the place of a name. */
static void no_other_file_is_read(void **state)
{
    static const char *const names[] = {
        "",
        ".",
        "..",
        "../job.yaml",
        "incident-1.json/",
        "incident-1.json/../../job.yaml",
        "./incident-1.json",
        "incident-01.json",
        "incident-0.json",
        "incident--1.json",
        "incident-65.json",
        "incident-1.json ",
        "INCIDENT-1.JSON",
        "other.json",
        "incident-2.json", /* a link out of the folder */
        "incident-3.json", /* a pipe, which must not be waited for */
        "incident-4.json", /* a folder */
        "incident-5.json", /* not there */
        "%s%n%s",
        "/etc/passwd",
    };
    char path[4200], *written;
    struct buf text = {0};
    struct err err;

    write_one(*state, &written);
    free(written);
    put_file(*state, "other.json", "{}");
    snprintf(path, sizeof path, "%s/incidents/incident-2.json", (char *)*state);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    snprintf(path, sizeof path, "%s/incidents/incident-3.json", (char *)*state);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof path, "%s/incidents/incident-4.json", (char *)*state);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (incidents_read(*state, names[i], &text, &err) != INCIDENTS_NONE)
            fail_msg("'%s' is read", names[i]);
        assert_int_equal(text.len, 0);
    }
    assert_int_equal(incidents_read(*state, "incident-1.json", &text, &err), 0);
    assert_non_null(strstr(buf_cstr(&text), "rank 2 is in backward"));
    snprintf(path, sizeof path, "%s/incidents/incident-1.json", (char *)*state);
    assert_int_equal(truncate(path, INCIDENTS_BYTES + 1), 0);
    assert_int_equal(incidents_read(*state, "incident-1.json", &text, &err), ERR_IO);
    assert_non_null(strstr(err.msg, "incident-1.json has 16777217 bytes"));
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_has_it_all, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(their_number_is_bounded, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_list_has_their_heads, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(no_other_file_is_read, folder_setup, folder_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
