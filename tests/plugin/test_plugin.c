/* Tests of loading plugins: a plugin that fits is loaded, any other is refused by name, and the
 * search goes through the right places.
 *
 * Also tested: the texts about devices, and which GPUs a build runs on. */
#include "../test.h"

#include <unistd.h>

#include "backend/cuda/arch.h"
#include "backend/cuda/describe.h"
#include "backend/device.h"
#include "backend/plugin.h"
#include "base/alloc.h"

/* The path of a file beside this program. */
static char *beside(const char *name)
{
    char exe[4096];
    const ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);

    assert_true(len > 0);
    exe[len] = 0;
    *strrchr(exe, '/') = 0;
    return xasprintf("%s/%s", exe, name);
}

static void test_refused(void **state)
{
    static const struct {
        const char *file, *says;
    } rows[] = {
        {"fake_abi.so", "has interface 99, this program wants "},
        {"fake_version.so", "is of dptrain 9.9.9, this program of " DPTRAIN_VERSION},
        {"fake_layout.so", "was built from other sources"},
        {"fake_no_symbol.so", "no symbol dptrain_plugin"},
        {"fake_text.so", "fake_text.so"},
        {"fake_absent.so", "No such file"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *path = beside(rows[i].file);
        const struct plugin *p = NULL;
        struct err err;

        assert_int_equal(plugin_load_file(path, &p, &err), ERR_UNSUPPORTED);
        assert_null(p);
        if (!strstr(err.msg, rows[i].says))
            fail_msg("%s: \"%s\" does not say \"%s\"", rows[i].file, err.msg, rows[i].says);
        assert_non_null(strstr(err.msg, rows[i].file));
        free(path);
    }
}

static void test_loaded(void **state)
{
    struct plugin_search *s = plugin_search_new();
    const struct plugin *p = NULL, *again = NULL;
    struct plugin_probe probe;
    struct backend *b = NULL;
    struct err err;

    (void)state;
    assert_int_equal(plugin_search_load(s, "fake_good.so", &p, &err), 0);
    assert_int_equal(plugin_search_load(s, "fake_good.so", &again, &err), 0);
    assert_ptr_equal(p, again);
    p->probe(&probe);
    assert_string_equal(probe.trouble, "a fake has no GPU");
    assert_int_equal(p->open(0, &b, &err), ERR_DEVICE);
    plugin_search_free(s);
}

static void test_not_there(void **state)
{
    struct plugin_search *s = plugin_search_new();
    const struct plugin *p = NULL;
    struct buf text = {0};
    struct err err;
    char *here = beside("");

    (void)state;
    assert_int_equal(plugin_search_load(s, "fake_absent.so", &p, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "fake_absent.so is neither beside this program"));
    plugin_search_print(s, "fake_absent.so", &text);
    here[strlen(here) - 1] = 0;
    assert_non_null(strstr(buf_cstr(&text), "fake_absent.so: not found"));
    assert_non_null(strstr(buf_cstr(&text), here));
    assert_non_null(strstr(buf_cstr(&text), "/usr/local/cuda/lib64"));
    assert_non_null(strstr(buf_cstr(&text), "libcudart.so.13: "));
    buf_fini(&text);
    free(here);
    plugin_search_free(s);
}

/* CUDA_HOME comes before the usual places. */
static void test_order(void **state)
{
    struct plugin_search *s;
    struct buf text = {0};
    const char *mine, *usual;

    (void)state;
    setenv("CUDA_HOME", "/nowhere/cuda", 1);
    s = plugin_search_new();
    plugin_search_print(s, "fake_good.so", &text);
    mine = strstr(buf_cstr(&text), "/nowhere/cuda/lib64 (not there)");
    usual = strstr(buf_cstr(&text), "/usr/local/cuda/lib64");
    assert_non_null(mine);
    assert_non_null(usual);
    assert_true(mine < usual);
    unsetenv("CUDA_HOME");
    buf_fini(&text);
    plugin_search_free(s);
}

static void test_driver_version(void **state)
{
    static const struct {
        const char *text, *version;
    } rows[] = {
        {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:12 UTC "
         "2025\n",
         "580.95.05"},
        {"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57  Release Build  (a@b)\n",
         "575.57"},
        {"NVRM version: something else 7\n", ""},
        {"1.2.3.4.5.6.7.8.9.10.11", ""},
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char seen[DEVICE_TEXT];

        device_driver_version(rows[i].text, seen);
        assert_string_equal(seen, rows[i].version);
    }
}

static void test_probe_print(void **state)
{
    struct plugin_probe p = {.driver = 13000,
                             .cuda = 13000,
                             .cudnn = 91900,
                             .nccl = 22809,
                             .built_for = "90a",
                             .n_gpus = 2,
                             .gpu = {{.name = "NVIDIA H200",
                                      .uuid = "GPU-1",
                                      .major = 9,
                                      .memory_bytes = (uint64_t)141 << 30},
                                     {.name = "old", .uuid = "GPU-2", .trouble = "too old"}}};
    struct buf text = {0};

    (void)state;
    plugin_probe_print(&p, &text);
    assert_string_equal(buf_cstr(&text),
                        "driver, knows CUDA: 13.0\nCUDA runtime: 13.0\ncuBLASLt: none\n"
                        "cuDNN: 9.19.0\nNCCL: 2.28.9\nkernels built for: 90a\n"
                        "cuda:0: NVIDIA H200, 141.0 GiB, capability 9.0, GPU-1: can be used\n"
                        "cuda:1: old, 0.0 GiB, capability 0.0, GPU-2: too old\n");
    buf_fini(&text);
}

static void test_arch(void **state)
{
    static const struct {
        const char *list;
        int major, minor, runs;
    } rows[] = {
        {"90a", 9, 0, 1},
        {"90a", 10, 0, 0},
        {"90a", 8, 0, 0},
        {"90", 9, 0, 1},
        {"80", 8, 6, 1},
        {"86", 8, 0, 0},
        {"80", 9, 0, 0},
        {"80,86,89,90a", 8, 9, 1},
        {"80,86,89,90a", 12, 0, 0},
        {"90a,120+PTX", 12, 1, 1},
        {"90a,120+PTX", 13, 0, 1},
        {"90a,120+PTX", 10, 0, 0},
        {"120+PTX,90a", 9, 0, 1},
        {"", 9, 0, 0},
        {"none", 9, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (arch_runs_on(rows[i].list, rows[i].major, rows[i].minor) != rows[i].runs)
            fail_msg("\"%s\" on %d.%d: want %d", rows[i].list, rows[i].major, rows[i].minor,
                     rows[i].runs);
}

static void test_uuid(void **state)
{
    static const unsigned char bytes[16] = {0x5f, 1, 2,  3,  4,  5,  6,  7,
                                            8,    9, 10, 11, 12, 13, 14, 0xff};
    char seen[48];

    (void)state;
    describe_uuid(bytes, "NVIDIA H200", seen, sizeof seen);
    assert_string_equal(seen, "GPU-5f010203-0405-0607-0809-0a0b0c0d0eff");
    describe_uuid(bytes, "NVIDIA H200 MIG 1g.18gb", seen, sizeof seen);
    assert_string_equal(seen, "MIG-5f010203-0405-0607-0809-0a0b0c0d0eff");
}

static void make(const char *folder, const char *name)
{
    char *path = xasprintf("%s/%s", folder, name);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fclose(f);
    free(path);
}

static void assert_absence(const char *visible, const char *dev, const char *want)
{
    char seen[160], *wanted = xasprintf(want, dev);

    describe_absence(visible, dev, seen, sizeof seen);
    assert_string_equal(seen, wanted);
    free(wanted);
}

/* A folder stands for /dev, and is filled step by step. */
static void test_absence(void **state)
{
    static const char no_control[] =
        "there is no %s/nvidiactl: no nvidia module is loaded (modprobe nvidia, dmesg), or a "
        "container has no GPUs (docker run --gpus all)";
    static const char no_gpu[] =
        "there is no %s/nvidia0, nor another: in a container that was started without GPUs "
        "(docker run --gpus all gives them)?";
    char dev[] = "/tmp/dptrain-dev-XXXXXX";
    static const char *const names[] = {"nvidiactl", "nvidia-uvm", "nvidia3"};

    (void)state;
    assert_non_null(mkdtemp(dev));
    assert_absence(NULL, dev, no_control);
    assert_absence("0", dev, no_control);
    make(dev, names[0]);
    make(dev, names[1]);
    assert_absence(NULL, dev, no_gpu);
    make(dev, names[2]);
    assert_absence(NULL, dev, "");
    assert_absence("", dev, "CUDA_VISIBLE_DEVICES is empty, which hides all: unset it");
    assert_absence("7,GPU-5", dev,
                   "CUDA_VISIBLE_DEVICES is \"7,GPU-5\", which may name none that is there: "
                   "nvidia-smi -L lists them");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char *path = xasprintf("%s/%s", dev, names[i]);

        assert_int_equal(unlink(path), 0);
        free(path);
    }
    assert_int_equal(rmdir(dev), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_loaded),
        cmocka_unit_test(test_not_there),      cmocka_unit_test(test_order),
        cmocka_unit_test(test_probe_print),    cmocka_unit_test(test_arch),
        cmocka_unit_test(test_driver_version), cmocka_unit_test(test_uuid),
        cmocka_unit_test(test_absence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
