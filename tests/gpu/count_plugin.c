/* count_plugin - a plugin that launches steps, for the test of gpu_count.  If it is told to, each
 * step also allocates or waits, which a training step must not do. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int cudaGraphLaunch(void *exec, void *stream);
int cudaMalloc(void **p, size_t n);
int cudaStreamSynchronize(void *stream);

__attribute__((visibility("default"))) int steps(int n, int allocates, int waits);

/* Returns how many calls did not reach the runtime: their answers were not count_cudart's. */
int steps(int n, int allocates, int waits)
{
    int n_wrong = 0;

    for (int i = 0; i < n; i++) {
        void *p;

        n_wrong += cudaGraphLaunch(NULL, NULL) != 0;
        if (allocates) {
            volatile char *taken = malloc(16 + (size_t)i);

            *taken = 1;
            free((void *)(uintptr_t)taken);
            n_wrong += cudaMalloc(&p, 7) != 7;
        }
        if (waits)
            n_wrong += cudaStreamSynchronize(NULL) != 0;
    }
    return n_wrong;
}
