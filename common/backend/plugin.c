/* plugin - finds and loads the plugin and the libraries that it needs.
 *
 * Happy path: the libraries of needed[] are loaded one by one, each from the first place that has
 * it.  Then the plugin is loaded; the loader finds its libraries loaded already, by name.  Then the
 * plugin's table is checked.
 *
 * Failure modes: a library is found nowhere (the message names all such), or its version does not
 * fit; the plugin is found nowhere, or is of another version. */
#include "backend/plugin.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/installed.h"
#include "base/util.h"

enum { CUDART, NVJITLINK, NVRTC, CUBLASLT, CUDNN, CUDNN_GRAPH, NCCL, N_NEEDED };

/* In the order of dependence.  cuDNN loads nvrtc, nvJitLink and its own parts by itself when it
 * needs them.  It ends the program if libcudnn_graph is missing, so this part is required here. */
static const struct {
    const char *name;
    int optional;
} needed[N_NEEDED] = {
    [CUDART] = {"libcudart.so.13", 0}, [NVJITLINK] = {"libnvJitLink.so.13", 1},
    [NVRTC] = {"libnvrtc.so.13", 1},   [CUBLASLT] = {"libcublasLt.so.13", 0},
    [CUDNN] = {"libcudnn.so.9", 0},    [CUDNN_GRAPH] = {"libcudnn_graph.so.9", 0},
    [NCCL] = {"libnccl.so.2", 0},
};

enum { MAX_DIRS = 64, CUDA_MAJOR = 13, OLDEST_NCCL = 22800 };

struct dirs {
    char *dir[MAX_DIRS];
    int n;
};

struct plugin_search {
    struct dirs plugin, library;
    int asked_python;
    char *found[N_NEEDED]; /* path, or NULL */
    char *builtins;        /* path of nvrtc's builtins, or NULL */
};

/* Takes dir.  A folder that is in the list already is not added again. */
static void add_dir(struct dirs *d, char *dir)
{
    for (int i = 0; i < d->n; i++)
        if (!strcmp(d->dir[i], dir)) {
            free(dir);
            return;
        }
    if (d->n < MAX_DIRS)
        d->dir[d->n++] = dir;
    else
        free(dir);
}

static void free_dirs(struct dirs *d)
{
    for (int i = 0; i < d->n; i++)
        free(d->dir[i]);
}

static void add_plugin_dirs(struct plugin_search *s)
{
    char *dir[INSTALLED_DIRS];
    const int n = installed_dirs(dir);

    for (int i = 0; i < n; i++)
        add_dir(&s->plugin, dir[i]);
}

struct plugin_search *plugin_search_new(void)
{
    static const char *const variables[] = {"CUDA_HOME", "CUDA_PATH"};
    struct plugin_search *s = xcalloc(1, sizeof *s);

    add_plugin_dirs(s);
    for (size_t i = 0; i < ARRAY_LEN(variables); i++)
        if (getenv(variables[i]))
            add_dir(&s->library, xasprintf("%s/lib64", getenv(variables[i])));
    add_dir(&s->library, xstrdup("/usr/local/cuda/lib64"));
    add_dir(&s->library, xstrdup("/usr/local/cuda-13/lib64"));
    return s;
}

void plugin_search_free(struct plugin_search *s)
{
    if (!s)
        return;
    free_dirs(&s->plugin);
    free_dirs(&s->library);
    for (int i = 0; i < N_NEEDED; i++)
        free(s->found[i]);
    free(s->builtins);
    free(s);
}

static void add_wheels(struct dirs *d, const char *nvidia)
{
    char *pattern = xasprintf("%s/*/lib", nvidia);
    glob_t found;

    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            add_dir(d, xstrdup(found.gl_pathv[i]));
        globfree(&found);
    }
    free(pattern);
}

/* Asks python3 where pip put NVIDIA's packages.  The working directory is left out of its path,
 * because any user may own that directory. */
static void ask_python(struct plugin_search *s)
{
    static const char command[] =
        "python3 -c 'import sys, importlib.util as u\n"
        "sys.path = [p for p in sys.path if p]\n"
        "s = u.find_spec(\"nvidia\")\n"
        "print(*(s.submodule_search_locations or [] if s else []), sep=\"\\n\")' 2>/dev/null";
    char line[4096];
    FILE *f;

    if (s->asked_python++)
        return;
    f = popen(command, "re");
    if (!f)
        return;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '/')
            add_wheels(&s->library, line);
    }
    pclose(f);
}

static char *plugin_path_of(void *handle, const char *name)
{
    struct link_map *map = NULL;

    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0])
        return xstrdup(map->l_name);
    return xstrdup(name);
}

