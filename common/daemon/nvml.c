/* The functions of libnvidia-ml that are used, by their names in nvml.h of CUDA 11 to 13.
 *
 * No header of NVIDIA's is needed for the build: the few types are written out here.  A function
 * that an older library lacks is NULL, and its number is not known. */
#include "daemon/nvml.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

enum { NVML_OK = 0, NVML_TEMPERATURE_OF_GPU = 0, NVML_CLOCK_SM = 1 };

typedef void *nvml_device; /* nvmlDevice_t: a pointer to a struct of the library's own */
typedef unsigned long long nvml_long;

struct nvml_use { /* nvmlUtilization_t: percent of the last sixth of a second to second */
    unsigned gpu, memory;
};

struct nvml_memory { /* nvmlMemory_t: bytes */
    nvml_long total, free, used;
};

/* X(member, name in the library, 1: nothing goes without it, arguments) */
#define NVML_FUNCTIONS(X)                                                                         \
    X(init, "nvmlInit_v2", 1, (void))                                                             \
    X(shutdown, "nvmlShutdown", 1, (void))                                                        \
    X(by_bus, "nvmlDeviceGetHandleByPciBusId_v2", 1, (const char *bus, nvml_device *out))         \
    X(by_uuid, "nvmlDeviceGetHandleByUUID", 1, (const char *uuid, nvml_device *out))              \
    X(energy, "nvmlDeviceGetTotalEnergyConsumption", 0, (nvml_device d, nvml_long * mj))          \
    X(use, "nvmlDeviceGetUtilizationRates", 0, (nvml_device d, struct nvml_use * out))            \
    X(memory, "nvmlDeviceGetMemoryInfo", 0, (nvml_device d, struct nvml_memory * out))            \
    X(temperature, "nvmlDeviceGetTemperature", 0, (nvml_device d, int sensor, unsigned *celsius)) \
    X(power, "nvmlDeviceGetPowerUsage", 0, (nvml_device d, unsigned *mw))                         \
    X(clock, "nvmlDeviceGetClockInfo", 0, (nvml_device d, int type, unsigned *mhz))

#define X(member, name, is_needed, arguments) typedef int nvml_##member##_fn arguments;
NVML_FUNCTIONS(X)
#undef X

struct nvml {
    void *library;
#define X(member, name, is_needed, arguments) nvml_##member##_fn *member;
    NVML_FUNCTIONS(X)
#undef X
    const char *(*error_text)(int rc);
    nvml_device device; /* the GPU; NULL: its address is not known, and this is a slice */
    nvml_device slice;  /* NULL: the rank has the whole GPU */
    nvml_long last_mj;
    int has_last;
    int64_t mj; /* since nvml_open */
};

/* ---- the library ---- */

static const char *nvml_text(const struct nvml *n, int rc)
{
    return n->error_text ? n->error_text(rc) : "no text";
}

/* A pointer to a function cannot be converted to one to an object, but their bytes are equal. */
static int nvml_find(struct nvml *n, const char *name, int is_needed, void *out, struct err *err)
{
    void *found = dlsym(n->library, name);

    if (!found && is_needed)
        return err_set(err, ERR_UNSUPPORTED, "it has no function %s: it is too old", name);
    memcpy(out, &found, sizeof found);
    return 0;
}

static int nvml_find_all(struct nvml *n, struct err *err)
{
    int rc = nvml_find(n, "nvmlErrorString", 0, &n->error_text, err);

#define X(member, name, is_needed, arguments) \
    if (rc == 0)                              \
        rc = nvml_find(n, name, is_needed, &n->member, err);
    NVML_FUNCTIONS(X)
#undef X
    return rc;
}

/* ---- the device ---- */

static int nvml_check(const struct nvml *n, int got, const char *what, const char *which,
                      struct err *err)
{
    if (got == NVML_OK)
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "%s%s: %s (%d)", what, which, nvml_text(n, got), got);
}

