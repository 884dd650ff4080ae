/* nvml - the energy of a GPU, and how much of it is in use, from NVIDIA's management library.
 *
 * The library is a part of NVIDIA's driver.  It is loaded while the program runs, and only by a
 * rank that computes on a GPU.  Its numbers are of the whole GPU, with what other processes do.  Of
 * a MIG slice the library tells the memory, and of its GPU temperature and clock; energy, power and
 * use of a slice are not known.
 *
 * Life:    nvml_open -> nvml_read ... -> nvml_close.  The library stays loaded until the program
 *          ends: NVIDIA's cannot safely be unloaded.
 * Threads: one at a time.  Any call may take seconds, if the GPU has failed.
 * Errors:  ERR_UNSUPPORTED: there is no such library, it is too old, or it does not know the GPU.
 */
#ifndef DAEMON_NVML_H
#define DAEMON_NVML_H

#include "base/err.h"
#include "session/usage.h"

#define NVML_LIBRARY "libnvidia-ml.so.1"

struct nvml; /* opaque */

/* library  NVML_LIBRARY, or a test's own file
 * bus      the PCI address of the GPU, "0000:65:00.0"; "" if it is not known
 * uuid     "GPU-..." or "MIG-..." */
int nvml_open(const char *library, const char *bus, const char *uuid, struct nvml **out,
              struct err *err);
void nvml_close(struct nvml *n); /* NULL is fine */

/* Set the members of *u that are of the GPU; 0: the GPU or the library does not tell this one.
 * The energy counts from nvml_open, from 1 mJ; a counter that has become lower begins anew. */
void nvml_read(struct nvml *n, struct usage *u);

#endif
