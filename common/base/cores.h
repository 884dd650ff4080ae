/* cores - how many CPUs this process may use at the same time: those that it may run on, and no
 * more than the CPU quota of its cgroup pays for (docker run --cpus, a Kubernetes limit,
 * CPUQuota=).
 *
 * A quota stops all threads of the cgroup for the rest of each period (0.1 s) once they have used
 * it up.  Threads beyond it therefore only wait for each other.
 *
 * Threads: any; nothing is kept. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

enum { CORES_FROM = 256, CORES_TEXT = 320 };

struct cores {
    int n;                 /* CPUs that this process may run on, at least 1 */
    double quota;          /* CPUs that the cgroup pays for, such as 2.5; 0: there is no quota */
    char from[CORES_FROM]; /* the file that says so, cut if it is long */
};

/* Read the affinity of the process, and the least quota of its cgroup and of those above it that
 * can be seen: cpu.max of cgroup v2, cpu.cfs_quota_us and cpu.cfs_period_us of v1.
 *
 * root    the folder of /proc and /sys: "", or a test's own */
void cores_read(const char *root, struct cores *out);

/* The number of threads for one of n_ranks ranks under this quota, if it would be n_threads without
 * one: its part of the quota rounded up to whole CPUs, at least 1 and at most n_threads. */
int cores_limit(const struct cores *c, int n_threads, int n_ranks);

/* For a log: "the cgroup's quota is 2.5 CPUs (/sys/fs/cgroup/cpu.max)".  There is a quota. */
void cores_describe(const struct cores *c, char out[CORES_TEXT]);

#endif
