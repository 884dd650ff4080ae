/* cpus - the CPUs that this process may use, and how the ranks of a machine share them.
 *
 * The CPUs are ordered by NUMA node, then by core, so that the hardware threads of a core are
 * neighbours, and a rank gets a contiguous part of this order.  A part crosses a node only where
 * the ranks do not divide the nodes evenly: equal parts matter more, because a step is as slow as
 * its slowest rank.
 *
 * Life:    cpus_read -> cpus_part ... -> cpus_fini.
 * Threads: any; nothing is kept outside the struct. */
#ifndef DAEMON_CPUS_H
#define DAEMON_CPUS_H

#include <sched.h>
#include <stddef.h>

struct cpu {
    int cpu;  /* the system's number */
    int core; /* the lowest number among the hardware threads of its core */
    int node; /* NUMA node; 0 where the system does not tell */
};

struct cpus {
    struct cpu *cpu; /* [n], ordered by node, core and number */
    int n;
};

/* Describe the CPUs of `allowed` by the files in `folder`, which is /sys/devices/system or a test's
 * own.  Where a file is missing, each CPU is a core of its own, of node 0. */
void cpus_read(const char *folder, const cpu_set_t *allowed, struct cpus *out);
void cpus_fini(struct cpus *c);

/* Part `i` of the n equal parts of these CPUs.  With node >= 0 only the CPUs of that NUMA node are
 * divided.  Cores stay whole where there are at least n of them.  Returns the number of CPUs in
 * *out; 0: there are fewer than n CPUs. */
int cpus_part(const struct cpus *c, int node, int n, int i, cpu_set_t *out);

/* Write a set as the system writes it, such as "0-3,8-11".  A text that does not fit ends in "...".
 */
void cpus_text(const cpu_set_t *set, char *out, size_t size);

#endif