/* Loads a library for good.  Returns the path that it was loaded from, or NULL. */
static char *try_library(const char *dir, const char *name)
{
    char *path = dir ? xasprintf("%s/%s", dir, name) : xstrdup(name);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    char *found = handle ? plugin_path_of(handle, path) : NULL;

    free(path);
    return found;
}

static char *find_library(struct plugin_search *s, const char *name)
{
    char *found = try_library(NULL, name);

    for (int i = 0; !found && i < s->library.n; i++)
        found = try_library(s->library.dir[i], name);
    if (!found && !s->asked_python) {
        const int first_new = s->library.n;

        ask_python(s);
        for (int i = first_new; !found && i < s->library.n; i++)
            found = try_library(s->library.dir[i], name);
    }
    return found;
}

/* A function of a library that is loaded; NULL if the library is not loaded or has none such. */
static void *plugin_function_of(const char *path, const char *name)
{
    void *handle = path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *fn = handle ? dlsym(handle, name) : NULL;

    if (handle)
        dlclose(handle); /* try_library's handle keeps the library loaded */
    return fn;
}

/* nvrtc asks the loader for its builtins when it compiles.  They lie beside nvrtc, but pip's nvrtc
 * tells the loader no path, so they are loaded here. */
static void load_builtins(struct plugin_search *s)
{
    typedef int version_fn(int *major, int *minor);
    const char *nvrtc = s->found[NVRTC], *slash = nvrtc ? strrchr(nvrtc, '/') : NULL;
    version_fn *fn = (version_fn *)(uintptr_t)plugin_function_of(nvrtc, "nvrtcVersion");
    char *path;
    int major, minor;

    if (!slash || s->builtins || !fn || fn(&major, &minor) != 0)
        return;
    path = xasprintf("%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - nvrtc), nvrtc, major, minor);
    s->builtins = try_library(NULL, path);
    free(path);
}

static void load_libraries(struct plugin_search *s)
{
    for (int i = 0; i < N_NEEDED; i++)
        if (!s->found[i])
            s->found[i] = find_library(s, needed[i].name);
    load_builtins(s);
}

static int plugin_check_table(const struct plugin *p, const char *path, struct err *err)
{
    if (p->abi != PLUGIN_ABI)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s has interface %u, this program wants %u: install the two together", path,
                       p->abi, PLUGIN_ABI);
    if (strcmp(p->version, DPTRAIN_VERSION) != 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s is of dptrain %.32s, this program of " DPTRAIN_VERSION
                       ": install the two together",
                       path, p->version);
    if (p->layout != PLUGIN_LAYOUT)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s was built from other sources of dptrain " DPTRAIN_VERSION
                       " than this program: build the two together",
                       path);
    return 0;
}

int plugin_load_file(const char *path, const struct plugin **out, struct err *err)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct plugin *p;
    plugin_fn *fn;
    int rc;

    if (!handle)
        return err_set(err, ERR_UNSUPPORTED, "%s", dlerror());
    fn = (plugin_fn *)(uintptr_t)dlsym(handle, PLUGIN_SYMBOL);
    if (!fn)
        return err_set(err, ERR_UNSUPPORTED, "%s is no plugin of dptrain: no symbol %s", path,
                       PLUGIN_SYMBOL);
    p = fn();
    rc = plugin_check_table(p, path, err);
    if (rc < 0)
        return rc;
    ASSERT(p->probe && p->open);
    *out = p;
    return 0;
}

/* An older NCCL lacks functions that the plugin calls; the loader would name only a function. */
static int check_nccl(const struct plugin_search *s, struct err *err)
{
    typedef int version_fn(int *version);
    const char *path = s->found[NCCL];
    version_fn *fn = (version_fn *)(uintptr_t)plugin_function_of(path, "ncclGetVersion");
    int v = 0;

    if (!fn || fn(&v) != 0 || v >= OLDEST_NCCL)
        return 0;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s is NCCL %d.%d.%d, want 2.28 or newer: install that, or put it before in the "
                   "search that --check --device cuda shows",
                   path, v / 10000, v / 100 % 100, v % 100);
}

/* There is a libcudnn.so.9 for each CUDA.  It ends the program if it does not find the cuBLAS of
 * its own CUDA. */
static int check_cudnn(const struct plugin_search *s, struct err *err)
{
    typedef size_t version_fn(void);
    const char *path = s->found[CUDNN_GRAPH] ? s->found[CUDNN] : NULL;
    version_fn *fn = (version_fn *)(uintptr_t)plugin_function_of(path, "cudnnGetCudartVersion");
    const int major = fn ? (int)(fn() / 1000) : CUDA_MAJOR;

    if (major == CUDA_MAJOR)
        return 0;
    return err_set(
        err, ERR_UNSUPPORTED,
        "%s is a cuDNN for CUDA %d, want one for CUDA %d: install that, or put it before "
        "in the search that --check --device cuda shows",
        path, major, CUDA_MAJOR);
}

