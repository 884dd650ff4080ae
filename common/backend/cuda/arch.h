/* arch - tells whether kernels that were built for a list of architectures run on a GPU.
 *
 * Threads: any; no state. */
#ifndef BACKEND_CUDA_ARCH_H
#define BACKEND_CUDA_ARCH_H

/* `list` is as the build option gpu_arch: "80,86,90a,120+PTX".  Kernels for N run on GPUs of the
 * same major version with the same or a newer minor version; kernels for Na run on N alone; kernels
 * for N+PTX also run on all GPUs newer than N. */
int arch_runs_on(const char *list, int major, int minor);

#endif
