/* Tests of nvml with libraries that the test builds: numbers, a slice, libraries that lack
 * functions, errors, and a counter that falls back.  And sampler, which loads it for a GPU alone.
 */
#include "../test.h"

#include <dlfcn.h>
#include <sched.h>

#include "base/clock.h"
#include "daemon/nvml.h"
#include "daemon/sampler.h"
#include "nvml_stub.h"

#define BUS "0000:65:00.0"

enum { EACH_MS = 5, PATIENCE_S = 30 };

/* The file of this stub, whose variable is *stub. */
static const char *library(const char *variable, struct nvml_stub **stub)
{
    const char *path = getenv(variable);
    void *handle = path ? dlopen(path, RTLD_NOW) : NULL;

    if (!handle)
        fail_msg("%s: %s", variable, path ? dlerror() : "it is not set");
    *stub = dlsym(handle, "nvml_stub");
    assert_non_null(*stub);
    **stub = (struct nvml_stub){.mj = 5000000,
                                .used_bytes = 7168000,
                                .percent = 93,
                                .celsius = 61,
                                .mw = 512345,
                                .mhz = 1980};
    return path;
}

static struct nvml *open_of(const char *path, const char *bus, const char *uuid)
{
    struct nvml *n;
    struct err err;

    if (nvml_open(path, bus, uuid, &n, &err) < 0)
        fail_msg("%s", err.msg);
    return n;
}

static void numbers_of_a_gpu(void **state)
{
    static const char *const places[][2] = {{BUS, "GPU-1"}, {"", "GPU-1"}};
    struct nvml_stub *stub;
    const char *path = library("NVML_STUB", &stub);
    struct usage u = {.resident_kib = 7};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        struct nvml *n = open_of(path, places[i][0], places[i][1]);

        stub->mj += 2500;
        nvml_read(n, &u);
        assert_int_equal(u.mj[ENERGY_GPU], 2501);
        assert_int_equal(u.gpu_permille, 930);
        assert_int_equal(u.gpu_memory_kib, 7000);
        assert_int_equal(u.gpu_celsius, 61);
        assert_int_equal(u.gpu_mw, 512345);
        assert_int_equal(u.gpu_clock_mhz, 1980);
        assert_int_equal(u.resident_kib, 7); /* is not of the GPU */
        assert_int_equal(stub->n_open, 1);
        nvml_close(n);
        assert_int_equal(stub->n_open, 0);
    }
    nvml_close(NULL);
}

/* A driver that was loaded anew counts from 0. */
static void a_counter_that_falls_back(void **state)
{
    static const struct {
        unsigned long long mj;
        int64_t want;
    } rows[] = {
        {5000100, 101},         {40, 101}, {90, 151}, {90, 151}, {UINT64_MAX, INT64_MAX / 16 + 1},
        {0, INT64_MAX / 16 + 1}};
    struct nvml_stub *stub;
    struct nvml *n = open_of(library("NVML_STUB", &stub), BUS, "GPU-1");
    struct usage u;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        stub->mj = rows[i].mj;
        nvml_read(n, &u);
        assert_int_equal(u.mj[ENERGY_GPU], rows[i].want);
    }
    nvml_close(n);
}

/* A number of 0 is known; an error is not. */
static void an_idle_gpu_and_a_failed_one(void **state)
{
    struct nvml_stub *stub;
    struct nvml *n = open_of(library("NVML_STUB", &stub), BUS, "GPU-1");
    struct usage u;

    (void)state;
    stub->percent = 0;
    stub->used_bytes = 0;
    nvml_read(n, &u);
    assert_int_equal(u.gpu_permille, 1);
    assert_int_equal(u.gpu_memory_kib, 1);
    stub->error = 15; /* the GPU is lost */
    stub->mj += 100;
    nvml_read(n, &u);
    assert_int_equal(u.mj[ENERGY_GPU], 0);
    assert_int_equal(u.gpu_permille, 0);
    assert_int_equal(u.gpu_memory_kib, 0);
    assert_int_equal(u.gpu_celsius, 0);
    assert_int_equal(u.gpu_mw, 0);
    assert_int_equal(u.gpu_clock_mhz, 0);
    stub->error = 0;
    stub->percent = 4000; /* no percentage */
    nvml_read(n, &u);
    assert_int_equal(u.mj[ENERGY_GPU], 101);
    assert_int_equal(u.gpu_permille, 0);
    nvml_close(n);
}

