/* plugin - finds and loads backends while the program runs: dptrain-cuda.so.
 *
 * The daemons need no NVIDIA library to start, and no LD_LIBRARY_PATH.  The libraries that the
 * plugin needs are searched here: first as the loader does, then in the toolkit's folders, then in
 * the site-packages of the python3 on PATH (nvidia/X/lib, where pip puts them).  Each library is
 * loaded from the first place that has it, in the order of dependence, so that the plugin and cuDNN
 * find it loaded.
 *
 * Life:    plugin_search_new -> plugin_search_load, plugin_search_print -> plugin_search_free.
 *          Libraries stay loaded until the program ends: NVIDIA's cannot safely be unloaded.
 *
 * Threads: one at a time.
 *
 * Errors:  ERR_UNSUPPORTED: there is no plugin, the plugin is of another version, or a library is
 *          missing (the message names it), too old or for another CUDA.
 *
 * The plugin has a hidden copy of base/, tensor/, ir/, op/ and of whatever else its parts call.  It
 * exports one symbol, PLUGIN_SYMBOL, of type plugin_fn. */
#ifndef BACKEND_PLUGIN_H
#define BACKEND_PLUGIN_H

#include <stdint.h>

#include "backend/backend.h"
#include "base/buf.h"

enum { PLUGIN_ABI = 4, PLUGIN_MAX_GPUS = 32, PLUGIN_TEXT = 256 };

#define PLUGIN_SYMBOL "dptrain_plugin"

struct plugin_gpu {
    char name[96];
    char uuid[48];    /* "GPU-xxxxxxxx-..."; a MIG slice has "MIG-..." */
    char bus[32];     /* PCI address, "0000:65:00.0"; a GPU's slices share it; "" if unknown */
    int major, minor; /* compute capability */
    uint64_t memory_bytes;
    char trouble[PLUGIN_TEXT]; /* why this GPU cannot be used, "" if it can */
};

/* Versions are in the libraries' own numbers (13000, 91900, 22809); 0: there is no such library. */
struct plugin_probe {
    int driver; /* the newest CUDA that the driver supports */
    int cuda, cublaslt, cudnn, nccl;
    char built_for[96]; /* the architectures of the kernels, "90a" */
    int n_gpus;         /* all GPUs; gpu[] has at most the first PLUGIN_MAX_GPUS */
    struct plugin_gpu gpu[PLUGIN_MAX_GPUS];
    char trouble[PLUGIN_TEXT]; /* why no GPU can be used, "" if one can */
};

/* A number made of the sizes of all that the program and the plugin pass to each other.  If the two
 * were built from different headers, their numbers differ, most likely. */
#define PLUGIN_LAYOUT                                                                        \
    ((uint32_t)(sizeof(struct err) + 31 * sizeof(struct graph) + 961 * sizeof(struct node) + \
                29791 * sizeof(struct value) +                                               \
                923521 * (sizeof(struct backend_ops) + sizeof(struct backend_device_ops)) +  \
                (size_t)28629151 * OP_COUNT + sizeof(struct plugin_probe) +                  \
                (size_t)887503681 * sizeof(struct plugin_choices)))

/* A job's settings for the kernels that are made from now on. */
struct plugin_choices {
    int allow_tf32;       /* float32 products may round their factors to TF32 */
    size_t max_workspace; /* of one library call, bytes */
    int autotune;         /* time the algorithms and take the fastest, not the first */
    int keep_plans;       /* keep the choices on disk, from one run to the next */
    void (*warn)(void *arg, const char *text); /* on the engine's thread; NULL: no warnings */
    void *warn_arg;
};

struct coll_device_ops;

struct plugin {
    uint32_t abi;        /* PLUGIN_ABI; stays the first member for ever */
    uint32_t layout;     /* PLUGIN_LAYOUT */
    const char *version; /* of dptrain */
    void (*probe)(struct plugin_probe *out);
    int (*open)(int device, struct backend **out, struct err *err); /* on the engine's thread */
    const struct coll_device_ops *coll;                             /* coll/device.h; NULL: none */
    /* Call it before the first kernel is made.  Without this call there is no TF32, a workspace is
     * at most 256 MiB, and no algorithm is timed or kept.  NULL: this backend has no choices. */
    void (*configure)(struct backend *b, const struct plugin_choices *c);
};

typedef const struct plugin *plugin_fn(void);

struct plugin_search; /* opaque: the folders to search, and the libraries found so far */

/* A search of the usual places.  The plugin is looked for beside this program, in ../lib, in a
 * build folder's common/plugin, and in the libdir of the installation. */
struct plugin_search *plugin_search_new(void);
void plugin_search_free(struct plugin_search *s); /* NULL is fine */

/* Load the plugin `name` ("dptrain-cuda.so") and the libraries that it needs. */
int plugin_search_load(struct plugin_search *s, const char *name, const struct plugin **out,
                       struct err *err);

/* For --check: the places in the order of the search, one a line, and what was found where. */
void plugin_search_print(struct plugin_search *s, const char *name, struct buf *out);

/* Load this file, and check that it is a plugin for this program. */
int plugin_load_file(const char *path, const struct plugin **out, struct err *err);

/* For --check: a probe's result as text.  Versions, a line for each GPU, and the trouble. */
void plugin_probe_print(const struct plugin_probe *p, struct buf *out);

#endif
