/* sampler - measures each second what this process takes of its machine (session/usage.h).
 *
 * A thread of its own does it, because a driver of a device may not answer for seconds: neither a
 * step nor a heartbeat waits for a measurement.  The last one is kept then.
 *
 * Life:    sampler_new -> sampler_read ... -> sampler_free.
 * Threads: the loop's; the sampler has one more. */
#ifndef DAEMON_SAMPLER_H
#define DAEMON_SAMPLER_H

#include "base/err.h"
#include "session/usage.h"

struct sampler; /* opaque */

/* The folder that is read in place of /sys/class/powercap, for a container in which the machine's
 * is elsewhere. */
#define SAMPLER_VARIABLE "DPTRAIN_POWERCAP"

struct sampler_options {
    const char *powercap; /* that folder; NULL: SAMPLER_VARIABLE's, or base/rapl.h's */
    const char *nvml;     /* NULL: NVML_LIBRARY (daemon/nvml.h) */
    int each_ms;          /* 0: each second */
};

/* Measure once, and start the thread.  Fails with ERR_IO if no thread can be had. */
int sampler_new(const struct sampler_options *o, struct sampler **out, struct err *err);

/* NULL is fine.  A thread that a device keeps busy is left behind after a second. */
void sampler_free(struct sampler *s);

void sampler_read(struct sampler *s, struct usage *out); /* the newest */

/* From now on measure this GPU, too; bus and uuid as in struct plugin_gpu.  A library that is
 * missing is told once in the log. */
void sampler_watch_gpu(struct sampler *s, const char *bus, const char *uuid);

/* Why this machine's packages have no counter of energy; NULL: they have one. */
const char *sampler_no_energy(const struct sampler *s);

#endif
