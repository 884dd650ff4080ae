/* The library that gpu_count stands before, under the runtime's soname. */
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
