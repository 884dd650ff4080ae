/* device - finds the devices of this machine and picks the one that --device asks for.
 *
 * The plugin (plugin.h) is loaded only if a GPU may be used: not for "cpu", and not for "auto" if
 * there is no NVIDIA driver.  It stays loaded.
 *
 * Life:    devices_find -> devices_pick, devices_describe ... ; there is nothing to free.
 * Threads: one at a time; call the plugin's `open` on the engine's thread. */
#ifndef BACKEND_DEVICE_H
#define BACKEND_DEVICE_H

#include "backend/plugin.h"

enum { DEVICE_TEXT = 16, DEVICE_TROUBLE = 512 /* as long as an error's text */ };

/* The number I of "cuda:I"; -1 for "cuda" and "auto" (any GPU) and for "cpu". */
int device_index(const char *device);
int device_is_cuda(const char *device); /* "cuda", "cuda:I" */

/* Returns ERR_ARG unless `device` is auto, cpu, cuda or cuda:I. */
int device_check(const char *device, struct err *err);

struct devices {
    const struct plugin *plugin;  /* NULL: only the CPU can be used */
    struct plugin_probe probe;    /* the plugin's result, if it could be loaded */
    char trouble[DEVICE_TROUBLE]; /* why no GPU can be used, or "" */
    int has_driver;               /* auto: there is an NVIDIA driver */
};

/* Find the devices of this machine, as far as `wanted` asks for them.  If `wanted` is cuda or
 * cuda:I and no such GPU can be used, returns ERR_UNSUPPORTED; the message is one line that says
 * which library is missing, that there is no driver, or what is wrong with the GPU. */
int devices_find(const char *wanted, struct devices *out, struct err *err);

/* The device of a process that shares the machine with no other rank: "cpu", or "cuda:I", where I
 * is the GPU that `wanted` names, or else the first one that can be used. */
void devices_pick(const struct devices *d, const char *wanted, char out[DEVICE_TEXT]);

/* The device that a process with this number on its machine asks for: "cuda:NUMBER" where `wanted`
 * leaves the GPU open and that one can be used, else `wanted`. */
void devices_of_local_rank(const struct devices *d, const char *wanted, int64_t local_rank,
                           char out[DEVICE_TEXT]);

int devices_n_usable(const struct devices *d); /* number of GPUs that can be used */

/* Appends a device as messages name it: "cuda:1 (NVIDIA H200, GPU-5f...)" or "cpu". */
void devices_describe(const struct devices *d, const char *device, struct buf *out);

/* Finds the NVIDIA driver's version, such as "580.95.05", in the text of
 * /proc/driver/nvidia/version; "" if the text has none. */
void device_driver_version(const char *text, char out[DEVICE_TEXT]);

/* For --check: where libraries were looked for, versions, GPUs, and whether they fit `wanted`. */
void devices_print(const char *wanted, struct buf *out);

#endif