static int nvml_find_device(struct nvml *n, const char *bus, const char *uuid, struct err *err)
{
    const int is_slice = !strncmp(uuid, "MIG-", 4);
    int rc = 0;

    if (is_slice)
        rc = nvml_check(n, n->by_uuid(uuid, &n->slice), "the slice ", uuid, err);
    if (rc == 0 && *bus)
        rc = nvml_check(n, n->by_bus(bus, &n->device), "the GPU at ", bus, err);
    else if (rc == 0 && !is_slice)
        rc = nvml_check(n, n->by_uuid(uuid, &n->device), "the GPU ", uuid, err);
    return rc;
}

static int nvml_begin(struct nvml *n, const char *bus, const char *uuid, struct err *err)
{
    int rc = nvml_check(n, n->init(), "its start", "", err);

    if (rc < 0)
        return rc;
    rc = nvml_find_device(n, bus, uuid, err);
    if (rc < 0)
        n->shutdown();
    return rc;
}

int nvml_open(const char *library, const char *bus, const char *uuid, struct nvml **out,
              struct err *err)
{
    struct nvml *n = xcalloc(1, sizeof *n);
    struct usage ignored;
    int rc;

    n->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!n->library) {
        rc = err_set(err, ERR_UNSUPPORTED, "%s", dlerror());
        free(n);
        return rc;
    }
    rc = nvml_find_all(n, err);
    if (rc == 0)
        rc = nvml_begin(n, bus, uuid, err);
    if (rc < 0) {
        free(n);
        return err_wrap(err, "%s", library);
    }
    nvml_read(n, &ignored); /* energy counts from here on */
    *out = n;
    return 0;
}

void nvml_close(struct nvml *n)
{
    if (!n)
        return;
    n->shutdown();
    free(n);
}

/* ---- numbers ---- */

static int64_t nvml_energy_mj(struct nvml *n)
{
    const nvml_long most = INT64_MAX / 16; /* a sum of two fits */
    nvml_long now;

    if (!n->energy || n->energy(n->device, &now) != NVML_OK)
        return 0;
    if (n->has_last && now > n->last_mj)
        n->mj = min_i64((int64_t)most,
                        n->mj + (int64_t)(now - n->last_mj < most ? now - n->last_mj : most));
    n->has_last = 1;
    n->last_mj = now;
    return 1 + n->mj;
}

/* Percent; a GPU that does nothing is known to. */
static int64_t nvml_permille(const struct nvml *n)
{
    struct nvml_use use;

    if (!n->use || n->use(n->device, &use) != NVML_OK || use.gpu > 100)
        return 0;
    return max_i64(1, 10 * (int64_t)use.gpu);
}

static int64_t nvml_memory_kib(const struct nvml *n)
{
    struct nvml_memory memory;

    if (!n->memory || n->memory(n->slice ? n->slice : n->device, &memory) != NVML_OK)
        return 0;
    return max_i64(1, (int64_t)(memory.used / 1024));
}

static int64_t nvml_celsius(const struct nvml *n)
{
    unsigned v;

    return n->temperature && n->temperature(n->device, NVML_TEMPERATURE_OF_GPU, &v) == NVML_OK ? v
                                                                                               : 0;
}

static int64_t nvml_mw(const struct nvml *n)
{
    unsigned v;

    return n->power && n->power(n->device, &v) == NVML_OK ? v : 0;
}

static int64_t nvml_mhz(const struct nvml *n)
{
    unsigned v;

    return n->clock && n->clock(n->device, NVML_CLOCK_SM, &v) == NVML_OK ? v : 0;
}

void nvml_read(struct nvml *n, struct usage *u)
{
    const int is_whole = n->device && !n->slice;

    u->mj[ENERGY_GPU] = is_whole ? nvml_energy_mj(n) : 0;
    u->gpu_permille = is_whole ? nvml_permille(n) : 0;
    u->gpu_mw = is_whole ? nvml_mw(n) : 0;
    u->gpu_memory_kib = nvml_memory_kib(n);
    u->gpu_celsius = n->device ? nvml_celsius(n) : 0;
    u->gpu_clock_mhz = n->device ? nvml_mhz(n) : 0;
}
