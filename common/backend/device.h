/* device - what --device means on this machine.
 *
 * Nothing is loaded for "cpu", nor for "auto" where there is no NVIDIA driver; the plugin is for a
 * GPU (plugin.h), and stays loaded.
 *
 * Life:    devices_find -> devices_pick, devices_open ... ; there is nothing to free.
 * Threads: one at a time; the plugin's open on the engine's. */
#ifndef BACKEND_DEVICE_H
#define BACKEND_DEVICE_H

#include "backend/plugin.h"

enum { DEVICE_TEXT = 16 };

/* Number of the GPU in "cuda:I"; -1: "cuda" or "auto" (any), or "cpu". */
int device_index(const char *device);
int device_is_cuda(const char *device); /* "cuda", "cuda:I" */

/* ERR_ARG unless it is auto, cpu, cuda or cuda:I. */
int device_check(const char *device, struct err *err);

struct devices {
    const struct plugin *plugin; /* NULL: the CPU only */
    struct plugin_probe probe;   /* with a plugin */
    char trouble[PLUGIN_TEXT];   /* auto: why there is no GPU, or "" */
    int has_driver;              /* ... although there is a driver */
};

/* Find the devices of this machine, as far as `wanted` asks for them.  With cuda or cuda:I,
 * ERR_UNSUPPORTED unless such a GPU can be used: one line that says which library is missing, that
 * there is no driver, or what is wrong with the GPU. */
int devices_find(const char *wanted, struct devices *out, struct err *err);

/* The device for a process that is alone to choose: "cpu", or "cuda:I" with the GPU wanted or the
 * first that can be used. */
void devices_pick(const struct devices *d, const char *wanted, char out[DEVICE_TEXT]);

int devices_n_usable(const struct devices *d); /* GPUs */

/* GPU 1 as "cuda:1 (NVIDIA H200, GPU-5f...)", for messages. */
void devices_describe(const struct devices *d, const char *device, struct buf *out);

/* The driver's own version, "580.95.05", out of what /proc/driver/nvidia/version says; "" if it is
 * not in there. */
void device_driver_version(const char *text, char out[DEVICE_TEXT]);

/* For --check: where things were looked for, versions, GPUs, and whether they fit. */
void devices_print(const char *wanted, struct buf *out);

#endif
