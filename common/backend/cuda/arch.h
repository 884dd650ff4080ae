/* arch - whether kernels that were built for a list of architectures run on a GPU.
 *
 * Threads: any; no state. */
#ifndef BACKEND_CUDA_ARCH_H
#define BACKEND_CUDA_ARCH_H

/* list: as the option gpu_arch, "80,86,90a,120+PTX".  N runs on its own major version from its
 * minor on; Na on N alone; N+PTX on everything from N on, too. */
int arch_runs_on(const char *list, int major, int minor);

#endif