/* The energy of the whole GPU is not that of its slice. */
static void a_slice(void **state)
{
    struct nvml_stub *stub;
    const char *path = library("NVML_STUB", &stub);
    struct nvml *n = open_of(path, BUS, "MIG-1");
    struct usage u;

    (void)state;
    nvml_read(n, &u);
    assert_int_equal(u.mj[ENERGY_GPU], 0);
    assert_int_equal(u.gpu_permille, 0);
    assert_int_equal(u.gpu_mw, 0);
    assert_int_equal(u.gpu_memory_kib, 1000);
    assert_int_equal(u.gpu_celsius, 61);
    assert_int_equal(u.gpu_clock_mhz, 1980);
    nvml_close(n);
    n = open_of(path, "", "MIG-1");
    nvml_read(n, &u);
    assert_int_equal(u.gpu_memory_kib, 1000);
    assert_int_equal(u.gpu_celsius, 0);
    nvml_close(n);
}

static void a_library_without_some_functions(void **state)
{
    struct nvml_stub *stub;
    struct nvml *n = open_of(library("NVML_STUB_OLD", &stub), BUS, "GPU-1");
    struct usage u;

    (void)state;
    nvml_read(n, &u);
    assert_int_equal(u.mj[ENERGY_GPU], 0);
    assert_int_equal(u.gpu_celsius, 0);
    assert_int_equal(u.gpu_permille, 930);
    assert_int_equal(u.gpu_mw, 512345);
    nvml_close(n);
}

static void assert_refused(const char *path, const char *bus, const char *uuid, const char *want)
{
    struct nvml *n;
    struct err err;

    assert_int_equal(nvml_open(path, bus, uuid, &n, &err), ERR_UNSUPPORTED);
    if (!strstr(err.msg, want))
        fail_msg("\"%s\" lacks \"%s\"", err.msg, want);
}

static void what_cannot_be_opened(void **state)
{
    struct nvml_stub *stub, *broken;
    const char *path = library("NVML_STUB", &stub);

    (void)state;
    assert_refused("libnothing-at-all.so.1", BUS, "GPU-1", "libnothing-at-all.so.1: cannot open");
    assert_refused(library("NVML_STUB_BROKEN", &broken), BUS, "GPU-1",
                   "it has no function nvmlDeviceGetHandleByUUID: it is too old");
    assert_int_equal(broken->n_open, 0);
    assert_refused(path, "0000:01:00.0", "GPU-1", "the GPU at 0000:01:00.0: Not Found (6)");
    assert_refused(path, "", "GPU-2", "the GPU GPU-2: Not Found (6)");
    assert_refused(path, BUS, "MIG-2", "the slice MIG-2: Not Found (6)");
    assert_int_equal(stub->n_open, 0);
    stub->init_error = 9;
    assert_refused(path, BUS, "GPU-1", "its start: Some Error (9)");
    assert_int_equal(stub->n_open, 0);
}

/* ---- sampler ---- */

static void a_sampler_watches_a_gpu(void **state)
{
    const int64_t begun = clock_mono_ns();
    struct nvml_stub *stub;
    const struct sampler_options o = {"/nowhere", library("NVML_STUB", &stub), EACH_MS};
    struct sampler *s;
    struct usage u;
    struct err err;

    (void)state;
    assert_int_equal(sampler_new(&o, &s, &err), 0);
    do { /* until it has measured twice: on a CPU nothing asks the library */
        sched_yield();
        sampler_read(s, &u);
        assert_int_equal(stub->n_open, 0);
        assert_true(clock_since_s(begun) < PATIENCE_S);
    } while (u.cpu_permille == 0);
    assert_int_equal(u.gpu_memory_kib, 0);
    sampler_watch_gpu(s, BUS, "GPU-1");
    do {
        sched_yield();
        sampler_read(s, &u);
        assert_true(clock_since_s(begun) < PATIENCE_S);
    } while (u.gpu_memory_kib == 0);
    assert_int_equal(u.gpu_permille, 930);
    assert_int_equal(u.mj[ENERGY_GPU], 1);
    sampler_free(s);
    assert_int_equal(stub->n_open, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_a_gpu),
        cmocka_unit_test(a_counter_that_falls_back),
        cmocka_unit_test(an_idle_gpu_and_a_failed_one),
        cmocka_unit_test(a_slice),
        cmocka_unit_test(a_library_without_some_functions),
        cmocka_unit_test(what_cannot_be_opened),
        cmocka_unit_test(a_sampler_watches_a_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
