/* gpu - the plugin and the first GPU that can be used, for the programs of the GPU suite (this
 * folder and tests/golden). */
#ifndef TESTS_GPU_GPU_H
#define TESTS_GPU_GPU_H

#include "backend/plugin.h"

enum { GPU_NONE = 77 }; /* exit status: there is no GPU to test on */

/* Load the plugin and look for GPUs.  Returns 0, or GPU_NONE after printing why. */
int gpu_find(void);
const struct plugin *gpu_plugin(void);
const struct plugin_probe *gpu_probe(void);
int gpu_open(struct backend **out, struct err *err);

#endif
