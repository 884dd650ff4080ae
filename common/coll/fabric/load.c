/* load - finds the plugin among this program's own files, and networks by the kernel's.
 *
 * The plugin is loaded for good: a provider may have started threads, and cannot be unloaded. */
#include "coll/fabric/load.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/installed.h"
#include "base/util.h"

#define FABRIC_FILE "dptrain-fabric.so"

/* The best first.  libfabric itself is asked only where such a device is: it loads all providers,
 * some of which take signals and patch malloc. */
static const struct {
    const char *provider, *devices;
} networks[] = {
    {"cxi", "/sys/class/cxi/*"},
    {"efa", "/sys/bus/pci/drivers/efa/0*"},
    {"opx", "/sys/class/infiniband/hfi1_*"},
    {"verbs;ofi_rxm", "/sys/class/infiniband/*"},
};

const char *fabric_likely(const char *root)
{
    const char *found = NULL;

    for (size_t i = 0; i < ARRAY_LEN(networks) && !found; i++) {
        char *pattern = xasprintf("%s%s", root, networks[i].devices);
        glob_t seen;

        if (glob(pattern, GLOB_NOSORT, NULL, &seen) == 0) {
            found = networks[i].provider;
            globfree(&seen);
        }
        free(pattern);
    }
    return found;
}

void fabric_set_limit(const char *root)
{
    static const char longest[] = "66000"; /* a piece of 64 KiB, its head and its mark */
    const char *likely = fabric_likely(root);

    if (likely && strstr(likely, "ofi_rxm"))
        return;
    setenv("FI_OFI_RXM_EAGER_LIMIT", longest, 0); /* libfabric 1.17 goes by this one */
    setenv("FI_OFI_RXM_BUFFER_SIZE", longest, 0); /* ... and 2.1 by this one */
}

static int check_fabric(const struct fabric_ops *f, const char *path, struct err *err)
{
    if (f->abi == FABRIC_ABI && f->layout == FABRIC_LAYOUT && !strcmp(f->version, DPTRAIN_VERSION))
        return 0;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s is of another build than this program: install the two together", path);
}

static int load_file(const char *path, const struct fabric_ops **out, struct err *err)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    fabric_fn *fn = handle ? (fabric_fn *)(uintptr_t)dlsym(handle, FABRIC_SYMBOL) : NULL;
    const struct fabric_ops *f;

    if (!fn)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s; libfabric.so.1 is the site's, or Debian's package libfabric1",
                       dlerror());
    f = fn();
    if (check_fabric(f, path, err) < 0)
        return err->code;
    *out = f;
    return 0;
}

int fabric_load(const struct fabric_ops **out, struct err *err)
{
    char *path = installed_find(FABRIC_FILE);
    int rc;

    if (!path)
        return err_set(err, ERR_UNSUPPORTED,
                       "there is no " FABRIC_FILE " beside this program or in " DPTRAIN_LIBDIR
                       ": it was not built (no libfabric-dev) or not installed");
    rc = load_file(path, out, err);
    free(path);
    return rc;
}