/* 1: the loader's message `text` is about the library of that name. */
static int is_about(const char *text, const char *name)
{
    return !strncmp(text, name, strlen(name)) && text[strlen(name)] == ':';
}

/* dlopen's error names one library.  The message has all that are missing, and dlopen's words only
 * if they are about something else. */
static int missing_libraries(const struct plugin_search *s, struct err *err)
{
    char said[sizeof err->msg], names[160] = "";
    int is_known = 0;

    snprintf(said, sizeof said, "%.200s; ", err->msg);
    for (int i = 0; i < N_NEEDED; i++) {
        if (s->found[i] || needed[i].optional)
            continue;
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", names[0] ? ", " : "",
                 needed[i].name);
        is_known |= is_about(said, needed[i].name);
    }
    if (!names[0])
        return err->code;
    return err_set(err, ERR_UNSUPPORTED,
                   "%slibraries not found: %s; the CUDA 13 toolkit, NVIDIA's packages and pip's "
                   "have them, and --check --device cuda shows where they were looked for",
                   is_known ? "" : said, names);
}

int plugin_search_load(struct plugin_search *s, const char *name, const struct plugin **out,
                       struct err *err)
{
    char *path = installed_find(name);
    int rc;

    if (!path)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s is neither beside this program (%s) nor in %s: install the package "
                       "dptrain-cuda, or build where the CUDA toolkit is",
                       name, s->plugin.dir[0], s->plugin.dir[s->plugin.n - 1]);
    load_libraries(s);
    rc = check_nccl(s, err);
    if (rc == 0)
        rc = check_cudnn(s, err);
    if (rc == 0 && (rc = plugin_load_file(path, out, err)) < 0)
        rc = missing_libraries(s, err);
    free(path);
    return rc;
}

static void print_dirs(const struct dirs *d, struct buf *out)
{
    for (int i = 0; i < d->n; i++)
        buf_printf(out, "    %s%s\n", d->dir[i], access(d->dir[i], R_OK) ? " (not there)" : "");
}

void plugin_search_print(struct plugin_search *s, const char *name, struct buf *out)
{
    static const char optional_missing[] = "not found; only some plans of cuDNN want it";
    char *path = installed_find(name);

    load_libraries(s);
    ask_python(s); /* its folders are part of the order, even if all was found before */
    buf_printf(out, "%s: %s; looked for in\n", name, path ? path : "not found");
    print_dirs(&s->plugin, out);
    buf_printf(out, "NVIDIA's libraries, looked for as the loader does (LD_LIBRARY_PATH, "
                    "ld.so.conf), then in\n");
    print_dirs(&s->library, out);
    for (int i = 0; i < N_NEEDED; i++)
        buf_printf(out, "  %s: %s\n", needed[i].name,
                   s->found[i]          ? s->found[i]
                   : needed[i].optional ? optional_missing
                                        : "not found");
    buf_printf(out, "  libnvrtc-builtins: %s\n", s->builtins ? s->builtins : optional_missing);
    free(path);
}

/* Prints 13000 as 13.0, cuDNN's 91900 as 9.19.0 and NCCL's 22809 as 2.28.9. */
static void print_version(struct buf *out, const char *what, int v, int unit)
{
    if (v == 0)
        buf_printf(out, "%s: none\n", what);
    else if (unit == 1000)
        buf_printf(out, "%s: %d.%d\n", what, v / 1000, v % 1000 / 10);
    else
        buf_printf(out, "%s: %d.%d.%d\n", what, v / 10000, v / 100 % 100, v % 100);
}

void plugin_probe_print(const struct plugin_probe *p, struct buf *out)
{
    print_version(out, "driver, knows CUDA", p->driver, 1000);
    print_version(out, "CUDA runtime", p->cuda, 1000);
    print_version(out, "cuBLASLt", p->cublaslt, 10000);
    print_version(out, "cuDNN", p->cudnn, 10000);
    print_version(out, "NCCL", p->nccl, 10000);
    buf_printf(out, "kernels built for: %s\n", p->built_for);
    for (int i = 0; i < p->n_gpus && i < PLUGIN_MAX_GPUS; i++) {
        const struct plugin_gpu *g = &p->gpu[i];

        buf_printf(out, "cuda:%d: %s, %.1f GiB, capability %d.%d, %s: %s\n", i, g->name,
                   (double)g->memory_bytes / 0x1p30, g->major, g->minor, g->uuid,
                   g->trouble[0] ? g->trouble : "can be used");
    }
    if (p->trouble[0])
        buf_printf(out, "no GPU can be used: %s\n", p->trouble);
}
