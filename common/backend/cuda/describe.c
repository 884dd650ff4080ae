/* describe - a GPU's UUID as nvidia-smi writes it, and the likely reason why no GPU was found.
 * No CUDA function is called here. */
#include "backend/cuda/describe.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void describe_uuid(const unsigned char bytes[16], const char *name, char *out, size_t size)
{
    int n = snprintf(out, size, "%s-", strstr(name, " MIG ") ? "MIG" : "GPU");

    for (int i = 0; i < 16; i++)
        n += snprintf(out + n, size - (size_t)n, "%s%02x",
                      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
}

/* A container has the files of only the GPUs that it was given, so any number will do. */
static int has_any(const char *dev)
{
    char pattern[4096];
    glob_t found;
    int n = 0;

    snprintf(pattern, sizeof pattern, "%s/nvidia[0-9]*", dev);
    if (glob(pattern, 0, NULL, &found) == 0) {
        n = (int)found.gl_pathc;
        globfree(&found);
    }
    return n > 0;
}

void describe_absence(const char *visible, const char *dev, char *out, size_t size)
{
    static const char give[] = "docker run --gpus all";
    char control[4096];
    int rc;

    snprintf(control, sizeof control, "%s/nvidiactl", dev);
    rc = access(control, R_OK | W_OK);
    if (rc < 0 && errno == ENOENT)
        snprintf(out, size,
                 "there is no %s: no nvidia module is loaded (modprobe nvidia, dmesg), or a "
                 "container has no GPUs (%s)",
                 control, give);
    else if (rc < 0)
        snprintf(out, size, "this user may not open %s: %s", control, strerror(errno));
    else if (!has_any(dev))
        snprintf(out, size,
                 "there is no %s/nvidia0, nor another: in a container that was started without "
                 "GPUs (%s gives them)?",
                 dev, give);
    else if (visible && !*visible)
        snprintf(out, size, "CUDA_VISIBLE_DEVICES is empty, which hides all: unset it");
    else if (visible)
        snprintf(out, size,
                 "CUDA_VISIBLE_DEVICES is \"%.60s\", which may name none that is there: "
                 "nvidia-smi -L lists them",
                 visible);
    else
        out[0] = 0;
}
