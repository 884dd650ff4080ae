/* usage - the CPU time that a process has used so far, its resident memory and its open files, for
 * the swarm's measurements. */
#ifndef TESTS_BENCH_SWARM_USAGE_H
#define TESTS_BENCH_SWARM_USAGE_H

struct swarm_usage {
    double cpu_s; /* user and system time of all threads */
    double rss_mib;
    int n_files;
};

void usage_of(int pid,
              struct swarm_usage *out); /* pid 0: this process.  Zeros if the process ended. */

#endif
