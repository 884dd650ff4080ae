/* places - what each rank of this machine gets with --ranks: a GPU, CPUs, and threads.
 *
 * GPUs are given out in their order, one for each rank.  The CPUs that this process may use are
 * divided into equal parts; with GPUs, a rank's CPUs are of its GPU's NUMA node where the system
 * tells the nodes of all GPUs.  Binding a rank to CPUs also keeps its memory on their node, because
 * Linux places memory where it is first written.
 *
 * Life:    places_find -> places_fini.
 * Threads: main's. */
#ifndef DAEMON_PLACES_H
#define DAEMON_PLACES_H

#include <sched.h>

#include "backend/device.h"
#include "daemon/daemon.h"

enum { PLACES_MAX = 1024, PLACES_GPUS = -1 };

struct place {
    char device[DEVICE_TEXT]; /* for --device */
    int n_cpus;               /* in `cpus`; 0: the rank is not bound */
    cpu_set_t cpus;
    int n_threads; /* for --threads; 0: the rank decides */
    double quota;  /* CPUs of the cgroup, if that is why there are so few threads; else 0 */
};

struct places {
    struct place *place; /* [n] */
    int n;               /* 0: there is no --ranks */
};

/* Read --ranks: *out is a number, 0 if it was not given, or PLACES_GPUS.  ERR_ARG. */
int places_parse(const struct daemon_options *o, int *out, struct err *err);

/* Share this machine out as --ranks, --device, --threads and --bind say.  Without --ranks there are
 * no places.  ERR_ARG, ERR_UNSUPPORTED: there are too few GPUs, with the remedy. */
int places_find(const struct daemon_options *o, const struct devices *d, struct places *out,
                struct err *err);
void places_fini(struct places *p);

/* Log one line about this place: "rank 3 here: cuda:1, CPUs 8-15, 8 threads".  `name` is the rank
 * or the process. */
void place_log(const struct place *p, const char *name);

/* Bind the calling thread, and all that it starts from now on. */
void place_bind_self(const struct place *p);

#endif
