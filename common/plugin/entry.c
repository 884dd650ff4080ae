/* entry - the plugin's one exported symbol: a table of the backend's and the collectives'
 * functions.  Its probe finds the GPUs, the driver and the libraries of this machine. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>

#include "backend/cuda/arch.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/describe.h"
#include "backend/plugin.h"
#include "base/util.h"
#include "coll/nccl/ops.h"

#define COPY_TEXT(to, from) snprintf((to), sizeof(to), "%.*s", (int)sizeof(to) - 1, (from))

static void probe_gpu(int i, struct plugin_gpu *g)
{
    struct cudaDeviceProp p;
    const cudaError_t st = cudaGetDeviceProperties(&p, i);

    if (st != cudaSuccess) {
        COPY_TEXT(g->trouble, cudaGetErrorString(st));
        return;
    }
    COPY_TEXT(g->name, p.name);
    describe_uuid((const unsigned char *)p.uuid.bytes, p.name, g->uuid, sizeof g->uuid);
    if (cudaDeviceGetPCIBusId(g->bus, sizeof g->bus, i) != cudaSuccess)
        g->bus[0] = 0;
    g->major = p.major;
    g->minor = p.minor;
    g->memory_bytes = p.totalGlobalMem;
    if (!arch_runs_on(GPU_ARCH, p.major, p.minor))
        snprintf(
            g->trouble, sizeof g->trouble,
            "this build has kernels for %s, this GPU is of %d%d: build with -Dgpu_arch=release",
            GPU_ARCH, p.major, p.minor);
}

/* libcudnn.so.9 passes every call on to its parts.  It ends the program if it finds no part. */
static int is_cudnn_whole(void) { return dlopen("libcudnn_graph.so.9", RTLD_LAZY) != NULL; }

static void probe_versions(struct plugin_probe *out)
{
    (void)cudaDriverGetVersion(&out->driver);
    (void)cudaRuntimeGetVersion(&out->cuda);
    out->cublaslt = (int)cublasLtGetVersion();
    if (is_cudnn_whole())
        out->cudnn = (int)cudnnGetVersion();
    (void)ncclGetVersion(&out->nccl);
    COPY_TEXT(out->built_for, GPU_ARCH);
}

/* Writes the remedy for st to `out`, or "" if none is known. */
static void find_remedy(const struct plugin_probe *p, cudaError_t st, char *out, size_t size)
{
    out[0] = 0;
    if (st == cudaSuccess || st == cudaErrorNoDevice)
        describe_absence(getenv("CUDA_VISIBLE_DEVICES"), "/dev", out, size);
    else if (st == cudaErrorInsufficientDriver)
        snprintf(out, size, "the driver is for CUDA %d.%d, this is CUDA %d.%d: install a newer one",
                 p->driver / 1000, p->driver % 1000 / 10, p->cuda / 1000, p->cuda % 1000 / 10);
    else if (st == cudaErrorSystemNotReady)
        snprintf(out, size, "is nvidia-fabricmanager running, which GPUs on NVSwitch need?");
}

static void probe_trouble(struct plugin_probe *out, cudaError_t st)
{
    char remedy[160];

    if (out->driver == 0) {
        COPY_TEXT(out->trouble, "there is no NVIDIA driver (libcuda.so.1); a container has it when "
                                "it is started with GPUs");
    } else if (st != cudaSuccess || out->n_gpus == 0) {
        find_remedy(out, st, remedy, sizeof remedy);
        snprintf(out->trouble, sizeof out->trouble, "%.90s%s%s",
                 st != cudaSuccess ? cudaGetErrorString(st) : "the driver finds no GPU",
                 remedy[0] ? "; " : "", remedy);
    }
    if (out->cudnn == 0)
        COPY_TEXT(out->trouble, "cuDNN is not whole: no libcudnn_graph.so.9 beside libcudnn.so.9");
    for (int i = 0; i < out->n_gpus && i < PLUGIN_MAX_GPUS; i++)
        if (!out->gpu[i].trouble[0])
            return;
    if (!out->trouble[0])
        COPY_TEXT(out->trouble, out->gpu[0].trouble);
}

static void entry_probe(struct plugin_probe *out)
{
    cudaError_t st;

    *out = (struct plugin_probe){0};
    probe_versions(out);
    st = cudaGetDeviceCount(&out->n_gpus);
    if (st != cudaSuccess)
        out->n_gpus = 0;
    for (int i = 0; i < out->n_gpus && i < PLUGIN_MAX_GPUS; i++)
        probe_gpu(i, &out->gpu[i]);
    probe_trouble(out, st);
    (void)cudaGetLastError();
}

static int open_gpu(int device, struct backend **out, struct err *err)
{
    if (!is_cudnn_whole())
        return err_set(err, ERR_UNSUPPORTED, "cuDNN is not whole: %s", dlerror());
    return cuda_open(device, out, err);
}

__attribute__((visibility("default"))) const struct plugin *dptrain_plugin(void);

const struct plugin *dptrain_plugin(void)
{
    static const struct plugin table = {
        .abi = PLUGIN_ABI,
        .layout = PLUGIN_LAYOUT,
        .version = DPTRAIN_VERSION,
        .probe = entry_probe,
        .open = open_gpu,
        .coll = &coll_nccl_ops,
        .configure = cuda_configure,
    };

    return &table;
}
