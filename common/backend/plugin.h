/* plugin - backends that are loaded when the program runs: dptrain-cuda.so.
 *
 * The daemons need no NVIDIA library to start; what the plugin needs is looked for here, without
 * LD_LIBRARY_PATH: as the loader does, then in the toolkit's folders, then in the site-packages of
 * the python3 on PATH (nvidia/X/lib, where pip puts them).  A library is loaded from where it was
 * found first, in the order of dependence, so that the plugin and cuDNN find it loaded.
 *
 * Life:    plugin_search_new -> plugin_search_load, plugin_search_print -> plugin_search_free.
 *          Libraries stay loaded until the program ends: NVIDIA's are not made to be
 *          unloaded.
 *
 * Threads: one at a time.
 *
 * Errors:  ERR_UNSUPPORTED: no plugin, one of another version, a missing library (which), one too
 *          old or for another CUDA, no driver.
 *
 * The plugin has a hidden copy of base/, tensor/, ir/ and op/ and exports one symbol,
 * PLUGIN_SYMBOL, of type plugin_fn. */
#ifndef BACKEND_PLUGIN_H
#define BACKEND_PLUGIN_H

#include <stdint.h>

#include "backend/backend.h"
#include "base/buf.h"

enum { PLUGIN_ABI = 4, PLUGIN_MAX_GPUS = 32, PLUGIN_TEXT = 256 };

#define PLUGIN_SYMBOL "dptrain_plugin"

struct plugin_gpu {
    char name[96];
    char uuid[48];    /* "GPU-xxxxxxxx-...", of a slice "MIG-..." */
    char bus[32];     /* where it is on this machine, "0000:65:00.0", as its slices are; or "" */
    int major, minor; /* compute capability */
    uint64_t memory_bytes;
    char trouble[PLUGIN_TEXT]; /* why it cannot be used, "" if it can */
};

/* Versions as the libraries number them (13000, 91900, 22809); 0: none. */
struct plugin_probe {
    int driver; /* the newest CUDA that the driver knows */
    int cuda, cublaslt, cudnn, nccl;
    char built_for[96]; /* architectures, "90a" */
    int n_gpus;         /* all that are there, of which gpu[] tells the first PLUGIN_MAX_GPUS */
    struct plugin_gpu gpu[PLUGIN_MAX_GPUS];
    char trouble[PLUGIN_TEXT]; /* why no GPU can be used, "" if one can */
};

/* A number made of everything that crosses the border between the program and the plugin.  Both
 * must have been built from the same headers. */
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
    int autotune;         /* the fastest algorithm, by timing, instead of the first */
    int keep_plans;       /* on disk, from one run to the next */
    void (*warn)(void *arg, const char *text); /* on the engine's thread; NULL: nobody listens */
    void *warn_arg;
};

struct coll_device_ops;

struct plugin {
    uint32_t abi;        /* PLUGIN_ABI; first for ever */
    uint32_t layout;     /* PLUGIN_LAYOUT */
    const char *version; /* of dptrain */
    void (*probe)(struct plugin_probe *out);
    int (*open)(int device, struct backend **out, struct err *err); /* on the engine's thread */
    const struct coll_device_ops *coll;                             /* coll/device.h; NULL: none */
    /* Before the first kernel is made; without it: no TF32, 256 MiB, nothing timed or kept.
     * NULL: there is no such choice. */
    void (*configure)(struct backend *b, const struct plugin_choices *c);
};

typedef const struct plugin *plugin_fn(void);

struct plugin_search; /* opaque: where things are looked for, and what was found so far */

/* The usual places: beside this program, in ../lib and, in a build folder, where it is built; then
 * the libdir of the installation. */
struct plugin_search *plugin_search_new(void);
void plugin_search_free(struct plugin_search *s); /* NULL is fine */

/* Load `name` ("dptrain-cuda.so") and what it needs. */
int plugin_search_load(struct plugin_search *s, const char *name, const struct plugin **out,
                       struct err *err);

/* The order of the search, one place a line, and what was found where: for --check. */
void plugin_search_print(struct plugin_search *s, const char *name, struct buf *out);

/* Load this file, and see whether it is a plugin for this program. */
int plugin_load_file(const char *path, const struct plugin **out, struct err *err);

/* The result of probe, as text for --check: versions, a line for each GPU, and the trouble. */
void plugin_probe_print(const struct plugin_probe *p, struct buf *out);

#endif
