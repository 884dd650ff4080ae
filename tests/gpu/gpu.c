/* gpu - loads the plugin, probes it, and opens the first GPU that can be used; says why if
 * there is none. Shared by the programs of this folder. */
#include "gpu.h"

#include <stdio.h>

static const struct plugin *plugin;
static struct plugin_probe probe;
static int device = -1;

/* Standard output is flushed at each line, so that the lines of a program that is killed are not
 * lost.  It must be set before the first line is printed, so a constructor does it. */
__attribute__((constructor)) static void print_by_lines(void) { setvbuf(stdout, NULL, _IOLBF, 0); }

int gpu_find(void)
{
    struct plugin_search *s = plugin_search_new();
    struct err err;
    const int rc = plugin_search_load(s, "dptrain-cuda.so", &plugin, &err);

    plugin_search_free(s);
    if (rc < 0) {
        printf("no GPU: %s\n", err.msg);
        return GPU_NONE;
    }
    plugin->probe(&probe);
    for (int i = 0; i < probe.n_gpus && i < PLUGIN_MAX_GPUS && device < 0; i++)
        if (!probe.gpu[i].trouble[0])
            device = i;
    if (device < 0)
        printf("no GPU: %s\n", probe.trouble);
    return device < 0 ? GPU_NONE : 0;
}

const struct plugin *gpu_plugin(void) { return plugin; }
const struct plugin_probe *gpu_probe(void) { return &probe; }
int gpu_open(struct backend **out, struct err *err) { return plugin->open(device, out, err); }
