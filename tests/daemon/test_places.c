/* Tests of places: how --ranks shares out GPUs and CPUs, and what it refuses.  The devices are made
 * up; the CPUs are those of the machine that runs the test. */
#include "../test.h"

#include <stdlib.h>

#include "daemon/places.h"

static struct devices gpus(int n)
{
    static const struct plugin none;
    struct devices d = {.plugin = n ? &none : NULL, .probe = {.n_gpus = n}};

    return d;
}

static void test_parse(void **state)
{
    static const struct {
        const char *text;
        int n; /* -2: refused */
    } cases[] = {{NULL, 0}, {"1", 1},   {"8", 8},   {"1024", 1024}, {"gpus", PLACES_GPUS},
                 {"0", -2}, {"-1", -2}, {"2x", -2}, {"1025", -2},   {"GPUs", -2},
                 {" 2", -2}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct daemon_options o = {.ranks = cases[i].text};
        struct err err;
        int n, rc = places_parse(&o, &n, &err);

        assert_int_equal(rc, cases[i].n == -2 ? ERR_ARG : 0);
        if (rc == 0)
            assert_int_equal(n, cases[i].n);
        else
            assert_non_null(strstr(err.msg, "want a number from 1 to 1024, or gpus"));
    }
}

/* A GPU that cannot be used is left out. */
static void test_gpus(void **state)
{
    const struct daemon_options o = {.ranks = "gpus", .device = "auto", .bind = BIND_NONE};
    struct devices d = gpus(3);
    struct places p;
    struct err err;

    (void)state;
    strcpy(d.probe.gpu[1].trouble, "too old");
    assert_int_equal(places_find(&o, &d, &p, &err), 0);
    assert_int_equal(p.n, 2);
    assert_string_equal(p.place[0].device, "cuda:0");
    assert_string_equal(p.place[1].device, "cuda:2");
    assert_int_equal(p.place[0].n_cpus, 0);
    assert_int_equal(p.place[0].n_threads, 0);
    places_fini(&p);
}

static void test_refused(void **state)
{
    static const struct {
        struct daemon_options o;
        int n_gpus;
        const char *wants;
    } cases[] = {
        {{.ranks = "gpus", .device = "auto"}, 0, "--ranks gpus: no GPU can be used here; --ranks"},
        {{.ranks = "3", .device = "cuda"}, 2, "and 2 can be used here; give --ranks gpus"},
        {{.ranks = "3", .device = "auto"}, 2, "or --device cpu"},
        {{.ranks = "2", .device = "cuda:1"}, 2, "--device cuda:1 is one GPU"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct devices d = gpus(cases[i].n_gpus);
        struct places p;
        struct err err;

        assert_true(places_find(&cases[i].o, &d, &p, &err) < 0);
        if (!strstr(err.msg, cases[i].wants))
            fail_msg("\"%s\" is not in \"%s\"", cases[i].wants, err.msg);
    }
}

/* The remedy stands behind the longest reason, too. */
static void test_a_long_reason(void **state)
{
    const struct daemon_options o = {.ranks = "gpus", .device = "auto"};
    struct devices d = gpus(0);
    struct places p;
    struct err err;

    (void)state;
    for (size_t n = 380; n < sizeof d.trouble; n++) {
        memset(d.trouble, 'x', n);
        assert_int_equal(places_find(&o, &d, &p, &err), ERR_UNSUPPORTED);
        if (!strstr(err.msg, "x; --ranks N starts ranks on CPUs") &&
            !strstr(err.msg, "x...; --ranks N starts ranks on CPUs"))
            fail_msg("of %zu bytes: \"%s\"", n, err.msg);
    }
}

/* All CPUs of this process are given out, each once; --threads says otherwise only of threads. */
static void test_cpus(void **state)
{
    struct daemon_options o = {.ranks = "1", .device = "cpu"};
    const struct devices d = gpus(0);
    cpu_set_t all;
    struct places p;
    struct err err;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(places_find(&o, &d, &p, &err), 0);
    assert_int_equal(p.n, 1);
    assert_true(CPU_EQUAL(&p.place[0].cpus, &all));
    assert_int_equal(p.place[0].n_threads, CPU_COUNT(&all));
    assert_string_equal(p.place[0].device, "cpu");
    places_fini(&p);
    o.n_threads = 3;
    assert_int_equal(places_find(&o, &d, &p, &err), 0);
    assert_int_equal(p.place[0].n_threads, 3);
    places_fini(&p);
    o.ranks = "1024"; /* more than the CPUs that can be named */
    o.n_threads = 0;
    if (CPU_COUNT(&all) < 1024) {
        assert_int_equal(places_find(&o, &d, &p, &err), 0);
        assert_int_equal(p.place[0].n_cpus, 0);
        assert_int_equal(p.place[1023].n_threads, 0);
        places_fini(&p);
    }
}

static void test_shared_gpu(void **state)
{
    const struct daemon_options o = {.ranks = "2", .device = "cuda", .test_shared_gpu = 1};
    const struct devices d = gpus(1);
    struct places p;
    struct err err;

    (void)state;
    assert_int_equal(places_find(&o, &d, &p, &err), 0);
    assert_string_equal(p.place[0].device, "cuda");
    assert_string_equal(p.place[1].device, "cuda");
    places_fini(&p);
}

/* torchrun's LOCAL_RANK is the GPU, unless --device names one or that GPU cannot be used. */
static void test_local_rank(void **state)
{
    static const struct {
        const char *wanted;
        int local_rank;
        const char *device;
    } cases[] = {{"auto", 1, "cuda:1"}, {"cuda", 0, "cuda:0"}, {"cuda:0", 1, "cuda:0"},
                 {"cpu", 1, "cpu"},     {"auto", 2, "auto"},   {"auto", 3, "auto"},
                 {"cuda", -1, "cuda"}};
    struct devices d = gpus(3);
    const struct devices none = gpus(0);
    char out[DEVICE_TEXT];

    (void)state;
    strcpy(d.probe.gpu[2].trouble, "too old");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        devices_of_local_rank(&d, cases[i].wanted, cases[i].local_rank, out);
        assert_string_equal(out, cases[i].device);
    }
    devices_of_local_rank(&none, "auto", 0, out);
    assert_string_equal(out, "auto");
}

static void test_none(void **state)
{
    const struct daemon_options o = {.device = "auto"};
    const struct devices d = gpus(2);
    struct places p;
    struct err err;

    (void)state;
    assert_int_equal(places_find(&o, &d, &p, &err), 0);
    assert_int_equal(p.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),   cmocka_unit_test(test_gpus),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_a_long_reason),
        cmocka_unit_test(test_cpus),    cmocka_unit_test(test_shared_gpu),
        cmocka_unit_test(test_none),    cmocka_unit_test(test_local_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
