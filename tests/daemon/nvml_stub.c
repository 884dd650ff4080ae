/* The functions of libnvidia-ml that daemon/nvml.c asks for.  -DNVML_STUB_IS_OLD leaves out those
 * that an old library lacks, and -DNVML_STUB_IS_BROKEN one without which nothing goes.
 *
 * -DNVML_STUB_IS_LIVE knows every GPU, which then takes 100 W: for tests of the daemons. */
#include "nvml_stub.h"

#include <stddef.h>
#include <string.h>
#include <time.h>

enum { NOT_FOUND = 6, INVALID = 2, GPU_TEMPERATURE = 0, CLOCK_SM = 1 };

#ifdef NVML_STUB_IS_LIVE
struct nvml_stub nvml_stub = {
    .used_bytes = 1 << 30, .percent = 50, .celsius = 40, .mw = 100000, .mhz = 1500};

static int is_other(const char *name, const char *known)
{
    (void)name, (void)known;
    return 0;
}

static unsigned long long stub_mj(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return 100000ull * (unsigned long long)now.tv_sec + (unsigned long long)now.tv_nsec / 10000;
}
#else
struct nvml_stub nvml_stub;

static int is_other(const char *name, const char *known) { return strcmp(name, known) != 0; }

static unsigned long long stub_mj(void) { return nvml_stub.mj; }
#endif

static int gpu, slice; /* their addresses are the handles */

int nvmlInit_v2(void)
{
    nvml_stub.n_open += nvml_stub.init_error == 0;
    return nvml_stub.init_error;
}

int nvmlShutdown(void)
{
    nvml_stub.n_open--;
    return 0;
}

const char *nvmlErrorString(int rc) { return rc == NOT_FOUND ? "Not Found" : "Some Error"; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out)
{
    *out = &gpu;
    return is_other(bus, "0000:65:00.0") ? NOT_FOUND : 0;
}

#ifndef NVML_STUB_IS_BROKEN
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out)
{
    *out = !strcmp(uuid, "MIG-1") ? &slice : &gpu;
    return is_other(uuid, "MIG-1") && is_other(uuid, "GPU-1") ? NOT_FOUND : 0;
}
#endif

/* The library refuses the numbers of a slice, but for its memory. */
static int answer(const void *device)
{
    return nvml_stub.error ? nvml_stub.error : device == &gpu ? 0 : INVALID;
}

#ifndef NVML_STUB_IS_OLD
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj)
{
    *mj = stub_mj();
    return answer(device);
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    *celsius = nvml_stub.celsius;
    return sensor == GPU_TEMPERATURE ? answer(device) : INVALID;
}
#endif

int nvmlDeviceGetUtilizationRates(void *device, unsigned out[2])
{
    out[0] = nvml_stub.percent;
    out[1] = 77;
    return answer(device);
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3])
{
    out[0] = 1ull << 37;
    out[2] = device == &slice ? nvml_stub.used_bytes / 7 : nvml_stub.used_bytes;
    out[1] = out[0] - out[2];
    return nvml_stub.error;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *mw)
{
    *mw = nvml_stub.mw;
    return answer(device);
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz)
{
    *mhz = nvml_stub.mhz;
    return type == CLOCK_SM ? answer(device) : INVALID;
}
