/* nvml_stub - a libnvidia-ml for tests, whose answers a test sets.  The test loads the same file
 * and finds the variable `nvml_stub` in it.
 *
 * It knows the GPU at 0000:65:00.0 with the uuid GPU-1, and its slice MIG-1.
 *
 * Threads: a test sets it while nobody asks. */
#ifndef TESTS_DAEMON_NVML_STUB_H
#define TESTS_DAEMON_NVML_STUB_H

struct nvml_stub {
    int init_error, error; /* what nvmlInit_v2 answers; what the numbers do; 0: they are good */
    int n_open;            /* calls of nvmlInit_v2 without their nvmlShutdown */
    unsigned long long mj, used_bytes;
    unsigned percent, celsius, mw, mhz;
};

#endif
