/* processor - what /proc/cpuinfo says of the processor, as far as numbers depend on it.
 *
 * Code for vectors is chosen by the instruction sets, and its blocks by the caches, which the model
 * stands for.  Other lines differ between equal processors: the kernel adds its own words to the
 * flags, a hypervisor leaves some out, and microcode makes another stepping.
 *
 * Threads: any. */
#ifndef BASE_PROCESSOR_H
#define BASE_PROCESSOR_H

#include <stdio.h>

#include "base/hash.h"

/* Add the kind of the first processor in `f`, which has the form of /proc/cpuinfo, to `h`, and
 * write its name.  Returns 0, with `name` as it was, if nothing is said of any. */
int processor_add(FILE *f, struct hasher *h, char *name, size_t n_name);

#endif
