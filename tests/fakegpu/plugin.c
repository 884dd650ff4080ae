/* plugin - a dptrain-cuda.so without a GPU: the real backend and the real kernels over
 * tests/cudasim, and collectives between processes (coll.c).  Device memory is closed to the
 * program except while work is done.  The daemons load this plugin as they load the real one.
 *
 * It reads from the environment:
 *   DPTRAIN_FAKE_GPUS     the number of GPUs (default 2)
 *   DPTRAIN_FAKE_BAD      the number of a GPU that cannot be used
 *   DPTRAIN_FAKE_TROUBLE  the reason why no GPU can be used
 *   DPTRAIN_FAKE_BREAK    the number, in each formation, of the collective in which the GPU breaks
 *                         for good; 0: none
 *   DPTRAIN_FAKE_FAIL     the number of a collective of the first formation that fails while the
 *                         GPU stays whole; 0: none
 *   DPTRAIN_FAKE_LOSE     the number of a collective of the first formation whose result the other
 *                         ranks get, while this one takes a rank for lost
 *   DPTRAIN_FAKE_LATENCY  each collective takes so many milliseconds longer
 *   DPTRAIN_FAKE_APART    each urgent collective that is not recorded takes so many milliseconds
 *                         longer still, in which the device does other work
 *   DPTRAIN_FAKE_SLOW     each step takes so many milliseconds longer
 *   DPTRAIN_FAKE_SLICE    there is one GPU, this slice of the only real one
 *   DPTRAIN_FAKE_SHOW     the name of a variable whose value is printed on standard error when the
 *                         plugin is loaded */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"
#include "backend/plugin.h"
#include "base/util.h"
#include "fakegpu.h"
#include "sim.h"

int fake_number(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text ? atoi(text) : otherwise;
}

static void show(const char *name)
{
    const char *value = name ? getenv(name) : NULL;

    if (name)
        fprintf(stderr, "fakegpu: process %ld has %s %s\n", (long)getpid(), name,
                value ? value : "not set");
}

static void be_slice(struct plugin_probe *out, const char *number)
{
    struct plugin_gpu *g = &out->gpu[0];

    out->n_gpus = 1;
    snprintf(g->uuid, sizeof g->uuid, "MIG-fake-%.8s", number);
    snprintf(g->bus, sizeof g->bus, "0000:01:00.0");
}

static void probe(struct plugin_probe *out)
{
    const char *trouble = getenv("DPTRAIN_FAKE_TROUBLE"), *slice = getenv("DPTRAIN_FAKE_SLICE");

    *out = (struct plugin_probe){.driver = 13000,
                                 .cuda = 13000,
                                 .cublaslt = 130100,
                                 .cudnn = 91900,
                                 .nccl = FAKE_LIBRARY,
                                 .built_for = "90a",
                                 .n_gpus = fake_number("DPTRAIN_FAKE_GPUS", 2)};
    for (int i = 0; i < out->n_gpus && i < PLUGIN_MAX_GPUS; i++) {
        struct plugin_gpu *g = &out->gpu[i];

        *g = (struct plugin_gpu){.name = "Simulated", .major = 9, .memory_bytes = 1ull << 30};
        snprintf(g->uuid, sizeof g->uuid, "GPU-fake-%d", i);
        snprintf(g->bus, sizeof g->bus, "0000:%02x:00.0", i + 1);
        if (i == fake_number("DPTRAIN_FAKE_BAD", -1))
            snprintf(g->trouble, sizeof g->trouble, "it is broken");
    }
    if (slice)
        be_slice(out, slice);
    show(getenv("DPTRAIN_FAKE_SHOW"));
    if (trouble)
        snprintf(out->trouble, sizeof out->trouble, "%.*s", PLUGIN_TEXT - 1, trouble);
}

/* Each process has a simulator of its own, whatever the device's number.  It measures how long it
 * waits for other ranks by a real clock. */
static int open_gpu(int device, struct backend **out, struct err *err)
{
    ASSERT(device >= 0 && device < fake_number("DPTRAIN_FAKE_GPUS", 2));
    sim_use_real_clock();
    return cuda_open(0, out, err);
}

__attribute__((visibility("default"))) plugin_fn dptrain_plugin;

const struct plugin *dptrain_plugin(void)
{
    static const struct plugin table = {PLUGIN_ABI, PLUGIN_LAYOUT, DPTRAIN_VERSION,
                                        probe,      open_gpu,      &fake_coll_ops};

    return &table;
}
