/* count_cudart - a stand-in for the CUDA runtime, built under its soname, for the test of
 * gpu_count: the three calls that count_plugin.c makes, each with an answer of its own. */
#include <stddef.h>

#define SHOWN __attribute__((visibility("default")))

SHOWN int cudaGraphLaunch(void *exec, void *stream);
SHOWN int cudaMalloc(void **p, size_t n);
SHOWN int cudaStreamSynchronize(void *stream);

int cudaGraphLaunch(void *exec, void *stream) { return exec == stream ? 0 : 1; }

int cudaMalloc(void **p, size_t n)
{
    *p = NULL;
    return (int)n;
}

int cudaStreamSynchronize(void *stream) { return stream ? 1 : 0; }
