/* gpu_properties - prints the properties of GPU 0 by CUDA and cuDNN as JSON, from which plans for
 * it can be built on another machine.  Exit status 77: no GPU. */
#include <cuda_runtime_api.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "cudnn_json.h"
#include "gpu.h"

typedef cudaError_t properties_fn(struct cudaDeviceProp *p, int device);
typedef cudaError_t attribute_fn(int *value, enum cudaDeviceAttr attr, int device);

static const struct {
    const char *name;
    enum cudaDeviceAttr attr;
} attributes[] = {
    {"clockRate", cudaDevAttrClockRate},
    {"memoryClockRate", cudaDevAttrMemoryClockRate},
    {"globalMemoryBusWidth", cudaDevAttrGlobalMemoryBusWidth},
    {"l2CacheSize", cudaDevAttrL2CacheSize},
    {"maxSharedMemoryPerBlockOptin", cudaDevAttrMaxSharedMemoryPerBlockOptin},
    {"maxBlocksPerMultiprocessor", cudaDevAttrMaxBlocksPerMultiprocessor},
    {"cooperativeLaunch", cudaDevAttrCooperativeLaunch},
    {"hostRegisterSupported", cudaDevAttrHostRegisterSupported},
    {"memoryPoolsSupported", cudaDevAttrMemoryPoolsSupported},
};

static void print_numbers(const struct cudaDeviceProp *p)
{
    const struct {
        const char *name;
        long long value;
    } rows[] = {
        {"major", p->major},
        {"minor", p->minor},
        {"multiProcessorCount", p->multiProcessorCount},
        {"totalGlobalMem", (long long)p->totalGlobalMem},
        {"sharedMemPerBlock", (long long)p->sharedMemPerBlock},
        {"sharedMemPerMultiprocessor", (long long)p->sharedMemPerMultiprocessor},
        {"regsPerBlock", p->regsPerBlock},
        {"regsPerMultiprocessor", p->regsPerMultiprocessor},
        {"warpSize", p->warpSize},
        {"maxThreadsPerBlock", p->maxThreadsPerBlock},
        {"maxThreadsPerMultiProcessor", p->maxThreadsPerMultiProcessor},
        {"maxGridSizeX", p->maxGridSize[0]},
        {"asyncEngineCount", p->asyncEngineCount},
        {"persistingL2CacheMaxSize", p->persistingL2CacheMaxSize},
        {"canMapHostMemory", p->canMapHostMemory},
        {"ECCEnabled", p->ECCEnabled},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        printf("  \"%s\": %lld,\n", rows[i].name, rows[i].value);
}

/* Print cuDNN's description of the GPU; tests/cudnn/plans.h holds that of an H200. */
static int print_cudnn(void)
{
    char *text = NULL;
    struct err err;

    if (cudnn_json(dlopen("libcudnn.so.9", RTLD_LAZY), NULL, &text, &err) < 0) {
        fprintf(stderr, "gpu_properties: %s\n", err.msg);
        return -1;
    }
    printf("  \"cudnn_device\": %s\n}\n", text);
    free(text);
    return 0;
}

int main(void)
{
    struct cudaDeviceProp p;
    const int none = gpu_find();
    void *cudart = dlopen("libcudart.so.13", RTLD_LAZY);
    properties_fn *properties;
    attribute_fn *attribute;

    if (none)
        return none;
    properties =
        cudart ? (properties_fn *)(uintptr_t)dlsym(cudart, "cudaGetDeviceProperties") : NULL;
    attribute = cudart ? (attribute_fn *)(uintptr_t)dlsym(cudart, "cudaDeviceGetAttribute") : NULL;
    if (!properties || !attribute || properties(&p, 0) != cudaSuccess) {
        fprintf(stderr, "gpu_properties: the runtime does not answer\n");
        return 1;
    }
    printf("{\n  \"name\": \"%s\",\n", p.name);
    print_numbers(&p);
    for (size_t i = 0; i < ARRAY_LEN(attributes); i++) {
        int value = -1;

        (void)attribute(&value, attributes[i].attr, 0);
        printf("  \"%s\": %d,\n", attributes[i].name, value);
    }
    printf("  \"driver\": %d,\n  \"cuda\": %d,\n  \"cublaslt\": %d,\n  \"cudnn\": %d,\n"
           "  \"nccl\": %d,\n",
           gpu_probe()->driver, gpu_probe()->cuda, gpu_probe()->cublaslt, gpu_probe()->cudnn,
           gpu_probe()->nccl);
    return print_cudnn() < 0;
}
